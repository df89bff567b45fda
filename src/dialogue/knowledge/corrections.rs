//! What a person has corrected since the history of a running session was said. The history shows turns whole, so the prompt
//! says which of their words no longer hold.

use minijinja::{Value, context};

use super::{
    entries::{Entries, Entry},
    kind::{KindOfKnowledge, LineSearch, Rereading},
    section::{Section, SectionSize, SectionSizes, TemplateValues, ToldParts},
};
use crate::{
    disclosure::Disclosable,
    prompt::{ITEM_TOKENS, PromptContext, escape_untrusted},
    settings::PromptSettings,
    turn::TurnError,
};
use colloquy_ports::ledger::facts::RemovedStatement;

/// The tokens of all corrections, with the rule above them.
const MAX_CORRECTION_TOKENS: u32 = 400;
/// The tokens of the heading and the rule.
const RULE_TOKENS: u32 = 60;

/// What the history says, and no longer holds; latest first.
#[derive(Default)]
pub(crate) struct Corrections(pub Vec<Disclosable<RemovedStatement>>);

/// The selected corrections, latest first. The text of an entry is the outdated statement.
pub(crate) struct CorrectionSection(Entries<Disclosable<PresentStatement>>);

/// The statement that holds instead, if one does.
type PresentStatement = Option<String>;

impl KindOfKnowledge for Corrections {
    type Read<'a> = ();
    type Section<'a> = CorrectionSection;

    async fn find(search: &LineSearch<'_>, (): ()) -> Result<Self, TurnError> {
        Ok(Self(search.told_texts.outdated.clone()))
    }

    async fn reread(rereading: &Rereading<'_>, _changes: &mut Vec<String>) -> Result<Self, TurnError> {
        Ok(Self(rereading.told_texts.outdated.clone()))
    }

    /// Selects the latest corrections that fit. The correction of a locked statement is not shown, because it would lock
    /// what the session teaches.
    fn select<'a>(
        &'a self,
        context: &'a PromptContext<'a>,
        _told_parts: &ToldParts<'_>,
        remaining_tokens: u32,
    ) -> Result<CorrectionSection, TurnError> {
        let mut room = MAX_CORRECTION_TOKENS.min(remaining_tokens).saturating_sub(RULE_TOKENS);
        let mut entries = Entries::<Disclosable<PresentStatement>>::default();
        for (index, removed) in self.0.iter().enumerate() {
            let detail = removed
                .as_ref()
                .map(|removed| removed.correction.as_deref().map(escape_untrusted));
            let text = removed.as_ref().map(|removed| escape_untrusted(&removed.content));
            let tokens =
                context.count(&text) + detail.as_deref().map_or(0, |text| context.count(text)) + 2 * ITEM_TOKENS;
            if tokens > room {
                entries.dropped = self.0.len() - entries.items.len();
                break;
            }
            let entry = Entry {
                index,
                text,
                tokens,
                detail,
            };
            entries.fit(entry, &mut room);
        }
        Ok(CorrectionSection(entries))
    }
}

impl Section for CorrectionSection {
    fn tokens(&self) -> u32 {
        let tokens = self.0.tokens();
        if tokens > 0 { tokens + RULE_TOKENS } else { 0 }
    }
    fn framed_tokens(&self) -> u32 {
        self.tokens()
    }
    /// Drops the oldest.
    fn drop_least(&mut self) -> bool {
        self.0.drop_last()
    }

    /// Adds the corrections, oldest first.
    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        let entries = self.0.items.iter().rev();
        let corrections = entries.map(|entry| {
            let statements = entry.text.as_ref().zip(entry.detail.as_ref());
            statements.map(|(outdated, present)| context! { outdated, present })
        });
        values.add_changing("corrections", corrections.collect::<Disclosable<Vec<Value>>>());
        Ok(())
    }

    fn add_sizes(&self, _budgets: &PromptSettings, sizes: &mut SectionSizes) {
        let size = SectionSize::new(
            "corrections",
            self.tokens(),
            MAX_CORRECTION_TOKENS,
            self.0.dropped,
            "corrections of the history",
        );
        sizes.add_if_any(size, |hash| {
            for entry in &self.0.items {
                hash.add_text(&entry.text);
                hash.add_text(entry.detail.as_deref().unwrap_or_default());
            }
        });
    }
}
