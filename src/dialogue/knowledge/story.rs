//! The story so far, as curation passes noted it: open findings, and notes of the narrative memory. A prompt has those of
//! the player's talks with its NPC alone (docs/algorithms.md#story).

use minijinja::{Value, context};

use super::{
    disclosures::Disclosures,
    entries::{Entries, Entry, Fate as _},
    kind::{KindOfKnowledge, LineSearch, Rereading},
    section::{Section, SectionSize, SectionSizes, TemplateValues, ToldParts},
};
use crate::{
    Services, locks,
    prompt::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS, PromptContext, escape_untrusted},
    redaction,
    settings::PromptSettings,
    turn::{TurnError, TurnInput},
};
use colloquy_memory::{
    locks::DisclosureLocks,
    trace::{CandidateFate, StoryPart, StoryTrace, TurnTrace},
};
use colloquy_ports::{StoreResult, ledger::curation::StoryRow};

/// The most tokens of the section.
const STORY_TOKENS: u32 = 250;
/// The most open findings of a prompt; the newest.
const MAX_FINDINGS: usize = 3;
/// The most lines of notes of a prompt; the last lines of the newest session.
const MAX_NOTES: usize = 6;

/// A finding, or a line of notes.
struct StoryLine {
    traced: StoryTrace,
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
fn may_have_story(services: &Services, input: &TurnInput, has_met: bool) -> bool {
    let curation = &services.settings.curation;
    let first_pass_after = curation.min_turns.min(curation.every_turns);
    curation.is_on()
        && input.player.is_some()
        && input.dialogue.npcs.len() == 1
        && (has_met || input.number > first_pass_after)
}

impl KindOfKnowledge for Story {
    type Read<'a> = ();
    type Section<'a> = StorySection<'a>;

    async fn find(search: &LineSearch<'_>, (): ()) -> Result<Self, TurnError> {
        let LineSearch { services, input, .. } = *search;
        if !may_have_story(services, input, search.told_texts.meeting.is_some()) {
            return Ok(Self::default());
        }
        let curation = &services.ledger.curation;
        let rows = curation
            .load_story(&input.scope, &input.dialogue, input.started_at)
            .await?;
        let rows = filter_open_rows(services, input, rows).await?;
        let lines = rows.iter().flat_map(lines_of_row);
        let lines = lines.filter_map(|mut line| {
            line.traced.text = redaction::redact_text(search.removals, &line.traced.text)?;
            Some(line)
        });
        Ok(Self::of_newest(lines.collect()))
    }

    /// Returns the lines of the prompt. The trace has their whole text.
    async fn reread(rereading: &Rereading<'_>, _changes: &mut Vec<String>) -> Result<Self, TurnError> {
        let used = rereading
            .trace
            .story
            .iter()
            .filter(|traced| traced.fate == CandidateFate::USED);
        let lines = used.map(|traced| StoryLine {
            traced: traced.clone(),
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
        let mut room = STORY_TOKENS.min(remaining_tokens.saturating_sub(HEADING_TOKENS + FRAME_TOKENS));
        let mut entries = Entries::default();
        for (index, line) in self.0.iter().enumerate() {
            let remark = context.remark_for_dialogue(line.traced.dialogue_id);
            let text = remark.add_to(context, escape_untrusted(&line.traced.text))?;
            let entry = Entry {
                index,
                tokens: context.count(&text) + ITEM_TOKENS,
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
        let (notes, findings): (Vec<StoryLine>, Vec<StoryLine>) = lines.into_iter().partition(is_note);
        let newest_findings = findings.into_iter().take(MAX_FINDINGS);
        Self(newest_findings.chain(notes.into_iter().take(MAX_NOTES)).collect())
    }
}

/// Returns the rows that the hearers may hear. The turns of this dialogue were said to them; of another session, what the
/// session may have told must be open.
async fn filter_open_rows(services: &Services, input: &TurnInput, rows: Vec<StoryRow>) -> StoreResult<Vec<StoryRow>> {
    let is_own = |row: &StoryRow| row.dialogue == input.dialogue.id;
    let known = rows.into_iter().filter(|row| is_own(row) || row.told_locks.is_some());
    let locked = known.map(|mut row| {
        // The checkpoint has the locks of this dialogue already.
        let told_locks = row.told_locks.take().filter(|_| !is_own(&row)).unwrap_or_default();
        row.told_locks = Some(told_locks.clone());
        (row, told_locks)
    });
    // As for episodes, a greeting has nothing locked.
    let usable = locked.filter(|(_, locks)| locks.is_empty() || !input.is_greeting());
    locks::filter_open(
        services,
        &input.scope,
        &input.world,
        &input.viewpoint(),
        usable.collect(),
    )
    .await
}

/// Returns the lines of a row, the last one first.
fn lines_of_row(row: &StoryRow) -> Vec<StoryLine> {
    let texts = row.text.lines().rev().filter(|text| !text.trim().is_empty());
    let lines = texts.map(|text| StoryLine {
        traced: StoryTrace {
            part: row.part,
            dialogue_id: row.dialogue,
            noted_at: row.noted_at,
            text: text.to_owned(),
            fate: CandidateFate::OVER_BUDGET,
        },
        locks: row.told_locks.clone().unwrap_or_default(),
    });
    lines.collect()
}

impl Section for StorySection<'_> {
    fn tokens(&self) -> u32 {
        self.entries.tokens()
    }
    fn drop_least(&mut self) -> bool {
        self.entries.drop_last()
    }

    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        let entries = self.entries.items.iter();
        let lines = entries.map(|entry| context! { part => entry.detail.as_str(), text => entry.text.as_str() });
        values.add_changing("story", lines.collect::<Vec<Value>>());
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
            ..line.traced.clone()
        });
        trace.story = traced.collect();
    }
}
