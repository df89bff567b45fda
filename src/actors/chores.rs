//! What this node does for all tenants now and then: usage, the outbox's left-overs, answers to
//! forget, what has been kept long enough, tables that have grown, and jobs that a process that is no more
//! left behind.

use std::{collections::VecDeque, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use chrono::TimeDelta;
use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::{
    curator::{self, TakeJobs},
    mailbox::send_message,
    registry::Node,
};
use crate::{
    ids::DialogueKind,
    ports::{
        StoreError,
        ledger::{PruneBefore, usage::UsageDelta},
    },
    tenancy::TenantScope,
};

/// Answers to repeated POSTs are kept for a day.
const ANSWER_RETENTION: Duration = Duration::from_hours(24);
const FORGET_ANSWERS_EVERY: Duration = Duration::from_hours(1);
/// How often the ledger is to look for tables that have grown: a new one is filled within seconds.
const COUNT_TABLES_EVERY: Duration = Duration::from_secs(1);
/// How often a node that is one of several reads what tenants used on all of them.
const BUDGET_REFRESH_IN_CLUSTER: Duration = Duration::from_secs(2);
/// How often a node does that is alone: the operator may have changed a budget in another process.
const BUDGET_REFRESH_SINGLE_NODE: Duration = Duration::from_secs(30);
/// Jobs taken on for one tenant in one sweep; its curator fetches the rest.
const SWEEP_JOBS: usize = 32;
/// Dialogues whose turn was to be said anew that are looked after for one tenant in one sweep.
const SWEEP_DIALOGUES: u32 = 32;
/// Usage rows kept while the ledger cannot take them; more are dropped, oldest first.
const MAX_UNWRITTEN_USAGE: usize = 10_000;
/// Batches of the outbox handled in one go, so that a long backlog does not hold up the other chores.
const MAX_OUTBOX_BATCHES: usize = 64;

/// Rows of each sort deleted at once, so that writers do not wait for it, and how often in a row; where more is left it goes
/// on with the next chores. With those every 2 s that is up to 500 rows of a sort a second, more than the turns of a node leave.
const PRUNE_ROWS: u32 = 500;
const PRUNE_BATCHES: usize = 2;

/// Usage that has not been written yet.
type UnwrittenUsage = Vec<(TenantScope, UsageDelta)>;

/// Runs until `stop`; what is buffered is written before it returns.
pub(super) async fn run(node: Arc<Node>, stop: CancellationToken) {
    let mut unwritten = UnwrittenUsage::new();
    let mut released = false;
    let mut last_sweep = None;
    let mut last_forget = None;
    let mut last_count = None;
    let mut last_budgets = None;
    let mut to_prune = VecDeque::new();
    let every = Duration::from_millis(node.settings.chores_ms.max(10));
    loop {
        let now = node.ports.clock.monotonic_now();
        if !released {
            released = run_chore("releasing the leases of an earlier run", release_own_leases(&node)).await;
        }
        // Not before the leases are free, or the sweep would miss what they cover.
        let sweep_every = Duration::from_secs(node.settings.sweep_s.max(1));
        if released && last_sweep.is_none_or(|last| now.saturating_duration_since(last) >= sweep_every) {
            last_sweep = Some(now);
            run_chore("looking for jobs left behind", sweep_all_tenants(&node)).await;
        }
        revive_conversations(&node).await;
        run_chore("writing usage", write_usage(&node, &mut unwritten)).await;
        run_chore("relaying the outbox", relay_outbox(&node)).await;
        if last_budgets.is_none_or(|last| now.saturating_duration_since(last) >= budget_refresh_interval(&node)) {
            last_budgets = Some(now);
            run_chore(
                "reading budgets",
                node.ports.budgets.refresh_from_ledger(&node.ports.ledger),
            )
            .await;
        }
        node.ports.budgets.recount_stored(&node.ports.ledger).await;
        if last_count.is_none_or(|last| now.saturating_duration_since(last) >= COUNT_TABLES_EVERY) {
            last_count = Some(now);
            run_chore("counting tables that have grown", count_tables(&node)).await;
        }
        if last_forget.is_none_or(|last| now.saturating_duration_since(last) >= FORGET_ANSWERS_EVERY) {
            last_forget = Some(now);
            let before = node.ports.clock.now() - ANSWER_RETENTION;
            run_chore(
                "forgetting old answers",
                node.ports.ledger.idempotency.forget_answers_before(before),
            )
            .await;
            run_chore(
                "looking for what is too old",
                queue_tenants_for_pruning(&node, &mut to_prune),
            )
            .await;
        }
        run_chore("deleting what is too old", prune_tenants(&node, &mut to_prune)).await;
        if stop.run_until_cancelled(tokio::time::sleep(every)).await.is_none() {
            break;
        }
    }
    run_chore("writing usage", write_usage(&node, &mut unwritten)).await;
}

/// Others use the same budgets; of what this node uses alone it has count.
fn budget_refresh_interval(node: &Node) -> Duration {
    match &node.membership {
        Some(_) => BUDGET_REFRESH_IN_CLUSTER,
        None => BUDGET_REFRESH_SINGLE_NODE,
    }
}

/// Runs one chore; a failure is logged and the chore comes again. `true`: it went well.
async fn run_chore(what: &str, chore: impl Future<Output = Result<(), StoreError>>) -> bool {
    match AssertUnwindSafe(chore).catch_unwind().await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::warn!(%error, "{what} failed");
            false
        }
        Err(_panic) => {
            tracing::error!("{what} panicked");
            false
        }
    }
}

/// Spawns the actors of conversations that panicked, or could not be loaded: they go on by themselves,
/// so nobody else would.
async fn revive_conversations(node: &Arc<Node>) {
    let mut dead = Vec::new();
    node.conversations.for_each_entry(|key, entry| {
        if !entry.actor.addr.connected() {
            dead.push(key.clone());
        }
    });
    for key in dead {
        // One that crashes again and again waits longer each time.
        let _ = node.get_or_spawn_conversation(&key).await;
    }
}

async fn release_own_leases(node: &Node) -> Result<(), StoreError> {
    node.ports.ledger.jobs.release_all_leases(node.id).await
}

pub(super) async fn sweep_all_tenants(node: &Arc<Node>) -> Result<(), StoreError> {
    for tenant in node.ports.ledger.tenants.list_all().await? {
        let scope = TenantScope::new(tenant.id);
        if tenant.enabled && !node.is_disabled(&scope) {
            sweep_tenant(node, &scope).await?;
        }
    }
    Ok(())
}

/// Takes up what was left behind of one tenant.
pub(super) async fn sweep_tenant(node: &Arc<Node>, scope: &TenantScope) -> Result<(), StoreError> {
    let jobs = curator::lease_due_jobs(node, scope, SWEEP_JOBS).await?;
    let rewinds = &node.ports.ledger.rewinds;
    rewinds.delete_expired_seals(scope, node.ports.clock.now()).await?;
    for dialogue in rewinds.list_pending_replacements(scope, SWEEP_DIALOGUES).await? {
        // Loading it puts the turn back; one that lives knows of it.
        let key = (scope.clone(), dialogue);
        let _ = match dialogue.kind() {
            DialogueKind::Session => node.get_or_spawn_session(&key).await.map(drop),
            DialogueKind::NpcConversation => node.get_or_spawn_conversation(&key).await.map(drop),
        };
    }
    let unsettled = rewinds.list_dirty_memories(scope, 1).await?;
    if jobs.is_empty() && unsettled.is_empty() {
        return Ok(());
    }
    tracing::info!(tenant = %scope.tenant(), jobs = jobs.len(), "resuming jobs left behind");
    if let Some(curator) = node.get_or_spawn_curator(scope) {
        // A curator that stops just now leaves the jobs leased; they come again later.
        let _ = send_message(node, &curator, TakeJobs { jobs }).await;
    }
    Ok(())
}

async fn write_usage(node: &Node, unwritten: &mut UnwrittenUsage) -> Result<(), StoreError> {
    unwritten.extend(node.use_cases.take_usage());
    let excess = unwritten.len().saturating_sub(MAX_UNWRITTEN_USAGE);
    unwritten.drain(..excess);
    while let Some((scope, _)) = unwritten.first() {
        let scope = scope.clone();
        let deltas: Vec<UsageDelta> = unwritten
            .iter()
            .filter(|(of, _)| *of == scope)
            .map(|(_, delta)| delta.clone())
            .collect();
        node.ports.ledger.usage.add_usage(&scope, &deltas).await?;
        unwritten.retain(|(of, _)| *of != scope);
    }
    Ok(())
}

async fn queue_tenants_for_pruning(node: &Node, to_prune: &mut VecDeque<TenantScope>) -> Result<(), StoreError> {
    let tenants = node.ports.ledger.tenants.list_all().await?;
    *to_prune = tenants.into_iter().map(|tenant| TenantScope::new(tenant.id)).collect();
    Ok(())
}

/// Deletes what the configuration keeps no longer, of these tenants in turn. Those of which nothing is left are taken out.
async fn prune_tenants(node: &Node, to_prune: &mut VecDeque<TenantScope>) -> Result<(), StoreError> {
    let keep = &node.ports.settings.retention;
    let now = node.ports.clock.now();
    let since = |days: u32| (days > 0).then(|| now - TimeDelta::days(i64::from(days)));
    let before = PruneBefore {
        done_jobs: since(keep.done_jobs_d),
        traces: since(keep.traces_d),
        verdicts: since(keep.verdicts_d),
        unsaid: since(keep.unsaid_d),
        unchanged: since(keep.unchanged_d),
        // Whatever this node's clock says, others may still have to read them.
        revocations: Some(now - TimeDelta::days(1)),
    };
    let mut batches = 0;
    while batches < PRUNE_BATCHES
        && let Some(scope) = to_prune.pop_front()
    {
        // One that fails is looked at again with the next hour.
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

async fn count_tables(node: &Node) -> Result<(), StoreError> {
    node.ports.ledger.maintenance.count_grown_tables().await.map(drop)
}

async fn relay_outbox(node: &Node) -> Result<(), StoreError> {
    for _ in 0..MAX_OUTBOX_BATCHES {
        if node.use_cases.relay_outbox().await? == 0 {
            break;
        }
    }
    Ok(())
}
