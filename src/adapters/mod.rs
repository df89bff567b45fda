//! What the ports are made of. Only `app` and the tests name anything in here.

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
