//! Memories that could not be settled: each rests for longer than the time before, so that what a model cannot do now
//! costs little and holds up no other memory. Forgotten with the process, which tries all of them anew.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::{
    dialogue::jobs::retry_pause,
    ids::{TenantId, WorldId},
    ports::ledger::rewinds::DirtyMemory,
    tenancy::TenantScope,
};

/// How many are known; of more, those that failed longest ago are tried as if they had not.
const MAX_FAILED_MARKS: u64 = 100_000;
/// Nobody looks at what rests any more: it was settled by another node, or marked anew.
const FAILED_MARK_IDLE_TTL: Duration = Duration::from_hours(1);

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
    pub(super) fn for_mark(scope: &TenantScope, mark: &DirtyMemory) -> Self {
        Self {
            tenant: scope.tenant().clone(),
            world: mark.world.clone(),
            audience: mark.audience.audience_key(),
            since: mark.since,
            mark: mark.mark,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct FailedMark {
    /// Since when its judge has been away; `None`: something else was wrong.
    away_since: Option<DateTime<Utc>>,
    times: u32,
    until: DateTime<Utc>,
}

/// What rests, on this node.
#[derive(Debug)]
pub struct ReconcileBackoff(moka::sync::Cache<MarkKey, FailedMark>);

impl Default for ReconcileBackoff {
    fn default() -> Self {
        let cache = moka::sync::Cache::builder().max_capacity(MAX_FAILED_MARKS);
        Self(cache.time_to_idle(FAILED_MARK_IDLE_TTL).build())
    }
}

impl ReconcileBackoff {
    pub(super) fn is_backing_off(&self, key: &MarkKey, now: DateTime<Utc>) -> bool {
        self.0.get(key).is_some_and(|failed| failed.until > now)
    }

    /// For how long its judge has been away.
    pub(super) fn away_for(&self, key: &MarkKey, now: DateTime<Utc>) -> Duration {
        let since = self.0.get(key).and_then(|failed| failed.away_since);
        since.map_or(Duration::ZERO, |since| (now - since).to_std().unwrap_or_default())
    }

    /// It failed, since its judge is `away` or for another reason, and rests for `base` or, by each time before, twice
    /// as long.
    pub(super) fn record_failure(&self, key: MarkKey, away: bool, now: DateTime<Utc>, base: Duration) {
        let before = self.0.get(&key);
        let times = before.map_or(0, |before| before.times + 1);
        let failed = FailedMark {
            away_since: before.and_then(|before| before.away_since).or(away.then_some(now)),
            times,
            until: now + retry_pause(base, times, rand::random()),
        };
        self.0.insert(key, failed);
    }

    pub(super) fn clear_mark(&self, key: &MarkKey) {
        self.0.invalidate(key);
    }
}
