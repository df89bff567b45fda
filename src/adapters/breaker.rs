//! A store that can be done without is not waited for again and again: after a few calls that failed, calls
//! fail at once for a moment.

use std::time::Duration;

use recloser::{AsyncRecloser, Recloser};

use crate::ports::{StoreError, StoreResult};

/// How long a store is left alone after it has failed.
const REST: Duration = Duration::from_secs(1);
/// Of how many calls the share that failed is taken.
const CALLS: usize = 4;

/// Of one store.
pub(super) struct Breaker {
    store: &'static str,
    recloser: AsyncRecloser,
}

impl Breaker {
    /// `store` is its name in errors.
    pub(super) fn new(store: &'static str) -> Self {
        let recloser = Recloser::custom()
            .error_rate(0.5)
            .closed_len(CALLS)
            .half_open_len(1)
            .open_wait(REST)
            .build();
        Self {
            store,
            recloser: AsyncRecloser::from(recloser),
        }
    }

    /// Runs `work`, unless the store has just failed.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] too when it takes longer than `within`, and when the store is left alone.
    pub(super) async fn call<T>(&self, within: Duration, work: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        let trial = async {
            tokio::time::timeout(within, work).await.unwrap_or_else(|_elapsed| {
                let late = format!("{} does not answer in time", self.store);
                Err(StoreError::Unavailable(late))
            })
        };
        match self.recloser.call_with(is_away, trial).await {
            Ok(answer) => Ok(answer),
            Err(recloser::Error::Inner(error)) => Err(error),
            Err(recloser::Error::Rejected) => {
                let resting = format!("{} failed a moment ago", self.store);
                Err(StoreError::Unavailable(resting))
            }
        }
    }
}

/// A refusal of one call says nothing about the next.
fn is_away(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(_))
}
