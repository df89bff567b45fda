//! What all tenants of a node share, and how none of them takes it from the others.
//!
//! - [`Shares`]: places that are held for long (sockets, dialogues in memory, requests). A tenant has so many that there is
//!   always room for others.
//! - [`Residents`]: such places of what can go if it is not in use (dialogues in memory). It goes where there is no room.
//! - [`FairPermits`]: places that are free again soon (calls of a model, connections to a database). All of them are used, and
//!   whoever has fewest goes first.
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

/// Of the places that are free, a tenant may hold so many times as many: one alone four fifths of all, two four ninths each.
/// The rule is that of dynamic thresholds for buffers that several queues share (Choudhury and Hahne, 1998).
const FREE_PLACES_FACTOR: usize = 4;

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoCapacity {
    /// The rest is for others.
    #[error("this tenant uses its share of the server's {0}")]
    TenantShare(&'static str),
    #[error("the server's {0} are all in use")]
    Full(&'static str),
}

/// Places that are given out for as long as their holders want.
#[derive(Debug)]
pub struct Shares<K> {
    /// In the plural, for whoever gets none.
    what: &'static str,
    total: usize,
    held: Mutex<HeldCounts<K>>,
    refused: AtomicU64,
}

#[derive(Debug)]
struct HeldCounts<K> {
    all: usize,
    by: HashMap<K, usize>,
}

/// One of the places. Free again when it is dropped.
#[derive(Debug)]
pub struct ShareGuard<K: Hash + Eq> {
    shares: Arc<Shares<K>>,
    holder: K,
}

impl<K: Hash + Eq + Clone> Shares<K> {
    /// `total` places of `what`, such as `"sockets"`.
    #[must_use]
    pub fn new(what: &'static str, total: usize) -> Arc<Self> {
        Arc::new(Self {
            what,
            total,
            held: Mutex::new(HeldCounts {
                all: 0,
                by: HashMap::new(),
            }),
            refused: AtomicU64::new(0),
        })
    }

    /// A place, if there is one for `holder`. Its first one may be the last that is free.
    ///
    /// # Errors
    /// [`NoCapacity`]: all are in use, or `holder` has so many that the rest is kept for others.
    pub fn acquire_share(self: &Arc<Self>, holder: &K) -> Result<ShareGuard<K>, NoCapacity> {
        self.try_acquire_share(holder).inspect_err(|_| self.count_refusal())
    }

    /// As [`Self::acquire_share`], for whoever does not give up yet where there is no place.
    fn try_acquire_share(self: &Arc<Self>, holder: &K) -> Result<ShareGuard<K>, NoCapacity> {
        let mut held = self.held.lock();
        let free = self.total.saturating_sub(held.all);
        if free == 0 {
            return Err(NoCapacity::Full(self.what));
        }
        let has = held.by.get(holder).copied().unwrap_or_default();
        if has > 0 && has >= FREE_PLACES_FACTOR * (free - 1) {
            return Err(NoCapacity::TenantShare(self.what));
        }
        held.all += 1;
        *held.by.entry(holder.clone()).or_default() += 1;
        Ok(ShareGuard {
            shares: Arc::clone(self),
            holder: holder.clone(),
        })
    }
    fn count_refusal(&self) {
        self.refused.fetch_add(1, Relaxed);
    }
    /// How often somebody got no place.
    #[must_use]
    pub fn refused_count(&self) -> u64 {
        self.refused.load(Relaxed)
    }
    /// Places in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.held.lock().all
    }
    /// Places that there are.
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
    /// From now on `holder` has this place.
    fn pass_to(&mut self, holder: &K) {
        let mut held = self.shares.held.lock();
        held.release_one(&self.holder);
        *held.by.entry(holder.clone()).or_default() += 1;
        drop(held);
        self.holder = holder.clone();
    }
}

impl<K: Hash + Eq> HeldCounts<K> {
    fn release_one(&mut self, holder: &K) {
        let Some(has) = self.by.get_mut(holder) else {
            return;
        };
        *has -= 1;
        if *has == 0 {
            self.by.remove(holder);
        }
    }
}

impl<K: Hash + Eq> Drop for ShareGuard<K> {
    fn drop(&mut self) {
        let mut held = self.shares.held.lock();
        held.all -= 1;
        held.release_one(&self.holder);
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
        assert!(shares.held.lock().by.is_empty());
    }
}
