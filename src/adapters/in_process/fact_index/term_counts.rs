//! How many facts have a term, over all shelves that a viewpoint sees.

use std::collections::{BTreeMap, HashSet};

use crate::{ids::FactId, memory::keywords::TermStatistics};

/// Facts, and facts by term. Those that several may know are told apart by their ids, since one viewpoint can
/// meet them in several partitions.
#[derive(Default)]
pub(super) struct TermCounts {
    pub(super) facts: FactCount,
    pub(super) with_term: BTreeMap<u64, FactCount>,
}

#[derive(Default)]
pub(super) struct FactCount {
    /// Facts of one knower.
    pub(super) alone: u64,
    /// Facts of several.
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
