//! Long-term memory: extraction after a turn, dedupe and conflict, and what people write by hand.

use super::Services;
use crate::{
    ids::FactId,
    ids::WorldId,
    memory::fact::{Audience, Fact, FactKind, Importance},
    ports::{
        StoreError,
        ledger::{audit::Edit, facts::FactEdit},
        llm::LlmError,
    },
    tenancy::TenantScope,
};

/// A fact as a person writes it.
#[derive(Debug, Clone)]
pub struct HandWritten {
    pub world: WorldId,
    pub audience: Audience,
    pub subject: String,
    pub predicate: String,
    pub object: String,
    pub content: String,
    pub keywords: Vec<String>,
    pub kind: FactKind,
    pub importance: Importance,
    pub pinned: bool,
    pub valid_at: Option<chrono::DateTime<chrono::Utc>>,
}

/// A person's correction. Unset fields stay.
#[derive(Debug, Clone, Default)]
pub struct Correction {
    pub content: Option<String>,
    pub keywords: Option<Vec<String>>,
    pub importance: Option<Importance>,
    pub pinned: Option<bool>,
}

/// Why a hand-written fact was not stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HandError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Without an embedding the fact could not be found again.
    #[error("the embedder failed: {0}")]
    Embedder(#[from] LlmError),
}

/// Embeds and writes a fact by hand, and indexes it.
pub async fn write_by_hand(
    services: &Services,
    scope: &TenantScope,
    fact: HandWritten,
    edit: &Edit,
) -> Result<Fact, HandError> {
    let _ = (services, scope, fact, edit);
    todo!()
}

/// Corrects a fact; embeds anew when its text changes.
pub async fn correct(
    services: &Services,
    scope: &TenantScope,
    id: FactId,
    correction: Correction,
    if_version: Option<u32>,
    edit: &Edit,
) -> Result<FactEdit, HandError> {
    let _ = (services, scope, id, correction, if_version, edit);
    todo!()
}
