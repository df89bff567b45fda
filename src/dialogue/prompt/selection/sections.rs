//! The sections of a prompt in its trace: their sizes, what they leave out, and hashes of their content.

use std::sync::Arc;

use super::{
    super::{
        actions::MAX_ACTION_CHARS, content_hash::ContentHash, corrections::MAX_CORRECTION_TOKENS,
        frame_tokens::ITEM_TOKENS, material::PromptMaterial,
    },
    PromptSelection,
};
use crate::settings::PromptSettings;
use colloquy_memory::trace::SectionTrace;
use colloquy_ports::llm::{ChatMessage, ChatRole};

/// The parts of a prompt that no selection drops.
pub(in super::super) struct FixedParts {
    pub system: Arc<str>,
    pub line: Arc<str>,
    /// The messages that continue a cut reply.
    pub continuation: Vec<ChatMessage>,
    pub system_tokens: u32,
    pub line_tokens: u32,
}

/// Returns the hash of what `add` adds.
fn hash_of(add: impl FnOnce(&mut ContentHash)) -> String {
    let mut hash = ContentHash::default();
    add(&mut hash);
    hash.finish()
}

fn section(name: &str, tokens: u32, budget: u32, dropped: Vec<String>, hash: String) -> SectionTrace {
    SectionTrace {
        name: name.to_owned(),
        tokens,
        budget,
        near_budget: tokens > 0 && u64::from(tokens) * 5 >= u64::from(budget) * 4,
        dropped,
        hash,
    }
}

/// Names what was dropped, if something was.
fn some(count: usize, noun: &str) -> Vec<String> {
    (count > 0).then(|| format!("{count} {noun}")).into_iter().collect()
}

/// How much of a part a prompt shows.
struct PartSize {
    tokens: u32,
    budget: u32,
    dropped: usize,
    /// What was dropped.
    noun: &'static str,
}

/// Returns the section of a part, unless the part is neither shown nor dropped. `add` adds the shown content.
fn part_section(
    name: &str,
    is_shown: bool,
    size: &PartSize,
    add: impl FnOnce(&mut ContentHash),
) -> Option<SectionTrace> {
    let dropped = some(size.dropped, size.noun);
    (is_shown || size.dropped > 0).then(|| section(name, size.tokens, size.budget, dropped, hash_of(add)))
}

impl PromptSelection {
    /// Returns sizes, dropped content and hashes per section.
    pub(in super::super) fn trace_sections(
        &self,
        material: &PromptMaterial<'_>,
        budgets: &PromptSettings,
        fixed: &FixedParts,
        count: &dyn Fn(&str) -> u32,
    ) -> Vec<SectionTrace> {
        let mut sections = self.trace_lasting_sections(budgets, fixed);
        sections.extend(self.trace_changing_sections(material, budgets, fixed, count));
        if let Some(overheard) = self.trace_overheard(budgets) {
            sections.insert(6, overheard);
        }
        if let Some(acquaintance) = self.trace_acquaintance(budgets) {
            sections.insert(1, acquaintance);
        }
        for section in self.trace_past_sections(material, budgets).into_iter().flatten() {
            sections.insert(6, section);
        }
        for section in self.trace_sections_before_line(budgets).into_iter().flatten() {
            sections.insert(sections.len() - 1, section);
        }
        sections
    }

    fn trace_overheard(&self, budgets: &PromptSettings) -> Option<SectionTrace> {
        let size = PartSize {
            tokens: self.standing.overheard_tokens(),
            budget: budgets.overheard_tokens,
            dropped: self.standing.overheard_dropped,
            noun: "earlier lines",
        };
        part_section("overheard", !self.standing.overheard.is_empty(), &size, |hash| {
            for (name, text, _) in &self.standing.overheard {
                hash.add_text(name);
                hash.add_text(text);
            }
        })
    }

    fn trace_acquaintance(&self, budgets: &PromptSettings) -> Option<SectionTrace> {
        let who = &self.standing.who;
        let size = PartSize {
            tokens: who.tokens(),
            budget: budgets.acquaintance_tokens,
            dropped: who.dropped_count(),
            noun: "lines about who the player is",
        };
        part_section("acquaintance", !who.is_empty(), &size, |hash| who.add_content(hash))
    }

    /// Returns the sections that stand before the memories, the last one first.
    fn trace_past_sections(
        &self,
        material: &PromptMaterial<'_>,
        budgets: &PromptSettings,
    ) -> [Option<SectionTrace>; 4] {
        let past = &self.standing.past;
        let past_size = PartSize {
            tokens: past.tokens(),
            budget: budgets.scenario_tokens,
            dropped: past.dropped_count(),
            noun: "scenarios",
        };
        let episodes = &self.episodes;
        let episodes_size = PartSize {
            tokens: episodes.tokens(),
            budget: budgets.episode_tokens,
            dropped: episodes.dropped_count(),
            noun: "episodes",
        };
        let insights = &self.insights;
        let insights_size = PartSize {
            tokens: insights.tokens(),
            budget: budgets.insight_tokens,
            dropped: insights.dropped_count(),
            noun: "insights",
        };
        let lore = &self.lore;
        let lore_size = PartSize {
            tokens: lore.tokens(),
            budget: budgets.lore_tokens,
            dropped: lore.dropped_count(),
            noun: "entries of the lore",
        };
        [
            part_section("scenarios", !past.is_empty(), &past_size, |hash| past.add_content(hash)),
            part_section("episodes", !episodes.is_empty(), &episodes_size, |hash| {
                episodes.add_content(material, hash);
            }),
            part_section("insights", !insights.is_empty(), &insights_size, |hash| {
                insights.add_content(material, hash);
            }),
            part_section("lore", !lore.is_empty(), &lore_size, |hash| lore.add_content(hash)),
        ]
    }

    fn trace_sections_before_line(&self, budgets: &PromptSettings) -> [Option<SectionTrace>; 3] {
        let corrections = &self.standing.corrections;
        let corrections_size = PartSize {
            tokens: corrections.tokens(),
            budget: MAX_CORRECTION_TOKENS,
            dropped: corrections.dropped_count(),
            noun: "corrections of the history",
        };
        let scene_notes = &self.standing.scene_notes;
        let scene_notes_size = PartSize {
            tokens: scene_notes.tokens(),
            budget: budgets.scene_note_tokens,
            dropped: scene_notes.dropped_count(),
            noun: "notes of the chat program",
        };
        let actions = &self.standing.actions;
        let actions_size = PartSize {
            tokens: actions.tokens(),
            budget: u32::try_from(MAX_ACTION_CHARS / 3).unwrap_or(u32::MAX),
            dropped: actions.dropped_count(),
            noun: "lines about actions",
        };
        [
            part_section("corrections", corrections.tokens() > 0, &corrections_size, |hash| {
                corrections.add_content(hash);
            }),
            part_section("scene_notes", scene_notes.tokens() > 0, &scene_notes_size, |hash| {
                scene_notes.add_content(hash);
            }),
            part_section("actions", actions.tokens() > 0, &actions_size, |hash| {
                actions.add_content(hash);
            }),
        ]
    }

    /// Returns the sections that stay the same for several turns: persona and rules, pinned facts, summaries, history.
    fn trace_lasting_sections(&self, budgets: &PromptSettings, fixed: &FixedParts) -> Vec<SectionTrace> {
        let facts = &self.standing.facts;
        let history_dropped = self
            .history
            .dropped_turns()
            .map(|(from, to)| format!("turns {from} to {to}"));
        vec![
            section(
                "system",
                fixed.system_tokens,
                budgets.total_tokens,
                vec![],
                hash_of(|hash| hash.add_text(&fixed.system)),
            ),
            section(
                "pinned",
                facts.pinned_tokens(),
                budgets.pinned_tokens,
                some(facts.pinned_dropped, "pinned facts"),
                hash_of(|hash| facts.add_pinned(hash)),
            ),
            section(
                "summaries",
                self.summaries.iter().map(|item| item.tokens).sum(),
                budgets.summary_tokens,
                some(self.summaries_dropped, "older summaries"),
                hash_of(|hash| {
                    for item in &self.summaries {
                        hash.add_number(item.from);
                        hash.add_number(item.to);
                        hash.add_time(item.created_at);
                        hash.add_text(&item.text);
                    }
                }),
            ),
            section(
                "history",
                self.history.tokens(),
                budgets.history_tokens,
                history_dropped.into_iter().collect(),
                hash_of(|hash| add_messages(hash, &self.history.messages())),
            ),
        ]
    }

    /// Returns the sections that change with every turn: the state, the memories and the line.
    fn trace_changing_sections(
        &self,
        material: &PromptMaterial<'_>,
        budgets: &PromptSettings,
        fixed: &FixedParts,
        count: &dyn Fn(&str) -> u32,
    ) -> Vec<SectionTrace> {
        let facts = &self.standing.facts;
        let state_budget = u32::try_from(budgets.state_chars / 3).unwrap_or(u32::MAX);
        let memories: u32 = self.memories.iter().map(|item| count(&item.1) + ITEM_TOKENS).sum();
        vec![
            section(
                "state",
                self.standing.state_tokens(),
                state_budget,
                some(facts.state_dropped, "less important entries"),
                hash_of(|hash| {
                    facts.add_state(hash);
                    for (line, _) in &self.standing.world {
                        hash.add_text(line);
                    }
                }),
            ),
            section(
                "memory",
                memories,
                budgets.memory_tokens,
                some(self.memories_dropped, "memories, to stay within the whole"),
                hash_of(|hash| {
                    for (body, text) in self.memories_in_order(material) {
                        hash.add_time(body.valid_at);
                        hash.add_text(text);
                    }
                }),
            ),
            section(
                "line",
                fixed.line_tokens,
                budgets.total_tokens,
                vec![],
                hash_of(|hash| {
                    hash.add_text(&fixed.line);
                    add_messages(hash, &fixed.continuation);
                }),
            ),
        ]
    }
}

fn add_messages(hash: &mut ContentHash, messages: &[ChatMessage]) {
    for message in messages {
        hash.add_number(match message.role {
            ChatRole::System => 0,
            ChatRole::User => 1,
            ChatRole::Assistant => 2,
        });
        hash.add_text(&message.content);
    }
}
