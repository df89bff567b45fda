//! What facts rest on that not every player may hear of (`memory::locks`): whether it is open, and what a prompt had of it.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{
    Services,
    prompt::Prompt,
    turn::{TurnInput, gather::Gathered},
};
use crate::{
    ids::{FactId, NpcId, ScenarioId},
    memory::{
        authored::World,
        confided::Confided,
        fact::{Fact, Viewpoint},
        keywords::telling_terms,
        locks::{Lock, Locks},
        progress::{self, Whom},
        scenario::Scenario,
        summary::Summary,
        trace::LockedWords,
    },
    ports::{PageRequest, StoreResult},
    tenancy::TenantScope,
};

/// Words that most promises have in common.
const PROMISING: &str = "promise promises promised agree agreed 약속 약속하다 약속했다";
/// Scenarios that are read at once.
const SCENARIOS_AT_ONCE: u32 = 200;

/// Those of `locked` that are open to whoever hears what is said from `viewpoint`. Nothing is read where nothing is locked.
pub(super) async fn open<T>(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    locked: Vec<(T, Locks)>,
) -> StoreResult<Vec<T>> {
    let unlocked = unlocked(services, scope, world, viewpoint, &locked).await?;
    let gossip = world.settings.gossips();
    let is_unlocked = |(npc, scenario): (&NpcId, &ScenarioId)| unlocked.contains(&(npc.clone(), scenario.clone()));
    let is_open = |locks: &Locks| locks.are_open_to(viewpoint, gossip, is_unlocked);
    Ok(locked
        .into_iter()
        .filter(|(_, locks)| is_open(locks))
        .map(|(of, _)| of)
        .collect())
}

/// Those of `facts` that may be used from `viewpoint`, in their order.
pub(super) async fn open_facts(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    mut facts: Vec<Fact>,
) -> StoreResult<Vec<Fact>> {
    let locked = facts.iter().filter(|fact| !fact.locks.is_empty());
    let locked: Vec<_> = locked.map(|fact| (fact.id, fact.locks.clone())).collect();
    let all: HashSet<FactId> = locked.iter().map(|(fact, _)| *fact).collect();
    let open: HashSet<FactId> = open(services, scope, world, viewpoint, locked)
        .await?
        .into_iter()
        .collect();
    facts.retain(|fact| !all.contains(&fact.id) || open.contains(&fact.id));
    Ok(facts)
}

/// The memories of NPCs' pasts among these locks that the player may hear of.
async fn unlocked<T>(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    locked: &[(T, Locks)],
) -> StoreResult<HashSet<(NpcId, ScenarioId)>> {
    let asked: BTreeSet<(NpcId, ScenarioId)> = locked
        .iter()
        .flat_map(|(_, locks)| locks.scenarios())
        .map(|(npc, scenario)| (npc.clone(), scenario.clone()))
        .collect();
    if asked.is_empty() || viewpoint.sees_all_players {
        return Ok(HashSet::new());
    }
    let asked: Vec<(NpcId, ScenarioId)> = asked.into_iter().collect();
    let scenarios = &services.ledger.scenarios;
    let (required, state) = tokio::try_join!(
        scenarios.required(scope, &world.id, &asked),
        services.bodies.world(services, scope, &world.id),
    )?;
    let rules = world.settings.unlock_rules();
    // Where no player is, or one that got nowhere, what needs no progress is open.
    let progress_with = |npc: &NpcId, name: &str| {
        progress::standing(
            &state.milestones,
            rules,
            &Whom::new(npc, name),
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
pub(super) async fn before(services: &Services, input: &TurnInput) -> StoreResult<Locks> {
    let kept = match &input.goes_on {
        Some(unfinished) => unfinished.locks.clone(),
        None if input.checkpoint.turn == 0 => Some(Locks::default()),
        None => input.checkpoint.locks.clone(),
    };
    if let Some(locks) = kept {
        return Ok(locks);
    }
    let mut locks = Locks::default();
    for npc in &input.dialogue.npcs {
        let mut page = PageRequest {
            limit: SCENARIOS_AT_ONCE,
            after: None,
        };
        loop {
            let scenarios = &services.ledger.scenarios;
            let found = scenarios.list(&input.scope, &input.world.id, npc, &page).await?;
            let conditional = found.items.into_iter().filter(Scenario::takes_progress);
            locks.0.extend(conditional.map(|scenario| Lock::Scenario {
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
pub(super) fn of_dialogue(input: &TurnInput, gathered: &Gathered, prompt: &Prompt) -> Locks {
    let mut locks = gathered.locks_before.clone();
    locks.extend(&told_at_once(input, gathered, prompt));
    for text in texts(input, gathered, prompt) {
        locks.extend(&text.locks);
    }
    locks
}

/// Those of which the dialogue may have told: its past, what NPCs said to each other, and memories that what was `said` in
/// this turn or an earlier one has a word of.
pub(super) fn told(input: &TurnInput, gathered: &Gathered, prompt: &Prompt, said: &[&str]) -> Locks {
    let kept = match &input.goes_on {
        Some(unfinished) => unfinished.told_locks.clone(),
        None if input.checkpoint.turn == 0 => Some(Locks::default()),
        None => input.checkpoint.told_locks.clone(),
    };
    let mut locks = kept.unwrap_or_else(|| gathered.locks_before.clone());
    locks.extend(&told_at_once(input, gathered, prompt));
    let texts = texts(input, gathered, prompt);
    for text in texts.iter().filter(|text| text.words.may_be_told_by(said)) {
        locks.extend(&text.locks);
    }
    locks
}

/// What counts as told as soon as a prompt has it.
fn told_at_once(input: &TurnInput, gathered: &Gathered, prompt: &Prompt) -> Locks {
    let shown = prompt.scenarios.iter().filter(|traced| traced.shown.is_some());
    let shown = shown.map(|traced| Lock::Scenario {
        npc: input.npc.id.clone(),
        scenario: traced.scenario.clone(),
    });
    let mut locks: Locks = shown.collect();
    locks.extend(&gathered.overheard.locks);
    locks
}

/// What of the prompt not every player may hear of, beside what the dialogue may have told by then.
pub(super) fn untold(input: &TurnInput, gathered: &Gathered, prompt: &Prompt, told: &Locks) -> Vec<LockedWords> {
    let mut texts = texts(input, gathered, prompt);
    texts.retain(|text| !text.locks.are_open_wherever(told));
    texts
}

/// The memories in a prompt, and the summary of the last meeting, that not every player may hear of, in words. Names of those who
/// talk with each other are in all of them, and words of promising in many: they tell nothing.
fn texts(input: &TurnInput, gathered: &Gathered, prompt: &Prompt) -> Vec<LockedWords> {
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
    let texts: Vec<(&String, &Locks)> = texts.collect();
    if texts.is_empty() {
        return Vec::new();
    }
    let mut silent = telling_terms(&input.npc.name);
    silent.extend(gathered.players_name(input).map(telling_terms).unwrap_or_default());
    silent.extend(telling_terms(PROMISING));
    texts
        .into_iter()
        .map(|(text, locks)| {
            let mut words = Confided::default();
            // Dates and numbers of different things are alike.
            words.add_but(&text.replace(|c: char| c.is_ascii_digit(), " "), &silent);
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
pub(super) fn confided(input: &TurnInput, gathered: &Gathered, prompt: &Prompt) -> Option<Confided> {
    let mut confided = match &input.goes_on {
        Some(unfinished) => unfinished.confided.clone()?,
        None => Confided::default(),
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
        confided.add(content);
    }
    let is_new = |summary: &&Summary| summary.to_turn > input.checkpoint.summarised_through;
    for summary in input.summaries.iter().filter(is_new) {
        confided.add(&summary.text);
    }
    if let Some(summary) = gathered.meeting.as_ref().and_then(|meeting| meeting.summary.as_ref()) {
        confided.add(&summary.text);
    }
    Some(confided)
}
