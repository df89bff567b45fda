//! What of the scored memories goes into the prompt: near-duplicates merge, the rest is packed
//! into token budgets, best first (ALGORITHMS §2).

use super::{scoring::dot, tokens::TokenCounter, trace::CandidateFate};

/// How much may go into the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Most items; 8.
    pub top_k: usize,
    /// Most tokens of all items together; 1,200.
    pub total_tokens: u32,
    /// Most tokens of one item, longer ones are cut; 150.
    pub item_tokens: u32,
}

/// An item that goes into the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackedItem<'a> {
    /// Its position in the input.
    pub index: usize,
    /// Its text, perhaps cut to the item's budget.
    pub text: &'a str,
    pub tokens: u32,
    pub cut: bool,
}

/// What was packed and what became of each input.
#[derive(Debug, Clone, PartialEq)]
pub struct Packing<'a> {
    /// Best first.
    pub items: Vec<PackedItem<'a>>,
    /// One per input, in its order: `Used`, `BeyondTopK` or `OverBudget`.
    pub fates: Vec<CandidateFate>,
    /// Tokens of all items together.
    pub tokens: u32,
}

/// Which candidates are near-duplicates of a better one: for each, the position of the kept one it
/// merges into. `embeddings` are unit vectors, best candidate first.
#[must_use]
pub fn near_duplicates(embeddings: &[&[f32]], threshold: f32) -> Vec<Option<usize>> {
    let mut merged: Vec<Option<usize>> = Vec::with_capacity(embeddings.len());
    for (at, embedding) in embeddings.iter().enumerate() {
        let into = (0..at).find(|&kept| merged[kept].is_none() && dot(embeddings[kept], embedding) >= threshold);
        merged.push(into);
    }
    merged
}

/// Packs `texts` (best first) greedily: one that does not fit is left out, and smaller ones after it
/// still get their chance. `separator_tokens` is what joining costs per item.
#[must_use]
pub fn pack<'a>(texts: &[&'a str], budget: Budget, separator_tokens: u32, counter: &TokenCounter) -> Packing<'a> {
    let mut packing = Packing {
        items: Vec::new(),
        fates: Vec::with_capacity(texts.len()),
        tokens: 0,
    };
    for (index, &whole) in texts.iter().enumerate() {
        if packing.items.len() >= budget.top_k {
            packing.fates.push(CandidateFate::BeyondTopK);
            continue;
        }
        let text = counter.truncate(whole, budget.item_tokens);
        let tokens = counter.count(text);
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
            cut: text.len() < whole.len(),
        });
        packing.fates.push(CandidateFate::Used);
    }
    packing
}
