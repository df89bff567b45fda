//! Colloquy: a multi-tenant server for NPC dialogue.
//!
//! `ARCHITECTURE.md` has the map and the import rule. Start reading at `dialogue::turn`.

#[macro_use]
pub mod failpoint;

pub mod actors;
pub mod adapters;
pub mod app;
pub mod calibrate;
pub mod cli;
pub mod config;
pub mod dialogue;
pub mod http;
pub mod ids;
pub mod lifecycle;
pub mod memory;
pub mod mock_llm;
pub mod ports;
pub mod shares;
pub mod telemetry;
pub mod tenancy;
pub mod transport;
