//! Facts in a trace.

use std::collections::HashSet;

use super::kind::Rereading;
use crate::disclosure::{Disclosable, shown_before};
use colloquy_core::ids::FactId;
use colloquy_memory::{
    fact::{Cause, Fact, InvalidReason, Statement},
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

/// Reads a fact of the prompt. A later statement that ended or only reworded the fact does not count. Of a fact that stood
/// by itself in the prompt, the removal and the unsaying are edits.
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
    // A search finds only standing facts. What stands by itself may also be a promise that had ended.
    if traced.fate != CandidateFate::Used
        && let Some(end) = fact.invalid.take()
    {
        let is_edit = match end.reason {
            InvalidReason::Removed | InvalidReason::Ended | InvalidReason::Forgotten | InvalidReason::Unsaid => true,
            InvalidReason::Superseded => is_written_by_person(rereading, end.ended_by).await?,
            _ => false,
        };
        if is_edit {
            changes.push(format!("the fact {id} was edited, forgotten or taken back"));
        }
        // Otherwise, the prompt had the fact as standing.
        fact.invalid = (traced.over || is_edit).then_some(end);
    }
    fact.view.pinned = traced.fate == CandidateFate::Pinned;
    Ok(shown_before(rereading.trace, fact))
}

/// True if a person wrote the fact that replaced another.
async fn is_written_by_person(rereading: &Rereading<'_>, successor: Option<FactId>) -> StoreResult<bool> {
    let Some(successor) = successor else { return Ok(false) };
    let store = &rereading.services.ledger.facts;
    let fact = store.load_fact(rereading.scope, successor).await?;
    Ok(fact.is_some_and(|fact| matches!(fact.cause, Cause::Edit(_))))
}

/// True if a line may end the statement as a promise: an open promise by its maker's word, or by an author's.
pub(super) fn is_promise_to_end(statement: &Statement) -> bool {
    statement.is_promise_of_maker() || statement.speaker == party::AUTHOR && statement.is_open_promise()
}
