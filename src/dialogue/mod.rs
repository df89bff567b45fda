//! The use cases: plain async functions over ports, with no actor and no HTTP in them.
//!
//! Read `turn.rs` first: it says what a player turn is.

mod acquaintance;
pub mod events;
pub mod explain;
pub mod intent;
pub mod jobs;
mod locks;
pub mod models;
pub mod npc_conversation;
mod overheard;
pub mod prompt;
pub mod recall;
pub mod remember;
pub mod rewind;
pub mod saves;
pub mod scenarios;
pub mod settings;
pub mod summarise;
mod taken_out;
pub mod turn;

use std::sync::Arc;

use crate::ports::{
    buffer::BufferStore,
    clock::{Clock, IdSource},
    disabled::DisabledTenants,
    embedder::Embedder,
    ledger::Ledger,
    vectors::FactIndex,
};

/// Everything a use case may reach. Cheap to clone; built once, in `app`.
#[derive(Clone)]
pub struct Services {
    pub settings: Arc<settings::DialogueSettings>,
    pub ledger: Ledger,
    pub buffers: Arc<dyn BufferStore>,
    pub index: Arc<dyn FactIndex>,
    pub embedder: Arc<dyn Embedder>,
    /// Model routes with retries, fall-backs, breakers and accounting.
    pub models: Arc<models::Models>,
    pub prompts: Arc<prompt::Templates>,
    /// Bodies of facts by (id, version).
    pub bodies: Arc<recall::BodyCache>,
    /// Memories that could not be settled lately.
    pub resting: Arc<remember::Resting>,
    /// For whom nothing is done.
    pub disabled: DisabledTenants,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<IdSource>,
}
