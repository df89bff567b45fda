//! The deadline for the first token of a stream, after which the next route is asked too.

use std::pin::Pin;

use futures_util::{FutureExt as _, poll};
use prometheus::{Registry, TextEncoder};

use super::*;

const DEADLINE: Duration = Duration::from_millis(5);
/// A route's timeout, long after the deadline.
const TIMEOUT: Duration = Duration::from_millis(200);

fn limits_with(deadline: Option<Duration>) -> ModelLimits {
    ModelLimits {
        retries: 0,
        first_token_deadline: deadline,
        ..limits()
    }
}

fn hasty_models(chain: &[&Arc<Puppet>]) -> ModelRouter {
    let fallbacks = chain[1..].iter().map(|llm| route(llm)).collect();
    models_with(route(chain[0]), fallbacks, limits_with(Some(DEADLINE)))
}

/// Models whose first route times out.
fn models_with_timeout(chain: [&Arc<Puppet>; 2], limits: ModelLimits) -> ModelRouter {
    let first = Route {
        timeout: TIMEOUT,
        ..route(chain[0])
    };
    models_with(first, vec![route(chain[1])], limits)
}

fn prompt_usage() -> Usage {
    usage::estimate_usage(TokenCounter::Estimated, &ask().messages, "")
}

/// Returns the model, calls and usage of each row, by model.
fn booked(models: &ModelRouter) -> Vec<(String, u32, Usage)> {
    let rows = models.take_usage().into_iter();
    let mut rows: Vec<_> = rows.map(|(_, delta)| (delta.model, delta.calls, delta.usage)).collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows
}

fn row(model: &str, usage: Usage) -> (String, u32, Usage) {
    (model.to_owned(), 1, usage)
}

/// Returns the number of late first tokens of `model`.
fn late_first_tokens(models: &ModelRouter, model: &str) -> String {
    let registry = Registry::new();
    models.metrics().register(&registry).unwrap();
    let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    let series = format!(r#"colloquy_model_late_first_tokens_total{{model="{model}",task="reply"}} "#);
    let count = text.lines().find_map(|line| line.strip_prefix(series.as_str()));
    count.unwrap().to_owned()
}

/// Runs `opening`, which must not end before `reached`.
async fn run_until<F: Future>(mut opening: Pin<&mut F>, reached: impl Fn() -> bool) {
    let give_up_at = tokio::time::Instant::now() + Duration::from_secs(10);
    while !reached() {
        assert!(poll!(&mut opening).is_pending(), "it ended early");
        assert!(tokio::time::Instant::now() < give_up_at, "it was never reached");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn fallback_answers_in_place_of_a_slow_model() {
    let (first, second) = (Puppet::new("a", [Act::Hang]), Puppet::new("b", [Act::Say("Far.")]));
    let capacity = CallCapacity::with_places(1);
    let slow = Route {
        capacity: Some(capacity.clone()),
        ..route(&first)
    };
    let models = models_with(slow, vec![route(&second)], limits_with(Some(DEADLINE)));
    assert_eq!(late_first_tokens(&models, "a"), "0");
    let (stream, trace) = models.request_stream(&scope("t"), ask()).await;
    let tenant = scope("t");
    let place = capacity.acquire_place(tenant.tenant(), CallUrgency::Interactive, TIMEOUT);
    assert!(
        place.now_or_never().flatten().is_some(),
        "the place of the slow call is free"
    );
    assert_eq!(text_of(stream.unwrap()).await, ("Far.".to_owned(), vec![USAGE]));
    assert_eq!((trace.model.as_str(), trace.attempts, trace.error), ("b", 2, None));
    assert!(trace.first_token_millis >= Some(5.0), "{:?}", trace.first_token_millis);
    assert_eq!(booked(&models), [row("a", prompt_usage()), row("b", USAGE)]);
    assert_eq!(late_first_tokens(&models, "a"), "1");
    assert_eq!(late_first_tokens(&models, "b"), "0");
    assert_eq!(models.running_and_waiting(), (0, 0));
}

#[tokio::test]
async fn first_model_wins_if_its_text_comes_first() {
    let (first, second) = (Puppet::new("a", [Act::Wait("Long.")]), Puppet::new("b", [Act::Hang]));
    let models = hasty_models(&[&first, &second]);
    let tenant = scope("t");
    let mut opening = Box::pin(models.request_stream(&tenant, ask()));
    run_until(opening.as_mut(), || second.calls() == 1).await;
    first.go.add_permits(1);
    let (stream, trace) = opening.await;
    assert_eq!(text_of(stream.unwrap()).await, ("Long.".to_owned(), vec![USAGE]));
    assert_eq!((trace.model.as_str(), trace.attempts), ("a", 2));
    assert_eq!(booked(&models), [row("a", USAGE), row("b", prompt_usage())]);
    assert_eq!((first.calls(), second.calls()), (1, 1));
}

#[tokio::test]
async fn fallback_answers_if_the_late_model_fails() {
    let (first, second) = (Puppet::new("a", [Act::Hang]), Puppet::new("b", [Act::Wait("Far.")]));
    let models = models_with_timeout([&first, &second], limits_with(Some(DEADLINE)));
    let tenant = scope("t");
    let mut opening = Box::pin(models.request_stream(&tenant, ask()));
    let timed_out_at = tokio::time::Instant::now() + 2 * TIMEOUT;
    run_until(opening.as_mut(), || tokio::time::Instant::now() > timed_out_at).await;
    second.go.add_permits(1);
    let (stream, trace) = opening.await;
    assert_eq!(text_of(stream.unwrap()).await.0, "Far.");
    assert_eq!((trace.model.as_str(), trace.error), ("b", None));
    assert_eq!(booked(&models), [row("a", prompt_usage()), row("b", USAGE)]);
}

#[tokio::test]
async fn last_error_is_reported_if_all_models_of_a_race_fail() {
    let refused = Act::Fail(LlmError::Refused("too long".into()));
    let (first, second) = (Puppet::new("a", [Act::Hang]), Puppet::new("b", [refused]));
    let models = models_with_timeout([&first, &second], limits_with(Some(DEADLINE)));
    let (answer, trace) = models.request_stream(&scope("t"), ask()).await;
    assert!(matches!(answer.err(), Some(LlmError::Timeout)));
    assert_eq!((trace.model.as_str(), trace.attempts), ("a", 2));
    assert_eq!(booked(&models), [row("a", prompt_usage()), row("b", Usage::default())]);
}

#[tokio::test]
async fn each_model_of_a_race_has_its_own_deadline() {
    let third = Puppet::new("c", [Act::Say("Far.")]);
    for reaction in [Act::Hang, Act::Fail(LlmError::Refused("no".into()))] {
        let (first, second) = (Puppet::new("a", [Act::Hang]), Puppet::new("b", [reaction]));
        let models = hasty_models(&[&first, &second, &third]);
        let (stream, trace) = models.request_stream(&scope("t"), ask()).await;
        assert_eq!(text_of(stream.unwrap()).await.0, "Far.");
        assert_eq!((trace.model.as_str(), trace.attempts), ("c", 3));
        let rows = booked(&models);
        assert_eq!((&rows[0], &rows[2]), (&row("a", prompt_usage()), &row("c", USAGE)));
        assert_eq!((first.calls(), second.calls(), rows[1].1), (1, 1, 1));
    }
}

#[tokio::test]
async fn slow_model_is_waited_for_without_a_fallback_of_its_kind_a_deadline_or_a_stream() {
    let second = Puppet::new("b", [Act::Say("Far.")]);
    let scripted = Puppet::new("scripted", [Act::Say("Far.")]);
    let tenant = scope("t");
    let chains = [
        (vec![], Some(DEADLINE)),
        (vec![route(&scripted)], Some(DEADLINE)),
        (vec![route(&second)], None),
    ];
    for (fallbacks, deadline) in chains {
        let first = Puppet::new("a", [Act::Wait("Long.")]);
        let models = models_with(route(&first), fallbacks, limits_with(deadline));
        let mut opening = Box::pin(models.request_stream(&tenant, ask()));
        let late = tokio::time::Instant::now() + 10 * DEADLINE;
        run_until(opening.as_mut(), || tokio::time::Instant::now() > late).await;
        first.go.add_permits(1);
        assert_eq!(text_of(opening.await.0.unwrap()).await.0, "Long.");
        assert_eq!(late_first_tokens(&models, "a"), "0");
    }
    let first = Puppet::new("a", [Act::Wait("Long.")]);
    let models = hasty_models(&[&first, &second]);
    let mut asking = Box::pin(models.request_completion(&tenant, ask()));
    let late = tokio::time::Instant::now() + 10 * DEADLINE;
    run_until(asking.as_mut(), || tokio::time::Instant::now() > late).await;
    first.go.add_permits(1);
    assert_eq!(asking.await.0.unwrap().text, "Long.");
    assert_eq!(second.calls(), 0);
}

#[tokio::test]
async fn model_that_loses_races_is_given_a_rest() {
    let first = Puppet::new("a", [Act::Hang]);
    let second = Puppet::new("b", [Act::Say("Far.")]);
    let limits = ModelLimits {
        breaker_timeouts: 2,
        breaker_open: Duration::from_mins(1),
        ..limits_with(Some(DEADLINE))
    };
    let models = models_with(route(&first), vec![route(&second)], limits);
    for calls in [1, 2, 2] {
        let (answer, _) = models.request_stream(&scope("t"), ask()).await;
        assert_eq!(text_of(answer.unwrap()).await.0, "Far.");
        assert_eq!(first.calls(), calls);
    }
}

#[tokio::test]
async fn scripted_model_waits_for_a_late_model_while_another_has_failed() {
    let first = Puppet::new("a", [Act::Wait("Long.")]);
    let second = Puppet::new("b", [Act::Fail(LlmError::Refused("no".into()))]);
    let scripted = Puppet::new("scripted", [Act::Say("Far.")]);
    let models = hasty_models(&[&first, &second, &scripted]);
    let tenant = scope("t");
    let mut opening = Box::pin(models.request_stream(&tenant, ask()));
    let late = tokio::time::Instant::now() + 10 * DEADLINE;
    run_until(opening.as_mut(), || tokio::time::Instant::now() > late).await;
    first.go.add_permits(1);
    assert_eq!(text_of(opening.await.0.unwrap()).await.0, "Long.");
    assert_eq!((second.calls(), scripted.calls()), (1, 0));
}
