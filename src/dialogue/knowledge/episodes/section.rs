//! Episodes in a prompt, within a separate budget. The newest and the most important change rarely, and stand before
//! the raw turns, where they do not change the beginning of the next prompt; those that the line brings stand behind.

use std::{
    cell::{LazyCell, OnceCell},
    collections::{HashMap, HashSet},
    sync::Arc,
};

use minijinja::{Value, context};

use super::{
    super::{
        entries::{Entries, Entry},
        kind::{EarlyReading, KindOfKnowledge, LineSearch, Rereading},
        section::{Section, SectionSize, SectionSizes, TemplateValues, ToldParts, room_under_heading},
    },
    EpisodeHit, ReadEpisodes, find_candidates, read_episodes, reread_episodes,
};
use crate::{
    disclosure::{Disclosable, Disclosures},
    prompt::{ITEM_TOKENS, PromptContext, escape_untrusted},
    settings::PromptSettings,
    turn::{TurnError, TurnInput},
};
use colloquy_core::ids::{DialogueId, TurnId};
use colloquy_memory::{
    episode::{Episode, EpisodeCandidate, RankedEpisode, StageCounts, choose_episodes},
    summary::{Summary, ToldContent},
    trace::{EpisodeFate, EpisodeStage, EpisodeTrace, TurnTrace},
};

/// One in this many tokens is for episodes that only the line brings, and more if the others leave some.
const LINE_SHARE: u32 = 3;
/// The maximum number of traced episodes that are not in the prompt.
const MAX_TRACED_OTHERS: usize = 20;

/// The episodes that the prompt may have, in no particular order.
#[derive(Default)]
pub(crate) struct Episodes(pub Vec<EpisodeHit>);

/// What a prompt shows of an episode beside its text.
struct ShownEpisode {
    place: Disclosable<Option<String>>,
    /// True if only the line brings the episode. All others stay from turn to turn.
    is_of_line: bool,
}

/// The selected episodes.
pub(crate) struct EpisodeSection<'a> {
    hits: &'a [EpisodeHit],
    dialogue: DialogueId,
    /// Most important for the prompt first. Their fates are in `ranked`.
    entries: Entries<ShownEpisode, EpisodeFate>,
    /// All considered episodes; first those to use.
    ranked: Vec<RankedEpisode>,
}

impl Episodes {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// True if a statement was cut from one of the texts.
    pub(crate) fn has_redacted(&self) -> bool {
        self.0.iter().any(|hit| hit.redacted)
    }
}

impl KindOfKnowledge for Episodes {
    type Read<'a> = ReadEpisodes;
    type Section<'a> = EpisodeSection<'a>;

    async fn read(reading: &EarlyReading<'_>) -> Result<ReadEpisodes, TurnError> {
        Ok(read_episodes(reading).await?)
    }

    async fn find(search: &LineSearch<'_>, early_reads: ReadEpisodes) -> Result<Self, TurnError> {
        let embedding = search.compared_embedding();
        let hits = find_candidates(search.services, search.input, early_reads, embedding, search.removals);
        Ok(Self(hits.await?))
    }

    async fn reread(rereading: &Rereading<'_>, changes: &mut Vec<String>) -> Result<Self, TurnError> {
        let traced = &rereading.trace.episodes;
        let hits = reread_episodes(rereading.services, rereading.input, rereading.trace, rereading.removals).await?;
        for traced in traced.iter().filter(|traced| traced.shown_text.is_some()) {
            if !hits.iter().any(|hit| hit.episode.turn == traced.turn_id) {
                let turn = traced.turn;
                let dialogue = traced.dialogue_id;
                changes.push(format!("the episode of turn {turn} of {dialogue} was taken back"));
            }
        }
        Ok(Self(hits))
    }

    /// Selects the best episodes that fit, without those that other parts of the prompt tell.
    fn select<'a>(
        &'a self,
        context: &'a PromptContext<'a>,
        told_parts: &ToldParts<'_>,
        remaining_tokens: u32,
    ) -> Result<EpisodeSection<'a>, TurnError> {
        let candidates: Vec<EpisodeCandidate<'_>> = self.0.iter().map(EpisodeCandidate::from).collect();
        let told_texts = ToldTexts::new(context, told_parts);
        let ranked = choose_episodes(
            &candidates,
            StageCounts::default(),
            context.near_duplicate_cosine,
            |episode| told_texts.find_exclusion(episode),
        );
        let mut section = EpisodeSection {
            hits: &self.0,
            dialogue: context.dialogue(),
            entries: Entries::default(),
            ranked,
        };
        let budget = context.settings.prompt.episode_tokens;
        let room = room_under_heading(budget, remaining_tokens);
        section.fit_into(context, &told_texts, room)?;
        Ok(section)
    }

    fn add_disclosures(&self, _input: &TurnInput, trace: &TurnTrace, disclosures: &mut Disclosures) {
        let used_episodes = trace.episodes.iter().filter(|traced| traced.fate == EpisodeFate::Used);
        let used_turns: HashSet<TurnId> = used_episodes.map(|traced| traced.turn_id).collect();
        let episodes = self.0.iter().map(|hit| &*hit.episode);
        for episode in episodes.filter(|episode| used_turns.contains(&episode.turn)) {
            disclosures.add_text(&episode.text, &episode.locks);
            disclosures.confided.add_text(&episode.text);
        }
    }
}

impl<'a> From<&'a EpisodeHit> for EpisodeCandidate<'a> {
    fn from(hit: &'a EpisodeHit) -> Self {
        Self {
            episode: &hit.episode,
            similarity: hit.similarity,
            vector: &hit.vector,
        }
    }
}

/// What other parts of the prompt tell of the episodes.
struct ToldTexts<'a> {
    context: &'a PromptContext<'a>,
    told_parts: &'a ToldParts<'a>,
    /// The contents of the summaries in the prompt. Most turns compare no episode.
    summaries: OnceCell<Vec<Arc<ToldContent>>>,
}

impl<'a> ToldTexts<'a> {
    const fn new(context: &'a PromptContext<'a>, told_parts: &'a ToldParts<'a>) -> Self {
        Self {
            context,
            told_parts,
            summaries: OnceCell::new(),
        }
    }

    /// Returns why an episode has no place in the prompt. `None`: no other part of the prompt is known to tell it.
    fn find_exclusion(&self, episode: &Episode) -> Option<EpisodeFate> {
        let context = self.context;
        if self.told_parts.shows_turn(context, episode.dialogue, episode.number) {
            return Some(EpisodeFate::InHistory);
        }
        // A summary of this dialogue tells nothing of the turns after it.
        let covers = |summary: &Summary| (summary.from_turn..=summary.to_turn).contains(&episode.number);
        let may_be_told =
            episode.dialogue != context.dialogue() || context.summaries.iter().any(|summary| covers(summary));
        (may_be_told && self.is_told_by_summary(&episode.text)).then_some(EpisodeFate::InSummary)
    }

    fn is_told_by_summary(&self, text: &str) -> bool {
        let templates = self.context.templates;
        let content = LazyCell::new(|| templates.told_content(text));
        let contents_of_summaries = || {
            let texts = self.told_parts.summaries.iter();
            texts.map(|text| templates.told_content(text)).collect()
        };
        let summaries = self.summaries.get_or_init(contents_of_summaries);
        summaries.iter().any(|summary| summary.tells(&content))
    }

    /// True if found facts of the same turn tell an episode.
    fn is_told_by_facts(&self, episode: &Episode) -> bool {
        let turn = (episode.dialogue, episode.number);
        let facts = self.told_parts.found_facts.iter().filter(|(source, _)| *source == turn);
        let facts: Vec<&str> = facts.map(|(_, text)| text.as_str()).collect();
        let facts = facts.join(" ");
        !facts.is_empty() && ToldContent::of_text(&facts).tells(&self.context.templates.told_content(&episode.text))
    }
}

impl EpisodeSection<'_> {
    /// Shows the episodes that fit `room`. Episodes that stay from turn to turn are chosen first, and leave some room to
    /// those that the line brings.
    fn fit_into(
        &mut self,
        context: &PromptContext<'_>,
        told_texts: &ToldTexts<'_>,
        mut room: u32,
    ) -> Result<(), TurnError> {
        let room_of_line = room / LINE_SHARE;
        room -= room_of_line;
        let mut line_episodes: Vec<usize> = Vec::new();
        for rank in 0..self.ranked.len() {
            let RankedEpisode { index, stage, fate } = self.ranked[rank];
            if fate != EpisodeFate::Used {
                continue;
            }
            if stage != EpisodeStage::Similar {
                self.fit_episode(context, rank, &mut room, false)?;
            }
            // What is similar, too, has a second chance in the room of the line.
            let is_left = stage == EpisodeStage::Similar || self.ranked[rank].fate == EpisodeFate::OverBudget;
            if is_left && self.hits[index].similarity.is_some() {
                line_episodes.push(rank);
            }
        }
        room += room_of_line;
        let similarity = |rank: &usize| self.hits[self.ranked[*rank].index].similarity.unwrap_or_default();
        line_episodes.sort_by(|one, other| similarity(other).total_cmp(&similarity(one)));
        for rank in line_episodes {
            if told_texts.is_told_by_facts(&self.hits[self.ranked[rank].index].episode) {
                self.ranked[rank].fate = EpisodeFate::InFacts;
            } else {
                self.fit_episode(context, rank, &mut room, true)?;
            }
        }
        Ok(())
    }

    /// Shows the episode at place `rank`, if the episode fits.
    fn fit_episode(
        &mut self,
        context: &PromptContext<'_>,
        rank: usize,
        room: &mut u32,
        is_of_line: bool,
    ) -> Result<(), TurnError> {
        let index = self.ranked[rank].index;
        let episode = &self.hits[index].episode;
        let remark = context.remark_for_dialogue(episode.dialogue);
        let shown_text = episode.as_ref().map(|episode| escape_untrusted(&episode.text));
        let text = shown_text.try_map(|text| remark.add_to(context, text))?;
        let place = episode
            .as_ref()
            .map(|episode| episode.place.as_deref().map(escape_untrusted));
        let tokens = context.count(&text) + place.as_deref().map_or(0, |place| context.count(place)) + ITEM_TOKENS;
        let entry = Entry {
            index,
            text,
            tokens,
            detail: ShownEpisode { place, is_of_line },
        };
        self.ranked[rank].fate = self.entries.fit(entry, room);
        Ok(())
    }

    /// Returns the entries in the order of time, each with its episode.
    fn entries_in_order(&self) -> Vec<(&Episode, &Entry<ShownEpisode>)> {
        let entries = self.entries.items.iter();
        let mut entries: Vec<_> = entries.map(|entry| (&*self.hits[entry.index].episode, entry)).collect();
        entries.sort_by_key(|(episode, _)| (episode.committed_at, episode.turn));
        entries
    }

    /// Returns the lines in the order of time: those that the player's line brings, or the others.
    fn lines(&self, context: &PromptContext<'_>, are_of_line: bool) -> Result<Disclosable<Vec<Value>>, TurnError> {
        let entries = self.entries_in_order();
        let count_of = |dialogue: DialogueId| entries.iter().filter(|(shown, _)| shown.dialogue == dialogue).count();
        let wanted_entries = entries
            .iter()
            .filter(|(_, entry)| entry.detail.is_of_line == are_of_line);
        let lines = wanted_entries.map(|(episode, entry)| {
            // Of several turns of one dialogue, the numbers tell the order.
            let is_numbered = episode.dialogue == self.dialogue || count_of(episode.dialogue) > 1;
            let turn = is_numbered.then_some(episode.number);
            let ago = context.ages().describe_age(context.templates, episode.committed_at)?;
            let texts = entry.text.as_ref().zip(entry.detail.place.as_ref());
            Ok(texts.map(|(text, place)| context! { ago, turn, place, text }))
        });
        lines.collect()
    }
}

impl Section for EpisodeSection<'_> {
    fn tokens(&self) -> u32 {
        self.entries.tokens()
    }
    fn drop_least(&mut self) -> bool {
        let Some(entry) = self.entries.items.pop() else {
            return false;
        };
        for ranked in self.ranked.iter_mut().filter(|ranked| ranked.index == entry.index) {
            ranked.fate = EpisodeFate::OverBudget;
        }
        true
    }
    fn is_dated(&self) -> bool {
        !self.entries.is_empty()
    }
    fn add_dialogues(&self, dialogues: &mut Vec<DialogueId>) {
        let shown_entries = self.entries.items.iter();
        dialogues.extend(shown_entries.map(|entry| self.hits[entry.index].episode.dialogue));
    }

    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        values.add_lasting("episodes", self.lines(values.context, false)?);
        values.add_changing("episodes", self.lines(values.context, true)?);
        Ok(())
    }

    fn add_sizes(&self, budgets: &PromptSettings, sizes: &mut SectionSizes) {
        let is_over_budget = |ranked: &&RankedEpisode| ranked.fate == EpisodeFate::OverBudget;
        let dropped = self.ranked.iter().filter(is_over_budget).count();
        let size = SectionSize::new("episodes", self.tokens(), budgets.episode_tokens, dropped, "episodes");
        sizes.add_if_any(size, |hash| {
            for (episode, entry) in self.entries_in_order() {
                hash.add_time(episode.committed_at);
                hash.add_text(entry.detail.place.as_deref().unwrap_or_default());
                hash.add_text(&entry.text);
            }
        });
    }

    fn add_trace(&self, trace: &mut TurnTrace) {
        let shown_entries = self.entries.items.iter();
        let shown_texts: HashMap<usize, &str> = shown_entries.map(|entry| (entry.index, entry.text.as_str())).collect();
        let mut remaining_others = MAX_TRACED_OTHERS;
        let traced = self.ranked.iter().filter(|ranked| {
            let is_used = ranked.fate == EpisodeFate::Used;
            let is_traced = is_used || remaining_others > 0;
            remaining_others = remaining_others.saturating_sub(usize::from(!is_used));
            is_traced
        });
        let traced = traced.map(|ranked| {
            let hit = &self.hits[ranked.index];
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
        trace.episodes = traced.collect();
    }
}
