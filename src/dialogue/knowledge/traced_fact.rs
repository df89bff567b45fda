//! Facts in a trace.

use std::collections::HashSet;

use super::kind::Rereading;
use crate::disclosure::{Disclosable, shown_before};
use colloquy_core::ids::FactId;
use colloquy_memory::{
    fact::{Fact, Statement},
    party,
    trace::{CandidateFate, CandidateTrace, TurnTrace},
};
use colloquy_ports::{StoreResult, ledger::facts::FactHistoryEntry};

/// Returns the facts in the prompt with this trace.
pub(super) fn shown_facts(trace: &TurnTrace) -> HashSet<FactId> {
    let candidates = trace.candidates.iter();
    let shown_candidates = candidates.filter(|traced| traced.fate.is_in_prompt());
    shown_candidates.map(|traced| traced.fact).collect()
}

/// Reads a fact of the prompt. A later statement that only reworded the fact does not count; an edit by a person does.
pub(super) async fn reread_fact(
    rereading: &Rereading<'_>,
    traced: &CandidateTrace,
    changes: &mut Vec<String>,
) -> StoreResult<Option<Disclosable<Fact>>> {
    let store = &rereading.services.ledger.facts;
    let id = traced.fact;
    let Some(mut fact) = store.load_fact(rereading.scope, id).await? else {
        changes.push(format!("the fact {id} is gone"));
        return Ok(None);
    };
    if fact.view.content != traced.content {
        let history = store.load_history(rereading.scope, id).await?;
        let started_at = rereading.started_at;
        let is_later =
            |entry: &FactHistoryEntry| matches!(entry, FactHistoryEntry::Edited { at, .. } if *at > started_at);
        if history.iter().any(is_later) {
            changes.push(format!("the fact {id} was edited"));
        } else {
            fact.view.content.clone_from(&traced.content);
        }
    }
    fact.view.pinned = traced.fate == CandidateFate::Pinned;
    Ok(shown_before(rereading.trace, fact))
}

/// True if a line may end the statement as a promise: an open promise by its maker's word, or by an author's.
pub(super) fn is_promise_to_end(statement: &Statement) -> bool {
    statement.is_promise_of_maker() || statement.speaker == party::AUTHOR && statement.is_open_promise()
}
