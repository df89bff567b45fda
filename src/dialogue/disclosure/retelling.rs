//! Detects players who retell locked content. A player's statement about itself belongs to the player, even if the
//! prompt had locked content. But if a world shares facts, a player could pass an NPC's past on to other players ("I
//! know that your brother drowned").
//!
//! In such a world, the statement is as locked as the prompt in two cases:
//! - It names the NPC of the locked past.
//! - It shares a word beyond small talk with the locked text, or with the NPC's latest lines. Words that the player
//!   said first do not count.

use std::collections::BTreeSet;

use super::retelling_check::RetellingCheck;
use crate::Services;
use colloquy_core::{
    ids::{LoreId, NpcId, ScenarioId},
    scope::TenantScope,
};
use colloquy_memory::{
    aliases::NameAliases,
    disclosure::{private_terms::PrivateTerms, secrecy::Secrecy},
    keywords::informative_terms,
    party,
    trace::{ScenarioTrace, TurnTrace},
};
use colloquy_ports::{StoreResult, buffer::BufferedTurn, ledger::jobs::JobInput};

/// Builds the check for statements of the turn with this trace. `aliases` are those of all persons. `None`: no other player
/// hears the statements.
pub(super) async fn build_retelling_check(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    trace: &TurnTrace,
    aliases: &NameAliases,
) -> StoreResult<Option<RetellingCheck>> {
    let is_shared = job_input.turn.player.is_some() && job_input.audience().private_to.is_none();
    if !is_shared {
        return Ok(None);
    }
    let locks = &trace.locks;
    let scenarios = &services.ledger.scenarios;
    let world = &job_input.world.id;
    let locked: Vec<(NpcId, ScenarioId)> = locks
        .scenario_keys()
        .map(|(npc, scenario)| (npc.clone(), scenario.clone()))
        .collect();
    let required = scenarios.load_required_progress(scope, world, &locked).await?;
    let mut names: Vec<String> = required.into_iter().map(|required| required.npc_name).collect();
    names.push(job_input.npc.name.clone());
    // The subject already distinguishes names of a player's relatives and belongings.
    let other_names: Vec<String> = names
        .iter()
        .flat_map(|name| aliases.other_names(name))
        .filter(|name| party::owner_id(name).is_none() && !party::is_player(name))
        .map(str::to_owned)
        .collect();
    names.extend(other_names);
    let mut words = Some(npc_introduced_words(job_input));
    for (npc, id) in &locked {
        let scenario = scenarios.load_scenario(scope, world, npc, id).await?;
        words = words.zip(scenario).map(|(mut words, scenario)| {
            words.add_text(&scenario.title);
            words.add_text(&scenario.content);
            words
        });
    }
    let tellers: BTreeSet<&NpcId> = locks.lore_keys().map(|(npc, _)| npc).collect();
    for teller in tellers {
        let npc = services.ledger.authored.load_npc(scope, world, teller).await?;
        names.extend(npc.map(|npc| npc.name));
    }
    let entries: BTreeSet<&LoreId> = locks.lore_keys().map(|(_, entry)| entry).collect();
    for entry in entries {
        let entry = services.ledger.lore.load_lore(scope, world, entry).await?;
        words = words.zip(entry).map(|(mut words, entry)| {
            words.add_text(&entry.text.name);
            for alias in &entry.text.aliases {
                words.add_text(alias);
            }
            words.add_text(&entry.text.content);
            words
        });
    }
    // The past and the lore as the prompt had them.
    let past = trace.scenarios.iter().filter_map(ScenarioTrace::shown_content);
    let open_lore = trace.lore.iter().filter(|traced| traced.secrecy == Secrecy::Open);
    let lore = open_lore.filter_map(|traced| traced.shown_text.as_deref());
    let words = words.map(|words| words.with_lines(past.chain(lore)));
    Ok(Some(RetellingCheck { names, words }))
}

/// Returns the words that the NPC said before the player, in this turn and in the turns shortly before.
fn npc_introduced_words(job_input: &JobInput) -> PrivateTerms {
    let mut introduced = PrivateTerms::default();
    let mut player_terms = BTreeSet::new();
    let this_turn = BufferedTurn::from(&job_input.turn);
    for turn in job_input.before.iter().chain([&this_turn]) {
        player_terms.extend(informative_terms(&turn.player_text));
        introduced.add_text_except(&turn.reply_text, &player_terms);
    }
    introduced
}
