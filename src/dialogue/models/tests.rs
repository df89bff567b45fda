#![allow(clippy::unwrap_used)]
mod cut;
mod first_token;
use std::{collections::VecDeque, time::Duration};

use async_trait::async_trait;
use futures_util::{TryStreamExt, stream};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::*;
use colloquy_memory::calibration::Calibration;
use colloquy_ports::{
    clock::SystemClock,
    embedder::EmbedderInfo,
    llm::{ChatRole, Llm, LlmRequest},
};

/// The reaction of a [`Puppet`] to a call.
#[derive(Clone)]
enum Act {
    Say(&'static str),
    /// Says the text, then fails.
    Break(&'static str, LlmError),
    Fail(LlmError),
    Hang,
    /// Waits for a permit of the puppet's gate, then says the text.
    Wait(&'static str),
}

const USAGE: Usage = Usage {
    prompt_tokens: 10,
    cached_tokens: 4,
    completion_tokens: 2,
};

/// A model that follows a script, then repeats its last act.
struct Puppet {
    name: &'static str,
    acts: Mutex<VecDeque<Act>>,
    seen: Mutex<Vec<LlmRequest>>,
    go: Semaphore,
    reports_usage: bool,
}

impl Puppet {
    fn new(name: &'static str, acts: impl IntoIterator<Item = Act>) -> Arc<Self> {
        Self::with_usage(name, acts, true)
    }
    fn with_usage(name: &'static str, acts: impl IntoIterator<Item = Act>, reports_usage: bool) -> Arc<Self> {
        Arc::new(Self {
            name,
            acts: Mutex::new(acts.into_iter().collect()),
            seen: Mutex::default(),
            go: Semaphore::new(0),
            reports_usage,
        })
    }
    fn calls(&self) -> usize {
        self.seen.lock().len()
    }
    async fn act(&self, request: &LlmRequest) -> Result<(&'static str, Option<LlmError>), LlmError> {
        self.seen.lock().push(request.clone());
        let act = {
            let mut acts = self.acts.lock();
            if acts.len() > 1 {
                acts.pop_front().unwrap()
            } else {
                acts[0].clone()
            }
        };
        match act {
            Act::Say(text) => Ok((text, None)),
            Act::Break(text, error) => Ok((text, Some(error))),
            Act::Fail(error) => Err(error),
            Act::Hang => std::future::pending().await,
            Act::Wait(text) => {
                self.go.acquire().await.unwrap().forget();
                Ok((text, None))
            }
        }
    }
}

#[async_trait]
impl Llm for Puppet {
    async fn complete_chat(&self, request: &LlmRequest) -> Result<Completion, LlmError> {
        let (text, error) = self.act(request).await?;
        match error {
            Some(error) => Err(error),
            None => Ok(Completion {
                text: text.to_owned(),
                usage: if self.reports_usage { USAGE } else { Usage::default() },
                model: self.name.to_owned(),
                at_cap: false,
                tool_calls: Vec::new(),
            }),
        }
    }
    async fn stream_chat(&self, request: &LlmRequest) -> Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError> {
        let (text, error) = self.act(request).await?;
        let mut chunks: Vec<_> = text
            .split_inclusive(' ')
            .map(|word| Ok(Chunk::Text(word.to_owned())))
            .collect();
        match error {
            Some(error) => chunks.push(Err(error)),
            None if self.reports_usage => chunks.push(Ok(Chunk::Usage(USAGE))),
            None => {}
        }
        Ok(stream::iter(chunks).boxed())
    }
    fn model(&self) -> &str {
        self.name
    }
    fn is_offline(&self) -> bool {
        self.name == "scripted"
    }
}

fn limits() -> ModelLimits {
    ModelLimits {
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(2),
        breaker_open: Duration::from_millis(50),
        ..ModelLimits::default()
    }
}

fn route(llm: &Arc<Puppet>) -> Route {
    Route::new(Task::Reply, llm.clone() as Arc<dyn Llm>)
}

fn models_with(first: Route, fallbacks: Vec<Route>, limits: ModelLimits) -> ModelRouter {
    let table = RouteTable::with_single_model(&first.llm).with_chain(Task::Reply, first, fallbacks);
    ModelRouter::with_limits(table, limits, Arc::new(SystemClock))
}

fn models(chain: &[&Arc<Puppet>]) -> ModelRouter {
    models_with(
        route(chain[0]),
        chain[1..].iter().map(|llm| route(llm)).collect(),
        limits(),
    )
}

fn scope(tenant: &str) -> TenantScope {
    TenantScope::new(tenant.parse().unwrap())
}

fn ask() -> ModelRequest {
    ModelRequest {
        task: Task::Reply,
        messages: vec![ChatMessage::new(ChatRole::User, "How long is the road?")],
        json_schema: None,
        model: None,
        more_room: false,
        client: None,
    }
}

fn down() -> Act {
    Act::Fail(LlmError::Unavailable("connection refused".into()))
}

async fn text_of(stream: BoxStream<'static, Result<Chunk, LlmError>>) -> (String, Vec<Usage>) {
    let chunks: Vec<Chunk> = stream.try_collect().await.unwrap();
    let mut text = String::new();
    let mut usages = Vec::new();
    for chunk in chunks {
        match chunk {
            Chunk::Text(piece) => {
                assert!(usages.is_empty(), "text after the usage");
                text.push_str(&piece);
            }
            Chunk::AtCap | Chunk::ToolCalls(_) => {}
            Chunk::Usage(usage) => usages.push(usage),
        }
    }
    (text, usages)
}

#[tokio::test]
async fn transient_failure_is_retried() {
    let puppet = Puppet::new(
        "a",
        [down(), Act::Fail(LlmError::Broken("cut".into())), Act::Say("Long.")],
    );
    let (answer, trace) = models(&[&puppet]).request_completion(&scope("t"), ask()).await;
    assert_eq!(answer.unwrap().text, "Long.");
    assert_eq!((trace.attempts, trace.model.as_str(), trace.error), (3, "a", None));
    assert_eq!(trace.usage, USAGE);
}

#[tokio::test]
async fn empty_answer_counts_as_a_failure() {
    let puppet = Puppet::new("a", [Act::Say(" "), Act::Say("Long.")]);
    let (answer, trace) = models(&[&puppet]).request_completion(&scope("t"), ask()).await;
    assert_eq!((answer.unwrap().text.as_str(), trace.attempts), ("Long.", 2));
    let puppet = Puppet::new("a", [Act::Say(""), Act::Say("Long.")]);
    let (stream, trace) = models(&[&puppet]).request_stream(&scope("t"), ask()).await;
    assert_eq!(
        (text_of(stream.unwrap()).await.0.as_str(), trace.attempts),
        ("Long.", 2)
    );
}

#[tokio::test]
async fn attempts_are_bounded_and_then_the_next_route_is_tried() {
    let (first, second) = (Puppet::new("a", [down()]), Puppet::new("b", [Act::Say("Far.")]));
    let models = models(&[&first, &second]);
    let (answer, trace) = models.request_completion(&scope("t"), ask()).await;
    assert_eq!(answer.unwrap().model, "b");
    assert_eq!((first.calls(), second.calls()), (3, 1));
    assert_eq!((trace.attempts, trace.model.as_str()), (4, "b"));
    let mut usage = models.take_usage();
    usage.sort_by(|a, b| a.1.model.cmp(&b.1.model));
    let rows: Vec<_> = usage
        .iter()
        .map(|(scope, delta)| {
            (
                scope.tenant().as_str(),
                delta.task,
                delta.model.as_str(),
                delta.calls,
                delta.usage,
            )
        })
        .collect();
    assert_eq!(
        rows,
        [("t", "reply", "a", 3, Usage::default()), ("t", "reply", "b", 1, USAGE)]
    );
    assert!(models.take_usage().is_empty(), "usage is taken once");
}

#[tokio::test]
async fn permanent_failure_is_not_retried() {
    for error in [LlmError::Refused("no such model".into()), LlmError::Timeout] {
        let (first, second) = (
            Puppet::new("a", [Act::Fail(error)]),
            Puppet::new("b", [Act::Say("Far.")]),
        );
        let (answer, _) = models(&[&first, &second]).request_completion(&scope("t"), ask()).await;
        assert_eq!(answer.unwrap().text, "Far.");
        assert_eq!(first.calls(), 1);
    }
}

#[tokio::test]
async fn error_of_the_last_route_is_reported() {
    let (first, second) = (
        Puppet::new("a", [down()]),
        Puppet::new("b", [Act::Fail(LlmError::Refused("too long".into()))]),
    );
    let (answer, trace) = models(&[&first, &second]).request_completion(&scope("t"), ask()).await;
    assert!(matches!(answer, Err(LlmError::Refused(_))));
    assert!(trace.error.unwrap().contains("too long"));
}

#[tokio::test]
async fn route_is_limited_by_its_timeout() {
    let (first, second) = (Puppet::new("a", [Act::Hang]), Puppet::new("b", [Act::Say("Far.")]));
    let mut hurried = route(&first);
    hurried.timeout = Duration::from_millis(10);
    let models = models_with(hurried, vec![route(&second)], limits());
    let (answer, trace) = models.request_completion(&scope("t"), ask()).await;
    assert_eq!(answer.unwrap().text, "Far.");
    assert!(trace.millis >= 10.0, "{}", trace.millis);
    let (stream, _) = models.request_stream(&scope("t"), ask()).await;
    assert_eq!(text_of(stream.unwrap()).await.0, "Far.");
}

#[tokio::test]
async fn retry_after_is_respected_within_bounds() {
    let limited = |ms| {
        Act::Fail(LlmError::RateLimited {
            retry_after: Some(Duration::from_millis(ms)),
        })
    };
    let puppet = Puppet::new("a", [limited(30), Act::Say("Long.")]);
    let (answer, trace) = models(&[&puppet]).request_completion(&scope("t"), ask()).await;
    assert!(answer.is_ok());
    assert!(trace.millis >= 30.0, "waited only {} ms", trace.millis);
    let (first, second) = (
        Puppet::new("a", [limited(60_000)]),
        Puppet::new("b", [Act::Say("Far.")]),
    );
    let (answer, _) = models(&[&first, &second]).request_completion(&scope("t"), ask()).await;
    assert_eq!((answer.unwrap().text.as_str(), first.calls()), ("Far.", 1));
}

#[tokio::test]
async fn retry_delay_longer_than_the_route_timeout_is_skipped() {
    let limited = LlmError::RateLimited {
        retry_after: Some(Duration::from_secs(4)),
    };
    let puppet = Puppet::new("a", [Act::Fail(limited)]);
    let mut hurried = route(&puppet);
    hurried.timeout = Duration::from_secs(2);
    let (answer, trace) = models_with(hurried, vec![], limits())
        .request_completion(&scope("t"), ask())
        .await;
    assert!(matches!(answer, Err(LlmError::RateLimited { .. })));
    assert!(trace.millis < 1_000.0, "{}", trace.millis);
}

#[tokio::test]
async fn stream_falls_back_before_its_first_token_and_never_after() {
    let (first, second) = (
        Puppet::new("a", [down()]),
        Puppet::new("b", [Act::Say("Far and wide.")]),
    );
    let (stream, trace) = models(&[&first, &second]).request_stream(&scope("t"), ask()).await;
    assert_eq!(
        text_of(stream.unwrap()).await,
        ("Far and wide.".to_owned(), vec![USAGE])
    );
    assert_eq!((trace.attempts, trace.model.as_str()), (4, "b"));
    assert_eq!(trace.first_token_millis, Some(trace.millis));

    let broken = Act::Break("Far and ", LlmError::Broken("cut".into()));
    let (first, second) = (Puppet::new("a", [broken]), Puppet::new("b", [Act::Say("Far.")]));
    let (stream, trace) = models(&[&first, &second]).request_stream(&scope("t"), ask()).await;
    let chunks: Vec<_> = stream.unwrap().collect().await;
    assert_eq!(chunks.len(), 3);
    assert!(matches!(&chunks[1], Ok(Chunk::Text(text)) if text == "and "));
    assert!(matches!(chunks[2], Err(LlmError::Broken(_))));
    assert_eq!((first.calls(), second.calls(), trace.attempts), (1, 0, 1));
}

#[tokio::test]
async fn stream_ends_with_usage_even_when_unreported() {
    let puppet = Puppet::with_usage("a", [Act::Say("Far and wide.")], false);
    let models = models(&[&puppet]);
    let (stream, _) = models.request_stream(&scope("t"), ask()).await;
    let counted = usage::estimate_usage(TokenCounter::Estimated, &ask().messages, "Far and wide.");
    assert_ne!(counted, Usage::default());
    assert_eq!(text_of(stream.unwrap()).await.1, [counted]);
    assert_eq!(models.take_usage()[0].1.usage, counted);
    let (answer, trace) = models.request_completion(&scope("t"), ask()).await;
    assert_eq!((answer.unwrap().usage, trace.usage), (counted, counted));
}

#[tokio::test]
async fn breaker_rests_a_failing_model_and_probes_it_again() {
    let limits = ModelLimits {
        retries: 0,
        breaker_window: 4,
        breaker_trials: 1,
        ..limits()
    };
    let (first, second) = (Puppet::new("a", [down()]), Puppet::new("b", [Act::Say("Far.")]));
    let models = models_with(route(&first), vec![route(&second)], limits);
    for _ in 0..5 {
        let (answer, _) = models.request_completion(&scope("t"), ask()).await;
        assert!(answer.is_ok());
    }
    assert_eq!(first.calls(), 5, "the window is full and one over");
    let (answer, trace) = models.request_completion(&scope("t"), ask()).await;
    assert!(answer.is_ok());
    assert_eq!((first.calls(), trace.attempts), (5, 1), "the breaker is open");

    *first.acts.lock() = [Act::Say("Long.")].into();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while first.calls() == 5 {
        assert!(tokio::time::Instant::now() < deadline, "the breaker never half-opened");
        tokio::task::yield_now().await;
        assert!(models.request_completion(&scope("t"), ask()).await.0.is_ok());
    }
    let (answer, _) = models.request_completion(&scope("t"), ask()).await;
    assert_eq!(answer.unwrap().text, "Long.");
}

#[tokio::test]
async fn breaker_ignores_refusals_and_rate_limits() {
    for error in [
        LlmError::Refused("bad".into()),
        LlmError::RateLimited { retry_after: None },
    ] {
        let limits = ModelLimits {
            retries: 0,
            breaker_window: 2,
            ..limits()
        };
        let puppet = Puppet::new("a", [Act::Fail(error)]);
        let models = models_with(route(&puppet), vec![], limits);
        for _ in 0..6 {
            assert!(models.request_completion(&scope("t"), ask()).await.0.is_err());
        }
        assert_eq!(puppet.calls(), 6);
    }
}

#[tokio::test]
async fn breaker_is_separate_for_a_model_of_one_npc() {
    let limits = ModelLimits {
        retries: 0,
        breaker_window: 1,
        breaker_open: Duration::from_mins(1),
        ..limits()
    };
    let puppet = Puppet::new("a", [down()]);
    let models = models_with(route(&puppet), vec![], limits);
    for _ in 0..4 {
        let named = ModelRequest {
            model: Some("odd".into()),
            ..ask()
        };
        let (answer, trace) = models.request_completion(&scope("t"), named).await;
        assert!(answer.is_err());
        assert_eq!(trace.model, "odd");
    }
    assert_eq!(puppet.calls(), 2, "its breaker is open");
    assert_eq!(puppet.seen.lock()[0].model.as_deref(), Some("odd"));
    *puppet.acts.lock() = [Act::Say("Long.")].into();
    assert!(models.request_completion(&scope("t"), ask()).await.0.is_ok());
}

#[tokio::test]
async fn tenant_share_of_calls_is_limited() {
    let limits = ModelLimits {
        tenant_concurrency: 1,
        ..limits()
    };
    let puppet = Puppet::new("a", [Act::Wait("Long.")]);
    let mut patient = route(&puppet);
    patient.timeout = Duration::from_millis(200);
    let models = Arc::new(models_with(patient, vec![], limits));
    puppet.go.add_permits(1);
    let (held, _) = models.request_stream(&scope("busy"), ask()).await;
    let held = held.unwrap();
    let (refused, trace) = models.request_completion(&scope("busy"), ask()).await;
    assert!(matches!(refused, Err(LlmError::RateLimited { .. })));
    assert_eq!((trace.attempts, puppet.calls()), (0, 1), "it never reached the model");
    puppet.go.add_permits(1);
    assert!(models.request_completion(&scope("other"), ask()).await.0.is_ok());
    drop(held);
    puppet.go.add_permits(1);
    assert!(models.request_completion(&scope("busy"), ask()).await.0.is_ok());
}

#[tokio::test]
async fn routes_apply_their_own_parameters() {
    let (first, second) = (Puppet::new("a", [down()]), Puppet::new("b", [Act::Say("Far.")]));
    let mut fallback = route(&second);
    fallback.model = Some("b-small".into());
    fallback.max_output_tokens = 50;
    fallback.temperature = 0.1;
    fallback.timeout = Duration::from_secs(3);
    let models = models_with(route(&first), vec![fallback], limits());
    let named = ModelRequest {
        model: Some("a-large".into()),
        ..ask()
    };
    let (_, trace) = models.request_completion(&scope("t"), named).await;
    assert_eq!(trace.model, "b-small");
    let (asked_first, asked_second) = (first.seen.lock()[0].clone(), second.seen.lock()[0].clone());
    let of_first = (asked_first.model.as_deref(), asked_first.max_output_tokens);
    assert_eq!(of_first, (Some("a-large"), 400));
    assert_eq!(
        (
            asked_second.model.as_deref(),
            asked_second.max_output_tokens,
            asked_second.timeout
        ),
        (Some("b-small"), 50, Duration::from_secs(3))
    );
    assert_eq!(asked_first.messages, asked_second.messages);
}

struct FlakyEmbedder {
    info: EmbedderInfo,
    failures: Mutex<usize>,
}

#[async_trait]
impl Embedder for FlakyEmbedder {
    async fn embed_texts(&self, _: EmbedAs, texts: &[String]) -> Result<Vec<Vec<f32>>, LlmError> {
        let mut failures = self.failures.lock();
        if *failures > 0 {
            *failures -= 1;
            return Err(LlmError::Unavailable("starting".into()));
        }
        Ok(vec![vec![1.0]; texts.len()])
    }
    fn info(&self) -> &EmbedderInfo {
        &self.info
    }
}

#[tokio::test]
async fn embedder_calls_are_retried_traced_and_counted() {
    let embedder = FlakyEmbedder {
        info: EmbedderInfo {
            model: "e5".into(),
            dimensions: 1,
            calibration: Calibration::IDENTITY,
            offline: true,
        },
        failures: Mutex::new(2),
    };
    let models = models(&[&Puppet::new("a", [down()])]);
    let texts = ["twelve chars".to_owned(), "four".to_owned()];
    let (vectors, trace) = models.embed_texts(&scope("t"), &embedder, EmbedAs::Query, &texts).await;
    assert_eq!(vectors.unwrap().len(), 2);
    assert_eq!(
        (trace.task.as_str(), trace.model.as_str(), trace.attempts, trace.offline),
        ("embedding", "e5", 3, true)
    );
    let usage = models.take_usage();
    assert_eq!((usage[0].1.calls, usage[0].1.usage.prompt_tokens), (3, 4));

    *embedder.failures.lock() = 3;
    let (vectors, trace) = models.embed_texts(&scope("t"), &embedder, EmbedAs::Query, &texts).await;
    assert!(vectors.is_err() && trace.error.is_some());

    let (none, trace) = models.embed_texts(&scope("t"), &embedder, EmbedAs::Query, &[]).await;
    assert!(none.unwrap().is_empty());
    assert_eq!(trace.attempts, 0);
}

/// Turns run as spawned futures, so the router's futures must be `Send`.
#[test]
fn calls_can_be_spawned() {
    fn is_send(_: impl Send) {}
    let models = models(&[&Puppet::new("a", [down()])]);
    let scope = scope("t");
    is_send(models.request_completion(&scope, ask()));
    is_send(models.request_stream(&scope, ask()));
}

#[tokio::test]
async fn breaker_rests_a_model_that_is_always_late() {
    let puppet = Puppet::new("a", [Act::Hang]);
    let mut hasty = route(&puppet);
    hasty.timeout = Duration::from_millis(5);
    let limits = ModelLimits {
        breaker_open: Duration::from_millis(200),
        ..limits()
    };
    let models = models_with(hasty, vec![], limits);
    for calls in [1, 2, 3, 3, 3] {
        assert!(models.request_completion(&scope("t"), ask()).await.0.is_err());
        assert_eq!(puppet.calls(), calls);
    }
    *puppet.acts.lock() = [Act::Say("Long.")].into();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while models.request_completion(&scope("t"), ask()).await.0.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "it never came back");
        tokio::task::yield_now().await;
    }
    assert_eq!(puppet.calls(), 4);
}

#[tokio::test]
async fn reply_precedes_an_extraction_of_another_tenant_at_a_full_endpoint() {
    let puppet = Puppet::new("a", [Act::Wait("Long.")]);
    let capacity = CallCapacity::with_places(1);
    let of = |task| Route {
        capacity: Some(capacity.clone()),
        ..Route::new(task, puppet.clone() as Arc<dyn Llm>)
    };
    let table = RouteTable::with_single_model(&(puppet.clone() as Arc<dyn Llm>))
        .with_chain(Task::Reply, of(Task::Reply), vec![])
        .with_chain(Task::Extraction, of(Task::Extraction), vec![]);
    let models = ModelRouter::with_limits(table, limits(), Arc::new(SystemClock));
    let extract = |tenant: &'static str| {
        let ask = ModelRequest {
            task: Task::Extraction,
            ..ask()
        };
        let (models, scope) = (&models, scope(tenant));
        async move { models.request_completion(&scope, ask).await.0 }
    };
    let (mut running, mut waiting) = (Box::pin(extract("a")), Box::pin(extract("b")));
    assert!(futures_util::poll!(&mut running).is_pending() && futures_util::poll!(&mut waiting).is_pending());
    assert_eq!(puppet.calls(), 1);
    let tenant = scope("c");
    let mut reply = Box::pin(models.request_completion(&tenant, ask()));
    assert!(futures_util::poll!(&mut reply).is_pending());
    puppet.go.add_permits(1);
    assert!(running.await.is_ok());
    puppet.go.add_permits(1);
    assert!(reply.await.0.is_ok());
    let tasks: Vec<Task> = puppet.seen.lock().iter().map(|request| request.task).collect();
    assert_eq!(tasks, [Task::Extraction, Task::Reply]);
    puppet.go.add_permits(1);
    assert!(waiting.await.is_ok());
}
