//! The NPC of a session whom a line addresses by a nickname, a title or a role of the persona: "Matron", 행수님.

use std::{collections::BTreeSet, sync::Arc};

use futures_util::future::try_join_all;

use super::addressing::positions_of;
use crate::{Services, recall::read_names};
use colloquy_core::{ids::NpcId, scope::TenantScope};
use colloquy_memory::{
    authored::{Npc, World},
    disclosure::audience::Viewpoint,
    party,
};
use colloquy_ports::StoreResult;

/// The minimum length of a nickname that addresses somebody. A single syllable begins many words.
const MIN_NICKNAME_CHARS: usize = 2;

/// An NPC that hears a line.
#[derive(Debug, Clone)]
pub struct ListeningNpc {
    pub npc: Arc<Npc>,
    /// What the NPC may know with the speaker. Its nicknames are those that it knows.
    pub viewpoint: Viewpoint,
}

/// A listening NPC with its nicknames, as lines address it.
struct NicknamedNpc {
    id: NpcId,
    name: String,
    nicknames: BTreeSet<String>,
    /// What the persona says that the NPC is: "Matron".
    roles: BTreeSet<String>,
}

/// Returns the NPC whom a line names first by a nickname or a title, or calls by a role of its persona, that nobody else of
/// the listening NPCs has. A title of somebody else ("Captain Holt") and a possessive ("Captain's") name nobody.
///
/// # Errors
/// If the ledger does not answer.
pub async fn find_nicknamed_npc(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    listening: &[ListeningNpc],
    line: &str,
) -> StoreResult<Option<NpcId>> {
    let reads = listening.iter().map(|npc| read_nicknames(services, scope, world, npc));
    let npcs = try_join_all(reads).await?;
    Ok(find_nicknamed(&npcs, line).cloned())
}

async fn read_nicknames(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    ListeningNpc { npc, viewpoint }: &ListeningNpc,
) -> StoreResult<NicknamedNpc> {
    let names = read_names(services, scope, world, viewpoint, services.clock.now()).await?;
    Ok(NicknamedNpc {
        id: npc.id.clone(),
        name: npc.name.clone(),
        nicknames: forms_of_address(names.other_names(&npc.name)),
        roles: forms_of_address(roles_in(&npc.persona.description)),
    })
}

/// Returns the nouns after "is the", "is a" and "is an" in an English description: "matron" in "is the matron of the
/// infirmary", "keeper" in "is the old keeper, …".
fn roles_in(description: &str) -> impl Iterator<Item = &str> {
    const PREPOSITIONS: [&str; 10] = ["of", "in", "at", "on", "for", "from", "to", "with", "who", "and"];
    const ARTICLES: [&str; 3] = ["is the ", "is a ", "is an "];
    ARTICLES.into_iter().flat_map(move |article| {
        description.split(article).skip(1).filter_map(|rest| {
            let phrase = rest.split(|c: char| !(c.is_alphanumeric() || c == ' ')).next()?;
            let words = phrase.split(' ').take_while(|word| !PREPOSITIONS.contains(word));
            words.last().filter(|word| !word.is_empty())
        })
    })
}

/// Returns the nicknames as lines address somebody with them. Whose relative somebody is addresses nobody.
fn forms_of_address<'n>(names: impl Iterator<Item = &'n str>) -> BTreeSet<String> {
    let personal_names = names.filter(|name| !party::is_player(name) && party::owner_part(name).is_empty());
    let addressing = personal_names.map(form_of_address);
    addressing
        .filter(|name| name.chars().count() >= MIN_NICKNAME_CHARS)
        .collect()
}

/// Returns "Matron" for "the matron". In "I asked the matron", the word addresses nobody.
fn form_of_address(nickname: &str) -> String {
    let mut articles = ["the ", "The "].into_iter();
    let bare = articles.find_map(|article| nickname.strip_prefix(article));
    let mut rest = bare.unwrap_or(nickname).chars();
    let first = rest.next().into_iter().flat_map(char::to_uppercase);
    first.chain(rest).collect()
}

/// Returns the NPC whose nickname or role comes first in a line, among those of one NPC.
fn find_nicknamed<'a>(npcs: &'a [NicknamedNpc], line: &str) -> Option<&'a NpcId> {
    let has = |npc: &NicknamedNpc, name: &String| npc.nicknames.contains(name) || npc.roles.contains(name);
    let is_of_one = |name: &&String| npcs.iter().filter(|npc| has(npc, name)).count() == 1;
    let placed = npcs.iter().filter_map(|npc| {
        let nicknames = npc.nicknames.iter().filter(is_of_one);
        let roles = npc.roles.iter().filter(is_of_one);
        let places = nicknames.filter_map(|name| place_of_address(name, &npc.name, line));
        let first_place = places.chain(roles.filter_map(|role| place_of_call(role, line))).min()?;
        Some((first_place, &npc.id))
    });
    placed.min_by_key(|(place, _)| *place).map(|(_, npc)| npc)
}

/// Returns the first position at which a nickname addresses the NPC with the name `npc_name`.
fn place_of_address(nickname: &str, npc_name: &str, line: &str) -> Option<usize> {
    positions_of(nickname, line).find(|position| {
        let rest = &line[position + nickname.len()..];
        !begins_with_possessive_ending(rest) && !begins_with_other_name(rest, npc_name)
    })
}

/// Returns the first position at which a role is a call: at the end of the line, or before a mark. "Smith" may be a name.
fn place_of_call(role: &str, line: &str) -> Option<usize> {
    let is_call = |position: &usize| {
        line[position + role.len()..]
            .chars()
            .next()
            .is_none_or(|next_char| ",.!?".contains(next_char))
    };
    positions_of(role, line).find(is_call)
}

/// True for the text after the nickname in "Captain's boat" and 선장님의 배.
fn begins_with_possessive_ending(rest: &str) -> bool {
    const ENDINGS: [&str; 4] = ["'s", "’s", "의 ", "님의 "];
    ENDINGS.iter().any(|ending| rest.starts_with(ending))
}

/// True for the text after the title in "Captain Holt", unless the NPC with the name `npc_name` is a Holt.
fn begins_with_other_name(rest: &str, npc_name: &str) -> bool {
    let word = rest.strip_prefix(' ').and_then(|rest| words_of(rest).next());
    // "Captain I need you"
    let name = word.filter(|word| *word != "I" && word.starts_with(char::is_uppercase));
    name.is_some_and(|name| words_of(npc_name).all(|part| part != name))
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nickname_of_one_npc_addresses_the_npc() {
        let npcs: Vec<NicknamedNpc> = [
            (
                "ottilie",
                "Ottilie Brandt",
                &["the matron", "player:p1's nurse", "Doctor"][..],
                "Ottilie Brandt, 51, is the matron of the infirmary. She is a stern healer.",
            ),
            (
                "hempel",
                "Hans Brandt",
                &["Doctor", "Captain"],
                "He is the young smith of Sallach, and is an early riser.",
            ),
            ("seoldan", "윤설단", &["행수"], "세책점 월영당의 행수이다."),
        ]
        .into_iter()
        .map(|(id, name, names, description)| NicknamedNpc {
            roles: forms_of_address(roles_in(description)),
            id: id.parse().unwrap(),
            name: name.to_owned(),
            nicknames: forms_of_address(names.iter().copied()),
        })
        .collect();
        for (line, addressed) in [
            ("Matron, is Wednesday still all right?", Some("ottilie")),
            ("Is it all right, Matron?", Some("ottilie")),
            ("The matron puts up with me.", None),
            ("Matrons are strict.", None),
            ("Doctor, what is it?", None),
            ("Nurse, what is it?", None),
            ("행수님, 책 여기요.", Some("seoldan")),
            ("행수님도 Matron을 아세요?", Some("seoldan")),
            ("Who was at the old mill?", None),
            ("Captain Holt is at the mill.", None),
            ("Captain Holt is at the mill, Captain.", Some("hempel")),
            ("Captain Brandt, where is the boat?", Some("hempel")),
            ("Captain I need a boat.", Some("hempel")),
            ("Captain, Holt is at the mill.", Some("hempel")),
            ("The Captain's boat is gone.", None),
            ("행수님의 책을 보았소?", None),
            ("Healer, my knee hurts.", Some("ottilie")),
            ("Good evening, Smith!", Some("hempel")),
            ("Smith is dead.", None),
            ("I saw the smith, Riser", Some("hempel")),
        ] {
            let npc = find_nicknamed(&npcs, line).map(NpcId::as_str);
            assert_eq!(npc, addressed, "{line}");
        }
    }
}
