//! A circuit breaker for optional stores, which avoids repeated waits. After a few failed calls, calls fail at once for
//! a moment. Then one call at a time probes the store, while all other calls still fail at once.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use recloser::{AsyncRecloser, Recloser};

use colloquy_ports::{StoreError, StoreResult};

/// How long a store gets no calls after failures.
const OPEN_DURATION: Duration = Duration::from_secs(1);
/// The number of recent calls whose share of failures counts.
const SAMPLED_CALLS: usize = 4;

/// The breaker of one store.
pub(super) struct StoreBreaker {
    store: &'static str,
    recloser: AsyncRecloser,
    /// True after a refused call, until the store answers a call. Without this flag, `recloser` would let all later
    /// calls wait for a store that accepts connections but stays silent.
    rested: AtomicBool,
    /// True while a probe is running.
    trial: AtomicBool,
}

/// Marks the running probe. The next probe may start when this probe has ended or was dropped.
struct TrialGuard<'a>(&'a AtomicBool);

impl Drop for TrialGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl StoreBreaker {
    /// Returns the breaker of `store`, named so in errors.
    pub(super) fn new(store: &'static str) -> Self {
        let recloser = Recloser::custom()
            .error_rate(0.5)
            .closed_len(SAMPLED_CALLS)
            .half_open_len(1)
            .open_wait(OPEN_DURATION)
            .build();
        Self {
            store,
            recloser: AsyncRecloser::from(recloser),
            rested: AtomicBool::new(false),
            trial: AtomicBool::new(false),
        }
    }

    /// Runs `work`, unless the store has just failed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] also if `work` takes longer than `within`, or while the store gets no calls.
    pub(super) async fn call_within<T>(
        &self,
        within: Duration,
        work: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        let alone = if self.rested.load(Ordering::Acquire) {
            if self.trial.swap(true, Ordering::AcqRel) {
                return Err(self.resting_error());
            }
            Some(TrialGuard(&self.trial))
        } else {
            None
        };
        let attempt = async {
            tokio::time::timeout(within, work).await.unwrap_or_else(|_elapsed| {
                let late = format!("{} does not answer in time", self.store);
                Err(StoreError::Unavailable(late))
            })
        };
        let outcome = self.recloser.call_with(is_outage, attempt).await;
        let answer = match outcome {
            Ok(answer) => Ok(answer),
            Err(recloser::Error::Inner(error)) => Err(error),
            Err(recloser::Error::Rejected) => {
                self.rested.store(true, Ordering::Release);
                return Err(self.resting_error());
            }
        };
        if !matches!(&answer, Err(error) if is_outage(error)) {
            self.rested.store(false, Ordering::Release);
        }
        drop(alone);
        answer
    }

    fn resting_error(&self) -> StoreError {
        StoreError::Unavailable(format!("{} failed a moment ago", self.store))
    }
}

/// Other errors concern one call only and do not predict the next.
fn is_outage(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(_))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const LONG: Duration = Duration::from_mins(10);

    async fn fails(breaker: &StoreBreaker) -> StoreError {
        let gone = async { Err::<(), _>(StoreError::Unavailable("gone".into())) };
        breaker.call_within(LONG, gone).await.unwrap_err()
    }

    async fn rests(breaker: &StoreBreaker) -> bool {
        fails(breaker).await.to_string().contains("a moment ago")
    }

    #[tokio::test]
    async fn breaker_probes_a_store_with_one_call_at_a_time() {
        let breaker = StoreBreaker::new("it");
        while !rests(&breaker).await {}
        let silent = || breaker.call_within(LONG, std::future::pending::<StoreResult<()>>());
        // Waits for the end of the pause.
        let mut trial = loop {
            let mut call = Box::pin(silent());
            if call.as_mut().now_or_never().is_none() {
                break call;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        for _ in 0..8 {
            assert!(silent().now_or_never().is_some(), "others do not wait for it");
        }
        assert!(trial.as_mut().now_or_never().is_none());
        drop(trial);
        let answered = breaker.call_within(LONG, async { Ok(()) });
        answered.await.unwrap();
        let (one, other) = (Box::pin(silent()), Box::pin(silent()));
        assert!(one.now_or_never().is_none(), "it is back");
        assert!(other.now_or_never().is_none(), "for everybody");
    }
}
