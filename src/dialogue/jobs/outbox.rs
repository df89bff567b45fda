//! Keeps the index equal to the ledger. Order and repetition do not matter: an outbox row names a fact, and the handler
//! reads the fact's present state.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::RwLock;

use crate::Services;
use colloquy_core::{
    ids::{FactId, TenantId},
    scope::TenantScope,
};
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::priority::with_deferred_priority,
    vectors::{IndexPoint, IndexState},
};

/// The number of rows handled at once.
const OUTBOX_BATCH: u32 = 256;
/// The number of batches in one relay. Further rows wait for the next call, which lets other work run.
const MAX_BATCHES: usize = 64;
/// The number of rewrites for facts that change during the write. Afterwards the rows are retried later.
const MAX_WRITE_ROUNDS: usize = 4;
/// The number of points read at once.
const POINTS_PER_PAGE: u32 = 500;

/// Copies the facts in the outbox to the index. Returns the number of handled rows (0: idle). A tenant's failed rows
/// stay for the next call and delay no other tenant.
///
/// One relay runs at a time on a node. A caller waits for the running relay. The first waiting caller then handles the
/// rows of all waiting callers, unless some of these rows stay.
///
/// When the call returns, rows written before the call are in the index. Exceptions: the tenant's rows fail, or more
/// rows waited than one relay handles (64 batches of 256).
pub async fn relay_outbox(services: &Services) -> Result<usize, StoreError> {
    relay_deferred(services).await.map(|relayed| relayed.handled)
}

/// Works like [`relay_outbox`], for a caller that needs this tenant's complete index.
///
/// # Errors
/// If rows of this tenant were left.
pub(crate) async fn relay_outbox_for_tenant(services: &Services, scope: &TenantScope) -> Result<(), StoreError> {
    match relay_deferred(services).await?.stuck.remove(scope.tenant()) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// The lock of this node's single outbox relay, with its waiting callers, and what the index lacks since an outage.
#[derive(Default)]
pub(crate) struct OutboxRelay {
    /// The number of calls so far.
    call_count: AtomicU64,
    /// The number of calls before the start of a relay that left no rows.
    served: tokio::sync::Mutex<u64>,
    backlog: RwLock<OutageBacklog>,
}

/// The tenants whose facts of an outage are not in the shared index yet.
#[derive(Default)]
enum OutageBacklog {
    #[default]
    None,
    Of(BTreeSet<TenantId>),
    /// The index was away, and the rows were not read.
    Any,
}

impl OutboxRelay {
    /// True if the shared index lacks facts that were taught while it was away. A search in it would miss them.
    pub(crate) fn has_backlog(&self, tenant: &TenantId) -> bool {
        match &*self.backlog.read() {
            OutageBacklog::None => false,
            OutageBacklog::Of(tenants) => tenants.contains(tenant),
            OutageBacklog::Any => true,
        }
    }

    /// Waits for the running relay. `None`: another relay began after this call and left no rows, so the caller's
    /// earlier writes are in the index.
    async fn wait_for_turn(&self) -> Option<RelayPermit<'_>> {
        let ticket = self.call_count.fetch_add(1, Ordering::SeqCst) + 1;
        let served = self.served.lock().await;
        (*served < ticket).then(|| RelayPermit {
            covers: self.call_count.load(Ordering::SeqCst),
            served,
        })
    }
}

/// The exclusive permit to relay the outbox.
struct RelayPermit<'a> {
    covers: u64,
    served: tokio::sync::MutexGuard<'a, u64>,
}

impl RelayPermit<'_> {
    /// Records that the relay left no rows. Callers from before its start need no relay of their own.
    fn mark_all_served(mut self) {
        *self.served = self.covers;
    }
}

#[derive(Default)]
struct RelayOutcome {
    handled: usize,
    /// The tenants whose rows stay for now, with the error.
    stuck: BTreeMap<TenantId, StoreError>,
}

/// Runs with deferred priority instead of background priority: only one relay runs at a time, and some callers wait for
/// it.
async fn relay_deferred(services: &Services) -> Result<RelayOutcome, StoreError> {
    with_deferred_priority(relay_exclusively(services)).await
}

async fn relay_exclusively(services: &Services) -> Result<RelayOutcome, StoreError> {
    let mut relayed = RelayOutcome::default();
    let Some(permit) = services.memory_cache.relays.wait_for_turn().await else {
        return Ok(relayed);
    };
    let backlog = &services.memory_cache.relays.backlog;
    // Rows that stay are read again, so each batch reaches past them.
    let mut stuck_rows = 0_u32;
    for _ in 0..MAX_BATCHES {
        let limit = OUTBOX_BATCH.saturating_add(stuck_rows);
        let rows = services.ledger.facts.load_outbox(limit).await?;
        let full = rows.len() >= limit as usize;
        let mut tenants: BTreeMap<TenantId, (Vec<i64>, HashSet<FactId>)> = BTreeMap::new();
        stuck_rows = 0;
        for row in rows {
            if relayed.stuck.contains_key(&row.tenant) {
                stuck_rows += 1;
                continue;
            }
            let (seqs, facts) = tenants.entry(row.tenant).or_default();
            seqs.push(row.seq);
            facts.insert(row.fact);
        }
        for (tenant, (seqs, facts)) in tenants {
            failpoint!("outbox.read");
            let scope = TenantScope::new(tenant);
            match relay_tenant(services, &scope, &facts).await {
                Ok(()) => {
                    failpoint!("outbox.indexed");
                    services.ledger.facts.mark_outbox_done(&seqs).await?;
                    failpoint!("outbox.done");
                    relayed.handled += seqs.len();
                }
                Err(error) => {
                    tracing::warn!(tenant = %scope.tenant(), %error, "facts were not moved into the index; they are tried again");
                    stuck_rows = stuck_rows.saturating_add(u32::try_from(seqs.len()).unwrap_or(u32::MAX));
                    relayed.stuck.insert(scope.tenant().clone(), error);
                }
            }
        }
        if !relayed.stuck.is_empty() && services.index.index_state() == IndexState::Away {
            // No further row can be moved, and an outage may leave many.
            *backlog.write() = OutageBacklog::Any;
            break;
        }
        if !full {
            let lagging: BTreeSet<TenantId> = relayed.stuck.keys().cloned().collect();
            *backlog.write() = if lagging.is_empty() || !services.index.is_shared() {
                OutageBacklog::None
            } else {
                OutageBacklog::Of(lagging)
            };
            if relayed.stuck.is_empty() {
                permit.mark_all_served();
            }
            break;
        }
    }
    Ok(relayed)
}

async fn relay_tenant(services: &Services, scope: &TenantScope, facts: &HashSet<FactId>) -> StoreResult<()> {
    let index = &services.index;
    if index.index_state() == IndexState::Filling {
        return Err(index_not_ready_error());
    }
    let ids: Vec<FactId> = facts.iter().copied().collect();
    write_points(services, scope, &ids).await?;
    // Another node may have activated another index, which lacks the points written here.
    if index.is_shared() && !index.is_current().await? {
        return Err(index_not_ready_error());
    }
    Ok(())
}

fn index_not_ready_error() -> StoreError {
    StoreError::Unavailable("the index is not in place".to_owned())
}

/// Writes the ledger's present state of these facts.
///
/// Other nodes may write an earlier or later state at the same time. With a shared index, the function therefore reads
/// the ledger again after each write, until ledger and write agree. The last writer has then written the present state.
pub(super) async fn write_points(services: &Services, scope: &TenantScope, facts: &[FactId]) -> StoreResult<()> {
    let index = &services.index;
    let mut pending: Vec<FactId> = facts.to_vec();
    let mut written_digests: HashMap<FactId, Option<u64>> = HashMap::new();
    for _ in 0..MAX_WRITE_ROUNDS {
        let points = services.ledger.facts.load_points(scope, &pending).await?;
        let shared = index.is_shared();
        let mut digests: HashMap<FactId, Option<u64>> = pending.iter().map(|fact| (*fact, None)).collect();
        for point in &points {
            // An index in this process has no other writer, so a comparison is unnecessary.
            digests.insert(point.fact, Some(if shared { point.digest() } else { 0 }));
        }
        let is_new = |fact: &FactId| written_digests.get(fact) != digests.get(fact);
        let changed: Vec<IndexPoint> = points.into_iter().filter(|point| is_new(&point.fact)).collect();
        let removed = digests
            .iter()
            .filter(|(_, digest)| digest.is_none())
            .map(|(fact, _)| *fact);
        let removed: Vec<FactId> = removed.filter(is_new).collect();
        if changed.is_empty() && removed.is_empty() {
            return Ok(());
        }
        if !changed.is_empty() {
            index.upsert_points(scope, &changed).await?;
        }
        if !removed.is_empty() {
            index.remove_points(scope, &removed).await?;
        }
        if !shared {
            return Ok(());
        }
        pending = changed.iter().map(|point| point.fact).chain(removed).collect();
        written_digests = digests;
    }
    Err(StoreError::Unavailable(
        "facts changed while they were moved into the index".to_owned(),
    ))
}

/// Returns the size of a tenant's complete index: the number of facts valid now.
pub async fn expected_points(services: &Services, scope: &TenantScope) -> Result<u64, StoreError> {
    let mut after = None;
    let mut expected = 0;
    loop {
        let facts = &services.ledger.facts;
        let points = facts.list_all_points(scope, after, POINTS_PER_PAGE).await?;
        let Some(last) = points.last() else {
            return Ok(expected);
        };
        after = Some(last.fact);
        expected += points.len() as u64;
    }
}

/// Relays the outbox and only logs errors. The rows are durable and are retried. While the index is away, and until it
/// has the facts of the outage, they wait for the node's chores: no job waits for an attempt, or for a long backlog.
pub(crate) async fn relay_or_log(services: &Services) {
    let backlog = &services.memory_cache.relays.backlog;
    if services.index.index_state() == IndexState::Away {
        *backlog.write() = OutageBacklog::Any;
    }
    if matches!(*backlog.read(), OutageBacklog::Any) {
        return;
    }
    if let Err(error) = relay_outbox(services).await {
        tracing::warn!(%error, "the outbox was not moved into the index; it is tried again");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;

    use super::*;

    /// Two callers wait for a running relay. True if the earlier caller's relay also serves the later caller.
    async fn serves_who_waits(relays: &OutboxRelay, leaves_nothing: bool) -> bool {
        let first = relays.wait_for_turn().await.unwrap();
        let mut second = pin!(relays.wait_for_turn());
        let mut third = pin!(relays.wait_for_turn());
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        first.mark_all_served();
        // The running relay may have begun before the writes of the waiting callers.
        let second = second.await.expect("a relay that began before it asked is none of its");
        if leaves_nothing {
            second.mark_all_served();
        } else {
            drop(second);
        }
        third.await.is_none()
    }

    #[tokio::test]
    async fn relay_run_serves_all_callers_that_asked_before_it_began() {
        let relays = OutboxRelay::default();
        assert!(serves_who_waits(&relays, true).await);
        assert!(
            relays.wait_for_turn().await.is_some(),
            "whoever asks later may have written more"
        );
    }

    #[tokio::test]
    async fn relay_run_with_a_remainder_serves_no_caller() {
        assert!(!serves_who_waits(&OutboxRelay::default(), false).await);
    }
}
