//! Which pairs a judge is asked about, in which calls. Pure functions: `judge` makes the calls.

use std::collections::{HashMap, HashSet};

use colloquy_memory::{
    fact::Statement,
    reconcile::pair_hash,
    timeline::{JudgeAnswer, JudgeBudget, UnjudgedPair},
};

/// The number of calls at once. The tenant's model routes limit the total.
const CONCURRENT_JUDGE_CALLS: usize = 4;

/// The hash of the contents of a pair.
pub(super) type PairHash = [u8; 32];

/// A pair with its hash.
pub(super) type PairQuestion = (PairHash, UnjudgedPair);

/// The known verdicts, by the hash of a pair's contents.
#[derive(Default)]
pub(super) struct KnownVerdicts(HashMap<PairHash, JudgeAnswer>);

impl KnownVerdicts {
    /// Returns the known verdict of a pair, without a call.
    pub(super) fn verdict_of(&self, older: &Statement, newer: &Statement) -> JudgeAnswer {
        let pair = pair_hash(&older.content, &newer.content);
        self.0.get(&pair).copied().unwrap_or(JudgeAnswer::NotAsked)
    }

    pub(super) fn add_answers(&mut self, answers: impl IntoIterator<Item = (PairHash, JudgeAnswer)>) {
        self.0.extend(answers);
    }

    /// Records that the judge gave no answer about those of the pairs that have none.
    pub(super) fn mark_unanswered(&mut self, pairs: HashSet<PairHash>) {
        for pair in pairs {
            self.0.entry(pair).or_insert(JudgeAnswer::NoAnswer);
        }
    }

    /// Returns the pairs without a known verdict, with repetitions.
    pub(super) fn unknown_pairs(&self, pairs: Vec<UnjudgedPair>) -> impl Iterator<Item = PairQuestion> {
        let hashed = pairs
            .into_iter()
            .map(|question| (pair_hash(&question.older.content, &question.newer.content), question));
        hashed.filter(|(pair, _)| !self.0.contains_key(pair))
    }
}

/// The calls about some pairs.
pub(super) struct CallPlan {
    /// All pairs without a verdict, in a call or not.
    pub pairs: HashSet<PairHash>,
    /// The pairs of each call.
    pub calls: Vec<Vec<PairQuestion>>,
    /// The number of calls that the limit left out.
    pub excess_calls: usize,
}

/// Plans at most `max_calls` calls about the pairs without a verdict, each pair once. A judge that is away gets no
/// calls.
pub(super) fn plan_calls(
    pairs: Vec<UnjudgedPair>,
    known_verdicts: &KnownVerdicts,
    budget: &JudgeBudget,
    max_calls: usize,
    is_away: bool,
) -> CallPlan {
    let mut unknown_pairs = HashSet::new();
    let questions: Vec<PairQuestion> = known_verdicts
        .unknown_pairs(pairs)
        .filter(|(pair, _)| unknown_pairs.insert(*pair))
        .collect();
    let mut calls = if is_away {
        Vec::new()
    } else {
        batch_questions(questions, budget)
    };
    let excess_calls = calls.split_off(calls.len().min(max_calls));
    debug_assert!(calls.len() <= max_calls, "the judge gets no more calls than allowed");
    debug_assert!(
        calls.iter().map(Vec::len).sum::<usize>() <= unknown_pairs.len(),
        "a pair is in one call at most"
    );
    CallPlan {
        pairs: unknown_pairs,
        calls,
        excess_calls: excess_calls.len(),
    }
}

/// Groups pairs into lists that fit into one call each, in the same order.
fn batch_questions(questions: Vec<PairQuestion>, budget: &JudgeBudget) -> Vec<Vec<PairQuestion>> {
    let mut lists: Vec<Vec<PairQuestion>> = Vec::new();
    let mut remaining_tokens = 0;
    for question in questions {
        let tokens = budget.pair_tokens(&question.1.older, &question.1.newer);
        match lists.last_mut() {
            Some(list) if tokens <= remaining_tokens => {
                remaining_tokens -= tokens;
                list.push(question);
            }
            _ => {
                remaining_tokens = budget.tokens.saturating_sub(tokens);
                lists.push(vec![question]);
            }
        }
    }
    lists
}

/// True if another call may start. A failed list may itself be the cause, so the other lists are still asked, until the
/// failures exceed the answers by as many calls as run at once.
pub(super) fn may_start_call(running_calls: usize, answered_calls: usize, failed_calls: usize) -> bool {
    running_calls < CONCURRENT_JUDGE_CALLS && failed_calls < answered_calls + CONCURRENT_JUDGE_CALLS
}

#[cfg(test)]
mod tests;
