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

impl AudienceMemory<'_> {
    /// Reads the facts and requests since `since`, and earlier facts that may be similar. `is_indexed`: true if the
    /// index had no backlog when the memory position was read. `embeds_facts`: facts since then need vectors.
    #[expect(clippy::too_many_lines, reason = "one read after the other, each with its own use")]
    pub(super) async fn read_timeline(
        &self,
        since: DateTime<Utc>,
        addition: Option<&TurnAddition>,
        requests: &RequestVectors,
        is_indexed: bool,
        embeds_facts: bool,
    ) -> Result<TimelineRead, JobError> {
        let index = &mut PlanIndex::Unused {
            is_complete: is_indexed,
        };
        let mut asked = BTreeSet::new();
        let mut overlaps = Vec::new();
        if let Some(addition) = addition {
            let forget = &addition.extraction.forget;
            if let Some(lacks) = texts_without_vector(forget, requests) {
                return Ok(TimelineRead::Incomplete(MissingVectors::NewRequests(lacks)));
            }
            asked.extend(addition.extraction.ends.iter().map(|ending| ending.fact));
            if !addition.facts.is_empty() {
                // A new fact may only repeat an injected fact. A request to forget is compared with similar facts.
                asked.extend(&addition.extraction.injected);
            }
            let fresh = addition.fresh.iter();
            let mut sought: Vec<NeighbourQuery<'_>> = fresh
                .map(|fresh| NeighbourQuery::for_statement(&fresh.statement, &fresh.embedding))
                .collect();
            let player = addition.extraction.player.as_ref();
            sought.extend(
                forget
                    .iter()
                    .flat_map(|text| self.forget_queries(&requests[text], player)),
            );
            asked.extend(self.find_nearby(index, &sought, since).await?);
            let beside = MemoryScope::Overlapping(&self.audience);
            // `sought` begins with the queries of the fresh facts, in the same order.
            for (fresh, sought) in addition.fresh.iter().zip(&sought) {
                overlaps.extend(self.find_overlaps(index, beside, fresh.id, sought).await?);
            }
            asked.extend(overlaps.iter().map(|overlap: &AudienceOverlap| overlap.there));
        }
        let mut rows = self.read_rows(since, &asked).await?;
        if embeds_facts {
            let lacking = facts_without_vector(&rows.known, since);
            if !lacking.is_empty() {
                return Ok(TimelineRead::Incomplete(MissingVectors::Facts(lacking)));
            }
        }
        if let Some(lacks) = texts_without_vector(rows.extractions.iter().flat_map(|said| &said.forget), requests) {
            return Ok(TimelineRead::Incomplete(MissingVectors::StoredRequests(lacks)));
        }
        let mut said: Vec<SpokenTurn> = rows
            .extractions
            .iter()
            .map(|extraction| to_said_then(extraction, requests))
            .collect();
        let fresh: Vec<KnownFact> = addition.iter().flat_map(|added| &added.facts).map(as_known).collect();
        // Usually this turn is the latest. Otherwise the facts said since are processed again.
        let said_since = rows
            .known
            .iter()
            .filter(|known| !known.foreign && known.fact.valid_at >= since);
        let naming = NameHistory::from_known(rows.known.iter().chain(&fresh));
        let mut since_then: Vec<NeighbourQuery<'_>> = said_since
            .map(|known| {
                let names = naming.aliases_at(known.fact.valid_at);
                let statement = &known.fact.statement;
                NeighbourQuery::for_statement_keys(statement, names.keys_of(&statement.subject), known.vector_as_said())
            })
            .collect();
        since_then.extend(fresh.iter().filter_map(|known| query_by_other_names(known, &naming)));
        if let Some(addition) = addition {
            since_then.extend(self.forget_queries_by_player_names(&addition.extraction, requests, &naming));
        }
        for said in &said {
            let requests = said.forget.iter();
            since_then.extend(requests.flat_map(|request| self.forget_queries(&request.vector, said.player.as_ref())));
        }
        for extraction in &rows.extractions {
            since_then.extend(self.forget_queries_by_player_names(extraction, requests, &naming));
        }
        if !since_then.is_empty() || !said.is_empty() {
            let more = self.find_nearby(index, &since_then, since).await?;
            asked.extend(more);
            for known in rows.known.iter().filter(|known| known.may_be_valid_again(since)) {
                let sought = NeighbourQuery::for_statement(&known.fact.statement, known.vector_as_said());
                let beside = MemoryScope::Overlapping(&self.audience);
                overlaps.extend(self.find_overlaps(index, beside, known.fact.id, &sought).await?);
                if known.fact.authored {
                    let told = MemoryScope::Of(&self.audience);
                    overlaps.extend(self.find_overlaps(index, told, known.fact.id, &sought).await?);
                    // A fact from this turn is not yet in an index.
                    overlaps.extend(fresh.iter().filter_map(|fresh| self.find_overlap(known, fresh)));
                }
            }
            asked.extend(overlaps.iter().map(|overlap| overlap.there));
            asked.extend(said.iter().flat_map(|said| &said.injected));
            asked.extend(said.iter().flat_map(|said| &said.ends).map(|ending| ending.fact));
            rows = self.read_rows(since, &asked).await?;
        }
        let mut known = rows.known;
        if let Some(addition) = addition {
            said.push(to_said_then(&addition.extraction, requests));
            known.extend(fresh);
        }
        Ok(TimelineRead::Complete(Timeline {
            since,
            audience: Some(self.audience.clone()),
            turns: said,
            overlaps: self.retain_overlapping(overlaps, &known, &rows.foreign_facts),
            known,
            other_memories: rows.foreign_facts,
        }))
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
    fn find_overlap(&self, written: &KnownFact, fresh: &KnownFact) -> Option<AudienceOverlap> {
        let calibration = self.services.embedder.info().calibration;
        let key = |known: &KnownFact| party::subject_key(&known.fact.statement.subject);
        let gist = |known: &KnownFact| StatementFeatures::from_statement(&known.fact.statement);
        let cosine = dot_product(written.vector_as_said(), &fresh.vector);
        let is_near = || {
            cosine >= calibration.cosine_at(calibration.related)
                || gist(written).common_matter(&gist(fresh)).is_one_matter
        };
        (key(written) == key(fresh) && is_near()).then_some(AudienceOverlap {
            here: written.fact.id,
            there: fresh.fact.id,
            cosine,
        })
    }

    /// Returns the facts of `memories` that are similar to a fact of this memory.
    async fn find_overlaps(
        &self,
        index: &mut PlanIndex,
        memories: MemoryScope<'_>,
        here: FactId,
        sought: &NeighbourQuery<'_>,
    ) -> StoreResult<Vec<AudienceOverlap>> {
        let found = self
            .find_similar(index, memories, sought, None, timeline::MAX_NEAREST)
            .await?;
        let others = found.iter().filter(|found| found.fact != here);
        let overlaps = others.map(|found| AudienceOverlap {
            here,
            there: found.fact,
            cosine: found.cosine,
        });
        Ok(overlaps.collect())
    }

    /// Removes overlaps whose fact is not in this memory or in an overlapping audience by the ledger. An index may lag.
    fn retain_overlapping(
        &self,
        mut overlaps: Vec<AudienceOverlap>,
        known: &[KnownFact],
        elsewhere: &HashMap<FactId, Fact>,
    ) -> Vec<AudienceOverlap> {
        overlaps.retain(|AudienceOverlap { there, .. }| match elsewhere.get(there) {
            // The premises of a conclusion are compared.
            Some(fact) => {
                fact.world == self.world && !fact.is_conclusion() && fact.audience.overlaps_audience(&self.audience)
            }
            None => known.iter().any(|known| known.fact.id == *there),
        });
        overlaps
    }

    async fn read_rows(&self, since: DateTime<Utc>, asked: &BTreeSet<FactId>) -> StoreResult<TimelineRows> {
        let asked: Vec<FactId> = asked.iter().copied().collect();
        let facts = &self.services.ledger.facts;
        facts
            .load_timeline(self.scope, &self.world, &self.audience, since, &asked)
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
        let anything = player.map(|_| NeighbourQuery {
            subjects: None,
            vector,
            names_topic: false,
        });
        let shared = player.filter(|player| self.audience.private_to.as_ref() != Some(*player));
        let own = shared.map(|player| NeighbourQuery::for_subjects(vec![party::player_key(player)], vector));
        anything.into_iter().chain(own)
    }

    /// Works like `forget_queries`, for the other names of the player and the player's relatives, in a shared memory.
    fn forget_queries_by_player_names<'v>(
        &self,
        said: &Extraction,
        requests: &'v RequestVectors,
        naming: &NameHistory<'_>,
    ) -> Vec<NeighbourQuery<'v>> {
        let player = said.player.as_ref();
        let Some(player) = player.filter(|player| self.audience.private_to.as_ref() != Some(*player)) else {
            return Vec::new();
        };
        let names = naming.aliases_at(said.said_at);
        let is_players = |name: &&str| party::owner_id(name) == Some(player.as_str());
        let groups = names.name_groups().map(Iterator::collect::<Vec<&str>>);
        let of_player = groups.filter(|group| group.iter().any(is_players));
        let keys: Vec<String> = of_player.flatten().map(party::subject_key).collect();
        if keys.is_empty() {
            return Vec::new();
        }
        let vectors = said.forget.iter().map(|text| requests[text].as_slice());
        vectors
            .map(|vector| NeighbourQuery::for_subjects(keys.clone(), vector))
            .collect()
    }

    /// Returns facts of this memory from before `since` that are similar to a query. Later facts are read in any case.
    async fn find_nearby(
        &self,
        index: &mut PlanIndex,
        sought: &[NeighbourQuery<'_>],
        since: DateTime<Utc>,
    ) -> StoreResult<BTreeSet<FactId>> {
        let mut found = BTreeSet::new();
        for sought in sought {
            let of = MemoryScope::Of(&self.audience);
            let limit = if sought.names_topic {
                MAX_TOPIC_NEIGHBOURS
            } else {
                MAX_NEIGHBOURS
            };
            let near = self.find_similar(index, of, sought, Some(since), limit).await?;
            found.extend(near.iter().map(|candidate| candidate.fact));
        }
        Ok(found)
    }

    /// Returns the facts of `memories` that are similar to the query, nearest first.
    pub(super) async fn find_similar(
        &self,
        index: &mut PlanIndex,
        memories: MemoryScope<'_>,
        sought: &NeighbourQuery<'_>,
        before: Option<DateTime<Utc>>,
        limit: usize,
    ) -> StoreResult<Vec<Candidate>> {
        let calibration = self.services.embedder.info().calibration;
        let with = SimilarFactsQuery {
            world: &self.world,
            memories,
            subjects: sought.subjects.as_deref(),
            before,
            embedding: sought.vector,
            min_cosine: if sought.names_topic {
                -1.0
            } else {
                calibration.cosine_at(calibration.related)
            },
            limit,
        };
        if sought.vector.is_empty() {
            return Ok(Vec::new());
        }
        // Thousands of searches may run in a row, and an index in this process never yields.
        tokio::task::yield_now().await;
        self.choose_index(index).await?;
        if matches!(index, PlanIndex::Search) {
            match self.services.index.find_similar(self.scope, with).await {
                // The plan goes on without the index.
                Err(error) if error.is_transient() => *index = PlanIndex::Ledger,
                answer => return answer,
            }
        }
        self.services.ledger.facts.find_similar_facts(self.scope, with).await
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
fn query_by_other_names<'k>(known: &'k KnownFact, naming: &NameHistory<'_>) -> Option<NeighbourQuery<'k>> {
    let keys = naming
        .aliases_at(known.fact.valid_at)
        .keys_of(&known.fact.statement.subject);
    (keys.len() > 1).then(|| NeighbourQuery::for_statement_keys(&known.fact.statement, keys, &known.vector))
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
fn facts_without_vector(known: &[KnownFact], since: DateTime<Utc>) -> Vec<(FactId, String)> {
    let facts = known
        .iter()
        .filter(|known| !known.foreign && known.fact.valid_at >= since && known.vector.is_empty());
    facts.map(|known| (known.fact.id, known.embedded_text())).collect()
}

/// Converts an extraction, with the vectors of its requests. The vectors must be in `requests`.
fn to_said_then(extraction: &Extraction, requests: &RequestVectors) -> SpokenTurn {
    let forget = extraction.forget.iter().map(|text| ForgetRequest {
        terms: keywords::query_terms(text),
        vector: requests[text].clone(),
    });
    SpokenTurn {
        turn: extraction.turn,
        at: extraction.said_at,
        player: extraction.player.clone(),
        forget: forget.collect(),
        ends: extraction.ends.clone(),
        injected: extraction.injected.clone(),
        judge_share: extraction.room,
    }
}

fn as_known(new: &NewFact) -> KnownFact {
    KnownFact {
        fact: as_fact(new),
        vector: new.embedding.clone(),
        written_at: new.valid_at,
        edits: Vec::new(),
        ends: Vec::new(),
        foreign: false,
    }
}

/// Returns the fact as the ledger will have it after the write.
fn as_fact(new: &NewFact) -> Fact {
    Fact {
        id: new.id,
        world: new.world.clone(),
        audience: new.audience.clone(),
        locks: new.locks.clone(),
        replaced_by: Vec::new(),
        view: FoldedFact::from_statement(&new.statement),
        statement: new.statement.clone(),
        valid_at: new.valid_at,
        invalid: None,
        expires_at: new.expires_at,
        cause: new.cause,
        source: new.source,
        derived_from: new.derived_from.clone(),
        pii: new.pii.clone(),
        authored: new.authored,
        corrects: None,
        earlier_wordings: Vec::new(),
        version: 1,
    }
}
