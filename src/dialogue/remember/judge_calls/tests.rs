//! The calls about pairs, as tables.

use super::*;
use crate::remember::test_statements::statement;
use colloquy_memory::{reconcile::JudgeVerdict, tokens::TokenCounter};

/// The pair of the sentences `older` and "new".
fn pair(older: &str) -> UnjudgedPair {
    UnjudgedPair {
        older: statement("player", older),
        newer: statement("player", "new"),
        cosine: 0.9,
    }
}

fn pairs(older: &[&str]) -> Vec<UnjudgedPair> {
    older.iter().map(|older| pair(older)).collect()
}

/// A budget for `count` short pairs in a call.
fn budget_for(count: u32) -> JudgeBudget {
    let any = JudgeBudget {
        tokens: 0,
        counter: TokenCounter::Estimated,
    };
    let question = pair("a");
    JudgeBudget {
        tokens: count * any.pair_tokens(&question.older, &question.newer),
        ..any
    }
}

/// Returns the older sentences of each call.
fn sentences(plan: &CallPlan) -> Vec<Vec<&str>> {
    let calls = plan.calls.iter();
    calls
        .map(|list| {
            list.iter()
                .map(|(_, question)| question.older.content.as_str())
                .collect()
        })
        .collect()
}

#[test]
fn pairs_are_asked_once_in_calls_within_budget_and_limit() {
    let none = KnownVerdicts::default();
    let three = ["a", "b", "c"];
    for (older, per_call, max_calls, is_away, expected, excess_calls) in [
        (&three[..], 3, 9, false, vec![vec!["a", "b", "c"]], 0),
        (&three[..], 2, 9, false, vec![vec!["a", "b"], vec!["c"]], 0),
        (&three[..], 0, 9, false, vec![vec!["a"], vec!["b"], vec!["c"]], 0),
        (&three[..], 1, 2, false, vec![vec!["a"], vec!["b"]], 1),
        (&three[..], 1, 0, false, vec![], 3),
        (&three[..], 1, 9, true, vec![], 0),
        (&["a", "b", "a"][..], 9, 9, false, vec![vec!["a", "b"]], 0),
        (&three[..0], 9, 9, false, vec![], 0),
    ] {
        let plan = plan_calls(pairs(older), &none, &budget_for(per_call), max_calls, is_away);
        assert_eq!(sentences(&plan), expected, "{older:?} {per_call} {max_calls} {is_away}");
        assert_eq!(plan.excess_calls, excess_calls);
        assert_eq!(plan.pairs.len(), older.iter().collect::<HashSet<_>>().len());
    }
}

#[test]
fn known_pairs_are_not_asked_and_unanswered_pairs_are_not_asked_again() {
    let mut known = KnownVerdicts::default();
    let hash = |older: &str| pair_hash(older, "new");
    known.add_answers([(hash("a"), JudgeAnswer::Verdict(JudgeVerdict::Same))]);
    let plan = plan_calls(pairs(&["a", "b"]), &known, &budget_for(9), 9, false);
    assert_eq!(sentences(&plan), [["b"]]);
    assert_eq!(plan.pairs, HashSet::from([hash("b")]));
    known.mark_unanswered(HashSet::from([hash("a"), hash("b")]));
    let answer_of = |older: &str| known.verdict_of(&statement("player", older), &statement("player", "new"));
    assert_eq!(
        answer_of("a"),
        JudgeAnswer::Verdict(JudgeVerdict::Same),
        "the verdict stays"
    );
    assert_eq!(answer_of("b"), JudgeAnswer::NoAnswer);
    assert_eq!(answer_of("c"), JudgeAnswer::NotAsked);
    assert!(
        plan_calls(pairs(&["a", "b"]), &known, &budget_for(9), 9, false)
            .calls
            .is_empty()
    );
}

#[test]
fn calls_start_side_by_side_until_failures_exceed_answers_by_four() {
    for (running, answered, failed, expected) in [
        (0, 0, 0, true),
        (3, 0, 0, true),
        (4, 0, 0, false),
        (0, 0, 3, true),
        (0, 0, 4, false),
        (0, 1, 4, true),
        (4, 1, 0, false),
    ] {
        assert_eq!(
            may_start_call(running, answered, failed),
            expected,
            "{running} {answered} {failed}"
        );
    }
}
