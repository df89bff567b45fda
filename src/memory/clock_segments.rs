//! The stretches of real time in which the clock of a world runs evenly.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{calendar::GameTime, clock_settings::MAX_CLOCK_RATIO};

/// Most segments of a folded clock. Above, every second of the older half goes.
pub const MAX_SEGMENTS: usize = 4_096;

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
    pub(super) fn time_at(&self, moment: DateTime<Utc>) -> GameTime {
        self.game.plus_seconds(scaled_seconds(moment, self.from, self.ratio))
    }
}

/// The whole game seconds from `from` until `moment`; 0 if `moment` is earlier.
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
pub struct ClockSegments(pub(super) Vec<ClockSegment>);

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
        debug_assert!(
            self.0
                .iter()
                .rev()
                .take(2)
                .is_sorted_by(|later, earlier| later.from > earlier.from),
            "each segment of a clock begins after the segment before"
        );
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
        debug_assert!(self.0.first() == segments.first(), "the first segment of a clock stays");
        debug_assert!(self.0.last() == segments.last(), "the present segment of a clock stays");
    }
}
