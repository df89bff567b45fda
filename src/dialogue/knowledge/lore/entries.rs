//! The entries of a world's lore that texts name, and those that a player may hear.

use std::collections::{BTreeMap, BTreeSet};

use super::{cache::LoadedLore, people::DeadPerson};
use crate::Services;
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    authored::{Npc, World},
    keywords::normalise_text,
    lore::LoreEntry,
};
use colloquy_ports::StoreResult;

/// Returns the entries that the texts of turns name, and of which all `npcs` may always tell: those that most turns name
/// first, then by name. A turn is a list of texts. Keywords are no names. If a text names one of the `dead`, also by a
/// name of an entry about this person alone, all entries about the person count as named.
pub(crate) async fn named_entries<'t>(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    npcs: &[&Npc],
    turns: impl IntoIterator<Item = [&'t str; 2]>,
    dead: &[DeadPerson<'_>],
) -> StoreResult<Vec<LoreEntry>> {
    let lore = services.memory_cache.lore.load_lore(services, scope, world).await?;
    let is_open = |entry: &LoreEntry| npcs.iter().all(|npc| entry.text.is_always_open_to(npc));
    let mut naming: BTreeMap<usize, u32> = BTreeMap::new();
    for turn in turns {
        for index in entries_of_turn(&lore, turn, dead, is_open) {
            *naming.entry(index).or_default() += 1;
        }
    }
    let ranked = naming.into_iter().map(|(index, turns)| (turns, &lore.entries[index]));
    let mut ranked: Vec<(u32, &LoreEntry)> = ranked.collect();
    ranked.sort_by(|(turns, entry), (other_turns, other)| {
        let by_name = || entry.text.name.cmp(&other.text.name);
        other_turns
            .cmp(turns)
            .then_with(by_name)
            .then_with(|| entry.id.cmp(&other.id))
    });
    Ok(ranked.into_iter().map(|(_, entry)| entry.clone()).collect())
}

/// Returns the open entries that a turn names, and those about the dead whom it names.
pub(super) fn entries_of_turn(
    lore: &LoadedLore,
    texts: [&str; 2],
    dead: &[DeadPerson<'_>],
    is_open: impl Fn(&LoreEntry) -> bool,
) -> BTreeSet<usize> {
    let mut named_entries = BTreeSet::new();
    for text in texts {
        lore.names.find_in(text, |index, is_keyword| {
            if !is_keyword && is_open(&lore.entries[index]) {
                named_entries.insert(index);
            }
        });
    }
    let is_meant = |person: &&DeadPerson<'_>| {
        texts.iter().any(|text| person.is_named_in(text))
            || named_entries
                .iter()
                .any(|index| person.is_alone_in(&lore.entries[*index]))
    };
    let meant_people = dead.iter().filter(is_meant);
    let entries_about = meant_people.flat_map(|person| lore.characters.entries_about(&normalise_text(person.name)));
    let entries_about: Vec<usize> = entries_about
        .copied()
        .filter(|index| is_open(&lore.entries[*index]))
        .collect();
    named_entries.extend(entries_about);
    named_entries
}
