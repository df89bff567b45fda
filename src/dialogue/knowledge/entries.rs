//! The selected entries of a section: their tokens, their fates, and the order in which they are dropped.

use crate::{
    disclosure::Disclosable,
    prompt::{ContentHash, ITEM_TOKENS, PromptContext},
};
use colloquy_memory::{
    packing::{PackingBudget, pack_texts},
    trace::{CandidateFate, EpisodeFate, InsightFate, LoreFate},
};

/// A selected entry.
pub(crate) struct Entry<D = ()> {
    /// The position among the hits.
    pub index: usize,
    /// The text in the prompt.
    pub text: Disclosable<String>,
    /// The tokens of the text with its bullet.
    pub tokens: u32,
    /// What else the section shows of the entry.
    pub detail: D,
}

/// What becomes of a hit.
pub(crate) trait Fate: Copy + PartialEq {
    const USED: Self;
    const OVER_BUDGET: Self;
    /// Returns the fate of a hit whose text was packed into a budget.
    fn of_packing(fate: CandidateFate) -> Self {
        if fate == CandidateFate::Used {
            Self::USED
        } else {
            Self::OVER_BUDGET
        }
    }
}

impl Fate for CandidateFate {
    const USED: Self = Self::Used;
    const OVER_BUDGET: Self = Self::OverBudget;
    fn of_packing(fate: CandidateFate) -> Self {
        fate
    }
}
impl Fate for LoreFate {
    const USED: Self = Self::Used;
    const OVER_BUDGET: Self = Self::OverBudget;
}
impl Fate for InsightFate {
    const USED: Self = Self::Used;
    const OVER_BUDGET: Self = Self::OverBudget;
}
impl Fate for EpisodeFate {
    const USED: Self = Self::Used;
    const OVER_BUDGET: Self = Self::OverBudget;
}
/// The hits are in no trace.
impl Fate for () {
    const USED: Self = ();
    const OVER_BUDGET: Self = ();
}

/// The selected entries of a section.
pub(crate) struct Entries<D = (), F = ()> {
    /// The most important for the prompt first.
    pub items: Vec<Entry<D>>,
    /// The fates of the considered hits, by their position.
    pub fates: Vec<F>,
    /// The number of entries that did not fit.
    pub dropped: usize,
}

impl<D, F> Default for Entries<D, F> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            fates: Vec::new(),
            dropped: 0,
        }
    }
}

impl<D, F: Fate> Entries<D, F> {
    /// Shows an entry if the entry fits, and takes its tokens from `room`. Returns the fate of the entry.
    pub(super) fn fit(&mut self, entry: Entry<D>, room: &mut u32) -> F {
        if entry.tokens > *room {
            self.dropped += 1;
            return F::OVER_BUDGET;
        }
        *room -= entry.tokens;
        self.items.push(entry);
        F::USED
    }

    /// Packs the texts of hits into a budget, best first, and sets the fates of the hits. Longer texts are cut.
    pub(super) fn pack(
        context: &PromptContext<'_>,
        mut fates: Vec<F>,
        texts: &[(usize, Disclosable<String>)],
        budget: PackingBudget,
        detail: impl Fn(usize) -> D,
    ) -> Self {
        let borrowed: Vec<&str> = texts.iter().map(|(_, text)| text.as_str()).collect();
        let packing = pack_texts(&borrowed, budget, ITEM_TOKENS, &context.counter);
        for ((index, _), fate) in texts.iter().zip(&packing.fates) {
            fates[*index] = F::of_packing(*fate);
        }
        let items = packing.items.iter().map(|item| Entry {
            index: texts[item.index].0,
            text: texts[item.index].1.as_ref().map(|_| item.text.to_owned()),
            tokens: item.tokens + ITEM_TOKENS,
            detail: detail(texts[item.index].0),
        });
        let items: Vec<Entry<D>> = items.collect();
        debug_assert!(
            items.iter().map(|entry| entry.tokens).sum::<u32>() <= budget.total_tokens,
            "the entries of a section fit its budget"
        );
        debug_assert!(
            items.iter().all(|entry| fates[entry.index] == F::USED),
            "an entry in the prompt counts as used"
        );
        Self {
            items,
            dropped: fates.iter().filter(|fate| **fate == F::OVER_BUDGET).count(),
            fates,
        }
    }

    pub(super) fn tokens(&self) -> u32 {
        self.items.iter().map(|entry| entry.tokens).sum()
    }
    pub(super) const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Drops the last entry. Returns `false` if there is none.
    pub(super) fn drop_last(&mut self) -> bool {
        let Some(entry) = self.items.pop() else {
            return false;
        };
        if let Some(fate) = self.fates.get_mut(entry.index) {
            debug_assert!(*fate == F::USED, "only an entry in the prompt can be dropped");
            *fate = F::OVER_BUDGET;
        }
        self.dropped += 1;
        true
    }

    /// Returns the text of a hit in the prompt, if the prompt shows the hit.
    pub(super) fn shown_text(&self, index: usize) -> Option<String> {
        let entry = self.items.iter().find(|entry| entry.index == index);
        entry.map(|entry| entry.text.to_string())
    }
    /// Returns the shown texts, in the order of the entries.
    pub(super) fn texts(&self) -> Disclosable<Vec<String>> {
        self.items.iter().map(|entry| entry.text.clone()).collect()
    }
    /// Adds the shown texts.
    pub(super) fn add_texts(&self, hash: &mut ContentHash) {
        self.items.iter().for_each(|entry| hash.add_text(&entry.text));
    }
}
