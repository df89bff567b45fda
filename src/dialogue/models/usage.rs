//! Who used how much: counters between two writes to the ledger, and the meter on a stream.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use chrono::NaiveDate;
use futures_util::{Stream, StreamExt, stream::BoxStream};
use parking_lot::Mutex;

use super::{Budgets, HeldPermits, ModelMetrics, tally};
use crate::{
    ids::TenantId,
    memory::{tokens::TokenCounter, turn::Usage},
    ports::{
        clock::Clock,
        ledger::usage::UsageDelta,
        llm::{ChatMessage, Chunk, LlmError},
    },
    tenancy::TenantScope,
};

/// Sums by tenant, day, task and model.
pub(super) struct UsageBook {
    clock: Arc<dyn Clock>,
    meters: Arc<ModelMetrics>,
    budgets: Arc<Budgets>,
    sums: Mutex<HashMap<UsageKey, (u32, Usage)>>,
}

#[derive(PartialEq, Eq, Hash)]
struct UsageKey {
    tenant: TenantId,
    day: NaiveDate,
    task: &'static str,
    model: String,
}

impl UsageBook {
    pub(super) fn new(clock: Arc<dyn Clock>, meters: Arc<ModelMetrics>, budgets: Arc<Budgets>) -> Self {
        Self {
            clock,
            meters,
            budgets,
            sums: Mutex::default(),
        }
    }
    /// Counts one attempt, and what it used.
    pub(super) fn record_usage(&self, tenant: &TenantId, task: &'static str, model: &str, usage: Usage) {
        self.meters.record_usage(tenant, task, model, usage);
        tally::tally_call(task, usage);
        let day = self.clock.now().date_naive();
        self.budgets.record_spending(tenant, day, model, usage);
        let account = UsageKey {
            tenant: tenant.clone(),
            day,
            task,
            model: model.to_owned(),
        };
        let mut sums = self.sums.lock();
        let (calls, sum) = sums.entry(account).or_default();
        *calls = calls.saturating_add(1);
        *sum += usage;
    }
    /// Empties the book.
    pub(super) fn take_sums(&self) -> Vec<(TenantScope, UsageDelta)> {
        let sums = std::mem::take(&mut *self.sums.lock());
        sums.into_iter()
            .map(|(account, (calls, usage))| {
                let delta = UsageDelta {
                    day: account.day,
                    task: account.task,
                    model: account.model,
                    calls,
                    usage,
                };
                (TenantScope::new(account.tenant), delta)
            })
            .collect()
    }
}

/// A call that has gone out. If it is let go before it has answered, or answers what cannot be used, its prompt is counted all
/// the same: the endpoint has read it.
pub(super) struct PendingCall<'a, F: Fn() -> Usage> {
    pub book: &'a UsageBook,
    pub tenant: &'a TenantId,
    pub task: &'static str,
    pub model: &'a str,
    /// What the prompt comes to.
    pub prompt: F,
    pub is_open: bool,
}

impl<F: Fn() -> Usage> PendingCall<'_, F> {
    /// It has ended so: what was used is counted elsewhere, or nothing was.
    pub(super) fn mark_ended<T>(mut self, answer: &Result<T, LlmError>) {
        self.is_open = answer.as_ref().err().is_some_and(is_paid_for);
    }
}

impl<F: Fn() -> Usage> Drop for PendingCall<'_, F> {
    fn drop(&mut self) {
        if self.is_open {
            self.book
                .record_usage(self.tenant, self.task, self.model, (self.prompt)());
        }
    }
}

/// Whether an endpoint that fails so has read the prompt.
pub(super) const fn is_paid_for(error: &LlmError) -> bool {
    matches!(error, LlmError::Timeout | LlmError::Broken(_))
}

/// Tokens of texts where nobody reports them.
pub(super) fn count_tokens<'a>(counter: TokenCounter, texts: impl Iterator<Item = &'a str>) -> u32 {
    texts.fold(0, |sum, text| sum.saturating_add(counter.count_tokens(text)))
}

/// What a call used whose endpoint does not say.
pub(super) fn estimate_usage(counter: TokenCounter, prompt: &[ChatMessage], answer: &str) -> Usage {
    Usage {
        prompt_tokens: count_tokens(counter, prompt.iter().map(|message| message.content.as_str())),
        cached_tokens: 0,
        completion_tokens: counter.count_tokens(answer),
    }
}

/// A stream that has begun: gives out its first piece again, ends with its usage (counted where
/// the endpoint reports none), and books it however it ends, cut off included.
pub(super) struct MeteredStream {
    first: Option<String>,
    rest: BoxStream<'static, Result<Chunk, LlmError>>,
    meter: StreamMeter,
    over: bool,
    /// The tenant's place among running calls, held until the stream is dropped.
    _permits: HeldPermits,
}

struct StreamMeter {
    book: Arc<UsageBook>,
    tenant: TenantId,
    task: &'static str,
    model: String,
    counter: TokenCounter,
    /// Both are kept in case that they have to be counted.
    prompt: Vec<ChatMessage>,
    answer: String,
    reported: Option<Usage>,
}

/// Whose stream it is, and how its tokens are counted where nobody reports them.
pub(super) struct UsagePayer<'a> {
    pub tenant: &'a TenantId,
    pub task: &'static str,
    pub model: &'a str,
    pub counter: TokenCounter,
    pub prompt: Vec<ChatMessage>,
}

impl MeteredStream {
    pub(super) fn new(
        book: Arc<UsageBook>,
        payer: UsagePayer<'_>,
        (first, rest): (String, BoxStream<'static, Result<Chunk, LlmError>>),
        permits: HeldPermits,
    ) -> Self {
        Self {
            first: Some(first),
            rest,
            meter: StreamMeter {
                book,
                tenant: payer.tenant.clone(),
                task: payer.task,
                model: payer.model.to_owned(),
                counter: payer.counter,
                prompt: payer.prompt,
                answer: String::new(),
                reported: None,
            },
            over: false,
            _permits: permits,
        }
    }
}

impl StreamMeter {
    fn usage(&self) -> Usage {
        self.reported
            .unwrap_or_else(|| estimate_usage(self.counter, &self.prompt, &self.answer))
    }
}

impl Drop for StreamMeter {
    fn drop(&mut self) {
        self.book
            .record_usage(&self.tenant, self.task, &self.model, self.usage());
    }
}

impl Stream for MeteredStream {
    type Item = Result<Chunk, LlmError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        let next = match self.first.take() {
            Some(text) => Some(Ok(Chunk::Text(text))),
            None => match self.rest.poll_next_unpin(context) {
                Poll::Ready(next) => next,
                Poll::Pending => return Poll::Pending,
            },
        };
        match &next {
            Some(Ok(Chunk::Text(text))) => {
                self.meter.answer.push_str(text);
                return Poll::Ready(next);
            }
            Some(Ok(Chunk::AtCap)) => return Poll::Ready(next),
            Some(Ok(Chunk::Usage(usage))) => self.meter.reported = Some(*usage),
            Some(Err(_)) | None => {}
        }
        self.over = true;
        Poll::Ready(Some(next.unwrap_or_else(|| {
            let usage = self.meter.usage();
            // Counted once.
            self.meter.reported = Some(usage);
            Ok(Chunk::Usage(usage))
        })))
    }
}
