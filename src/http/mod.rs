//! The REST resources and the socket's entry point.
