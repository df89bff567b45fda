//! Detects players who retell locked content. A player's statement about itself belongs to the player, even if the
//! prompt had locked content. But if a world shares facts, a player could pass an NPC's past on to other players ("I
//! know that your brother drowned").
//!
//! In such a world, the statement is as locked as the prompt in two cases:
//! - It names the NPC of the locked past.
//! - It shares a word beyond small talk with the locked text, or with the NPC's latest lines. Words that the player
//!   said first do not count.

use std::collections::BTreeSet;

use super::InjectedMemory;
use crate::Services;
use colloquy_core::{
    ids::{LoreId, NpcId, ScenarioId},
    scope::TenantScope,
};
use colloquy_memory::{
    fact::Statement,
    keywords::{informative_terms, sentence_key},
    party,
    private_terms::PrivateTerms,
};
use colloquy_ports::{StoreResult, buffer::BufferedTurn, ledger::jobs::JobInput};

/// The names and words that a player's statement is compared with, if other players hear the statement.
#[derive(Debug)]
pub(super) struct RetellingCheck {
    /// The names of the NPCs with the locked past.
    names: Vec<String>,
    /// The words of the locked text. `None`: the text was deleted, and its words are unknown.
    words: Option<PrivateTerms>,
}

/// Builds the check. `None`: the dialogue's prompts had no locked content, or no other player hears the statements.
pub(super) async fn build_retelling_check(
    services: &Services,
    scope: &TenantScope,
    said: &JobInput,
    injected: &InjectedMemory,
) -> StoreResult<Option<RetellingCheck>> {
    let is_shared = said.turn.player.is_some() && said.audience().private_to.is_none();
    if injected.locks.is_empty() || !is_shared {
        return Ok(None);
    }
    let (scenarios, world) = (&services.ledger.scenarios, &said.world.id);
    let locked: Vec<(NpcId, ScenarioId)> = injected
        .locks
        .scenario_keys()
        .map(|(npc, scenario)| (npc.clone(), scenario.clone()))
        .collect();
    let required = scenarios.load_required_progress(scope, world, &locked).await?;
    let mut names: Vec<String> = required.into_iter().map(|required| required.npc_name).collect();
    names.push(said.npc.name.clone());
    // The subject already distinguishes names of a player's relatives and belongings.
    let others: Vec<String> = names
        .iter()
        .flat_map(|name| injected.names.other_names(name))
        .filter(|name| party::owner_id(name).is_none() && !party::is_player(name))
        .map(str::to_owned)
        .collect();
    names.extend(others);
    let mut words = Some(npc_introduced_words(said));
    for (npc, id) in &locked {
        let scenario = scenarios.load_scenario(scope, world, npc, id).await?;
        words = words.zip(scenario).map(|(mut words, scenario)| {
            words.add_text(&scenario.title);
            words.add_text(&scenario.content);
            words
        });
    }
    let tellers: BTreeSet<&NpcId> = injected.locks.lore_keys().map(|(npc, _)| npc).collect();
    for teller in tellers {
        let npc = services.ledger.authored.load_npc(scope, world, teller).await?;
        names.extend(npc.map(|npc| npc.name));
    }
    let entries: BTreeSet<&LoreId> = injected.locks.lore_keys().map(|(_, entry)| entry).collect();
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
    let words = words.map(|words| words.with_lines(injected.past.iter().map(String::as_str)));
    Ok(Some(RetellingCheck { names, words }))
}

/// Returns the words that the NPC said before the player, in this turn and in the turns shortly before.
fn npc_introduced_words(said: &JobInput) -> PrivateTerms {
    let (mut introduced, mut own) = (PrivateTerms::default(), BTreeSet::new());
    let now = BufferedTurn::from(&said.turn);
    for turn in said.before.iter().chain([&now]) {
        own.extend(informative_terms(&turn.player_text));
        introduced.add_text_except(&turn.reply_text, &own);
    }
    introduced
}

impl RetellingCheck {
    /// True if a player's statement about itself retells locked content.
    pub(super) fn is_retold_by(&self, statement: &Statement) -> bool {
        let keywords = statement.keywords.iter().map(String::as_str);
        let texts: Vec<&str> = [statement.content.as_str(), &statement.object]
            .into_iter()
            .chain(keywords)
            .collect();
        let names = self
            .names
            .iter()
            .any(|name| texts.iter().any(|text| is_named(text, name)));
        names
            || self
                .words
                .as_ref()
                .is_none_or(|words| words.shares_telling_word(&texts))
    }
}

/// True if a text has a name, or an informative part of the name.
fn is_named(text: &str, name: &str) -> bool {
    let (words, name) = (format!(" {} ", sentence_key(text)), sentence_key(name));
    // Korean particles follow a name without a space.
    let end = if name.is_ascii() { " " } else { "" };
    words.contains(&format!(" {name}{end}")) || !informative_terms(text).is_disjoint(&informative_terms(&name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn name_is_found_in_its_inflected_forms() {
        for (text, name, named) in [
            ("The player knows that Mira drowned him.", "Mira", true),
            ("The player keeps Mira's secret.", "Mira", true),
            ("The player admires Miranda.", "Mira", false),
            ("The player trusts Mira.", "Old Mira", true),
            ("The player will tell Will.", "Will", true),
            ("플레이어는 미라가 한 일을 안다.", "미라", true),
            ("플레이어는 나무를 좋아한다.", "미라", false),
        ] {
            assert_eq!(is_named(text, name), named, "{text} {name}");
        }
    }
}
