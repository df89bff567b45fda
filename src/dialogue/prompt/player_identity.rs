//! The player's identity for the NPC: the name, the last meeting, and its topics.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use minijinja::{Value, context};

use super::{
    attribution::{Attribution, PromptReader, attribute_to},
    company::Remark,
    content_hash::ContentHash,
    frame_tokens::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS},
    material::PromptMaterial,
    templates::Templates,
    untrusted::escape_untrusted,
};
use crate::turn::TurnError;
use colloquy_core::ids::FactId;
use colloquy_memory::{aliases, fact::Fact, keywords::sentence_key, sentences::split_sentences};

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
pub(crate) fn player_own_names<'f>(reader: PromptReader<'_>, standing: &'f [Fact]) -> Vec<&'f Fact> {
    let tells_name = |fact: &&Fact| {
        fact.invalid.is_none()
            && fact.statement.tells_own_name()
            && reader.attribution_of_fact(fact) == Attribution::Player
    };
    let mut names: Vec<&Fact> = standing.iter().filter(tells_name).collect();
    names.sort_by_key(|fact| (aliases::tells_nickname(&fact.statement), fact.valid_at, fact.id));
    // A name may be told again to others.
    let mut told_names = HashSet::new();
    names.retain(|fact| told_names.insert(sentence_key(&fact.statement.object)));
    names
}

/// The selected information about the player. Empty for a stranger.
#[derive(Default)]
pub(super) struct PlayerIdentity {
    /// The names, the first told first, each with its tokens.
    names: Vec<(FactId, String, u32)>,
    /// The time of the last meeting, with tokens.
    met: Option<(DateTime<Utc>, u32)>,
    /// The end of the last summary of their dialogues with dates in words, and its tokens with the remark.
    summary: Option<(String, u32)>,
    /// The time of the summary, if older than the last meeting.
    summed_up_before: Option<DateTime<Utc>>,
    dropped: usize,
}

impl PlayerIdentity {
    /// Selects the parts that fit `budget` and `remaining_tokens`, both in tokens: the names first, the summary cut to
    /// the rest.
    pub(super) fn select_fitting(
        templates: &Templates,
        material: &PromptMaterial<'_>,
        budget: u32,
        remaining_tokens: u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<Self, TurnError> {
        let mut room = budget.min(remaining_tokens.saturating_sub(HEADING_TOKENS + FRAME_TOKENS));
        let mut identity = Self::default();
        let reader = material.reader();
        for fact in player_own_names(reader, material.standing) {
            let text = attribute_to(
                templates,
                reader,
                Attribution::Player,
                &fact.statement.subject,
                &fact.view.content,
            )?;
            // The first name is the one by which all may call the player. A later one may be a confidence.
            let remark = match identity.names.first() {
                None => Remark::default(),
                Some(_) => material.remark_for_knowers(&fact.audience.knowers),
            };
            let text = remark.add_to(templates, material, text)?;
            let tokens = count(&text) + ITEM_TOKENS;
            if tokens <= room && identity.names.len() < MAX_NAMES {
                room -= tokens;
                identity.names.push((fact.id, text, tokens));
            } else {
                identity.dropped += 1;
            }
        }
        let Some(meeting) = material.meeting else {
            return Ok(identity);
        };
        if 2 * ITEM_TOKENS <= room {
            room -= 2 * ITEM_TOKENS;
            identity.met = Some((meeting.last_turn_at, 2 * ITEM_TOKENS));
        } else {
            identity.dropped += 1;
        }
        if let Some(summary) = &meeting.summary {
            let text = escape_untrusted(&summary.text);
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let text = material.ages().word_dates(templates, text)?;
            let remark = material.remark_for_earlier_talk();
            let frame = count(&remark.add_to(templates, material, String::new())?) + 3 * ITEM_TOKENS;
            let sentences = last_sentences(&text, room.saturating_sub(frame), count);
            identity.dropped += usize::from(sentences.is_none());
            identity.summary = sentences.map(|text| (text.to_owned(), count(text) + frame));
            identity.summed_up_before = meeting.earlier_summary_at(|moment| material.ages().day_of(moment));
        }
        Ok(identity)
    }

    pub(super) fn tokens(&self) -> u32 {
        self.names.iter().map(|name| name.2).sum::<u32>()
            + self.met.map_or(0, |met| met.1)
            + self.summary.as_ref().map_or(0, |summary| summary.1)
    }
    pub(super) const fn is_empty(&self) -> bool {
        self.names.is_empty() && self.met.is_none() && self.summary.is_none()
    }
    pub(super) const fn is_dated(&self) -> bool {
        self.met.is_some()
    }
    pub(super) const fn dropped_count(&self) -> usize {
        self.dropped
    }
    /// The selected part of the last summary.
    pub(super) fn summary(&self) -> Option<&str> {
        self.summary.as_ref().map(|summary| summary.0.as_str())
    }
    /// The facts with the selected names.
    pub(super) fn name_facts(&self) -> impl Iterator<Item = FactId> {
        self.names.iter().map(|name| name.0)
    }
    /// Drops the summary, then the meeting, then the names, the last first. Returns `false` if all are already gone.
    pub(super) fn drop_least_important(&mut self) -> bool {
        let shrunk = self.summary.take().is_some() || self.met.take().is_some() || self.names.pop().is_some();
        self.dropped += usize::from(shrunk);
        shrunk
    }

    pub(super) fn add_content(&self, hash: &mut ContentHash) {
        for (_, name, _) in &self.names {
            hash.add_text(name);
        }
        for moment in [self.met.map(|met| met.0), self.summed_up_before].into_iter().flatten() {
            hash.add_time(moment);
        }
        if let Some((summary, _)) = &self.summary {
            hash.add_text(summary);
        }
    }

    pub(super) fn template_values(
        &self,
        templates: &Templates,
        material: &PromptMaterial<'_>,
    ) -> Result<Value, TurnError> {
        let ages = material.ages();
        if self.is_empty() {
            return Ok(Value::from(()));
        }
        let ago = self
            .met
            .map(|(moment, _)| ages.describe_age(templates, moment))
            .transpose()?;
        let summary_age = self
            .summed_up_before
            .map(|moment| ages.describe_age(templates, moment))
            .transpose()?;
        let names: Vec<Value> = self.names.iter().map(|name| name.1.as_str().into()).collect();
        let remark = material.remark_for_earlier_talk();
        let summary = self.summary.as_ref().map(|summary| summary.0.clone());
        let summary = summary
            .map(|text| remark.add_to(templates, material, text))
            .transpose()?;
        Ok(context! {
            names, ago => ago.unwrap_or_default(), summary => summary.unwrap_or_default(),
            before => summary_age.unwrap_or_default(),
        })
    }
}
