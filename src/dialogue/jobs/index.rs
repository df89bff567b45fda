//! Keeps the index complete: fills it, finds where it differs from the ledger, and puts that right.
//!
//! Vectors come from the ledger; no embedder is called. Nothing here holds up the relay of the outbox: what
//! both write at a time is read again after it was written (`write_points`).

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use super::outbox::write_points;
use crate::{
    dialogue::Services,
    ids::FactId,
    ports::{
        StoreError, StoreResult,
        vectors::{IndexState, Prepared},
    },
    tenancy::TenantScope,
};

/// Points read at once.
const PAGE: u32 = 500;
/// How often a server looks whether its index is in place.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Outbox rows looked at to tell what only lags.
const LAGGING: u32 = 100_000;

/// Where an index differs from the ledger. What the outbox names is on its way and does not count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drift {
    /// Facts that the index has not.
    pub missing: HashSet<FactId>,
    /// Facts of which the index has something else.
    pub stale: HashSet<FactId>,
    /// Points that are no valid fact.
    pub surplus: HashSet<FactId>,
}

impl Drift {
    /// Points that are not as they should be.
    #[must_use]
    pub fn count(&self) -> usize {
        self.missing.len() + self.stale.len() + self.surplus.len()
    }

    /// What is in both.
    fn and(self, other: &Self) -> Self {
        let both = |these: HashSet<FactId>, those: &HashSet<FactId>| -> HashSet<FactId> {
            these.into_iter().filter(|fact| those.contains(fact)).collect()
        };
        Self {
            missing: both(self.missing, &other.missing),
            stale: both(self.stale, &other.stale),
            surplus: both(self.surplus, &other.surplus),
        }
    }
}

/// Compares a tenant's points with the ledger. `None`: the index keeps nothing that could differ.
pub async fn drift(services: &Services, scope: &TenantScope) -> StoreResult<Option<Drift>> {
    let Some(first) = compare(services, scope, false).await? else {
        return Ok(None);
    };
    if first.count() == 0 {
        return Ok(Some(first));
    }
    // What changed while it was compared is no drift.
    let again = compare(services, scope, false).await?;
    Ok(again.map(|again| first.and(&again)))
}

/// Compares a tenant's points with the ledger and puts right what differs. Returns what did; `None`: the
/// index keeps nothing, and reads the ledger anew.
pub async fn reindex(services: &Services, scope: &TenantScope) -> StoreResult<Option<Drift>> {
    let repaired = compare(services, scope, true).await?;
    if repaired.is_none() {
        services.index.clear(scope).await?;
    }
    Ok(repaired)
}

/// Brings the index into use if it is not: fills it, and takes it up in place of the one before.
pub async fn ready_index(services: &Services) -> StoreResult<()> {
    let prepared = services.index.prepare(true).await?;
    if prepared == Prepared::Ready {
        return Ok(());
    }
    if prepared == Prepared::Empty {
        tracing::info!("filling the index from the ledger");
        repair_all(services).await?;
        services.index.adopt().await?;
    }
    // Until now somebody else may have taken rows out of the outbox for the one before; none do any longer.
    repair_all(services).await?;
    services.index.retire().await
}

async fn repair_all(services: &Services) -> StoreResult<()> {
    for tenant in services.ledger.tenants.all().await? {
        compare(services, &TenantScope::new(tenant.id), true).await?;
    }
    Ok(())
}

/// In the background of a server: sees to it that there is an index, for as long as the server runs.
pub async fn keep_index(services: Services) {
    if !services.index.is_shared() {
        return;
    }
    let mut trouble = String::new();
    loop {
        let looked = look_after(&services).await;
        let now = looked.as_ref().err().map(StoreError::to_string).unwrap_or_default();
        // Once, and not every other second.
        match looked {
            Err(error) if now != trouble => {
                tracing::warn!(%error, "the index is not in use: facts are found by words, in the ledger");
            }
            Ok(()) if !trouble.is_empty() => tracing::info!("the index is in use again"),
            _ => {}
        }
        trouble = now;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn look_after(services: &Services) -> StoreResult<()> {
    if services.index.state() != IndexState::Filling && services.index.is_current().await? {
        return Ok(());
    }
    ready_index(services).await
}

async fn compare(services: &Services, scope: &TenantScope, repair: bool) -> StoreResult<Option<Drift>> {
    let Some(mut stored) = stored(services, scope).await? else {
        return Ok(None);
    };
    let lagging = if repair {
        HashSet::new()
    } else {
        lagging(services, scope).await?
    };
    let mut drift = Drift::default();
    let mut after = None;
    loop {
        let points = services.ledger.facts.all_points(scope, after, PAGE).await?;
        let Some(last) = points.last() else { break };
        after = Some(last.fact);
        let mut wrong = Vec::new();
        for point in &points {
            let differs = match stored.remove(&point.fact) {
                Some(digest) if digest == point.digest() => continue,
                Some(_) => &mut drift.stale,
                None => &mut drift.missing,
            };
            if !lagging.contains(&point.fact) {
                differs.insert(point.fact);
                wrong.push(point.fact);
            }
        }
        if repair {
            write_points(services, scope, &wrong).await?;
        }
    }
    drift.surplus = stored.into_keys().filter(|fact| !lagging.contains(fact)).collect();
    if repair {
        let surplus: Vec<FactId> = drift.surplus.iter().copied().collect();
        for page in surplus.chunks(PAGE as usize) {
            write_points(services, scope, page).await?;
        }
    }
    Ok(Some(drift))
}

/// Everything an index keeps of a tenant, by fact.
async fn stored(services: &Services, scope: &TenantScope) -> StoreResult<Option<HashMap<FactId, u64>>> {
    let mut all = HashMap::new();
    let mut after: Option<String> = None;
    loop {
        let Some(page) = services.index.stored(scope, after.as_deref(), PAGE).await? else {
            return Ok(None);
        };
        all.extend(page.points.iter().map(|point| (point.fact, point.digest)));
        after = page.next;
        if after.is_none() {
            return Ok(Some(all));
        }
    }
}

async fn lagging(services: &Services, scope: &TenantScope) -> StoreResult<HashSet<FactId>> {
    let rows = services.ledger.facts.outbox(LAGGING).await?;
    let own = rows.into_iter().filter(|row| row.tenant == *scope.tenant());
    Ok(own.map(|row| row.fact).collect())
}
