//! Measures how long a turn took, and how much of the time the server added to that of the models.

use std::time::{Duration, Instant};

use crate::models::model_time;
use colloquy_ports::clock::Clock;

/// The clock of one turn, shared by the steps that run in parallel.
pub(super) struct Stopwatch<'a> {
    pub(super) clock: &'a dyn Clock,
    accepted_at: Instant,
}

impl<'a> Stopwatch<'a> {
    pub(super) const fn start_at(accepted_at: Instant, clock: &'a dyn Clock) -> Self {
        Self { clock, accepted_at }
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
    /// Milliseconds since the line was accepted.
    pub(super) fn total_ms(&self) -> f64 {
        to_millis(self.clock.monotonic_now().saturating_duration_since(self.accepted_at))
    }
    /// Milliseconds since the line was accepted, without those in which a model or an embedder was asked.
    pub(super) fn added_ms(&self) -> f64 {
        (self.total_ms() - to_millis(model_time())).max(0.0)
    }
}

pub(super) fn to_millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
