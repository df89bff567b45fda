//! Contiguous arrays of points, and the four legs which search them.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use simsimd::SpatialSimilarity;

use super::{
    binary_quantizer::{BinaryQuantizer, MIN_QUANTIZED_VECTORS},
    partition_search::{PartitionSearch, PointFilter, short_hash},
    term_counts::{FactCount, TermCounts},
};
use colloquy_core::ids::FactId;
use colloquy_memory::{
    fact::Importance,
    keywords::{self, TermWeights},
    quantized_vectors::{QuantizedQuery, QuantizedVectors},
};
use colloquy_ports::vectors::{Candidate, IndexPoint, ScoreHint};

/// How many times the requested number the 8-bit scan retains for rescoring. Measured on clustered vectors
/// (`benches/index.rs`): with 3, the exact best 30 of 100,000 were always included.
const RESCORE_FACTOR: usize = 3;
/// A removed point leaves a gap. Gaps are closed when they are more than a quarter of the segment.
const GAP_SHARE_DIVISOR: usize = 4;
/// A term with at most this many points is worth a walk through its list, in a segment of any size.
const COMMON_TERM_COUNT: usize = 1_000;

#[derive(Default)]
pub(super) struct Segment {
    slots: Vec<PointSlot>,
    by_fact: HashMap<FactId, u32>,
    /// Dimensions × slots, unit vectors in full precision.
    exact: Vec<f32>,
    /// The same vectors. Those of gaps, and of points without a vector of the current embedder, cannot be compared.
    coarse: QuantizedVectors,
    /// All vectors since the last compaction, gaps included.
    vectors: usize,
    /// Over all slots, once the segment is large.
    quantizer: Option<BinaryQuantizer>,
    audiences: Vec<u64>,
    subjects: Vec<u64>,
    /// Term → (slot, weight).
    postings: HashMap<u64, Vec<(u32, f32)>>,
    /// The entries of all postings, counted at each change, since a sum over thousands of lists per change would be
    /// slow.
    posted: usize,
    important: BTreeSet<(Importance, DateTime<Utc>, FactId)>,
    recent: BTreeSet<(DateTime<Utc>, FactId)>,
    gaps: usize,
    /// Points with more than one knower.
    shared: usize,
    /// Points with locks.
    locked: usize,
}

struct PointSlot {
    /// `None`: a gap.
    fact: Option<FactId>,
    version: u32,
    importance: Importance,
    /// True for more than one knower.
    shared: bool,
    is_locked: bool,
    valid_at: DateTime<Utc>,
}

impl Segment {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_fact.is_empty()
    }

    /// Returns the approximate size in bytes, in constant time.
    pub(super) fn approximate_bytes(&self) -> u64 {
        // A list that grows by doubling is three quarters full on average.
        let postings = self.postings.len() * 48 + self.posted * 11;
        (self.slots.capacity() * size_of::<PointSlot>()
            + self.exact.capacity() * 4
            + self.coarse.memory_bytes()
            + self.quantizer.as_ref().map_or(0, BinaryQuantizer::approximate_bytes)
            + (self.audiences.capacity() + self.subjects.capacity()) * 8
            + self.by_fact.capacity() * 24
            + postings
            + self.by_fact.len() * 128) as u64
    }

    pub(super) fn put_point(&mut self, point: &IndexPoint) {
        let slot = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let has_vector = self.coarse.push(&point.embedding);
        let dimensions = self.coarse.dimensions();
        // Earlier points have placeholders, if the first vector has just determined the dimensions.
        self.exact.resize(self.slots.len() * dimensions, 0.0);
        if has_vector {
            self.exact.extend_from_slice(&point.embedding);
        } else {
            // A placeholder without a vector. The other legs need no vector.
            self.exact.resize(self.exact.len() + dimensions, 0.0);
        }
        self.posted += point.terms.0.len();
        for (term, weight) in &point.terms.0 {
            self.postings.entry(*term).or_default().push((slot, *weight));
        }
        self.important.insert((point.importance, point.valid_at, point.fact));
        self.recent.insert((point.valid_at, point.fact));
        self.by_fact.insert(point.fact, slot);
        self.vectors += usize::from(has_vector);
        match &mut self.quantizer {
            Some(sketch) => sketch.push(&self.exact[self.exact.len() - dimensions..]),
            None if has_vector && self.vectors == MIN_QUANTIZED_VECTORS => self.build_quantizer(),
            None => {}
        }
        self.audiences.push(short_hash(&point.audience));
        self.subjects.push(short_hash(point.subject.as_str()));
        let shared = point.audience.knowers.len() > 1;
        self.shared += usize::from(shared);
        self.locked += usize::from(point.is_locked);
        self.slots.push(PointSlot {
            fact: Some(point.fact),
            version: point.version,
            importance: point.importance,
            shared,
            is_locked: point.is_locked,
            valid_at: point.valid_at,
        });
    }

    pub(super) fn remove_fact(&mut self, fact: FactId) {
        let Some(slot) = self.by_fact.remove(&fact) else { return };
        let removed = &mut self.slots[slot as usize];
        removed.fact = None;
        self.shared -= usize::from(removed.shared);
        self.locked -= usize::from(removed.is_locked);
        self.coarse.hide(slot as usize);
        self.important.remove(&(removed.importance, removed.valid_at, fact));
        self.recent.remove(&(removed.valid_at, fact));
        self.gaps += 1;
        if self.gaps * GAP_SHARE_DIVISOR > self.slots.len() {
            self.close_gaps();
        }
    }

    fn build_quantizer(&mut self) {
        self.quantizer = BinaryQuantizer::from_vectors(self.coarse.dimensions(), &self.exact, |slot| {
            !self.coarse.is_comparable(slot)
        });
    }

    fn close_gaps(&mut self) {
        let old = std::mem::take(self);
        let filled_slots = old.slots.iter().enumerate().filter(|(_, slot)| slot.fact.is_some());
        self.coarse = old.coarse.select(filled_slots.map(|(index, _)| index));
        self.shared = old.shared;
        self.locked = old.locked;
        let dimensions = self.coarse.dimensions();
        let mut new_slots = vec![None; old.slots.len()];
        for (index, slot) in old.slots.into_iter().enumerate() {
            let Some(fact) = slot.fact else { continue };
            let to = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
            new_slots[index] = Some(to);
            let range = index * dimensions..(index + 1) * dimensions;
            self.exact.extend_from_slice(&old.exact[range]);
            self.audiences.push(old.audiences[index]);
            self.subjects.push(old.subjects[index]);
            self.by_fact.insert(fact, to);
            self.slots.push(slot);
        }
        self.postings = old.postings;
        self.postings.retain(|_, list| {
            list.retain_mut(|(slot, _)| {
                new_slots[*slot as usize].is_some_and(|to| {
                    *slot = to;
                    true
                })
            });
            !list.is_empty()
        });
        self.posted = self.postings.values().map(Vec::len).sum();
        let comparable = (0..self.slots.len()).filter(|slot| self.coarse.is_comparable(*slot));
        self.vectors = comparable.count();
        if self.vectors >= MIN_QUANTIZED_VECTORS {
            self.build_quantizer();
        }
        self.important = old.important;
        self.recent = old.recent;
    }

    pub(super) fn search_points(&self, search: &PartitionSearch, best: &mut HashMap<FactId, Candidate>) {
        let query = search
            .embedding
            .as_deref()
            .filter(|query| !query.is_empty() && query.len() == self.coarse.dimensions());
        let limits = search.limits;
        let mut candidates: Vec<(u32, f32)> = Vec::new();
        if let Some(query) = query {
            let nearest = self.nearest_slots(query, limits.dense, search.only.as_ref());
            candidates.extend(nearest.into_iter().map(|(cosine, slot)| (slot, cosine)));
        }
        let important = self.important.iter().rev().take(limits.important).map(|entry| entry.2);
        let recent = self.recent.iter().rev().take(limits.recent).map(|entry| entry.1);
        let other_slots: Vec<u32> = self
            .sharing_terms(&search.terms, limits.sparse)
            .into_iter()
            .chain(important.chain(recent).map(|fact| self.by_fact[&fact]))
            .collect();
        for slot in other_slots {
            if !candidates.iter().any(|(candidate_slot, _)| *candidate_slot == slot) {
                candidates.push((slot, query.map_or(0.0, |query| self.cosine(query, slot))));
            }
        }
        for (slot_index, cosine) in candidates {
            let slot = &self.slots[slot_index as usize];
            if let Some(fact) = slot.fact {
                best.entry(fact).or_insert_with(|| Candidate {
                    fact,
                    cosine,
                    hint: search.hints.then(|| ScoreHint {
                        version: slot.version,
                        importance: slot.importance,
                        valid_at: slot.valid_at,
                        keyword: self.bm25_score(&search.terms, slot_index),
                    }),
                });
            }
        }
    }

    /// Returns the BM25 score of the point in a slot.
    fn bm25_score(&self, terms: &TermWeights, slot: u32) -> f64 {
        keywords::bm25_score_by(terms, |term| {
            // New slots come last, so each list is in slot order.
            let list = self.postings.get(&term)?;
            let index = list.binary_search_by_key(&slot, |entry| entry.0).ok()?;
            Some(list[index].1)
        })
    }

    /// Adds the number of points without locks, and of those with each term.
    pub(super) fn count_terms(&self, terms: &TermWeights, counts: &mut TermCounts) {
        self.count_slots(&mut counts.facts, self.slots.len(), 0..self.slots.len());
        for (term, _) in &terms.0 {
            if let Some(list) = self.postings.get(term) {
                let slots = list.iter().map(|(slot, _)| *slot as usize);
                self.count_slots(counts.with_term.entry(*term).or_default(), list.len(), slots);
            }
        }
    }

    /// Counts these slots. Only reads the slots if gaps, locks or points with several knowers are possible.
    fn count_slots(&self, counted: &mut FactCount, slot_count: usize, slots: impl Iterator<Item = usize>) {
        if self.gaps == 0 && self.shared == 0 && self.locked == 0 {
            counted.alone += slot_count as u64;
            return;
        }
        for slot in slots.map(|slot| &self.slots[slot]) {
            match slot.fact.filter(|_| !slot.is_locked) {
                Some(fact) if slot.shared => {
                    counted.shared.insert(fact);
                }
                Some(_) => counted.alone += 1,
                None => {}
            }
        }
    }

    /// Returns the `limit` nearest slots, with exact cosines.
    fn nearest_slots(&self, query: &[f32], limit: usize, filter: Option<&PointFilter>) -> Vec<(f32, u32)> {
        if limit == 0 {
            return Vec::new();
        }
        let keep = limit.saturating_mul(RESCORE_FACTOR);
        let coarse_query = QuantizedQuery::new(query);
        let matches_filter = |slot: usize, filter: &PointFilter| {
            filter.audience.matches_audience(self.audiences[slot])
                && filter
                    .subjects
                    .as_ref()
                    .is_none_or(|subjects| subjects.contains(&self.subjects[slot]))
                && filter.before.is_none_or(|before| self.slots[slot].valid_at < before)
        };
        let is_visible =
            |slot: usize| self.coarse.is_comparable(slot) && filter.is_none_or(|filter| matches_filter(slot, filter));
        let mut approximate = if let Some(sketch) = &self.quantizer {
            let listed = sketch.shortlist_slots(query, keep, is_visible);
            self.coarse.nearest(&coarse_query, keep, listed.into_iter())
        } else {
            let visible_slots = (0..self.slots.len()).filter(|slot| is_visible(*slot));
            self.coarse.nearest(&coarse_query, keep, visible_slots)
        };
        approximate.sort_unstable_by(|a, b| b.cmp(a));
        approximate.truncate(keep);
        let mut exact: Vec<(f32, u32)> = approximate
            .into_iter()
            .map(|(_, slot)| {
                let slot = u32::try_from(slot).unwrap_or(u32::MAX);
                (self.cosine(query, slot), slot)
            })
            .collect();
        exact.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        exact.truncate(limit);
        exact
    }

    /// Returns the `limit` slots that share the most informative terms with the query. In a large segment, skips terms
    /// of more than half of the points: they are not worth the walk through their lists.
    fn sharing_terms(&self, terms: &TermWeights, limit: usize) -> Vec<u32> {
        if limit == 0 {
            return Vec::new();
        }
        let is_common = |have: usize| have > COMMON_TERM_COUNT && have * 2 > self.by_fact.len();
        let lists: Vec<(f32, &Vec<(u32, f32)>)> = terms
            .0
            .iter()
            .filter_map(|(term, weight)| self.postings.get(term).map(|list| (*weight, list)))
            .filter(|(weight, list)| *weight > 0.0 && !is_common(list.len()))
            .collect();
        // One sum per slot. A common word has thousands of slots, and a hash table would cost more than all other work
        // here. Weights are positive, so a sum of zero means a new slot.
        let mut sums = vec![0.0_f32; self.slots.len()];
        let mut summed_slots: Vec<u32> = Vec::new();
        for (query_weight, list) in lists {
            for (slot, weight) in list {
                let sum = &mut sums[*slot as usize];
                if *sum == 0.0 {
                    summed_slots.push(*slot);
                }
                *sum += query_weight * weight;
            }
        }
        let mut best: Vec<(f32, u32)> = summed_slots
            .into_iter()
            .filter(|slot| self.slots[*slot as usize].fact.is_some())
            .map(|slot| (sums[slot as usize], slot))
            .collect();
        let by_sum = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1));
        if best.len() > limit {
            best.select_nth_unstable_by(limit - 1, by_sum);
            best.truncate(limit);
        }
        best.into_iter().map(|(_, slot)| slot).collect()
    }

    fn cosine(&self, query: &[f32], slot: u32) -> f32 {
        let dimensions = self.coarse.dimensions();
        let start = slot as usize * dimensions;
        #[expect(clippy::cast_possible_truncation, reason = "a cosine is in [-1, 1]")]
        let cosine = f32::dot(query, &self.exact[start..start + dimensions]).unwrap_or(0.0) as f32;
        cosine.clamp(-1.0, 1.0)
    }
}
