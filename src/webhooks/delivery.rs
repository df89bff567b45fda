//! The loop that delivers messages. Every node runs the loop; claims of the ledger share the work.
//!
//! A message is delivered at least once. If a node dies after an answer, its success is not stored, and the message is
//! claimed again when the lease ends. Receivers tell repetitions by `webhook-id`.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use serde_json::Map;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    body::render_body,
    keys::{self, SignedContent},
    metrics::WebhookMetrics,
    retries::{Verdict, judge_attempt},
    settings::WebhookSettings,
};
use colloquy_core::{
    ids::{NodeId, TenantId, WebhookId},
    scope::TenantScope,
};
use colloquy_ports::{
    StoreResult,
    clock::{Clock, IdSource},
    ledger::{
        priority::in_background,
        webhooks::{AfterAttempt, Attempt, AttemptRecord, BusyOwners, DueMessage, MessageClaim, Webhook, WebhookStore},
    },
    webhook_sender::{SendError, WebhookRequest, WebhookSender},
};

/// Webhooks that a round looks at.
const WEBHOOKS_PER_ROUND: u32 = 64;
/// The time after an attempt's limit in which the outcome is stored, before another node may try the message.
const LEASE_RESERVE: Duration = Duration::from_secs(30);
/// How long a stopping node waits for running attempts. Their messages are sent again otherwise.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
const BACKLOG_EVERY: Duration = Duration::from_secs(15);
/// The pause after the ledger did not answer.
const OUTAGE_PAUSE: Duration = Duration::from_secs(5);
/// Attempts to store an outcome, and the pause between them.
const STORE_ATTEMPTS: u32 = 3;
const STORE_PAUSE: Duration = Duration::from_millis(200);

/// The parts of the loop.
#[derive(Clone)]
pub struct Deliveries {
    pub store: Arc<dyn WebhookStore>,
    pub sender: Arc<dyn WebhookSender>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<IdSource>,
    /// Claims are in the name of this node.
    pub node: NodeId,
    pub settings: Arc<WebhookSettings>,
    pub metrics: WebhookMetrics,
}

/// The number of running attempts, by webhook and its tenant.
#[derive(Clone, Default)]
struct RunningAttempts(Arc<Mutex<HashMap<(TenantId, WebhookId), u32>>>);

/// A running attempt.
struct RunningAttempt {
    all: RunningAttempts,
    owner: (TenantId, WebhookId),
}

impl RunningAttempts {
    fn begin(&self, tenant: &TenantId, webhook: WebhookId) -> RunningAttempt {
        let owner = (tenant.clone(), webhook);
        *self.0.lock().entry(owner.clone()).or_default() += 1;
        RunningAttempt {
            all: self.clone(),
            owner,
        }
    }
    fn of_webhook(&self, webhook: WebhookId) -> u32 {
        self.count(|owner| owner.1 == webhook)
    }
    fn of_tenant(&self, tenant: &TenantId) -> u32 {
        self.count(|owner| owner.0 == *tenant)
    }
    fn count(&self, is_counted: impl Fn(&(TenantId, WebhookId)) -> bool) -> u32 {
        let running = self.0.lock();
        let matching = running.iter().filter(|(owner, _)| is_counted(owner));
        matching.map(|(_, count)| count).sum()
    }
    /// Returns the webhooks and tenants that have all of their places.
    fn busy(&self, settings: &WebhookSettings) -> BusyOwners {
        let mut busy = BusyOwners::default();
        let mut of_tenants: HashMap<TenantId, u32> = HashMap::new();
        for ((tenant, webhook), count) in self.0.lock().iter() {
            if *count >= settings.webhook_concurrency {
                busy.webhooks.push(*webhook);
            }
            *of_tenants.entry(tenant.clone()).or_default() += count;
        }
        of_tenants.retain(|_, count| *count >= settings.tenant_concurrency());
        busy.tenants = of_tenants.into_keys().collect();
        busy
    }
}

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        let mut running = self.all.0.lock();
        if let Some(count) = running.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.owner);
            }
        }
    }
}

impl Deliveries {
    /// Delivers messages until `stop`. Running attempts then have a moment to end.
    pub async fn run(self, stop: CancellationToken) {
        in_background(self.run_rounds(stop)).await;
    }

    async fn run_rounds(self, stop: CancellationToken) {
        let poll = Duration::from_millis(self.settings.poll_ms.max(1));
        let running = RunningAttempts::default();
        let mut tasks = JoinSet::new();
        let mut last_backlog: Option<Instant> = None;
        let mut released = false;
        while !stop.is_cancelled() {
            if !released {
                // An earlier process of the node may have died with claims.
                released = self.release_leases().await;
            }
            let now = self.clock.monotonic_now();
            if last_backlog.is_none_or(|last| now.saturating_duration_since(last) >= BACKLOG_EVERY) {
                last_backlog = Some(now);
                self.measure_backlog().await;
            }
            let pause = match self.claim_round(&running, &mut tasks).await {
                Ok(true) => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Ok(false) => poll,
                Err(error) => {
                    tracing::warn!(%error, "messages to webhooks cannot be claimed");
                    poll.max(OUTAGE_PAUSE)
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = sleep(pause) => {}
                Some(finished) = tasks.join_next() => {
                    log_panic(finished);
                    // The next messages of the same dialogues are due now.
                    while let Some(finished) = tasks.try_join_next() {
                        log_panic(finished);
                    }
                }
            }
        }
        let drained = timeout(STOP_PATIENCE, async { while tasks.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            tasks.shutdown().await;
        }
        self.release_leases().await;
    }

    async fn release_leases(&self) -> bool {
        let released = self.store.release_message_leases(self.node, self.clock.now()).await;
        if let Err(error) = &released {
            tracing::warn!(%error, "the claims of messages to webhooks cannot be released");
        }
        released.is_ok()
    }

    async fn measure_backlog(&self) {
        match self.store.load_webhook_backlog().await {
            Ok(backlog) => {
                let age = backlog
                    .oldest
                    .map(|oldest| (self.clock.now() - oldest).num_seconds().max(0));
                self.metrics
                    .backlog
                    .set(i64::try_from(backlog.messages).unwrap_or(i64::MAX));
                self.metrics.backlog_age.set(age.unwrap_or_default());
            }
            Err(error) => tracing::warn!(%error, "the backlog of webhooks cannot be read"),
        }
    }

    /// Claims due messages for free places, and starts their attempts. `true`: more may be due, and places are free.
    async fn claim_round(&self, running: &RunningAttempts, tasks: &mut JoinSet<()>) -> StoreResult<bool> {
        let free_places = |tasks: &JoinSet<()>| {
            let task_count = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
            self.settings.concurrency.saturating_sub(task_count)
        };
        if free_places(tasks) == 0 {
            return Ok(false);
        }
        let now = self.clock.now();
        let busy = running.busy(&self.settings);
        let mut due = self.store.list_due_webhooks(now, &busy, WEBHOOKS_PER_ROUND).await?;
        // Tenants with few places come first, so that those with many do not take each place that becomes free.
        due.sort_by_cached_key(|(scope, _)| running.of_tenant(scope.tenant()));
        let is_full_page = due.len() == WEBHOOKS_PER_ROUND as usize;
        let mut has_more = false;
        for (scope, webhook) in due {
            let of_tenant = (self.settings.tenant_concurrency()).saturating_sub(running.of_tenant(scope.tenant()));
            let of_webhook = (self.settings.webhook_concurrency).saturating_sub(running.of_webhook(webhook));
            let limit = free_places(tasks).min(of_tenant).min(of_webhook);
            if limit == 0 {
                // The next round leaves this tenant out, so webhooks of others are in its page.
                has_more |= is_full_page && of_tenant == 0;
                continue;
            }
            let now = self.clock.now();
            let claim = MessageClaim {
                webhook,
                node: self.node,
                now,
                until: now + self.settings.timeout() + LEASE_RESERVE,
                limit,
            };
            let Some(claimed) = self.store.claim_messages(&scope, &claim).await? else {
                continue;
            };
            has_more |= claimed.has_more && claimed.messages.len() < limit as usize;
            let webhook = Arc::new(claimed.webhook);
            for message in claimed.messages {
                let worker = self.clone();
                let scope = scope.clone();
                let webhook = Arc::clone(&webhook);
                let place = running.begin(scope.tenant(), message.webhook);
                tasks.spawn(in_background(async move {
                    worker.deliver(&scope, &webhook, &message).await;
                    drop(place);
                }));
            }
        }
        Ok(has_more)
    }

    /// Makes one attempt, and stores its outcome.
    async fn deliver(&self, scope: &TenantScope, webhook: &Webhook, message: &DueMessage) {
        let content = self.store.load_message_content(scope, message, webhook.include_text);
        let content = match content.await {
            Ok(content) => content,
            Err(error) if error.is_transient() => {
                // The message is due again at the end of the lease.
                tracing::warn!(%error, message = %message.id, "the object of an event cannot be read");
                return;
            }
            Err(error) => {
                tracing::error!(%error, message = %message.id, "the object of an event is unreadable");
                Map::new()
            }
        };
        let body = render_body(message, content);
        let sent_at = self.clock.now();
        let started = self.clock.monotonic_now();
        let answered = match sign_request(webhook, message, body, sent_at) {
            Ok(request) => self.sender.send_webhook(&request).await,
            Err(error) => Err(error),
        };
        let now = self.clock.now();
        let duration = self.clock.monotonic_now().saturating_duration_since(started);
        let verdict = judge_attempt(&self.settings, webhook, message, &answered, now, rand::random());
        self.count(&verdict, duration);
        if let Some(reason) = verdict.disable {
            tracing::warn!(tenant = %scope.tenant(), webhook = %webhook.id, reason = reason.as_str(), "a webhook is disabled");
        }
        let record = AttemptRecord {
            attempt: Attempt {
                id: self.ids.next_id(),
                webhook: webhook.id,
                message: message.id,
                event: message.event,
                number: message.attempts.saturating_add(1),
                sent_at,
                duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
                delivered: verdict.delivered,
                status: verdict.status,
                detail: verdict.detail,
            },
            seq: message.seq,
            node: self.node,
            after: verdict.after,
            disable: verdict.disable,
            now,
        };
        self.store_outcome(scope, &record).await;
    }

    fn count(&self, verdict: &Verdict, duration: Duration) {
        let outcome = if verdict.delivered { "delivered" } else { "failed" };
        self.metrics.attempts.with_label_values(&[outcome]).inc();
        self.metrics.duration.observe(duration.as_secs_f64());
        if verdict.after == AfterAttempt::GiveUp {
            self.metrics.given_up.inc();
        }
        if let Some(reason) = verdict.disable {
            self.metrics.disabled.with_label_values(&[reason.as_str()]).inc();
        }
    }

    /// Stores the outcome of an attempt. After an outage of the ledger, the message is sent again.
    async fn store_outcome(&self, scope: &TenantScope, record: &AttemptRecord) {
        for attempt in 1..=STORE_ATTEMPTS {
            match self.store.record_attempt(scope, record).await {
                Ok(()) => return,
                Err(error) if attempt < STORE_ATTEMPTS && error.is_transient() => sleep(STORE_PAUSE).await,
                Err(error) => {
                    let message = record.attempt.message;
                    tracing::warn!(%error, %message, "the outcome of an attempt is not stored");
                    return;
                }
            }
        }
    }
}

/// Returns the signed request of an attempt.
fn sign_request(
    webhook: &Webhook,
    message: &DueMessage,
    body: String,
    now: DateTime<Utc>,
) -> Result<WebhookRequest, SendError> {
    let content = SignedContent {
        id: message.id,
        timestamp: now.timestamp(),
        body: &body,
    };
    let signature = keys::sign_message(&webhook.keys, now, content).map_err(|error| SendError(error.to_string()))?;
    Ok(WebhookRequest {
        url: webhook.url.clone(),
        headers: vec![
            ("webhook-id", message.id.to_string()),
            ("webhook-timestamp", now.timestamp().to_string()),
            ("webhook-signature", signature),
        ],
        body,
    })
}

fn log_panic(task_result: Result<(), tokio::task::JoinError>) {
    if let Err(error) = task_result {
        tracing::error!(%error, "an attempt to deliver a message panicked");
    }
}
