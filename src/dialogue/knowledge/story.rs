//! The story so far, as curation passes noted it: open findings, and notes of the narrative memory. A prompt has those of
//! the player's talks with its NPC alone (docs/algorithms.md#story).

use minijinja::{Value, context};

use super::{
    entries::{Entries, Entry, Fate as _},
    kind::{EarlyReading, KindOfKnowledge, LineSearch, Rereading},
    section::{Section, SectionSize, SectionSizes, TemplateValues, ToldParts},
};
use crate::{
    Services,
    disclosure::{Disclosable, Disclosures, Gate, PreparedRemovals, Unlocked, redact_story, shown_before},
    prompt::{ITEM_TOKENS, PromptContext, escape_untrusted},
    settings::PromptSettings,
    turn::{TurnError, TurnInput},
};
use colloquy_memory::{
    disclosure::locks::DisclosureLocks,
    trace::{CandidateFate, StoryPart, StoryTrace, TurnTrace},
};
use colloquy_ports::{StoreResult, ledger::curation::StoryRow};

/// The most tokens of the section.
const STORY_TOKENS: u32 = 400;
/// The tokens of the heading and the rule.
const RULE_TOKENS: u32 = 100;
/// The tokens of the words before a finding.
const LABEL_TOKENS: u32 = 8;
/// The most open findings of a prompt: contradictions first, proposed events last, and the newest of each.
const MAX_FINDINGS: usize = 3;
/// The most lines of notes of a prompt; the last lines of the newest session.
const MAX_NOTES: usize = 6;

/// A finding, or a line of notes.
struct StoryLine {
    traced: Disclosable<StoryTrace>,
    locks: DisclosureLocks,
}

/// The lines that the prompt may have, most important first: open findings and notes, newest first.
#[derive(Default)]
pub(crate) struct Story(Vec<StoryLine>);

/// The lines that fit.
pub(crate) struct StorySection<'a> {
    lines: &'a [StoryLine],
    entries: Entries<StoryPart, CandidateFate>,
}

/// True if a pass over a talk of the player and the NPC alone may have noted something. Several NPCs do not know the
/// same, and a pass writes its notes once.
pub(super) fn may_have_story(services: &Services, input: &TurnInput, has_met: bool) -> bool {
    let curation = &services.settings.curation;
    let first_pass_after = curation.min_turns.min(curation.every_turns);
    curation.is_on()
        && input.player.is_some()
        && input.dialogue.npcs.len() == 1
        && (has_met || input.number > first_pass_after)
}

impl KindOfKnowledge for Story {
    type Read<'a> = Vec<StoryRow>;
    type Section<'a> = StorySection<'a>;

    async fn read(reading: &EarlyReading<'_>) -> Result<Vec<StoryRow>, TurnError> {
        Ok(reading.memory.take(|memory| &mut memory.story).await?)
    }

    async fn find(search: &LineSearch<'_>, mut rows: Vec<StoryRow>) -> Result<Self, TurnError> {
        let LineSearch { services, input, .. } = *search;
        let was_read = may_have_story(services, input, false);
        if !was_read && may_have_story(services, input, search.told_texts.meeting.is_some()) {
            rows = load_rows(services, input).await?;
        }
        let rows = Gate::of_turn(services, input)
            .open_story(input.dialogue.id, rows)
            .await?;
        let lines = rows.iter().flat_map(|row| lines_of_row(search.removals, row));
        Ok(Self::of_newest(lines.collect()))
    }

    /// Returns the lines of the prompt. The trace has their whole text.
    async fn reread(rereading: &Rereading<'_>, _changes: &mut Vec<String>) -> Result<Self, TurnError> {
        let traced_lines = rereading.trace.story.iter();
        let shown_lines = traced_lines.filter_map(|traced| shown_before(rereading.trace, traced.clone()));
        let lines = shown_lines.map(|traced| StoryLine {
            traced,
            locks: DisclosureLocks::default(),
        });
        Ok(Self(lines.collect()))
    }

    fn select<'a>(
        &'a self,
        context: &'a PromptContext<'a>,
        _told_parts: &ToldParts<'_>,
        remaining_tokens: u32,
    ) -> Result<StorySection<'a>, TurnError> {
        let mut room = STORY_TOKENS.min(remaining_tokens).saturating_sub(RULE_TOKENS);
        let mut entries = Entries::default();
        for (index, line) in self.0.iter().enumerate() {
            let remark = context.remark_for_dialogue(line.traced.dialogue_id);
            let shown_text = line.traced.as_ref().map(|traced| escape_untrusted(&traced.text));
            let text = shown_text.try_map(|text| remark.add_to(context, text))?;
            let is_note = line.traced.part == StoryPart::Note;
            let label_tokens = if is_note { 0 } else { LABEL_TOKENS };
            let entry = Entry {
                index,
                tokens: context.count(&text) + ITEM_TOKENS + label_tokens,
                text,
                detail: line.traced.part,
            };
            let fate = entries.fit(entry, &mut room);
            entries.fates.push(fate);
        }
        Ok(StorySection {
            lines: &self.0,
            entries,
        })
    }

    fn add_disclosures(&self, _input: &TurnInput, trace: &TurnTrace, disclosures: &mut Disclosures) {
        for (line, traced) in self.0.iter().zip(&trace.story) {
            if traced.fate == CandidateFate::USED {
                disclosures.add_text(&line.traced.text, &line.locks);
                disclosures.confided.add_text(&line.traced.text);
            }
        }
    }
}

impl Story {
    /// Keeps the newest findings, and the last lines of the newest notes.
    fn of_newest(lines: Vec<StoryLine>) -> Self {
        let is_note = |line: &StoryLine| line.traced.part == StoryPart::Note;
        let (notes, mut findings): (Vec<StoryLine>, Vec<StoryLine>) = lines.into_iter().partition(is_note);
        // The sort is stable: of one kind, the newest stay first.
        findings.sort_by_key(|line| line.traced.part);
        let newest_findings = findings.into_iter().take(MAX_FINDINGS);
        Self(newest_findings.chain(notes.into_iter().take(MAX_NOTES)).collect())
    }
}

async fn load_rows(services: &Services, input: &TurnInput) -> StoreResult<Vec<StoryRow>> {
    let curation = &services.ledger.curation;
    let rows = curation.load_story(&input.scope, &input.dialogue, input.started_at);
    rows.await
}

/// Returns the lines of a row, the last one first, without what was removed from memory.
fn lines_of_row(removals: &PreparedRemovals<'_>, row: &Unlocked<StoryRow>) -> Vec<StoryLine> {
    let lines = redact_story(removals, row).into_iter().map(|traced| StoryLine {
        traced,
        locks: row.locks.clone().unwrap_or_default(),
    });
    lines.collect()
}

impl Section for StorySection<'_> {
    fn tokens(&self) -> u32 {
        let tokens = self.entries.tokens();
        if tokens > 0 { tokens + RULE_TOKENS } else { 0 }
    }
    fn framed_tokens(&self) -> u32 {
        self.tokens()
    }
    fn drop_least(&mut self) -> bool {
        self.entries.drop_last()
    }

    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        // Notes were chosen from the newest, and are read from the oldest: a later note may refer to an earlier one.
        let is_note = |entry: &&Entry<StoryPart>| entry.detail == StoryPart::Note;
        let findings = self.entries.items.iter().filter(|entry| !is_note(entry));
        let entries = findings.chain(self.entries.items.iter().rev().filter(is_note));
        let lines = entries.map(|entry| {
            let text = entry.text.as_ref();
            text.map(|text| context! { part => entry.detail.as_str(), text => text.as_str() })
        });
        values.add_changing("story", lines.collect::<Disclosable<Vec<Value>>>());
        Ok(())
    }

    fn add_sizes(&self, _budgets: &PromptSettings, sizes: &mut SectionSizes) {
        let dropped = self.entries.dropped;
        let size = SectionSize::new("story", self.tokens(), STORY_TOKENS, dropped, "lines of the story");
        sizes.add_if_any(size, |hash| {
            for entry in &self.entries.items {
                hash.add_text(entry.detail.as_str());
                hash.add_text(&entry.text);
            }
        });
    }

    fn add_trace(&self, trace: &mut TurnTrace) {
        let considered = self.lines.iter().zip(&self.entries.fates);
        let traced = considered.map(|(line, &fate)| StoryTrace {
            fate,
            ..(*line.traced).clone()
        });
        trace.story = traced.collect();
    }
}
