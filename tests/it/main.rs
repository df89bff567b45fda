//! One binary for everything that needs more than one module: contract suites per port, and the
//! server end to end over real sockets.

mod architecture;
mod contracts;
mod dialogue;
mod e2e;
mod http;
mod support;
