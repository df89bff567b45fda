//! Values in memory, and their eviction when the node is full.

use std::{
    cmp::Reverse,
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use hashlink::LinkedHashMap;
use parking_lot::Mutex;

use super::{NoCapacity, ShareGuard, Shares};

/// Values in memory, each in a place of its holder's share. A holder without a place may get the place of an unused
/// value. The value comes from the holder with the most values, and is the least recently used.
#[derive(Debug)]
pub struct Residents<K, V> {
    shares: Arc<Shares<K>>,
    /// The values of each holder in the order of use; the last value is the newest.
    used: Mutex<HashMap<K, LinkedHashMap<u64, V>>>,
    numbers: AtomicU64,
}

/// A value in memory. Removed on drop.
#[derive(Debug)]
pub struct Resident<K: Hash + Eq, V> {
    residents: Arc<Residents<K, V>>,
    share: ShareGuard<K>,
    number: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> Residents<K, V> {
    /// Creates `total` places of `resource`, such as `"dialogues in memory"`.
    #[must_use]
    pub fn new(resource: &'static str, total: usize) -> Arc<Self> {
        Arc::new(Self {
            shares: Shares::new(resource, total),
            used: Mutex::default(),
            numbers: AtomicU64::new(0),
        })
    }

    /// Acquires a place for a value of `holder`. A caller that gives up after an error calls [`Self::count_refusal`].
    ///
    /// # Errors
    /// [`NoCapacity`], as [`Shares::acquire_share`].
    pub fn acquire_place(self: &Arc<Self>, holder: &K, value: V) -> Result<Resident<K, V>, NoCapacity> {
        let share = self.shares.try_acquire_share(holder)?;
        let number = self.numbers.fetch_add(1, Relaxed);
        self.insert(holder, number, value);
        Ok(Resident {
            residents: Arc::clone(self),
            share,
            number,
        })
    }

    /// Lists the holders whose values may be evicted for `holder`, with their numbers of values. Holders with more
    /// values than `holder` come first, the largest first. `holder` itself comes last.
    #[must_use]
    pub fn eviction_candidates(&self, holder: &K) -> Vec<(K, usize)> {
        let used = self.used.lock();
        let count = |values: &LinkedHashMap<u64, V>| values.len();
        let own_count = used.get(holder).map_or(0, count);
        let mut holders: Vec<(K, usize)> = used
            .iter()
            .map(|(other, values)| (other, count(values)))
            .filter(|(other, other_count)| *other_count > own_count || *other == holder)
            .map(|(other, other_count)| (other.clone(), other_count))
            .collect();
        holders.sort_by_key(|(_, other_count)| Reverse(*other_count));
        debug_assert!(
            holders.iter().rev().skip(1).all(|(other, _)| other != holder),
            "a holder evicts its own values last"
        );
        holders
    }

    /// Returns the least recently used value of `holder`, and marks it as just used. The next call returns the next
    /// value.
    pub fn least_recently_used(&self, holder: &K) -> Option<V> {
        let mut used = self.used.lock();
        let values = used.get_mut(holder)?;
        let number = *values.front()?.0;
        values.to_back(&number).map(|value| value.clone())
    }

    /// Counts a value that got no place.
    pub fn count_refusal(&self) {
        self.shares.count_refusal();
    }
    /// Number of values that got no place.
    #[must_use]
    pub fn refused_count(&self) -> u64 {
        self.shares.refused_count()
    }
    /// Number of places in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.shares.in_use()
    }

    fn insert(&self, holder: &K, number: u64, value: V) {
        let mut used = self.used.lock();
        let values = used.entry(holder.clone()).or_default();
        debug_assert!(!values.contains_key(&number), "each value has a number of its own");
        values.insert(number, value);
    }
}

impl<K: Hash + Eq, V> Residents<K, V> {
    fn remove(&self, holder: &K, number: u64) {
        let mut used = self.used.lock();
        let Some(values) = used.get_mut(holder) else { return };
        debug_assert!(
            values.contains_key(&number),
            "a value is in memory until its place is free"
        );
        values.remove(&number);
        if values.is_empty() {
            used.remove(holder);
        }
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Resident<K, V> {
    /// Marks the value as just used.
    pub fn mark_used(&self) {
        let mut used = self.residents.used.lock();
        if let Some(values) = used.get_mut(self.share.holder()) {
            values.to_back(&self.number);
        }
    }

    /// Reuses the place for another value, of `holder`.
    #[must_use]
    pub fn pass_to(mut self, holder: &K, value: V) -> Self {
        self.residents.remove(self.share.holder(), self.number);
        self.share.pass_to(holder);
        self.residents.insert(holder, self.number, value);
        self
    }
}

impl<K: Hash + Eq, V> Drop for Resident<K, V> {
    fn drop(&mut self) {
        self.residents.remove(self.share.holder(), self.number);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn fill(residents: &Arc<Residents<char, u32>>, holder: char, count: u32) -> Vec<Resident<char, u32>> {
        (0..count)
            .map(|value| residents.acquire_place(&holder, value).unwrap())
            .collect()
    }

    #[test]
    fn largest_holder_makes_room_first_and_never_for_a_larger_one() {
        let residents = Residents::new("values", 100);
        let (_a, mut b, _c) = (
            fill(&residents, 'a', 5),
            fill(&residents, 'b', 3),
            fill(&residents, 'c', 3),
        );
        assert_eq!(residents.eviction_candidates(&'b'), [('a', 5), ('b', 3)]);
        assert_eq!(residents.eviction_candidates(&'a'), [('a', 5)]);
        let for_a_newcomer = residents.eviction_candidates(&'d');
        assert_eq!((for_a_newcomer.len(), for_a_newcomer[0]), (3, ('a', 5)));
        b.clear();
        assert_eq!(residents.eviction_candidates(&'b'), [('a', 5), ('c', 3)]);
    }

    #[test]
    fn least_recently_used_resident_is_evicted_first() {
        let residents = Residents::new("values", 100);
        let held = fill(&residents, 'a', 3);
        held[0].mark_used();
        let order: Vec<u32> = (0..4).filter_map(|_| residents.least_recently_used(&'a')).collect();
        assert_eq!(order, [1, 2, 0, 1]);
        assert_eq!(residents.least_recently_used(&'b'), None);
    }

    #[test]
    fn place_passed_on_is_never_free_in_between() {
        let residents = Residents::new("values", 10);
        let mut held = fill(&residents, 'a', 8);
        residents.acquire_place(&'a', 8).unwrap_err();
        let place = held.remove(0).pass_to(&'b', 20);
        assert_eq!((residents.in_use(), residents.least_recently_used(&'b')), (8, Some(20)));
        assert_eq!(residents.eviction_candidates(&'c')[0], ('a', 7));
        drop(place);
        assert_eq!(residents.least_recently_used(&'b'), None);
        drop(held);
        assert_eq!(residents.in_use(), 0);
        assert!(residents.used.lock().is_empty());
    }
}
