//! Insights in a prompt, within a separate budget. The closest to the turn are chosen, and stand with the newest last.

use std::{cmp::Reverse, collections::HashSet};

use minijinja::{Value, context};

use super::{
    content_hash::ContentHash,
    frame_tokens::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS},
    history::HistoryWindow,
    material::PromptMaterial,
    templates::Templates,
    untrusted::escape_untrusted,
};
use crate::{settings::PromptSettings, turn::TurnError};
use colloquy_memory::{
    insight::MAX_INSIGHT_LINES,
    keywords::sentence_key,
    trace::{InsightFate, InsightTrace},
};

struct ShownInsight {
    /// The position in the material.
    index: usize,
    text: String,
    tokens: u32,
}

/// The selected insights.
#[derive(Default)]
pub(super) struct ShownInsights {
    /// In the order of the material.
    entries: Vec<ShownInsight>,
    /// The outcome for the first insights of the material.
    fates: Vec<InsightFate>,
}

impl ShownInsights {
    /// Selects the first insights that fit, of the first [`MAX_INSIGHT_LINES`].
    pub(super) fn select_fitting(
        templates: &Templates,
        material: &PromptMaterial<'_>,
        budgets: &PromptSettings,
        history: &HistoryWindow,
        remaining_tokens: u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<Self, TurnError> {
        let mut room = budgets
            .insight_tokens
            .min(remaining_tokens.saturating_sub(HEADING_TOKENS + FRAME_TOKENS));
        let mut selected = Self::default();
        let mut shown_sentences = HashSet::new();
        for (index, insight) in material.insights.iter().take(MAX_INSIGHT_LINES).enumerate() {
            let remark = material.remark_for_dialogue(insight.dialogue);
            let text = remark.add_to(templates, material, escape_untrusted(&insight.text))?;
            let tokens = count(&text) + ITEM_TOKENS;
            let fate = if insight.dialogue == material.dialogue && history.has_turn(insight.number) {
                InsightFate::InHistory
            } else if !shown_sentences.insert(sentence_key(&insight.text)) {
                InsightFate::Repeated
            } else if tokens > room {
                InsightFate::OverBudget
            } else {
                room -= tokens;
                selected.entries.push(ShownInsight { index, text, tokens });
                InsightFate::Used
            };
            selected.fates.push(fate);
        }
        Ok(selected)
    }

    pub(super) fn tokens(&self) -> u32 {
        self.entries.iter().map(|entry| entry.tokens).sum()
    }
    pub(super) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    pub(super) fn dropped_count(&self) -> usize {
        let over = self.fates.iter().filter(|fate| **fate == InsightFate::OverBudget);
        over.count()
    }
    /// Drops the least close. Returns `false` if there is none.
    pub(super) fn drop_last(&mut self) -> bool {
        let last = self.entries.pop();
        if let Some(entry) = &last {
            self.fates[entry.index] = InsightFate::OverBudget;
        }
        last.is_some()
    }

    /// Returns the lines, newest last, as all memories in a prompt.
    pub(super) fn template_values(
        &self,
        templates: &Templates,
        material: &PromptMaterial<'_>,
    ) -> Result<Vec<Value>, TurnError> {
        let ages = material.ages();
        let mut entries: Vec<&ShownInsight> = self.entries.iter().collect();
        entries.sort_by_key(|entry| (material.insights[entry.index].last_turn_at, Reverse(entry.index)));
        let values = entries.into_iter().map(|entry| {
            let ago = ages.describe_age(templates, material.insights[entry.index].last_turn_at)?;
            Ok(context! { ago, text => entry.text.as_str() })
        });
        values.collect()
    }

    /// Adds the shown lines.
    pub(super) fn add_content(&self, material: &PromptMaterial<'_>, hash: &mut ContentHash) {
        for entry in &self.entries {
            hash.add_time(material.insights[entry.index].last_turn_at);
            hash.add_text(&entry.text);
        }
    }

    /// Returns the trace of the considered insights.
    pub(super) fn trace_insights(&self, material: &PromptMaterial<'_>) -> Vec<InsightTrace> {
        let considered = material.insights.iter().zip(&self.fates).enumerate();
        let traced = considered.map(|(index, (insight, &fate))| InsightTrace {
            insight: insight.id,
            entity: insight.entity.clone(),
            dialogue_id: insight.dialogue,
            turn: insight.number,
            committed_at: insight.last_turn_at,
            fate,
            shown_text: self
                .entries
                .iter()
                .find(|entry| entry.index == index)
                .map(|entry| entry.text.clone()),
        });
        traced.collect()
    }
}
