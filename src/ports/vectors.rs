//! The index port: proposes facts to recall. It is derived from the ledger, may lag, may be lost,
//! and holds no text. Whatever it proposes is confirmed against the ledger before it is used.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use sha2::{Digest as _, Sha256};

use super::StoreResult;
use crate::{
    ids::{FactId, WorldId},
    memory::{
        fact::{Audience, Importance, Knower, Viewpoint},
        keywords::{TermStatistics, TermWeights},
    },
    tenancy::TenantScope,
};

/// A fact as the index holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexPoint {
    pub fact: FactId,
    /// The fact's version of which the rest is true; what moves with the embedder only does not count.
    pub version: u32,
    pub world: WorldId,
    pub audience: Audience,
    /// The [key](crate::memory::party::subject_key) of whom or what it is about.
    pub subject: String,
    pub importance: Importance,
    pub valid_at: DateTime<Utc>,
    /// A unit vector; empty while the fact has none of the embedder in use. Such a point is proposed
    /// by every leg but the dense one, and is similar to nothing.
    pub embedding: Vec<f32>,
    /// Terms of content and keywords ([`fact_terms`](crate::memory::keywords::fact_terms)), for the keyword leg.
    pub terms: TermWeights,
}

impl IndexPoint {
    /// Tells points apart that differ in anything; the same on every machine and in every version.
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
        digest[..8].iter().fold(0, |all, byte| (all << 8) | u64::from(*byte))
    }
}

/// What to propose.
#[derive(Debug, Clone)]
pub struct CandidateQuery<'a> {
    pub viewpoint: &'a Viewpoint,
    /// A unit vector; `None`: the embedder failed and only the other legs run.
    pub embedding: Option<&'a [f32]>,
    /// Each as informative as it is in this memory ([`FactIndex::term_statistics`]).
    pub terms: &'a TermWeights,
    pub limits: CandidateLimits,
}

/// Which memories a vector is looked for in.
#[derive(Debug, Clone, Copy)]
pub enum MemoryScope<'a> {
    /// Facts of exactly this audience.
    Of(&'a Audience),
    /// Facts of every other audience that somebody of this one may be of too ([`Audience::overlaps_audience`]).
    Overlapping(&'a Audience),
}

/// What to compare with which facts.
#[derive(Debug, Clone, Copy)]
pub struct SimilarFactsQuery<'a> {
    pub world: &'a WorldId,
    pub memories: MemoryScope<'a>,
    /// Of facts about any of these, by their [keys](crate::memory::party::subject_key): one person may be told of by several
    /// names. `None`: about whatever.
    pub subjects: Option<&'a [String]>,
    /// Of facts that began before; `None`: whenever they did.
    pub before: Option<DateTime<Utc>>,
    /// A unit vector.
    pub embedding: &'a [f32],
    /// Least cosine with it, in [-1, 1].
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

/// One proposed fact. Its score is computed later, from what the ledger confirms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    pub fact: FactId,
    /// Exact cosine with the query, in [-1, 1]; 0 without a query embedding.
    pub cosine: f32,
    /// What spares reading the fact to score it. `None`: the index keeps nothing of the kind.
    pub hint: Option<ScoreHint>,
}

/// What a score is made of beside the cosine, as the index has it. It counts only if the ledger confirms
/// the fact in the very version: an index that lags is asked for nothing but the fact's id.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreHint {
    pub version: u32,
    pub importance: Importance,
    pub valid_at: DateTime<Utc>,
    /// The [`bm25`](crate::memory::keywords::bm25_score) sum of the proposal's terms and the point's, to the bit.
    pub keyword: f64,
}

/// A point as the index keeps it, to be compared with the ledger's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredPoint {
    pub fact: FactId,
    /// The [`IndexPoint::digest`] of what was written.
    pub digest: u64,
}

/// One page of what an index keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredPointPage {
    /// In no particular order.
    pub points: Vec<StoredPoint>,
    /// What to pass for the next page; `None` on the last.
    pub next: Option<String>,
}

/// Whether searches may expect anything of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexState {
    /// It answers, and has all that the ledger had.
    Ready,
    /// It is being filled from the ledger; until then it answers no search.
    Filling,
    /// It has not answered, or not yet.
    Away,
}

/// What an index needs before it can be searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrepareOutcome {
    /// Nothing.
    Ready,
    /// A comparison with the ledger, and then [`FactIndex::drop_replaced_index`]: whoever filled it did not come to it.
    Unfinished,
    /// To be filled from the ledger, and then [`FactIndex::adopt_index`], the comparison and [`FactIndex::drop_replaced_index`].
    Empty,
}

/// Nearest and otherwise promising facts of a viewpoint.
///
/// Searches of an index that is not ready are [`StoreError::Unavailable`](super::StoreError::Unavailable).
/// What follows [`Self::clear_tenant`] is only for an index that outlives this process or is shared with others.
#[async_trait]
pub trait FactIndex: Send + Sync {
    /// The union of the legs, each fact once, in no particular order.
    async fn propose_candidates(
        &self,
        scope: &TenantScope,
        proposal: CandidateQuery<'_>,
    ) -> StoreResult<Vec<Candidate>>;
    /// How many facts a viewpoint has, and how many of them have each of these terms; a fact known in several ways counts once.
    /// The same for the same facts, whatever the index is made of. An index that counts nothing says so by none.
    async fn term_statistics(
        &self,
        scope: &TenantScope,
        viewpoint: &Viewpoint,
        terms: &TermWeights,
    ) -> StoreResult<TermStatistics> {
        let _ = (scope, viewpoint, terms);
        Ok(TermStatistics::default())
    }
    /// Facts that are near enough, nearest first. What dedupe and conflict look at.
    async fn find_similar(&self, scope: &TenantScope, with: SimilarFactsQuery<'_>) -> StoreResult<Vec<Candidate>>;
    /// Adds or replaces points. Idempotent.
    async fn upsert_points(&self, scope: &TenantScope, points: &[IndexPoint]) -> StoreResult<()>;
    /// Removes points; unknown ones are fine.
    async fn remove_points(&self, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()>;
    /// How many points a tenant has.
    async fn count_points(&self, scope: &TenantScope) -> StoreResult<u64>;
    /// Forgets everything of a tenant, before a rebuild or for erasure.
    async fn clear_tenant(&self, scope: &TenantScope) -> StoreResult<()>;

    /// Whether others write to it too, so that what was written may be overtaken.
    fn is_shared(&self) -> bool {
        false
    }
    /// As far as is known without asking.
    fn index_state(&self) -> IndexState {
        IndexState::Ready
    }
    /// Finds the place for vectors of the embedder in use, and says what it needs. If there is none and it
    /// may, makes it. Idempotent, and any number of nodes may do it at once.
    async fn prepare_index(&self, may_make: bool) -> StoreResult<PrepareOutcome> {
        let _ = may_make;
        Ok(PrepareOutcome::Ready)
    }
    /// Makes what was filled the one that counts, for every node.
    async fn adopt_index(&self) -> StoreResult<()> {
        Ok(())
    }
    /// Drops what the one that counts has replaced.
    async fn drop_replaced_index(&self) -> StoreResult<()> {
        Ok(())
    }
    /// Asks whether what this node writes is still what counts. If not, what the outbox names must stay in it.
    async fn is_current(&self) -> StoreResult<bool> {
        Ok(true)
    }
    /// What it keeps of a tenant, a page at a time; `None`: nothing that could differ from the ledger.
    async fn list_stored_points(
        &self,
        scope: &TenantScope,
        after: Option<&str>,
        limit: u32,
    ) -> StoreResult<Option<StoredPointPage>> {
        let _ = (scope, after, limit);
        Ok(None)
    }
}

/// Where an index that keeps nothing on disk fetches a partition from on first use.
#[async_trait]
pub trait PointSource: Send + Sync {
    /// Every valid fact one knower of a world may know, with its embedding.
    async fn points_of(&self, scope: &TenantScope, world: &WorldId, knower: &Knower) -> StoreResult<Vec<IndexPoint>>;
    /// The same without embeddings, for whoever only counts words.
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
