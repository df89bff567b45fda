//! Which pairs of a turn a judge may be asked about: the most telling, as many as there is room for.
//!
//! They are chosen from what stands when the turn is said, before anybody looks at what has been judged already. So a pair
//! for which there is no room is left alone in every replay, whenever a job runs.

use std::collections::HashSet;

use super::{JudgeAnswer, TimelineReplay, nearest::NearFact};
use crate::memory::{
    fact::Statement,
    reconcile::{Relation, StatementTopic, verdict_by_rules},
    tokens::TokenCounter,
};

/// Tokens that a pair needs beside its two statements: its number and tags, and its entry in the answer.
const PAIR_TOKENS: u32 = 28;

/// How much a judge may be asked about what one turn taught.
#[derive(Debug, Clone)]
pub struct JudgeBudget {
    /// Tokens of all pairs and the answer about them; 0: no judge is asked.
    pub tokens: u32,
    pub counter: TokenCounter,
}

/// A memory's share of the room of one turn: a turn that teaches two memories asks no more about both than another about
/// its one. Kept with the turn, so that every replay asks the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JudgeBudgetShare {
    /// 0 to 4.
    quarters: u8,
}

impl JudgeBudgetShare {
    pub const WHOLE: Self = Self { quarters: 4 };
    /// What the NPC tells everybody of itself, beside what is private to the player.
    pub const LESSER: Self = Self { quarters: 1 };
    /// What is private to the player, beside what the NPC tells everybody of itself.
    pub const GREATER: Self = Self { quarters: 3 };

    /// As stores keep it. `None`: it is no number of quarters.
    #[must_use]
    pub fn from_quarters(quarters: u32) -> Option<Self> {
        let quarters = u8::try_from(quarters).ok().filter(|quarters| *quarters <= 4)?;
        Some(Self { quarters })
    }
    #[must_use]
    pub const fn quarters(self) -> u8 {
        self.quarters
    }
    /// This share of so many tokens, rounded down.
    pub(super) const fn share_of(self, tokens: u32) -> u32 {
        tokens / 4 * self.quarters as u32 + tokens % 4 * self.quarters as u32 / 4
    }
}

#[cfg(test)]
impl JudgeBudget {
    /// For whatever there is.
    pub(super) const UNLIMITED: Self = Self {
        tokens: u32::MAX,
        counter: TokenCounter::Estimated,
    };
}

impl JudgeBudget {
    /// Tokens of a pair, its entry in the answer included.
    #[must_use]
    pub fn pair_tokens(&self, older: &Statement, newer: &Statement) -> u32 {
        let statement = |statement: &Statement| self.counter.count_tokens(&statement.content);
        statement(older)
            .saturating_add(statement(newer))
            .saturating_add(PAIR_TOKENS)
    }
}

/// How telling a pair is: what there is one of first, then opposites about one thing, then by nearness.
type QuestionRank = (u8, f32);

impl<J: FnMut(&Statement, &Statement) -> JudgeAnswer> TimelineReplay<'_, J> {
    /// The pairs of new facts and what is near them that a judge is asked about, if its verdict is needed.
    /// `left`: tokens of all of them.
    pub(super) fn choose_questions(
        &mut self,
        near: &[(usize, Vec<NearFact>)],
        mut left: u32,
    ) -> HashSet<(usize, usize)> {
        let mut pairs: Vec<(QuestionRank, usize, usize)> = Vec::new();
        for (new, near) in near {
            for near in near.iter().filter(|near| near.relation == Relation::Judge) {
                if self.rule_verdict(near.old, *new).is_none() {
                    pairs.push((self.question_rank(*new, near), *new, near.old));
                }
            }
        }
        // Places are the order in which things were said, which is the same wherever a timeline begins.
        pairs.sort_by(|(a, a_new, a_old), (b, b_new, b_old)| {
            let telling = a.0.cmp(&b.0).then(b.1.total_cmp(&a.1));
            telling.then(a_new.cmp(b_new)).then(b_old.cmp(a_old))
        });
        let mut asked = HashSet::new();
        for (_, new, old) in pairs {
            if left < PAIR_TOKENS {
                break;
            }
            let statement = |fact: usize| &self.facts[fact].known.fact.statement;
            // One that is too long makes room for the next.
            if let Some(rest) = left.checked_sub(self.room.pair_tokens(statement(old), statement(new))) {
                left = rest;
                asked.insert((old, new));
            }
        }
        self.left = left;
        asked
    }

    /// What rules say of a pair that a judge would be asked about.
    pub(super) fn rule_verdict(&self, old: usize, new: usize) -> Option<crate::memory::reconcile::JudgeVerdict> {
        let of = |fact: usize| (&self.facts[fact].known.fact.statement, self.prepared.features_of(fact));
        verdict_by_rules(of(new), of(old))
    }

    fn question_rank(&self, new: usize, near: &NearFact) -> QuestionRank {
        let (newer, older) = (self.prepared.features_of(new), self.prepared.features_of(near.old));
        let polarity = |fact: usize| self.facts[fact].known.fact.statement.polarity;
        let class = if newer
            .common_matter(older)
            .topic
            .is_some_and(|topic| topic != StatementTopic::Possession)
        {
            0
        } else {
            u8::from(polarity(new) == polarity(near.old) || !newer.shares_object(older)) + 1
        };
        (class, near.cosine)
    }
}
