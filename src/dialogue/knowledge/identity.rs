//! The player's identity for the NPC: the name, the NPC's last talk with the player in another session, and its topics.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use minijinja::{Value, context};

use super::{
    kind::{EarlyReading, KindOfKnowledge, LineSearch, Rereading},
    section::{Section, SectionSize, SectionSizes, TemplateValues, ToldParts, room_under_heading},
};
use crate::{
    Services,
    disclosure::{Disclosable, Disclosures, Gate, LocksByWords, Unlocked},
    prompt::{Attribution, ITEM_TOKENS, PromptContext, PromptReader, Remark, attribute_to, escape_untrusted},
    settings::PromptSettings,
    turn::{TurnError, TurnInput},
};
use colloquy_core::ids::FactId;
use colloquy_memory::{
    aliases,
    fact::Fact,
    keywords::sentence_key,
    sentences::split_sentences,
    summary::Meeting,
    trace::{CandidateFate, MeetingTrace, PromptSources, TurnTrace},
};
use colloquy_ports::StoreResult;

/// Returns the longest run of whole sentences at the end of `text` within `room` tokens. Agreements usually stand at
/// the end. `None` if not even the last sentence fits.
fn last_sentences<'t>(text: &'t str, room: u32, count: &dyn Fn(&str) -> u32) -> Option<&'t str> {
    let mut end = 0;
    let starts = split_sentences(text).map(|sentence| {
        let start = end;
        end += sentence.len();
        start
    });
    let starts: Vec<usize> = starts.collect();
    let too_long = starts.partition_point(|start| count(&text[*start..]) > room);
    starts.get(too_long).map(|start| &text[*start..])
}

/// The most names of a player in a prompt.
const MAX_NAMES: usize = 4;

/// Returns the facts in which this player states its own names: the first told first, nicknames and titles last.
pub(crate) fn player_own_names<'f>(
    reader: PromptReader<'_>,
    standing: &'f [Disclosable<Fact>],
) -> Vec<&'f Disclosable<Fact>> {
    let tells_name = |fact: &&Disclosable<Fact>| {
        fact.invalid.is_none()
            && fact.statement.tells_own_name()
            && reader.attribution_of_fact(fact) == Attribution::Player
    };
    let mut names: Vec<&Disclosable<Fact>> = standing.iter().filter(tells_name).collect();
    names.sort_by_key(|fact| (aliases::tells_nickname(&fact.statement), fact.valid_at, fact.id));
    // A name may be told again to others.
    let mut told_names = HashSet::new();
    names.retain(|fact| told_names.insert(sentence_key(&fact.statement.object)));
    names
}

/// The NPC's last talk with the player in another session. The names are among the standing facts.
#[derive(Default)]
pub(crate) struct Identity {
    pub meeting: Option<Disclosable<Meeting>>,
}

/// The selected information about the player. Empty for a stranger.
#[derive(Default)]
pub(crate) struct IdentitySection {
    /// The names, the first told first, each with its tokens.
    names: Vec<(FactId, Disclosable<String>, u32)>,
    /// The time of the last meeting, with tokens.
    met: Option<(DateTime<Utc>, u32)>,
    /// The end of the last summary of their dialogues with dates in words, and its tokens with the remark.
    summary: Option<(Disclosable<String>, u32)>,
    /// The time of the summary, if older than the last meeting.
    summed_up_before: Option<DateTime<Utc>>,
    dropped: usize,
}

impl KindOfKnowledge for Identity {
    type Read<'a> = Option<Unlocked<Meeting>>;
    type Section<'a> = IdentitySection;

    async fn read(reading: &EarlyReading<'_>) -> Result<Option<Unlocked<Meeting>>, TurnError> {
        let newest = reading.memory.take(|memory| &mut memory.meeting).await?;
        Ok(open_meeting(reading.services, reading.input, newest).await?)
    }

    async fn find(search: &LineSearch<'_>, _meeting: Option<Unlocked<Meeting>>) -> Result<Self, TurnError> {
        let meeting = search.told_texts.meeting.clone();
        Ok(Self { meeting })
    }

    async fn reread(rereading: &Rereading<'_>, _changes: &mut Vec<String>) -> Result<Self, TurnError> {
        let meeting = rereading.told_texts.meeting.clone();
        Ok(Self { meeting })
    }

    /// Selects the names first, and cuts the summary to the rest of the budget.
    fn select<'a>(
        &'a self,
        context: &'a PromptContext<'a>,
        _told_parts: &ToldParts<'_>,
        remaining_tokens: u32,
    ) -> Result<IdentitySection, TurnError> {
        let budget = context.settings.prompt.fixed.acquaintance_tokens;
        let mut room = room_under_heading(budget, remaining_tokens);
        let mut section = IdentitySection::default();
        section.select_names(context, &mut room)?;
        if let Some(meeting) = &self.meeting {
            section.select_meeting(context, meeting, room)?;
        }
        Ok(section)
    }

    fn add_sources(&self, sources: &mut PromptSources) {
        sources.meeting = self.meeting.as_ref().map(|meeting| MeetingTrace {
            last_turn_at: meeting.last_turn_at,
            since: meeting.since,
            summary: meeting.summary.as_ref().map(|recap| recap.summary),
            summary_since: meeting.summary.as_ref().map(|recap| recap.since),
        });
    }

    fn add_disclosures(&self, _input: &TurnInput, _trace: &TurnTrace, disclosures: &mut Disclosures) {
        if let Some(recap) = self.meeting.as_ref().and_then(|meeting| meeting.summary.as_ref()) {
            disclosures.add_text(&recap.text, &recap.locks);
            disclosures.confided.add_text(&recap.text);
        }
    }
}

impl IdentitySection {
    fn select_names(&mut self, context: &PromptContext<'_>, room: &mut u32) -> Result<(), TurnError> {
        let reader = context.reader();
        for fact in player_own_names(reader, context.standing) {
            let statement = &fact.statement;
            let sentence = fact.as_ref().map(|fact| fact.view.content.as_str());
            let player = Attribution::Player;
            let text = sentence
                .try_map(|sentence| attribute_to(context.templates, reader, player, &statement.subject, sentence))?;
            // The first name is the one by which all may call the player. A later one may be a confidence.
            let remark = match self.names.first() {
                None => Remark::default(),
                Some(_) => context.remark_for_knowers(&fact.audience.knowers),
            };
            let text = text.try_map(|text| remark.add_to(context, text))?;
            let tokens = context.count(&text) + ITEM_TOKENS;
            if tokens <= *room && self.names.len() < MAX_NAMES {
                *room -= tokens;
                self.names.push((fact.id, text, tokens));
            } else {
                self.dropped += 1;
            }
        }
        Ok(())
    }

    fn select_meeting(
        &mut self,
        context: &PromptContext<'_>,
        meeting: &Disclosable<Meeting>,
        mut room: u32,
    ) -> Result<(), TurnError> {
        if 2 * ITEM_TOKENS <= room {
            room -= 2 * ITEM_TOKENS;
            self.met = Some((meeting.last_turn_at, 2 * ITEM_TOKENS));
        } else {
            self.dropped += 1;
        }
        if let Some(summary) = &meeting.summary {
            let ages = context.ages();
            let count = |text: &str| context.count(text);
            let text = escape_untrusted(&summary.text);
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let text = ages.word_dates(context.templates, text)?;
            let remark = context.remark_for_earlier_talk();
            let frame = count(&remark.add_to(context, String::new())?) + 3 * ITEM_TOKENS;
            let sentences = last_sentences(&text, room.saturating_sub(frame), &count);
            self.dropped += usize::from(sentences.is_none());
            self.summary = sentences.map(|text| (meeting.as_ref().map(|_| text.to_owned()), count(text) + frame));
            self.summed_up_before = meeting.earlier_summary_at(|moment| ages.day_of(moment));
        }
        Ok(())
    }

    fn values_of_player(&self, context: &PromptContext<'_>) -> Result<Disclosable<Value>, TurnError> {
        let names: Disclosable<Vec<String>> = self.names.iter().map(|name| name.1.clone()).collect();
        if self.tokens() == 0 {
            return Ok(names.map(|_| Value::from(())));
        }
        let describe_age = |moment| context.ages().describe_age(context.templates, moment);
        let ago = self.met.map(|(moment, _)| describe_age(moment)).transpose()?;
        let summary_age = self.summed_up_before.map(describe_age).transpose()?;
        let remark = context.remark_for_earlier_talk();
        let summary = self.summary.as_ref().map(|summary| summary.0.clone());
        let summary = summary.map(|summary| summary.try_map(|text| remark.add_to(context, text)));
        let summary = summary.transpose()?.unwrap_or_default();
        Ok(names.zip(summary).map(|(names, summary)| {
            let before = summary_age.unwrap_or_default();
            context! { names, ago => ago.unwrap_or_default(), summary, before }
        }))
    }
}

impl Section for IdentitySection {
    fn tokens(&self) -> u32 {
        self.names.iter().map(|name| name.2).sum::<u32>()
            + self.met.map_or(0, |met| met.1)
            + self.summary.as_ref().map_or(0, |summary| summary.1)
    }
    fn changing_tokens(&self) -> u32 {
        0
    }
    /// Drops the summary, then the meeting, then the names, the last first.
    fn drop_least(&mut self) -> bool {
        let shrunk = self.summary.take().is_some() || self.met.take().is_some() || self.names.pop().is_some();
        self.dropped += usize::from(shrunk);
        shrunk
    }
    fn is_dated(&self) -> bool {
        self.met.is_some()
    }

    fn add_told(&self, told_parts: &mut ToldParts<'_>) {
        let names = self.names.iter().map(|name| (name.0, CandidateFate::InStateBlock));
        told_parts.standing_facts.extend(names);
        told_parts
            .summaries
            .extend(self.summary.iter().map(|summary| summary.0.to_string()));
    }

    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        values.add_lasting("who", self.values_of_player(values.context)?);
        Ok(())
    }

    fn add_sizes(&self, budgets: &PromptSettings, sizes: &mut SectionSizes) {
        let size = SectionSize::new(
            "acquaintance",
            self.tokens(),
            budgets.fixed.acquaintance_tokens,
            self.dropped,
            "lines about who the player is",
        );
        sizes.add_if_any(size, |hash| {
            for (_, name, _) in &self.names {
                hash.add_text(name);
            }
            for moment in [self.met.map(|met| met.0), self.summed_up_before].into_iter().flatten() {
                hash.add_time(moment);
            }
            if let Some((summary, _)) = &self.summary {
                hash.add_text(summary);
            }
        });
    }
}

/// Opens the last meeting. Every turn reads the meeting again, because another session with this player may begin or
/// be rewound at any time, on any node. If this player may not hear the newest summary's facts, the newest unlocked
/// summary takes its place.
async fn open_meeting(
    services: &Services,
    input: &TurnInput,
    newest: Option<Meeting>,
) -> StoreResult<Option<Unlocked<Meeting>>> {
    let Some((player, newest)) = input.player.as_ref().zip(newest) else {
        return Ok(None);
    };
    let scope = &input.scope;
    let npc = &input.npc.id;
    let gate = Gate::of_turn(services, input);
    let mut locked = match gate.open_one(newest).await? {
        Ok(open) => return Ok(Some(open)),
        Err(locked) => locked,
    };
    if let Some(recap) = &mut locked.summary {
        // The locks are those of the whole dialogue. The summary may tell nothing of the locked content.
        let split = LocksByWords::load(services, scope, &input.world, &recap.locks, &input.npc.name).await?;
        recap.locks = split.locks_of(&[&recap.text]);
    }
    if let Ok(open) = gate.open_one(locked).await? {
        return Ok(Some(open));
    }
    let dialogues = &services.ledger.dialogues;
    let unlocked = dialogues.find_last_meeting(scope, &input.world.id, npc, player, input.dialogue.id, true);
    let Some(unlocked) = unlocked.await? else {
        return Ok(None);
    };
    Ok(gate.open_one(unlocked).await?.ok())
}
