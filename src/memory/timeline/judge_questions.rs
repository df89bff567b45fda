//! The pairs of a turn that a judge is asked about: the most significant pairs within the budget.
//!
//! The choice depends on what stands at the time of the turn, not on earlier verdicts. A pair beyond the budget is
//! therefore left out in every replay, whenever a job runs.

use std::collections::HashSet;

use super::{JudgeAnswer, TimelineReplay, nearest::NearFact};
use crate::{
    fact::Statement,
    reconcile::{Relation, StatementTopic, verdict_by_rules},
    tokens::TokenCounter,
};

/// Tokens of a pair besides its two statements: its number and tags, and its entry in the answer.
const PAIR_TOKENS: u32 = 28;

/// The judge's budget for the facts of one turn.
#[derive(Debug, Clone)]
pub struct JudgeBudget {
    /// Tokens of all pairs and of the answer; 0: no judge is asked.
    pub tokens: u32,
    pub counter: TokenCounter,
}

/// A memory's share of the budget of one turn. A turn with facts for two memories costs no more questions than a turn
/// with one. The share is stored with the turn, so that every replay asks the same questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JudgeBudgetShare {
    /// 0 to 4.
    quarters: u8,
}

impl JudgeBudgetShare {
    pub const WHOLE: Self = Self { quarters: 4 };
    /// The share for the NPC's public statements about itself, beside the player's private facts.
    pub const LESSER: Self = Self { quarters: 1 };
    /// The share for the player's private facts, beside the NPC's public statements about itself.
    pub const GREATER: Self = Self { quarters: 3 };

    /// Reads the stored form. `None`: the number is above 4.
    #[must_use]
    pub fn from_quarters(quarters: u32) -> Option<Self> {
        let quarters = u8::try_from(quarters).ok().filter(|quarters| *quarters <= 4)?;
        Some(Self { quarters })
    }
    #[must_use]
    pub const fn quarters(self) -> u8 {
        self.quarters
    }
    /// This share of `tokens`, rounded down.
    pub(super) const fn share_of(self, tokens: u32) -> u32 {
        debug_assert!(self.quarters <= 4, "a share has at most four quarters");
        tokens / 4 * self.quarters as u32 + tokens % 4 * self.quarters as u32 / 4
    }
}

#[cfg(test)]
impl JudgeBudget {
    /// A budget for all pairs.
    pub(super) const UNLIMITED: Self = Self {
        tokens: u32::MAX,
        counter: TokenCounter::Estimated,
    };
}

impl JudgeBudget {
    /// Tokens of a pair, including its entry in the answer.
    #[must_use]
    pub fn pair_tokens(&self, older: &Statement, newer: &Statement) -> u32 {
        let statement = |statement: &Statement| self.counter.count_tokens(&statement.content);
        statement(older)
            .saturating_add(statement(newer))
            .saturating_add(PAIR_TOKENS)
    }
}

/// The rank of a pair: topics with one value at a time and like promises first, then opposites about one thing, then nearness.
type QuestionRank = (u8, f32);

impl<J: FnMut(&Statement, &Statement) -> JudgeAnswer> TimelineReplay<'_, J> {
    /// Chooses the pairs of new and near facts for a judge, if a verdict is needed. `remaining_tokens`: tokens of all
    /// pairs.
    pub(super) fn choose_questions(
        &mut self,
        near_facts: &[(usize, Vec<NearFact>)],
        mut remaining_tokens: u32,
    ) -> HashSet<(usize, usize)> {
        debug_assert!(
            near_facts.iter().all(|(new, _)| !self.facts[*new].entered),
            "a turn is replayed once"
        );
        let mut pairs: Vec<(QuestionRank, usize, usize)> = Vec::new();
        for (new, candidates) in near_facts {
            for near in candidates.iter().filter(|near| near.relation == Relation::Judge) {
                if self.rule_verdict(near.old, *new).is_none() {
                    pairs.push((self.question_rank(*new, near), *new, near.old));
                }
            }
        }
        // Places are the order of the statements, which does not depend on the start of a timeline.
        pairs.sort_by(|(a, a_new, a_old), (b, b_new, b_old)| {
            let telling = a.0.cmp(&b.0).then(b.1.total_cmp(&a.1));
            telling.then(a_new.cmp(b_new)).then(b_old.cmp(a_old))
        });
        let mut questions = HashSet::new();
        for (_, new, old) in pairs {
            if remaining_tokens < PAIR_TOKENS {
                break;
            }
            let statement = |fact: usize| &self.facts[fact].known_fact.fact.statement;
            // A pair that is too long leaves room for the next pair.
            if let Some(rest) = remaining_tokens.checked_sub(self.room.pair_tokens(statement(old), statement(new))) {
                remaining_tokens = rest;
                questions.insert((old, new));
            }
        }
        self.remaining_tokens = remaining_tokens;
        questions
    }

    /// The verdict of the rules about a pair for a judge.
    pub(super) fn rule_verdict(&self, old: usize, new: usize) -> Option<crate::reconcile::JudgeVerdict> {
        let statement = |fact: usize| &self.facts[fact].known_fact.fact.statement;
        let features = |fact: usize| self.prepared.features_of(fact);
        verdict_by_rules(statement(new), features(new), statement(old), features(old))
    }

    fn question_rank(&self, new: usize, near: &NearFact) -> QuestionRank {
        let newer = self.prepared.features_of(new);
        let older = self.prepared.features_of(near.old);
        let polarity = |fact: usize| self.facts[fact].known_fact.fact.statement.polarity;
        let topic = newer.common_matter(older).topic;
        let class = if topic.is_some_and(|topic| topic != StatementTopic::Possession) || newer.promises_like(older) {
            0
        } else {
            u8::from(polarity(new) == polarity(near.old) || !newer.shares_object(older)) + 1
        };
        (class, near.cosine)
    }
}
