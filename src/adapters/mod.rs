//! What the ports are made of. Only `app` and the tests name anything in here.
