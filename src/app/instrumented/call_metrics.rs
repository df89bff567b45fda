//! The time and the outcome of calls.

use prometheus::{
    HistogramVec, IntCounterVec, Registry, register_histogram_vec_with_registry, register_int_counter_vec_with_registry,
};

use colloquy_ports::StoreResult;

/// The time and the outcome of each call to a store.
pub(super) struct CallMetrics {
    calls: IntCounterVec,
    seconds: HistogramVec,
}

impl CallMetrics {
    /// Registers the counter and the histogram `names` for calls to `called`.
    pub(super) fn register_in(
        registry: &Registry,
        [calls, seconds]: [&str; 2],
        called: &str,
        buckets: &[f64],
    ) -> prometheus::Result<Self> {
        Ok(Self {
            calls: register_int_counter_vec_with_registry!(
                calls,
                format!("Calls to {called}, by what came of them"),
                &["call", "outcome"],
                registry
            )?,
            seconds: register_histogram_vec_with_registry!(
                seconds,
                format!("Seconds per call to {called}"),
                &["call"],
                buckets.to_vec(),
                registry
            )?,
        })
    }

    pub(super) async fn observe_call<T>(
        &self,
        call: &str,
        running: impl Future<Output = StoreResult<T>>,
        outcome: impl FnOnce(&T) -> &'static str,
    ) -> StoreResult<T> {
        let timer = self.seconds.with_label_values(&[call]).start_timer();
        let result = running.await;
        timer.observe_duration();
        let outcome = result.as_ref().map_or("failed", outcome);
        self.calls.with_label_values(&[call, outcome]).inc();
        result
    }
}
