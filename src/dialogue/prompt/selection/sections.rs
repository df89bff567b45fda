//! The sections of a prompt in its trace: their sizes, what they leave out, and hashes of their content.

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
pub(in super::super) struct FixedParts<'a> {
    pub system: &'a str,
    pub line: &'a str,
    /// The messages that continue a cut reply.
    pub goes_on: &'a [ChatMessage],
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
fn some(count: usize, what: &str) -> Vec<String> {
    (count > 0).then(|| format!("{count} {what}")).into_iter().collect()
}

impl PromptSelection {
    /// Returns sizes, dropped content and hashes per section.
    pub(in super::super) fn trace_sections(
        &self,
        material: &PromptMaterial<'_>,
        budgets: &PromptSettings,
        fixed: &FixedParts<'_>,
        count: &dyn Fn(&str) -> u32,
    ) -> Vec<SectionTrace> {
        let mut sections = self.trace_main_sections(material, budgets, fixed, count);
        if !self.standing.overheard.is_empty() || self.standing.overheard_dropped > 0 {
            let dropped = some(self.standing.overheard_dropped, "earlier lines");
            let hash = hash_of(|hash| {
                for (name, text, _) in &self.standing.overheard {
                    hash.add_text(name);
                    hash.add_text(text);
                }
            });
            let tokens = self.standing.overheard_tokens();
            sections.insert(6, section("overheard", tokens, budgets.overheard_tokens, dropped, hash));
        }
        let who = &self.standing.who;
        if !who.is_empty() || who.dropped_count() > 0 {
            let dropped = some(who.dropped_count(), "lines about who the player is");
            let hash = hash_of(|hash| who.add_content(hash));
            let budget = budgets.acquaintance_tokens;
            sections.insert(1, section("acquaintance", who.tokens(), budget, dropped, hash));
        }
        let past = &self.standing.past;
        if !past.is_empty() || past.dropped_count() > 0 {
            let dropped = some(past.dropped_count(), "scenarios");
            let hash = hash_of(|hash| past.add_content(hash));
            let budget = budgets.scenario_tokens;
            sections.insert(6, section("scenarios", past.tokens(), budget, dropped, hash));
        }
        if !self.episodes.is_empty() || self.episodes.dropped_count() > 0 {
            let dropped = some(self.episodes.dropped_count(), "episodes");
            let hash = hash_of(|hash| self.episodes.add_content(material, hash));
            let tokens = self.episodes.tokens();
            let budget = budgets.episode_tokens;
            sections.insert(6, section("episodes", tokens, budget, dropped, hash));
        }
        if !self.insights.is_empty() || self.insights.dropped_count() > 0 {
            let dropped = some(self.insights.dropped_count(), "insights");
            let hash = hash_of(|hash| self.insights.add_content(material, hash));
            let tokens = self.insights.tokens();
            let budget = budgets.insight_tokens;
            sections.insert(6, section("insights", tokens, budget, dropped, hash));
        }
        if !self.lore.is_empty() || self.lore.dropped_count() > 0 {
            let dropped = some(self.lore.dropped_count(), "entries of the lore");
            let hash = hash_of(|hash| self.lore.add_content(hash));
            sections.insert(
                6,
                section("lore", self.lore.tokens(), budgets.lore_tokens, dropped, hash),
            );
        }
        let corrections = &self.standing.corrections;
        if corrections.tokens() > 0 || corrections.dropped_count() > 0 {
            let dropped = some(corrections.dropped_count(), "corrections of the history");
            let hash = hash_of(|hash| corrections.add_content(hash));
            let before_line = sections.len() - 1;
            let tokens = corrections.tokens();
            sections.insert(
                before_line,
                section("corrections", tokens, MAX_CORRECTION_TOKENS, dropped, hash),
            );
        }
        let scene_notes = &self.standing.scene_notes;
        if scene_notes.tokens() > 0 || scene_notes.dropped_count() > 0 {
            let dropped = some(scene_notes.dropped_count(), "notes of the chat program");
            let hash = hash_of(|hash| scene_notes.add_content(hash));
            let before_line = sections.len() - 1;
            let tokens = scene_notes.tokens();
            let budget = budgets.scene_note_tokens;
            sections.insert(before_line, section("scene_notes", tokens, budget, dropped, hash));
        }
        let actions = &self.standing.actions;
        if actions.tokens() > 0 || actions.dropped_count() > 0 {
            let dropped = some(actions.dropped_count(), "lines about actions");
            let hash = hash_of(|hash| actions.add_content(hash));
            let budget = u32::try_from(MAX_ACTION_CHARS / 3).unwrap_or(u32::MAX);
            let before_line = sections.len() - 1;
            sections.insert(before_line, section("actions", actions.tokens(), budget, dropped, hash));
        }
        sections
    }

    /// Returns the sections of every prompt.
    fn trace_main_sections(
        &self,
        material: &PromptMaterial<'_>,
        budgets: &PromptSettings,
        fixed: &FixedParts<'_>,
        count: &dyn Fn(&str) -> u32,
    ) -> Vec<SectionTrace> {
        let facts = &self.standing.facts;
        let history_dropped = self
            .history
            .dropped_turns()
            .map(|(from, to)| format!("turns {from} to {to}"));
        let state_budget = u32::try_from(budgets.state_chars / 3).unwrap_or(u32::MAX);
        let memories: u32 = self.memories.iter().map(|item| count(&item.1) + ITEM_TOKENS).sum();
        vec![
            section(
                "system",
                fixed.system_tokens,
                budgets.total_tokens,
                vec![],
                hash_of(|hash| hash.add_text(fixed.system)),
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
                        hash.add_time(item.at);
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
                    hash.add_text(fixed.line);
                    add_messages(hash, fixed.goes_on);
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
