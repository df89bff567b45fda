//! Changes of facts by people.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::{StoreResult, ledger::audit::Edit};
use colloquy_core::{ids::FactId, scope::TenantScope};
use colloquy_memory::fact::{Fact, Importance, NewFact};

/// A person's correction of a fact. Unset fields stay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FactPatch {
    pub content: Option<String>,
    pub keywords: Option<Vec<String>>,
    pub importance: Option<Importance>,
    pub pinned: Option<bool>,
    /// The unit vector of the new embedded text. Required if content or keywords change.
    pub embedding: Option<Vec<f32>>,
    /// The kinds of personal data in the new text. Set if the content changes.
    pub pii: Option<Vec<String>>,
}

/// A person's correction of a fact's statement or dates: a new fact in place of the corrected fact.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplacementFact {
    /// Has the audience, the locks and the cause of the corrected fact. It is therefore unsaid with the same turn.
    pub fact: NewFact,
    /// When the new fact stopped being true; not in the future.
    pub invalid_at: Option<DateTime<Utc>>,
}

/// The outcome of an edit.
#[derive(Debug, Clone, PartialEq)]
pub enum FactEditOutcome {
    Done(Box<Fact>),
    VersionMismatch {
        stored: u32,
    },
    /// The fact's source turn is unsaid, so a correction or restoration is impossible.
    Unsaid,
    /// The fact has ended, so no fact can replace it. `by`: the fact that ended it.
    Ended {
        by: Option<FactId>,
    },
    NotFound,
}

/// Changes by people.
#[async_trait]
pub trait FactEditStore: Send + Sync {
    /// Writes one manual fact (cause: the edit). `settles` marks the fact's memory for reconciliation from `valid_at`
    /// on.
    async fn create_fact(&self, scope: &TenantScope, fact: &NewFact, settles: bool, edit: &Edit) -> StoreResult<()>;
    /// Corrects a fact. Unsaid facts are refused.
    async fn edit_fact(
        &self,
        scope: &TenantScope,
        id: FactId,
        patch: &FactPatch,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEditOutcome>;
    /// Replaces a valid fact by a corrected one, and returns the new fact. The corrected fact ends as `superseded`.
    async fn replace_fact(
        &self,
        scope: &TenantScope,
        id: FactId,
        replacement: &ReplacementFact,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEditOutcome>;
    /// Adds an invalidation with reason `removed`. An invalid fact stays as it is. An unsaid fact stays removed even if
    /// its turn stands again.
    async fn remove_fact(
        &self,
        scope: &TenantScope,
        id: FactId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEditOutcome>;
    /// Lifts every standing invalidation, but not of unsaid facts. For a valid fact, stores a person's confirmation,
    /// which protects the fact against earlier statements that may still end it. A repeated confirmation writes no row.
    async fn restore_fact(
        &self,
        scope: &TenantScope,
        id: FactId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEditOutcome>;
}
