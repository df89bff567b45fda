//! The backoff of memories that could not be reconciled. Each failure doubles the pause, so an unavailable model costs
//! little and delays no other memory. The state is lost with the process; a new process tries all memories again.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::jobs::retry_pause;
use colloquy_core::{
    ids::{TenantId, WorldId},
    scope::TenantScope,
};
use colloquy_ports::ledger::rewinds::DirtyMemory;

/// The maximum number of recorded failures. Beyond it, memories with the oldest failures are tried again at once.
const MAX_FAILED_MARKS: u64 = 100_000;
/// The time without access after which a failure is forgotten: another node reconciled the memory, or marked it again.
const FAILED_MARK_IDLE_TTL: Duration = Duration::from_hours(1);

/// The key of one mark. A later mark of the same memory is a new mark.
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
    /// The time since which the judge has been away. `None`: the failure has another cause.
    away_since: Option<DateTime<Utc>>,
    times: u32,
    until: DateTime<Utc>,
}

/// The memories in backoff on this node.
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

    /// Returns how long the judge has been away.
    pub(super) fn away_for(&self, key: &MarkKey, now: DateTime<Utc>) -> Duration {
        let since = self.0.get(key).and_then(|failed| failed.away_since);
        since.map_or(Duration::ZERO, |since| (now - since).to_std().unwrap_or_default())
    }

    /// Records a failure; `is_away`: the judge is away. The memory backs off for `base`, doubled for each earlier
    /// failure.
    pub(super) fn record_failure(&self, key: MarkKey, is_away: bool, now: DateTime<Utc>, base: Duration) {
        let previous = self.0.get(&key);
        let times = previous.map_or(0, |previous| previous.times + 1);
        let failed = FailedMark {
            away_since: previous
                .and_then(|previous| previous.away_since)
                .or(is_away.then_some(now)),
            times,
            until: now + retry_pause(base, times, rand::random()),
        };
        self.0.insert(key, failed);
    }

    /// Forgets all failures, when what the memories waited for is back.
    pub(crate) fn clear_all(&self) {
        self.0.invalidate_all();
    }

    pub(super) fn clear_mark(&self, key: &MarkKey) {
        self.0.invalidate(key);
    }
}
