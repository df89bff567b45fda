//! Memories that could not be settled: each rests for longer than the time before, so that what a model cannot do now
//! costs little and holds up no other memory. Forgotten with the process, which tries all of them anew.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::{
    dialogue::jobs::retry_pause,
    ids::{TenantId, WorldId},
    ports::ledger::rewinds::Unsettled,
    tenancy::TenantScope,
};

/// How many are known; of more, those that failed longest ago are tried as if they had not.
const MOST: u64 = 100_000;

/// A mark, and no later one of the same memory: that one is news.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct MarkKey {
    tenant: TenantId,
    world: WorldId,
    audience: String,
    since: DateTime<Utc>,
    mark: u64,
}

impl MarkKey {
    pub(super) fn of(scope: &TenantScope, mark: &Unsettled) -> Self {
        Self {
            tenant: scope.tenant().clone(),
            world: mark.world.clone(),
            audience: mark.audience.fingerprint(),
            since: mark.since,
            mark: mark.mark,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Failed {
    first: DateTime<Utc>,
    times: u32,
    until: DateTime<Utc>,
}

/// What rests, on this node.
#[derive(Debug)]
pub struct Resting(moka::sync::Cache<MarkKey, Failed>);

impl Default for Resting {
    fn default() -> Self {
        Self(moka::sync::Cache::new(MOST))
    }
}

impl Resting {
    pub(super) fn rests(&self, key: &MarkKey, now: DateTime<Utc>) -> bool {
        self.0.get(key).is_some_and(|failed| failed.until > now)
    }

    /// For how long it has failed.
    pub(super) fn failing_for(&self, key: &MarkKey, now: DateTime<Utc>) -> Duration {
        let failed = self.0.get(key);
        failed.map_or(Duration::ZERO, |failed| {
            (now - failed.first).to_std().unwrap_or_default()
        })
    }

    /// It failed, and rests for `base` or, by each time before, twice as long.
    pub(super) fn failed(&self, key: MarkKey, now: DateTime<Utc>, base: Duration) {
        let (first, times) = self
            .0
            .get(&key)
            .map_or((now, 0), |before| (before.first, before.times + 1));
        let until = now + retry_pause(base, times, rand::random());
        self.0.insert(key, Failed { first, times, until });
    }

    pub(super) fn settled(&self, key: &MarkKey) {
        self.0.invalidate(key);
    }
}
