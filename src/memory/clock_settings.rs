//! The clock of a world, as its author sets it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::calendar::{Calendar, GameMoment, GameTime, GameTimeError, parse_game_time};

/// Most game seconds per real second.
pub const MAX_CLOCK_RATIO: f64 = 10_000.0;

/// The clock of a world, as its author sets it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClockSettings {
    /// Default: the Gregorian calendar, with the names of the NPC's language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub calendar: Option<Calendar>,
    /// The moment at which the clock begins, in the numbers of the calendar: `1024-03-05 14:30`, or a date alone. Later
    /// changes of the value have no effect; an event `time_set` sets the clock.
    #[schema(min_length = 5, max_length = 64)]
    pub start: String,
    /// Game seconds per real second, 0 to 10,000. Default 0: time moves by events alone.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 10_000)]
    pub ratio: f64,
}

impl ClockSettings {
    /// What is wrong with the settings, if something is.
    #[must_use]
    pub fn find_fault(&self) -> Option<String> {
        if let Some(fault) = self.calendar.as_ref().and_then(Calendar::find_fault) {
            return Some(format!("has a `calendar` that is not valid: {fault}"));
        }
        if !(0.0..=MAX_CLOCK_RATIO).contains(&self.ratio) {
            return Some(format!("has a `ratio` that is not 0 to {MAX_CLOCK_RATIO}"));
        }
        let error = self.parse_time(&self.start).err()?;
        Some(format!("has a `start` that {error}"))
    }

    /// Reads a moment in the numbers of the calendar.
    ///
    /// # Errors
    /// The text is no moment of the calendar.
    pub fn parse_time(&self, text: &str) -> Result<GameTime, GameTimeError> {
        parse_game_time(text, self.calendar.as_ref())
    }

    /// The moment at which the clock begins.
    #[must_use]
    pub fn start_time(&self) -> GameTime {
        self.parse_time(&self.start).unwrap_or_default()
    }

    /// The moment with the calendar.
    #[must_use]
    pub fn moment(&self, time: GameTime) -> GameMoment<'_> {
        let calendar = self.calendar.as_ref();
        GameMoment { time, calendar }
    }
}
