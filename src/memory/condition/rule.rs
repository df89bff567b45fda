//! A condition, as an author writes it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{attributes::AttributeValue, calendar::parse_time_of_day, unlock_rule::Progress};

/// A condition on the present state of the world. All conditions of a list must hold.
///
/// `of` says whose value counts: `player` (the default), `npc` (the NPC that speaks), or the name of a character in the
/// world's state. Case does not matter. Without a player, no condition on the player holds. Without a clock of the
/// world, no condition on the time holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "must be one condition: `item`, `location`, `met`, `relationship` with `at_least`, `status`, `hp_at_most`, `attribute` with `is` or `at_least`, `progress`, `time` with `from` and `until`, `after`, `before`, `weekday`, `month`, or `not`"
)]
pub enum Condition {
    /// The character has the item.
    Item {
        #[schema(min_length = 1, max_length = 64)]
        item: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(min_length = 1, max_length = 64)]
        of: Option<String>,
    },
    /// The character is at the place.
    Location {
        #[schema(min_length = 1, max_length = 64)]
        location: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(min_length = 1, max_length = 64)]
        of: Option<String>,
    },
    /// The player has met the person, even if they have separated.
    Met {
        #[schema(min_length = 1, max_length = 64)]
        met: String,
    },
    /// The feeling of the NPC that speaks for the player has this strength now, -100 to 100.
    Relationship {
        #[schema(min_length = 1, max_length = 64)]
        relationship: String,
        #[schema(minimum = -100, maximum = 100)]
        at_least: i32,
    },
    /// The character has this status. Before the first change, a character is `alive`.
    Status {
        #[schema(min_length = 1, max_length = 64)]
        status: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(min_length = 1, max_length = 64)]
        of: Option<String>,
    },
    /// The character has at most these hit points, 0 to 100. Before the first change, a character has 100.
    HpAtMost {
        #[schema(minimum = 0, maximum = 100)]
        hp_at_most: i32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(min_length = 1, max_length = 64)]
        of: Option<String>,
    },
    /// The attribute has this value. An attribute of the world needs no `of`.
    AttributeIs {
        #[schema(min_length = 1, max_length = 64)]
        attribute: String,
        is: AttributeValue,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(min_length = 1, max_length = 64)]
        of: Option<String>,
    },
    /// The attribute is a number of at least this value.
    AttributeAtLeast {
        #[schema(min_length = 1, max_length = 64)]
        attribute: String,
        at_least: f64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(min_length = 1, max_length = 64)]
        of: Option<String>,
    },
    /// The player has at least this progress with the NPC that speaks.
    Progress {
        #[schema(value_type = u32, maximum = 1_000_000)]
        progress: Progress,
    },
    /// The time of day is in the stretch.
    TimeOfDay { time: TimeOfDay },
    /// The moment, in the numbers of the world's calendar, is now or past: `1024-03-05`, or `1024-03-05 14:30`.
    After {
        #[schema(pattern = "^[0-9]{1,6}-[0-9]{1,6}-[0-9]{1,6}( ([01]?[0-9]|2[0-3]):[0-5][0-9])?$")]
        after: String,
    },
    /// The moment is still to come.
    Before {
        #[schema(pattern = "^[0-9]{1,6}-[0-9]{1,6}-[0-9]{1,6}( ([01]?[0-9]|2[0-3]):[0-5][0-9])?$")]
        before: String,
    },
    /// Today is this day of the week, by the name in the world's calendar.
    Weekday {
        #[schema(min_length = 1, max_length = 64)]
        weekday: String,
    },
    /// It is this month, by the name in the world's calendar.
    Month {
        #[schema(min_length = 1, max_length = 64)]
        month: String,
    },
    /// The other condition does not hold.
    #[schema(no_recursion)]
    Not { not: Box<Condition> },
}

/// A stretch of the day, which may go over midnight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TimeOfDay {
    /// The first minute, such as `18:00`.
    #[schema(pattern = "^([01]?[0-9]|2[0-3]):[0-5][0-9]$")]
    pub from: String,
    /// The first minute after the stretch, such as `06:00`.
    #[schema(pattern = "^([01]?[0-9]|2[0-3]):[0-5][0-9]$")]
    pub until: String,
}

impl TimeOfDay {
    /// Minutes since midnight; `None`: a text is no time of day.
    pub(super) fn minutes(&self) -> Option<(i64, i64)> {
        Some((parse_time_of_day(&self.from)?, parse_time_of_day(&self.until)?))
    }

    /// `None`: a text is no time of day.
    pub(super) fn includes(&self, minute: i64) -> Option<bool> {
        let (from, until) = self.minutes()?;
        Some(if from <= until {
            (from..until).contains(&minute)
        } else {
            minute >= from || minute < until
        })
    }
}
