//! The choice of scored memories for the prompt: packed into token budgets, best first (docs/algorithms.md#recall).

use super::{tokens::TokenCounter, trace::CandidateFate};

/// The limits of a prompt section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackingBudget {
    /// Most items; 8.
    pub top_k: usize,
    /// Most tokens of all items together; 1,200.
    pub total_tokens: u32,
    /// Most tokens of one item; 150. Longer items are cut.
    pub item_tokens: u32,
}

/// An item of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedItem<'a> {
    /// The position in the input.
    pub index: usize,
    /// The text, perhaps cut to the item's budget.
    pub text: &'a str,
    pub tokens: u32,
    pub is_cut: bool,
}

/// The packed items and the fate of each input.
#[derive(Debug, Clone, PartialEq)]
pub struct Packing<'a> {
    /// The items, best first.
    pub items: Vec<PackedItem<'a>>,
    /// One fate per input, in input order: `Used`, `BeyondTopK` or `OverBudget`.
    pub fates: Vec<CandidateFate>,
    /// Tokens of all items together.
    pub tokens: u32,
}

/// Packs `texts` (best first) greedily: a text that does not fit is left out, and later, smaller texts may still fit.
/// `separator_tokens` is the cost of joining per item.
#[must_use]
pub fn pack_texts<'a>(
    texts: &[&'a str],
    budget: PackingBudget,
    separator_tokens: u32,
    counter: &TokenCounter,
) -> Packing<'a> {
    let mut packing = Packing {
        items: Vec::new(),
        fates: Vec::with_capacity(texts.len()),
        tokens: 0,
    };
    for (index, &candidate) in texts.iter().enumerate() {
        if packing.items.len() >= budget.top_k {
            packing.fates.push(CandidateFate::BeyondTopK);
            continue;
        }
        // Most items fit, and then one count is enough.
        let mut text = candidate;
        let mut tokens = counter.count_tokens(candidate);
        if tokens > budget.item_tokens {
            text = counter.truncate_to(candidate, budget.item_tokens);
            tokens = counter.count_tokens(text);
        }
        let cost = tokens.saturating_add(separator_tokens);
        if text.is_empty() || packing.tokens.saturating_add(cost) > budget.total_tokens {
            packing.fates.push(CandidateFate::OverBudget);
            continue;
        }
        packing.tokens += cost;
        packing.items.push(PackedItem {
            index,
            text,
            tokens,
            is_cut: text.len() < candidate.len(),
        });
        packing.fates.push(CandidateFate::Used);
    }
    debug_assert!(packing.fates.len() == texts.len(), "each text has a fate");
    debug_assert!(packing.tokens <= budget.total_tokens, "packed texts fit their budget");
    debug_assert!(
        packing.items.iter().all(|item| item.tokens <= budget.item_tokens),
        "each packed text fits the budget of a text"
    );
    debug_assert!(
        packing.items.len() <= budget.top_k,
        "no more texts are packed than asked for"
    );
    debug_assert!(
        packing
            .items
            .iter()
            .all(|item| packing.fates[item.index] == CandidateFate::Used),
        "a packed text counts as used"
    );
    packing
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use CandidateFate::{BeyondTopK, OverBudget, Used};

    const COUNTER: TokenCounter = TokenCounter::O200k;

    fn budget(top_k: usize, total_tokens: u32, item_tokens: u32) -> PackingBudget {
        PackingBudget {
            top_k,
            total_tokens,
            item_tokens,
        }
    }

    #[test]
    fn packing_takes_the_best_and_explains_the_rest() {
        let long = "word ".repeat(100);
        let texts = [
            "The player likes grapes",
            long.trim(),
            "플레이어는 포도를 좋아한다",
            "short",
            "last",
        ];
        let first = COUNTER.count_tokens(texts[0]);
        // The long text is cut to 40 tokens and does not fit; the next smaller texts do.
        let packing = pack_texts(&texts, budget(3, first + 20, 40), 1, &COUNTER);
        assert_eq!(packing.fates, [Used, OverBudget, Used, Used, BeyondTopK]);
        assert_eq!(
            packing.items.iter().map(|item| item.index).collect::<Vec<_>>(),
            [0, 2, 3]
        );
        assert!(packing.tokens <= first + 20);
    }

    #[test]
    fn item_is_cut_to_its_own_budget() {
        let long = "포도를 좋아하는 플레이어 ".repeat(50);
        let packing = pack_texts(&[&long], budget(8, 1_200, 150), 0, &COUNTER);
        let item = packing.items[0];
        assert!(item.is_cut && item.tokens <= 150 && item.tokens > 140 && long.starts_with(item.text));
    }

    #[test]
    fn zero_budget_packs_no_item() {
        for budget in [budget(0, 100, 100), budget(8, 0, 100), budget(8, 100, 0)] {
            let packing = pack_texts(&["a text", "another"], budget, 0, &COUNTER);
            assert!(packing.items.is_empty() && packing.fates.len() == 2);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn budget_is_never_exceeded(
            texts in prop::collection::vec("[a-z가-힣🙂 ]{0,80}", 0..16), top_k in 0_usize..10, total in 0_u32..200,
            item in 0_u32..60, separator in 0_u32..4, exact in any::<bool>(),
        ) {
            let counter = if exact { TokenCounter::Cl100k } else { TokenCounter::Estimated };
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let packing = pack_texts(&texts, budget(top_k, total, item), separator, &counter);
            let spent: u32 = packing.items.iter().map(|packed| counter.count_tokens(packed.text) + separator).sum();
            prop_assert_eq!(spent, packing.tokens);
            prop_assert!(spent <= total && packing.items.len() <= top_k);
            prop_assert!(packing.items.iter().all(|packed| packed.tokens <= item && texts[packed.index].starts_with(packed.text)));
            prop_assert_eq!(packing.fates.len(), texts.len());
            prop_assert_eq!(packing.fates.iter().filter(|fate| **fate == Used).count(), packing.items.len());
        }
    }
}
