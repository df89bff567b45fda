//! Facts, their invalidations and their outbox.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{audit::Edit, jobs::JobFence, rewinds::DirtyMemory};
use crate::{
    ids::{DialogueId, FactId, InvalidationId, NpcId, PlayerId, TenantId, TurnId, WorldId},
    memory::{
        fact::{
            Audience, Fact, FactKind, FoldedFact, Importance, Invalidation, NewFact, NewInvalidation, Polarity,
            Statement, Tense, Viewpoint,
        },
        locks::DisclosureLocks,
        reconcile::JudgeVerdict,
        timeline::{FactReplacement, FlaggedFact, JudgeBudgetShare, KnownFact, PromiseEnd},
        trace::TaskUsage,
    },
    ports::{Page, PageRequest, StoreResult, vectors::IndexPoint},
    tenancy::TenantScope,
};

/// A fact that the ledger has just confirmed as valid, allowed and unlocked for a viewpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConfirmedFact {
    pub fact: FactId,
    /// Bodies are cached by (fact, version); another version means another body.
    pub version: u32,
}

/// What the ledger says of candidates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FactConfirmation {
    /// Those that may be used, in the order asked for.
    pub open: Vec<ConfirmedFact>,
    /// Those that may be used where all that they rest on is open, which is not looked at here.
    pub locked: Vec<(ConfirmedFact, DisclosureLocks)>,
}

/// A fact's body as recall needs it. Immutable for a given (id, version).
#[derive(Debug, Clone, PartialEq)]
pub struct RecallBody {
    pub id: FactId,
    pub version: u32,
    pub subject: String,
    pub predicate: String,
    pub object: String,
    /// Who said it: a player under its key, an NPC by its name.
    pub speaker: String,
    pub polarity: Polarity,
    pub tense: Tense,
    pub kind: FactKind,
    pub view: FoldedFact,
    pub valid_at: DateTime<Utc>,
    /// The dialogue and the number of the turn that it was learned from.
    pub source: Option<(DialogueId, u32)>,
    /// What it rests on that not every player may hear of.
    pub locks: DisclosureLocks,
    /// Only one player may hear of it.
    pub is_private: bool,
    /// A unit vector; empty while the fact has none of the embedder in use.
    pub embedding: Arc<[f32]>,
}

impl RecallBody {
    /// That of a fact as it is written, unless it changes with others at once.
    #[must_use]
    pub fn from_new_fact(fact: &NewFact) -> Self {
        let statement = &fact.statement;
        Self {
            id: fact.id,
            version: 1,
            subject: statement.subject.clone(),
            predicate: statement.predicate.clone(),
            object: statement.object.clone(),
            speaker: statement.speaker.clone(),
            polarity: statement.polarity,
            tense: statement.tense,
            kind: statement.kind,
            view: FoldedFact::from_statement(statement),
            valid_at: fact.valid_at,
            source: fact.source,
            locks: fact.locks.clone(),
            is_private: fact.audience.private_to.is_some(),
            embedding: fact.embedding.as_slice().into(),
        }
    }
    /// What it says.
    #[must_use]
    pub fn statement(&self) -> Statement {
        Statement {
            subject: self.subject.clone(),
            predicate: self.predicate.clone(),
            object: self.object.clone(),
            content: self.view.content.clone(),
            keywords: self.view.keywords.clone(),
            speaker: self.speaker.clone(),
            kind: self.kind,
            importance: self.view.importance,
            polarity: self.polarity,
            tense: self.tense,
            pinned: self.view.pinned,
        }
    }
}

/// What every prompt goes by.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StandingMemory {
    /// Most important first, then newest, then by id.
    pub facts: Vec<Fact>,
    /// Who is who, as [`FactStore::list_naming_facts`] says it; for a designer, who sees all players, only of what is in `facts`.
    pub names: Vec<NamingFact>,
    /// What was taken out of memory; latest first.
    pub taken_out: Vec<RemovedStatement>,
}

/// What a fact said that a player asked to forget or a person removed, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedStatement {
    pub content: String,
    pub at: DateTime<Utc>,
}

/// What recall goes by when there is no index to ask.
#[derive(Debug, Clone, PartialEq)]
pub struct KeywordFact {
    pub fact: FactId,
    pub version: u32,
    pub importance: Importance,
    pub valid_at: DateTime<Utc>,
    pub content: String,
    pub keywords: Vec<String>,
}

/// A fact that names its subject, as far as names go.
#[derive(Debug, Clone, PartialEq)]
pub struct NamingFact {
    pub fact: FactId,
    pub subject: String,
    pub name: String,
    pub speaker: String,
    pub authored: bool,
    /// What it rests on that not every player may hear of.
    pub locks: DisclosureLocks,
}

impl NamingFact {
    pub fn from_fact(fact: &Fact) -> Self {
        Self {
            fact: fact.id,
            subject: fact.statement.subject.clone(),
            name: fact.statement.object.clone(),
            speaker: fact.statement.speaker.clone(),
            authored: fact.authored,
            locks: fact.locks.clone(),
        }
    }
}

/// One judged pair, kept by content so that the same question is never asked twice.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedPair {
    /// SHA-256 of the older and the newer statement's contents, in that order.
    pub pair: [u8; 32],
    pub verdict: JudgeVerdict,
    /// The model that judged.
    pub model: String,
}

/// What a turn's extraction brought beside facts, kept so that its memory can be reconciled again.
#[derive(Debug, Clone, PartialEq)]
pub struct Extraction {
    pub turn: TurnId,
    pub dialogue: DialogueId,
    /// The turn's number in its dialogue.
    pub number: u32,
    /// Who replied, and whose prompt it was.
    pub npc: NpcId,
    pub audience: Audience,
    /// When the turn was committed.
    pub said_at: DateTime<Utc>,
    pub player: Option<PlayerId>,
    /// What the player asked to forget, in words.
    pub forget: Vec<String>,
    /// Promises and goals that it ends.
    pub ends: Vec<PromiseEnd>,
    /// Facts that were in the turn's prompt, but for what one NPC told others from its own memory: that is news
    /// to them.
    pub injected: Vec<FactId>,
    /// All that were.
    pub quoted: Vec<FactId>,
    /// This memory's share of what a judge may be asked about the turn: all of it, but where the turn teaches two memories.
    pub room: JudgeBudgetShare,
}

impl Extraction {
    /// Whether facts may end by it that no fact of its turn names.
    #[must_use]
    pub fn may_end_facts(&self) -> bool {
        !(self.forget.is_empty() && self.ends.is_empty())
    }
}

/// What entitles to write to a memory, and ends with it.
#[derive(Debug, Clone, PartialEq)]
pub enum ReconcileTrigger {
    /// The job this is the result of; nothing is written unless its turn still stands.
    Job(JobFence),
    /// The mark that this settles. Where it is not all that there is to settle, the mark stays.
    DirtyMemory { mark: DirtyMemory, whole: bool },
}

impl ReconcileTrigger {
    /// The same, if it is a mark's, of a part of what there is to settle.
    #[must_use]
    pub fn as_partial(&self) -> Self {
        match self {
            Self::DirtyMemory { mark, .. } => Self::DirtyMemory {
                mark: mark.clone(),
                whole: false,
            },
            Self::Job(_) => self.clone(),
        }
    }
}

/// Everything one reconciliation writes, in one transaction: facts, invalidations, flags,
/// outbox rows for every fact touched, the rise of each knower's `memory_seq`, and the end of the job
/// or of the mark.
#[derive(Debug, Clone, PartialEq)]
pub struct Reconciliation {
    pub trigger: ReconcileTrigger,
    /// What the job used that ends with it.
    pub calls: Vec<TaskUsage>,
    /// Where memory stood when the plan was made: the sum of `memory_seq` over `npcs`.
    pub world: WorldId,
    pub npcs: Vec<NpcId>,
    pub expected_memory_seq: u64,
    /// Kept beside the facts: one for each memory that the turn teaches.
    pub extractions: Vec<Extraction>,
    pub facts: Vec<NewFact>,
    pub invalidations: Vec<NewInvalidation>,
    /// Invalidations that no longer count.
    pub lifts: Vec<InvalidationId>,
    /// Protected facts that something contradicts, for a person to look at: every flag of these turns
    /// that ought to stand, but for `flags_kept`.
    pub flags: Vec<FlaggedFact>,
    /// The turns whose flags are given, as far as it is these facts that contradict: a turn may teach other memories as well.
    pub flagging: Vec<TurnId>,
    pub flagging_by: Vec<FactId>,
    /// What stays flagged if it is: facts, and those that may contradict them.
    pub flags_kept: Vec<(FactId, FactId)>,
    /// Older facts and those that replace them for whoever may know both; none that is stored already.
    pub replaced: Vec<FactReplacement>,
    /// What a judge said that is not kept yet.
    pub verdicts: Vec<JudgedPair>,
}

impl Reconciliation {
    /// That a turn taught nothing: the end of its job, and what it brought beside facts. It moves no memory and
    /// depends on none.
    #[must_use]
    pub fn teaches_nothing(&self) -> bool {
        matches!(self.trigger, ReconcileTrigger::Job(_))
            && self.npcs.is_empty()
            && !self.extractions.iter().any(Extraction::may_end_facts)
            && self.facts.is_empty()
            && self.invalidations.is_empty()
            && self.lifts.is_empty()
            && self.flags.is_empty()
            && self.flagging.is_empty()
            && self.replaced.is_empty()
    }
}

/// What of a memory a timeline is made from. See [`crate::memory::timeline::Timeline`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimelineRows {
    /// Facts said or ended since, and those asked for.
    pub known: Vec<KnownFact>,
    /// What the turns since then brought beside facts, in order.
    pub extractions: Vec<Extraction>,
    /// Facts asked for that are of another memory.
    pub foreign_facts: HashMap<FactId, Fact>,
}

/// Where the memories of some NPCs stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPosition {
    /// The sum of their `memory_seq`.
    pub seq: u64,
    /// No fact of the tenant that was written by then waits for the index.
    pub is_indexed: bool,
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
    /// Only protected facts that something valid contradicts.
    pub flagged: bool,
}

/// What contradicts a protected fact, for a person to look at.
#[derive(Debug, Clone, PartialEq)]
pub struct Contradiction {
    /// The protected fact.
    pub fact: FactId,
    pub by: FactId,
    /// What `by` says.
    pub content: String,
    pub at: DateTime<Utc>,
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
pub enum FactEditOutcome {
    Done(Box<Fact>),
    VersionMismatch {
        stored: u32,
    },
    /// The turn it came from was taken back, so there is nothing to correct or to bring back.
    Unsaid,
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
pub struct EmbeddingModelCount {
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
    /// Of `ids`, those that are valid at `at` and that the viewpoint may use, and that nothing replaces which it may use as well; apart, those that may be locked to it. One query
    /// by primary keys.
    async fn confirm_facts(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        ids: &[FactId],
        at: DateTime<Utc>,
    ) -> StoreResult<FactConfirmation>;
    /// Bodies of confirmed facts.
    async fn load_bodies(&self, scope: &TenantScope, ids: &[FactId]) -> StoreResult<Vec<RecallBody>>;
    /// Valid facts that may be in every prompt: pinned ones, and those that may stand ([`Fact::may_stand`]);
    /// the most important, at most `limit` of the pinned, and of the others as many that are
    /// locked and as many that are not. Whether what is locked is open is not looked at here, but for this: what
    /// was said where not everybody might listen is left out where the player of the viewpoint might not, unless NPCs
    /// `gossip`. With them what was taken out by `at` and could be used before: the latest `limit` of each privacy. For a
    /// designer there is nothing of that.
    async fn load_standing(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        gossip: bool,
        at: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<StandingMemory>;

    /// What the viewpoint may use at `at`, in no particular order: the newest `limit` of what each of its
    /// knowers knows openly, and of what each was told by its player.
    async fn list_keyword_facts(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        at: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<KeywordFact>>;

    /// The facts by which the viewpoint may know at `at` who is who ([`is_name`](crate::memory::aliases::is_name)), and that
    /// nothing replaces which it may use as well; by id, the newest `limit` of what each of its knowers knows openly, and of
    /// what each was told by its player. Whether a locked one is open is not looked at here.
    async fn list_naming_facts(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        at: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<NamingFact>>;

    // --- reconciling ---
    /// Where the memories of `npcs` stand.
    async fn memory_position(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npcs: &[NpcId],
    ) -> StoreResult<MemoryPosition>;
    /// What was said or ended in this memory at `since` or later, with those of `ids` that are known,
    /// in this memory or in others of the tenant. Nothing that is unsaid.
    async fn load_timeline(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        audience: &Audience,
        since: DateTime<Utc>,
        ids: &[FactId],
    ) -> StoreResult<TimelineRows>;
    /// What the player of a dialogue asked to forget in its turns `from..=to` that stand, in the words of the extraction.
    async fn list_forget_requests(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        from: u32,
        to: u32,
    ) -> StoreResult<Vec<String>>;
    /// The verdicts of those of `pairs` that were judged.
    async fn load_verdicts(
        &self,
        scope: &TenantScope,
        pairs: &[[u8; 32]],
    ) -> StoreResult<HashMap<[u8; 32], JudgeVerdict>>;
    /// Keeps verdicts, each pair once, all or none; a later one about the same pair counts instead.
    async fn store_verdicts(&self, scope: &TenantScope, judged: &[JudgedPair]) -> StoreResult<()>;
    async fn commit_reconciliation(
        &self,
        scope: &TenantScope,
        result: &Reconciliation,
    ) -> StoreResult<ReconcileOutcome>;

    // --- people ---
    /// Writes one fact by hand (cause: the edit). `settles`: its memory is marked, to be settled from the fact's `valid_at` on.
    async fn create_fact(&self, scope: &TenantScope, fact: &NewFact, settles: bool, edit: &Edit) -> StoreResult<()>;
    async fn load_fact(&self, scope: &TenantScope, id: FactId) -> StoreResult<Option<Fact>>;
    /// What contradicts those of `ids` that are flagged, and is valid at `at`; oldest first.
    async fn list_contradictions(
        &self,
        scope: &TenantScope,
        ids: &[FactId],
        at: DateTime<Utc>,
    ) -> StoreResult<Vec<Contradiction>>;
    /// Newest first.
    async fn list_facts(&self, scope: &TenantScope, filter: &FactFilter, page: &PageRequest)
    -> StoreResult<Page<Fact>>;
    /// Nothing of what is unsaid.
    async fn edit_fact(
        &self,
        scope: &TenantScope,
        id: FactId,
        patch: &FactPatch,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEditOutcome>;
    /// Adds an invalidation with reason `removed`. A fact that is invalid already stays as it is.
    /// One that is unsaid stays out if what it was said in stands again.
    async fn remove_fact(
        &self,
        scope: &TenantScope,
        id: FactId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEditOutcome>;
    /// Lifts every standing invalidation. Nothing of what is unsaid. Of a fact that is valid it is kept that a
    /// person stands by it, against what was said before and may still come to end it; nothing is written where
    /// that is known already.
    async fn restore_fact(
        &self,
        scope: &TenantScope,
        id: FactId,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<FactEditOutcome>;
    async fn load_history(&self, scope: &TenantScope, id: FactId) -> StoreResult<Vec<FactHistoryEntry>>;
    /// Folds and invalidations that other facts owe to this one ("by" it), for its history.
    async fn list_invalidated_by(&self, scope: &TenantScope, id: FactId) -> StoreResult<Vec<Invalidation>>;

    // --- the index ---
    /// Outbox rows of every tenant, oldest first.
    async fn load_outbox(&self, limit: u32) -> StoreResult<Vec<OutboxRow>>;
    /// Index points of those of `ids` that are valid now; the others are to be removed from the index.
    async fn load_points(&self, scope: &TenantScope, ids: &[FactId]) -> StoreResult<Vec<IndexPoint>>;
    /// Outbox rows that have been handled.
    async fn mark_outbox_done(&self, seqs: &[i64]) -> StoreResult<()>;
    /// Every valid fact's point, in pages ordered by id, for `reindex`.
    async fn list_all_points(
        &self,
        scope: &TenantScope,
        after: Option<FactId>,
        limit: u32,
    ) -> StoreResult<Vec<IndexPoint>>;

    // --- another embedder ---
    /// Facts that have no vector of the embedder in use, valid or not, with the text to embed; ordered by id.
    async fn list_unembedded(
        &self,
        scope: &TenantScope,
        after: Option<FactId>,
        limit: u32,
    ) -> StoreResult<Vec<(FactId, String)>>;
    /// Unit vectors of the embedder in use for such facts, and an outbox row each. A fact that has
    /// one by now keeps it; unknown facts are skipped.
    async fn store_embeddings(&self, scope: &TenantScope, embeddings: &[(FactId, Vec<f32>)]) -> StoreResult<()>;
    /// The facts valid at `at`, counted by the model of their vector.
    async fn count_by_embedding_model(
        &self,
        scope: &TenantScope,
        at: DateTime<Utc>,
    ) -> StoreResult<Vec<EmbeddingModelCount>>;
}
