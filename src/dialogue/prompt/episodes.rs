//! Episodes in a prompt, within a separate budget. The newest and the most important change rarely, and stand before
//! the raw turns, where they do not change the beginning of the next prompt; those that the line brings stand behind.

use std::collections::HashMap;

use minijinja::{Value, context};

use super::{
    content_hash::ContentHash,
    frame_tokens::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS},
    history::HistoryWindow,
    material::PromptMaterial,
    templates::Templates,
    untrusted::escape_untrusted,
};
use crate::{
    settings::{DialogueSettings, PromptSettings},
    turn::TurnError,
};
use colloquy_core::ids::DialogueId;
use colloquy_memory::{
    episode::{Episode, EpisodeCandidate, RankedEpisode, choose_episodes},
    summary::Summary,
    trace::{EpisodeFate, EpisodeStage, EpisodeTrace},
};

/// One in this many tokens is for episodes that only the line brings, and more if the others leave some.
const LINE_SHARE: u32 = 3;
/// The maximum number of traced episodes that are not in the prompt.
const MAX_TRACED_OTHERS: usize = 20;

struct ShownEpisode {
    /// The position among the hits.
    index: usize,
    text: String,
    place: Option<String>,
    tokens: u32,
    /// True if only the line brings the episode. All others stay from turn to turn.
    is_of_line: bool,
}

/// Whether other parts of the prompt tell what an episode says.
pub(super) struct ToldElsewhere<'a> {
    /// True if a summary tells a text.
    pub by_summary: &'a dyn Fn(&str) -> bool,
    /// True if found facts of the same turn tell an episode.
    pub by_facts: &'a dyn Fn(&Episode) -> bool,
}

/// The selected episodes.
#[derive(Default)]
pub(super) struct ShownEpisodes {
    /// Most important for the prompt first.
    entries: Vec<ShownEpisode>,
    /// All considered episodes; first those to use.
    ranked: Vec<RankedEpisode>,
}

/// Returns the part of `remaining_tokens` that summaries leave to the episodes.
pub(super) fn reserved_tokens(material: &PromptMaterial<'_>, budgets: &PromptSettings, remaining_tokens: u32) -> u32 {
    if material.episodes.is_empty() {
        return 0;
    }
    budgets
        .episode_tokens
        .saturating_add(HEADING_TOKENS + FRAME_TOKENS)
        .min(remaining_tokens)
}

fn candidates_of<'a>(material: &PromptMaterial<'a>) -> Vec<EpisodeCandidate<'a>> {
    let hits = material.episodes.iter();
    hits.map(|hit| EpisodeCandidate {
        episode: &hit.episode,
        similarity: hit.similarity,
        vector: &hit.vector,
    })
    .collect()
}

/// Returns why an episode has no place in the prompt. `None`: no other part of the prompt is known to tell it.
fn find_exclusion(
    material: &PromptMaterial<'_>,
    history: &HistoryWindow,
    elsewhere: &ToldElsewhere<'_>,
    episode: &Episode,
) -> Option<EpisodeFate> {
    if episode.dialogue == material.dialogue && history.has_turn(episode.number) {
        return Some(EpisodeFate::InHistory);
    }
    // A summary of this dialogue tells nothing of the turns after it.
    let covers = |summary: &Summary| (summary.from_turn..=summary.to_turn).contains(&episode.number);
    let may_be_told = episode.dialogue != material.dialogue || material.summaries.iter().any(covers);
    (may_be_told && (elsewhere.by_summary)(&episode.text)).then_some(EpisodeFate::InSummary)
}

fn render_entry(
    templates: &Templates,
    material: &PromptMaterial<'_>,
    episode: &Episode,
    count: &dyn Fn(&str) -> u32,
) -> Result<(String, Option<String>, u32), TurnError> {
    let remark = material.remark_for_dialogue(episode.dialogue);
    let text = remark.add_to(templates, material, escape_untrusted(&episode.text))?;
    let place = episode.place.as_deref().map(escape_untrusted);
    let tokens = count(&text) + place.as_deref().map_or(0, count) + ITEM_TOKENS;
    Ok((text, place, tokens))
}

impl ShownEpisodes {
    /// Selects the best episodes that fit, without those that other parts of the prompt tell.
    pub(super) fn select_fitting(
        templates: &Templates,
        material: &PromptMaterial<'_>,
        settings: &DialogueSettings,
        history: &HistoryWindow,
        elsewhere: &ToldElsewhere<'_>,
        remaining_tokens: u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<Self, TurnError> {
        let candidates = candidates_of(material);
        let exclusion = |episode: &Episode| find_exclusion(material, history, elsewhere, episode);
        let duplicate_cosine = material.near_duplicate_cosine;
        let mut ranked = choose_episodes(
            &candidates,
            settings.episodes.stage_counts(),
            duplicate_cosine,
            exclusion,
        );
        let mut room = settings
            .prompt
            .episode_tokens
            .min(remaining_tokens.saturating_sub(HEADING_TOKENS + FRAME_TOKENS));
        // What stays from turn to turn is chosen first, and leaves some room to what the line brings.
        let room_of_line = room / LINE_SHARE;
        room -= room_of_line;
        let mut entries = Vec::new();
        let mut add_fitting = |ranked: &mut RankedEpisode, room: &mut u32, is_of_line: bool| -> Result<(), TurnError> {
            let (text, place, tokens) = render_entry(templates, material, candidates[ranked.index].episode, count)?;
            ranked.fate = EpisodeFate::OverBudget;
            if tokens <= *room {
                *room -= tokens;
                ranked.fate = EpisodeFate::Used;
                entries.push(ShownEpisode {
                    index: ranked.index,
                    text,
                    place,
                    tokens,
                    is_of_line,
                });
            }
            Ok(())
        };
        let mut line_episodes: Vec<&mut RankedEpisode> = Vec::new();
        for ranked in ranked.iter_mut().filter(|ranked| ranked.fate == EpisodeFate::Used) {
            if ranked.stage != EpisodeStage::Similar {
                add_fitting(ranked, &mut room, false)?;
            }
            // What is similar, too, has a second chance in the room of the line.
            let is_left = ranked.stage == EpisodeStage::Similar || ranked.fate == EpisodeFate::OverBudget;
            if is_left && candidates[ranked.index].similarity.is_some() {
                line_episodes.push(ranked);
            }
        }
        room += room_of_line;
        let similarity = |ranked: &RankedEpisode| candidates[ranked.index].similarity.unwrap_or_default();
        line_episodes.sort_by(|one, other| similarity(other).total_cmp(&similarity(one)));
        for ranked in line_episodes {
            if (elsewhere.by_facts)(candidates[ranked.index].episode) {
                ranked.fate = EpisodeFate::InFacts;
            } else {
                add_fitting(ranked, &mut room, true)?;
            }
        }
        Ok(Self { entries, ranked })
    }

    pub(super) fn tokens(&self) -> u32 {
        self.entries.iter().map(|entry| entry.tokens).sum()
    }
    pub(super) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    pub(super) fn dropped_count(&self) -> usize {
        let over = self
            .ranked
            .iter()
            .filter(|ranked| ranked.fate == EpisodeFate::OverBudget);
        over.count()
    }
    /// Drops the last entry. Returns `false` if there is none.
    pub(super) fn drop_last(&mut self) -> bool {
        let last = self.entries.pop();
        if let Some(entry) = &last {
            for ranked in self.ranked.iter_mut().filter(|ranked| ranked.index == entry.index) {
                ranked.fate = EpisodeFate::OverBudget;
            }
        }
        last.is_some()
    }

    /// Returns the entries in the order of time, each with its episode.
    fn entries_in_order<'a>(&'a self, material: &PromptMaterial<'a>) -> Vec<(&'a Episode, &'a ShownEpisode)> {
        let entries = self.entries.iter();
        let mut entries: Vec<_> = entries
            .map(|entry| (&material.episodes[entry.index].episode, entry))
            .collect();
        entries.sort_by_key(|(episode, _)| (episode.committed_at, episode.turn));
        entries
    }

    /// Returns the number of entries of a dialogue.
    pub(super) fn count_of(&self, material: &PromptMaterial<'_>, dialogue: DialogueId) -> usize {
        let of_dialogue = |entry: &&ShownEpisode| material.episodes[entry.index].episode.dialogue == dialogue;
        self.entries.iter().filter(of_dialogue).count()
    }

    pub(super) fn add_content(&self, material: &PromptMaterial<'_>, hash: &mut ContentHash) {
        for (episode, entry) in self.entries_in_order(material) {
            hash.add_time(episode.committed_at);
            hash.add_text(entry.place.as_deref().unwrap_or_default());
            hash.add_text(&entry.text);
        }
    }

    /// Returns the lines in the order of time: those that the player's line brings, or the others.
    pub(super) fn template_values(
        &self,
        templates: &Templates,
        material: &PromptMaterial<'_>,
        are_of_line: bool,
    ) -> Result<Vec<Value>, TurnError> {
        let ages = material.ages();
        let entries = self.entries_in_order(material).into_iter();
        let entries = entries.filter(|(_, entry)| entry.is_of_line == are_of_line);
        let values = entries.map(|(episode, entry)| {
            // Of several turns of one dialogue, the numbers tell the order.
            let is_numbered = episode.dialogue == material.dialogue || self.count_of(material, episode.dialogue) > 1;
            let turn = is_numbered.then_some(episode.number);
            let ago = ages.describe_age(templates, episode.committed_at)?;
            Ok(context! { ago, turn, place => entry.place.as_deref(), text => entry.text.as_str() })
        });
        values.collect()
    }

    /// Returns the trace of the considered episodes.
    pub(super) fn trace_episodes(&self, material: &PromptMaterial<'_>) -> Vec<EpisodeTrace> {
        let shown_texts: HashMap<usize, &str> = self
            .entries
            .iter()
            .map(|entry| (entry.index, entry.text.as_str()))
            .collect();
        let mut remaining_others = MAX_TRACED_OTHERS;
        let traced = self.ranked.iter().filter(|ranked| {
            let is_used = ranked.fate == EpisodeFate::Used;
            let is_traced = is_used || remaining_others > 0;
            remaining_others = remaining_others.saturating_sub(usize::from(!is_used));
            is_traced
        });
        let traced = traced.map(|ranked| {
            let hit = &material.episodes[ranked.index];
            EpisodeTrace {
                turn_id: hit.episode.turn,
                dialogue_id: hit.episode.dialogue,
                turn: hit.episode.number,
                stage: ranked.stage,
                importance: hit.episode.importance,
                similarity: hit.similarity,
                fate: ranked.fate,
                shown_text: shown_texts.get(&ranked.index).map(|text| (*text).to_owned()),
            }
        });
        traced.collect()
    }
}
