//! The facts of the prompt, and the statements that its texts were redacted by.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::Reader;
use crate::recall::{RecallHit, TopicRelevance, body_of};
use colloquy_core::ids::FactId;
use colloquy_memory::{
    fact::{EffectiveInvalidation, Fact, InvalidReason},
    scoring::RecallWeights,
    trace::{CandidateFate, CandidateTrace},
};
use colloquy_ports::{
    StoreResult,
    ledger::facts::{FactHistoryEntry, RemovedStatement, add_requests, list_removed_statements},
};

/// The number of rows read in parallel.
const CONCURRENT_READS: usize = 8;

impl Reader<'_> {
    /// Reads the statements that had been removed from memory, or corrected, latest first.
    pub(super) async fn read_removed_statements(&self) -> StoreResult<Vec<RemovedStatement>> {
        let mut facts = self.load_facts(&self.sources.redacted).await?;
        let mut successors: HashMap<FactId, Fact> = HashMap::new();
        let end_of = |fact: &Fact| fact.invalid.as_ref().and_then(|invalidation| invalidation.ended_by);
        let mut wanted_ids: Vec<FactId> = facts.iter().filter_map(end_of).collect();
        while !wanted_ids.is_empty() {
            let loaded = self.load_facts(&wanted_ids).await?;
            wanted_ids = loaded.iter().filter_map(end_of).collect();
            successors.extend(loaded.into_iter().map(|fact| (fact.id, fact)));
            wanted_ids.retain(|id| !successors.contains_key(id));
        }
        for fact in &mut facts {
            // A fact that was restored since had been removed before the turn.
            if fact.is_valid_at(self.started_at) && fact.earlier_wordings.is_empty() {
                fact.invalid = Some(EffectiveInvalidation {
                    ended_at: self.started_at,
                    reason: InvalidReason::Removed,
                    ended_by: None,
                });
            }
        }
        let mut removed = list_removed_statements(&facts, &successors, self.started_at);
        let store = &self.services.ledger.facts;
        let requests = store.list_requests_of_facts(self.scope, &self.sources.redacted).await?;
        add_requests(&mut removed, &requests);
        Ok(removed)
    }

    /// Returns facts in the order of their ids in `ids`. Unknown ids are left out.
    async fn load_facts(&self, ids: &[FactId]) -> StoreResult<Vec<Fact>> {
        let store = &self.services.ledger.facts;
        let reads = ids.iter().map(|id| store.load_fact(self.scope, *id));
        let facts = stream::iter(reads).buffered(CONCURRENT_READS);
        facts.try_filter_map(|fact| async move { Ok(fact) }).try_collect().await
    }

    /// Reads a fact of the prompt. A later statement that only reworded the fact does not count; an edit by a person
    /// does.
    async fn read_fact(&self, traced: &CandidateTrace, reasons: &mut Vec<String>) -> StoreResult<Option<Fact>> {
        let store = &self.services.ledger.facts;
        let id = traced.fact;
        let Some(mut fact) = store.load_fact(self.scope, id).await? else {
            reasons.push(format!("the fact {id} is gone"));
            return Ok(None);
        };
        if fact.view.content != traced.content {
            let history = store.load_history(self.scope, id).await?;
            let is_later = |entry: &FactHistoryEntry| matches!(entry, FactHistoryEntry::Edited { at, .. } if *at > self.started_at);
            if history.iter().any(is_later) {
                reasons.push(format!("the fact {id} was edited"));
            } else {
                fact.view.content.clone_from(&traced.content);
            }
        }
        fact.view.pinned = traced.fate == CandidateFate::Pinned;
        Ok(Some(fact))
    }

    /// Reads the facts of the prompt: the standing ones, most important first, and the found ones, best first.
    pub(super) async fn read_facts(&self, reasons: &mut Vec<String>) -> StoreResult<(Vec<Fact>, Vec<RecallHit>)> {
        let calibration = self.services.embedder.info().calibration;
        let mut standing = Vec::new();
        let mut hits = Vec::new();
        for traced in self.trace.candidates.iter().filter(|traced| traced.fate.is_in_prompt()) {
            let Some(fact) = self.read_fact(traced, reasons).await? else {
                continue;
            };
            if traced.fate != CandidateFate::Used {
                standing.push((traced.score.importance, fact));
                continue;
            }
            hits.push(RecallHit {
                body: Arc::new(body_of(&fact, [].into())),
                score: traced.score,
                topic: TopicRelevance::from_score(&calibration, &RecallWeights::FOUR_FACTOR, &traced.score, None),
            });
        }
        standing.sort_by(|(importance, fact), (other_importance, other)| {
            let by_time = (Reverse(fact.valid_at), fact.id).cmp(&(Reverse(other.valid_at), other.id));
            other_importance.total_cmp(importance).then(by_time)
        });
        Ok((standing.into_iter().map(|(_, fact)| fact).collect(), hits))
    }
}
