//! A clock that does not follow a jump of the machine's clock at once. A wrong time for a moment would stay in all that
//! was written meanwhile, and retention would delete by it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, TimeDelta, Utc};
use parking_lot::Mutex;

use colloquy_ports::clock::Clock;

/// A larger difference from the time that passed is a jump. Time servers correct less.
const MAX_STEP: TimeDelta = TimeDelta::minutes(1);
/// How long the machine's clock must show the new time before it counts. Until then, time goes on as it passes.
const CONFIRM_AFTER: Duration = Duration::from_mins(10);
/// How long after a jump nothing is deleted by its age.
const SETTLE_AFTER: Duration = Duration::from_hours(24);

pub struct SteadyClock {
    machine: Arc<dyn Clock>,
    state: Mutex<ClockState>,
}

struct ClockState {
    /// The last time that counted, and when it was read.
    time: DateTime<Utc>,
    read_at: Instant,
    /// Since when the machine's clock shows another time.
    jumped_at: Option<Instant>,
    /// When a jump last counted.
    confirmed_at: Option<Instant>,
}

impl SteadyClock {
    pub fn new(machine: Arc<dyn Clock>) -> Self {
        let state = Mutex::new(ClockState {
            time: machine.now(),
            read_at: machine.monotonic_now(),
            jumped_at: None,
            confirmed_at: None,
        });
        Self { machine, state }
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> DateTime<Utc> {
        let wall = self.machine.now();
        let now = self.machine.monotonic_now();
        let mut state = self.state.lock();
        let elapsed = now.saturating_duration_since(state.read_at);
        let expected = state.time + TimeDelta::from_std(elapsed).unwrap_or_default();
        if (wall - expected).abs() > MAX_STEP {
            let jumped_at = *state.jumped_at.get_or_insert_with(|| {
                let off_s = (wall - expected).num_seconds();
                tracing::error!(off_s, "the machine's clock jumped; the jump is ignored for ten minutes");
                now
            });
            if now.saturating_duration_since(jumped_at) < CONFIRM_AFTER {
                return expected;
            }
            tracing::warn!("the machine's clock is accepted again; deletion by age pauses for a day");
            state.confirmed_at = Some(now);
        }
        (state.time, state.read_at, state.jumped_at) = (wall, now, None);
        wall
    }

    fn monotonic_now(&self) -> Instant {
        self.machine.monotonic_now()
    }

    fn is_settled(&self) -> bool {
        let state = self.state.lock();
        let is_long_ago = |moment| self.machine.monotonic_now().saturating_duration_since(moment) >= SETTLE_AFTER;
        state.jumped_at.is_none() && state.confirmed_at.is_none_or(is_long_ago)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machine's clock, which can jump.
    struct JumpingClock(Mutex<(DateTime<Utc>, Instant)>);

    impl JumpingClock {
        fn pass(&self, time: Duration) {
            let mut both = self.0.lock();
            *both = (both.0 + time, both.1 + time);
        }
        fn jump(&self, delta: TimeDelta) {
            self.0.lock().0 += delta;
        }
    }

    impl Clock for JumpingClock {
        fn now(&self) -> DateTime<Utc> {
            self.0.lock().0
        }
        fn monotonic_now(&self) -> Instant {
            self.0.lock().1
        }
    }

    fn clocks() -> (Arc<JumpingClock>, SteadyClock) {
        let start = DateTime::from_timestamp(1_800_000_000, 0).expect("a moment");
        let began = colloquy_ports::clock::SystemClock.monotonic_now();
        let machine = Arc::new(JumpingClock(Mutex::new((start, began))));
        (machine.clone(), SteadyClock::new(machine))
    }

    #[test]
    fn clock_that_is_wrong_for_a_moment_leaves_no_time_behind() {
        for days in [400, -400] {
            let (machine, clock) = clocks();
            let start = clock.now();
            machine.jump(TimeDelta::days(days));
            machine.pass(Duration::from_mins(5));
            assert_eq!(clock.now(), start + TimeDelta::minutes(5));
            assert!(!clock.is_settled());
            machine.jump(TimeDelta::days(-days));
            machine.pass(Duration::from_mins(6));
            assert_eq!(clock.now(), start + TimeDelta::minutes(11));
            assert!(clock.is_settled());
        }
    }

    #[test]
    fn clock_that_was_set_counts_after_a_while_and_deletes_nothing_for_a_day() {
        let (machine, clock) = clocks();
        machine.jump(TimeDelta::seconds(50));
        assert_eq!(clock.now(), machine.now(), "a time server corrects as much");
        machine.jump(TimeDelta::hours(5));
        assert!(clock.now() < machine.now());
        machine.pass(Duration::from_mins(10));
        assert_eq!(clock.now(), machine.now());
        assert!(!clock.is_settled());
        machine.pass(Duration::from_hours(24));
        assert_eq!(clock.now(), machine.now());
        assert!(clock.is_settled());
    }
}
