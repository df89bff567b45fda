//! Summaries: when a summary is due, and which summaries stay (docs/algorithms.md#summaries).

mod removal;

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

pub use self::removal::{RemovedText, RemovedWords, ToldContent, without_content, without_removed};
use super::{disclosure::locks::DisclosureLocks, fact::Importance, turn::Checkpoint};
use colloquy_core::ids::{DialogueId, SummaryId};

/// A dated digest of older turns.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = SummaryView)]
pub struct Summary {
    #[schema(value_type = String)]
    pub id: SummaryId,
    #[serde(skip)]
    pub dialogue: DialogueId,
    pub from_turn: u32,
    pub to_turn: u32,
    pub text: String,
    /// The importance after the standing decrements.
    #[schema(value_type = u8, minimum = 1, maximum = 10)]
    pub importance: Importance,
    pub created_at: DateTime<Utc>,
}

/// A meeting of an NPC and a player: a session in which at least one turn stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meeting {
    /// When the last standing turn was committed.
    pub last_turn_at: DateTime<Utc>,
    /// When the session began.
    pub since: DateTime<Utc>,
    /// The newest summary of their lines, from this session or an earlier session.
    pub summary: Option<MeetingRecap>,
}

impl Meeting {
    /// When the content of the summary was said, if in an earlier session or on an earlier day than the last turn.
    /// `day_of` numbers the days.
    #[must_use]
    pub fn earlier_summary_at(&self, day_of: impl Fn(DateTime<Utc>) -> i64) -> Option<DateTime<Utc>> {
        let recap = self.summary.as_ref()?;
        let is_of_then = recap.since == self.since && day_of(recap.last_turn_at) == day_of(self.last_turn_at);
        (!is_of_then).then_some(recap.last_turn_at)
    }
}

/// A summary of the lines of an NPC and a player in one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeetingRecap {
    pub summary: SummaryId,
    pub text: String,
    /// When the session began.
    pub since: DateTime<Utc>,
    /// When the last summarised turn was committed.
    pub last_turn_at: DateTime<Utc>,
    /// Sources of the summary that some players may not hear.
    pub locks: DisclosureLocks,
}

/// The numbers of [`is_due`] and [`is_due_after_silence`]; `dialogue::settings` holds their defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SummaryRules {
    /// Turns until the first summary; 10.
    pub first_after_turns: u32,
    /// Turns until each further summary; 20.
    pub then_every_turns: u32,
    /// Time since the last summary after which a summary is due; an hour.
    pub then_every: Duration,
    /// The silence after a turn that makes a summary due; an hour. `None`: never.
    pub after_silence: Option<Duration>,
    /// Fewer unsummarised turns are not worth a summary because of time alone; 4.
    pub min_turns: u32,
    /// Unsummarised raw turns that force a summary; 30.
    pub force_turns: u32,
    /// Unsummarised tokens above which a summary is forced; 3,600.
    pub force_tokens: u32,
}

/// True if a summary is due after the commit of turn `turn`.
///
/// `summarised_through` is the last summarised turn (0: no summary yet). `since_last` is the time since the last
/// summary was stored.
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
    let is_late = since_last.is_some_and(|since| since >= rules.then_every);
    turn - summarised_through >= rules.then_every_turns || is_late && unsummarised_turns >= rules.min_turns
}

/// True if a summary is due after a turn that was followed by a silence, up to the next turn or to now.
/// `unsummarised_turns` counts up to this turn.
#[must_use]
pub fn is_due_after_silence(rules: &SummaryRules, unsummarised_turns: u32, silence: Duration) -> bool {
    unsummarised_turns >= rules.min_turns.max(1) && rules.after_silence.is_some_and(|after| silence >= after)
}

/// The effect of a new summary on the stored summaries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SummaryAdmission {
    /// The summary to drop: the least important of all, including the new summary.
    pub evict: Option<SummaryId>,
    /// The summary whose importance falls by 1: the most important of the remaining summaries.
    pub fade: Option<SummaryId>,
}

/// Admits `new` beside the `stored` summaries, with at most `max_summaries` in all.
#[must_use]
pub fn admit_summary(stored: &[Summary], new: &Summary, max_summaries: usize) -> SummaryAdmission {
    debug_assert!(
        stored.iter().all(|summary| summary.id != new.id),
        "a new summary is not stored yet"
    );
    if stored.len() < max_summaries {
        return SummaryAdmission::default();
    }
    let age = |summary: &&Summary| (summary.created_at, summary.from_turn, summary.id);
    let candidates = || stored.iter().chain(std::iter::once(new));
    let evict = candidates()
        .min_by_key(|summary| (summary.importance, age(summary)))
        .map(|summary| summary.id);
    let fade = candidates()
        .filter(|summary| Some(summary.id) != evict && summary.importance.get() > 1)
        .max_by_key(|summary| (summary.importance, std::cmp::Reverse(age(summary))))
        .map(|summary| summary.id);
    debug_assert!(evict.is_some(), "a full list drops a summary");
    SummaryAdmission { evict, fade }
}

/// The first turn of the buffer after a summary. Every unsummarised turn stays, and at least the last `buffer_min`
/// turns.
#[must_use]
pub fn buffer_start(summarised_through: u32, head: u32, buffer_min: u32) -> u32 {
    let unsummarised = summarised_through.saturating_add(1);
    let last = head.saturating_sub(buffer_min).saturating_add(1);
    unsummarised.min(last).max(1)
}

impl Checkpoint {
    /// Applies the kept summaries. The result depends only on the turns that the summaries cover, not on the turn that
    /// first saw a summary.
    pub fn apply_summaries(&mut self, summaries: &[Summary], buffer_min: u32) {
        self.buffer_from = self.buffer_from.max(1);
        for summary in summaries {
            let to = summary.to_turn;
            debug_assert!(summary.from_turn <= to, "a summary begins before its end");
            self.summarised_through = self.summarised_through.max(to);
            self.summarised_at = self.summarised_at.max(Some(summary.created_at));
            self.buffer_from = self.buffer_from.max(buffer_start(to, to, buffer_min));
        }
        debug_assert!(
            self.buffer_from <= self.summarised_through.saturating_add(1),
            "a turn without a summary stays in the buffer"
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use colloquy_core::ids::DialogueKind;

    const RULES: SummaryRules = SummaryRules {
        first_after_turns: 10,
        then_every_turns: 20,
        then_every: Duration::from_hours(1),
        after_silence: Some(Duration::from_hours(1)),
        min_turns: 4,
        force_turns: 30,
        force_tokens: 6_000,
    };
    const MINUTE: Option<Duration> = Some(Duration::from_mins(1));

    fn summary(n: u8, importance: u8) -> Summary {
        Summary {
            id: SummaryId::from_u128(u128::from(n)),
            dialogue: DialogueId::new(DialogueKind::Session, ulid::Ulid(1)),
            from_turn: u32::from(n) * 10 + 1,
            to_turn: u32::from(n) * 10 + 10,
            text: String::new(),
            importance: Importance::from_clamped(f64::from(importance)),
            created_at: DateTime::from_timestamp(i64::from(n), 0).unwrap_or_default(),
        }
    }
    fn id(n: u8) -> SummaryId {
        SummaryId::from_u128(u128::from(n))
    }

    #[test]
    fn first_summary_is_due_at_ten_turns() {
        assert!(!is_due(&RULES, 9, 9, 900, 0, None));
        assert!(is_due(&RULES, 10, 10, 900, 0, None));
        assert!(
            is_due(&RULES, 12, 12, 900, 0, None),
            "one that failed is caught up with"
        );
    }

    #[test]
    fn later_summaries_are_due_by_turns_or_by_time() {
        assert!(!is_due(&RULES, 29, 19, 900, 10, MINUTE));
        assert!(is_due(&RULES, 30, 20, 900, 10, MINUTE));
        assert!(!is_due(&RULES, 14, 4, 90, 10, Some(Duration::from_secs(3_599))));
        assert!(is_due(&RULES, 14, 4, 90, 10, Some(Duration::from_hours(1))));
        assert!(
            !is_due(&RULES, 13, 3, 90, 10, Some(Duration::from_hours(1))),
            "too few turns for a summary"
        );
        assert!(
            !is_due(&RULES, 10, 0, 0, 10, Some(Duration::from_secs(9_999))),
            "nothing to summarise"
        );
    }

    #[test]
    fn summary_is_forced_by_too_much_raw_text() {
        assert!(is_due(&RULES, 3, 3, 6_001, 0, None));
        assert!(!is_due(&RULES, 3, 3, 6_000, 0, None));
        let patient = SummaryRules {
            first_after_turns: 100,
            ..RULES
        };
        assert!(is_due(&patient, 30, 30, 10, 0, None));
        assert!(!is_due(&patient, 29, 29, 10, 0, None));
    }

    #[test]
    fn silence_makes_a_summary_of_enough_turns_due() {
        let hour = Duration::from_hours(1);
        assert!(is_due_after_silence(&RULES, 4, hour));
        assert!(!is_due_after_silence(&RULES, 3, hour), "too few turns");
        assert!(!is_due_after_silence(&RULES, 30, Duration::from_secs(3_599)));
        let never = SummaryRules {
            after_silence: None,
            ..RULES
        };
        assert!(!is_due_after_silence(&never, 30, Duration::from_hours(1_000)));
        let any = SummaryRules { min_turns: 0, ..RULES };
        assert!(!is_due_after_silence(&any, 0, hour), "nothing to summarise");
        assert!(is_due_after_silence(&any, 1, hour));
    }

    #[test]
    fn summaries_up_to_five_are_unchanged() {
        let kept: Vec<_> = (0..4).map(|n| summary(n, 5)).collect();
        assert_eq!(admit_summary(&kept, &summary(4, 5), 5), SummaryAdmission::default());
    }

    #[test]
    fn sixth_summary_evicts_the_least_important() {
        let kept = [
            summary(0, 7),
            summary(1, 3),
            summary(2, 9),
            summary(3, 3),
            summary(4, 5),
        ];
        assert_eq!(
            admit_summary(&kept, &summary(5, 6), 5),
            SummaryAdmission {
                evict: Some(id(1)),
                fade: Some(id(2))
            },
            "the older of two equal ones"
        );
        assert_eq!(
            admit_summary(&kept, &summary(5, 2), 5),
            SummaryAdmission {
                evict: Some(id(5)),
                fade: Some(id(2))
            },
            "even the new one"
        );
        assert_eq!(
            admit_summary(&kept, &summary(5, 10), 5),
            SummaryAdmission {
                evict: Some(id(1)),
                fade: Some(id(5))
            }
        );
    }

    #[test]
    fn summary_importance_fades_to_one_at_least() {
        let kept: Vec<_> = (0..5).map(|n| summary(n, 1)).collect();
        assert_eq!(
            admit_summary(&kept, &summary(5, 1), 5),
            SummaryAdmission {
                evict: Some(id(0)),
                fade: None
            }
        );
    }

    #[test]
    fn raw_turns_are_dropped_only_once_summarised() {
        assert_eq!(buffer_start(0, 0, 8), 1);
        assert_eq!(buffer_start(0, 40, 8), 1);
        assert_eq!(buffer_start(10, 10, 8), 3, "the last eight stay");
        assert_eq!(buffer_start(10, 30, 8), 11, "all unsummarised ones stay");
        assert_eq!(buffer_start(10, 5, 8), 1, "rewound below the summary");
    }

    #[test]
    fn checkpoint_does_not_depend_on_when_a_summary_arrived() {
        let kept = [summary(0, 5), summary(1, 5)];
        let mut at_once = Checkpoint::default();
        at_once.apply_summaries(&kept[..1], 8);
        assert_eq!((at_once.summarised_through, at_once.buffer_from), (10, 3));
        at_once.apply_summaries(&kept, 8);
        let mut late = Checkpoint {
            turn: 27,
            ..Checkpoint::default()
        };
        late.apply_summaries(&kept, 8);
        assert_eq!((late.summarised_through, late.buffer_from), (20, 13));
        assert_eq!(
            (at_once.summarised_at, at_once.buffer_from),
            (late.summarised_at, late.buffer_from)
        );
        late.apply_summaries(&[], 8);
        assert_eq!(late.buffer_from, 13, "it never goes back");
    }

    proptest! {
        #[test]
        fn turns_are_always_raw_or_summarised(through in 0_u32..200, ahead in 0_u32..60, min in 0_u32..20) {
            let head = through + ahead;
            let from = buffer_start(through, head, min);
            prop_assert!(from >= 1 && from <= through + 1);
            prop_assert!(head + 1 - from >= min.min(head));
        }

        #[test]
        fn important_summary_does_not_stay_on_top_for_ever(news in prop::collection::vec(1_u8..=9, 100)) {
            let mut kept: Vec<Summary> = vec![summary(200, 10)];
            for (n, importance) in news.iter().enumerate() {
                let new = summary(u8::try_from(n).unwrap_or(0), *importance);
                let admission = admit_summary(&kept, &new, 5);
                kept.push(new);
                kept.retain(|summary| Some(summary.id) != admission.evict);
                for summary in &mut kept {
                    if Some(summary.id) == admission.fade {
                        summary.importance = Importance::from_clamped(f64::from(summary.importance.get()) - 1.0);
                    }
                }
                prop_assert!(kept.len() <= 5);
                prop_assert!(admission.evict.is_none() || admission.evict != admission.fade);
            }
            prop_assert!(kept.iter().all(|summary| summary.id != SummaryId::from_u128(200) || summary.importance.get() < 10));
        }
    }
}
