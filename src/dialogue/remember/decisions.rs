//! The decisions of a write to memories: pure functions of small views. `reconciliation`, `timeline_reading` and
//! `turn_facts` carry a decision out; no decision needs a store, a model or a clock.

use super::timeline_input::{PlanIndex, RequestVectors};
use colloquy_memory::{fact::NewFact, timeline::JudgeBudgetShare};
use colloquy_ports::{
    ledger::facts::{Extraction, ReconcileOutcome},
    vectors::IndexState,
};

/// The maximum number of plans that other writers may overtake before the job is postponed.
pub(super) const MAX_PLANS: usize = 8;

/// A resolved plan, as far as the next step depends on the plan.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, read only by the function below"
)]
pub(super) struct PlanView {
    /// True if pairs of statements still lack a verdict.
    pub has_unjudged: bool,
    /// True if stored ends or replacements have to change.
    pub has_changes: bool,
    /// True if the plan reconciles a marked memory, false for the job of a turn.
    pub is_mark: bool,
    /// True after the part that needs no judge was written.
    pub part_is_written: bool,
    /// True if the judge is away and its caller retries later.
    pub judge_is_away: bool,
}

/// The step after a plan was resolved with the known verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanStep {
    /// Ask the judge about the pairs, without a lock. The plan stays.
    AskJudge,
    /// Write the part that needs no judge, once. The part becomes visible at once, because the judge may take long for
    /// the rest.
    WritePart,
    /// Write the whole plan.
    Write,
    /// Write the whole plan. The mark of the memory stays, for the pairs that the judge did not see.
    WriteAndKeepMark,
}

/// Decides the step after a plan was resolved.
pub(super) fn next_step(view: PlanView) -> PlanStep {
    if !view.has_unjudged {
        if view.judge_is_away {
            PlanStep::WriteAndKeepMark
        } else {
            PlanStep::Write
        }
    } else if view.is_mark && view.has_changes && !view.part_is_written {
        PlanStep::WritePart
    } else {
        PlanStep::AskJudge
    }
}

/// What follows a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterWrite {
    /// All is written.
    Finish,
    /// Read the memory again, and plan again.
    PlanAgain,
    /// The job or the mark no longer allows a write.
    Stop,
    /// Too many plans were overtaken by other writers.
    GiveUp,
}

/// Decides what follows a write. `overtaken_plans`: the number of plans that other writers have overtaken, with this
/// plan.
pub(super) fn after_write(step: PlanStep, outcome: ReconcileOutcome, overtaken_plans: usize) -> AfterWrite {
    match outcome {
        ReconcileOutcome::Committed if step == PlanStep::WritePart => AfterWrite::PlanAgain,
        ReconcileOutcome::Committed => AfterWrite::Finish,
        ReconcileOutcome::Fenced => AfterWrite::Stop,
        ReconcileOutcome::MemoryMoved if overtaken_plans >= MAX_PLANS => AfterWrite::GiveUp,
        ReconcileOutcome::MemoryMoved => AfterWrite::PlanAgain,
    }
}

/// True if a new fact or a request to forget has no vector, because the embedder was away.
pub(super) fn lacks_vectors(facts: &[NewFact], extractions: &[Extraction], requests: &RequestVectors) -> bool {
    let mut requested = extractions.iter().flat_map(|extraction| &extraction.forget);
    facts.iter().any(|fact| fact.embedding.is_empty())
        || requested.any(|text| requests.get(text).is_some_and(Vec::is_empty))
}

/// Chooses where a plan looks for similar facts. `None`: the index first needs the writes before the memory position
/// was read. `is_complete`: the index had no backlog when the position was read.
pub(super) fn choose_index(is_complete: bool, state: IndexState, has_backlog: bool) -> Option<PlanIndex> {
    if state != IndexState::Ready || has_backlog {
        Some(PlanIndex::Ledger)
    } else {
        is_complete.then_some(PlanIndex::Search)
    }
}

/// What the job of a turn writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnWrite {
    /// The record of a turn that changes no memory. The write needs no plan.
    RecordOnly,
    /// The memory of the player's own facts.
    OwnMemory,
    /// That memory, and the memory of what every player may hear.
    BothMemories,
}

impl TurnWrite {
    /// The share of the judge's budget for the memory of the player's own facts.
    pub(super) const fn judge_share(self) -> JudgeBudgetShare {
        match self {
            Self::RecordOnly | Self::OwnMemory => JudgeBudgetShare::WHOLE,
            Self::BothMemories => JudgeBudgetShare::GREATER,
        }
    }
}

/// Decides what the job of a turn writes.
pub(super) fn decide_turn_write(has_private_facts: bool, has_shared_facts: bool, may_end_facts: bool) -> TurnWrite {
    if has_shared_facts {
        TurnWrite::BothMemories
    } else if has_private_facts || may_end_facts {
        TurnWrite::OwnMemory
    } else {
        TurnWrite::RecordOnly
    }
}

#[cfg(test)]
mod tests;
