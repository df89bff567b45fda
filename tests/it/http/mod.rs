//! The HTTP surface over real sockets: a real ledger and real actors, with a model and an embedder controlled by tests.

#![allow(clippy::unwrap_used)]

mod attacks;
mod budgets;
mod chat;
mod chat_adoption;
mod chat_forms;
mod chat_histories;
mod chat_lines;
mod chat_talks;
mod chat_tools;
mod curator;
mod directives;
mod docs;
pub mod fakes;
mod front_ends;
pub mod harness;
mod interrupters;
mod mcp;
mod openai_schema;
mod realtime;
mod requests;
mod resources;
mod responses;
mod revocations;
mod roles;
mod saves;
mod scenarios;
mod sessions;
mod socket;
mod tiers;
mod token_bounds;
mod webhooks;
mod wire_edge_cases;
