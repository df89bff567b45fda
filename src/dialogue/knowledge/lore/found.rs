//! The lore that a turn found, with the present state of its characters and items.

use std::sync::Arc;

use super::cache::LoadedLore;
use crate::{Services, disclosure::LoreVerdict, prompt::location_in_turn, turn::TurnInput};
use colloquy_core::ids::LoreId;
use colloquy_memory::{
    disclosure::secrecy::Secrecy,
    keywords::normalise_text,
    lore::{LoreEntry, LoreScore},
    party,
    state::WorldState,
    trace::{LoreFate, LoreSource, LoreTrace},
};
use colloquy_ports::StoreResult;

/// The most places and holders that one entry shows.
const MAX_SHOWN_NOW: usize = 4;

/// An entry that a turn considered, and its score.
#[derive(Debug, Clone)]
pub(crate) struct LoreHit {
    /// The position in the world's lore.
    pub(super) index: usize,
    pub verdict: LoreVerdict,
    pub trace: LoreTrace,
    /// Where characters of the entry are, and who has its items.
    pub now: Vec<LoreNow>,
}

/// A part of the state of the world that an entry is linked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoreNow {
    Character {
        name: String,
        place: Option<String>,
        status: Option<String>,
    },
    /// The holder has the item.
    Item { item: String, holder: String },
}

/// The lore that a turn found.
#[derive(Debug, Clone)]
pub(crate) struct FoundLore {
    pub(super) lore: Arc<LoadedLore>,
    /// Best first. Entries with another fate than [`LoreFate::Used`] are not in the prompt.
    pub hits: Vec<LoreHit>,
    /// The positions of entries about recent deaths to which the line has no similarity.
    pub(super) unasked_deaths: Vec<usize>,
}

impl FoundLore {
    /// Returns the entries that a trace names as used, as they are now, with the state of the time of the trace. Deleted
    /// entries are left out.
    pub(crate) async fn reread(
        services: &Services,
        input: &TurnInput,
        state: &WorldState,
        traced: &[LoreTrace],
    ) -> StoreResult<Self> {
        let cache = &services.memory_cache.lore;
        let lore = cache.load_lore(services, &input.scope, &input.world).await?;
        let used = traced.iter().filter(|traced| traced.fate == LoreFate::Used);
        let hits = used.filter_map(|traced| {
            let index = lore.entries.iter().position(|entry| entry.id == traced.entry)?;
            let verdict = LoreVerdict::before(traced);
            let is_open = verdict.secrecy() == Secrecy::Open;
            let now = is_open.then(|| state_now(input, state, &lore.entries[index]));
            Some(LoreHit {
                index,
                verdict,
                trace: traced.clone(),
                now: now.unwrap_or_default(),
            })
        });
        let hits = hits.collect();
        Ok(Self {
            lore,
            hits,
            unasked_deaths: Vec::new(),
        })
    }
    /// True if a tell is among the entries for the prompt.
    pub(crate) fn has_tell(&self) -> bool {
        let mut hits = self.hits.iter();
        hits.any(|hit| hit.verdict.secrecy() == Secrecy::Guarded && hit.trace.fate == LoreFate::Used)
    }
    pub(crate) fn entry(&self, hit: &LoreHit) -> &LoreEntry {
        &self.lore.entries[hit.index]
    }
    /// Returns the text of an entry as it is now, with all its names and keywords.
    pub(crate) fn whole_text(&self, id: &LoreId) -> Option<String> {
        let text = &self.lore.entry(id)?.text;
        let names = text.aliases.iter().chain(&text.keywords);
        let parts = [&text.name, &text.content].into_iter().chain(names);
        Some(parts.map(String::as_str).collect::<Vec<_>>().join("\n"))
    }
    /// True if not every player may hear the entry.
    pub(crate) fn is_conditional(&self, id: &LoreId) -> bool {
        self.lore.entry(id).is_some_and(|entry| !entry.text.when.is_empty())
    }
    /// True if an entry is in the turn only because it tells of a recent death, whatever the line says.
    pub(crate) fn is_unasked_death(&self, traced: &LoreTrace) -> bool {
        let mut deaths = self.unasked_deaths.iter();
        traced.found_by == LoreSource::Meaning && deaths.any(|index| self.lore.entries[*index].id == traced.entry)
    }
}

impl LoreHit {
    pub(super) fn new(
        index: usize,
        entry: &LoreEntry,
        verdict: LoreVerdict,
        score: LoreScore,
        source: LoreSource,
    ) -> Self {
        Self {
            index,
            verdict,
            trace: LoreTrace {
                entry: entry.id.clone(),
                name: entry.text.name.clone(),
                layer: entry.text.layer,
                secrecy: verdict.secrecy(),
                found_by: source,
                score,
                fate: LoreFate::Used,
                shown_text: None,
            },
            now: Vec::new(),
        }
    }
}

/// Returns what the state of the world says of an entry's characters and items. Other players stay unnamed. The NPC itself
/// is in the lines about the world.
pub(super) fn state_now(input: &TurnInput, state: &WorldState, entry: &LoreEntry) -> Vec<LoreNow> {
    let player_key = input.player.as_ref().map(party::player_key);
    let is_stranger = |name: &str| party::is_player(name) && Some(name) != player_key.as_deref();
    let characters = entry.text.characters.iter().filter_map(|name| {
        let name_key = normalise_text(name.trim());
        if name_key == normalise_text(&input.npc.name) {
            return None;
        }
        let mut candidates = state.characters.iter();
        let (stored_name, character) = candidates.find(|(stored_name, _)| normalise_text(stored_name) == name_key)?;
        // The dead are nowhere, as in the lines about the world.
        let is_there = !character.is_dead() || input.world.settings.lets_ghosts_speak();
        let place = location_in_turn(input, state, character).filter(|_| is_there);
        let place = place.map(str::to_owned);
        let status = character.status.clone();
        let is_known = place.is_some() || status.is_some();
        (is_known && !is_stranger(stored_name)).then(|| LoreNow::Character {
            name: name.clone(),
            place,
            status,
        })
    });
    let items = entry.text.items.iter().flat_map(|item| {
        let item_key = normalise_text(item.trim());
        let candidates = state.characters.iter();
        let holders = candidates.filter(move |(name, character)| {
            !is_stranger(name)
                && character
                    .items
                    .keys()
                    .any(|carried| normalise_text(carried) == item_key)
        });
        holders.map(|(name, _)| LoreNow::Item {
            item: item.clone(),
            holder: name.clone(),
        })
    });
    characters.chain(items).take(MAX_SHOWN_NOW).collect()
}
