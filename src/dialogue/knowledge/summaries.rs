//! Summaries of the dialogue in a prompt: of the turns before the history.

use minijinja::{Value, context};

use super::{
    entries::{Entries, Entry},
    kind::{KindOfKnowledge, LineSearch, Rereading},
    section::{Section, SectionSize, SectionSizes, TemplateValues, ToldParts, room_under_heading},
};
use crate::{
    disclosure::{Disclosable, Disclosures},
    prompt::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS, PromptContext, escape_untrusted},
    settings::PromptSettings,
    turn::{TurnError, TurnInput},
};
use colloquy_memory::{
    summary::Summary,
    trace::{PromptSources, TurnTrace},
};

/// The summaries of turns before the history, in the form that the NPC may tell.
#[derive(Default)]
pub(crate) struct Summaries(pub Vec<Disclosable<Summary>>);

/// The selected summaries, newest first.
pub(crate) struct SummarySection<'a> {
    summaries: &'a [Disclosable<Summary>],
    /// The text of an entry has its dates in words, and the detail has them as stored.
    entries: Entries<String>,
    /// The summaries of turns that the history has whole.
    in_history: Vec<&'a Summary>,
}

impl KindOfKnowledge for Summaries {
    type Read<'a> = ();
    type Section<'a> = SummarySection<'a>;

    async fn find(search: &LineSearch<'_>, (): ()) -> Result<Self, TurnError> {
        Ok(Self(search.told_texts.summaries.clone()))
    }

    async fn reread(rereading: &Rereading<'_>, _changes: &mut Vec<String>) -> Result<Self, TurnError> {
        Ok(Self(rereading.told_texts.summaries.clone()))
    }

    /// Selects the newest summaries that fit beside the budget of the episodes. A summary of turns that the history shows
    /// would tell them twice.
    fn select<'a>(
        &'a self,
        context: &'a PromptContext<'a>,
        told_parts: &ToldParts<'_>,
        remaining_tokens: u32,
    ) -> Result<SummarySection<'a>, TurnError> {
        let budgets = &context.settings.prompt;
        let of_episodes = budgets.episode_tokens.saturating_add(HEADING_TOKENS + FRAME_TOKENS);
        let reserved_tokens = if told_parts.has_episodes { of_episodes } else { 0 };
        let remaining_tokens = remaining_tokens.saturating_sub(reserved_tokens);
        let mut room = room_under_heading(budgets.summary_tokens, remaining_tokens);
        // The history has no gaps.
        let is_in_history =
            |summary: &Summary| told_parts.has_turn(summary.from_turn) && told_parts.has_turn(summary.to_turn);
        let mut entries = Entries::<String>::default();
        let is_needed = |(_, summary): &(usize, &Disclosable<Summary>)| !is_in_history(summary);
        let needed: Vec<(usize, &Disclosable<Summary>)> = self.0.iter().enumerate().filter(is_needed).collect();
        for (index, summary) in needed.iter().rev() {
            let detail = escape_untrusted(&summary.text);
            let shown_text = summary.as_ref().map(|summary| escape_untrusted(&summary.text));
            let text = shown_text.try_map(|text| context.ages().word_dates(context.templates, text))?;
            let tokens = context.count(&text) + ITEM_TOKENS + 4;
            // Without gaps: an older summary must not replace a newer summary that did not fit.
            if tokens > room {
                break;
            }
            let entry = Entry {
                index: *index,
                text,
                tokens,
                detail,
            };
            entries.fit(entry, &mut room);
        }
        entries.dropped = needed.len() - entries.items.len();
        Ok(SummarySection {
            summaries: &self.0,
            entries,
            in_history: self
                .0
                .iter()
                .map(|summary| &**summary)
                .filter(|summary| is_in_history(summary))
                .collect(),
        })
    }

    /// Adds the summaries that no earlier prompt of the dialogue had.
    fn add_disclosures(&self, input: &TurnInput, _trace: &TurnTrace, disclosures: &mut Disclosures) {
        let is_new = |summary: &&Summary| summary.to_turn > input.checkpoint.summarised_through;
        for summary in input.summaries.iter().filter(is_new) {
            disclosures.confided.add_text(&summary.text);
        }
    }
}

impl SummarySection<'_> {
    /// Returns the summaries with their entries, oldest first.
    fn in_order(&self) -> impl Iterator<Item = (&Summary, &Entry<String>)> {
        let entries = self.entries.items.iter().rev();
        entries.map(|entry| (&*self.summaries[entry.index], entry))
    }
}

impl Section for SummarySection<'_> {
    fn tokens(&self) -> u32 {
        self.entries.tokens()
    }
    /// Drops the oldest.
    fn drop_least(&mut self) -> bool {
        self.entries.drop_last()
    }
    fn is_dated(&self) -> bool {
        !self.entries.is_empty()
    }
    fn add_told(&self, told_parts: &mut ToldParts<'_>) {
        told_parts
            .summaries
            .extend(self.in_order().map(|(_, entry)| entry.detail.clone()));
    }

    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        let context = values.context;
        let summaries = self.in_order().map(|(summary, entry)| {
            let ago = context.ages().describe_age(context.templates, summary.created_at)?;
            let values = |text: &String| {
                context! { from => summary.from_turn, to => summary.to_turn, ago, text => text.as_str() }
            };
            Ok(entry.text.as_ref().map(values))
        });
        let summaries = summaries.collect::<Result<Disclosable<Vec<Value>>, TurnError>>()?;
        values.add_lasting("summaries", summaries);
        Ok(())
    }

    fn add_sizes(&self, budgets: &PromptSettings, sizes: &mut SectionSizes) {
        let dropped = self.entries.dropped;
        let size = SectionSize::new(
            "summaries",
            self.tokens(),
            budgets.summary_tokens,
            dropped,
            "older summaries",
        );
        sizes.add(size, |hash| {
            for (summary, entry) in self.in_order() {
                hash.add_number(summary.from_turn);
                hash.add_number(summary.to_turn);
                hash.add_time(summary.created_at);
                hash.add_text(&entry.detail);
            }
        });
    }

    fn add_notes(&self, notes: &mut Vec<String>) {
        for summary in &self.in_history {
            let from = summary.from_turn;
            let to = summary.to_turn;
            notes.push(format!(
                "the summary of turns {from} to {to} was left out: the history has these turns"
            ));
        }
    }

    fn add_trace(&self, trace: &mut TurnTrace) {
        let sources = trace.sources.get_or_insert_with(PromptSources::default);
        sources.summaries = self.in_order().map(|(summary, _)| summary.id).collect();
    }
}
