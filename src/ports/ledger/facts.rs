//! Facts, their invalidations and their outbox.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{audit::Edit, jobs::JobFence};
use crate::{
    ids::{FactId, NpcId, PlayerId, TenantId, TurnId, WorldId},
    memory::{
        fact::{
            Audience, Fact, FactKind, FactView, Importance, Invalidation, NewFact, NewInvalidation, Polarity, Tense,
            Viewpoint,
        },
        reconcile::Verdict,
    },
    ports::{Page, PageRequest, StoreResult, vectors::IndexPoint},
    tenancy::TenantScope,
};

/// A fact that the ledger has just confirmed as valid, allowed and unlocked for a viewpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Confirmed {
    pub fact: FactId,
    /// Bodies are cached by (fact, version); another version means another body.
    pub version: u32,
}

/// A fact's body as recall needs it. Immutable for a given (id, version).
#[derive(Debug, Clone, PartialEq)]
pub struct RecallBody {
    pub id: FactId,
    pub version: u32,
    pub subject: String,
    pub predicate: String,
    pub object: String,
    pub polarity: Polarity,
    pub tense: Tense,
    pub kind: FactKind,
    pub view: FactView,
    pub valid_at: DateTime<Utc>,
    /// A unit vector; empty while the fact has none of the embedder in use.
    pub embedding: Arc<[f32]>,
}

/// One judged pair, kept by content so that the same question is never asked twice.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedPair {
    /// SHA-256 of the older and the newer statement's contents, in that order.
    pub pair: [u8; 32],
    pub verdict: Verdict,
    /// The model that judged.
    pub model: String,
}

/// A protected fact that something contradicts, for a person to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag {
    pub fact: FactId,
    pub by: FactId,
}

/// What a player asks to have forgotten, to be written with the turn that asked.
#[derive(Debug, Clone, PartialEq)]
pub struct NewForgetRequest {
    /// Of the facts it may reach.
    pub audience: Audience,
    /// In words.
    pub text: String,
    /// When it was asked.
    pub at: DateTime<Utc>,
}

/// What a player asked to have forgotten in a turn that stands.
#[derive(Debug, Clone, PartialEq)]
pub struct ForgetRequest {
    pub turn: TurnId,
    pub player: Option<PlayerId>,
    pub text: String,
    pub at: DateTime<Utc>,
    /// Its turn has ended a fact.
    pub met: bool,
}

/// Everything one extraction writes, in one transaction: facts, invalidations, verdicts, flags,
/// outbox rows for every fact touched, the rise of each knower's `memory_seq`, and the job's end.
#[derive(Debug, Clone, PartialEq)]
pub struct Reconciliation {
    /// The job this is the result of; nothing is written unless its turn still stands.
    pub fence: JobFence,
    /// Where memory stood when the plan was made: the sum of `memory_seq` over `npcs`.
    pub world: WorldId,
    pub npcs: Vec<NpcId>,
    pub expected_memory_seq: u64,
    pub facts: Vec<NewFact>,
    pub invalidations: Vec<NewInvalidation>,
    pub verdicts: Vec<JudgedPair>,
    pub flags: Vec<Flag>,
    /// In the order in which they were asked.
    pub forget: Vec<NewForgetRequest>,
}

/// What came of a reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconcileOutcome {
    Committed,
    /// Somebody else wrote to this memory meanwhile: plan again.
    MemoryMoved,
    /// The turn no longer stands in this version, or the job is done already. Nothing was written.
    Fenced,
}

/// Which facts to list.
#[derive(Debug, Clone, PartialEq)]
pub struct FactFilter {
    pub viewpoint: Viewpoint,
    pub subject: Option<String>,
    pub kind: Option<FactKind>,
    /// Bounds of `valid_at`.
    pub from: Option<DateTime<Utc>>,
    pub to: Option<DateTime<Utc>>,
    /// Only facts valid at this moment.
    pub at: DateTime<Utc>,
    pub include_invalid: bool,
}

/// A person's correction of a fact. Unset fields stay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FactPatch {
    pub content: Option<String>,
    pub keywords: Option<Vec<String>>,
    pub importance: Option<Importance>,
    pub pinned: Option<bool>,
    /// The unit vector of the new embedded text, whenever content or keywords change.
    pub embedding: Option<Vec<f32>>,
}

/// What came of an edit.
#[derive(Debug, Clone, PartialEq)]
pub enum FactEdit {
    Done(Box<Fact>),
    VersionMismatch { stored: u32 },
    NotFound,
}

/// One entry of a fact's history, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub enum FactHistoryEntry {
    Invalidated(Invalidation),
    Edited {
        edit: crate::ids::EditId,
        at: DateTime<Utc>,
        patch: serde_json::Value,
    },
    /// A duplicate was folded into it.
    Merged {
        from: FactId,
        at: DateTime<Utc>,
    },
    Flagged {
        by: FactId,
        at: DateTime<Utc>,
    },
}

/// An outbox row: this fact changed. What it is now is read when the row is handled.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxRow {
    pub seq: i64,
    pub tenant: TenantId,
    pub fact: FactId,
}

/// How many valid facts have a vector of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedBy {
    /// `None`: of no model.
    pub model: Option<String>,
    /// The model is the one in use.
    pub current: bool,
    pub facts: u64,
}

/// Long-term memory.
#[async_trait]
pub trait FactStore: Send + Sync {
    // --- recall ---
    /// Of `ids`, those that are valid at `at` and that the viewpoint may use. One query by primary keys.
    async fn confirm(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        ids: &[FactId],
        at: DateTime<Utc>,
    ) -> StoreResult<Vec<Confirmed>>;
    /// Bodies of confirmed facts.
    async fn bodies(&self, scope: &TenantScope, ids: &[FactId]) -> StoreResult<Vec<RecallBody>>;
    /// Valid facts that are in every prompt: pinned ones, and those of mutable-state kinds;
    /// most important first (then newest, then by id), at most `limit` of each of the two.
    async fn standing(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        at: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<Fact>>;

    // --- reconciling ---
    /// The sum of `memory_seq` over `npcs`.
    async fn memory_seq(&self, scope: &TenantScope, world: &WorldId, npcs: &[NpcId]) -> StoreResult<u64>;
    /// Valid facts with exactly this audience and subject among `ids`.
    async fn comparable(
        &self,
        scope: &TenantScope,
        audience: &Audience,
        subject: &str,
        ids: &[FactId],
        at: DateTime<Utc>,
    ) -> StoreResult<Vec<Fact>>;
    /// What was asked to be forgotten of this audience's facts after `since`, oldest first, at most `limit`.
    async fn forget_requests(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        audience: &Audience,
        since: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<ForgetRequest>>;
    async fn verdict(&self, scope: &TenantScope, pair: &[u8; 32]) -> StoreResult<Option<Verdict>>;
    async fn reconcile(&self, scope: &TenantScope, result: &Reconciliation) -> StoreResult<ReconcileOutcome>;

    // --- people ---
    /// Writes one fact by hand (cause: the edit).
    async fn create(&self, scope: &TenantScope, fact: &NewFact, edit: &Edit) -> StoreResult<()>;
    async fn get(&self, scope: &TenantScope, id: FactId) -> StoreResult<Option<Fact>>;
    /// Newest first.
    async fn list(&self, scope: &TenantScope, filter: &FactFilter, page: &PageRequest) -> StoreResult<Page<Fact>>;
    async fn edit(
        &self,
        scope: &TenantScope,
        id: FactId,
        patch: &FactPatch,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEdit>;
    /// Adds an invalidation with reason `removed`. A fact that is invalid already stays as it is.
    async fn remove(&self, scope: &TenantScope, id: FactId, edit: &Edit) -> StoreResult<FactEdit>;
    /// Lifts every standing invalidation.
    async fn restore(&self, scope: &TenantScope, id: FactId, edit: &Edit) -> StoreResult<FactEdit>;
    async fn history(&self, scope: &TenantScope, id: FactId) -> StoreResult<Vec<FactHistoryEntry>>;
    /// Folds and invalidations that other facts owe to this one ("by" it), for its history.
    async fn invalidated_by(&self, scope: &TenantScope, id: FactId) -> StoreResult<Vec<Invalidation>>;

    // --- the index ---
    /// Outbox rows of every tenant, oldest first.
    async fn outbox(&self, limit: u32) -> StoreResult<Vec<OutboxRow>>;
    /// Index points of those of `ids` that are valid now; the others are to be removed from the index.
    async fn points(&self, scope: &TenantScope, ids: &[FactId]) -> StoreResult<Vec<IndexPoint>>;
    /// Outbox rows that have been handled.
    async fn outbox_done(&self, seqs: &[i64]) -> StoreResult<()>;
    /// Every valid fact's point, in pages ordered by id, for `reindex`.
    async fn all_points(&self, scope: &TenantScope, after: Option<FactId>, limit: u32) -> StoreResult<Vec<IndexPoint>>;

    // --- another embedder ---
    /// Facts that have no vector of the embedder in use, valid or not, with the text to embed; ordered by id.
    async fn unembedded(
        &self,
        scope: &TenantScope,
        after: Option<FactId>,
        limit: u32,
    ) -> StoreResult<Vec<(FactId, String)>>;
    /// Unit vectors of the embedder in use for such facts, and an outbox row each. A fact that has
    /// one by now keeps it; unknown facts are skipped.
    async fn put_embeddings(&self, scope: &TenantScope, embeddings: &[(FactId, Vec<f32>)]) -> StoreResult<()>;
    /// The facts valid at `at`, counted by the model of their vector.
    async fn embedded_by(&self, scope: &TenantScope, at: DateTime<Utc>) -> StoreResult<Vec<EmbeddedBy>>;
}
