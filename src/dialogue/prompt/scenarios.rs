//! The NPC's past in a prompt: the scenarios that the turn found, within a separate budget.

use minijinja::{Value, context};

use super::{
    assembly::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS, PromptMaterial},
    untrusted::escape_untrusted,
};
use crate::settings::DialogueSettings;
use colloquy_memory::{
    packing::{PackingBudget, pack_texts},
    trace::{CandidateFate, ScenarioTrace},
};

/// The tokens of the instructions around the scenarios, or of the instruction for an empty list.
const INTRODUCTION_TOKENS: u32 = 64;

/// The selected scenarios of an NPC's past.
#[derive(Default)]
pub(super) struct ShownScenarios {
    /// True if the section is shown, even if only to say that there is nothing to tell.
    is_there: bool,
    /// Position among the hits, text, and tokens.
    items: Vec<(usize, String, u32)>,
    /// The fate of every hit, by position.
    fates: Vec<CandidateFate>,
    dropped: usize,
}

impl ShownScenarios {
    /// Selects the best scenarios that fit.
    pub(super) fn select_fitting(material: &PromptMaterial<'_>, settings: &DialogueSettings, left: u32) -> Self {
        let Some(past) = material.past else {
            return Self::default();
        };
        let mut fates: Vec<CandidateFate> = past.hits.iter().map(|hit| hit.fate).collect();
        let strong: Vec<usize> = (0..fates.len())
            .filter(|&at| fates[at] != CandidateFate::TooWeak)
            .collect();
        let texts: Vec<String> = strong
            .iter()
            .map(|&at| {
                let scenario = &past.hits[at].scenario;
                let text = format!("{}: {}", scenario.title, scenario.content);
                escape_untrusted(&text)
            })
            .collect();
        let budget = PackingBudget {
            top_k: settings.scenarios.top_k,
            total_tokens: settings
                .prompt
                .scenario_tokens
                .min(left.saturating_sub(HEADING_TOKENS + FRAME_TOKENS + INTRODUCTION_TOKENS)),
            item_tokens: settings.prompt.scenario_item_tokens,
        };
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let packing = pack_texts(&texts, budget, ITEM_TOKENS, &material.counter);
        for (&at, &fate) in strong.iter().zip(&packing.fates) {
            fates[at] = fate;
        }
        let items: Vec<_> = packing
            .items
            .iter()
            .map(|item| (strong[item.index], item.text.to_owned(), item.tokens + ITEM_TOKENS))
            .collect();
        let over = |fate: &&CandidateFate| **fate == CandidateFate::OverBudget;
        Self {
            is_there: past.asked || !items.is_empty(),
            dropped: fates.iter().filter(over).count(),
            items,
            fates,
        }
    }

    pub(super) fn tokens(&self) -> u32 {
        let items: u32 = self.items.iter().map(|item| item.2).sum();
        items
            + if self.is_there {
                HEADING_TOKENS + INTRODUCTION_TOKENS
            } else {
                0
            }
    }
    pub(super) const fn is_empty(&self) -> bool {
        !self.is_there
    }
    pub(super) const fn dropped_count(&self) -> usize {
        self.dropped
    }
    /// Drops the last scenario, and finally the section itself. Returns `false` if the section is already gone.
    pub(super) fn drop_last(&mut self) -> bool {
        let Some((at, ..)) = self.items.pop() else {
            return std::mem::take(&mut self.is_there);
        };
        self.fates[at] = CandidateFate::OverBudget;
        self.dropped += 1;
        true
    }

    pub(super) fn template_values(&self, material: &PromptMaterial<'_>) -> Value {
        if material.past.is_none() || !self.is_there {
            return Value::from(());
        }
        let told: Vec<Value> = self.items.iter().map(|(_, text, _)| text.as_str().into()).collect();
        context! { told }
    }

    /// Returns the trace of every considered scenario.
    pub(super) fn trace_scenarios(&self, material: &PromptMaterial<'_>) -> Vec<ScenarioTrace> {
        let hits = material.past.into_iter().flat_map(|past| &past.hits);
        hits.zip(&self.fates)
            .enumerate()
            .map(|(at, (hit, &fate))| ScenarioTrace {
                scenario: hit.scenario.id.clone(),
                title: hit.scenario.title.clone(),
                score: hit.score,
                recent: hit.recent,
                fate,
                shown: self.items.iter().find(|item| item.0 == at).map(|item| item.1.clone()),
            })
            .collect()
    }
}
