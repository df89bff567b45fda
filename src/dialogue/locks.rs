//! What facts rest on that not every player may hear of (`memory::locks`): whether it is open, and what a prompt had of it.

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

/// Words that most promises have in common.
const PROMISE_WORDS: &str = "promise promises promised agree agreed 약속 약속하다 약속했다";
/// Scenarios that are read at once.
const SCENARIOS_PER_PAGE: u32 = 200;

/// Those of `locked` that are open to whoever hears what is said from `viewpoint`. Nothing is read where nothing is locked.
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

/// Those of `facts` that may be used from `viewpoint`, in their order.
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

/// The memories of NPCs' pasts among these locks that the player may hear of.
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
    // Where no player is, or one that got nowhere, what needs no progress is open.
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

/// What the dialogue had had in its prompts before this turn that not every player may hear of, with the reply that the turn
/// takes up again. Where an older build did not keep it: whatever of the past of those who speak takes any progress.
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

/// What the dialogue has had in its prompts by the end of this turn that not every player may hear of: an NPC that told
/// something may come back to it for as long as the dialogue lasts.
pub(super) fn locks_after_turn(input: &TurnInput, gathered: &GatheredContext, prompt: &Prompt) -> DisclosureLocks {
    let mut locks = gathered.locks_before.clone();
    locks.extend_with(&immediately_disclosed_locks(input, gathered, prompt));
    for text in locked_texts(input, gathered, prompt) {
        locks.extend_with(&text.locks);
    }
    locks
}

/// Those of which the dialogue may have told: its past, what NPCs said to each other, and memories that what was `said` in
/// this turn or an earlier one has a word of.
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

/// What counts as told as soon as a prompt has it.
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

/// What of the prompt not every player may hear of, beside what the dialogue may have told by then.
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

/// The memories in a prompt, and the summary of the last meeting, that not every player may hear of, in words. Names of those who
/// talk with each other are in all of them, and words of promising in many: they tell nothing.
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
            // Dates and numbers of different things are alike.
            words.add_text_except(&text.replace(|c: char| c.is_ascii_digit(), " "), &silent);
            LockedWords {
                words,
                locks: locks.clone(),
            }
        })
        .collect()
}

/// What this turn had in its prompt that was private to its player, but for the player's own lines: facts, what the dialogue was
/// summed up to since the turn before, and what the last meeting was about. With that of the reply that it takes up again.
/// `None`: nobody knows.
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
