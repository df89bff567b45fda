//! What a player says of itself is its own, whatever the prompt had; but where the world shares that, others would hear of an
//! NPC's past from a player who was told of it ("I know that your brother drowned").
//!
//! So there a player's word of itself is as locked as the prompt was if it names the NPC whose past it is, or has a word that
//! is more than small talk in common with the locked text, or with what the NPC has just told: but for the words that the
//! player said first.

use std::collections::BTreeSet;

use super::Injected;
use crate::{
    dialogue::{Services, jobs::Said},
    ids::{NpcId, ScenarioId},
    memory::{
        confided::Confided,
        fact::Statement,
        keywords::{gist, telling_terms},
        party,
    },
    ports::{StoreResult, buffer::BufferedTurn},
    tenancy::TenantScope,
};

/// What the words of a player are compared with, where others hear them.
#[derive(Debug)]
pub(super) struct Told {
    /// Of the NPCs whose past it is.
    names: Vec<String>,
    /// What the locked text tells; `None`: nobody knows any more, since it was deleted.
    words: Option<Confided>,
}

/// `None`: nothing in the prompts of the dialogue was locked, or nobody else hears what the player says.
pub(super) async fn told(
    services: &Services,
    scope: &TenantScope,
    said: &Said,
    injected: &Injected,
) -> StoreResult<Option<Told>> {
    let is_shared = said.turn.player.is_some() && said.audience().private_to.is_none();
    if injected.locks.is_empty() || !is_shared {
        return Ok(None);
    }
    let (scenarios, world) = (&services.ledger.scenarios, &said.world.id);
    let locked: Vec<(NpcId, ScenarioId)> = injected
        .locks
        .scenarios()
        .map(|(npc, scenario)| (npc.clone(), scenario.clone()))
        .collect();
    let required = scenarios.required(scope, world, &locked).await?;
    let mut names: Vec<String> = required.into_iter().map(|required| required.npc_name).collect();
    names.push(said.npc.name.clone());
    // What is somebody's of a player's by name is told apart by its subject.
    let others: Vec<String> = names
        .iter()
        .flat_map(|name| injected.names.others(name))
        .filter(|name| party::owner(name).is_none() && !party::is_player(name))
        .map(str::to_owned)
        .collect();
    names.extend(others);
    let mut words = Some(introduced(said));
    for (npc, id) in &locked {
        let scenario = scenarios.get(scope, world, npc, id).await?;
        words = words.zip(scenario).map(|(mut words, scenario)| {
            words.add(&scenario.title);
            words.add(&scenario.content);
            words
        });
    }
    // As the prompt had it.
    let words = words.map(|words| words.with(injected.past.iter().map(String::as_str)));
    Ok(Some(Told { names, words }))
}

/// The words that the NPC said before the player did, in the turn and in those shortly before.
fn introduced(said: &Said) -> Confided {
    let (mut introduced, mut own) = (Confided::default(), BTreeSet::new());
    let now = BufferedTurn::from(&said.turn);
    for turn in said.before.iter().chain([&now]) {
        own.extend(telling_terms(&turn.player_text));
        introduced.add_but(&turn.reply_text, &own);
    }
    introduced
}

impl Told {
    /// Whether a player's word of itself tells of it.
    pub(super) fn is_told_by(&self, statement: &Statement) -> bool {
        let keywords = statement.keywords.iter().map(String::as_str);
        let texts: Vec<&str> = [statement.content.as_str(), &statement.object]
            .into_iter()
            .chain(keywords)
            .collect();
        let names = self
            .names
            .iter()
            .any(|name| texts.iter().any(|text| is_named(text, name)));
        names || self.words.as_ref().is_none_or(|words| words.has_a_word_of(&texts))
    }
}

/// Whether a text has a name, or a telling part of it.
fn is_named(text: &str, name: &str) -> bool {
    let (words, name) = (format!(" {} ", gist(text)), gist(name));
    // Korean particles follow a name without a space.
    let end = if name.is_ascii() { " " } else { "" };
    words.contains(&format!(" {name}{end}")) || !telling_terms(text).is_disjoint(&telling_terms(&name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_its_forms() {
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
