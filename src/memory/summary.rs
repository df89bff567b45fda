//! Short-term summaries: when one is due, and which are kept (ALGORITHMS §5).

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::fact::Importance;
use crate::ids::{DialogueId, SummaryId};

/// A dated digest of turns `from_turn..=to_turn` of one dialogue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub id: SummaryId,
    pub dialogue: DialogueId,
    pub from_turn: u32,
    pub to_turn: u32,
    pub text: String,
    /// After the decrements that stand.
    pub importance: Importance,
    pub created_at: DateTime<Utc>,
}

/// The numbers of the rules below; `dialogue::settings` holds their defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummaryRules {
    /// Turns until the first summary; 10.
    pub first_after_turns: u32,
    /// Turns until each further one; 20.
    pub then_every_turns: u32,
    /// Or this long after the last one; an hour.
    pub then_every: Duration,
    /// Unsummarised raw turns that force one; 30.
    pub force_turns: u32,
    /// Unsummarised tokens that force one; more than 6,000.
    pub force_tokens: u32,
}

/// Whether a summary is due now that turn `turn` has been committed.
///
/// `summarised_through` is the last turn a summary covers (0: none yet); `since_last` is how long
/// ago the last summary landed.
#[must_use]
pub fn is_due(
    rules: &SummaryRules,
    turn: u32,
    unsummarised_turns: u32,
    unsummarised_tokens: u32,
    summarised_through: u32,
    since_last: Option<Duration>,
) -> bool {
    if unsummarised_turns == 0 || turn <= summarised_through {
        return false;
    }
    if unsummarised_turns >= rules.force_turns || unsummarised_tokens > rules.force_tokens {
        return true;
    }
    if summarised_through == 0 {
        return turn >= rules.first_after_turns;
    }
    turn - summarised_through >= rules.then_every_turns || since_last.is_some_and(|since| since >= rules.then_every)
}

/// What the landing of a summary does to the kept ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Admission {
    /// Goes: the least important of all, the new one included.
    pub evict: Option<SummaryId>,
    /// Its importance goes down by 1: the most important of those that stay.
    pub fade: Option<SummaryId>,
}

/// Admits `new` beside the `kept` ones, at most `keep` in all.
#[must_use]
pub fn admit(kept: &[Summary], new: &Summary, keep: usize) -> Admission {
    if kept.len() < keep {
        return Admission::default();
    }
    let age = |summary: &&Summary| (summary.created_at, summary.from_turn, summary.id);
    let all = || kept.iter().chain(std::iter::once(new));
    let evict = all()
        .min_by_key(|summary| (summary.importance, age(summary)))
        .map(|summary| summary.id);
    let fade = all()
        .filter(|summary| Some(summary.id) != evict && summary.importance.get() > 1)
        .max_by_key(|summary| (summary.importance, std::cmp::Reverse(age(summary))))
        .map(|summary| summary.id);
    Admission { evict, fade }
}

/// The first turn of the buffer after a summary landed: every unsummarised turn stays, and at least
/// the last `buffer_min`.
#[must_use]
pub fn buffer_from(summarised_through: u32, head: u32, buffer_min: u32) -> u32 {
    let unsummarised = summarised_through.saturating_add(1);
    let last = head.saturating_sub(buffer_min).saturating_add(1);
    unsummarised.min(last).max(1)
}
