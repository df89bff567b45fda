//! The disclosure locks of a turn's prompt: the content of the dialogue's prompts, and the possible disclosures of the
//! reply.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{gathered_context::GatheredContext, input::TurnInput};
use crate::{
    Services,
    locks::{has_hangul, silent_terms, words_of},
    prompt::Prompt,
};
use colloquy_core::ids::{FactId, InsightId, ScenarioId, TurnId};
use colloquy_memory::{
    authored::Language,
    episode::Episode,
    insight::Insight,
    locks::{DisclosureLock, DisclosureLocks},
    private_terms::PrivateTerms,
    scenario::Scenario,
    secrecy::Secrecy,
    summary::Summary,
    trace::{EpisodeFate, InsightFate, LockedWords, LoreTrace},
};
use colloquy_ports::{PageRequest, StoreResult};

/// The page size for reading scenarios.
const SCENARIOS_PER_PAGE: u32 = 200;

/// Returns the locks of the dialogue's earlier prompts, with the locks of the reply that this turn continues. If an
/// older build did not record the locks: every scenario of the speakers that needs progress.
pub(crate) async fn locks_before_turn(services: &Services, input: &TurnInput) -> StoreResult<DisclosureLocks> {
    let stored_locks = match &input.continuation {
        Some(unfinished) => unfinished.locks.clone(),
        None if input.checkpoint.turn == 0 => Some(DisclosureLocks::default()),
        None => input.checkpoint.locks.clone(),
    };
    if let Some(locks) = stored_locks {
        return Ok(locks);
    }
    let mut locks = DisclosureLocks::default();
    for npc in &input.dialogue.npcs {
        let mut page = PageRequest {
            limit: SCENARIOS_PER_PAGE,
            after: None,
        };
        loop {
            let scenarios = &services.ledger.scenarios;
            let stored_page = scenarios
                .list_scenarios(&input.scope, &input.world.id, npc, &page)
                .await?;
            let conditional = stored_page.items.into_iter().filter(Scenario::is_conditional);
            locks.0.extend(conditional.map(|scenario| DisclosureLock::Scenario {
                npc: scenario.npc,
                scenario: scenario.id,
            }));
            let Some(next) = stored_page.next else { break };
            page.after = Some(next);
        }
    }
    Ok(locks)
}

/// Returns the locks of all the dialogue's prompts up to this turn. An NPC may come back to a told memory at any later
/// turn.
pub(crate) fn locks_after_turn(input: &TurnInput, gathered: &GatheredContext, prompt: &Prompt) -> DisclosureLocks {
    let mut locks = gathered.locks_before.clone();
    locks.extend_with(&immediately_disclosed_locks(input, gathered, prompt));
    for text in locked_texts(input, gathered, prompt) {
        locks.extend_with(&text.locks);
    }
    locks
}

/// Returns the locks that the dialogue may have disclosed:
/// - locks of the NPC's past and of conversations between NPCs, from the moment when a prompt has the content;
/// - locks of memories, and of lore about deaths for which no line asked, that share a word with the
///   `spoken_texts` in this turn or an earlier turn.
pub(crate) fn disclosed_locks(
    input: &TurnInput,
    gathered: &GatheredContext,
    prompt: &Prompt,
    spoken_texts: &[&str],
) -> DisclosureLocks {
    let stored_locks = match &input.continuation {
        Some(unfinished) => unfinished.told_locks.clone(),
        None if input.checkpoint.turn == 0 => Some(DisclosureLocks::default()),
        None => input.checkpoint.told_locks.clone(),
    };
    let mut locks = stored_locks.unwrap_or_else(|| gathered.locks_before.clone());
    locks.extend_with(&immediately_disclosed_locks(input, gathered, prompt));
    let texts = locked_texts(input, gathered, prompt);
    for text in texts.iter().filter(|text| text.words.may_be_told_by(spoken_texts)) {
        locks.extend_with(&text.locks);
    }
    locks
}

/// Returns the scenarios in the prompt of which the reply tells.
pub(crate) fn told_scenarios(
    input: &TurnInput,
    gathered: &GatheredContext,
    prompt: &Prompt,
    reply: &str,
) -> Vec<ScenarioId> {
    let shown_ids: HashSet<ScenarioId> = prompt.shown_scenarios().collect();
    let past = gathered.past.iter().flat_map(|past| &past.hits);
    let mut shown_scenarios = past
        .map(|hit| &hit.scenario)
        .filter(|scenario| shown_ids.contains(&scenario.id))
        .peekable();
    if shown_scenarios.peek().is_none() {
        return Vec::new();
    }
    let silent = silent_terms_of(input, gathered);
    let told_scenarios = shown_scenarios.filter(|scenario| words_of(&[&scenario.content], &silent).is_told_by(reply));
    told_scenarios.map(|scenario| scenario.id.clone()).collect()
}

/// Returns the terms that identify no text: the names of the speakers are in every text, and words of promising in many.
fn silent_terms_of(input: &TurnInput, gathered: &GatheredContext) -> BTreeSet<u32> {
    let names = gathered.known_player_names(input).into_iter();
    silent_terms(names.chain([input.npc.name.as_str()]))
}

/// Returns the locks that count as disclosed as soon as a prompt has them.
fn immediately_disclosed_locks(input: &TurnInput, gathered: &GatheredContext, prompt: &Prompt) -> DisclosureLocks {
    let past = gathered.past.iter().flat_map(|past| &past.hits);
    let conditional: HashSet<&ScenarioId> = past
        .map(|hit| &hit.scenario)
        .filter(|scenario| scenario.is_conditional())
        .map(|scenario| &scenario.id)
        .collect();
    let shown_locks = prompt
        .scenarios
        .iter()
        .filter(|traced| traced.shown_content().is_some() && conditional.contains(&traced.scenario));
    let shown_locks = shown_locks.map(|traced| DisclosureLock::Scenario {
        npc: input.npc.id.clone(),
        scenario: traced.scenario.clone(),
    });
    let mut locks: DisclosureLocks = shown_locks.collect();
    let lore = conditional_lore(gathered, prompt);
    let asked_lore = lore.filter(|traced| !is_disclosed_by_words(input, gathered, traced));
    locks.0.extend(asked_lore.map(|traced| lore_lock(input, traced)));
    locks.extend_with(&gathered.overheard.locks);
    locks
}

/// Returns the lore with conditions that the prompt tells.
fn conditional_lore<'p>(gathered: &GatheredContext, prompt: &'p Prompt) -> impl Iterator<Item = &'p LoreTrace> {
    let found_lore = gathered.lore.as_ref();
    let shown_lore = prompt.lore.iter();
    let shown_lore = shown_lore.filter(|traced| traced.shown_text.is_some() && traced.secrecy == Secrecy::Open);
    shown_lore.filter(move |traced| found_lore.is_some_and(|found_lore| found_lore.is_conditional(&traced.entry)))
}

/// True if an entry counts as disclosed only by a text that shares a word with the entry, because no line asked for the
/// death of which the entry tells. An entry in another script than the NPC's can share no word.
fn is_disclosed_by_words(input: &TurnInput, gathered: &GatheredContext, traced: &LoreTrace) -> bool {
    let found_lore = gathered.lore.as_ref();
    let is_korean = input.npc.language == Language::Ko;
    let is_comparable = |text: String| has_hangul(&text) == is_korean;
    found_lore.is_some_and(|found_lore| {
        found_lore.is_unasked_death(traced) && found_lore.whole_text(&traced.entry).is_some_and(is_comparable)
    })
}

fn lore_lock(input: &TurnInput, traced: &LoreTrace) -> DisclosureLock {
    DisclosureLock::Lore {
        npc: input.npc.id.clone(),
        entry: traced.entry.clone(),
    }
}

/// Returns the locked texts of the prompt whose locks are not all in `told_locks`, the locks disclosed by then, and
/// those locked with lore: a told lock of lore counts only for texts with a word of the entry, or of such a memory.
pub(crate) fn undisclosed_words(
    input: &TurnInput,
    gathered: &GatheredContext,
    prompt: &Prompt,
    told_locks: &DisclosureLocks,
) -> Vec<LockedWords> {
    let mut texts = locked_texts(input, gathered, prompt);
    texts.retain(|text| !text.locks.are_subset_of(told_locks) || text.locks.lore_keys().next().is_some());
    texts
}

/// Returns the words of the locked memories, episodes and insights in a prompt, of the last meeting's summary if locked,
/// and of lore about deaths for which no line asked.
fn locked_texts(input: &TurnInput, gathered: &GatheredContext, prompt: &Prompt) -> Vec<LockedWords> {
    let of_standing = gathered
        .standing
        .iter()
        .map(|fact| (fact.id, &fact.view.content, &fact.locks));
    let of_hits = gathered.hits.iter().map(|hit| &hit.body);
    let of_hits = of_hits.map(|body| (body.id, &body.view.content, &body.locks));
    let had = |fact: FactId| {
        let mut traced = prompt.candidates.iter();
        traced.any(|traced| traced.fact == fact && traced.fate.is_in_prompt())
    };
    let facts = of_standing
        .chain(of_hits)
        .filter(|(fact, _, locks)| !locks.is_empty() && had(*fact));
    let summary = gathered.meeting.as_ref().and_then(|meeting| meeting.summary.as_ref());
    let summary = summary.filter(|recap| !recap.locks.is_empty());
    let texts = facts.map(|(_, content, locks)| (content, locks));
    let texts = texts.chain(summary.map(|recap| (&recap.text, &recap.locks)));
    let of_episodes = shown_episodes(gathered, prompt).filter(|episode| !episode.locks.is_empty());
    let texts = texts.chain(of_episodes.map(|episode| (&episode.text, &episode.locks)));
    let of_insights = shown_insights(gathered, prompt).filter(|insight| !insight.locks.is_empty());
    let texts = texts.chain(of_insights.map(|insight| (&insight.text, &insight.locks)));
    let opened: Vec<(&String, DisclosureLocks)> = opened_titles(input, gathered, prompt).collect();
    let texts = texts.chain(opened.iter().map(|(title, locks)| (*title, locks)));
    let deaths = conditional_lore(gathered, prompt).filter(|traced| is_disclosed_by_words(input, gathered, traced));
    let deaths = deaths.filter_map(|traced| {
        let locks: DisclosureLocks = [lore_lock(input, traced)].into_iter().collect();
        Some((gathered.lore.as_ref()?.whole_text(&traced.entry)?, locks))
    });
    let deaths: Vec<(String, DisclosureLocks)> = deaths.collect();
    let texts = texts.chain(deaths.iter().map(|(text, locks)| (text, locks)));
    let texts: Vec<(&String, &DisclosureLocks)> = texts.collect();
    if texts.is_empty() {
        return Vec::new();
    }
    let silent = silent_terms_of(input, gathered);
    let texts = texts.into_iter().map(|(text, locks)| LockedWords {
        words: words_of(&[text], &silent),
        locks: locks.clone(),
    });
    texts.collect()
}

/// Returns the titles of the scenarios that have just opened and are named in the prompt, each with the lock of its
/// scenario.
fn opened_titles<'a>(
    input: &TurnInput,
    gathered: &'a GatheredContext,
    prompt: &Prompt,
) -> impl Iterator<Item = (&'a String, DisclosureLocks)> {
    let shown_titles = gathered
        .opened
        .iter()
        .filter(|opened| prompt.opened.contains(&opened.id));
    shown_titles.map(|opened| {
        let lock = DisclosureLock::Scenario {
            npc: input.npc.id.clone(),
            scenario: opened.id.clone(),
        };
        (&opened.title, [lock].into_iter().collect())
    })
}

/// Returns the episodes in the prompt.
fn shown_episodes<'a>(gathered: &'a GatheredContext, prompt: &Prompt) -> impl Iterator<Item = &'a Episode> {
    let used = prompt.episodes.iter().filter(|traced| traced.fate == EpisodeFate::Used);
    let used: HashSet<TurnId> = used.map(|traced| traced.turn_id).collect();
    let hits = gathered.episodes.iter().map(|hit| &hit.episode);
    hits.filter(move |episode| used.contains(&episode.turn))
}

/// Returns the insights in the prompt.
fn shown_insights<'a>(gathered: &'a GatheredContext, prompt: &Prompt) -> impl Iterator<Item = &'a Insight> {
    let used = prompt.insights.iter().filter(|traced| traced.fate == InsightFate::Used);
    let used: HashSet<InsightId> = used.map(|traced| traced.insight).collect();
    gathered
        .insights
        .iter()
        .filter(move |insight| used.contains(&insight.id))
}

/// Returns the private content of this turn's prompt: facts, episodes, insights from sessions with the player, new summaries
/// since the previous turn, and the last meeting's summary. Includes the content of a continued reply, but not the player's own lines. `None`: the content is
/// unknown.
pub(crate) fn confided_in_prompt(
    input: &TurnInput,
    gathered: &GatheredContext,
    prompt: &Prompt,
) -> Option<PrivateTerms> {
    let mut confided = match &input.continuation {
        Some(unfinished) => unfinished.confided.clone()?,
        None => PrivateTerms::default(),
    };
    let of_standing = gathered
        .standing
        .iter()
        .filter(|fact| fact.audience.private_to.is_some());
    let of_standing = of_standing.map(|fact| (fact.id, &fact.view.content));
    let of_hits = gathered.hits.iter().filter(|hit| hit.body.is_private);
    let of_hits = of_hits.map(|hit| (hit.body.id, &hit.body.view.content));
    let private: HashMap<FactId, &String> = of_standing.chain(of_hits).collect();
    let had = prompt.candidates.iter().filter(|traced| traced.fate.is_in_prompt());
    for content in had.filter_map(|traced| private.get(&traced.fact)) {
        confided.add_text(content);
    }
    for episode in shown_episodes(gathered, prompt) {
        confided.add_text(&episode.text);
    }
    for insight in shown_insights(gathered, prompt).filter(|insight| insight.player.is_some()) {
        confided.add_text(&insight.text);
    }
    let is_new = |summary: &&Summary| summary.to_turn > input.checkpoint.summarised_through;
    for summary in input.summaries.iter().filter(is_new) {
        confided.add_text(&summary.text);
    }
    if let Some(summary) = gathered.meeting.as_ref().and_then(|meeting| meeting.summary.as_ref()) {
        confided.add_text(&summary.text);
    }
    Some(confided)
}
