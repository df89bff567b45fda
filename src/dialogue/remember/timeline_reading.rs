//! Reads the input of a plan: the facts and requests said since a moment, and similar facts here and in other memories.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};

use super::{
    embedding::is_embedder_away,
    memory_update::{AudienceMemory, TurnAddition},
};
use crate::jobs::{JobError, outbox::relay_outbox_for_tenant};
use colloquy_core::ids::{FactId, PlayerId};
use colloquy_memory::{
    fact::{Fact, FoldedFact, NewFact, Statement},
    keywords, party,
    reconcile::StatementFeatures,
    scoring::dot_product,
    timeline::{self, AudienceOverlap, ForgetRequest, KnownFact, NameHistory, SpokenTurn, Timeline},
};
use colloquy_ports::{
    StoreResult,
    ledger::facts::{Extraction, TimelineRows},
    vectors::{Candidate, IndexState, MemoryScope, SimilarFactsQuery},
};

/// The number of nearest facts to read. It exceeds the number that counts, because some were not valid at their moment.
const MAX_NEIGHBOURS: usize = timeline::MAX_NEAREST + 16;

/// The same limit for a statement that names a topic.
const MAX_TOPIC_NEIGHBOURS: usize = timeline::MAX_NEAREST_OF_TOPIC + 16;

/// A query for facts that are similar to a statement or request.
pub(super) struct NeighbourQuery<'a> {
    /// The keys of the subjects. `None`: any subject.
    subjects: Option<Vec<String>>,
    vector: &'a [f32],
    /// True if the statement names a topic or promises something. Facts of one matter are compared at any distance.
    names_topic: bool,
}

impl<'a> NeighbourQuery<'a> {
    /// Builds a query for facts about the statement's subject.
    pub(super) fn for_statement(statement: &Statement, vector: &'a [f32]) -> Self {
        Self::for_statement_keys(statement, vec![party::subject_key(&statement.subject)], vector)
    }

    /// Builds the same query with all the subject's keys.
    fn for_statement_keys(statement: &Statement, keys: Vec<String>, vector: &'a [f32]) -> Self {
        Self {
            names_topic: StatementFeatures::from_statement(statement).is_compared_at_any_distance(),
            ..Self::for_subjects(keys, vector)
        }
    }

    fn for_subjects(keys: Vec<String>, vector: &'a [f32]) -> Self {
        Self {
            subjects: Some(keys),
            vector,
            names_topic: false,
        }
    }
}

/// Where one plan looks for similar facts: in the search index, or in the ledger while the index is away. The two find
/// the same facts.
#[derive(Debug, Clone, Copy)]
pub(super) enum PlanIndex {
    /// No search yet. `is_complete`: the index had no backlog when the memory position was read.
    Unused {
        is_complete: bool,
    },
    Search,
    Ledger,
}

/// The vectors of requests to forget, by text.
pub(super) type RequestVectors = HashMap<String, Vec<f32>>;

/// The input of a plan, or what lacks vectors.
pub(super) enum TimelineRead {
    Complete(Timeline),
    Incomplete(MissingVectors),
}

/// Texts without a vector, in a plan.
pub(super) enum MissingVectors {
    /// Requests to forget of the turn that is added.
    NewRequests(Vec<String>),
    /// Requests to forget of earlier extractions.
    StoredRequests(Vec<String>),
    /// Facts that are to be compared, and that were stored while the embedder was away.
    Facts(Vec<(FactId, String)>),
}

/// The search for facts that may be similar to those of a timeline.
struct SimilarFactsSearch<'m> {
    memory: &'m AudienceMemory<'m>,
    since: DateTime<Utc>,
    index: PlanIndex,
    /// The facts to read.
    fact_ids: BTreeSet<FactId>,
    overlaps: Vec<AudienceOverlap>,
}

impl SimilarFactsSearch<'_> {
    /// Finds what may be similar to the facts and requests of the turn that is added. The requests must have vectors.
    async fn find_for_addition(&mut self, addition: &TurnAddition, requests: &RequestVectors) -> StoreResult<()> {
        let memory = self.memory;
        let extraction = &addition.extraction;
        self.fact_ids.extend(extraction.ends.iter().map(|ending| ending.fact));
        if !addition.facts.is_empty() {
            // A new fact may only repeat an injected fact. A request to forget is compared with similar facts.
            self.fact_ids.extend(&extraction.injected);
        }
        let fresh_facts = addition.fresh_facts.iter();
        let mut queries: Vec<NeighbourQuery<'_>> = fresh_facts
            .map(|fresh| NeighbourQuery::for_statement(&fresh.statement, &fresh.embedding))
            .collect();
        let player = extraction.player.as_ref();
        let vectors = extraction.forget.iter().map(|text| &requests[text]);
        queries.extend(vectors.flat_map(|vector| memory.forget_queries(vector, player)));
        let nearby = memory.find_nearby(&mut self.index, &queries, self.since).await?;
        self.fact_ids.extend(nearby);
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
        let nearby = self.memory.find_nearby(&mut self.index, queries, self.since).await?;
        self.fact_ids.extend(nearby);
        let since = self.since;
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
            let new_overlaps = new_facts
                .iter()
                .filter_map(|new_fact| memory.find_overlap(known_fact, new_fact));
            self.overlaps.extend(new_overlaps);
        }
        Ok(())
    }
}

impl AudienceMemory<'_> {
    /// Reads the facts and requests since `since`, and earlier facts that may be similar. `is_indexed`: true if the
    /// index had no backlog when the memory position was read. `embeds_facts`: facts since then need vectors.
    pub(super) async fn read_timeline(
        &self,
        since: DateTime<Utc>,
        addition: Option<&TurnAddition>,
        requests: &RequestVectors,
        is_indexed: bool,
        embeds_facts: bool,
    ) -> Result<TimelineRead, JobError> {
        let mut search = SimilarFactsSearch {
            memory: self,
            since,
            index: PlanIndex::Unused {
                is_complete: is_indexed,
            },
            fact_ids: BTreeSet::new(),
            overlaps: Vec::new(),
        };
        if let Some(addition) = addition {
            if let Some(texts) = texts_without_vector(&addition.extraction.forget, requests) {
                return Ok(TimelineRead::Incomplete(MissingVectors::NewRequests(texts)));
            }
            search.find_for_addition(addition, requests).await?;
        }
        let mut rows = self.read_rows(since, &search.fact_ids).await?;
        if embeds_facts {
            let lacking = facts_without_vector(&rows.known_facts, since);
            if !lacking.is_empty() {
                return Ok(TimelineRead::Incomplete(MissingVectors::Facts(lacking)));
            }
        }
        let stored_requests = rows.extractions.iter().flat_map(|extraction| &extraction.forget);
        if let Some(texts) = texts_without_vector(stored_requests, requests) {
            return Ok(TimelineRead::Incomplete(MissingVectors::StoredRequests(texts)));
        }
        let mut turns = to_spoken_turns(&rows.extractions, requests);
        let new_facts: Vec<KnownFact> = addition.iter().flat_map(|added| &added.facts).map(as_known).collect();
        // Usually this turn is the latest. Otherwise the facts said since are processed again.
        let later_queries = self.later_queries(&rows, &new_facts, &turns, addition, since, requests);
        if !later_queries.is_empty() || !turns.is_empty() {
            search
                .find_for_later_turns(&later_queries, &rows, &new_facts, &turns)
                .await?;
            rows = self.read_rows(since, &search.fact_ids).await?;
        }
        let mut known_facts = rows.known_facts;
        if let Some(addition) = addition {
            turns.push(to_spoken_turn(&addition.extraction, requests));
            known_facts.extend(new_facts);
        }
        Ok(TimelineRead::Complete(Timeline {
            since,
            audience: Some(self.audience.clone()),
            turns,
            overlaps: self.retain_overlapping(search.overlaps, &known_facts, &rows.foreign_facts),
            known_facts,
            other_memories: rows.foreign_facts,
        }))
    }

    /// Returns the queries for what was said since `since`, with the names that people have by now.
    fn later_queries<'q>(
        &self,
        rows: &'q TimelineRows,
        new_facts: &'q [KnownFact],
        turns: &'q [SpokenTurn],
        addition: Option<&TurnAddition>,
        since: DateTime<Utc>,
        requests: &'q RequestVectors,
    ) -> Vec<NeighbourQuery<'q>> {
        let later_facts = rows
            .known_facts
            .iter()
            .filter(|known| !known.foreign && known.fact.valid_at >= since);
        let naming = NameHistory::from_known(rows.known_facts.iter().chain(new_facts));
        let mut queries: Vec<NeighbourQuery<'_>> = later_facts
            .map(|known| {
                let names = naming.aliases_at(known.fact.valid_at);
                let statement = &known.fact.statement;
                NeighbourQuery::for_statement_keys(statement, names.keys_of(&statement.subject), known.vector_as_said())
            })
            .collect();
        queries.extend(
            new_facts
                .iter()
                .filter_map(|known| query_by_other_names(known, &naming)),
        );
        if let Some(addition) = addition {
            queries.extend(self.forget_queries_by_player_names(&addition.extraction, requests, &naming));
        }
        for turn in turns {
            let vectors = turn.forget.iter().map(|request| &request.vector);
            queries.extend(vectors.flat_map(|vector| self.forget_queries(vector, turn.player.as_ref())));
        }
        for extraction in &rows.extractions {
            queries.extend(self.forget_queries_by_player_names(extraction, requests, &naming));
        }
        queries
    }

    /// Chooses the index, unless chosen. The search index must have all writes before the memory position was read; later
    /// writes change `memory_seq`. If it cannot have them now, no job waits for it.
    async fn choose_index(&self, index: &mut PlanIndex) -> StoreResult<()> {
        let PlanIndex::Unused { is_complete } = *index else {
            return Ok(());
        };
        let relays = &self.services.memory_cache.relays;
        let is_away = self.services.index.index_state() != IndexState::Ready || relays.has_backlog(self.scope.tenant());
        *index = if is_away {
            PlanIndex::Ledger
        } else if is_complete {
            PlanIndex::Search
        } else {
            match relay_outbox_for_tenant(self.services, self.scope).await {
                Ok(()) => PlanIndex::Search,
                Err(error) if error.is_transient() => PlanIndex::Ledger,
                Err(error) => return Err(error),
            }
        };
        Ok(())
    }

    /// Returns the overlap of a manual fact and a similar fact of an earlier turn.
    fn find_overlap(&self, manual_fact: &KnownFact, turn_fact: &KnownFact) -> Option<AudienceOverlap> {
        let calibration = self.services.embedder.info().calibration;
        let key = |known: &KnownFact| party::subject_key(&known.fact.statement.subject);
        let gist = |known: &KnownFact| StatementFeatures::from_statement(&known.fact.statement);
        let cosine = dot_product(manual_fact.vector_as_said(), &turn_fact.vector);
        let is_near = || {
            cosine >= calibration.cosine_at(calibration.related)
                || gist(manual_fact).common_matter(&gist(turn_fact)).is_one_matter
        };
        (key(manual_fact) == key(turn_fact) && is_near()).then_some(AudienceOverlap {
            local_fact: manual_fact.fact.id,
            foreign_fact: turn_fact.fact.id,
            cosine,
        })
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
        let other_candidates = candidates.iter().filter(|candidate| candidate.fact != fact);
        let overlaps = other_candidates.map(|candidate| AudienceOverlap {
            local_fact: fact,
            foreign_fact: candidate.fact,
            cosine: candidate.cosine,
        });
        Ok(overlaps.collect())
    }

    /// Removes overlaps whose fact is not in this memory or in an overlapping audience by the ledger. An index may lag.
    fn retain_overlapping(
        &self,
        mut overlaps: Vec<AudienceOverlap>,
        known_facts: &[KnownFact],
        foreign_facts: &HashMap<FactId, Fact>,
    ) -> Vec<AudienceOverlap> {
        overlaps.retain(
            |AudienceOverlap { foreign_fact, .. }| match foreign_facts.get(foreign_fact) {
                // The premises of a conclusion are compared.
                Some(fact) => {
                    fact.world == self.world && !fact.is_conclusion() && fact.audience.overlaps_audience(&self.audience)
                }
                None => known_facts.iter().any(|known| known.fact.id == *foreign_fact),
            },
        );
        overlaps
    }

    async fn read_rows(&self, since: DateTime<Utc>, fact_ids: &BTreeSet<FactId>) -> StoreResult<TimelineRows> {
        let fact_ids: Vec<FactId> = fact_ids.iter().copied().collect();
        let facts = &self.services.ledger.facts;
        facts
            .load_timeline(self.scope, &self.world, &self.audience, since, &fact_ids)
            .await
    }

    /// Returns the queries for a request to forget:
    /// - all facts of the memory;
    /// - in a shared memory, also facts about the player alone, because facts about other players may be nearer.
    fn forget_queries<'v>(
        &self,
        vector: &'v [f32],
        player: Option<&PlayerId>,
    ) -> impl Iterator<Item = NeighbourQuery<'v>> + use<'v> {
        let any_subject = player.map(|_| NeighbourQuery {
            subjects: None,
            vector,
            names_topic: false,
        });
        let shared = player.filter(|player| self.audience.private_to.as_ref() != Some(*player));
        let players_facts = shared.map(|player| NeighbourQuery::for_subjects(vec![party::player_key(player)], vector));
        any_subject.into_iter().chain(players_facts)
    }

    /// Works like `forget_queries`, for the other names of the player and the player's relatives, in a shared memory.
    fn forget_queries_by_player_names<'v>(
        &self,
        extraction: &Extraction,
        requests: &'v RequestVectors,
        naming: &NameHistory<'_>,
    ) -> Vec<NeighbourQuery<'v>> {
        let player = extraction.player.as_ref();
        let Some(player) = player.filter(|player| self.audience.private_to.as_ref() != Some(*player)) else {
            return Vec::new();
        };
        let names = naming.aliases_at(extraction.said_at);
        let is_players = |name: &&str| party::owner_id(name) == Some(player.as_str());
        let groups = names.name_groups().map(Iterator::collect::<Vec<&str>>);
        let of_player = groups.filter(|group| group.iter().any(is_players));
        let keys: Vec<String> = of_player.flatten().map(party::subject_key).collect();
        if keys.is_empty() {
            return Vec::new();
        }
        let vectors = extraction.forget.iter().map(|text| requests[text].as_slice());
        vectors
            .map(|vector| NeighbourQuery::for_subjects(keys.clone(), vector))
            .collect()
    }

    /// Returns facts of this memory from before `since` that are similar to a query. Later facts are read in any case.
    async fn find_nearby(
        &self,
        index: &mut PlanIndex,
        queries: &[NeighbourQuery<'_>],
        since: DateTime<Utc>,
    ) -> StoreResult<BTreeSet<FactId>> {
        let mut fact_ids = BTreeSet::new();
        for query in queries {
            let own_scope = MemoryScope::Of(&self.audience);
            let limit = if query.names_topic {
                MAX_TOPIC_NEIGHBOURS
            } else {
                MAX_NEIGHBOURS
            };
            let candidates = self.find_similar(index, own_scope, query, Some(since), limit).await?;
            fact_ids.extend(candidates.iter().map(|candidate| candidate.fact));
        }
        Ok(fact_ids)
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

/// Returns a query by the subject's other names in this memory. `None`: the subject has no other name.
fn query_by_other_names<'k>(known_fact: &'k KnownFact, naming: &NameHistory<'_>) -> Option<NeighbourQuery<'k>> {
    let keys = naming
        .aliases_at(known_fact.fact.valid_at)
        .keys_of(&known_fact.fact.statement.subject);
    (keys.len() > 1).then(|| NeighbourQuery::for_statement_keys(&known_fact.fact.statement, keys, &known_fact.vector))
}

/// Returns the `texts` without a vector, without repetition. `None`: all texts have a vector.
fn texts_without_vector<'t>(
    texts: impl IntoIterator<Item = &'t String>,
    requests: &RequestVectors,
) -> Option<Vec<String>> {
    let lacking: BTreeSet<&String> = texts.into_iter().filter(|text| !requests.contains_key(*text)).collect();
    (!lacking.is_empty()).then(|| lacking.into_iter().cloned().collect())
}

/// Returns the facts said in this memory since `since` that have no vector, each with its text.
fn facts_without_vector(known_facts: &[KnownFact], since: DateTime<Utc>) -> Vec<(FactId, String)> {
    let facts = known_facts
        .iter()
        .filter(|known| !known.foreign && known.fact.valid_at >= since && known.vector.is_empty());
    facts.map(|known| (known.fact.id, known.embedded_text())).collect()
}

fn to_spoken_turns(extractions: &[Extraction], requests: &RequestVectors) -> Vec<SpokenTurn> {
    let extractions = extractions.iter();
    extractions
        .map(|extraction| to_spoken_turn(extraction, requests))
        .collect()
}

/// Converts an extraction, with the vectors of its requests. The vectors must be in `requests`.
fn to_spoken_turn(extraction: &Extraction, requests: &RequestVectors) -> SpokenTurn {
    let forget = extraction.forget.iter().map(|text| ForgetRequest {
        terms: keywords::query_terms(text),
        vector: requests[text].clone(),
    });
    SpokenTurn {
        turn: extraction.turn,
        committed_at: extraction.said_at,
        player: extraction.player.clone(),
        forget: forget.collect(),
        ends: extraction.ends.clone(),
        injected: extraction.injected.clone(),
        judge_share: extraction.room,
    }
}

fn as_known(new_fact: &NewFact) -> KnownFact {
    KnownFact {
        fact: as_fact(new_fact),
        vector: new_fact.embedding.clone(),
        written_at: new_fact.valid_at,
        edits: Vec::new(),
        ends: Vec::new(),
        foreign: false,
    }
}

/// Returns the fact as the ledger will have it after the write.
fn as_fact(new_fact: &NewFact) -> Fact {
    Fact {
        id: new_fact.id,
        world: new_fact.world.clone(),
        audience: new_fact.audience.clone(),
        locks: new_fact.locks.clone(),
        replaced_by: Vec::new(),
        view: FoldedFact::from_statement(&new_fact.statement),
        statement: new_fact.statement.clone(),
        valid_at: new_fact.valid_at,
        invalid: None,
        expires_at: new_fact.expires_at,
        cause: new_fact.cause,
        source: new_fact.source,
        derived_from: new_fact.derived_from.clone(),
        pii: new_fact.pii.clone(),
        authored: new_fact.authored,
        corrects: None,
        earlier_wordings: Vec::new(),
        version: 1,
    }
}
