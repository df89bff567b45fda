//! The clock of a world: the moment of the game at every real moment (docs/algorithms.md#game-time).
//!
//! Changes of the world's state move the clock. Nothing else is stored: the age of a fact or a turn follows from its real
//! moment and the segments of the clock. A rewind therefore leaves nothing behind.

use chrono::{DateTime, Datelike as _, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    authored::WorldSettings,
    calendar::{Calendar, GameMoment, GameTime, GameTimeError, parse_game_time},
    state::WorldState,
};

/// Most game seconds per real second.
pub const MAX_CLOCK_RATIO: f64 = 10_000.0;
/// Most segments of a folded clock. Above, every second of the older half goes.
pub const MAX_SEGMENTS: usize = 4_096;
/// Longest time that passes with one event, in days.
pub const MAX_DAYS_PASSED: i64 = 10_000;

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

/// A stretch of real time in which the clock runs evenly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClockSegment {
    /// The real moment of the beginning.
    pub from: DateTime<Utc>,
    /// The moment of the game at the beginning.
    pub game: GameTime,
    /// Game seconds per real second, 0 to [`MAX_CLOCK_RATIO`].
    pub ratio: f64,
}

impl ClockSegment {
    fn time_at(&self, moment: DateTime<Utc>) -> GameTime {
        self.game.plus_seconds(scaled_seconds(moment, self.from, self.ratio))
    }
}

/// The whole game seconds from `from` until `at`; 0 if `at` is earlier.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "milliseconds of centuries fit 52 bits, and the cast saturates"
)]
fn scaled_seconds(moment: DateTime<Utc>, from: DateTime<Utc>, ratio: f64) -> i64 {
    let milliseconds = (moment - from).num_milliseconds().max(0) as f64;
    (milliseconds * ratio / 1_000.0).floor() as i64
}

/// The segments of a world's clock, oldest first; empty: the clock was never set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClockSegments(Vec<ClockSegment>);

impl ClockSegments {
    /// Sets the clock, and its ratio from then on.
    pub fn set_time(&mut self, moment: DateTime<Utc>, to: GameTime, ratio: f64) {
        let ratio = if ratio.is_finite() {
            ratio.clamp(0.0, MAX_CLOCK_RATIO)
        } else {
            0.0
        };
        if let Some(last) = self.0.last() {
            // Changes come in the order of their moments.
            let moment = moment.max(last.from);
            if last.ratio.to_bits() == ratio.to_bits() && last.time_at(moment) == to {
                return;
            }
            if last.from == moment {
                self.0.pop();
                return self.set_time(moment, to, ratio);
            }
        }
        let from = self.0.last().map_or(moment, |last| last.from.max(moment));
        self.0.push(ClockSegment { from, game: to, ratio });
        if self.0.len() > MAX_SEGMENTS {
            self.thin_out();
        }
    }

    /// Moves the clock on. `start` and `ratio` are for a clock that was never set.
    pub fn pass_time(&mut self, moment: DateTime<Utc>, seconds: i64, start: GameTime, ratio: f64) {
        let (now, ratio) = match self.0.last() {
            Some(last) => (last.time_at(moment.max(last.from)), last.ratio),
            None => (start, ratio),
        };
        self.set_time(moment, now.plus_seconds(seconds), ratio);
    }

    /// The moment of the game at a real moment. Before the clock was set first, time ran as real time. `None`: the clock
    /// was never set.
    #[must_use]
    pub fn time_at(&self, moment: DateTime<Utc>) -> Option<GameTime> {
        let after = self.0.partition_point(|segment| segment.from <= moment);
        if let Some(segment) = after.checked_sub(1).and_then(|index| self.0.get(index)) {
            return Some(segment.time_at(moment));
        }
        let first = self.0.first()?;
        Some(first.game.plus_seconds(-scaled_seconds(first.from, moment, 1.0)))
    }

    /// The first change of the clock.
    #[must_use]
    pub fn first(&self) -> Option<&ClockSegment> {
        self.0.first()
    }

    /// The last change of the clock.
    #[must_use]
    pub fn last(&self) -> Option<&ClockSegment> {
        self.0.last()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes every second segment of the older half. The first stays, and so do those where time goes back or the ratio
    /// changes: without them, moments would belong to another branch of time.
    fn thin_out(&mut self) {
        let half = self.0.len() / 2;
        let segments = std::mem::take(&mut self.0);
        let turns = |before: &ClockSegment, now: &ClockSegment| {
            now.game < before.time_at(now.from) || now.ratio.to_bits() != before.ratio.to_bits()
        };
        for (index, segment) in segments.iter().enumerate() {
            let is_turn = index > 0 && turns(&segments[index - 1], segment);
            if index >= half || index % 2 == 0 || is_turn {
                self.0.push(*segment);
            }
        }
    }
}

/// The clock of a world, with its calendar.
#[derive(Debug, Clone, Copy)]
pub struct GameClock<'w> {
    settings: &'w ClockSettings,
    segments: &'w ClockSegments,
}

impl<'w> GameClock<'w> {
    /// `None`: the world has no clock.
    #[must_use]
    pub fn new(settings: &'w WorldSettings, state: &'w WorldState) -> Option<Self> {
        let settings = settings.clock.as_ref()?;
        let segments = &state.clock;
        Some(Self { settings, segments })
    }

    /// The moment of the game at a real moment: of a turn, a fact or a meeting.
    #[must_use]
    pub fn game_time_at(self, real: DateTime<Utc>) -> GameMoment<'w> {
        let time = self.segments.time_at(real);
        self.settings.moment(time.unwrap_or_else(|| self.settings.start_time()))
    }

    /// The present moment of the game. Counts a change by a node whose real clock is ahead.
    #[must_use]
    pub fn game_time_now(self, real: DateTime<Utc>) -> GameMoment<'w> {
        let last = self.segments.last().map_or(real, |last| last.from);
        self.game_time_at(real.max(last))
    }

    /// The number of the day at a real moment, by the game's clock or, without one, the real one. Later days have higher
    /// numbers.
    #[must_use]
    pub fn day_at(clock: Option<Self>, real: DateTime<Utc>) -> i64 {
        match clock {
            Some(clock) => clock.game_time_at(real).time.day(),
            None => i64::from(real.date_naive().num_days_from_ce()),
        }
    }

    /// The number of the present day, as [`Self::day_at`] counts.
    #[must_use]
    pub fn today(clock: Option<Self>, real: DateTime<Utc>) -> i64 {
        match clock {
            Some(clock) => clock.game_time_now(real).time.day(),
            None => Self::day_at(None, real),
        }
    }

    /// The present moment of the game in a world with a clock.
    #[must_use]
    pub fn present(settings: &'w WorldSettings, state: &'w WorldState, real: DateTime<Utc>) -> Option<GameMoment<'w>> {
        Self::new(settings, state).map(|clock| clock.game_time_now(real))
    }

    /// Game seconds per real second.
    #[must_use]
    pub fn ratio(self) -> f64 {
        self.segments.last().map_or(self.settings.ratio, |last| last.ratio)
    }

    /// The world's own calendar; `None`: the Gregorian one.
    #[must_use]
    pub const fn calendar(self) -> Option<&'w Calendar> {
        self.settings.calendar.as_ref()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        calendar::{MAX_GAME_SECONDS, SECONDS_PER_DAY},
        state::{StateChange, fold_changes},
    };

    fn real(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000 + seconds, 0).unwrap()
    }
    fn at(segments: &ClockSegments, seconds: i64) -> i64 {
        segments.time_at(real(seconds)).unwrap().seconds()
    }

    #[test]
    fn clock_runs_with_its_ratio_and_with_events() {
        let mut clock = ClockSegments::default();
        assert_eq!(clock.time_at(real(0)), None);
        clock.set_time(real(0), 1_000.into(), 0.0);
        clock.pass_time(real(10), 500, 0.into(), 9.0);
        clock.set_time(real(20), 1_500.into(), 60.0);
        clock.set_time(real(30), 100.into(), 60.0);
        let found = [-5, 0, 9, 10, 20, 21, 29, 30, 31].map(|seconds| at(&clock, seconds));
        assert_eq!(found, [995, 1_000, 1_000, 1_500, 1_500, 1_560, 2_040, 100, 160]);
        assert_eq!(clock.0.len(), 4);
    }

    #[test]
    fn time_passes_from_the_start_if_the_clock_was_never_set() {
        let mut clock = ClockSegments::default();
        clock.pass_time(real(0), 60, 1_000.into(), 2.0);
        assert_eq!([at(&clock, 0), at(&clock, 10)], [1_060, 1_080]);
    }

    #[test]
    fn segment_that_continues_the_last_one_is_merged() {
        let mut clock = ClockSegments::default();
        clock.set_time(real(0), 0.into(), 60.0);
        clock.set_time(real(10), 600.into(), 60.0);
        clock.set_time(real(10), 5.into(), 60.0);
        clock.set_time(real(10), 600.into(), 60.0);
        assert_eq!(clock.0.len(), 1);
        // Several events of one request have the same moment.
        clock.pass_time(real(20), 60, 0.into(), 0.0);
        clock.pass_time(real(20), 60, 0.into(), 0.0);
        assert_eq!((clock.0.len(), at(&clock, 20)), (2, 1_320));
    }

    #[test]
    fn segments_are_bounded_and_the_newest_stay() {
        let mut clock = ClockSegments::default();
        let last = 3 * i64::try_from(MAX_SEGMENTS).unwrap();
        for n in 0..=last {
            clock.set_time(real(n), (n * SECONDS_PER_DAY).into(), 0.0);
        }
        assert!(clock.0.len() <= MAX_SEGMENTS);
        assert_eq!(clock.0[0].from, real(0));
        for n in [last - 100, last - 1, last] {
            assert_eq!(at(&clock, n), n * SECONDS_PER_DAY);
        }
    }

    #[test]
    fn fold_of_changes_moves_the_clock() {
        let changes: Vec<StateChange> = serde_json::from_value(serde_json::json!([
            {"change": "time", "to": 86_400, "ratio": 0.0},
            {"change": "time_passed", "seconds": 3_600, "start": 0, "ratio": 5.0},
            {"change": "mood", "who": "Mira", "mood": "calm"},
            {"change": "time", "to": -7, "ratio": -1.0},
        ]))
        .unwrap();
        let state = |count: usize| fold_changes(changes.iter().take(count).zip((0..).map(real))).clock;
        assert_eq!(at(&state(2), 1), 90_000);
        assert_eq!(at(&state(4), 1), 90_000, "the past stays");
        assert_eq!(at(&state(4), 9), 0);
    }

    #[test]
    fn faulty_settings_are_named() {
        let read = |value| serde_json::from_value::<ClockSettings>(value).unwrap().find_fault();
        assert_eq!(read(serde_json::json!({"start": "1024-03-05"})), None);
        for (value, why) in [
            (serde_json::json!({"start": "1024-13-05"}), "`start` that is no day"),
            (serde_json::json!({"start": "noon"}), "`start` that must be a date"),
            (serde_json::json!({"start": "1024-03-05", "ratio": -1}), "`ratio`"),
            (serde_json::json!({"start": "1024-03-05", "ratio": 10_001}), "`ratio`"),
            (
                serde_json::json!({"start": "1-1-1", "calendar": {"months": []}}),
                "`calendar`",
            ),
        ] {
            let found = read(value).unwrap_or_default();
            assert!(found.contains(why), "{why}: {found}");
        }
    }

    #[test]
    fn present_counts_a_change_by_a_clock_that_is_ahead() {
        let settings: WorldSettings =
            serde_json::from_value(serde_json::json!({"clock": {"start": "1024-03-05 14:30"}})).unwrap();
        let mut state = WorldState::default();
        let text = |state: &WorldState| {
            let clock = GameClock::new(&settings, state).unwrap();
            (clock.game_time_at(real(0)).text(), clock.game_time_now(real(0)).text())
        };
        let start = "1024-03-05 14:30".to_owned();
        assert_eq!(text(&state), (start.clone(), start.clone()));
        let start_time = settings.clock.as_ref().unwrap().start_time();
        state.clock.set_time(real(-5), start_time, 0.0);
        state.clock.pass_time(real(2), 3_600, start_time, 0.0);
        assert_eq!(text(&state), (start, "1024-03-05 15:30".to_owned()));
        assert!(GameClock::new(&WorldSettings::default(), &state).is_none());
    }

    proptest! {
        #[test]
        fn clock_is_bounded_for_any_changes(
            changes in prop::collection::vec((any::<i64>(), any::<i64>(), any::<f64>(), any::<bool>()), 0..20),
            moment in any::<i64>(),
        ) {
            let mut clock = ClockSegments::default();
            for (moment, seconds, ratio, sets) in changes {
                let at = DateTime::from_timestamp_micros(moment).unwrap_or(DateTime::<Utc>::MAX_UTC);
                if sets {
                    clock.set_time(at, seconds.into(), ratio);
                } else {
                    clock.pass_time(at, seconds, 5.into(), ratio);
                }
            }
            let at = DateTime::from_timestamp_micros(moment).unwrap_or(DateTime::<Utc>::MIN_UTC);
            let found = clock.time_at(at).map_or(0, GameTime::seconds);
            prop_assert!((0..=MAX_GAME_SECONDS).contains(&found));
            prop_assert!(clock.0.is_sorted_by(|a, b| a.from < b.from));
        }

        #[test]
        fn clock_that_is_not_set_back_is_monotonic(
            changes in prop::collection::vec((0_i64..1_000, 0_i64..100_000), 1..20),
            ratio in 0.0_f64..100.0, one in -100_i64..20_000, later in 0_i64..1_000,
        ) {
            let mut clock = ClockSegments::default();
            let mut moment = 0;
            for (pause, seconds) in changes {
                moment += pause;
                clock.pass_time(real(moment), seconds, 1_000_000.into(), ratio);
            }
            let later = real(one) + TimeDelta::seconds(later);
            prop_assert!(clock.time_at(real(one)) <= clock.time_at(later));
        }
    }
}
