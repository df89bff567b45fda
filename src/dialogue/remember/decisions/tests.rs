//! Each decision about a write, as a table.

use super::*;
use crate::remember::test_statements::{extraction, new_fact};

/// The plan of a turn's job, with all verdicts.
const JUDGED: PlanView = PlanView {
    has_unjudged: false,
    has_changes: true,
    is_mark: false,
    part_is_written: false,
    judge_is_away: false,
};
const UNJUDGED: PlanView = PlanView {
    has_unjudged: true,
    ..JUDGED
};
const MARKED: PlanView = PlanView {
    is_mark: true,
    ..UNJUDGED
};

#[test]
fn judged_plan_is_written_and_an_outage_keeps_the_mark() {
    let away = PlanView {
        judge_is_away: true,
        ..JUDGED
    };
    for (view, expected) in [(JUDGED, PlanStep::Write), (away, PlanStep::WriteAndKeepMark)] {
        for (is_mark, has_changes, part_is_written) in [(true, true, true), (true, false, false), (false, true, false)]
        {
            let view = PlanView {
                has_changes,
                is_mark,
                part_is_written,
                ..view
            };
            assert_eq!(next_step(view), expected, "{view:?}");
        }
    }
}

#[test]
fn part_without_a_judge_is_written_once_and_only_for_a_mark_with_changes() {
    let unchanged = PlanView {
        has_changes: false,
        ..MARKED
    };
    let written = PlanView {
        part_is_written: true,
        ..MARKED
    };
    for (view, expected) in [
        (UNJUDGED, PlanStep::AskJudge),
        (MARKED, PlanStep::WritePart),
        (unchanged, PlanStep::AskJudge),
        (written, PlanStep::AskJudge),
    ] {
        assert_eq!(next_step(view), expected, "{view:?}");
    }
}

#[test]
fn only_a_whole_write_finishes_and_a_fence_stops() {
    use ReconcileOutcome::{Committed, Fenced, MemoryMoved};
    for (step, outcome, overtaken, expected) in [
        (PlanStep::Write, Committed, 0, AfterWrite::Finish),
        (PlanStep::WriteAndKeepMark, Committed, MAX_PLANS - 1, AfterWrite::Finish),
        (PlanStep::WritePart, Committed, 0, AfterWrite::PlanAgain),
        (PlanStep::Write, Fenced, 0, AfterWrite::Stop),
        (PlanStep::WritePart, Fenced, MAX_PLANS, AfterWrite::Stop),
        (PlanStep::Write, MemoryMoved, 1, AfterWrite::PlanAgain),
        (PlanStep::WritePart, MemoryMoved, MAX_PLANS - 1, AfterWrite::PlanAgain),
        (PlanStep::Write, MemoryMoved, MAX_PLANS, AfterWrite::GiveUp),
    ] {
        assert_eq!(after_write(step, outcome, overtaken), expected, "{step:?} {outcome:?}");
    }
}

#[test]
fn index_is_used_when_it_is_ready_and_has_every_earlier_write() {
    use IndexState::{Away, Filling, Ready};
    for (is_complete, state, has_backlog, expected) in [
        (true, Ready, false, Some("search")),
        (false, Ready, false, None),
        (true, Ready, true, Some("ledger")),
        (true, Filling, false, Some("ledger")),
        (false, Away, false, Some("ledger")),
    ] {
        let chosen = choose_index(is_complete, state, has_backlog).map(|index| match index {
            PlanIndex::Unused { .. } => "unused",
            PlanIndex::Search => "search",
            PlanIndex::Ledger => "ledger",
        });
        assert_eq!(chosen, expected, "{state:?} {is_complete} {has_backlog}");
    }
}

#[test]
fn turn_without_facts_and_endings_writes_only_its_record() {
    for (has_private, has_shared, may_end, expected) in [
        (false, false, false, TurnWrite::RecordOnly),
        (false, false, true, TurnWrite::OwnMemory),
        (true, false, false, TurnWrite::OwnMemory),
        (false, true, false, TurnWrite::BothMemories),
        (true, true, true, TurnWrite::BothMemories),
    ] {
        let write = decide_turn_write(has_private, has_shared, may_end);
        assert_eq!(write, expected);
        let is_shared = write.judge_share() == JudgeBudgetShare::GREATER;
        assert_eq!(is_shared, has_shared);
    }
}

#[test]
fn result_lacks_vectors_of_new_facts_and_of_requests_that_were_given_none() {
    for (fact_vector, request_vector, expected) in [
        (vec![1.0], Some(vec![1.0]), false),
        (vec![], Some(vec![1.0]), true),
        (vec![1.0], Some(vec![]), true),
        (vec![1.0], None, false),
    ] {
        let facts = [new_fact(1, 10, "Anna", &fact_vector)];
        let extractions = [extraction(10, &["forget it"])];
        let requests = request_vector
            .iter()
            .map(|vector| ("forget it".to_owned(), vector.clone()));
        let lacks = lacks_vectors(&facts, &extractions, &requests.collect());
        assert_eq!(lacks, expected, "{fact_vector:?} {request_vector:?}");
    }
}
