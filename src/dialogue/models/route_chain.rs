//! A call along the chain of its task. The next route is asked after a failure, and beside a route whose first token is
//! late. Attempts on one route belong to [`super::route_attempts`].

use std::{future::pending, pin::pin, sync::atomic::AtomicU32, time::Duration};

use colloquy_core::scope::TenantScope;
use colloquy_memory::trace::CallTrace;
use colloquy_ports::llm::{LlmError, LlmRequest};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

use super::{
    ModelRequest, ModelRouter, TENANT_QUOTA_ERROR, blank_trace,
    breaker::ModelBreaker,
    gate::{CallPermit, CallUrgency},
    model_time::time_model,
    permits::HeldPermits,
    route_attempts::{AnswerMode, RouteAttempts},
    routes::Route,
    usage,
};

/// Error when the calls of all tenants fill an endpoint.
const ENDPOINT_FULL_ERROR: LlmError = LlmError::RateLimited { retry_after: None };

/// An answer, with the request and the permits that must outlive the answer.
pub(super) struct RoutedAnswer<T> {
    pub answer: T,
    pub request: LlmRequest,
    pub permits: HeldPermits,
}

/// A call that may be sent to each route of its chain.
struct ChainCall<'a> {
    scope: &'a TenantScope,
    request: &'a ModelRequest,
    chain: &'a [Route],
    /// Counts the attempts on all routes.
    attempts: &'a AtomicU32,
}

impl<'a> ChainCall<'a> {
    /// Returns the model that the NPC names. Only the first route has this model.
    fn requested_model(&self, position: usize) -> Option<&'a str> {
        self.request.model.as_deref().filter(|_| position == 0)
    }
    fn model_name(&self, position: usize) -> &'a str {
        self.chain[position].model_name(self.requested_model(position))
    }
    /// Builds the request to the route at `position`.
    fn build_request(&self, position: usize) -> LlmRequest {
        let ModelRequest {
            task,
            messages,
            json_schema,
            client,
            more_room,
            ..
        } = self.request;
        let route = &self.chain[position];
        let mut request = route.build_request(*task, messages.clone(), json_schema.clone());
        request.client.clone_from(client);
        route.fill_request(&mut request, self.requested_model(position));
        if *more_room {
            request.max_output_tokens = request.max_output_tokens.saturating_mul(2);
        }
        request
    }
}

/// The end of a call on one route.
struct RouteEnd<T> {
    /// The place of the route in its chain.
    position: usize,
    result: Result<RouteAnswer<T>, LlmError>,
}

struct RouteAnswer<T> {
    answer: T,
    request: LlmRequest,
    endpoint_permit: Option<CallPermit>,
}

impl ModelRouter {
    /// Asks the routes of the task until one answers. The trace names the model that answered or failed last.
    pub(super) async fn ask_route_chain<M: AnswerMode>(
        &self,
        answer_mode: &M,
        scope: &TenantScope,
        model_request: ModelRequest,
    ) -> (Result<RoutedAnswer<M::Answer>, LlmError>, CallTrace) {
        let started = self.clock.monotonic_now();
        let task = model_request.task;
        let attempts = AtomicU32::new(0);
        let call = ChainCall {
            scope,
            request: &model_request,
            chain: self.routes.chain_for(task),
            attempts: &attempts,
        };
        let mut trace = blank_trace(task.as_str());
        call.model_name(0).clone_into(&mut trace.model);
        if let Err(over_budget) = self.budgets.check_call(scope.tenant()) {
            self.finish_trace(&mut trace, started, &attempts, Some(&over_budget.into()));
            return (Err(over_budget.into()), trace);
        }
        let urgency = CallUrgency::for_task(task);
        let patience = call.chain[0].timeout;
        let Some(permit) = self.gate.acquire_place(scope.tenant(), urgency, patience).await else {
            self.finish_trace(&mut trace, started, &attempts, Some(&TENANT_QUOTA_ERROR));
            return (Err(TENANT_QUOTA_ERROR), trace);
        };
        let RouteEnd { position, result } = self.race_routes(answer_mode, &call).await;
        call.model_name(position).clone_into(&mut trace.model);
        trace.offline = call.chain[position].llm.is_offline();
        self.finish_trace(&mut trace, started, &attempts, result.as_ref().err());
        let routed = result.map(|routed| RoutedAnswer {
            answer: routed.answer,
            request: routed.request,
            permits: HeldPermits {
                _tenant: permit,
                _endpoint: routed.endpoint_permit,
            },
        });
        (routed, trace)
    }

    /// Asks the routes in order, each as soon as the route before failed or is late. Returns the first answer, which
    /// drops the other calls, or the last failure.
    async fn race_routes<M: AnswerMode>(&self, answer_mode: &M, call: &ChainCall<'_>) -> RouteEnd<M::Answer> {
        let mut running = FuturesUnordered::new();
        let mut late_positions = Vec::new();
        let mut last_failure = RouteEnd {
            position: 0,
            result: Err(TENANT_QUOTA_ERROR),
        };
        for position in 0..call.chain.len() {
            let next = call.chain.get(position + 1);
            // The scripted model would always be first. It answers only after all other models have failed.
            let may_race = next.is_some_and(|route| !route.llm.is_offline());
            let (place_taken, on_place_taken) = oneshot::channel();
            running.push(async move {
                let result = self.ask_route(answer_mode, call, position, place_taken).await;
                RouteEnd { position, result }
            });
            let deadline = M::answer_deadline(&self.limits).filter(|_| may_race);
            let mut lateness = pin!(wait_for_lateness(deadline, on_place_taken));
            loop {
                let end = tokio::select! {
                    biased;
                    end = running.next() => end,
                    () = &mut lateness => {
                        self.on_late_first_token(call, position);
                        late_positions.push(position);
                        break;
                    }
                };
                let Some(end) = end else { break };
                late_positions.retain(|late| *late != end.position);
                if end.result.is_ok() {
                    for late in late_positions {
                        self.breaker_of(call, late).record_timeout(Instant::now().into_std());
                    }
                    return end;
                }
                let is_newest = end.position == position;
                last_failure = end;
                if is_newest && may_race {
                    break;
                }
            }
        }
        last_failure
    }

    fn breaker_of(&self, call: &ChainCall<'_>, position: usize) -> ModelBreaker {
        let task = call.request.task;
        match call.requested_model(position) {
            Some(model) => self.breakers.for_model(task.as_str(), model),
            None => self.breakers.for_route(task, position),
        }
    }

    /// Asks the route at `position`, with its retries, once a place at its endpoint is taken. If the future is dropped, the
    /// call is cancelled: its prompt is booked, and its place at the endpoint is free.
    async fn ask_route<M: AnswerMode>(
        &self,
        answer_mode: &M,
        call: &ChainCall<'_>,
        position: usize,
        place_taken: oneshot::Sender<()>,
    ) -> Result<RouteAnswer<M::Answer>, LlmError> {
        let scope = call.scope;
        let task = call.request.task;
        let route = &call.chain[position];
        let model = call.model_name(position);
        let request = call.build_request(position);
        let waiting_since = Instant::now();
        let mut endpoint_permit = None;
        if let Some(capacity) = &route.capacity {
            let urgency = CallUrgency::for_task(task);
            endpoint_permit = capacity.acquire_place(scope.tenant(), urgency, route.timeout).await;
            if endpoint_permit.is_none() {
                tracing::warn!(task = task.as_str(), model, "the model's endpoint is full");
                return Err(ENDPOINT_FULL_ERROR);
            }
        }
        // Nobody listens without a deadline.
        let _ = place_taken.send(());
        let persistence = RouteAttempts {
            limits: &self.limits,
            breaker: &self.breaker_of(call, position),
            // The wait for a place counts towards the route's time.
            time: route.timeout.saturating_sub(waiting_since.elapsed()),
            attempts: call.attempts,
            on_end: &|end| self.on_attempt_ended(scope, task.as_str(), model, end),
        };
        let prompt_usage = || usage::estimate_usage(self.counter_for_model(model), &request.messages, "");
        let answer = persistence
            .run(|| async {
                let open_call = self.open_call(scope, task.as_str(), model, prompt_usage);
                let asking = answer_mode.ask_model(route.llm.as_ref(), &request);
                let answer = time_model(self.clock.as_ref(), asking).await;
                open_call.mark_ended(&answer);
                answer
            })
            .await
            .inspect_err(|error| {
                tracing::warn!(
                    task = task.as_str(),
                    model,
                    tenant = %scope.tenant(),
                    %error,
                    fallback = position + 1 < call.chain.len(),
                    "a model route failed"
                );
            })?;
        Ok(RouteAnswer {
            answer,
            request,
            endpoint_permit,
        })
    }

    fn on_late_first_token(&self, call: &ChainCall<'_>, position: usize) {
        let (task, model) = (call.request.task.as_str(), call.model_name(position));
        self.meters.record_late_first_token(task, model);
        tracing::info!(
            task,
            model,
            next_model = call.model_name(position + 1),
            tenant = %call.scope.tenant(),
            "a first token is late, and the next model is asked too"
        );
    }
}

/// Waits until a route that has its place is late. Without a deadline or a place, for ever.
async fn wait_for_lateness(deadline: Option<Duration>, on_place_taken: oneshot::Receiver<()>) {
    match (deadline, on_place_taken.await) {
        (Some(deadline), Ok(())) => sleep(deadline).await,
        _ => pending().await,
    }
}
