//! The time that models and embedders take within one piece of work. Waits for a place, and pauses between attempts, are
//! no part of it.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use colloquy_ports::clock::Clock;

tokio::task_local! {
    /// The periods in which a model or an embedder was asked. Periods may overlap.
    static MODEL_PERIODS: RefCell<Vec<Period>>;
}

type Period = (Instant, Instant);

/// Runs `work` with a list of the periods in which models were asked. Calls in spawned tasks are not included.
pub(crate) async fn with_model_time<F: Future>(work: F) -> F::Output {
    MODEL_PERIODS.scope(RefCell::default(), work).await
}

/// Runs a part of a call in which the server only waits for the model or the embedder. A part that is given up counts up
/// to its end.
pub(crate) async fn time_model<F: Future>(clock: &dyn Clock, call: F) -> F::Output {
    let _period = OpenPeriod {
        clock,
        from: clock.monotonic_now(),
    };
    call.await
}

/// A period that ends on drop.
struct OpenPeriod<'a> {
    clock: &'a dyn Clock,
    from: Instant,
}

impl Drop for OpenPeriod<'_> {
    fn drop(&mut self) {
        let period = (self.from, self.clock.monotonic_now());
        // Fails without a surrounding list, which is fine.
        let _ = MODEL_PERIODS.try_with(|periods| periods.borrow_mut().push(period));
    }
}

/// Returns the time of the surrounding work until now in which a model or an embedder was asked. Zero without a list.
pub(crate) fn model_time() -> Duration {
    let periods = MODEL_PERIODS.try_with(|periods| periods.borrow().clone());
    union_length(periods.unwrap_or_default())
}

/// Returns the total time that at least one period covers.
fn union_length(mut periods: Vec<Period>) -> Duration {
    periods.sort_unstable();
    let mut sum = Duration::ZERO;
    let mut counted_to: Option<Instant> = None;
    for (from, to) in periods {
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
    fn overlapping_periods_count_once() {
        let start = SystemClock.monotonic_now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(union_length(vec![]), Duration::ZERO);
        let periods = vec![(at(20), at(30)), (at(0), at(10)), (at(5), at(8)), (at(7), at(12))];
        assert_eq!(union_length(periods), Duration::from_millis(22));
    }

    #[tokio::test]
    async fn only_calls_within_the_work_count() {
        let call = || tokio::time::sleep(Duration::from_millis(10));
        time_model(&SystemClock, call()).await;
        assert_eq!(model_time(), Duration::ZERO);
        let within = with_model_time(async {
            let began_at = SystemClock.monotonic_now();
            call().await;
            time_model(&SystemClock, call()).await;
            let given_up = tokio::time::timeout(Duration::from_millis(5), time_model(&SystemClock, call()));
            assert!(given_up.await.is_err());
            (model_time(), SystemClock.monotonic_now() - began_at)
        });
        let (model_time, whole_time) = within.await;
        assert!(model_time >= Duration::from_millis(15), "{model_time:?}");
        assert!(
            whole_time >= model_time + Duration::from_millis(10),
            "{model_time:?} of {whole_time:?}"
        );
    }
}
