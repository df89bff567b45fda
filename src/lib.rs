//! Colloquy: a multi-tenant server for NPC dialogue.
//!
//! `ARCHITECTURE.md` has the map and the import rule. Start reading at `dialogue::turn`.

pub mod app;
pub mod cli;
pub mod config;
pub mod lifecycle;

pub use colloquy_actors as actors;
pub use colloquy_core::{failpoint, ids, planted_leak, shares};
pub use colloquy_dialogue as dialogue;
pub use colloquy_http as http;
pub use colloquy_memory as memory;
#[cfg(feature = "dev-commands")]
pub use colloquy_mock_llm as mock_llm;
pub use colloquy_ports as ports;
pub use colloquy_telemetry as telemetry;
pub use colloquy_tenancy as tenancy;
pub use colloquy_transport as transport;
pub use colloquy_webhooks as webhooks;

/// The implementations of the ports.
pub mod adapters {
    pub use colloquy_models::{calibration, offline_embedder, openai};
    pub use colloquy_scripted_model as scripted;
    pub use colloquy_stores::*;
}
