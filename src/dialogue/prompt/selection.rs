//! The content of a prompt besides persona and line, and the order in which content is dropped.

mod notes;
pub(super) mod sections;

use std::cell::LazyCell;

use chrono::{DateTime, Utc};
use minijinja::{Value, context};

use super::{
    actions::ShownActions,
    corrections::ShownCorrections,
    episodes::{self, ShownEpisodes, ToldElsewhere},
    frame_tokens::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS},
    history::HistoryWindow,
    insights::ShownInsights,
    lore::ShownLore,
    material::PromptMaterial,
    player_identity::PlayerIdentity,
    scenarios::ShownScenarios,
    scene_notes::ShownSceneNotes,
    standing_facts::StandingFacts,
    templates::{Template, Templates},
    untrusted::escape_untrusted,
};
use crate::{
    settings::{DialogueSettings, PromptSettings},
    turn::TurnError,
};
use colloquy_core::ids::{DialogueId, FactId, ScenarioId, SummaryId};
use colloquy_memory::{
    authored::Language,
    episode::Episode,
    fact::FactKind,
    party,
    summary::{Summary, ToldContent},
    trace::{CandidateFate, EpisodeTrace, InsightTrace, LoreTrace, ScenarioTrace},
};
use colloquy_ports::{
    ledger::facts::RecallBody,
    llm::{ChatMessage, ChatRole},
};

/// The maximum length of all world-state lines, in characters.
const MAX_WORLD_CHARS: usize = 600;
/// The maximum number of headings for facts and world state.
const MAX_HEADINGS: u32 = 10;

struct SummaryItem {
    id: SummaryId,
    from: u32,
    to: u32,
    created_at: DateTime<Utc>,
    text: String,
    /// The text with its dates in words.
    shown_text: String,
    tokens: u32,
}

/// The facts in every prompt, and the current state of the world.
pub(super) struct StandingContext {
    pub(super) facts: StandingFacts,
    who: PlayerIdentity,
    world: Vec<(String, u32)>,
    /// The number of lines about the world that did not fit.
    world_dropped: usize,
    /// Speaker and text of overheard lines, oldest first, with their tokens.
    overheard: Vec<(String, String, u32)>,
    overheard_dropped: usize,
    past: ShownScenarios,
    actions: ShownActions,
    corrections: ShownCorrections,
    scene_notes: ShownSceneNotes,
}

impl StandingContext {
    /// Selects the content that fits each budget, most important first.
    pub(super) fn select_fitting(
        templates: &Templates,
        material: &PromptMaterial<'_>,
        budgets: &PromptSettings,
        past: ShownScenarios,
        remaining_tokens: u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<Self, TurnError> {
        let mut remaining_tokens = remaining_tokens.saturating_sub(MAX_HEADINGS * (HEADING_TOKENS + FRAME_TOKENS));
        let who = PlayerIdentity::select_fitting(
            templates,
            material,
            budgets.acquaintance_tokens,
            remaining_tokens,
            count,
        )?;
        remaining_tokens = remaining_tokens.saturating_sub(who.tokens());
        let mut facts = StandingFacts::select_fitting(templates, material, budgets, &mut remaining_tokens, count)?;
        facts.state_ids.extend(who.name_facts());
        let mut standing = Self {
            facts,
            who,
            world: Vec::new(),
            world_dropped: 0,
            overheard: Vec::new(),
            overheard_dropped: 0,
            past,
            actions: ShownActions::default(),
            corrections: ShownCorrections::select_fitting(material, remaining_tokens, count),
            scene_notes: ShownSceneNotes::default(),
        };
        remaining_tokens = remaining_tokens.saturating_sub(standing.corrections.tokens());
        standing.scene_notes =
            ShownSceneNotes::select_fitting(material.scene_notes, budgets.scene_note_tokens, remaining_tokens, count);
        remaining_tokens = remaining_tokens.saturating_sub(standing.scene_notes.tokens());
        standing.select_world_lines(material, &mut remaining_tokens, count);
        standing.actions = ShownActions::select_fitting(templates, material, &mut remaining_tokens, count)?;
        let slot = remaining_tokens.saturating_sub(HEADING_TOKENS + FRAME_TOKENS);
        standing.select_overheard(material, slot.min(budgets.overheard_tokens), count);
        Ok(standing)
    }

    fn select_world_lines(
        &mut self,
        material: &PromptMaterial<'_>,
        remaining_tokens: &mut u32,
        count: &dyn Fn(&str) -> u32,
    ) {
        let mut chars = MAX_WORLD_CHARS;
        for line in &material.world_lines {
            let length = line.chars().count();
            let tokens = count(line) + ITEM_TOKENS;
            if length > chars || tokens > *remaining_tokens {
                self.world_dropped += 1;
                continue;
            }
            chars -= length;
            *remaining_tokens -= tokens;
            self.world.push((line.clone(), tokens));
        }
    }

    /// Lines are selected from the newest without gaps: questions are about the last lines.
    fn select_overheard(&mut self, material: &PromptMaterial<'_>, mut slot: u32, count: &dyn Fn(&str) -> u32) {
        for line in material.overheard.iter().rev() {
            let name = escape_untrusted(&line.name);
            let text = escape_untrusted(&line.text);
            let tokens = count(&name) + count(&text) + ITEM_TOKENS;
            if tokens > slot {
                break;
            }
            slot -= tokens;
            self.overheard.insert(0, (name, text, tokens));
        }
        self.overheard_dropped = material.overheard.len() - self.overheard.len();
    }

    /// Returns the tokens of the parts that may change every turn.
    pub(super) fn changing_tokens(&self) -> u32 {
        self.state_tokens()
            + self.actions.tokens()
            + self.corrections.tokens()
            + self.scene_notes.tokens()
            + self.overheard_tokens()
            + self.past.tokens()
    }
    fn state_tokens(&self) -> u32 {
        self.facts.state_tokens() + self.world.iter().map(|item| item.1).sum::<u32>()
    }
    fn overheard_tokens(&self) -> u32 {
        self.overheard.iter().map(|item| item.2).sum()
    }
    /// Drops the least important part of the player's identity.
    fn drop_least_of_identity(&mut self) -> bool {
        let last = self.who.name_facts().last();
        let shrunk = self.who.drop_least_important();
        if let Some(name) = last.filter(|last| self.who.name_facts().all(|name| name != *last)) {
            self.facts.state_ids.remove(&name);
        }
        shrunk
    }
    /// Returns the tokens of all but the NPC's past, with headings and frames.
    pub(super) fn tokens(&self) -> u32 {
        let headed = self.facts.heading_count()
            + u32::from(!self.who.is_empty())
            + u32::from(!self.world.is_empty())
            + u32::from(!self.overheard.is_empty());
        self.facts.pinned_tokens()
            + self.who.tokens()
            + self.state_tokens()
            + self.actions.tokens()
            + self.corrections.tokens()
            + self.scene_notes.tokens()
            + self.overheard_tokens()
            + headed * (HEADING_TOKENS + FRAME_TOKENS)
    }
}

/// The parts of a prompt that can be dropped.
pub(super) struct PromptSelection {
    standing: StandingContext,
    history: HistoryWindow,
    /// Position among the hits, and text.
    memories: Vec<(usize, String)>,
    /// Summaries in order of time.
    summaries: Vec<SummaryItem>,
    summaries_dropped: usize,
    memories_dropped: usize,
    episodes: ShownEpisodes,
    insights: ShownInsights,
    lore: ShownLore,
}

/// Returns the tokens of a list with its heading; 0 for an empty list.
const fn with_heading(tokens: u32) -> u32 {
    if tokens > 0 {
        tokens + HEADING_TOKENS + FRAME_TOKENS
    } else {
        0
    }
}

impl PromptSelection {
    pub(super) fn new(standing: StandingContext, history: HistoryWindow, memories: Vec<(usize, String)>) -> Self {
        Self {
            standing,
            history,
            memories,
            memories_dropped: 0,
            summaries: Vec::new(),
            summaries_dropped: 0,
            episodes: ShownEpisodes::default(),
            insights: ShownInsights::default(),
            lore: ShownLore::default(),
        }
    }

    /// True if the history shows all turns of a summary. The history has no gaps.
    fn shows_turns_of(&self, summary: &Summary) -> bool {
        self.history.has_turn(summary.from_turn) && self.history.has_turn(summary.to_turn)
    }

    /// Selects the summaries within `remaining_tokens` tokens, less the tokens of the episodes. A summary of turns that
    /// the history shows would tell them twice.
    pub(super) fn add_summaries(
        &mut self,
        templates: &Templates,
        material: &PromptMaterial<'_>,
        budgets: &PromptSettings,
        remaining_tokens: u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<(), TurnError> {
        let remaining_tokens =
            remaining_tokens.saturating_sub(episodes::reserved_tokens(material, budgets, remaining_tokens));
        let mut room = budgets
            .summary_tokens
            .min(remaining_tokens.saturating_sub(HEADING_TOKENS + FRAME_TOKENS));
        let summaries = material.summaries.iter();
        let needed: Vec<&Summary> = summaries.filter(|summary| !self.shows_turns_of(summary)).collect();
        for summary in needed.iter().rev() {
            let text = escape_untrusted(&summary.text);
            let shown_text = material.ages().word_dates(templates, text.clone())?;
            let tokens = count(&shown_text) + ITEM_TOKENS + 4;
            // Without gaps: an older summary must not replace a newer summary that did not fit.
            if tokens > room {
                break;
            }
            room -= tokens;
            self.summaries.push(SummaryItem {
                id: summary.id,
                from: summary.from_turn,
                to: summary.to_turn,
                created_at: summary.created_at,
                text,
                shown_text,
                tokens,
            });
        }
        self.summaries.reverse();
        self.summaries_dropped = needed.len() - self.summaries.len();
        Ok(())
    }

    /// Selects the episodes within the rest of the `remaining_tokens` tokens after the summaries. Summaries of the
    /// prompt may tell some already.
    pub(super) fn add_episodes(
        &mut self,
        templates: &Templates,
        material: &PromptMaterial<'_>,
        settings: &DialogueSettings,
        remaining_tokens: u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<(), TurnError> {
        let remaining_tokens = remaining_tokens.saturating_sub(self.summary_tokens());
        let meeting_summary = self.standing.who.summary();
        let texts = self
            .summaries
            .iter()
            .map(|item| item.text.as_str())
            .chain(meeting_summary);
        let summaries = LazyCell::new(|| texts.map(|text| templates.told_content(text)).collect::<Vec<_>>());
        let is_told_by_summary = |text: &str| {
            let content = LazyCell::new(|| templates.told_content(text));
            summaries.iter().any(|summary| summary.tells(&content))
        };
        let is_told_by_facts = |episode: &Episode| {
            let facts = self.join_memories_of_turn(material, (episode.dialogue, episode.number));
            !facts.is_empty() && ToldContent::of_text(&facts).tells(&templates.told_content(&episode.text))
        };
        let elsewhere = ToldElsewhere {
            by_summary: &is_told_by_summary,
            by_facts: &is_told_by_facts,
        };
        self.episodes = ShownEpisodes::select_fitting(
            templates,
            material,
            settings,
            &self.history,
            &elsewhere,
            remaining_tokens,
            count,
        )?;
        Ok(())
    }

    /// Returns the found facts of the prompt that a turn taught, as one text.
    fn join_memories_of_turn(&self, material: &PromptMaterial<'_>, turn: (DialogueId, u32)) -> String {
        let of_turn = |(index, _): &&(usize, String)| material.hits[*index].body.source == Some(turn);
        let facts: Vec<&str> = self
            .memories
            .iter()
            .filter(of_turn)
            .map(|(_, text)| text.as_str())
            .collect();
        facts.join(" ")
    }

    /// Returns the tokens of the summaries with their heading.
    fn summary_tokens(&self) -> u32 {
        with_heading(self.summaries.iter().map(|item| item.tokens).sum())
    }

    /// Returns the tokens of the summaries and the episodes, with their headings.
    fn tokens_of_past(&self) -> u32 {
        self.summary_tokens() + with_heading(self.episodes.tokens())
    }

    /// Selects the insights within the rest of the `remaining_tokens` tokens after the summaries and the episodes.
    pub(super) fn add_insights(
        &mut self,
        templates: &Templates,
        material: &PromptMaterial<'_>,
        budgets: &PromptSettings,
        remaining_tokens: u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<(), TurnError> {
        let remaining_tokens = remaining_tokens.saturating_sub(self.tokens_of_past());
        self.insights =
            ShownInsights::select_fitting(templates, material, budgets, &self.history, remaining_tokens, count)?;
        Ok(())
    }

    /// Selects the lore within the rest of the `remaining_tokens` tokens after the summaries, the episodes and the
    /// insights.
    pub(super) fn add_lore(
        &mut self,
        templates: &Templates,
        material: &PromptMaterial<'_>,
        budgets: &PromptSettings,
        remaining_tokens: u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<(), TurnError> {
        let remaining_tokens =
            remaining_tokens.saturating_sub(self.tokens_of_past() + with_heading(self.insights.tokens()));
        self.lore = ShownLore::select_fitting(templates, material, budgets, remaining_tokens, count)?;
        Ok(())
    }

    /// Drops the least important remaining part. Lore goes first, then insights, summaries, episodes, memories and raw
    /// turns; state and pinned facts go last. Returns `false` if only persona and line are left.
    pub(super) fn drop_least_important(&mut self, fates: &mut [CandidateFate]) -> bool {
        if self.lore.drop_last() || self.insights.drop_last() {
            // The condition has already dropped an entry.
        } else if !self.summaries.is_empty() {
            self.summaries.remove(0);
            self.summaries_dropped += 1;
        } else if self.episodes.drop_last() {
            // The same here.
        } else if let Some((index, _)) = self.memories.pop() {
            fates[index] = CandidateFate::OverBudget;
            self.memories_dropped += 1;
        } else if self.history.drop_block() || self.standing.actions.drop_last() || self.standing.world.pop().is_some()
        {
            // The condition has already dropped a part.
        } else if !self.standing.overheard.is_empty() {
            self.standing.overheard.remove(0);
            self.standing.overheard_dropped += 1;
        } else if self.standing.past.drop_last() {
            // The same here.
        } else {
            return self.standing.corrections.drop_last()
                || self.standing.drop_least_of_identity()
                || self.standing.facts.drop_least_important();
        }
        true
    }

    /// Returns the messages of all four sections.
    pub(super) fn build_messages(
        &self,
        templates: &Templates,
        language: Language,
        material: &PromptMaterial<'_>,
        system: &str,
        line: &str,
    ) -> Result<Vec<ChatMessage>, TurnError> {
        let mut first = ChatMessage::new(ChatRole::System, system);
        first.cache_breakpoint = true;
        let mut messages: Vec<ChatMessage> = material
            .own_prompt
            .map_or_else(Vec::new, |own_prompt| own_prompt.head.clone());
        messages.push(first);
        let pinned = self.standing.facts.pinned_values();
        let ages = material.ages();
        let who = self.standing.who.template_values(templates, material)?;
        let summaries = self.summaries.iter().map(|item| {
            let ago = ages.describe_age(templates, item.created_at)?;
            Ok(context! { from => item.from, to => item.to, ago, text => item.shown_text.as_str() })
        });
        let summaries = summaries.collect::<Result<Vec<Value>, TurnError>>()?;
        let episodes = self.episodes.template_values(templates, material, false)?;
        let values = context! { who, pinned, episodes, summaries };
        let memory = templates.render(language, Template::ReplyMemory, values)?;
        let memory = memory.trim_end();
        if !memory.is_empty() {
            messages.push(ChatMessage::new(ChatRole::System, memory));
        }
        messages.extend(self.history.messages());
        let context_text = self.render_context(templates, language, material)?;
        if let Some(own_prompt) = material.own_prompt.filter(|own_prompt| own_prompt.has_line()) {
            let context = if context_text.is_empty() {
                context_text
            } else {
                let mark = templates.render(language, Template::ReplySaidNow, context! {})?;
                format!("{context_text}\n\n{}", mark.trim())
            };
            messages.extend(own_prompt.last_after(&context));
            return Ok(messages);
        }
        messages.extend(
            material
                .own_prompt
                .iter()
                .flat_map(|own_prompt| own_prompt.last.iter().cloned()),
        );
        let last = if context_text.is_empty() {
            line.to_owned()
        } else {
            format!("{context_text}\n\n{line}")
        };
        messages.push(ChatMessage::new(ChatRole::User, last));
        Ok(messages)
    }

    /// Returns the memories in the order of time, so that the newer of two conflicting facts is recognisable. Facts of
    /// the same turn keep the order of their ids.
    fn memories_in_order<'a>(&'a self, material: &PromptMaterial<'a>) -> Vec<(&'a RecallBody, &'a str)> {
        let memories = self.memories.iter();
        let mut memories: Vec<_> = memories
            .map(|(index, text)| (&*material.hits[*index].body, text.as_str()))
            .collect();
        memories.sort_by_key(|(body, _)| (body.valid_at, body.id));
        memories
    }

    /// Returns the turn that taught a memory of an earlier dialogue, if the prompt has more of that dialogue: the
    /// numbers tell the order within a day.
    fn turn_number(&self, material: &PromptMaterial<'_>, body: &RecallBody) -> Option<u32> {
        let (dialogue, turn) = body.source?;
        let memories = self.memories.iter().map(|(index, _)| material.hits[*index].body.source);
        let memories = memories.flatten().filter(|(source, _)| *source == dialogue);
        let is_earlier = dialogue != material.dialogue;
        (is_earlier && memories.count() + self.episodes.count_of(material, dialogue) > 1).then_some(turn)
    }

    fn render_context(
        &self,
        templates: &Templates,
        language: Language,
        material: &PromptMaterial<'_>,
    ) -> Result<String, TurnError> {
        let ages = material.ages();
        // What authors wrote holds regardless of its date.
        let (authored, learned): (Vec<_>, Vec<_>) = self
            .memories_in_order(material)
            .into_iter()
            .partition(|(hit, _)| hit.speaker == party::AUTHOR && hit.kind != FactKind::Event);
        let authored_texts: Vec<Value> = authored.iter().map(|(_, text)| (*text).into()).collect();
        let facts = learned.into_iter().map(|(hit, text)| {
            let ago = ages.describe_age(templates, hit.valid_at)?;
            Ok(context! { text, ago, turn => self.turn_number(material, hit) })
        });
        let facts = facts.collect::<Result<Vec<Value>, TurnError>>()?;
        let is_dated = material.clock.is_some()
            || !facts.is_empty()
            || !self.episodes.is_empty()
            || !self.insights.is_empty()
            || !self.summaries.is_empty()
            || self.standing.facts.is_dated()
            || self.standing.who.is_dated();
        let date_of_today = if is_dated {
            ages.today(templates)?
        } else {
            String::new()
        };
        let world_state: Vec<Value> = self.standing.world.iter().map(|line| line.0.as_str().into()).collect();
        let overheard: Vec<_> = self
            .standing
            .overheard
            .iter()
            .map(|(name, text, _)| context! { name => name.as_str(), text => text.as_str() })
            .collect();
        let witnesses = material.witnesses.iter().map(|member| escape_untrusted(&member.name));
        let witnesses: Vec<String> = witnesses.collect();
        let past = self.standing.past.template_values(material);
        let lore = self.lore.shown_texts(false);
        let tell_texts: Vec<Value> = self
            .standing
            .past
            .shown_tells()
            .chain(self.lore.shown_texts(true))
            .collect();
        let episodes = self.episodes.template_values(templates, material, true)?;
        let insights = self.insights.template_values(templates, material)?;
        let corrections = self.standing.corrections.template_values();
        let values = context! {
            scene_notes => self.standing.scene_notes.texts().to_vec(),
            corrections, today => date_of_today, witnesses, facts, known => authored_texts, world_state, overheard, past, lore,
            tells => tell_texts, episodes, insights,
            ..context! { ..self.standing.actions.template_values(), ..self.standing.facts.state_values(templates, ages)? }
        };
        let text = templates.render(language, Template::ReplyContext, values)?;
        Ok(text.trim_end().to_owned())
    }

    /// Returns the positions of the shown offers of actions, and of the shown outcomes.
    pub(super) fn shown_actions(&self) -> (Vec<usize>, Vec<usize>) {
        self.standing.actions.shown()
    }

    /// Returns the number of lines about actions that did not fit.
    pub(super) const fn dropped_actions(&self) -> usize {
        self.standing.actions.dropped_count()
    }

    /// Returns the summaries in the prompt, oldest first.
    pub(super) fn shown_summaries(&self) -> Vec<SummaryId> {
        self.summaries.iter().map(|item| item.id).collect()
    }

    /// Returns the trace of the NPC's past.
    pub(super) fn trace_past(&self, material: &PromptMaterial<'_>) -> Vec<ScenarioTrace> {
        self.standing.past.trace_scenarios(material)
    }

    /// Returns the scenarios whose titles the prompt has, because they have just opened.
    pub(super) fn opened_scenarios(&self, material: &PromptMaterial<'_>) -> Vec<ScenarioId> {
        self.standing.past.opened_scenarios(material)
    }

    /// Returns the trace of the lore.
    pub(super) fn trace_lore(&self, material: &PromptMaterial<'_>) -> Vec<LoreTrace> {
        self.lore.trace_entries(material)
    }

    /// Returns the trace of the episodes.
    pub(super) fn trace_episodes(&self, material: &PromptMaterial<'_>) -> Vec<EpisodeTrace> {
        self.episodes.trace_episodes(material)
    }

    /// Returns the trace of the insights.
    pub(super) fn trace_insights(&self, material: &PromptMaterial<'_>) -> Vec<InsightTrace> {
        self.insights.trace_insights(material)
    }

    /// Returns how a standing fact is included; `None` if the fact is not included.
    pub(super) fn standing_fate(&self, fact: FactId) -> Option<CandidateFate> {
        self.standing.facts.fate_of(fact)
    }
}
