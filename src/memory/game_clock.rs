//! The clock of a world: the moment of the game at every real moment (docs/algorithms.md#game-time).
//!
//! Changes of the world's state move the clock. Nothing else is stored: the age of a fact or a turn follows from its real
//! moment and the segments of the clock. A rewind therefore leaves nothing behind.

use chrono::{DateTime, Datelike as _, Utc};

use super::{
    authored::WorldSettings,
    calendar::{Calendar, GameMoment},
    state::WorldState,
};
pub use super::{
    clock_segments::{ClockSegment, ClockSegments, MAX_SEGMENTS},
    clock_settings::{ClockSettings, MAX_CLOCK_RATIO},
};

/// Longest time that passes with one event, in days.
pub const MAX_DAYS_PASSED: i64 = 10_000;

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
        let now = self.game_time_at(real.max(last));
        debug_assert!(
            self.segments.last().is_none_or(|last| now.time >= last.game),
            "the present of a game is not before the last change of its clock"
        );
        now
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

    use super::{
        super::{calendar::GameTime, clock_segments::MAX_SEGMENTS},
        *,
    };
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
