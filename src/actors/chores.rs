//! Periodic work of the node for all tenants: usage, the outbox's left-overs, expired answers, old facts to consolidate, and
//! rows past their retention. Further work: statistics of tables that have grown, and jobs that a dead process left behind.

use std::{
    collections::{HashMap, VecDeque},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::TimeDelta;
use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    curator, messages::CuratorRequest, node::send_message, npc_conversation::ConversationKind, registry::Registry,
    session::SessionKind,
};
use colloquy_core::{ids::DialogueKind, scope::TenantScope};
use colloquy_ports::{
    StoreError,
    ledger::{PruneBefore, usage::UsageDelta},
};

/// Answers to repeated POSTs are stored for a day.
const ANSWER_RETENTION: Duration = Duration::from_hours(24);
const FORGET_ANSWERS_EVERY: Duration = Duration::from_hours(1);
/// How often the ledger checks for tables that have grown: a new table fills within seconds.
const COUNT_TABLES_EVERY: Duration = Duration::from_secs(1);
/// How often a node of a cluster reads the tenants' usage on all nodes.
const BUDGET_REFRESH_IN_CLUSTER: Duration = Duration::from_secs(2);
/// How often a single node reads budgets: the operator may have changed a budget in another process.
const BUDGET_REFRESH_SINGLE_NODE: Duration = Duration::from_secs(30);
/// Jobs taken for a tenant in one sweep; the curator fetches the rest.
const SWEEP_JOBS: usize = 32;
/// Dialogues with a pending replacement turn that a sweep handles per tenant.
const SWEEP_DIALOGUES: u32 = 32;
/// Usage rows buffered while the ledger is away. Beyond the limit, NPCs are no longer told apart, and then the oldest rows
/// are dropped.
const MAX_UNWRITTEN_USAGE: usize = 10_000;
/// Outbox batches handled per run, so that a long backlog does not delay the other chores.
const MAX_OUTBOX_BATCHES: usize = 64;

/// Rows of each sort deleted at once, so that writers do not wait, and batches per run. The next run deletes the rest.
/// A run every 2 s deletes up to 500 rows of a sort per second, more than the turns of a node leave.
const PRUNE_ROWS: u32 = 500;
const PRUNE_BATCHES: usize = 2;

/// Usage that has not been written yet.
type UnwrittenUsage = Vec<(TenantScope, UsageDelta)>;

/// Runs until `stop`; buffered data is written before the return.
pub(super) async fn run(node: Arc<Registry>, stop: CancellationToken) {
    let mut unwritten = UnwrittenUsage::new();
    let mut released = false;
    let mut sweep = RepeatedChore::default();
    let mut hourly_chores = RepeatedChore::default();
    let mut table_count = RepeatedChore::default();
    let mut budget_refresh = RepeatedChore::default();
    let mut to_prune = VecDeque::new();
    let mut consolidation: Option<JoinHandle<()>> = None;
    let mut embedding: Option<JoinHandle<()>> = None;
    let interval = Duration::from_millis(node.settings.chores_ms.max(10));
    loop {
        let now = node.ports.clock.monotonic_now();
        if !released {
            released = run_chore("releasing the leases of an earlier run", release_own_leases(&node)).await;
        }
        // Not before the leases are free, or the sweep would miss the leased jobs.
        let sweep_every = Duration::from_secs(node.settings.sweep_s.max(1));
        if released && sweep.begin_if_due(now, sweep_every) {
            run_chore("looking for jobs left behind", sweep_all_tenants(&node)).await;
        }
        revive_conversations(&node).await;
        run_chore("writing usage", write_usage(&node, &mut unwritten)).await;
        run_chore("telling webhooks of budgets", write_budget_warnings(&node)).await;
        run_chore("relaying the outbox", relay_outbox(&node)).await;
        // The embedder may take long, and must not hold up the other chores.
        if embedding.as_ref().is_none_or(JoinHandle::is_finished) {
            let node = Arc::clone(&node);
            embedding = Some(tokio::spawn(async move { embed_backlog(&node).await }));
        }
        if budget_refresh.begin_if_due(now, budget_refresh_interval(&node)) {
            run_chore(
                "reading budgets",
                node.ports.budgets.refresh_from_ledger(&node.ports.ledger),
            )
            .await;
        }
        node.ports.budgets.recount_stored(&node.ports.ledger).await;
        if table_count.begin_if_due(now, COUNT_TABLES_EVERY) {
            run_chore("counting tables that have grown", count_tables(&node)).await;
        }
        if hourly_chores.begin_if_due(now, FORGET_ANSWERS_EVERY) {
            run_hourly_chores(&node, &mut consolidation, &mut to_prune).await;
        }
        run_chore("deleting what is too old", prune_tenants(&node, &mut to_prune)).await;
        if stop.run_until_cancelled(tokio::time::sleep(interval)).await.is_none() {
            break;
        }
    }
    for task in [consolidation, embedding].into_iter().flatten() {
        task.abort();
    }
    run_chore("writing usage", write_usage(&node, &mut unwritten)).await;
    run_chore("telling webhooks of budgets", write_budget_warnings(&node)).await;
}

/// A chore with an interval of its own.
#[derive(Default)]
struct RepeatedChore {
    last_begin: Option<Instant>,
}

impl RepeatedChore {
    /// True if the chore never ran, or last began at least `interval` ago. The chore then counts as begun.
    fn begin_if_due(&mut self, now: Instant, interval: Duration) -> bool {
        let is_due = self
            .last_begin
            .is_none_or(|last_begin| now.saturating_duration_since(last_begin) >= interval);
        if is_due {
            self.last_begin = Some(now);
        }
        is_due
    }
}

/// Forgets old answers, begins to look for facts to consolidate, and queues all tenants for pruning.
async fn run_hourly_chores(
    node: &Arc<Registry>,
    consolidation: &mut Option<JoinHandle<()>>,
    to_prune: &mut VecDeque<TenantScope>,
) {
    let before = node.ports.clock.now() - ANSWER_RETENTION;
    run_chore(
        "forgetting old answers",
        node.ports.ledger.idempotency.forget_answers_before(before),
    )
    .await;
    // A look at large worlds takes long, and must not hold up the other chores.
    if consolidation.as_ref().is_none_or(JoinHandle::is_finished) {
        let node = Arc::clone(node);
        *consolidation = Some(tokio::spawn(async move {
            run_chore("looking for facts to consolidate", queue_consolidations(&node)).await;
        }));
    }
    run_chore("looking for what is too old", queue_tenants_for_pruning(node, to_prune)).await;
}

/// In a cluster, other nodes use the same budgets. A single node counts all usage itself.
fn budget_refresh_interval(node: &Registry) -> Duration {
    match &node.membership {
        Some(_) => BUDGET_REFRESH_IN_CLUSTER,
        None => BUDGET_REFRESH_SINGLE_NODE,
    }
}

/// Runs a chore. A failure is logged, and the chore runs again later. `true`: the chore succeeded.
async fn run_chore(name: &str, chore: impl Future<Output = Result<(), StoreError>>) -> bool {
    match AssertUnwindSafe(chore).catch_unwind().await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::warn!(%error, "{name} failed");
            false
        }
        Err(_panic) => {
            tracing::error!("{name} panicked");
            false
        }
    }
}

/// Spawns the actors of conversations that panicked or could not be loaded. Self-paced conversations get no request
/// that would spawn an actor.
async fn revive_conversations(node: &Arc<Registry>) {
    let mut dead_keys = Vec::new();
    node.conversations.for_each_entry(|key, entry| {
        if !entry.actor.addr.connected() {
            dead_keys.push(key.clone());
        }
    });
    for key in dead_keys {
        // A conversation that keeps crashing waits longer each time.
        let _ = node.get_or_spawn_dialogue(&key, ConversationKind::default).await;
    }
}

async fn release_own_leases(node: &Registry) -> Result<(), StoreError> {
    node.ports.ledger.jobs.release_all_leases(node.id).await
}

pub(super) async fn sweep_all_tenants(node: &Arc<Registry>) -> Result<(), StoreError> {
    for tenant in node.ports.ledger.tenants.list_all().await? {
        let scope = TenantScope::new(tenant.id);
        if tenant.enabled && !node.is_disabled(&scope) {
            sweep_tenant(node, &scope).await?;
        }
    }
    Ok(())
}

/// Takes over the jobs and dialogues that were left behind for a tenant.
pub(super) async fn sweep_tenant(node: &Arc<Registry>, scope: &TenantScope) -> Result<(), StoreError> {
    let jobs = curator::lease_due_jobs(node, scope, SWEEP_JOBS).await?;
    let rewinds = &node.ports.ledger.rewinds;
    rewinds.delete_expired_seals(scope, node.ports.clock.now()).await?;
    for dialogue in rewinds.list_pending_replacements(scope, SWEEP_DIALOGUES).await? {
        // Loading the dialogue reinstates the turn; a live actor knows of the turn already.
        let key = (scope.clone(), dialogue);
        let _ = match dialogue.kind() {
            DialogueKind::Session => node.get_or_spawn_dialogue(&key, SessionKind::default).await.map(drop),
            DialogueKind::NpcConversation => {
                let spawned = node.get_or_spawn_dialogue(&key, ConversationKind::default);
                spawned.await.map(drop)
            }
        };
    }
    let unsettled = rewinds.list_dirty_memories(scope, 1).await?;
    let work_left = !jobs.is_empty() || !unsettled.is_empty();
    if !work_left && !curator::has_silent_dialogues(node, scope).await? {
        return Ok(());
    }
    if work_left {
        tracing::info!(tenant = %scope.tenant(), jobs = jobs.len(), "resuming jobs left behind");
    }
    if let Some(curator) = node.get_or_spawn_curator(scope) {
        // A curator that is just stopping leaves the jobs leased; the jobs come again later.
        let _ = send_message(node, &curator, CuratorRequest::TakeJobs(jobs)).await;
    }
    Ok(())
}

/// Adds up the usage of all NPCs of a tenant, so that the tenant's sums stay whole.
fn forget_owners(unwritten: &mut UnwrittenUsage) {
    let mut sums: Vec<(TenantScope, UsageDelta)> = Vec::new();
    let mut places = HashMap::new();
    for (scope, delta) in unwritten.drain(..) {
        let key = (scope.tenant().clone(), delta.day, delta.task, delta.model.clone());
        let place = *places.entry(key).or_insert(sums.len());
        match sums.get_mut(place) {
            Some((_, sum)) => {
                sum.calls = sum.calls.saturating_add(delta.calls);
                sum.usage += delta.usage;
                sum.unchanged_tokens = sum.unchanged_tokens.saturating_add(delta.unchanged_tokens);
            }
            None => sums.push((
                scope,
                UsageDelta {
                    owner: None,
                    player: None,
                    ..delta
                },
            )),
        }
    }
    *unwritten = sums;
}

async fn write_usage(node: &Registry, unwritten: &mut UnwrittenUsage) -> Result<(), StoreError> {
    unwritten.extend(node.use_cases.take_usage());
    if unwritten.len() > MAX_UNWRITTEN_USAGE {
        forget_owners(unwritten);
    }
    let excess = unwritten.len().saturating_sub(MAX_UNWRITTEN_USAGE);
    unwritten.drain(..excess);
    while let Some((scope, _)) = unwritten.first() {
        let scope = scope.clone();
        let deltas: Vec<UsageDelta> = unwritten
            .iter()
            .filter(|(owner, _)| *owner == scope)
            .map(|(_, delta)| delta.clone())
            .collect();
        node.ports.ledger.usage.add_usage(&scope, &deltas).await?;
        unwritten.retain(|(owner, _)| *owner != scope);
    }
    Ok(())
}

/// Writes messages about budgets. A warning that cannot be written now is written later.
async fn write_budget_warnings(node: &Registry) -> Result<(), StoreError> {
    let budgets = &node.ports.budgets;
    let mut warnings = VecDeque::from(budgets.take_warnings());
    while let Some((tenant, warning)) = warnings.pop_front() {
        let scope = TenantScope::new(tenant.clone());
        let store = &node.ports.ledger.webhooks;
        if let Err(error) = store
            .queue_budget_warnings(&scope, std::slice::from_ref(&warning))
            .await
        {
            warnings.push_front((tenant, warning));
            budgets.return_warnings(warnings.into());
            return Err(error);
        }
    }
    Ok(())
}

/// A tenant whose facts cannot be read does not hinder the others.
async fn queue_consolidations(node: &Registry) -> Result<(), StoreError> {
    for tenant in node.ports.ledger.tenants.list_all().await? {
        let scope = TenantScope::new(tenant.id);
        if !tenant.enabled || node.is_disabled(&scope) {
            continue;
        }
        if let Err(error) = node.use_cases.queue_due_consolidations(&scope).await {
            tracing::warn!(tenant = %scope.tenant(), %error, "the facts to consolidate were not found");
        }
    }
    Ok(())
}

/// Embeds what was stored while the embedder was away, and lets curators compare it.
async fn embed_backlog(node: &Arc<Registry>) {
    for scope in node.use_cases.embed_backlog().await {
        if let Some(curator) = node.get_or_spawn_curator(&scope) {
            // A curator that is just stopping leaves the marks for the next sweep.
            let _ = send_message(node, &curator, CuratorRequest::TurnsUnsaid(Vec::new())).await;
        }
    }
}

async fn queue_tenants_for_pruning(node: &Registry, to_prune: &mut VecDeque<TenantScope>) -> Result<(), StoreError> {
    let tenants = node.ports.ledger.tenants.list_all().await?;
    *to_prune = tenants.into_iter().map(|tenant| TenantScope::new(tenant.id)).collect();
    Ok(())
}

/// Deletes rows past their retention, for the queued tenants in turn. Finished tenants leave the queue.
async fn prune_tenants(node: &Registry, to_prune: &mut VecDeque<TenantScope>) -> Result<(), StoreError> {
    let keep = &node.ports.settings.retention;
    let now = node.ports.clock.now();
    if !node.ports.clock.is_settled() {
        return Ok(());
    }
    let since = |days: u32| (days > 0).then(|| now - TimeDelta::days(i64::from(days)));
    let before = PruneBefore {
        done_jobs: since(keep.done_jobs_d),
        traces: since(keep.traces_d),
        verdicts: since(keep.verdicts_d),
        unsaid: since(keep.unsaid_d),
        unchanged: since(keep.unchanged_d),
        webhook_messages: since(keep.webhooks_d),
        npc_usage: since(keep.npc_usage_d),
        audit: since(keep.audit_d),
        player_usage: Some(now - TimeDelta::days(1)),
        // Independent of the node's clock: other nodes may still have to read revocations.
        revocations: Some(now - TimeDelta::days(1)),
    };
    let mut batches = 0;
    while batches < PRUNE_BATCHES
        && let Some(scope) = to_prune.pop_front()
    {
        // A failed tenant is tried again with the next hour.
        let deleted = node
            .ports
            .ledger
            .maintenance
            .prune_expired(&scope, &before, PRUNE_ROWS)
            .await?;
        if deleted >= u64::from(PRUNE_ROWS) {
            batches += 1;
            to_prune.push_back(scope);
        }
    }
    Ok(())
}

async fn count_tables(node: &Registry) -> Result<(), StoreError> {
    node.ports.ledger.maintenance.count_grown_tables().await.map(drop)
}

async fn relay_outbox(node: &Registry) -> Result<(), StoreError> {
    for _ in 0..MAX_OUTBOX_BATCHES {
        if node.use_cases.relay_outbox().await? == 0 {
            break;
        }
    }
    Ok(())
}
