//! The use cases: plain async functions over ports, without actors or HTTP.
//!
//! Read `turn.rs` first: `turn::run` shows the steps of a player turn.

#[macro_use(failpoint)]
extern crate colloquy_core;

pub mod aside;
pub mod curate;
pub mod disclosure;
pub mod events;
pub mod explain;
pub mod game_time;
pub mod heard;
pub mod intent;
pub mod jobs;
pub mod knowledge;
pub mod models;
pub mod npc_conversation;
pub mod preview;
pub mod prompt;
pub mod recall;
pub mod remember;
pub mod requester;
pub mod rewind;
pub mod saves;
mod scene;
pub mod settings;
mod state_blocks;
pub mod summarise;
pub mod tiers;
pub mod turn;
pub mod world_events;
pub mod world_watch;

use std::sync::Arc;

use colloquy_core::scope::TenantScope;
use colloquy_ports::{
    buffer::BufferStore,
    clock::{Clock, IdSource},
    disabled_tenants::DisabledTenants,
    embedder::{EmbedAs, Embedder},
    ledger::Ledger,
    llm::LlmError,
    vectors::FactIndex,
};

/// All services of the use cases. Cheap to clone; built once, in `app`.
#[derive(Clone)]
pub struct Services {
    pub settings: Arc<settings::DialogueSettings>,
    pub ledger: Ledger,
    pub buffers: Arc<dyn BufferStore>,
    pub index: Arc<dyn FactIndex>,
    pub embedder: Arc<dyn Embedder>,
    /// Model routes with retries, fallbacks, breakers and accounting.
    pub models: Arc<models::ModelRouter>,
    pub prompts: Arc<prompt::Templates>,
    /// Bodies of facts by (id, version).
    pub memory_cache: Arc<recall::MemoryCache>,
    /// Memories whose last reconciliation failed.
    pub reconcile_backoff: Arc<remember::ReconcileBackoff>,
    /// Tenants for which all work is stopped.
    pub disabled: DisabledTenants,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<IdSource>,
}

impl Services {
    /// Embeds texts to be found by searches, in the same order.
    ///
    /// # Errors
    /// As for [`models::ModelRouter::embed_texts`].
    pub async fn embed_passages(&self, scope: &TenantScope, texts: &[String]) -> Result<Vec<Vec<f32>>, LlmError> {
        let passages = self
            .models
            .embed_texts(scope, self.embedder.as_ref(), EmbedAs::Passage, texts);
        passages.await.0
    }
}
