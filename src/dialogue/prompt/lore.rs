//! Lore in a prompt: what the NPC knows of the world, and what it keeps to itself, within a separate budget.

use minijinja::{Value, context};

use super::{
    content_hash::ContentHash,
    frame_tokens::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS},
    material::PromptMaterial,
    templates::{Template, Templates},
    untrusted::escape_untrusted,
};
use crate::{
    lore::{FoundLore, LoreHit, LoreNow},
    settings::PromptSettings,
    turn::TurnError,
};
use colloquy_memory::{
    packing::{PackingBudget, pack_texts},
    party::{self, PLAYER},
    secrecy::Secrecy,
    trace::{CandidateFate, LoreFate, LoreTrace},
    vocabulary,
};

struct ShownEntry {
    /// The position among the hits.
    hit_index: usize,
    text: String,
    tokens: u32,
    /// True if the text is the entry's tell.
    is_tell: bool,
}

/// The selected entries.
#[derive(Default)]
pub(super) struct ShownLore {
    /// Best first.
    entries: Vec<ShownEntry>,
    /// The fate of every hit, by position.
    fates: Vec<LoreFate>,
}

impl ShownLore {
    /// Selects the best entries that fit.
    pub(super) fn select_fitting(
        templates: &Templates,
        material: &PromptMaterial<'_>,
        budgets: &PromptSettings,
        remaining_tokens: u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<Self, TurnError> {
        let Some(lore) = material.lore else {
            return Ok(Self::default());
        };
        let mut fates: Vec<LoreFate> = lore.hits.iter().map(|hit| hit.trace.fate).collect();
        let usable: Vec<usize> = (0..fates.len())
            .filter(|index| fates[*index] == LoreFate::Used)
            .collect();
        let texts = usable
            .iter()
            .map(|index| render_entry(templates, material, lore, &lore.hits[*index]));
        let texts = texts.collect::<Result<Vec<String>, TurnError>>()?;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let budget = PackingBudget {
            top_k: usize::MAX,
            total_tokens: budgets
                .lore_tokens
                .min(remaining_tokens.saturating_sub(2 * (HEADING_TOKENS + FRAME_TOKENS))),
            item_tokens: budgets.lore_item_tokens,
        };
        let packing = pack_texts(&texts, budget, ITEM_TOKENS, &material.counter);
        for (index, fate) in usable.iter().zip(&packing.fates) {
            if *fate != CandidateFate::Used {
                fates[*index] = LoreFate::OverBudget;
            }
        }
        let entries = packing.items.iter().map(|item| ShownEntry {
            hit_index: usable[item.index],
            text: item.text.to_owned(),
            tokens: count(item.text) + ITEM_TOKENS,
            is_tell: lore.hits[usable[item.index]].secrecy == Secrecy::Guarded,
        });
        Ok(Self {
            entries: entries.collect(),
            fates,
        })
    }

    pub(super) fn tokens(&self) -> u32 {
        self.entries.iter().map(|entry| entry.tokens).sum()
    }
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    pub(super) fn dropped_count(&self) -> usize {
        self.fates.iter().filter(|fate| **fate == LoreFate::OverBudget).count()
    }
    /// Drops the last entry. Returns `false` if there is none.
    pub(super) fn drop_last(&mut self) -> bool {
        let last = self.entries.pop();
        if let Some(entry) = &last {
            self.fates[entry.hit_index] = LoreFate::OverBudget;
        }
        last.is_some()
    }

    /// Returns the tells, or the texts that may be told.
    pub(super) fn shown_texts(&self, are_tells: bool) -> Vec<Value> {
        let entries = self.entries.iter().filter(|entry| entry.is_tell == are_tells);
        entries.map(|entry| entry.text.as_str().into()).collect()
    }

    pub(super) fn add_content(&self, hash: &mut ContentHash) {
        for entry in &self.entries {
            hash.add_number(u32::from(entry.is_tell));
            hash.add_text(&entry.text);
        }
    }

    /// Returns the trace of every considered entry.
    pub(super) fn trace_entries(&self, material: &PromptMaterial<'_>) -> Vec<LoreTrace> {
        let hits = material.lore.into_iter().flat_map(|lore| &lore.hits);
        let traced = hits.zip(&self.fates).enumerate().map(|(index, (hit, fate))| LoreTrace {
            fate: *fate,
            shown_text: self
                .entries
                .iter()
                .find(|entry| entry.hit_index == index)
                .map(|entry| entry.text.clone()),
            ..hit.trace.clone()
        });
        traced.collect()
    }
}

/// Renders what the prompt says of an entry: its content with the present state, or its tell.
fn render_entry(
    templates: &Templates,
    material: &PromptMaterial<'_>,
    lore: &FoundLore,
    hit: &LoreHit,
) -> Result<String, TurnError> {
    let text = &lore.entry(hit).text;
    if hit.secrecy == Secrecy::Guarded {
        let tell = text.tell.as_ref().map_or("", |tell| tell.text.as_str());
        return Ok(escape_untrusted(tell));
    }
    let display_name = |name: &str| {
        if party::is_player(name) {
            PLAYER.to_owned()
        } else {
            escape_untrusted(name)
        }
    };
    let language = material.npc.language;
    let optional = |text: &Option<String>| text.as_deref().map(escape_untrusted);
    let label = |word: &str| escape_untrusted(vocabulary::display_label(word, language));
    let now = hit.now.iter().map(|now| match now {
        LoreNow::Character { name, place, status } => context! {
            who => display_name(name), place => optional(place), status => status.as_deref().map(label), item => (),
        },
        LoreNow::Item { item, holder } => context! {
            who => display_name(holder), place => (), status => (), item => escape_untrusted(item),
        },
    });
    let now: Vec<Value> = now.collect();
    let remark = material.remark_for_knowers(&text.known_by.knowers());
    let content = remark.add_to(templates, material, escape_untrusted(&text.content))?;
    let values = context! { name => escape_untrusted(&text.name), content, now };
    Ok(templates.render(language, Template::Lore, values)?)
}
