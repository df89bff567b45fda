//! Model routes: per task a chain of models with its own timeout and output cap; retries with
//! jitter before the first token only; a circuit breaker per model; usage accounting.

mod answer;
mod routes;

use std::{sync::Arc, time::Duration};

use futures_util::stream::BoxStream;

pub use self::{
    answer::parse_json_answer,
    routes::{Route, RouteTable, TaskDefaults},
};
use crate::{
    memory::trace::CallTrace,
    ports::{
        clock::Clock,
        embedder::{EmbedAs, Embedder},
        llm::{ChatMessage, Chunk, Completion, JsonSchema, LlmError, LlmRequest, Task},
    },
    tenancy::TenantScope,
};

/// A call before its route fills in model, timeout and output cap.
#[derive(Debug, Clone)]
pub struct Ask {
    pub task: Task,
    pub messages: Vec<ChatMessage>,
    pub json_schema: Option<JsonSchema>,
    /// Replaces the route's first model, for an NPC that names one.
    pub model: Option<String>,
}

/// Bounds on retries, breakers and concurrency.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelLimits {
    /// Further attempts on a route after the first; 2.
    pub retries: usize,
    /// The first pause between attempts, doubling, jittered; 100 ms.
    pub backoff_min: Duration,
    /// The longest pause; 2 s.
    pub backoff_max: Duration,
    /// A `Retry-After` beyond this ends the attempts on the route; 5 s.
    pub retry_after_max: Duration,
    /// Calls a breaker looks back on; 20.
    pub breaker_window: usize,
    /// Share of failures among them that opens it, in (0, 1]; 0.5.
    pub breaker_failure_share: f32,
    /// How long it stays open; 10 s.
    pub breaker_open: Duration,
    /// Calls on trial when it half-opens; 3.
    pub breaker_trials: usize,
    /// Model and embedder calls of one tenant that may run at once; 64.
    pub tenant_concurrency: usize,
    /// Longest an embedder call may take, retries included; 10 s.
    pub embed_timeout: Duration,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self {
            retries: 2,
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(2),
            retry_after_max: Duration::from_secs(5),
            breaker_window: 20,
            breaker_failure_share: 0.5,
            breaker_open: Duration::from_secs(10),
            breaker_trials: 3,
            tenant_concurrency: 64,
            embed_timeout: Duration::from_secs(10),
        }
    }
}

/// The model routes of this server.
pub struct Models {
    routes: RouteTable,
    limits: ModelLimits,
    clock: Arc<dyn Clock>,
}

impl Models {
    /// Routes with the default limits.
    #[must_use]
    pub fn new(routes: RouteTable, clock: Arc<dyn Clock>) -> Self {
        Self::with_limits(routes, ModelLimits::default(), clock)
    }
    /// Routes with limits of the caller's own.
    #[must_use]
    pub fn with_limits(routes: RouteTable, limits: ModelLimits, clock: Arc<dyn Clock>) -> Self {
        Self { routes, limits, clock }
    }
    /// Asks for a whole answer. The trace is there for failures too.
    pub async fn complete(&self, scope: &TenantScope, ask: Ask) -> (Result<Completion, LlmError>, CallTrace) {
        let _ = (scope, ask, &self.limits, &self.clock);
        todo!()
    }
    /// Opens a stream. `CallTrace` covers up to the first chunk; usage arrives as the last chunk.
    pub async fn stream(
        &self,
        scope: &TenantScope,
        ask: Ask,
    ) -> (Result<BoxStream<'static, Result<Chunk, LlmError>>, LlmError>, CallTrace) {
        let _ = (scope, ask, std::marker::PhantomData::<LlmRequest>);
        todo!()
    }
    /// Embeds `texts` with the same retries, accounting and trace as a model call.
    pub async fn embed(
        &self,
        scope: &TenantScope,
        embedder: &dyn Embedder,
        kind: EmbedAs,
        texts: &[String],
    ) -> (Result<Vec<Vec<f32>>, LlmError>, CallTrace) {
        let _ = (scope, embedder, kind, texts);
        todo!()
    }
    /// Usage since the last call of this, to be written to the ledger.
    pub fn take_usage(&self) -> Vec<(TenantScope, crate::ports::ledger::usage::UsageDelta)> {
        todo!()
    }
    /// The name of the model that is asked first for `task`: its tokens are the ones that count.
    pub fn model_of(&self, task: Task) -> &str {
        let first = &self.routes.chain(task)[0];
        first.model.as_deref().unwrap_or_else(|| first.llm.model())
    }
    /// Whether the reply route ends in the scripted model only.
    pub fn is_offline(&self) -> bool {
        self.routes
            .chain(Task::Reply)
            .iter()
            .all(|route| route.llm.is_offline())
    }
}
