//! The NPC's past in a prompt: the scenarios that the turn found, within a separate budget.

use minijinja::{Value, context};

use super::{
    company::Remark,
    content_hash::ContentHash,
    frame_tokens::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS},
    material::PromptMaterial,
    templates::Templates,
    untrusted::escape_untrusted,
};
use crate::{scenarios::ScenarioHit, settings::DialogueSettings, turn::TurnError};
use colloquy_core::ids::ScenarioId;
use colloquy_memory::{
    packing::{PackingBudget, pack_texts},
    scenario::ScenarioScore,
    secrecy::Secrecy,
    trace::{CandidateFate, ScenarioTrace},
};

/// The tokens of the instructions around the scenarios, or of the instruction for an empty list.
const INTRODUCTION_TOKENS: u32 = 64;
/// The most tells of scenarios in a prompt. Each has at most 300 characters.
const MAX_SHOWN_TELLS: usize = 3;
/// The most titles of scenarios that have just opened. The latest come first.
const MAX_OPENED: usize = 3;

/// The selected scenarios of an NPC's past.
#[derive(Default)]
pub(super) struct ShownScenarios {
    /// True if the section is shown, even if only to say that there is nothing to tell.
    is_there: bool,
    /// Position among the hits, text, and tokens.
    items: Vec<(usize, String, u32)>,
    /// The fate of every hit, by position.
    fates: Vec<CandidateFate>,
    /// The titles of scenarios that have just opened and are not among the items: position, text, and tokens.
    opened: Vec<(usize, String, u32)>,
    /// The first of the tells, each with its tokens.
    tell_texts: Vec<(String, u32)>,
    dropped: usize,
}

impl ShownScenarios {
    /// Selects the best scenarios that fit.
    pub(super) fn select_fitting(
        templates: &Templates,
        material: &PromptMaterial<'_>,
        settings: &DialogueSettings,
        remaining_tokens: u32,
        count: &dyn Fn(&str) -> u32,
    ) -> Result<Self, TurnError> {
        let tell_texts = material.tells.iter().take(MAX_SHOWN_TELLS).map(|hidden| {
            let text = escape_untrusted(&hidden.tell.text);
            let tokens = count(&text) + ITEM_TOKENS;
            (text, tokens)
        });
        let tell_texts: Vec<(String, u32)> = tell_texts.collect();
        let remaining_tokens = remaining_tokens.saturating_sub(tell_tokens(&tell_texts));
        let opened = material
            .opened
            .iter()
            .take(MAX_OPENED)
            .enumerate()
            .map(|(index, opened)| {
                let title = escape_untrusted(&opened.title);
                let tokens = count(&title) + ITEM_TOKENS;
                (index, title, tokens)
            });
        let mut opened: Vec<(usize, String, u32)> = opened.collect();
        if opened_tokens(&opened) > remaining_tokens {
            opened.clear();
        }
        let remaining_tokens = remaining_tokens.saturating_sub(opened_tokens(&opened));
        let Some(past) = material.past else {
            return Ok(Self {
                opened,
                tell_texts,
                ..Self::default()
            });
        };
        let mut fates: Vec<CandidateFate> = past.hits.iter().map(|hit| hit.fate).collect();
        let items = pack_hits(templates, material, settings, remaining_tokens, &past.hits, &mut fates)?;
        opened.retain(|(index, ..)| {
            let id = &material.opened[*index].id;
            !items.iter().any(|(index, ..)| past.hits[*index].scenario.id == *id)
        });
        let is_over_budget = |fate: &&CandidateFate| **fate == CandidateFate::OverBudget;
        Ok(Self {
            is_there: past.is_asked || !items.is_empty(),
            dropped: fates.iter().filter(is_over_budget).count(),
            items,
            fates,
            opened,
            tell_texts,
        })
    }

    pub(super) fn tokens(&self) -> u32 {
        let items: u32 = self.items.iter().map(|item| item.2).sum();
        let introduction = HEADING_TOKENS + INTRODUCTION_TOKENS;
        items
            + tell_tokens(&self.tell_texts)
            + opened_tokens(&self.opened)
            + if self.is_there { introduction } else { 0 }
    }
    pub(super) const fn is_empty(&self) -> bool {
        !self.is_there && self.tell_texts.is_empty() && self.opened.is_empty()
    }
    pub(super) const fn dropped_count(&self) -> usize {
        self.dropped
    }
    /// Drops the last scenario, then the titles, then the section itself, and finally the tells. Returns `false` if
    /// all are gone.
    pub(super) fn drop_last(&mut self) -> bool {
        let Some((index, ..)) = self.items.pop() else {
            return self.opened.pop().is_some()
                || std::mem::take(&mut self.is_there)
                || self.tell_texts.pop().is_some();
        };
        self.fates[index] = CandidateFate::OverBudget;
        self.dropped += 1;
        true
    }

    pub(super) fn template_values(&self, material: &PromptMaterial<'_>) -> Value {
        let is_asked = material.past.is_some() && self.is_there;
        if !is_asked && self.opened.is_empty() {
            return Value::from(());
        }
        let texts = |items: &[(usize, String, u32)]| items.iter().map(|item| item.1.clone()).collect::<Vec<_>>();
        context! { is_asked, told => texts(&self.items), opened => texts(&self.opened) }
    }

    pub(super) fn add_content(&self, hash: &mut ContentHash) {
        hash.add_number(u32::from(self.is_there));
        for (_, text, _) in &self.items {
            hash.add_text(text);
        }
        for (_, title, _) in &self.opened {
            hash.add_text(title);
        }
        hash.add_number(u32::from(!self.tell_texts.is_empty()));
        for (text, _) in &self.tell_texts {
            hash.add_text(text);
        }
    }

    pub(super) fn opened_scenarios(&self, material: &PromptMaterial<'_>) -> Vec<ScenarioId> {
        let ids = self.opened.iter().map(|(index, ..)| material.opened[*index].id.clone());
        ids.collect()
    }

    /// Returns the tells.
    pub(super) fn shown_tells(&self) -> impl Iterator<Item = Value> {
        self.tell_texts.iter().map(|(text, _)| text.as_str().into())
    }

    /// Returns the trace of every considered scenario.
    pub(super) fn trace_scenarios(&self, material: &PromptMaterial<'_>) -> Vec<ScenarioTrace> {
        let hits = material.past.into_iter().flat_map(|past| &past.hits);
        let traced_tells = material.tells.iter().enumerate().map(|(index, hidden)| {
            let shown_text = self.tell_texts.get(index).map(|(text, _)| text.clone());
            ScenarioTrace {
                scenario: hidden.id.clone(),
                title: hidden.title.clone(),
                secrecy: Secrecy::Guarded,
                score: ScenarioScore::default(),
                recent: false,
                news: None,
                fate: match shown_text {
                    Some(_) => CandidateFate::Used,
                    None => CandidateFate::OverBudget,
                },
                shown_text,
            }
        });
        hits.zip(&self.fates)
            .enumerate()
            .map(|(index, (hit, &fate))| ScenarioTrace {
                scenario: hit.scenario.id.clone(),
                title: hit.scenario.title.clone(),
                secrecy: Secrecy::Open,
                score: hit.score,
                recent: hit.recent,
                news: hit.news,
                fate,
                shown_text: self
                    .items
                    .iter()
                    .find(|item| item.0 == index)
                    .map(|item| item.1.clone()),
            })
            .chain(traced_tells)
            .collect()
    }
}

/// Packs the strong ones of the scenarios. Returns their indexes, texts and tokens, and sets their fates.
fn pack_hits(
    templates: &Templates,
    material: &PromptMaterial<'_>,
    settings: &DialogueSettings,
    remaining_tokens: u32,
    hits: &[ScenarioHit],
    fates: &mut [CandidateFate],
) -> Result<Vec<(usize, String, u32)>, TurnError> {
    let strong: Vec<usize> = (0..fates.len())
        .filter(|&index| fates[index] != CandidateFate::TooWeak)
        .collect();
    let texts = strong.iter().map(|&index| {
        let hit = &hits[index];
        let text = escape_untrusted(&format!("{}: {}", hit.scenario.title, hit.scenario.content));
        let remark = if hit.scenario.is_conditional() {
            material.remark_for_earlier_talk()
        } else {
            Remark::default()
        };
        remark.with_news(hit.news).add_to(templates, material, text)
    });
    let texts = texts.collect::<Result<Vec<String>, _>>()?;
    let budget = PackingBudget {
        top_k: settings.scenarios.top_k,
        total_tokens: settings
            .prompt
            .scenario_tokens
            .min(remaining_tokens.saturating_sub(HEADING_TOKENS + FRAME_TOKENS + INTRODUCTION_TOKENS)),
        item_tokens: settings.prompt.scenario_item_tokens,
    };
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let packing = pack_texts(&texts, budget, ITEM_TOKENS, &material.counter);
    for (&index, &fate) in strong.iter().zip(&packing.fates) {
        fates[index] = fate;
    }
    let items = packing.items.iter();
    let items = items.map(|item| (strong[item.index], item.text.to_owned(), item.tokens + ITEM_TOKENS));
    Ok(items.collect())
}

fn opened_tokens(opened: &[(usize, String, u32)]) -> u32 {
    let line_tokens: u32 = opened.iter().map(|(.., tokens)| tokens).sum();
    if opened.is_empty() {
        0
    } else {
        line_tokens + HEADING_TOKENS + INTRODUCTION_TOKENS
    }
}

fn tell_tokens(tell_texts: &[(String, u32)]) -> u32 {
    let line_tokens: u32 = tell_texts.iter().map(|(_, tokens)| tokens).sum();
    if tell_texts.is_empty() {
        0
    } else {
        line_tokens + HEADING_TOKENS + INTRODUCTION_TOKENS
    }
}
