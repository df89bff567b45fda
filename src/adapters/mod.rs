//! The implementations of the ports. Only `app` and the tests name the adapters.

mod breaker;
pub mod in_process;
mod migrations;
pub mod offline_embedder;
pub mod openai;
pub mod owner_only_files;
pub mod postgres;
pub mod qdrant;
pub mod redis;
pub mod scripted;
pub mod sqlite;
