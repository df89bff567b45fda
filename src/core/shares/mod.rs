//! Fair shares of a node's resources between its tenants.
//!
//! - [`Shares`]: places held for long (sockets, dialogues in memory, requests). A limit per tenant keeps room for other
//!   tenants.
//! - [`Residents`]: the same for values that can be evicted while unused (dialogues in memory). A full node evicts
//!   values.
//! - [`FairPermits`]: places held for a short time (model calls, database connections). All are used; the holder with
//!   the fewest goes first.
//! - [`FairQueue`]: work that waits for one worker (writes). Tenants take turns.

mod permits;
mod queue;
mod residents;

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

pub use self::{
    permits::{FairPermit, FairPermits, PermitPriority},
    queue::{FairQueue, NotQueued},
    residents::{Resident, Residents},
};

/// A tenant may hold up to this many times the free places. A single tenant gets four fifths of all places, two tenants
/// four ninths each. The rule is "dynamic thresholds" for buffers shared by several queues (Choudhury and Hahne, 1998).
const FREE_PLACES_FACTOR: usize = 4;

/// Why no place was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoCapacity {
    /// The remaining places are kept for other tenants.
    #[error("this tenant uses its share of the server's {0}")]
    TenantShare(&'static str),
    #[error("the server's {0} are all in use")]
    Full(&'static str),
}

/// Places without a time limit.
#[derive(Debug)]
pub struct Shares<K> {
    /// The name of the places, in the plural, for error messages.
    resource: &'static str,
    total: usize,
    counts: Mutex<HeldCounts<K>>,
    refused: AtomicU64,
}

#[derive(Debug)]
struct HeldCounts<K> {
    total: usize,
    by_holder: HashMap<K, usize>,
}

/// One acquired place. Freed on drop.
#[derive(Debug)]
pub struct ShareGuard<K: Hash + Eq> {
    shares: Arc<Shares<K>>,
    holder: K,
}

impl<K: Hash + Eq + Clone> Shares<K> {
    /// Creates `total` places of `resource`, such as `"sockets"`.
    #[must_use]
    pub fn new(resource: &'static str, total: usize) -> Arc<Self> {
        Arc::new(Self {
            resource,
            total,
            counts: Mutex::new(HeldCounts {
                total: 0,
                by_holder: HashMap::new(),
            }),
            refused: AtomicU64::new(0),
        })
    }

    /// Acquires a place for `holder`. A holder's first place may be the last free place.
    ///
    /// # Errors
    /// [`NoCapacity`]: all places are in use, or `holder` has reached its limit.
    pub fn acquire_share(self: &Arc<Self>, holder: &K) -> Result<ShareGuard<K>, NoCapacity> {
        self.try_acquire_share(holder).inspect_err(|_| self.count_refusal())
    }

    /// As [`Self::acquire_share`], without counting a refusal, for callers that can still make room.
    fn try_acquire_share(self: &Arc<Self>, holder: &K) -> Result<ShareGuard<K>, NoCapacity> {
        let mut counts = self.counts.lock();
        let free = self.total.saturating_sub(counts.total);
        if free == 0 {
            return Err(NoCapacity::Full(self.resource));
        }
        let holder_count = counts.by_holder.get(holder).copied().unwrap_or_default();
        if holder_count > 0 && holder_count >= FREE_PLACES_FACTOR * (free - 1) {
            return Err(NoCapacity::TenantShare(self.resource));
        }
        counts.total += 1;
        *counts.by_holder.entry(holder.clone()).or_default() += 1;
        debug_assert!(counts.total <= self.total, "no more places are in use than there are");
        debug_assert!(
            holder_count < counts.total,
            "the places of a holder are among the places in use"
        );
        Ok(ShareGuard {
            shares: Arc::clone(self),
            holder: holder.clone(),
        })
    }
    fn count_refusal(&self) {
        self.refused.fetch_add(1, Relaxed);
    }
    /// Number of refused requests for a place.
    #[must_use]
    pub fn refused_count(&self) -> u64 {
        self.refused.load(Relaxed)
    }
    /// Number of places in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.counts.lock().total
    }
    /// Total number of places.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }
}

impl<K: Hash + Eq> ShareGuard<K> {
    fn holder(&self) -> &K {
        &self.holder
    }
}

impl<K: Hash + Eq + Clone> ShareGuard<K> {
    /// Transfers the place to `holder`.
    fn pass_to(&mut self, holder: &K) {
        let mut counts = self.shares.counts.lock();
        counts.release_one(&self.holder);
        *counts.by_holder.entry(holder.clone()).or_default() += 1;
        debug_assert!(
            counts.by_holder.len() <= counts.total,
            "each holder has at least one of the places in use"
        );
        drop(counts);
        self.holder = holder.clone();
    }
}

impl<K: Hash + Eq> HeldCounts<K> {
    fn release_one(&mut self, holder: &K) {
        debug_assert!(
            self.by_holder.contains_key(holder),
            "a holder that releases a place has one"
        );
        let Some(has) = self.by_holder.get_mut(holder) else {
            return;
        };
        *has -= 1;
        if *has == 0 {
            self.by_holder.remove(holder);
        }
    }
}

impl<K: Hash + Eq> Drop for ShareGuard<K> {
    fn drop(&mut self) {
        let mut counts = self.shares.counts.lock();
        counts.total -= 1;
        counts.release_one(&self.holder);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn fill(shares: &Arc<Shares<u8>>, holder: u8) -> Vec<ShareGuard<u8>> {
        std::iter::from_fn(|| shares.acquire_share(&holder).ok()).collect()
    }

    #[test]
    fn first_tenant_leaves_a_fifth_and_each_further_tenant_finds_room() {
        let shares = Shares::new("places", 100);
        let first = fill(&shares, 1);
        assert_eq!(first.len(), 80);
        assert_eq!(shares.acquire_share(&1).unwrap_err(), NoCapacity::TenantShare("places"));
        let second = fill(&shares, 2);
        assert_eq!(second.len(), 16);
        assert_eq!(fill(&shares, 3).len(), 3);
        assert_eq!((shares.in_use(), shares.refused_count()), (96, 4));
        drop(first);
        assert_eq!(fill(&shares, 2).len() + second.len(), 80);
    }

    #[test]
    fn first_place_of_a_tenant_may_be_the_last_free_one() {
        let shares = Shares::new("places", 2);
        let first = fill(&shares, 1);
        assert_eq!(first.len(), 1);
        let second = fill(&shares, 2);
        assert_eq!(second.len(), 1);
        assert_eq!(shares.acquire_share(&3).unwrap_err(), NoCapacity::Full("places"));
        drop((first, second));
        assert!(shares.counts.lock().by_holder.is_empty());
    }
}
