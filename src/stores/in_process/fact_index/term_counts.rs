//! Counts of facts per term, over all segments that a viewpoint sees.

use std::collections::{BTreeMap, HashSet};

use colloquy_core::ids::FactId;
use colloquy_memory::keywords::TermStatistics;

/// Counts of facts, and of facts by term. One viewpoint can meet a fact with several knowers in several partitions, so
/// the ids of such facts are counted.
#[derive(Default)]
pub(super) struct TermCounts {
    pub(super) facts: FactCount,
    pub(super) with_term: BTreeMap<u64, FactCount>,
}

#[derive(Default)]
pub(super) struct FactCount {
    /// Facts with one knower.
    pub(super) alone: u64,
    /// Facts with several knowers.
    pub(super) shared: HashSet<FactId>,
}

impl FactCount {
    fn total_facts(&self) -> u64 {
        self.alone + self.shared.len() as u64
    }
}

impl From<TermCounts> for TermStatistics {
    fn from(counts: TermCounts) -> Self {
        Self {
            facts: counts.facts.total_facts(),
            with_term: counts
                .with_term
                .into_iter()
                .map(|(term, counted)| (term, counted.total_facts()))
                .collect(),
        }
    }
}
