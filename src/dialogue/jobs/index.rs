//! Keeps the index complete: fills the index, finds differences from the ledger, and repairs the differences.
//!
//! Vectors come from the ledger; no embedder is called. This work does not delay the relay of the outbox. Points that
//! both write at the same time are read again after the write (`write_points`).

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    time::{Duration, Instant},
};

use super::outbox::write_points;
use crate::Services;
use colloquy_core::{
    ids::{FactId, TenantId},
    scope::TenantScope,
};
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::priority::in_background,
    vectors::{IndexState, PrepareOutcome},
};

/// The number of points read at once.
const POINTS_PER_PAGE: u32 = 500;
/// The interval at which a server checks that its index is in place.
const INDEX_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The pause before a failed tenant is tried again.
const RETRY_TENANTS_AFTER: Duration = Duration::from_mins(1);
/// The pause between full comparisons of index and ledger, which run beside the outbox.
const COMPARE_INTERVAL: Duration = Duration::from_hours(1);
/// The pause between two pages of a comparison, which keeps its load unnoticeable: some hundred points a second, whose
/// vectors the ledger reads. A million points take about an hour.
const PAUSE_BETWEEN_PAGES: Duration = Duration::from_secs(1);
/// The number of outbox rows read to recognise lagging facts.
const MAX_LAGGING_ROWS: u32 = 100_000;

/// The differences between index and ledger. Facts in the outbox are on their way and do not count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexDrift {
    pub missing: HashSet<FactId>,
    /// Facts whose point in the index differs from the ledger.
    pub stale: HashSet<FactId>,
    /// Points without a valid fact.
    pub surplus: HashSet<FactId>,
}

impl IndexDrift {
    /// Returns the number of differing points.
    #[must_use]
    pub fn point_count(&self) -> usize {
        self.missing.len() + self.stale.len() + self.surplus.len()
    }

    /// Returns the differences that the two drifts have in common.
    fn intersect_with(self, other: &Self) -> Self {
        let intersection = |ids: HashSet<FactId>, other_ids: &HashSet<FactId>| -> HashSet<FactId> {
            ids.into_iter().filter(|fact| other_ids.contains(fact)).collect()
        };
        Self {
            missing: intersection(self.missing, &other.missing),
            stale: intersection(self.stale, &other.stale),
            surplus: intersection(self.surplus, &other.surplus),
        }
    }
}

/// Tenants whose repair failed. The index is in use without some of their facts, and the repair is retried.
pub type LaggingTenants = BTreeSet<TenantId>;

/// Compares a tenant's points with the ledger. `None`: the index stores no copy that could differ.
pub async fn find_drift(services: &Services, scope: &TenantScope) -> StoreResult<Option<IndexDrift>> {
    find_drift_paced(services, scope, Duration::ZERO).await
}

/// Works like [`find_drift`], with a pause between pages.
async fn find_drift_paced(
    services: &Services,
    scope: &TenantScope,
    pause: Duration,
) -> StoreResult<Option<IndexDrift>> {
    let Some(first_drift) = compare_with_ledger(services, scope, false, pause).await? else {
        return Ok(None);
    };
    if first_drift.point_count() == 0 {
        return Ok(Some(first_drift));
    }
    // A change during the comparison is no drift.
    let second_drift = compare_with_ledger(services, scope, false, pause).await?;
    Ok(second_drift.map(|second_drift| first_drift.intersect_with(&second_drift)))
}

/// Compares a tenant's points with the ledger slowly, and repairs differences. Returns their number.
///
/// Beside the outbox, differences are rare. A node may have died before it noticed that another node had overtaken its
/// write, or the index itself has lost points.
pub async fn heal_drift(services: &Services, scope: &TenantScope) -> StoreResult<usize> {
    let Some(drift) = find_drift_paced(services, scope, PAUSE_BETWEEN_PAGES).await? else {
        return Ok(0);
    };
    let drifted_ids = drift.missing.iter().chain(&drift.stale).chain(&drift.surplus);
    let drifted_ids: Vec<FactId> = drifted_ids.copied().collect();
    for page in drifted_ids.chunks(POINTS_PER_PAGE as usize) {
        write_points(services, scope, page).await?;
    }
    Ok(drifted_ids.len())
}

/// Compares a tenant's points with the ledger and repairs differences. Returns the differences. `None`: the index
/// stores no copy, and reads the ledger again.
pub async fn reindex_tenant(services: &Services, scope: &TenantScope) -> StoreResult<Option<IndexDrift>> {
    let repaired = compare_with_ledger(services, scope, true, Duration::ZERO).await?;
    if repaired.is_none() {
        services.index.clear_tenant(scope).await?;
    }
    Ok(repaired)
}

/// Activates the index if necessary: fills the new index, and replaces the previous index. A tenant whose facts cannot
/// be copied does not delay the others.
///
/// # Errors
/// If the index or the ledger cannot be used, at all or for every tenant.
pub async fn activate_index(services: &Services) -> StoreResult<LaggingTenants> {
    let prepared = services.index.prepare_index(true).await?;
    if prepared == PrepareOutcome::Ready {
        return Ok(LaggingTenants::new());
    }
    if prepared == PrepareOutcome::Empty {
        tracing::info!("filling the index from the ledger");
        repair_all_tenants(services).await?;
        services.index.adopt_index().await?;
    }
    // Until the adoption, another node may have relayed outbox rows to the previous index. After the adoption, no node
    // does.
    let lagging_tenants = repair_all_tenants(services).await?;
    if lagging_tenants.is_empty() {
        services.index.drop_replaced_index().await?;
    }
    Ok(lagging_tenants)
}

async fn repair_all_tenants(services: &Services) -> StoreResult<LaggingTenants> {
    let tenants = services.ledger.tenants.list_all().await?;
    repair_tenants(services, tenants.into_iter().map(|tenant| tenant.id)).await
}

/// Returns the failed tenants. If all tenants fail, the tenants are not the cause, and the error is returned.
async fn repair_tenants(services: &Services, tenants: impl Iterator<Item = TenantId>) -> StoreResult<LaggingTenants> {
    let mut lagging_tenants = LaggingTenants::new();
    let mut repaired = 0;
    let mut last_error = None;
    for tenant in tenants {
        let scope = TenantScope::new(tenant);
        match compare_with_ledger(services, &scope, true, Duration::ZERO).await {
            Ok(_) => repaired += 1,
            Err(error) => {
                tracing::warn!(tenant = %scope.tenant(), %error, "facts of a tenant are not all in the index; they are tried again");
                lagging_tenants.insert(scope.tenant().clone());
                last_error = Some(error);
            }
        }
    }
    match last_error {
        Some(error) if repaired == 0 => Err(error),
        _ => Ok(lagging_tenants),
    }
}

/// Runs in the background of a server. Keeps the index active and equal to the ledger for as long as the server runs.
/// `behind`: the failed tenants of the server's start.
pub async fn maintain_index(services: Services, lagging_tenants: LaggingTenants) {
    if services.index.is_shared() {
        tokio::join!(watch_index(&services, lagging_tenants), compare_periodically(&services));
    }
}

async fn watch_index(services: &Services, mut lagging_tenants: LaggingTenants) {
    let mut trouble = String::new();
    let mut last_attempt = services.clock.monotonic_now();
    loop {
        let check = check_index(services, &mut lagging_tenants, &mut last_attempt).await;
        let problem = check.as_ref().err().map(StoreError::to_string).unwrap_or_default();
        // Logged once, not every two seconds.
        match check {
            Err(error) if problem != trouble => {
                tracing::warn!(%error, "the index is not in use: facts are found by words, in the ledger");
            }
            Ok(()) if !trouble.is_empty() => tracing::info!("the index is in use again"),
            _ => {}
        }
        trouble = problem;
        tokio::time::sleep(INDEX_CHECK_INTERVAL).await;
    }
}

async fn check_index(
    services: &Services,
    lagging_tenants: &mut LaggingTenants,
    last_attempt: &mut Instant,
) -> StoreResult<()> {
    let now = services.clock.monotonic_now();
    if services.index.index_state() == IndexState::Filling || !services.index.is_current().await? {
        *lagging_tenants = activate_index(services).await?;
        *last_attempt = now;
    } else if !lagging_tenants.is_empty() && now.saturating_duration_since(*last_attempt) >= RETRY_TENANTS_AFTER {
        *last_attempt = now;
        // If all tenants fail again, the list stays as it is.
        if let Ok(still_lagging) = repair_tenants(services, lagging_tenants.clone().into_iter()).await {
            *lagging_tenants = still_lagging;
            if lagging_tenants.is_empty() {
                services.index.drop_replaced_index().await?;
            }
        }
    }
    Ok(())
}

/// Each server compares alone, at times of its own.
async fn compare_periodically(services: &Services) {
    let random = RandomState::new().hash_one(0) % COMPARE_INTERVAL.as_secs();
    tokio::time::sleep(Duration::from_secs(random)).await;
    loop {
        if let Err(error) = in_background(heal_all_tenants(services)).await {
            tracing::info!(%error, "the index was not compared with the ledger");
        }
        tokio::time::sleep(COMPARE_INTERVAL).await;
    }
}

async fn heal_all_tenants(services: &Services) -> StoreResult<()> {
    for tenant in services.ledger.tenants.list_all().await? {
        if services.index.index_state() != IndexState::Ready {
            return Ok(());
        }
        let scope = TenantScope::new(tenant.id);
        match heal_drift(services, &scope).await {
            Ok(0) => {}
            Ok(points) => {
                tracing::warn!(tenant = %scope.tenant(), points, "the index differed from the ledger and was put right");
            }
            Err(error) => {
                tracing::warn!(tenant = %scope.tenant(), %error, "a tenant's index was not compared with the ledger");
            }
        }
    }
    Ok(())
}

async fn compare_with_ledger(
    services: &Services,
    scope: &TenantScope,
    repair: bool,
    pause: Duration,
) -> StoreResult<Option<IndexDrift>> {
    let Some(mut stored) = stored_digests(services, scope, pause).await? else {
        return Ok(None);
    };
    let lagging = if repair {
        HashSet::new()
    } else {
        read_lagging_facts(services, scope).await?
    };
    let mut drift = IndexDrift::default();
    let mut after = None;
    loop {
        let facts = &services.ledger.facts;
        let points = facts.list_all_points(scope, after, POINTS_PER_PAGE).await?;
        let Some(last) = points.last() else { break };
        after = Some(last.fact);
        let mut drifted = Vec::new();
        for point in &points {
            let difference = match stored.remove(&point.fact) {
                Some(digest) if digest == point.digest() => continue,
                Some(_) => &mut drift.stale,
                None => &mut drift.missing,
            };
            if !lagging.contains(&point.fact) {
                difference.insert(point.fact);
                drifted.push(point.fact);
            }
        }
        if repair {
            write_points(services, scope, &drifted).await?;
        }
        pause_between_pages(pause).await;
    }
    drift.surplus = stored.into_keys().filter(|fact| !lagging.contains(fact)).collect();
    if repair {
        let surplus: Vec<FactId> = drift.surplus.iter().copied().collect();
        for page in surplus.chunks(POINTS_PER_PAGE as usize) {
            write_points(services, scope, page).await?;
        }
    }
    Ok(Some(drift))
}

/// Returns all points that an index stores of a tenant, by fact.
async fn stored_digests(
    services: &Services,
    scope: &TenantScope,
    pause: Duration,
) -> StoreResult<Option<HashMap<FactId, u64>>> {
    let mut digests = HashMap::new();
    let mut after: Option<String> = None;
    loop {
        let Some(page) = services
            .index
            .list_stored_points(scope, after.as_deref(), POINTS_PER_PAGE)
            .await?
        else {
            return Ok(None);
        };
        digests.extend(page.points.iter().map(|point| (point.fact, point.digest)));
        after = page.next;
        if after.is_none() {
            return Ok(Some(digests));
        }
        pause_between_pages(pause).await;
    }
}

async fn pause_between_pages(pause: Duration) {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}

async fn read_lagging_facts(services: &Services, scope: &TenantScope) -> StoreResult<HashSet<FactId>> {
    let rows = services.ledger.facts.load_outbox(MAX_LAGGING_ROWS).await?;
    let tenant_rows = rows.into_iter().filter(|row| row.tenant == *scope.tenant());
    Ok(tenant_rows.map(|row| row.fact).collect())
}
