//! The NPC of a session whom a line addresses by a nickname or a title: "Matron", 행수님.

use std::collections::BTreeSet;

use futures_util::future::try_join_all;

use super::position_of;
use crate::{Services, recall::read_names};
use colloquy_core::{ids::NpcId, scope::TenantScope};
use colloquy_memory::{authored::World, fact::Viewpoint, party};
use colloquy_ports::StoreResult;

/// The minimum length of a nickname that addresses somebody. A single syllable begins many words.
const MIN_NICKNAME_CHARS: usize = 2;

/// An NPC that hears a line.
#[derive(Debug, Clone)]
pub struct ListeningNpc {
    pub name: String,
    /// What the NPC may know with the speaker. Its nicknames are those that it knows.
    pub viewpoint: Viewpoint,
}

/// Returns the NPC whom a line names first by a nickname or a title that nobody else of the listening NPCs has.
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
    let nicknames = try_join_all(reads).await?;
    Ok(find_nicknamed(&nicknames, line).cloned())
}

/// Returns an NPC and its nicknames, as lines address it.
async fn read_nicknames(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    npc: &ListeningNpc,
) -> StoreResult<(NpcId, BTreeSet<String>)> {
    let names = read_names(services, scope, world, &npc.viewpoint, services.clock.now()).await?;
    let nicknames = forms_of_address(names.other_names(&npc.name));
    Ok((npc.viewpoint.npc.clone(), nicknames))
}

/// Returns the nicknames as lines address somebody with them. Whose relative somebody is addresses nobody.
fn forms_of_address<'n>(names: impl Iterator<Item = &'n str>) -> BTreeSet<String> {
    let own = names.filter(|name| !party::is_player(name) && party::owner_part(name).is_empty());
    let addressing = own.map(form_of_address);
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

/// Returns the NPC whose nickname comes first in a line, among nicknames of one NPC.
fn find_nicknamed<'a>(nicknames: &'a [(NpcId, BTreeSet<String>)], line: &str) -> Option<&'a NpcId> {
    let is_of_one = |name: &&String| nicknames.iter().filter(|(_, names)| names.contains(*name)).count() == 1;
    let placed = nicknames.iter().filter_map(|(npc, names)| {
        let own = names.iter().filter(is_of_one);
        let first_place = own.filter_map(|name| position_of(name, line)).min()?;
        Some((first_place, npc))
    });
    placed.min_by_key(|(place, _)| *place).map(|(_, npc)| npc)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nickname_of_one_npc_addresses_the_npc() {
        let nicknames: Vec<(NpcId, BTreeSet<String>)> = [
            ("ottilie", &["the matron", "player:p1's nurse", "Doctor"][..]),
            ("hempel", &["Doctor"]),
            ("seoldan", &["행수"]),
        ]
        .into_iter()
        .map(|(npc, names)| (npc.parse().unwrap(), forms_of_address(names.iter().copied())))
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
        ] {
            let npc = find_nicknamed(&nicknames, line).map(NpcId::as_str);
            assert_eq!(npc, addressed, "{line}");
        }
    }
}
