//! Usage accounting: counters between two writes to the ledger, and the meter of a stream.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use chrono::NaiveDate;
use futures_util::{Stream, StreamExt, stream::BoxStream};
use parking_lot::Mutex;

use super::{
    budgets::Budgets,
    metrics::ModelMetrics,
    owner::{self, CallOwner},
    permits::HeldPermits,
    tally,
};
use colloquy_core::{
    ids::{PlayerId, TenantId},
    scope::TenantScope,
};
use colloquy_memory::{tokens::TokenCounter, turn::Usage};
use colloquy_ports::{
    clock::Clock,
    ledger::usage::{UsageDelta, UsageOwner},
    llm::{ChatMessage, Chunk, LlmError},
};

/// Usage sums by tenant, day, NPC, task and model.
pub(super) struct UsageBook {
    clock: Arc<dyn Clock>,
    meters: Arc<ModelMetrics>,
    budgets: Arc<Budgets>,
    sums: Mutex<HashMap<UsageKey, UsageSum>>,
}

#[derive(Default)]
struct UsageSum {
    calls: u32,
    usage: Usage,
    unchanged_tokens: u64,
}

#[derive(PartialEq, Eq, Hash)]
struct UsageKey {
    tenant: TenantId,
    day: NaiveDate,
    owner: Option<UsageOwner>,
    /// Only where the share of a player is limited.
    player: Option<PlayerId>,
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
    /// Counts a call for the surrounding work's NPC.
    pub(super) fn record_usage(&self, tenant: &TenantId, task: &'static str, model: &str, usage: Usage) {
        self.record_usage_of(owner::current_owner(), tenant, task, model, usage);
    }
    fn record_usage_of(&self, owner: CallOwner, tenant: &TenantId, task: &'static str, model: &str, usage: Usage) {
        self.meters.record_usage(tenant, task, model, usage);
        tally::tally_call(task, usage);
        let day = self.clock.now().date_naive();
        let owner = CallOwner {
            player: owner.player.filter(|_| self.budgets.counts_players(tenant)),
            ..owner
        };
        let player = owner.player.as_ref();
        self.budgets.record_spending(tenant, player, day, model, usage);
        self.add_to_sum(owner, tenant, task, model, |sum| {
            sum.calls = sum.calls.saturating_add(1);
            sum.usage += usage;
        });
    }
    pub(super) fn record_unchanged(&self, tenant: &TenantId, task: &'static str, model: &str, tokens: u32) {
        let owner = CallOwner {
            player: None,
            ..owner::current_owner()
        };
        self.add_to_sum(owner, tenant, task, model, |sum| {
            sum.unchanged_tokens = sum.unchanged_tokens.saturating_add(tokens.into());
        });
    }
    fn add_to_sum(
        &self,
        owner: CallOwner,
        tenant: &TenantId,
        task: &'static str,
        model: &str,
        add: impl FnOnce(&mut UsageSum),
    ) {
        let account = UsageKey {
            tenant: tenant.clone(),
            day: self.clock.now().date_naive(),
            owner: owner.npc,
            player: owner.player,
            task,
            model: model.to_owned(),
        };
        add(self.sums.lock().entry(account).or_default());
    }
    /// Returns and clears the sums.
    pub(super) fn take_sums(&self) -> Vec<(TenantScope, UsageDelta)> {
        let sums = std::mem::take(&mut *self.sums.lock());
        sums.into_iter()
            .map(|(account, sum)| {
                let delta = UsageDelta {
                    day: account.day,
                    owner: account.owner,
                    player: account.player,
                    task: account.task,
                    model: account.model,
                    calls: sum.calls,
                    usage: sum.usage,
                    unchanged_tokens: sum.unchanged_tokens,
                };
                (TenantScope::new(account.tenant), delta)
            })
            .collect()
    }
}

/// A sent call. If the call is dropped before its answer, or the answer is unusable, its prompt still counts: the
/// endpoint has read the prompt.
pub(super) struct PendingCall<'a, F: Fn() -> Usage> {
    pub book: &'a UsageBook,
    pub tenant: &'a TenantId,
    pub task: &'static str,
    pub model: &'a str,
    /// Computes the usage of the prompt.
    pub prompt: F,
    pub is_open: bool,
}

impl<F: Fn() -> Usage> PendingCall<'_, F> {
    /// Marks the call as ended. Its usage is counted by the caller, unless the error shows a prompt that was read.
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

/// True if an endpoint with this error has read the prompt.
pub(super) const fn is_paid_for(error: &LlmError) -> bool {
    matches!(error, LlmError::Timeout | LlmError::Broken(_))
}

/// Counts the tokens of texts without reported usage.
pub(super) fn count_tokens<'a>(counter: TokenCounter, texts: impl Iterator<Item = &'a str>) -> u32 {
    texts.fold(0, |sum, text| sum.saturating_add(counter.count_tokens(text)))
}

/// Estimates the usage of a call without reported usage.
pub(super) fn estimate_usage(counter: TokenCounter, prompt: &[ChatMessage], answer: &str) -> Usage {
    Usage {
        prompt_tokens: count_tokens(counter, prompt.iter().map(|message| message.content.as_str())),
        cached_tokens: 0,
        completion_tokens: counter.count_tokens(answer),
    }
}

/// A started stream. It repeats the first chunk, and ends with the usage (counted if the endpoint reports none). The
/// usage is recorded at every kind of end, including a cut.
pub(super) struct MeteredStream {
    first: Option<Chunk>,
    rest: BoxStream<'static, Result<Chunk, LlmError>>,
    meter: StreamMeter,
    over: bool,
    /// The permits of the running call, held until the stream is dropped.
    _permits: HeldPermits,
}

struct StreamMeter {
    book: Arc<UsageBook>,
    /// The owner when the stream began: the stream may end elsewhere.
    owner: CallOwner,
    tenant: TenantId,
    task: &'static str,
    model: String,
    counter: TokenCounter,
    /// Prompt and answer, stored in case their tokens must be counted.
    prompt: Vec<ChatMessage>,
    answer: String,
    reported: Option<Usage>,
}

/// The owner of a stream, and the token counter for missing usage reports.
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
        first: Chunk,
        rest: BoxStream<'static, Result<Chunk, LlmError>>,
        permits: HeldPermits,
    ) -> Self {
        Self {
            first: Some(first),
            rest,
            meter: StreamMeter {
                book,
                owner: owner::current_owner(),
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
        let usage = self.usage();
        self.book.record_usage_of(
            std::mem::take(&mut self.owner),
            &self.tenant,
            self.task,
            &self.model,
            usage,
        );
    }
}

impl Stream for MeteredStream {
    type Item = Result<Chunk, LlmError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        let next = match self.first.take() {
            Some(first) => Some(Ok(first)),
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
            Some(Ok(Chunk::ToolCalls(calls))) => {
                for call in calls {
                    self.meter.answer.push_str(&call.to_string());
                }
                return Poll::Ready(next);
            }
            Some(Ok(Chunk::AtCap)) => return Poll::Ready(next),
            Some(Ok(Chunk::Usage(usage))) => self.meter.reported = Some(*usage),
            Some(Err(_)) | None => {}
        }
        self.over = true;
        Poll::Ready(Some(next.unwrap_or_else(|| {
            let usage = self.meter.usage();
            // Recorded only once.
            self.meter.reported = Some(usage);
            Ok(Chunk::Usage(usage))
        })))
    }
}
