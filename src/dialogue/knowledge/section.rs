//! A section of a prompt: what was selected of one kind of knowledge, within its budget.

use std::collections::{BTreeMap, HashMap, HashSet};

use minijinja::Value;

use crate::{
    disclosure::Disclosable,
    prompt::{ContentHash, FRAME_TOKENS, HEADING_TOKENS, HistoryWindow, PromptContext},
    settings::PromptSettings,
    turn::TurnError,
};
use colloquy_core::ids::{DialogueId, FactId};
use colloquy_memory::trace::{CandidateFate, SectionTrace, TurnTrace};

/// The selected part of a kind of knowledge. All numbers of tokens are tokens of the model that answers.
pub(crate) trait Section {
    /// Returns the tokens of the entries, as the trace shows them.
    fn tokens(&self) -> u32;
    /// Returns the tokens that the section takes in the prompt, with headings and frames.
    fn framed_tokens(&self) -> u32 {
        with_heading(self.tokens())
    }
    /// Returns the part of the tokens that may change with every turn. These parts stand behind the history.
    fn changing_tokens(&self) -> u32 {
        self.tokens()
    }
    /// Returns the tokens that the selection of the next section has less. Headings have a reserve of their own.
    fn taken_tokens(&self) -> u32 {
        self.tokens()
    }
    /// Drops the least important entry. Returns `false` if no entry is left to drop.
    fn drop_least(&mut self) -> bool;
    /// True if the section shows an age or a date, so that the prompt must tell the date of today.
    fn is_dated(&self) -> bool {
        false
    }
    /// Adds what the section tells. Later sections leave that out.
    fn add_told(&self, _told: &mut ToldParts<'_>) {}
    /// Adds the dialogue of each shown entry whose turn may be named by its number.
    fn add_dialogues(&self, _dialogues: &mut Vec<DialogueId>) {}
    /// Adds the values for the templates. Every value of the templates is there, also without entries.
    ///
    /// # Errors
    /// A template that cannot be rendered.
    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError>;
    /// Adds name, size, budget and content for the trace.
    fn add_sizes(&self, budgets: &PromptSettings, sizes: &mut SectionSizes);
    /// Adds notes for a person who asks why content is missing.
    fn add_notes(&self, _notes: &mut Vec<String>) {}
    /// Adds the considered entries and their fates.
    fn add_trace(&self, _trace: &mut TurnTrace) {}
}

/// Returns the tokens of a list with its heading; 0 for an empty list.
pub(super) const fn with_heading(tokens: u32) -> u32 {
    if tokens > 0 {
        tokens + HEADING_TOKENS + FRAME_TOKENS
    } else {
        0
    }
}

/// Returns the tokens for the entries of a list within `budget` and `remaining_tokens`, beside the heading of the list.
pub(super) fn room_under_heading(budget: u32, remaining_tokens: u32) -> u32 {
    budget.min(remaining_tokens.saturating_sub(HEADING_TOKENS + FRAME_TOKENS))
}

/// What the sections selected so far tell.
#[derive(Default)]
pub(crate) struct ToldParts<'a> {
    /// The raw turns of the prompt. `None` before their selection.
    pub history: Option<&'a HistoryWindow>,
    /// True if the turn found episodes, which get their budget before the summaries.
    pub has_episodes: bool,
    /// The facts that are in the prompt without a search.
    pub standing_facts: HashMap<FactId, CandidateFate>,
    /// Open promises in whose place a later one stands.
    pub redated_facts: HashSet<FactId>,
    /// The summaries in the prompt.
    pub summaries: Vec<String>,
    /// The found facts in the prompt, each with the turn that taught the fact.
    pub found_facts: Vec<((DialogueId, u32), String)>,
}

impl ToldParts<'_> {
    /// True if the history of the prompt has a turn of the prompt's dialogue.
    pub(super) fn has_turn(&self, number: u32) -> bool {
        self.history.is_some_and(|history| history.has_turn(number))
    }
    /// True if the history of the prompt has a turn.
    pub(super) fn shows_turn(&self, context: &PromptContext<'_>, dialogue: DialogueId, number: u32) -> bool {
        dialogue == context.dialogue() && self.has_turn(number)
    }
}

/// The values of the templates `reply_memory` and `reply_context`.
pub(crate) struct TemplateValues<'c> {
    pub context: &'c PromptContext<'c>,
    /// The dialogues of the shown facts and episodes.
    pub dialogues: Vec<DialogueId>,
    /// The values before the history, which stay the same for several turns.
    lasting: BTreeMap<&'static str, Value>,
    /// The values behind the history.
    changing: BTreeMap<&'static str, Value>,
    /// What the NPC shows of what it keeps to itself.
    pub tells: Vec<Disclosable<String>>,
}

/// The values of the two templates, by their names.
pub(crate) struct RenderedValues {
    pub lasting: BTreeMap<&'static str, Value>,
    pub changing: BTreeMap<&'static str, Value>,
}

impl<'c> TemplateValues<'c> {
    pub(crate) const fn new(context: &'c PromptContext<'c>, dialogues: Vec<DialogueId>) -> Self {
        Self {
            context,
            dialogues,
            lasting: BTreeMap::new(),
            changing: BTreeMap::new(),
            tells: Vec::new(),
        }
    }
    /// Adds what all who hear the prompt see: the date of today, if the prompt tells dates, and the names of the NPCs who
    /// overhear the dialogue.
    pub(crate) fn add_scene(&mut self, today: String, witnesses: Vec<String>) {
        self.changing.insert("today", today.into());
        self.changing.insert("witnesses", witnesses.into());
    }
    /// Returns the values of both templates.
    pub(crate) fn into_rendered(mut self) -> RenderedValues {
        let tells: Disclosable<Vec<String>> = std::mem::take(&mut self.tells).into_iter().collect();
        self.add_changing("tells", tells);
        RenderedValues {
            lasting: self.lasting,
            changing: self.changing,
        }
    }
    /// Adds a value that stands before the history.
    pub(super) fn add_lasting<V: Into<Value>>(&mut self, name: &'static str, value: Disclosable<V>) {
        self.lasting.insert(name, value.into_inner().into());
    }
    /// Adds a value that stands behind the history.
    pub(super) fn add_changing<V: Into<Value>>(&mut self, name: &'static str, value: Disclosable<V>) {
        self.changing.insert(name, value.into_inner().into());
    }
}

/// The size of a section for the trace.
pub(crate) struct SectionSize {
    /// As in [`SectionTrace::name`].
    pub name: &'static str,
    pub tokens: u32,
    pub budget: u32,
    /// What was left out to stay within the budget, in words.
    pub dropped: Vec<String>,
}

impl SectionSize {
    /// Returns the size of a section from which `dropped` entries are left out, such as 3 `insights`.
    pub(crate) fn new(name: &'static str, tokens: u32, budget: u32, dropped: usize, entries: &str) -> Self {
        let dropped = (dropped > 0).then(|| format!("{dropped} {entries}"));
        Self {
            name,
            tokens,
            budget,
            dropped: dropped.into_iter().collect(),
        }
    }
}

/// The sizes of the sections of a prompt, in their order.
#[derive(Default)]
pub(crate) struct SectionSizes(Vec<(SectionSize, ContentHash)>);

impl SectionSizes {
    /// Adds a section, unless the section is empty and nothing of it was dropped. `add_content` adds the shown content.
    pub(crate) fn add_if_any(&mut self, size: SectionSize, add_content: impl FnOnce(&mut ContentHash)) {
        if size.tokens > 0 || !size.dropped.is_empty() {
            self.add(size, add_content);
        }
    }

    /// Adds a section, or a further part of a section.
    pub(crate) fn add(&mut self, size: SectionSize, add_content: impl FnOnce(&mut ContentHash)) {
        if let Some((sum, hash)) = self.0.iter_mut().find(|(other, _)| other.name == size.name) {
            debug_assert!(sum.budget == size.budget, "the parts of a section share a budget");
            sum.tokens += size.tokens;
            sum.dropped.extend(size.dropped);
            add_content(hash);
        } else {
            let mut hash = ContentHash::default();
            add_content(&mut hash);
            self.0.push((size, hash));
        }
    }

    /// Returns the sections of the trace.
    pub(crate) fn into_traces(self) -> Vec<SectionTrace> {
        let traces = self.0.into_iter().map(|(size, hash)| SectionTrace {
            name: size.name.to_owned(),
            tokens: size.tokens,
            budget: size.budget,
            near_budget: size.tokens > 0 && u64::from(size.tokens) * 5 >= u64::from(size.budget) * 4,
            dropped: size.dropped,
            hash: hash.finish(),
        });
        traces.collect()
    }
}
