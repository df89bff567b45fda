//! `colloquy mock-llm`: an OpenAI-compatible server whose speed and faults are configurable.
//!
//! For load tests, in which a real model would be the slowest part, and for tests of misbehaving models. The mock
//! knows every task of this server and answers each as its prompt requests. Only the jitter is random: a fault with
//! rate 0.25 hits every fourth call.

mod answers;
mod embeddings;
mod options;
mod server;
mod state;
mod tool_calls;

pub use self::{
    options::{FaultKind, MockFault, MockOptions},
    server::{MockHandle, run, start_on_thread},
    state::MockStats,
};
