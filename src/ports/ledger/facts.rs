//! Facts, their invalidations and their outbox.

mod edits;
mod removed;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use chrono::{DateTime, Utc};

pub use self::{
    edits::{FactEditOutcome, FactEditStore, FactPatch, ReplacementFact},
    removed::{RemovedStatement, Supersession, add_requests, list_next_corrections, list_removed_statements},
};
use super::{episodes::EmbeddedEpisode, flags::FlagStore, new_job::JobFence, rewinds::DirtyMemory};
use crate::{
    Page, PageRequest, StoreResult,
    vectors::{Candidate, IndexPoint, SimilarFactsQuery},
};
use colloquy_core::{
    ids::{DialogueId, FactId, InvalidationId, NpcId, PlayerId, TenantId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    aliases,
    disclosure::{
        audience::{Audience, Knower, Viewpoint},
        locks::DisclosureLocks,
    },
    fact::{
        Fact, FactKind, FoldedFact, Importance, Invalidation, NewFact, NewInvalidation, Polarity, Statement, Tense,
    },
    reconcile::JudgeVerdict,
    timeline::{FactReplacement, FlaggedFact, JudgeBudgetShare, KnownFact, PromiseEnd},
    trace::TaskUsage,
};

/// A fact that the ledger has just confirmed as valid, allowed and unlocked for a viewpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConfirmedFact {
    pub fact: FactId,
    /// The fact's version. Caches store bodies by (fact, version).
    pub version: u32,
}

/// The ledger's answer about candidates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FactConfirmation {
    /// Usable facts, in the order of the request.
    pub open: Vec<ConfirmedFact>,
    /// Facts usable only if all their locks are open. The caller must check the locks.
    pub locked: Vec<(ConfirmedFact, DisclosureLocks)>,
}

/// A fact's body for recall. Immutable for a given (id, version).
#[derive(Debug, Clone, PartialEq)]
pub struct RecallBody {
    pub id: FactId,
    pub version: u32,
    pub subject: String,
    pub predicate: String,
    pub object: String,
    /// The speaker: a player's key, or an NPC's name.
    pub speaker: String,
    pub polarity: Polarity,
    pub tense: Tense,
    pub kind: FactKind,
    pub view: FoldedFact,
    pub valid_at: DateTime<Utc>,
    /// The source: a dialogue and the number of its turn.
    pub source: Option<(DialogueId, u32)>,
    /// Conditions for the fact's disclosure to players.
    pub locks: DisclosureLocks,
    /// True if only one player may hear of the fact.
    pub is_private: bool,
    /// The NPCs, factions or the world that know the fact. Never empty.
    pub knowers: Arc<BTreeSet<Knower>>,
    /// A unit vector; empty while the fact has no vector of the current embedder.
    pub embedding: Arc<[f32]>,
}

impl RecallBody {
    /// Returns the body of a fact as written, unless the same transaction also changes the fact.
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
            knowers: Arc::new(fact.audience.knowers.clone()),
            embedding: fact.embedding.as_slice().into(),
        }
    }
    /// Returns the fact's statement.
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

/// The memory behind every prompt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StandingMemory {
    /// Most important first, then newest, then by id.
    pub facts: Vec<Fact>,
    /// The result of [`RecallStore::list_naming_facts`]. For a designer, who sees all players, only names from `facts`.
    pub names: Vec<NamingFact>,
    /// Statements that a player asked to forget, or that a person removed or corrected, latest first.
    pub taken_out: Vec<RemovedStatement>,
    /// Promises and goals that a line ended as kept, given up or overdue, latest first; at most 8 per knower and privacy.
    /// Empty for a designer, who sees all players.
    pub ended_promises: Vec<Fact>,
}

/// A fact for recall by keywords, without an index.
#[derive(Debug, Clone, PartialEq)]
pub struct KeywordFact {
    pub fact: FactId,
    pub version: u32,
    pub importance: Importance,
    pub valid_at: DateTime<Utc>,
    pub subject: String,
    pub predicate: String,
    pub object: String,
    pub content: String,
    pub keywords: Vec<String>,
}

impl KeywordFact {
    /// Returns the fact with its version, for a cache of bodies.
    #[must_use]
    pub fn as_confirmed(&self) -> ConfirmedFact {
        ConfirmedFact {
            fact: self.fact,
            version: self.version,
        }
    }
}

/// A fact that names its subject, reduced to the parts which naming needs.
#[derive(Debug, Clone, PartialEq)]
pub struct NamingFact {
    pub fact: FactId,
    pub subject: String,
    pub name: String,
    pub speaker: String,
    pub authored: bool,
    /// True for a nickname or a title.
    pub nickname: bool,
    /// Conditions for the fact's disclosure to players.
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
            nickname: aliases::tells_nickname(&fact.statement),
            locks: fact.locks.clone(),
        }
    }
}

/// One judged pair, stored by content so that a judge never gets the same question twice.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedPair {
    /// SHA-256 of the older and the newer statement's contents, in this order.
    pub pair: [u8; 32],
    pub verdict: JudgeVerdict,
    /// The judge's model.
    pub model: String,
}

/// The result of a turn's extraction beside facts, stored for a later reconciliation of the same memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Extraction {
    pub turn: TurnId,
    pub dialogue: DialogueId,
    /// The turn's number in its dialogue.
    pub number: u32,
    /// The NPC of the reply and of the prompt.
    pub npc: NpcId,
    pub audience: Audience,
    /// The time of the turn's commit.
    pub said_at: DateTime<Utc>,
    pub player: Option<PlayerId>,
    /// The player's requests to forget, in words.
    pub forget: Vec<String>,
    /// Promises and goals that the turn ends.
    pub ends: Vec<PromiseEnd>,
    /// Facts in the turn's prompt, except news: facts that one NPC told the other NPCs from its own memory.
    pub injected: Vec<FactId>,
    /// All facts in the turn's prompt.
    pub quoted: Vec<FactId>,
    /// This memory's share of the judge's budget for the turn: the whole budget, unless the turn teaches two memories.
    pub room: JudgeBudgetShare,
}

impl Extraction {
    /// True if the turn may end facts without a new fact that names them.
    #[must_use]
    pub fn may_end_facts(&self) -> bool {
        !(self.forget.is_empty() && self.ends.is_empty())
    }
}

/// The right to write to a memory. A successful write consumes the trigger.
#[derive(Debug, Clone, PartialEq)]
pub enum ReconcileTrigger {
    /// The job behind the write. The write happens only if the job's turn still stands.
    Job(JobFence),
    /// The mark which the write reconciles. The mark stays unless the write is `whole`.
    DirtyMemory { mark: DirtyMemory, whole: bool },
}

impl ReconcileTrigger {
    /// Returns the trigger for a partial write: a mark's trigger with `whole: false`, a job's trigger unchanged.
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

/// All writes of one reconciliation, in one transaction: facts, invalidations, flags and outbox rows of all touched
/// facts. The transaction also raises each knower's `memory_seq` and ends the job or the mark.
#[derive(Debug, Clone, PartialEq)]
pub struct Reconciliation {
    pub trigger: ReconcileTrigger,
    /// The usage of the job that ends with the write.
    pub calls: Vec<TaskUsage>,
    /// The memory's position at planning time: `expected_memory_seq` is the sum of `memory_seq` over `npcs`.
    pub world: WorldId,
    pub npcs: Vec<NpcId>,
    pub expected_memory_seq: u64,
    /// Stored beside the facts: one extraction for each memory that the turn teaches.
    pub extractions: Vec<Extraction>,
    pub facts: Vec<NewFact>,
    /// The episode of the job's turn. Written with an extraction of the turn.
    pub episode: Option<EmbeddedEpisode>,
    pub invalidations: Vec<NewInvalidation>,
    /// Invalidations that no longer count.
    pub lifts: Vec<InvalidationId>,
    /// Contradicted protected facts, for a person to check: every valid flag of the `flagging` turns, except
    /// `flags_kept`.
    pub flags: Vec<FlaggedFact>,
    /// The turns of `flags`. Only contradictions by `flagging_by` are covered, since a turn may teach other memories
    /// too.
    pub flagging: Vec<TurnId>,
    pub flagging_by: Vec<FactId>,
    /// Pairs of a protected fact and a possible contradiction, whose present flags stay.
    pub flags_kept: Vec<(FactId, FactId)>,
    /// New pairs of an older fact and its replacement, for viewpoints that may know both. Stored pairs are left out.
    pub replaced: Vec<FactReplacement>,
    /// Verdicts of a judge that are not stored yet.
    pub verdicts: Vec<JudgedPair>,
    /// True if a new fact or a request to forget has no vector, because the embedder was away. The memories of the
    /// extractions are then marked, and compared when they have their vectors.
    pub lacks_vectors: bool,
}

impl Reconciliation {
    /// True if the turn taught no fact: the write only ends the job, and stores extractions and the turn's episode. No
    /// other turn's memory is affected.
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

/// The rows for a memory's timeline. See [`colloquy_memory::timeline::Timeline`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TimelineRows {
    /// Facts said or ended since the start of the timeline, and the requested facts.
    pub known_facts: Vec<KnownFact>,
    /// The later turns' extractions beside facts, in order.
    pub extractions: Vec<Extraction>,
    /// Requested facts of another memory.
    pub foreign_facts: HashMap<FactId, Fact>,
}

/// The position of some NPCs' memories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPosition {
    /// The sum of their `memory_seq`.
    pub seq: u64,
    /// True if the index has every fact of the tenant up to this position.
    pub is_indexed: bool,
}

/// The outcome of a reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconcileOutcome {
    Committed,
    /// Another write changed this memory meanwhile. The caller plans again.
    MemoryMoved,
    /// The turn no longer stands in this version, or the job is already done. The store wrote no row.
    Fenced,
}

/// Selects facts of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct FactFilter {
    pub viewpoint: Viewpoint,
    pub subject: Option<String>,
    pub kind: Option<FactKind>,
    /// Bounds of `valid_at`.
    pub from: Option<DateTime<Utc>>,
    pub to: Option<DateTime<Utc>>,
    /// Only facts valid at this moment.
    pub as_of: DateTime<Utc>,
    pub include_invalid: bool,
    /// Only protected facts with a valid contradiction.
    pub flagged: bool,
}

/// A contradiction of a protected fact, for a person to check.
#[derive(Debug, Clone, PartialEq)]
pub struct Contradiction {
    /// The protected fact.
    pub fact: FactId,
    pub statement: FactId,
    /// The content of `by`.
    pub content: String,
    pub flagged_at: DateTime<Utc>,
}

/// One entry of a fact's history. Histories are sorted oldest first.
#[derive(Debug, Clone, PartialEq)]
pub enum FactHistoryEntry {
    Invalidated(Invalidation),
    Edited {
        edit: colloquy_core::ids::EditId,
        at: DateTime<Utc>,
        patch: serde_json::Value,
    },
    /// A duplicate was merged into the fact.
    Merged {
        from: FactId,
        at: DateTime<Utc>,
    },
    Flagged {
        by: FactId,
        at: DateTime<Utc>,
    },
}

/// An outbox row: the fact has changed. The handler of the row reads the fact's present state.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxRow {
    pub seq: i64,
    pub tenant: TenantId,
    pub fact: FactId,
}

/// The number of valid facts with a vector of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingModelCount {
    /// `None`: facts without a vector.
    pub model: Option<String>,
    /// True for the model in use.
    pub current: bool,
    pub facts: u64,
}

/// Long-term memory.
pub trait FactStore:
    RecallStore + ReconciliationStore + FactEditStore + FactListStore + FlagStore + OutboxStore + EmbeddingStore
{
}

/// Reads for a turn.
#[async_trait]
pub trait RecallStore: Send + Sync {
    /// Returns the facts among `ids` that are valid at `as_of`, usable by the viewpoint, and without a usable
    /// replacement. Facts with locks are listed separately. One query by primary keys.
    async fn confirm_facts(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        ids: &[FactId],
        as_of: DateTime<Utc>,
    ) -> StoreResult<FactConfirmation>;
    /// Returns bodies of confirmed facts.
    async fn load_bodies(&self, scope: &TenantScope, ids: &[FactId]) -> StoreResult<Vec<RecallBody>>;
    /// Returns the facts that may be in every prompt, most important first:
    ///
    /// - Pinned facts and facts that may stand ([`Fact::may_stand`]): up to `limit` each of pinned, locked and unlocked
    ///   facts.
    /// - Facts removed or corrected by `as_of` but usable before: the latest `limit` of each privacy, none for a
    ///   designer.
    ///
    /// The caller checks locks. But without `gossip`, facts from talks closed to the viewpoint's player are left out.
    async fn load_standing(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        gossip: bool,
        as_of: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<StandingMemory>;
    /// Returns the requests to forget that stand and ended these facts, in the extraction's words.
    async fn list_requests_of_facts(
        &self,
        scope: &TenantScope,
        facts: &[FactId],
    ) -> StoreResult<HashMap<FactId, Vec<String>>>;
    /// Returns the facts usable by the viewpoint at `as_of`, in no particular order. Per knower of the viewpoint, at
    /// most the newest `limit` non-private facts and the newest `limit` facts private to its player.
    async fn list_keyword_facts(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        as_of: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<KeywordFact>>;
    /// Returns the facts that tell the viewpoint who is who at `as_of`
    /// ([`states_name`](colloquy_memory::aliases::states_name)), by id, except facts with a usable replacement. Per
    /// knower, at most the newest `limit` non-private facts and the newest `limit` facts private to the viewpoint's
    /// player. The caller checks locks.
    async fn list_naming_facts(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        as_of: DateTime<Utc>,
        limit: u32,
    ) -> StoreResult<Vec<NamingFact>>;
}

/// The reconciliation of memories.
#[async_trait]
pub trait ReconciliationStore: Send + Sync {
    /// Returns the position of the memories of `npcs`.
    async fn memory_position(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npcs: &[NpcId],
    ) -> StoreResult<MemoryPosition>;
    /// Returns the facts said or ended in this memory at `since` or later, and the known facts among `ids`, from all
    /// memories of the tenant. Leaves out unsaid facts.
    async fn load_timeline(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        audience: &Audience,
        since: DateTime<Utc>,
        ids: &[FactId],
    ) -> StoreResult<TimelineRows>;
    /// Returns what a complete index would return for this search
    /// ([`FactIndex::find_similar`](crate::vectors::FactIndex::find_similar)), with exact cosines. Reads every vector of
    /// the searched memories, so it is for the time in which the index does not answer.
    async fn find_similar_facts(
        &self,
        scope: &TenantScope,
        query: SimilarFactsQuery<'_>,
    ) -> StoreResult<Vec<Candidate>>;
    /// Returns the player's requests to forget, in the extraction's words, from the dialogue's standing turns
    /// `from..=to`.
    async fn list_forget_requests(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        from: u32,
        to: u32,
    ) -> StoreResult<Vec<String>>;
    /// Returns the numbers of the dialogue's standing turns up to `to` in which the player asked to forget something, and of
    /// those that taught a fact which such a request ended.
    async fn list_forgotten_turns(&self, scope: &TenantScope, dialogue: DialogueId, to: u32) -> StoreResult<Vec<u32>>;
    /// Returns the verdicts of the judged pairs among `pairs`.
    async fn load_verdicts(
        &self,
        scope: &TenantScope,
        pairs: &[[u8; 32]],
    ) -> StoreResult<HashMap<[u8; 32], JudgeVerdict>>;
    /// Stores verdicts, all or none, each pair once. A later verdict about the same pair replaces the earlier.
    async fn store_verdicts(&self, scope: &TenantScope, judged: &[JudgedPair]) -> StoreResult<()>;
    async fn commit_reconciliation(
        &self,
        scope: &TenantScope,
        result: &Reconciliation,
    ) -> StoreResult<ReconcileOutcome>;
}

/// Facts for display to people.
#[async_trait]
pub trait FactListStore: Send + Sync {
    async fn load_fact(&self, scope: &TenantScope, id: FactId) -> StoreResult<Option<Fact>>;
    /// Returns the valid contradictions at `as_of` of the flagged facts among `ids`; oldest first.
    async fn list_contradictions(
        &self,
        scope: &TenantScope,
        ids: &[FactId],
        as_of: DateTime<Utc>,
    ) -> StoreResult<Vec<Contradiction>>;
    /// Returns facts, newest first.
    async fn list_facts(&self, scope: &TenantScope, filter: &FactFilter, page: &PageRequest)
    -> StoreResult<Page<Fact>>;
    async fn load_history(&self, scope: &TenantScope, id: FactId) -> StoreResult<Vec<FactHistoryEntry>>;
    /// Returns the merges and invalidations of other facts "by" this fact, for its history.
    async fn list_invalidated_by(&self, scope: &TenantScope, id: FactId) -> StoreResult<Vec<Invalidation>>;
}

/// The source of the search index.
#[async_trait]
pub trait OutboxStore: Send + Sync {
    /// Returns outbox rows of every tenant, oldest first.
    async fn load_outbox(&self, limit: u32) -> StoreResult<Vec<OutboxRow>>;
    /// Returns index points of the valid facts among `ids`. The caller removes the remaining ids from the index.
    async fn load_points(&self, scope: &TenantScope, ids: &[FactId]) -> StoreResult<Vec<IndexPoint>>;
    /// Deletes handled outbox rows.
    async fn mark_outbox_done(&self, seqs: &[i64]) -> StoreResult<()>;
    /// Returns the points of all valid facts, in pages ordered by id, for `reindex`.
    async fn list_all_points(
        &self,
        scope: &TenantScope,
        after: Option<FactId>,
        limit: u32,
    ) -> StoreResult<Vec<IndexPoint>>;
}

/// Vectors of another embedder.
#[async_trait]
pub trait EmbeddingStore: Send + Sync {
    /// Returns facts without a vector of the current embedder, valid or not, each with its text to embed; ordered by
    /// id.
    async fn list_unembedded(
        &self,
        scope: &TenantScope,
        after: Option<FactId>,
        limit: u32,
    ) -> StoreResult<Vec<(FactId, String)>>;
    /// Stores unit vectors of the current embedder for unembedded facts, each with an outbox row. A vector stored
    /// meanwhile stays. Unknown facts are skipped.
    async fn store_embeddings(&self, scope: &TenantScope, embeddings: &[(FactId, Vec<f32>)]) -> StoreResult<()>;
    /// Counts the facts valid at `as_of` by the model of their vector.
    async fn count_by_embedding_model(
        &self,
        scope: &TenantScope,
        as_of: DateTime<Utc>,
    ) -> StoreResult<Vec<EmbeddingModelCount>>;
}
