//! Attempts on one route, with pauses, within the route's time and behind its breaker.

use std::{
    future::Future,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use backon::{ExponentialBuilder, Retryable};
use futures_util::{StreamExt, stream::BoxStream};
use recloser::Error as Trial;
use tokio::time::{Instant, timeout_at};

use super::{
    breaker::{self, ModelBreaker},
    limits::ModelLimits,
};
use colloquy_ports::llm::{Chunk, Completion, Llm, LlmError, LlmRequest};

/// The manner of a request: a whole answer, or the beginning of a stream.
pub(super) trait AnswerMode: Sync {
    type Answer: Send;
    /// Returns how long a route may take for its answer before the next route is asked beside it; `None`: no limit.
    fn answer_deadline(limits: &ModelLimits) -> Option<Duration>;
    fn ask_model<'a>(
        &'a self,
        llm: &'a dyn Llm,
        request: &'a LlmRequest,
    ) -> impl Future<Output = Result<Self::Answer, LlmError>> + Send + 'a;
}

/// Requests a whole answer.
pub(super) struct WholeAnswer;

impl AnswerMode for WholeAnswer {
    type Answer = Completion;

    fn answer_deadline(_limits: &ModelLimits) -> Option<Duration> {
        None
    }
    async fn ask_model(&self, llm: &dyn Llm, request: &LlmRequest) -> Result<Completion, LlmError> {
        let completion = llm.complete_chat(request).await?;
        if completion.text.trim().is_empty() && completion.tool_calls.is_empty() {
            return Err(LlmError::Broken("the answer is empty".into()));
        }
        Ok(completion)
    }
}

/// Requests a stream and waits for its first text, or its first piece of a tool call. Earlier failures can be retried
/// unnoticed by the caller.
pub(super) struct StreamedAnswer;

impl AnswerMode for StreamedAnswer {
    type Answer = (Chunk, BoxStream<'static, Result<Chunk, LlmError>>);

    fn answer_deadline(limits: &ModelLimits) -> Option<Duration> {
        limits.first_token_deadline
    }
    async fn ask_model(&self, llm: &dyn Llm, request: &LlmRequest) -> Result<Self::Answer, LlmError> {
        let mut stream = llm.stream_chat(request).await?;
        loop {
            match stream.next().await {
                Some(Ok(Chunk::AtCap)) => {}
                Some(Ok(Chunk::Text(text))) if text.is_empty() => {}
                Some(Ok(first @ (Chunk::Text(_) | Chunk::ToolCalls(_)))) => return Ok((first, stream)),
                Some(Ok(Chunk::Usage(_))) | None => return Err(LlmError::Broken("the answer is empty".into())),
                Some(Err(error)) => return Err(error),
            }
        }
    }
}

pub(super) struct RouteAttempts<'a> {
    pub limits: &'a ModelLimits,
    pub breaker: &'a ModelBreaker,
    /// The time for all attempts and pauses together.
    pub time: Duration,
    /// Counts the attempts that reach the model.
    pub attempts: &'a AtomicU32,
    /// Called after each attempt, and after a refusal by the breaker.
    pub on_end: &'a (dyn Fn(AttemptOutcome<'_>) + Sync),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum AttemptOutcome<'a> {
    Answered,
    Failed(&'a LlmError),
    /// The breaker refused the attempt.
    Refused,
}

impl RouteAttempts<'_> {
    /// Repeats `attempt` until success, a permanent failure, or the end of time or attempts.
    ///
    /// An attempt that timed out is not repeated: the route's time is used up.
    pub(super) async fn run<T, Fut>(&self, attempt: impl Fn() -> Fut) -> Result<T, LlmError>
    where
        Fut: Future<Output = Result<T, LlmError>>,
    {
        let deadline = Instant::now() + self.time;
        let guarded = || async {
            let Some(admitted) = self.breaker.admit_call(Instant::now().into_std()) else {
                (self.on_end)(AttemptOutcome::Refused);
                return Err(Trial::Rejected);
            };
            let attempt = attempt();
            let outcome = self.breaker.share.call_with(breaker::counts_as_failure, async move {
                self.attempts.fetch_add(1, Ordering::Relaxed);
                let answer = timeout_at(deadline, attempt).await.unwrap_or(Err(LlmError::Timeout));
                (self.on_end)(
                    answer
                        .as_ref()
                        .map_or_else(AttemptOutcome::Failed, |_| AttemptOutcome::Answered),
                );
                answer
            });
            let outcome = outcome.await;
            if matches!(outcome, Err(Trial::Rejected)) {
                (self.on_end)(AttemptOutcome::Refused);
            } else {
                let timed_out = matches!(outcome, Err(Trial::Inner(LlmError::Timeout)));
                admitted.record_outcome(timed_out, Instant::now().into_std());
            }
            outcome
        };
        let pauses = ExponentialBuilder::new()
            .with_min_delay(self.limits.backoff_min)
            .with_max_delay(self.limits.backoff_max)
            .with_max_times(self.limits.retries)
            .with_jitter();
        guarded
            .retry(pauses)
            .sleep(tokio::time::sleep)
            .when(|failure| matches!(failure, Trial::Inner(error) if is_retryable(error)))
            .adjust(|failure, pause| {
                let pause = self.pause_before_retry(failure, pause?)?;
                (Instant::now() + pause < deadline).then_some(pause)
            })
            .await
            .map_err(|failure| match failure {
                Trial::Inner(error) => error,
                Trial::Rejected => LlmError::Unavailable("it failed too often lately and is given a rest".into()),
            })
    }

    /// Returns the pause before a retry, respecting the endpoint's `Retry-After`. `None` if the pause is too long.
    fn pause_before_retry(&self, failure: &Trial<LlmError>, usual: Duration) -> Option<Duration> {
        match failure {
            Trial::Inner(LlmError::RateLimited {
                retry_after: Some(wish),
            }) => (*wish <= self.limits.retry_after_max).then(|| usual.max(*wish)),
            _ => Some(usual),
        }
    }
}

const fn is_retryable(error: &LlmError) -> bool {
    error.is_transient() && !matches!(error, LlmError::Timeout)
}
