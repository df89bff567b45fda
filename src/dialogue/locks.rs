//! Disclosure locks (`memory::locks`) of facts that some players may not hear. Decides which locks are open, and
//! records the locks of each prompt.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{
    Services,
    prompt::Prompt,
    turn::{TurnInput, gather::GatheredContext},
};
use crate::{
    ids::{FactId, NpcId, ScenarioId},
    memory::{
        authored::World,
        fact::{Fact, Viewpoint},
        keywords::informative_terms,
        locks::{DisclosureLock, DisclosureLocks},
        private_terms::PrivateTerms,
        progress::{self, NpcNames},
        scenario::Scenario,
        summary::Summary,
        trace::LockedWords,
    },
    ports::{PageRequest, StoreResult},
    tenancy::TenantScope,
};

/// Words that most promises share.
const PROMISE_WORDS: &str = "promise promises promised agree agreed 약속 약속하다 약속했다";
/// The page size for reading scenarios.
const SCENARIOS_PER_PAGE: u32 = 200;

/// Returns the entries of `locked` that are open to the hearers at `viewpoint`. Without locks, nothing is read.
pub(super) async fn filter_open<T>(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    locked: Vec<(T, DisclosureLocks)>,
) -> StoreResult<Vec<T>> {
    let unlocked = unlocked_scenarios(services, scope, world, viewpoint, &locked).await?;
    let gossip = world.settings.allows_gossip();
    let is_unlocked = |(npc, scenario): (&NpcId, &ScenarioId)| unlocked.contains(&(npc.clone(), scenario.clone()));
    let is_open = |locks: &DisclosureLocks| locks.are_open_to(viewpoint, gossip, is_unlocked);
    Ok(locked
        .into_iter()
        .filter(|(_, locks)| is_open(locks))
        .map(|(of, _)| of)
        .collect())
}

/// Returns the `facts` that may be used from `viewpoint`, in the same order.
pub(super) async fn filter_open_facts(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    mut facts: Vec<Fact>,
) -> StoreResult<Vec<Fact>> {
    let locked = facts.iter().filter(|fact| !fact.locks.is_empty());
    let locked: Vec<_> = locked.map(|fact| (fact.id, fact.locks.clone())).collect();
    let all: HashSet<FactId> = locked.iter().map(|(fact, _)| *fact).collect();
    let open: HashSet<FactId> = filter_open(services, scope, world, viewpoint, locked)
        .await?
        .into_iter()
        .collect();
    facts.retain(|fact| !all.contains(&fact.id) || open.contains(&fact.id));
    Ok(facts)
}

/// Returns the scenarios among the locks that the player may hear.
async fn unlocked_scenarios<T>(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    locked: &[(T, DisclosureLocks)],
) -> StoreResult<HashSet<(NpcId, ScenarioId)>> {
    let asked: BTreeSet<(NpcId, ScenarioId)> = locked
        .iter()
        .flat_map(|(_, locks)| locks.scenario_keys())
        .map(|(npc, scenario)| (npc.clone(), scenario.clone()))
        .collect();
    if asked.is_empty() || viewpoint.sees_all_players {
        return Ok(HashSet::new());
    }
    let asked: Vec<(NpcId, ScenarioId)> = asked.into_iter().collect();
    let scenarios = &services.ledger.scenarios;
    let (required, state) = tokio::try_join!(
        scenarios.load_required_progress(scope, &world.id, &asked),
        services.memory_cache.world_state(services, scope, &world.id),
    )?;
    let rules = world.settings.unlock_rules();
    // Without a player, or at no progress, only scenarios that need no progress are open.
    let progress_with = |npc: &NpcId, name: &str| {
        progress::progress_state(
            &state.milestones,
            rules,
            &NpcNames::new(npc, name),
            viewpoint.player.as_ref(),
        )
        .progress()
    };
    Ok(required
        .into_iter()
        .filter(|needs| progress_with(&needs.npc, &needs.npc_name) >= needs.progress)
        .map(|needs| (needs.npc, needs.scenario))
        .collect())
}

/// Returns the locks of the dialogue's earlier prompts, with the locks of the reply that this turn continues. If an
/// older build did not record the locks: every scenario of the speakers that needs progress.
pub(super) async fn locks_before_turn(services: &Services, input: &TurnInput) -> StoreResult<DisclosureLocks> {
    let kept = match &input.continuation {
        Some(unfinished) => unfinished.locks.clone(),
        None if input.checkpoint.turn == 0 => Some(DisclosureLocks::default()),
        None => input.checkpoint.locks.clone(),
    };
    if let Some(locks) = kept {
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
            let found = scenarios
                .list_scenarios(&input.scope, &input.world.id, npc, &page)
                .await?;
            let conditional = found.items.into_iter().filter(Scenario::needs_progress);
            locks.0.extend(conditional.map(|scenario| DisclosureLock::Scenario {
                npc: scenario.npc,
                scenario: scenario.id,
            }));
            let Some(next) = found.next else { break };
            page.after = Some(next);
        }
    }
    Ok(locks)
}

/// Returns the locks of all the dialogue's prompts up to this turn. An NPC may come back to a told memory at any later
/// turn.
pub(super) fn locks_after_turn(input: &TurnInput, gathered: &GatheredContext, prompt: &Prompt) -> DisclosureLocks {
    let mut locks = gathered.locks_before.clone();
    locks.extend_with(&immediately_disclosed_locks(input, gathered, prompt));
    for text in locked_texts(input, gathered, prompt) {
        locks.extend_with(&text.locks);
    }
    locks
}

/// Returns the locks that the dialogue may have disclosed:
/// - locks of the NPC's past and of conversations between NPCs, from the moment when a prompt has the content;
/// - locks of memories that share a word with the text `said` in this turn or an earlier turn.
pub(super) fn disclosed_locks(
    input: &TurnInput,
    gathered: &GatheredContext,
    prompt: &Prompt,
    said: &[&str],
) -> DisclosureLocks {
    let kept = match &input.continuation {
        Some(unfinished) => unfinished.told_locks.clone(),
        None if input.checkpoint.turn == 0 => Some(DisclosureLocks::default()),
        None => input.checkpoint.told_locks.clone(),
    };
    let mut locks = kept.unwrap_or_else(|| gathered.locks_before.clone());
    locks.extend_with(&immediately_disclosed_locks(input, gathered, prompt));
    let texts = locked_texts(input, gathered, prompt);
    for text in texts.iter().filter(|text| text.words.may_be_told_by(said)) {
        locks.extend_with(&text.locks);
    }
    locks
}

/// Returns the locks that count as disclosed as soon as a prompt has them.
fn immediately_disclosed_locks(input: &TurnInput, gathered: &GatheredContext, prompt: &Prompt) -> DisclosureLocks {
    let shown = prompt.scenarios.iter().filter(|traced| traced.shown.is_some());
    let shown = shown.map(|traced| DisclosureLock::Scenario {
        npc: input.npc.id.clone(),
        scenario: traced.scenario.clone(),
    });
    let mut locks: DisclosureLocks = shown.collect();
    locks.extend_with(&gathered.overheard.locks);
    locks
}

/// Returns the locked texts of the prompt whose locks are not all in `told`, the locks disclosed by then.
pub(super) fn undisclosed_words(
    input: &TurnInput,
    gathered: &GatheredContext,
    prompt: &Prompt,
    told: &DisclosureLocks,
) -> Vec<LockedWords> {
    let mut texts = locked_texts(input, gathered, prompt);
    texts.retain(|text| !text.locks.are_subset_of(told));
    texts
}

/// Returns the words of the locked memories in a prompt, and of the last meeting's summary if locked. The speakers'
/// names are in every text, and words of promising in many. These words identify no text and are left out.
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
    let texts: Vec<(&String, &DisclosureLocks)> = texts.collect();
    if texts.is_empty() {
        return Vec::new();
    }
    let mut silent = informative_terms(&input.npc.name);
    silent.extend(
        gathered
            .known_player_name(input)
            .map(informative_terms)
            .unwrap_or_default(),
    );
    silent.extend(informative_terms(PROMISE_WORDS));
    texts
        .into_iter()
        .map(|(text, locks)| {
            let mut words = PrivateTerms::default();
            // Dates and numbers of unrelated texts are alike.
            words.add_text_except(&text.replace(|c: char| c.is_ascii_digit(), " "), &silent);
            LockedWords {
                words,
                locks: locks.clone(),
            }
        })
        .collect()
}

/// Returns the private content of this turn's prompt: facts, new summaries since the previous turn, and the last
/// meeting's summary. Includes the content of a continued reply, but not the player's own lines. `None`: the content is
/// unknown.
pub(super) fn confided_in_prompt(
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
    let is_new = |summary: &&Summary| summary.to_turn > input.checkpoint.summarised_through;
    for summary in input.summaries.iter().filter(is_new) {
        confided.add_text(&summary.text);
    }
    if let Some(summary) = gathered.meeting.as_ref().and_then(|meeting| meeting.summary.as_ref()) {
        confided.add_text(&summary.text);
    }
    Some(confided)
}
