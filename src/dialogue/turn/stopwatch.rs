//! Measures how long a turn took, and how much of the time went into waiting for models.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use colloquy_ports::clock::Clock;

/// The clock of one turn, shared by the steps that run in parallel.
pub(super) struct Stopwatch<'a> {
    clock: &'a dyn Clock,
    accepted_at: Instant,
    /// The periods of waiting for a model or an embedder. Periods may overlap.
    waits: Mutex<Vec<(Instant, Instant)>>,
}

impl<'a> Stopwatch<'a> {
    pub(super) fn start_at(accepted_at: Instant, clock: &'a dyn Clock) -> Self {
        Self {
            clock,
            accepted_at,
            waits: Mutex::new(Vec::new()),
        }
    }
    /// Runs `work` and returns its duration in milliseconds.
    pub(super) async fn time_work<T>(&self, work: impl Future<Output = T>) -> (T, f64) {
        let from = self.clock.monotonic_now();
        let output = work.await;
        (
            output,
            to_millis(self.clock.monotonic_now().saturating_duration_since(from)),
        )
    }
    /// Runs `call`, a wait for a model or an embedder, and returns its duration in milliseconds.
    pub(super) async fn time_wait<T>(&self, call: impl Future<Output = T>) -> (T, f64) {
        let from = self.clock.monotonic_now();
        let output = call.await;
        let to = self.clock.monotonic_now();
        self.waits.lock().push((from, to));
        (output, to_millis(to.saturating_duration_since(from)))
    }
    /// Milliseconds since the line was accepted.
    pub(super) fn total_ms(&self) -> f64 {
        to_millis(self.clock.monotonic_now().saturating_duration_since(self.accepted_at))
    }
    /// Milliseconds since the line was accepted, without the time in model or embedder calls.
    pub(super) fn own_ms(&self) -> f64 {
        (self.total_ms() - to_millis(union_length(self.waits.lock().clone()))).max(0.0)
    }
}

pub(super) fn to_millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

/// Returns the total time that at least one interval covers.
fn union_length(mut intervals: Vec<(Instant, Instant)>) -> Duration {
    intervals.sort_unstable();
    let mut sum = Duration::ZERO;
    let mut counted_to: Option<Instant> = None;
    for (from, to) in intervals {
        let from = counted_to.map_or(from, |counted| counted.max(from));
        sum += to.saturating_duration_since(from);
        counted_to = Some(counted_to.map_or(to, |counted| counted.max(to)));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use colloquy_ports::clock::SystemClock;

    #[test]
    fn overlapping_waits_count_once() {
        let start = SystemClock.monotonic_now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(union_length(vec![]), Duration::ZERO);
        let waits = vec![(at(20), at(30)), (at(0), at(10)), (at(5), at(8)), (at(7), at(12))];
        assert_eq!(union_length(waits), Duration::from_millis(22));
    }
}
