//! A store that can be done without is not waited for again and again: after a few calls that failed, calls
//! fail at once for a moment; then one call at a time tells whether it is back, and the others still fail at once.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use recloser::{AsyncRecloser, Recloser};

use crate::ports::{StoreError, StoreResult};

/// How long a store is left alone after it has failed.
const OPEN_DURATION: Duration = Duration::from_secs(1);
/// Of how many calls the share that failed is taken.
const SAMPLED_CALLS: usize = 4;

/// Of one store.
pub(super) struct StoreBreaker {
    store: &'static str,
    recloser: AsyncRecloser,
    /// Calls were refused, and none has been answered since: of those that come after the rest, `recloser` would
    /// have all wait for a store that may accept connections and say nothing.
    rested: AtomicBool,
    /// One of them is on its way.
    trial: AtomicBool,
}

/// The call that tells whether a store is back. Others may when it has ended, or was given up.
struct TrialGuard<'a>(&'a AtomicBool);

impl Drop for TrialGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl StoreBreaker {
    /// `store` is its name in errors.
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
    /// [`StoreError::Unavailable`] too when it takes longer than `within`, and when the store is left alone.
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

/// A refusal of one call says nothing about the next.
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
        // Until the rest is over.
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
