//! The index port: proposes facts to recall. The index is derived from the ledger, may lag, may be lost, and has no
//! text. The ledger confirms every proposal before use.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use sha2::{Digest as _, Sha256};

use super::StoreResult;
use colloquy_core::{
    ids::{FactId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    disclosure::audience::{Audience, Knower, Viewpoint},
    fact::Importance,
    keywords::{TermStatistics, TermWeights},
};

/// A fact's entry in the index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexPoint {
    pub fact: FactId,
    /// The version of the fact from which the other fields come. A change of only the embedding does not count.
    pub version: u32,
    pub world: WorldId,
    pub audience: Audience,
    /// The [key](colloquy_memory::party::subject_key) of the fact's subject.
    pub subject: String,
    pub importance: Importance,
    pub valid_at: DateTime<Utc>,
    /// True for a fact with locks. Searches propose such a fact, but its words do not count: the rarity of a word must not
    /// depend on facts that the asker may not see.
    pub is_locked: bool,
    /// A unit vector; empty while the fact has no vector of the current embedder. Every leg but the dense leg proposes
    /// such a point; similarity searches never find it.
    pub embedding: Vec<f32>,
    /// Terms of content and keywords ([`fact_terms`](colloquy_memory::keywords::fact_terms)), for the keyword leg.
    pub terms: TermWeights,
}

impl IndexPoint {
    /// Returns a digest of all fields, the same on every machine and in every version.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        part(&self.version.to_le_bytes());
        part(self.world.as_str().as_bytes());
        part(self.audience.audience_key().as_bytes());
        part(self.subject.as_bytes());
        part(&[self.importance.get()]);
        part(&self.valid_at.timestamp_micros().to_le_bytes());
        let floats: Vec<u8> = self.embedding.iter().flat_map(|x| x.to_le_bytes()).collect();
        part(&floats);
        for (term, weight) in &self.terms.0 {
            part(&term.to_le_bytes());
            part(&weight.to_le_bytes());
        }
        let digest = hash.finalize();
        digest[..8].iter().fold(0, |bits, byte| (bits << 8) | u64::from(*byte))
    }
}

/// A search for candidates.
#[derive(Debug, Clone)]
pub struct CandidateQuery<'a> {
    pub viewpoint: &'a Viewpoint,
    /// A unit vector; `None`: the embedder failed and only the other legs run.
    pub embedding: Option<&'a [f32]>,
    /// The query's terms, each weighted by its information in this memory ([`FactIndex::term_statistics`]).
    pub terms: &'a TermWeights,
    pub limits: CandidateLimits,
}

/// The memories in which a similarity search looks.
#[derive(Debug, Clone, Copy)]
pub enum MemoryScope<'a> {
    /// Facts of exactly this audience.
    Of(&'a Audience),
    /// Facts of every other audience which overlaps with this audience ([`Audience::overlaps_audience`]).
    Overlapping(&'a Audience),
}

/// A search for facts similar to a vector.
#[derive(Debug, Clone, Copy)]
pub struct SimilarFactsQuery<'a> {
    pub world: &'a WorldId,
    pub memories: MemoryScope<'a>,
    /// Facts about these subjects only, by [key](colloquy_memory::party::subject_key), since one person may have several
    /// names. `None`: all subjects.
    pub subjects: Option<&'a [String]>,
    /// Facts that began earlier; `None`: all facts.
    pub before: Option<DateTime<Utc>>,
    /// A unit vector.
    pub embedding: &'a [f32],
    /// The least cosine with `embedding`, in [-1, 1].
    pub min_cosine: f32,
    pub limit: usize,
}

/// How many candidates each leg may propose (docs/algorithms.md#recall).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CandidateLimits {
    /// Nearest by cosine; default 30.
    pub dense: usize,
    /// Best by shared terms; default 30.
    pub sparse: usize,
    /// Most important; default 10.
    pub important: usize,
    /// Newest; default 10.
    pub recent: usize,
}

impl Default for CandidateLimits {
    fn default() -> Self {
        Self {
            dense: 30,
            sparse: 30,
            important: 10,
            recent: 10,
        }
    }
}

/// One proposed fact. The score is computed later, from the data that the ledger confirms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    pub fact: FactId,
    /// The exact cosine with the query, in [-1, 1]; 0 without a query embedding.
    pub cosine: f32,
    /// Data for scoring without a read of the fact. `None`: the index stores no hints.
    pub hint: Option<ScoreHint>,
}

/// The parts of a score beside the cosine, from the index. A hint counts only if the ledger confirms the fact in
/// exactly this version. From a lagging index only the fact's id is used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreHint {
    pub version: u32,
    pub importance: Importance,
    pub valid_at: DateTime<Utc>,
    /// The [`bm25`](colloquy_memory::keywords::bm25_score) sum of the query's terms and the point's terms, exact to the
    /// bit.
    pub keyword: f64,
}

/// A point in the index, for comparison with the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPoint {
    pub fact: FactId,
    /// The [`IndexPoint::digest`] of the stored point.
    pub digest: u64,
}

/// One page of an index's stored points.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredPointPage {
    /// In no particular order.
    pub points: Vec<StoredPoint>,
    /// The cursor of the next page; `None` on the last page.
    pub next: Option<String>,
}

/// Whether an index can answer searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexState {
    /// The index answers, and has every fact of the ledger.
    Ready,
    /// The index is being filled from the ledger. Searches fail until the end.
    Filling,
    /// The index does not answer, or has not answered yet.
    Away,
}

/// The steps that an index still needs before searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrepareOutcome {
    /// No step.
    Ready,
    /// A comparison with the ledger, then [`FactIndex::drop_replaced_index`], since another node's fill did not get so
    /// far.
    Unfinished,
    /// A fill from the ledger, then [`FactIndex::adopt_index`], the comparison and [`FactIndex::drop_replaced_index`].
    Empty,
}

/// Finds the nearest and otherwise promising facts of a viewpoint.
///
/// Searches of an index that is not ready fail with [`StoreError::Unavailable`](super::StoreError::Unavailable). The
/// methods after [`Self::clear_tenant`] are only for an index that outlives this process or is shared.
#[async_trait]
pub trait FactIndex: Send + Sync {
    /// Returns the union of the legs, each fact once, in no particular order.
    async fn propose_candidates(
        &self,
        scope: &TenantScope,
        proposal: CandidateQuery<'_>,
    ) -> StoreResult<Vec<Candidate>>;
    /// Returns the number of a viewpoint's facts, and of facts with each term. A fact with several knowers counts once.
    /// The same facts give the same numbers in every index. The default, for an index without counts, is zero facts.
    async fn term_statistics(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        terms: &TermWeights,
    ) -> StoreResult<TermStatistics> {
        let _ = (scope, viewpoint, terms);
        Ok(TermStatistics::default())
    }
    /// Returns facts above the least cosine, nearest first. Deduplication and conflict checks use this search.
    async fn find_similar(&self, scope: &TenantScope, with: SimilarFactsQuery<'_>) -> StoreResult<Vec<Candidate>>;
    /// Adds or replaces points. Idempotent.
    async fn upsert_points(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()>;
    /// Removes points. Unknown ids are allowed.
    async fn remove_points(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()>;
    /// Returns the number of a tenant's points.
    async fn count_points(&self, scope: &TenantScope) -> StoreResult<u64>;
    /// Removes all points of a tenant, before a rebuild or for erasure.
    async fn clear_tenant(&self, scope: &TenantScope) -> StoreResult<()>;

    /// Returns the index in which the points are really stored, if it is not this one. It answers the methods below.
    fn stored_in(&self) -> Option<&dyn FactIndex> {
        None
    }
    /// True if other nodes write to the index too, so that a write may be overtaken.
    fn is_shared(&self) -> bool {
        self.stored_in().is_some_and(FactIndex::is_shared)
    }
    /// Returns the last known state, without a request.
    fn index_state(&self) -> IndexState {
        self.stored_in().map_or(IndexState::Ready, FactIndex::index_state)
    }
    /// Finds the storage for vectors of the current embedder, and returns the steps that it needs. Creates missing
    /// storage if `may_make`. Idempotent; several nodes may call it at once.
    async fn prepare_index(&self, may_make: bool) -> StoreResult<PrepareOutcome> {
        match self.stored_in() {
            Some(index) => index.prepare_index(may_make).await,
            None => Ok(PrepareOutcome::Ready),
        }
    }
    /// Makes the filled index the current index of every node.
    async fn adopt_index(&self) -> StoreResult<()> {
        match self.stored_in() {
            Some(index) => index.adopt_index().await,
            None => Ok(()),
        }
    }
    /// Drops the index that the current index replaced.
    async fn drop_replaced_index(&self) -> StoreResult<()> {
        match self.stored_in() {
            Some(index) => index.drop_replaced_index().await,
            None => Ok(()),
        }
    }
    /// Asks whether this node still writes to the current index. If not, the outbox rows must stay in the outbox.
    async fn is_current(&self) -> StoreResult<bool> {
        match self.stored_in() {
            Some(index) => index.is_current().await,
            None => Ok(true),
        }
    }
    /// Returns a page of a tenant's stored points. `None`: the index has no state that could differ from the ledger.
    async fn list_stored_points(
        &self,
        scope: &TenantScope,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Option<StoredPointPage>> {
        match self.stored_in() {
            Some(index) => index.list_stored_points(scope, after, limit).await,
            None => Ok(None),
        }
    }
}

/// The source of partitions for an index without a disk: the index loads a partition on first use.
#[async_trait]
pub trait PointSource: Send + Sync {
    /// Returns every valid fact that one knower of a world may know, with embeddings.
    async fn points_of(&self, scope: &TenantScope, world: &WorldId, knower: &Knower) -> StoreResult<Vec<IndexPoint>>;
    /// Returns the same facts without embeddings, for callers that only count words.
    async fn bare_points_of(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        knower: &Knower,
    ) -> StoreResult<Vec<IndexPoint>> {
        let mut points = self.points_of(scope, world, knower).await?;
        for point in &mut points {
            point.embedding = Vec::new();
        }
        Ok(points)
    }
}
