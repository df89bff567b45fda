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
mod redaction;
pub mod remember;
pub mod rewind;
pub mod saves;
pub mod scenarios;
pub mod settings;
pub mod summarise;
pub mod turn;

use std::sync::Arc;

use crate::ports::{
    buffer::BufferStore,
    clock::{Clock, IdSource},
    disabled_tenants::DisabledTenants,
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
    pub models: Arc<models::ModelRouter>,
    pub prompts: Arc<prompt::Templates>,
    /// Bodies of facts by (id, version).
    pub memory_cache: Arc<recall::MemoryCache>,
    /// Memories that could not be settled lately.
    pub reconcile_backoff: Arc<remember::ReconcileBackoff>,
    /// For whom nothing is done.
    pub disabled: DisabledTenants,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<IdSource>,
}
