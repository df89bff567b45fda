//! The statements that the texts of the prompt were redacted by.

use std::collections::HashMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::Reader;
use colloquy_core::ids::FactId;
use colloquy_memory::fact::{EffectiveInvalidation, Fact, InvalidReason};
use colloquy_ports::{
    StoreResult,
    ledger::facts::{RemovedStatement, add_requests, list_removed_statements},
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
}
