//! Limits of the calls of models.

use std::time::Duration;

/// Limits for retries, breakers and concurrency.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelLimits {
    /// Retries on a route after the first attempt; 2.
    pub retries: usize,
    /// The first pause between attempts, doubling, jittered; 100 ms.
    pub backoff_min: Duration,
    /// The longest pause; 2 s.
    pub backoff_max: Duration,
    /// A longer `Retry-After` ends the attempts on the route; 5 s.
    pub retry_after_max: Duration,
    /// The longest wait for a stream's first token before the next route is asked too; 4 s. `None`: no limit.
    pub first_token_deadline: Option<Duration>,
    /// The number of recent calls that a breaker considers; 20.
    pub breaker_window: usize,
    /// The share of failures among them that opens the breaker, in (0, 1]; 0.5.
    pub breaker_failure_share: f32,
    /// The consecutive timeouts that open the breaker regardless of the share; 3.
    pub breaker_timeouts: u32,
    /// How long the breaker stays open; 10 s.
    pub breaker_open: Duration,
    /// Trial calls of a half-open breaker; 3.
    pub breaker_trials: usize,
    /// Concurrent model and embedder calls of one tenant; 64.
    pub tenant_concurrency: usize,
    /// The longest duration of an embedder call, retries included; 10 s.
    pub embed_timeout: Duration,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self {
            retries: 2,
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(2),
            retry_after_max: Duration::from_secs(5),
            first_token_deadline: Some(Duration::from_secs(4)),
            breaker_window: 20,
            breaker_failure_share: 0.5,
            breaker_timeouts: 3,
            breaker_open: Duration::from_secs(10),
            breaker_trials: 3,
            tenant_concurrency: 64,
            embed_timeout: Duration::from_secs(10),
        }
    }
}
