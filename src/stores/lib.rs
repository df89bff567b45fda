//! The implementations of the ports. Only `app` and the tests name the adapters.

#[macro_use(failpoint)]
extern crate colloquy_core;

#[cfg(any(feature = "redis", feature = "qdrant"))]
mod breaker;
pub mod in_process;
mod migrations;
pub mod owner_only_files;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "qdrant")]
pub mod qdrant;
#[cfg(feature = "redis")]
pub mod redis;
pub mod sqlite;
