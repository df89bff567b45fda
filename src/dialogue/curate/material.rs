//! What a pass reads: the turns since the last pass, the state of the world after them, the facts and authored texts to
//! compare them with, the earlier findings and the narrative memory. Nothing comes from other dialogues, so that a rewind of
//! this dialogue alone can take back what a pass rests on.

use std::collections::BTreeSet;

use minijinja::{Value, context};

use super::{comparison::load_comparison, draft::finding_id};
use crate::{
    Services,
    game_time::WorldDays,
    jobs::{JobInput, load_cast},
    npc_conversation::SceneMember,
    prompt::{attribute_text, escape_untrusted},
    summarise::count_within_budget,
    turn::gather::MAX_STANDING_FACTS,
    world_events::CausedState,
};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    authored::Npc,
    curation::Finding,
    insight::{Insight, Participants},
    party::{self, PLAYER},
    state::StatePart,
    summary::without_content,
    turn::Turn,
};
use colloquy_ports::{StoreError, ledger::curation::DialogueCuration, llm::Task};

/// The most turns that a pass reads. A backlog takes several passes.
const MAX_TURNS_READ: u32 = 60;
/// The newest earlier findings that a prompt shows.
const MAX_SHOWN_FINDINGS: u32 = 60;
/// The newest insights of the dialogue that a pass reads, and those that a prompt shows.
const MAX_READ_INSIGHTS: u32 = 200;
const MAX_SHOWN_INSIGHTS: usize = 30;
/// The most characters of the world's state that a prompt shows.
const MAX_SHOWN_CHARACTERS: usize = 60;

/// The material of a pass.
pub(super) struct PassMaterial {
    /// The first turn.
    pub from: u32,
    /// The last turn: the cause of the pass.
    pub last: Turn,
    /// Earlier findings, oldest first.
    pub findings: Vec<Finding>,
    /// The narrative memory after the last pass.
    pub memory: String,
    /// What the player asked to forget, and what people have removed or corrected.
    pub forgotten: Vec<String>,
    /// The insights that the dialogue has left so far, one for each entity, oldest first.
    pub insights: Vec<Insight>,
    /// Those who take part, by name.
    pub participants: Participants,
    /// The values of the prompt that stay the same in all calls.
    pub values: Value,
}

/// Returns the material of a pass up to the job's turn. `None`: all turns have been read.
pub(super) async fn load_material(
    services: &Services,
    scope: &TenantScope,
    said: &JobInput,
) -> Result<Option<PassMaterial>, StoreError> {
    let (ledger, dialogue) = (&services.ledger, said.dialogue.id);
    let curation = ledger
        .curation
        .load_dialogue_curation(scope, dialogue, MAX_SHOWN_FINDINGS)
        .await?;
    let DialogueCuration { last_pass, findings } = curation;
    let (read, memory) = last_pass.map_or((0, String::new()), |pass| (pass.to_turn, pass.memory));
    let (from, to) = (
        read.saturating_add(1),
        said.turn.number.min(read.saturating_add(MAX_TURNS_READ)),
    );
    let mut turns = if from <= to {
        ledger.dialogues.load_turns(scope, dialogue, from, to).await?
    } else {
        Vec::new()
    };
    let counter = services.models.counter_for_task(Task::Curation);
    let count = |text: &str| services.prompts.count_tokens(counter, text);
    let sizes = turns
        .iter()
        .map(|turn| count(&turn.player_text).saturating_add(count(&turn.reply_text)));
    let sizes: Vec<u32> = sizes.collect();
    turns.truncate(count_within_budget(&sizes, services.settings.curation.max_turn_tokens));
    let Some(last) = turns.last().cloned() else {
        return Ok(None);
    };
    let mut forgotten = ledger
        .facts
        .list_forget_requests(scope, dialogue, 1, last.number)
        .await?;
    forgotten.extend(load_corrected_statements(services, scope, said, &last).await?);
    let lines = memory.lines().filter_map(|line| without_content(line, &forgotten));
    let memory = lines.collect::<Vec<_>>().join("\n");
    let states = &ledger.state;
    let changes = states
        .load_changes_of_dialogue(scope, &said.world.id, dialogue, last.committed_at)
        .await?;
    let state = CausedState::from_changes(changes.iter());
    let cast = load_cast(services, scope, said).await?;
    let compared = load_comparison(services, scope, said, &cast, (from, &turns), &forgotten).await?;
    let insights = load_own_insights(services, scope, said).await?;
    let days = WorldDays::load(services, scope, &said.world).await?;
    let shown: Vec<Value> = turns.iter().map(|turn| turn_values(said, &cast, &days, turn)).collect();
    let names: Vec<String> = cast.iter().map(|(member, _)| escape_untrusted(&member.name)).collect();
    let members: Vec<Value> = cast.iter().map(member_values).collect();
    let world = &said.world;
    let rules: Vec<String> = world.rules.iter().map(|rule| escape_untrusted(rule)).collect();
    let values = context! {
        has_player => said.turn.player.is_some(),
        listeners => names,
        world => context! { name => escape_untrusted(&world.name), premise => escape_untrusted(&world.premise), rules },
        cast => members,
        canon => compared.authored,
        learned => compared.learned,
        entries => compared.lore,
        state => state_values(said, &cast, &state, from, &turns),
        findings => finding_values(&findings, &forgotten),
        insights => insight_values(&insights, &forgotten),
        calendar => days.calendar_text(),
        turns => shown,
    };
    let participants = Participants {
        player: last.player.clone(),
        npc_names: cast.iter().map(|(member, _)| member.name.clone()).collect(),
    };
    Ok(Some(PassMaterial {
        from,
        last,
        findings,
        memory,
        forgotten,
        insights,
        participants,
        values,
    }))
}

/// Returns the statements that people removed or corrected between the beginning of the dialogue and its turn `last`, so that
/// a late pass reads the same. A statement is left out if its correction has nearly the same words: these still hold.
async fn load_corrected_statements(
    services: &Services,
    scope: &TenantScope,
    said: &JobInput,
    last: &Turn,
) -> Result<Vec<String>, StoreError> {
    let viewpoint = said.dialogue.viewpoint_for(&said.npc, said.turn.player.clone());
    let (gossip, at) = (said.world.settings.allows_gossip(), last.committed_at);
    let facts = &services.ledger.facts;
    let standing = facts
        .load_standing(scope, &viewpoint, gossip, at, MAX_STANDING_FACTS)
        .await?;
    let corrected = standing.taken_out.into_iter().filter(|removed| {
        let still_holds = |correction: &String| without_content(correction, &[&removed.content]).is_none();
        !removed.is_forgotten
            && removed.at >= said.dialogue.created_at
            && !removed.correction.as_ref().is_some_and(still_holds)
    });
    Ok(corrected.map(|removed| removed.content).collect())
}

fn member_values((member, npc): &(SceneMember, Option<Npc>)) -> Value {
    let description = npc.as_ref().map(|npc| escape_untrusted(&npc.persona.description));
    context! { name => attribute_text(&member.name), description => description.unwrap_or_default() }
}

fn turn_values(said: &JobInput, cast: &[(SceneMember, Option<Npc>)], days: &WorldDays<'_>, turn: &Turn) -> Value {
    let (date, weekday) = days.day_of(said.npc.language, turn.started_at);
    let speaker = cast.iter().find(|(member, _)| member.id == turn.npc);
    context! {
        number => turn.number,
        date, weekday,
        player => escape_untrusted(&turn.player_text),
        npc => escape_untrusted(&turn.reply_text),
        name => attribute_text(speaker.map_or(turn.npc.as_str(), |(member, _)| &member.name)),
    }
}

/// Returns the characters of the world with what is known of them after the last turn. `since` is the turn by which a
/// character had its status.
fn state_values(
    said: &JobInput,
    cast: &[(SceneMember, Option<Npc>)],
    found: &CausedState,
    from: u32,
    turns: &[Turn],
) -> Vec<Value> {
    let player = said.turn.player.as_ref().map(party::player_key);
    let known = found.state.characters.iter().filter(|(_, character)| {
        character.location.is_some()
            || character.hp.is_some()
            || character.status.is_some()
            || !character.items.is_empty()
    });
    // Those in the dialogue first. Other players are nobody's business here.
    let is_here = |name: &str| Some(name) == player.as_deref() || cast.iter().any(|(member, _)| member.name == name);
    let (here, elsewhere): (Vec<_>, Vec<_>) = known.partition(|(name, _)| is_here(name));
    let others = elsewhere.into_iter().filter(|(name, _)| !party::is_player(name));
    here.into_iter()
        .chain(others)
        .take(MAX_SHOWN_CHARACTERS)
        .map(|(name, character)| {
            let cause = found.causes.get(&StatePart::Status(name.clone()));
            let since = cause.map(|cause| match turns.first() {
                Some(first) if cause.at < first.started_at => from - 1,
                _ => turns
                    .iter()
                    .find(|turn| turn.committed_at >= cause.at)
                    .map_or(from, |turn| turn.number),
            });
            let items = character.items.iter().map(|(item, count)| match count {
                1 => attribute_text(item),
                count => format!("{} ×{count}", attribute_text(item)),
            });
            context! {
                name => if Some(name) == player.as_ref() { PLAYER.to_owned() } else { attribute_text(name) },
                location => character.location.as_deref().map(attribute_text),
                hp => character.hp,
                status => character.status.as_deref().map(attribute_text),
                since,
                items => items.collect::<Vec<_>>(),
            }
        })
        .collect()
}

/// Returns the insights that earlier passes over the dialogue have left, of each entity the newest, oldest first.
async fn load_own_insights(
    services: &Services,
    scope: &TenantScope,
    said: &JobInput,
) -> Result<Vec<Insight>, StoreError> {
    let store = &services.ledger.insights;
    let mut own = store
        .load_insights_of_dialogue(scope, &said.dialogue, MAX_READ_INSIGHTS)
        .await?;
    let mut entities = BTreeSet::new();
    own.retain(|insight| entities.insert(insight.entity_key()) && !insight.text.is_empty());
    own.truncate(MAX_SHOWN_INSIGHTS);
    own.reverse();
    Ok(own)
}

fn insight_values(insights: &[Insight], forgotten: &[String]) -> Vec<Value> {
    let shown = insights.iter().filter_map(|insight| {
        let text = without_content(&insight.text, forgotten)?;
        Some(
            context! { entity => attribute_text(&party::plain_name(&insight.entity)), text => escape_untrusted(&text) },
        )
    });
    shown.collect()
}

fn finding_values(findings: &[Finding], forgotten: &[String]) -> Vec<Value> {
    let shown = |text: &str| escape_untrusted(&without_content(text, forgotten).unwrap_or_default());
    let values = findings.iter().enumerate().map(|(at, finding)| {
        context! {
            id => finding_id(at),
            kind => finding.kind.as_str(),
            decision => finding.decided.decision.as_str(),
            decided => !finding.is_open_to_model(),
            text => shown(&finding.text),
            reason => shown(&finding.decided.reason),
        }
    });
    values.collect()
}
