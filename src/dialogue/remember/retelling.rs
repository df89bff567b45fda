//! What a player says of itself is its own, whatever the prompt had; but where the world shares that, others would hear of an
//! NPC's past from a player who was told of it ("I know that your brother drowned").
//!
//! So there a player's word of itself is as locked as the prompt was if it names the NPC whose past it is, or has a word that
//! is more than small talk in common with the locked text, or with what the NPC has just told: but for the words that the
//! player said first.

use std::collections::BTreeSet;

use super::InjectedMemory;
use crate::{
    dialogue::{Services, jobs::JobInput},
    ids::{NpcId, ScenarioId},
    memory::{
        fact::Statement,
        keywords::{informative_terms, sentence_key},
        party,
        private_terms::PrivateTerms,
    },
    ports::{StoreResult, buffer::BufferedTurn},
    tenancy::TenantScope,
};

/// What the words of a player are compared with, where others hear them.
#[derive(Debug)]
pub(super) struct RetellingCheck {
    /// Of the NPCs whose past it is.
    names: Vec<String>,
    /// What the locked text tells; `None`: nobody knows any more, since it was deleted.
    words: Option<PrivateTerms>,
}

/// `None`: nothing in the prompts of the dialogue was locked, or nobody else hears what the player says.
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
    // What is somebody's of a player's by name is told apart by its subject.
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
    // As the prompt had it.
    let words = words.map(|words| words.with_lines(injected.past.iter().map(String::as_str)));
    Ok(Some(RetellingCheck { names, words }))
}

/// The words that the NPC said before the player did, in the turn and in those shortly before.
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
    /// Whether a player's word of itself tells of it.
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

/// Whether a text has a name, or a telling part of it.
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
