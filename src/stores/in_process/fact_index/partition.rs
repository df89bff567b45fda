//! One knower's facts: a segment for the open facts, and a segment per player with private facts.
//!
//! The split by privacy keeps searches quick, even if ten thousand players told an NPC their secrets. A search only
//! reads the open segment and the segment of its own player.

use std::collections::HashMap;

use super::{
    partition_search::{PartitionSearch, Visibility},
    point_change::PointChange,
    segment::Segment,
    term_counts::TermCounts,
};
use colloquy_core::ids::{FactId, PlayerId};
use colloquy_memory::keywords::TermWeights;
use colloquy_ports::vectors::{Candidate, IndexPoint};

#[derive(Default)]
pub(super) struct Partition {
    segments: HashMap<Option<PlayerId>, Segment>,
    /// The segment of each fact.
    places: HashMap<FactId, Option<PlayerId>>,
    /// The size of all segments, updated at each change.
    segment_bytes: u64,
}

impl Partition {
    pub(super) fn apply_change(&mut self, change: &PointChange) {
        match change {
            PointChange::Put(point) => self.put_point(point),
            PointChange::Drop(fact) => self.drop_fact(*fact),
        }
    }

    pub(super) fn put_point(&mut self, point: &IndexPoint) {
        self.drop_fact(point.fact);
        let owner = point.audience.private_to.clone();
        let of_owner = self.segments.entry(owner.clone()).or_default();
        self.segment_bytes -= of_owner.approximate_bytes();
        of_owner.put_point(point);
        self.segment_bytes += of_owner.approximate_bytes();
        self.places.insert(point.fact, owner);
    }

    fn drop_fact(&mut self, fact: FactId) {
        let Some(owner) = self.places.remove(&fact) else { return };
        if let Some(shelf) = self.segments.get_mut(&owner) {
            self.segment_bytes -= shelf.approximate_bytes();
            shelf.remove_fact(fact);
            if shelf.is_empty() {
                self.segments.remove(&owner);
            } else {
                self.segment_bytes += shelf.approximate_bytes();
            }
        }
    }

    /// Adds the best of each leg to `best`, with exact cosines.
    pub(super) fn search_segments(&self, search: &PartitionSearch, best: &mut HashMap<FactId, Candidate>) {
        for shelf in self.visible_segments(&search.sees) {
            shelf.search_points(search, best);
        }
    }

    /// Adds the number of visible facts, and of visible facts with each term.
    pub(super) fn count_terms(&self, sees: &Visibility, terms: &TermWeights, counts: &mut TermCounts) {
        for shelf in self.visible_segments(sees) {
            shelf.count_terms(terms, counts);
        }
    }

    /// Returns the number of points that a search would scan.
    pub(super) fn count_visible(&self, search: &PartitionSearch) -> usize {
        self.visible_segments(&search.sees).map(Segment::len).sum()
    }

    pub(super) fn has_fact(&self, fact: FactId) -> bool {
        self.places.contains_key(&fact)
    }

    pub(super) fn fact_ids(&self) -> Vec<FactId> {
        self.places.keys().copied().collect()
    }

    pub(super) fn approximate_bytes(&self) -> u64 {
        self.segment_bytes + self.places.len() as u64 * 48
    }

    fn visible_segments<'a>(&'a self, sees: &Visibility) -> impl Iterator<Item = &'a Segment> + use<'a> {
        let (owners, sees_all): (Vec<Option<PlayerId>>, bool) = match sees {
            Visibility::Everything => (Vec::new(), true),
            Visibility::Only(owner) => (vec![owner.clone()], false),
            Visibility::Player(None) => (vec![None], false),
            Visibility::Player(player) => (vec![None, player.clone()], false),
        };
        let everything = sees_all.then(|| self.segments.values()).into_iter().flatten();
        owners
            .into_iter()
            .filter_map(|owner| self.segments.get(&owner))
            .chain(everything)
    }
}
