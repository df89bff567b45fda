//! What a person has corrected since the history of a running session was said. The history shows turns whole, so the prompt
//! says which of their words no longer hold.

use minijinja::{Value, context};

use super::{
    content_hash::ContentHash, frame_tokens::ITEM_TOKENS, material::PromptMaterial, untrusted::escape_untrusted,
};

/// The tokens of all corrections, with the rule above them.
pub(super) const MAX_CORRECTION_TOKENS: u32 = 400;
/// The tokens of the heading and the rule.
const RULE_TOKENS: u32 = 60;

struct ShownCorrection {
    outdated: String,
    /// The statement that holds instead, if one does.
    present: Option<String>,
    tokens: u32,
}

/// The selected corrections, latest first.
#[derive(Default)]
pub(super) struct ShownCorrections {
    entries: Vec<ShownCorrection>,
    dropped: usize,
}

impl ShownCorrections {
    /// Selects the latest corrections that fit. The correction of a locked statement is not shown, because it would lock
    /// what the session teaches.
    pub(super) fn select_fitting(
        material: &PromptMaterial<'_>,
        remaining_tokens: u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Self {
        let mut room = MAX_CORRECTION_TOKENS.min(remaining_tokens).saturating_sub(RULE_TOKENS);
        let mut selected = Self::default();
        for removed in material.outdated {
            let correction = removed.correction.as_deref().filter(|_| !removed.is_locked);
            let present = correction.map(escape_untrusted);
            let outdated = escape_untrusted(&removed.content);
            let tokens = count(&outdated) + present.as_deref().map_or(0, count) + 2 * ITEM_TOKENS;
            if tokens > room {
                selected.dropped = material.outdated.len() - selected.entries.len();
                break;
            }
            room -= tokens;
            let entry = ShownCorrection {
                outdated,
                present,
                tokens,
            };
            selected.entries.push(entry);
        }
        selected
    }

    pub(super) fn tokens(&self) -> u32 {
        let entries: u32 = self.entries.iter().map(|entry| entry.tokens).sum();
        if entries > 0 { entries + RULE_TOKENS } else { 0 }
    }
    pub(super) const fn dropped_count(&self) -> usize {
        self.dropped
    }
    /// Drops the oldest. Returns `false` if there is none.
    pub(super) fn drop_last(&mut self) -> bool {
        let dropped = self.entries.pop().is_some();
        self.dropped += usize::from(dropped);
        dropped
    }

    /// Returns the entries, oldest first.
    pub(super) fn template_values(&self) -> Vec<Value> {
        let entries = self.entries.iter().rev();
        entries
            .map(|entry| context! { outdated => entry.outdated.as_str(), present => entry.present.as_deref() })
            .collect()
    }

    pub(super) fn add_content(&self, hash: &mut ContentHash) {
        for entry in &self.entries {
            hash.add_text(&entry.outdated);
            hash.add_text(entry.present.as_deref().unwrap_or_default());
        }
    }
}
