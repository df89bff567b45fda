//! `colloquy mock-llm`: an OpenAI-compatible server that answers at once, or as slowly and as
//! wrongly as it is told to.
//!
//! For load tests, where a model would be the slowest part, and for tests of what happens when a
//! model misbehaves. It knows every task of this server and answers each with what its prompt asks
//! for. Nothing here is random but the jitter: a fault with rate 0.25 hits every fourth call.

mod answers;
mod embeddings;
mod options;
mod server;
mod state;

pub use self::{
    options::{FaultKind, MockFault, MockOptions},
    server::{MockHandle, run, start_on_thread},
    state::{MockSettings, MockStats},
};
