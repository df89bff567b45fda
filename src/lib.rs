//! Colloquy: a multi-tenant server for NPC dialogue.
//!
//! `ARCHITECTURE.md` has the map and the import rule. Start reading at `dialogue::turn`.

pub mod app;
pub mod calibrate;
pub mod cli;
pub mod config;
pub mod lifecycle;

pub use colloquy_actors as actors;
pub use colloquy_core::{failpoint, ids, shares};
pub use colloquy_dialogue as dialogue;
pub use colloquy_http as http;
pub use colloquy_memory as memory;
pub use colloquy_models::mock_llm;
pub use colloquy_ports as ports;
pub use colloquy_telemetry as telemetry;
pub use colloquy_tenancy as tenancy;
pub use colloquy_transport as transport;
pub use colloquy_webhooks as webhooks;

/// The implementations of the ports.
pub mod adapters {
    pub use colloquy_models::{offline_embedder, openai, scripted};
    pub use colloquy_stores::*;
}
