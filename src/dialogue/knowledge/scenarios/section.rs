//! The NPC's past in a prompt: the scenarios that the turn found, within a separate budget.

use std::collections::HashSet;

use minijinja::{Value, context};

use super::{
    super::{
        entries::{Entries, Entry},
        kind::{KindOfKnowledge, LineSearch, Rereading},
        section::{Section, SectionSize, SectionSizes, TemplateValues, ToldParts},
    },
    GuardedScenario, KnownScenarios, NpcPast, OpenedScenario, ScenarioHit, find_tellable_past, find_tells,
};
use crate::{
    disclosure::{Disclosable, Disclosures, shown_before},
    prompt::{FRAME_TOKENS, HEADING_TOKENS, ITEM_TOKENS, PromptContext, Remark, escape_untrusted},
    settings::PromptSettings,
    turn::{TurnError, TurnInput},
};
use colloquy_core::ids::ScenarioId;
use colloquy_memory::{
    disclosure::{locks::DisclosureLock, secrecy::Secrecy},
    packing::PackingBudget,
    scenario::{Scenario, ScenarioScore},
    trace::{CandidateFate, PromptSources, ScenarioTrace, TurnTrace},
    turn::Intent,
};
use colloquy_ports::StoreResult;

/// The tokens of the instructions around the scenarios, or of the instruction for an empty list.
const INTRODUCTION_TOKENS: u32 = 64;
/// The most tells of scenarios in a prompt. Each has at most 300 characters.
const MAX_SHOWN_TELLS: usize = 3;
/// The most titles of scenarios that have just opened. The latest come first.
const MAX_OPENED: usize = 3;

/// The NPC's own past in a turn.
#[derive(Default)]
pub(crate) struct Scenarios {
    /// The part that the NPC may tell, if the turn is about the past.
    pub past: Option<NpcPast>,
    /// The scenarios that have just opened to the player.
    pub opened: Vec<OpenedScenario>,
    /// What the NPC shows of the parts of its past that it keeps to itself.
    pub tells: Vec<GuardedScenario>,
}

/// The selected scenarios of an NPC's past.
pub(crate) struct ScenarioSection<'a> {
    scenarios: &'a Scenarios,
    /// True if the section is shown, even if only to say that there is nothing to tell.
    is_there: bool,
    /// The scenarios that the NPC may tell.
    past: Entries<(), CandidateFate>,
    /// The titles of scenarios that have just opened and are not among the others.
    opened: Entries,
    /// The first of the tells.
    tells: Entries,
}

impl KindOfKnowledge for Scenarios {
    /// Read before the intent of the line is classified.
    type Read<'a> = KnownScenarios;
    type Section<'a> = ScenarioSection<'a>;

    async fn find(search: &LineSearch<'_>, known_scenarios: KnownScenarios) -> Result<Self, TurnError> {
        let opened = known_scenarios.opened();
        let progress = known_scenarios.progress();
        let (past, tells) = tokio::try_join!(
            find_tellable_past(search, known_scenarios),
            find_tells(search.services, search.input, search.state, progress),
        )?;
        Ok(Self { past, opened, tells })
    }

    async fn reread(rereading: &Rereading<'_>, changes: &mut Vec<String>) -> Result<Self, TurnError> {
        let mut reread = Self::reread_past(rereading, changes).await?;
        for id in &rereading.sources.opened {
            let scenario = load_traced_scenario(rereading, id, changes).await?;
            reread.opened.extend(scenario.map(OpenedScenario::from));
        }
        Ok(reread)
    }

    /// Selects the best scenarios that fit.
    fn select<'a>(
        &'a self,
        context: &'a PromptContext<'a>,
        _told_parts: &ToldParts<'_>,
        mut remaining_tokens: u32,
    ) -> Result<ScenarioSection<'a>, TurnError> {
        let tells = self.tells.iter().take(MAX_SHOWN_TELLS);
        let tells = whole_lines(context, tells.map(|hidden| &hidden.tell));
        remaining_tokens = remaining_tokens.saturating_sub(introduced_tokens(&tells));
        let opened = self.opened.iter().take(MAX_OPENED);
        let mut opened = whole_lines(context, opened.map(|opened| &opened.title));
        if introduced_tokens(&opened) > remaining_tokens {
            opened = Entries::default();
        }
        remaining_tokens = remaining_tokens.saturating_sub(introduced_tokens(&opened));
        let mut past = Entries::default();
        if let Some(found_past) = &self.past {
            past = pack_past(context, &found_past.hits, remaining_tokens)?;
            opened.items.retain(|title| {
                let id = &self.opened[title.index].id;
                !past
                    .items
                    .iter()
                    .any(|item| found_past.hits[item.index].scenario.id == *id)
            });
        }
        Ok(ScenarioSection {
            is_there: self.past.as_ref().is_some_and(|past| past.is_asked) || !past.is_empty(),
            scenarios: self,
            past,
            opened,
            tells,
        })
    }

    fn add_disclosures(&self, input: &TurnInput, trace: &TurnTrace, disclosures: &mut Disclosures) {
        let lock_of = |scenario: &ScenarioId| DisclosureLock::Scenario {
            npc: input.npc.id.clone(),
            scenario: scenario.clone(),
        };
        let conditional = self
            .hits()
            .map(|hit| &*hit.scenario)
            .filter(|scenario| scenario.is_conditional());
        let conditional: HashSet<&ScenarioId> = conditional.map(|scenario| &scenario.id).collect();
        let told_scenarios = trace.scenarios.iter().filter(|traced| traced.shown_content().is_some());
        let locked = told_scenarios.filter(|traced| conditional.contains(&traced.scenario));
        disclosures
            .told_at_once
            .0
            .extend(locked.map(|traced| lock_of(&traced.scenario)));
        let sources = trace.sources.as_ref();
        let is_shown = |opened: &&OpenedScenario| sources.is_some_and(|sources| sources.opened.contains(&opened.id));
        for opened in self.opened.iter().filter(is_shown) {
            disclosures.add_text(&opened.title, &[lock_of(&opened.id)].into_iter().collect());
        }
    }
}

impl Scenarios {
    /// Returns the scenarios that the turn considered to tell, best first.
    pub(crate) fn hits(&self) -> impl Iterator<Item = &ScenarioHit> {
        self.past.iter().flat_map(|past| &past.hits)
    }

    /// Reads the NPC's past in the prompt again: what the NPC may tell, and what it shows of the rest.
    async fn reread_past(rereading: &Rereading<'_>, changes: &mut Vec<String>) -> StoreResult<Self> {
        let trace = rereading.trace;
        let mut hits = Vec::new();
        let mut tells = Vec::new();
        let used = trace
            .scenarios
            .iter()
            .filter(|traced| traced.fate == CandidateFate::Used);
        for traced in used {
            let Some(scenario) = load_traced_scenario(rereading, &traced.scenario, changes).await? else {
                continue;
            };
            if traced.secrecy == Secrecy::Open {
                hits.push(ScenarioHit {
                    scenario,
                    score: traced.score,
                    recent: traced.recent,
                    news: traced.news,
                    by_meaning: false,
                    fate: CandidateFate::BeyondTopK,
                });
            } else {
                let tell = scenario
                    .as_ref()
                    .filter_map(|scenario| Some(scenario.tell.as_ref()?.text.clone()));
                tells.extend(tell.map(|tell| GuardedScenario {
                    id: scenario.id.clone(),
                    title: scenario.title.clone(),
                    tell,
                }));
            }
        }
        let past = trace.progress.map(|progress| NpcPast {
            progress,
            is_asked: trace.intent == Intent::Scenario,
            hits,
        });
        Ok(Self {
            past,
            opened: Vec::new(),
            tells,
        })
    }
}

/// Reads a scenario of a trace as it is now.
async fn load_traced_scenario(
    rereading: &Rereading<'_>,
    id: &ScenarioId,
    changes: &mut Vec<String>,
) -> StoreResult<Option<Disclosable<Scenario>>> {
    let store = &rereading.services.ledger.scenarios;
    let TurnInput { world, npc, .. } = rereading.input;
    let scenario = store.load_scenario(rereading.scope, &world.id, &npc.id, id).await?;
    match &scenario {
        None => changes.push(format!("the scenario `{id}` was deleted")),
        Some(scenario) if scenario.updated_at > rereading.started_at => {
            changes.push(format!("the scenario `{id}` was edited"));
        }
        Some(_) => {}
    }
    Ok(scenario.and_then(|scenario| shown_before(rereading.trace, scenario)))
}

impl Section for ScenarioSection<'_> {
    fn tokens(&self) -> u32 {
        let introduction = HEADING_TOKENS + INTRODUCTION_TOKENS;
        self.past.tokens()
            + introduced_tokens(&self.tells)
            + introduced_tokens(&self.opened)
            + if self.is_there { introduction } else { 0 }
    }
    fn framed_tokens(&self) -> u32 {
        self.tokens()
    }
    /// Drops the last scenario, then the titles, then the section itself, and finally the tells.
    fn drop_least(&mut self) -> bool {
        self.past.drop_last() || self.opened.drop_last() || std::mem::take(&mut self.is_there) || self.tells.drop_last()
    }

    fn add_values(&self, values: &mut TemplateValues<'_>) -> Result<(), TurnError> {
        let is_asked = self.scenarios.past.is_some() && self.is_there;
        let is_shown = is_asked || !self.opened.is_empty();
        let past = self.past.texts().zip(self.opened.texts()).map(|(told, opened)| {
            if is_shown {
                context! { is_asked, told, opened }
            } else {
                Value::from(())
            }
        });
        values.add_changing("past", past);
        values.tells.extend(self.tells.texts().into_entries());
        Ok(())
    }

    fn add_sizes(&self, budgets: &PromptSettings, sizes: &mut SectionSizes) {
        let dropped = self.past.dropped;
        let size = SectionSize::new(
            "scenarios",
            self.tokens(),
            budgets.scenario_tokens,
            dropped,
            "scenarios",
        );
        sizes.add_if_any(size, |hash| {
            hash.add_number(u32::from(self.is_there));
            self.past.add_texts(hash);
            self.opened.add_texts(hash);
            hash.add_number(u32::from(!self.tells.is_empty()));
            self.tells.add_texts(hash);
        });
    }

    fn add_trace(&self, trace: &mut TurnTrace) {
        let considered = self.scenarios.hits().zip(&self.past.fates).enumerate();
        let traced_hits = considered.map(|(index, (hit, &fate))| ScenarioTrace {
            scenario: hit.scenario.id.clone(),
            title: hit.scenario.title.clone(),
            secrecy: Secrecy::Open,
            score: hit.score,
            recent: hit.recent,
            news: hit.news,
            fate,
            shown_text: self.past.shown_text(index),
        });
        let traced_tells = self.scenarios.tells.iter().enumerate().map(|(index, hidden)| {
            let shown_text = self.tells.shown_text(index);
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
        trace.scenarios = traced_hits.chain(traced_tells).collect();
        let shown_titles = self.opened.items.iter();
        let opened = shown_titles.map(|title| self.scenarios.opened[title.index].id.clone());
        trace.sources.get_or_insert_with(PromptSources::default).opened = opened.collect();
    }
}

/// Returns an entry for each text, without a limit.
fn whole_lines<'t>(context: &PromptContext<'_>, texts: impl Iterator<Item = &'t Disclosable<String>>) -> Entries {
    let entries = texts.enumerate().map(|(index, text)| {
        let text = text.as_ref().map(|text| escape_untrusted(text));
        Entry {
            index,
            tokens: context.count(&text) + ITEM_TOKENS,
            text,
            detail: (),
        }
    });
    Entries {
        items: entries.collect(),
        ..Entries::default()
    }
}

/// Packs the strong ones of the scenarios.
fn pack_past(
    context: &PromptContext<'_>,
    hits: &[ScenarioHit],
    remaining_tokens: u32,
) -> Result<Entries<(), CandidateFate>, TurnError> {
    let fates: Vec<CandidateFate> = hits.iter().map(|hit| hit.fate).collect();
    let strong = hits
        .iter()
        .enumerate()
        .filter(|(_, hit)| hit.fate != CandidateFate::TooWeak);
    let texts = strong.map(|(index, hit)| {
        let scenario = hit.scenario.as_ref();
        let text = scenario.map(|scenario| escape_untrusted(&format!("{}: {}", scenario.title, scenario.content)));
        let remark = if hit.scenario.is_conditional() {
            context.remark_for_earlier_talk()
        } else {
            Remark::default()
        };
        Ok((
            index,
            text.try_map(|text| remark.with_news(hit.news).add_to(context, text))?,
        ))
    });
    let texts = texts.collect::<Result<Vec<(usize, Disclosable<String>)>, TurnError>>()?;
    let budgets = &context.settings.prompt;
    let frame = HEADING_TOKENS + FRAME_TOKENS + INTRODUCTION_TOKENS;
    let budget = PackingBudget {
        top_k: context.settings.scenarios.top_k,
        total_tokens: budgets.scenario_tokens.min(remaining_tokens.saturating_sub(frame)),
        item_tokens: budgets.fixed.scenario_item_tokens,
    };
    Ok(Entries::pack(context, fates, &texts, budget, |_| ()))
}

/// Returns the tokens of a list with its introduction; 0 for an empty list.
fn introduced_tokens(entries: &Entries) -> u32 {
    if entries.is_empty() {
        0
    } else {
        entries.tokens() + HEADING_TOKENS + INTRODUCTION_TOKENS
    }
}
