//! What a timeline is read for, and the queries for similar facts. Pure functions: `timeline_reading` reads the rows.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};

use super::memory_update::TurnAddition;
use colloquy_core::ids::{FactId, PlayerId};
use colloquy_memory::{
    disclosure::audience::Audience,
    fact::{Fact, FoldedFact, NewFact, Statement},
    keywords, party,
    reconcile::StatementFeatures,
    timeline::{ForgetRequest, KnownFact, NameHistory, SpokenTurn},
};
use colloquy_ports::ledger::facts::{Extraction, TimelineRows};

/// A query for facts that are similar to a statement or request.
#[derive(Debug, PartialEq)]
pub(super) struct NeighbourQuery<'a> {
    /// The keys of the subjects. `None`: any subject.
    pub subjects: Option<Vec<String>>,
    pub vector: &'a [f32],
    /// True if the statement names a topic or promises something. Facts of one matter are compared at any distance.
    pub names_topic: bool,
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

/// Texts without a vector, in a plan.
#[derive(Debug, PartialEq)]
pub(super) enum MissingVectors {
    /// Requests to forget of the turn that is added.
    NewRequests(Vec<String>),
    /// Requests to forget of earlier extractions.
    StoredRequests(Vec<String>),
    /// Facts that are to be compared, and that were stored while the embedder was away.
    Facts(Vec<(FactId, String)>),
}

/// What a timeline is read for: the facts and requests of a memory since `since`, and of a turn that is added.
#[derive(Clone, Copy)]
pub(super) struct TimelineInput<'a> {
    pub audience: &'a Audience,
    pub since: DateTime<Utc>,
    pub addition: Option<&'a TurnAddition>,
    pub requests: &'a RequestVectors,
    /// True if stored facts since `since` need vectors.
    pub embeds_facts: bool,
}

impl<'a> TimelineInput<'a> {
    /// Returns what the turn that is added lacks before similar facts can be searched.
    pub(super) fn missing_in_addition(&self) -> Option<MissingVectors> {
        let forget = &self.addition?.extraction.forget;
        self.texts_without_vector(forget).map(MissingVectors::NewRequests)
    }

    /// Returns what the stored facts and requests lack before they can be compared.
    pub(super) fn missing_in_rows(&self, rows: &TimelineRows) -> Option<MissingVectors> {
        let lacking = rows.known_facts.iter().filter(|known| {
            self.embeds_facts && !known.foreign && known.fact.valid_at >= self.since && known.vector.is_empty()
        });
        let facts: Vec<_> = lacking.map(|known| (known.fact.id, known.embedded_text())).collect();
        if !facts.is_empty() {
            return Some(MissingVectors::Facts(facts));
        }
        let forget = rows.extractions.iter().flat_map(|extraction| &extraction.forget);
        self.texts_without_vector(forget).map(MissingVectors::StoredRequests)
    }

    /// Returns the `texts` without a vector, without repetition. `None`: all texts have a vector.
    fn texts_without_vector<'t>(&self, texts: impl IntoIterator<Item = &'t String>) -> Option<Vec<String>> {
        let texts = texts.into_iter();
        let lacking: BTreeSet<&String> = texts.filter(|text| !self.requests.contains_key(*text)).collect();
        (!lacking.is_empty()).then(|| lacking.into_iter().cloned().collect())
    }

    /// Returns the facts of the turn that is added, as the ledger will have them.
    pub(super) fn new_facts(&self) -> Vec<KnownFact> {
        let added_facts = self.addition.iter().flat_map(|addition| &addition.facts);
        added_facts.map(as_known).collect()
    }

    /// Returns the queries for the turn that is added: those of its fresh facts, in the same order, and those of its
    /// requests. The requests must have vectors.
    pub(super) fn addition_queries(&self) -> Vec<NeighbourQuery<'a>> {
        let Some(addition) = self.addition else {
            return Vec::new();
        };
        let requests = self.requests;
        let extraction = &addition.extraction;
        let fresh_facts = addition.fresh_facts.iter();
        let mut queries: Vec<NeighbourQuery<'_>> = fresh_facts
            .map(|fresh| NeighbourQuery::for_statement(&fresh.statement, &fresh.embedding))
            .collect();
        let vectors = extraction.forget.iter().map(|text| requests[text].as_slice());
        queries.extend(vectors.flat_map(|vector| self.forget_queries(vector, extraction.player.as_ref())));
        queries
    }

    /// Returns the queries for what was said since `since`, with the names that people have by now.
    pub(super) fn later_queries<'q>(
        &self,
        rows: &'q TimelineRows,
        new_facts: &'q [KnownFact],
        turns: &'q [SpokenTurn],
    ) -> Vec<NeighbourQuery<'q>>
    where
        'a: 'q,
    {
        let later_facts = rows
            .known_facts
            .iter()
            .filter(|known| !known.foreign && known.fact.valid_at >= self.since);
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
        if let Some(addition) = self.addition {
            queries.extend(self.forget_queries_by_player_names(&addition.extraction, &naming));
        }
        for turn in turns {
            let vectors = turn.forget.iter().map(|request| request.vector.as_slice());
            queries.extend(vectors.flat_map(|vector| self.forget_queries(vector, turn.player.as_ref())));
        }
        for extraction in &rows.extractions {
            queries.extend(self.forget_queries_by_player_names(extraction, &naming));
        }
        queries
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
    fn forget_queries_by_player_names(
        &self,
        extraction: &Extraction,
        naming: &NameHistory<'_>,
    ) -> Vec<NeighbourQuery<'a>> {
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
        let requests = self.requests;
        let vectors = extraction.forget.iter().map(|text| requests[text].as_slice());
        vectors
            .map(|vector| NeighbourQuery::for_subjects(keys.clone(), vector))
            .collect()
    }

    /// Converts an extraction, with the vectors of its requests. The requests must have vectors.
    pub(super) fn to_spoken_turn(self, extraction: &Extraction) -> SpokenTurn {
        let forget = extraction.forget.iter().map(|text| ForgetRequest {
            terms: keywords::query_terms(text),
            vector: self.requests[text].clone(),
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
}

/// Returns a query by the subject's other names in this memory. `None`: the subject has no other name.
fn query_by_other_names<'k>(known_fact: &'k KnownFact, naming: &NameHistory<'_>) -> Option<NeighbourQuery<'k>> {
    let keys = naming
        .aliases_at(known_fact.fact.valid_at)
        .keys_of(&known_fact.fact.statement.subject);
    (keys.len() > 1).then(|| NeighbourQuery::for_statement_keys(&known_fact.fact.statement, keys, &known_fact.vector))
}

pub(super) fn as_known(new_fact: &NewFact) -> KnownFact {
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

#[cfg(test)]
mod tests;
