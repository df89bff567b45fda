//! One test binary for all tests of more than one module: contract suites per port, and the server end to end over real
//! sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod architecture;
mod contracts;
mod deployment;
mod dialogue;
mod e2e;
mod eval;
mod first_schema;
mod http;
mod links;
mod plays;
mod replay;
mod support;
mod twin_worlds;
