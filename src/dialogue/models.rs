//! Model routes: per task a chain of models, each with a timeout and an output cap. Calls are retried with jitter
//! before the first token only. If the first token of a stream is late, the next model is asked beside the late model.
//! Each model has a circuit breaker, and usage is accounted.

mod breaker;
mod budgets;
mod gate;
mod json_answer;
mod limits;
mod metrics;
mod model_time;
mod owner;
mod permits;
mod route_attempts;
mod route_chain;
mod routes;
mod tally;
mod usage;

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use self::{
    breaker::ModelBreakers,
    gate::{CallUrgency, TenantGate},
    route_attempts::{AttemptOutcome, RouteAttempts, StreamedAnswer, WholeAnswer},
    usage::{MeteredStream, PendingCall, UsageBook, UsagePayer, is_paid_for},
};
pub use self::{
    budgets::{BudgetLine, BudgetSettings, Budgets, run_admitted},
    gate::{CallCapacity, places_for_jobs},
    json_answer::{parse_json_answer, salvage_list, salvage_sentences},
    limits::ModelLimits,
    metrics::{ModelMetrics, ModelPrice},
    routes::{Route, RouteTable, TaskDefaults},
    tally::{tallied_usage, with_usage_tally},
};
pub(crate) use self::{
    model_time::{model_time, time_model, with_model_time},
    owner::with_usage_owner,
};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{authored::Npc, tokens::TokenCounter, trace::CallTrace, turn::Usage};
use colloquy_ports::{
    clock::Clock,
    embedder::{EmbedAs, Embedder, EmbedderInfo},
    ledger::usage::UsageDelta,
    llm::{ChatMessage, Chunk, ClientFields, Completion, JsonSchema, LlmError, Task},
};
use futures_util::{StreamExt, stream::BoxStream};
use tracing::{Instrument as _, Span, debug_span, field::Empty};

/// A call without model, timeout and output cap, which the route adds.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    pub task: Task,
    pub messages: Vec<ChatMessage>,
    pub json_schema: Option<JsonSchema>,
    /// The NPC's own model ([`ModelRouter::allowed_npc_model`]), in place of the route's first model.
    pub model: Option<String>,
    /// True doubles the route's output cap, because the previous answer ended at the cap.
    pub more_room: bool,
    /// What the client of a chat program's request asked of the model.
    pub client: Option<Arc<ClientFields>>,
}

/// The model routes of this server.
pub struct ModelRouter {
    routes: RouteTable,
    limits: ModelLimits,
    breakers: ModelBreakers,
    gate: TenantGate,
    book: Arc<UsageBook>,
    meters: Arc<ModelMetrics>,
    budgets: Arc<Budgets>,
    /// Models that NPCs may name, besides the model of the reply route.
    of_npcs: HashSet<String>,
    clock: Arc<dyn Clock>,
    /// Token counters of models whose vocabulary is not bundled under their name.
    counters: HashMap<String, TokenCounter>,
    /// Token counter for all other models whose vocabulary is not bundled.
    unknown: TokenCounter,
}

impl ModelRouter {
    /// Creates a router with the default limits.
    #[must_use]
    pub fn new(routes: RouteTable, clock: Arc<dyn Clock>) -> Self {
        Self::with_limits(routes, ModelLimits::default(), clock)
    }
    /// Creates a router with custom limits.
    #[must_use]
    pub fn with_limits(routes: RouteTable, limits: ModelLimits, clock: Arc<dyn Clock>) -> Self {
        Self::with_metrics(routes, limits, ModelMetrics::default(), clock)
    }
    /// Creates a router as [`Self::with_limits`] does, with custom metrics.
    #[must_use]
    pub fn with_metrics(
        routes: RouteTable,
        limits: ModelLimits,
        mut meters: ModelMetrics,
        clock: Arc<dyn Clock>,
    ) -> Self {
        meters.add_route_models(&routes);
        let meters = Arc::new(meters);
        let budgets = Arc::new(Budgets::new(BudgetSettings::default(), meters.clone(), clock.clone()));
        Self {
            breakers: ModelBreakers::new(&routes, &limits),
            gate: TenantGate::new(limits.tenant_concurrency),
            book: Arc::new(UsageBook::new(clock.clone(), meters.clone(), budgets.clone())),
            meters,
            budgets,
            of_npcs: HashSet::new(),
            routes,
            limits,
            clock,
            counters: HashMap::new(),
            unknown: TokenCounter::Estimated,
        }
    }
    /// Uses these counters in place of an estimate, by the model's name.
    #[must_use]
    pub fn with_counters(mut self, counters: HashMap<String, TokenCounter>) -> Self {
        self.counters = counters;
        self
    }
    /// Uses `counter` in place of an estimate for models whose vocabulary is not bundled.
    #[must_use]
    pub fn with_fallback_counter(mut self, counter: TokenCounter) -> Self {
        self.unknown = counter;
        self
    }
    /// Sets the budgets of tenants.
    #[must_use]
    pub fn with_budgets(mut self, settings: BudgetSettings) -> Self {
        let meters = self.meters.clone();
        let clock = self.clock.clone();
        self.budgets = Arc::new(Budgets::new(settings, meters, clock));
        self.book = Arc::new(UsageBook::new(
            self.clock.clone(),
            self.meters.clone(),
            self.budgets.clone(),
        ));
        self
    }
    /// Sets the models that NPCs may name, besides the model of the reply route; `*` allows any model.
    #[must_use]
    pub fn with_models_of_npcs(mut self, models: &[String]) -> Self {
        self.of_npcs = models.iter().cloned().collect();
        self
    }
    /// Requests a whole answer. The trace is returned for failures too.
    ///
    /// # Errors
    /// The last error if every route of the chain failed. [`LlmError::RateLimited`] if the tenant's calls fill its
    /// quota and none ended within the first route's timeout.
    pub async fn request_completion(
        &self,
        scope: &TenantScope,
        request: ModelRequest,
    ) -> (Result<Completion, LlmError>, CallTrace) {
        let task = request.task.as_str();
        let span = call_span(scope, task);
        let (answer, mut trace) = self
            .ask_route_chain(&WholeAnswer, scope, request)
            .instrument(span)
            .await;
        let completion = answer.map(|answered| {
            let mut answer = answered.answer;
            let prompt = &answered.request.messages;
            if answer.usage == Usage::default() {
                let calls = answer.tool_calls.iter().map(serde_json::Value::to_string);
                let answer_text: String = std::iter::once(answer.text.clone()).chain(calls).collect();
                answer.usage = usage::estimate_usage(self.counter_for_model(&trace.model), prompt, &answer_text);
            }
            self.book.record_usage(scope.tenant(), task, &trace.model, answer.usage);
            trace.usage = answer.usage;
            answer
        });
        (completion, trace)
    }
    /// Opens a stream. `CallTrace` covers the time until the first chunk; usage arrives as the last chunk.
    ///
    /// Returns after the first text or piece of a tool call arrives. Earlier failures are retried and fall back; later
    /// failures end the stream. After [`ModelLimits::first_token_deadline`], the next route is asked too. Dropping the
    /// stream ends the call.
    ///
    /// # Errors
    /// As for [`Self::request_completion`].
    pub async fn request_stream(
        &self,
        scope: &TenantScope,
        request: ModelRequest,
    ) -> (Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError>, CallTrace) {
        let span = call_span(scope, request.task.as_str());
        let (answer, mut trace) = self
            .ask_route_chain(&StreamedAnswer, scope, request)
            .instrument(span)
            .await;
        let stream = answer.map(|answered| {
            trace.first_token_millis = Some(trace.millis);
            let payer = UsagePayer {
                tenant: scope.tenant(),
                task: answered.request.task.as_str(),
                model: &trace.model,
                counter: self.counter_for_model(&trace.model),
                prompt: answered.request.messages,
            };
            let (first, rest) = answered.answer;
            MeteredStream::new(self.book.clone(), payer, first, rest, answered.permits).boxed()
        });
        (stream, trace)
    }

    /// Embeds `texts` with the same retries, accounting and trace as a model call. Embedders report no tokens, so the
    /// router counts the tokens.
    ///
    /// # Errors
    /// As for [`Self::request_completion`]. There is no fallback: vectors of another embedder could not be compared.
    pub async fn embed_texts(
        &self,
        scope: &TenantScope,
        embedder: &dyn Embedder,
        kind: EmbedAs,
        texts: &[String],
    ) -> (Result<Vec<Vec<f32>>, LlmError>, CallTrace) {
        let span = call_span(scope, EMBEDDING_TASK);
        self.embed_in_span(scope, embedder, kind, texts).instrument(span).await
    }

    async fn embed_in_span(
        &self,
        scope: &TenantScope,
        embedder: &dyn Embedder,
        kind: EmbedAs,
        texts: &[String],
    ) -> (Result<Vec<Vec<f32>>, LlmError>, CallTrace) {
        let started = self.clock.monotonic_now();
        let info = embedder.info();
        let mut trace = blank_trace(EMBEDDING_TASK);
        trace.model.clone_from(&info.model);
        trace.offline = info.offline;
        if texts.is_empty() {
            return (Ok(Vec::new()), trace);
        }
        let attempts = AtomicU32::new(0);
        if let Err(over_budget) = self.budgets.check_call(scope.tenant()) {
            self.finish_trace(&mut trace, started, &attempts, Some(&over_budget.into()));
            return (Err(over_budget.into()), trace);
        }
        let urgency = match kind {
            EmbedAs::Query => CallUrgency::Interactive,
            EmbedAs::Passage => CallUrgency::Background,
        };
        let result = match self
            .gate
            .acquire_place(scope.tenant(), urgency, self.limits.embed_timeout)
            .await
        {
            None => Err(TENANT_QUOTA_ERROR),
            Some(_permit) => {
                RouteAttempts {
                    limits: &self.limits,
                    breaker: &self.breakers.for_model(EMBEDDING_TASK, &info.model),
                    time: self.limits.embed_timeout,
                    attempts: &attempts,
                    on_end: &|end| self.on_attempt_ended(scope, EMBEDDING_TASK, &info.model, end),
                }
                .run(|| async {
                    let open_call = self.open_call(scope, EMBEDDING_TASK, &info.model, || {
                        embedding_usage(&info.model, texts)
                    });
                    let answer = time_model(self.clock.as_ref(), embedder.embed_texts(kind, texts)).await;
                    open_call.mark_ended(&answer);
                    answer
                })
                .await
            }
        };
        if result.is_ok() {
            trace.usage = embedding_usage(&info.model, texts);
            self.book
                .record_usage(scope.tenant(), EMBEDDING_TASK, &info.model, trace.usage);
        }
        self.finish_trace(&mut trace, started, &attempts, result.as_ref().err());
        (result, trace)
    }
    #[must_use]
    pub fn metrics(&self) -> &ModelMetrics {
        &self.meters
    }
    /// Returns the numbers of running calls of all tenants, and of calls that wait for their tenant's quota.
    #[must_use]
    pub fn running_and_waiting(&self) -> (usize, usize) {
        self.gate.running_and_waiting()
    }
    /// Returns the budgets of tenants.
    #[must_use]
    pub fn budgets(&self) -> &Arc<Budgets> {
        &self.budgets
    }
    /// True if NPCs may name this model. Any other name is replaced by the server's reply model.
    #[must_use]
    pub fn is_model_allowed(&self, model: &str) -> bool {
        self.of_npcs.contains(model) || self.of_npcs.contains(ANY_MODEL) || model == self.model_for_task(Task::Reply)
    }
    /// Returns the NPC's own model, if allowed.
    #[must_use]
    pub fn allowed_npc_model<'a>(&self, npc: &'a Npc) -> Option<&'a str> {
        npc.model.as_deref().filter(|model| self.is_model_allowed(model))
    }
    /// Returns the cost of these tokens in the currency of `llm.prices`; `None` if the model has no price.
    #[must_use]
    pub fn cost_of(&self, model: &str, prompt: u64, cached: u64, completion: u64) -> Option<f64> {
        self.meters.cost_of(model, prompt, cached, completion)
    }
    /// Returns a model without a price that may be called, if any. `embedder` is the server's embedder.
    #[must_use]
    pub fn find_unpriced_model<'a>(&'a self, embedder: &'a EmbedderInfo) -> Option<&'a str> {
        let routes = Task::ALL.into_iter().flat_map(|task| self.routes.chain_for(task));
        let called = routes
            .filter(|route| !route.llm.is_offline())
            .map(|route| route.model_name(None));
        called
            .chain(self.of_npcs.iter().map(String::as_str))
            .chain((!embedder.offline).then_some(embedder.model.as_str()))
            .find(|model| !self.meters.has_price(model))
    }
    /// Records that `tokens` at the beginning of a reply's prompt are those of the NPC's previous prompt.
    pub(crate) fn record_unchanged(&self, scope: &TenantScope, model: &str, tokens: u32) {
        self.book
            .record_unchanged(scope.tenant(), Task::Reply.as_str(), model, tokens);
    }
    /// Returns and clears the usage since the previous call, for the ledger.
    pub fn take_usage(&self) -> Vec<(TenantScope, UsageDelta)> {
        self.book.take_sums()
    }
    /// Returns the name of the first model for `task`. Token counts follow this model.
    pub fn model_for_task(&self, task: Task) -> &str {
        let first = &self.routes.chain_for(task)[0];
        first.model.as_deref().unwrap_or_else(|| first.llm.model())
    }
    pub fn counter_for_model(&self, name: &str) -> TokenCounter {
        let configured = self.counters.get(name).copied().unwrap_or(self.unknown);
        TokenCounter::for_model(name).or_if_estimated(configured)
    }
    /// Returns the token counter of the first model for `task`.
    pub fn counter_for_task(&self, task: Task) -> TokenCounter {
        self.counter_for_model(self.model_for_task(task))
    }
    /// True if every route for replies is the scripted model.
    pub fn is_offline(&self) -> bool {
        self.routes
            .chain_for(Task::Reply)
            .iter()
            .all(|route| route.llm.is_offline())
    }

    fn on_attempt_ended(&self, scope: &TenantScope, task: &'static str, model: &str, end: AttemptOutcome<'_>) {
        match end {
            AttemptOutcome::Refused => self.meters.record_breaker_refusal(task, model),
            AttemptOutcome::Answered => self.meters.record_attempt(task, model, None),
            AttemptOutcome::Failed(error) => {
                self.meters.record_attempt(task, model, Some(error));
                if !is_paid_for(error) {
                    self.book.record_usage(scope.tenant(), task, model, Usage::default());
                }
            }
        }
    }

    fn open_call<'a, F: Fn() -> Usage>(
        &'a self,
        scope: &'a TenantScope,
        task: &'static str,
        model: &'a str,
        prompt: F,
    ) -> PendingCall<'a, F> {
        PendingCall {
            book: &self.book,
            tenant: scope.tenant(),
            task,
            model,
            prompt,
            is_open: true,
        }
    }

    fn finish_trace(&self, trace: &mut CallTrace, started: Instant, attempts: &AtomicU32, error: Option<&LlmError>) {
        trace.millis = self.clock.monotonic_now().duration_since(started).as_secs_f64() * 1e3;
        trace.attempts = attempts.load(Ordering::Relaxed);
        trace.error = error.map(ToString::to_string);
        self.meters.record_call(&trace.task, trace.millis / 1e3, error);
        let span = Span::current();
        span.record("model", &trace.model).record("attempts", trace.attempts);
        if let Some(error) = error {
            span.record("error", tracing::field::display(error));
        }
    }
}

/// The name of embedder calls in traces and accounts.
const EMBEDDING_TASK: &str = "embedding";
/// Entry of the list of allowed NPC models that allows any model.
const ANY_MODEL: &str = "*";
/// Error when the tenant's calls fill its quota.
const TENANT_QUOTA_ERROR: LlmError = LlmError::RateLimited { retry_after: None };

/// Returns the usage for embedding texts. `llm.tokenizer_file` is not used: its vocabulary is for language models.
fn embedding_usage(model: &str, texts: &[String]) -> Usage {
    let counter = TokenCounter::for_model(model);
    Usage {
        prompt_tokens: usage::count_tokens(counter, texts.iter().map(String::as_str)),
        ..Usage::default()
    }
}

/// Returns the span of a call; its context is sent to the endpoint. `ModelRouter::finish_trace` records the outcome.
fn call_span(scope: &TenantScope, task: &str) -> Span {
    debug_span!("model.call", task, tenant = %scope.tenant(), model = Empty, attempts = Empty, error = Empty)
}

fn blank_trace(task: &str) -> CallTrace {
    CallTrace {
        task: task.to_owned(),
        model: String::new(),
        offline: false,
        attempts: 0,
        millis: 0.0,
        first_token_millis: None,
        usage: Usage::default(),
        error: None,
    }
}
