//! Reads the input of a plan: the facts and requests said since a moment, and similar facts here and in other memories.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};

use super::{
    audience_overlaps::{overlap_of_pair, overlaps_with, retain_overlapping},
    decisions,
    embedding::is_embedder_away,
    memory_update::AudienceMemory,
    timeline_input::{MissingVectors, NeighbourQuery, PlanIndex, RequestVectors, TimelineInput},
};
use crate::jobs::{JobError, outbox::relay_outbox_for_tenant};
use colloquy_core::ids::FactId;
use colloquy_memory::timeline::{self, AudienceOverlap, KnownFact, SpokenTurn, Timeline};
use colloquy_ports::{
    StoreResult,
    ledger::facts::TimelineRows,
    vectors::{Candidate, MemoryScope, SimilarFactsQuery},
};

/// The number of nearest facts to read. It exceeds the number that counts, because some were not valid at their moment.
const MAX_NEIGHBOURS: usize = timeline::MAX_NEAREST + 16;

/// The same limit for a statement that names a topic.
const MAX_TOPIC_NEIGHBOURS: usize = timeline::MAX_NEAREST_OF_TOPIC + 16;

/// The input of a plan, or what lacks vectors.
pub(super) enum TimelineRead {
    Complete(Timeline),
    Incomplete(MissingVectors),
}

/// The search for facts that may be similar to those of a timeline.
struct SimilarFactsSearch<'m> {
    memory: &'m AudienceMemory<'m>,
    input: TimelineInput<'m>,
    index: PlanIndex,
    /// The facts to read.
    fact_ids: BTreeSet<FactId>,
    overlaps: Vec<AudienceOverlap>,
}

impl SimilarFactsSearch<'_> {
    /// Finds what may be similar to the facts and requests of the turn that is added. The requests must have vectors.
    async fn find_for_addition(&mut self) -> StoreResult<()> {
        let Some(addition) = self.input.addition else {
            return Ok(());
        };
        let memory = self.memory;
        let extraction = &addition.extraction;
        self.fact_ids.extend(extraction.ends.iter().map(|ending| ending.fact));
        if !addition.facts.is_empty() {
            // A new fact may only repeat an injected fact. A request to forget is compared with similar facts.
            self.fact_ids.extend(&extraction.injected);
        }
        let queries = self.input.addition_queries();
        self.find_nearby(&queries).await?;
        let overlapping_scope = MemoryScope::Overlapping(&memory.audience);
        // `queries` begins with the queries of the fresh facts, in the same order.
        for (fresh, query) in addition.fresh_facts.iter().zip(&queries) {
            let overlaps = memory.find_overlaps(&mut self.index, overlapping_scope, fresh.id, query);
            self.overlaps.extend(overlaps.await?);
        }
        self.fact_ids
            .extend(self.overlaps.iter().map(|overlap| overlap.foreign_fact));
        Ok(())
    }

    /// Finds what may be similar to the facts and requests said since.
    async fn find_for_later_turns(
        &mut self,
        queries: &[NeighbourQuery<'_>],
        rows: &TimelineRows,
        new_facts: &[KnownFact],
        turns: &[SpokenTurn],
    ) -> StoreResult<()> {
        self.find_nearby(queries).await?;
        let since = self.input.since;
        for known in rows.known_facts.iter().filter(|known| known.may_be_valid_again(since)) {
            self.add_overlaps_of(known, new_facts).await?;
        }
        self.fact_ids
            .extend(self.overlaps.iter().map(|overlap| overlap.foreign_fact));
        self.fact_ids.extend(turns.iter().flat_map(|turn| &turn.injected));
        let ends = turns.iter().flat_map(|turn| &turn.ends);
        self.fact_ids.extend(ends.map(|ending| ending.fact));
        Ok(())
    }

    async fn add_overlaps_of(&mut self, known_fact: &KnownFact, new_facts: &[KnownFact]) -> StoreResult<()> {
        let memory = self.memory;
        let id = known_fact.fact.id;
        let query = NeighbourQuery::for_statement(&known_fact.fact.statement, known_fact.vector_as_said());
        let overlapping_scope = MemoryScope::Overlapping(&memory.audience);
        let overlaps = memory.find_overlaps(&mut self.index, overlapping_scope, id, &query);
        self.overlaps.extend(overlaps.await?);
        if known_fact.fact.authored {
            let own_scope = MemoryScope::Of(&memory.audience);
            let overlaps = memory.find_overlaps(&mut self.index, own_scope, id, &query);
            self.overlaps.extend(overlaps.await?);
            // A fact from this turn is not yet in an index.
            let calibration = memory.services.embedder.info().calibration;
            let new_overlaps = new_facts
                .iter()
                .filter_map(|new_fact| overlap_of_pair(&calibration, known_fact, new_fact));
            self.overlaps.extend(new_overlaps);
        }
        Ok(())
    }

    /// Finds facts of this memory from before `since` that are similar to a query. Later facts are read in any case.
    async fn find_nearby(&mut self, queries: &[NeighbourQuery<'_>]) -> StoreResult<()> {
        let memory = self.memory;
        for query in queries {
            let own_scope = MemoryScope::Of(&memory.audience);
            let limit = if query.names_topic {
                MAX_TOPIC_NEIGHBOURS
            } else {
                MAX_NEIGHBOURS
            };
            let candidates = memory
                .find_similar(&mut self.index, own_scope, query, Some(self.input.since), limit)
                .await?;
            self.fact_ids.extend(candidates.iter().map(|candidate| candidate.fact));
        }
        Ok(())
    }

    async fn read_rows(&self) -> StoreResult<TimelineRows> {
        let AudienceMemory {
            services,
            scope,
            world,
            audience,
            ..
        } = self.memory;
        let fact_ids: Vec<FactId> = self.fact_ids.iter().copied().collect();
        let facts = &services.ledger.facts;
        facts
            .load_timeline(scope, world, audience, self.input.since, &fact_ids)
            .await
    }
}

impl AudienceMemory<'_> {
    /// Reads the facts and requests of `input`, and earlier facts that may be similar. `is_indexed`: true if the index
    /// had no backlog when the memory position was read.
    pub(super) async fn read_timeline(
        &self,
        input: TimelineInput<'_>,
        is_indexed: bool,
    ) -> Result<TimelineRead, JobError> {
        let mut search = SimilarFactsSearch {
            memory: self,
            input,
            index: PlanIndex::Unused {
                is_complete: is_indexed,
            },
            fact_ids: BTreeSet::new(),
            overlaps: Vec::new(),
        };
        if let Some(missing) = input.missing_in_addition() {
            return Ok(TimelineRead::Incomplete(missing));
        }
        search.find_for_addition().await?;
        let mut rows = search.read_rows().await?;
        if let Some(missing) = input.missing_in_rows(&rows) {
            return Ok(TimelineRead::Incomplete(missing));
        }
        let extractions = rows.extractions.iter();
        let mut turns: Vec<SpokenTurn> = extractions.map(|extraction| input.to_spoken_turn(extraction)).collect();
        let new_facts = input.new_facts();
        // Usually this turn is the latest. Otherwise the facts said since are processed again.
        let later_queries = input.later_queries(&rows, &new_facts, &turns);
        if !later_queries.is_empty() || !turns.is_empty() {
            search
                .find_for_later_turns(&later_queries, &rows, &new_facts, &turns)
                .await?;
            rows = search.read_rows().await?;
        }
        let mut known_facts = rows.known_facts;
        known_facts.extend(new_facts);
        turns.extend(
            input
                .addition
                .map(|addition| input.to_spoken_turn(&addition.extraction)),
        );
        let memory = (&self.world, &self.audience);
        Ok(TimelineRead::Complete(Timeline {
            since: input.since,
            audience: Some(self.audience.clone()),
            turns,
            overlaps: retain_overlapping(search.overlaps, memory, &known_facts, &rows.foreign_facts),
            known_facts,
            other_memories: rows.foreign_facts,
        }))
    }

    /// Chooses the index, unless chosen. The search index must have all writes before the memory position was read; later
    /// writes change `memory_seq`. If it cannot have them now, no job waits for it.
    async fn choose_index(&self, index: &mut PlanIndex) -> StoreResult<()> {
        let PlanIndex::Unused { is_complete } = *index else {
            return Ok(());
        };
        let has_backlog = self.services.memory_cache.relays.has_backlog(self.scope.tenant());
        let state = self.services.index.index_state();
        *index = match decisions::choose_index(is_complete, state, has_backlog) {
            Some(chosen) => chosen,
            None => match relay_outbox_for_tenant(self.services, self.scope).await {
                Ok(()) => PlanIndex::Search,
                Err(error) if error.is_transient() => PlanIndex::Ledger,
                Err(error) => return Err(error),
            },
        };
        Ok(())
    }

    /// Returns the facts of `memories` that are similar to a fact of this memory.
    async fn find_overlaps(
        &self,
        index: &mut PlanIndex,
        memories: MemoryScope<'_>,
        fact: FactId,
        query: &NeighbourQuery<'_>,
    ) -> StoreResult<Vec<AudienceOverlap>> {
        let candidates = self
            .find_similar(index, memories, query, None, timeline::MAX_NEAREST)
            .await?;
        Ok(overlaps_with(fact, &candidates).collect())
    }

    /// Returns the facts of `memories` that are similar to the query, nearest first.
    pub(super) async fn find_similar(
        &self,
        index: &mut PlanIndex,
        memories: MemoryScope<'_>,
        query: &NeighbourQuery<'_>,
        before: Option<DateTime<Utc>>,
        limit: usize,
    ) -> StoreResult<Vec<Candidate>> {
        let calibration = self.services.embedder.info().calibration;
        let search_query = SimilarFactsQuery {
            world: &self.world,
            memories,
            subjects: query.subjects.as_deref(),
            before,
            embedding: query.vector,
            min_cosine: if query.names_topic {
                -1.0
            } else {
                calibration.cosine_at(calibration.related)
            },
            limit,
        };
        if query.vector.is_empty() {
            return Ok(Vec::new());
        }
        // Thousands of searches may run in a row, and an index in this process never yields.
        tokio::task::yield_now().await;
        self.choose_index(index).await?;
        if matches!(index, PlanIndex::Search) {
            match self.services.index.find_similar(self.scope, search_query).await {
                // The plan goes on without the index.
                Err(error) if error.is_transient() => *index = PlanIndex::Ledger,
                answer => return answer,
            }
        }
        self.services
            .ledger
            .facts
            .find_similar_facts(self.scope, search_query)
            .await
    }

    /// Embeds requests to forget, for comparison with facts. `may_lack`: while the embedder is away, the requests get
    /// empty vectors, which are near no fact.
    pub(super) async fn embed_requests(
        &self,
        texts: Vec<String>,
        requests: &mut RequestVectors,
        may_lack: bool,
    ) -> Result<(), JobError> {
        let vectors = match self.services.embed_passages(self.scope, &texts).await {
            Err(error) if may_lack && is_embedder_away(&error) => vec![Vec::new(); texts.len()],
            answer => answer?,
        };
        requests.extend(texts.into_iter().zip(vectors));
        Ok(())
    }
}
