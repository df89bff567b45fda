//! Lore of a world: the entries of this node's memory, those that a turn's prompt may have, and writes of authors
//! (docs/algorithms.md#lore).
//!
//! All entries of a world, at most 10,000, are in the memory of each node that needs them, and every search is exact.
//! Mentions are counted in the turns of the dialogue. A rewind therefore takes mentions back without further work.

mod cache;
mod search;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

pub use self::write::{embed_lore, import_lore, write_lore};
pub(crate) use self::{
    cache::{LoadedLore, LoreCache},
    search::{LoreOfTurn, prepare_lore},
};
use super::{Services, turn::TurnInput};
use colloquy_core::{
    ids::{LoreId, NpcId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::{Npc, World},
    condition::ConditionContext,
    fact::Viewpoint,
    lore::{LoreEntry, LoreScore},
    secrecy::Secrecy,
    state::WorldState,
    trace::{LoreFate, LoreSource, LoreTrace},
};
use colloquy_ports::StoreResult;

/// An entry that a turn considered, and its score.
#[derive(Debug, Clone)]
pub(crate) struct LoreHit {
    /// The position in the world's lore.
    at: usize,
    pub secrecy: Secrecy,
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
    lore: Arc<LoadedLore>,
    /// Best first. Entries with another fate than [`LoreFate::Used`] are not in the prompt.
    pub hits: Vec<LoreHit>,
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
            let at = lore.entries.iter().position(|entry| entry.id == traced.entry)?;
            let is_open = traced.secrecy == Secrecy::Open;
            let now = is_open.then(|| search::state_now(input, state, &lore.entries[at]));
            Some(LoreHit {
                at,
                secrecy: traced.secrecy,
                trace: traced.clone(),
                now: now.unwrap_or_default(),
            })
        });
        let hits = hits.collect();
        Ok(Self { lore, hits })
    }
    pub(crate) fn entry(&self, hit: &LoreHit) -> &LoreEntry {
        &self.lore.entries[hit.at]
    }
    /// True if not every player may hear the entry.
    pub(crate) fn is_conditional(&self, id: &LoreId) -> bool {
        self.lore.entry(id).is_some_and(|entry| !entry.text.when.is_empty())
    }
}

impl LoreHit {
    fn new(at: usize, entry: &LoreEntry, secrecy: Secrecy, score: LoreScore, source: LoreSource) -> Self {
        Self {
            at,
            secrecy,
            trace: LoreTrace {
                entry: entry.id.clone(),
                name: entry.text.name.clone(),
                layer: entry.text.layer,
                secrecy,
                found_by: source,
                score,
                fate: LoreFate::Used,
                shown: None,
            },
            now: Vec::new(),
        }
    }
}

/// Returns the entries that the texts of turns name, and of which all `npcs` may always tell: those that most turns name
/// first, then by name. A turn is a list of texts. Keywords are no names.
pub(super) async fn named_entries<'t>(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    npcs: &[&Npc],
    turns: impl IntoIterator<Item = [&'t str; 2]>,
) -> StoreResult<Vec<LoreEntry>> {
    let lore = services.memory_cache.lore.load_lore(services, scope, world).await?;
    let mut naming: BTreeMap<usize, u32> = BTreeMap::new();
    for turn in turns {
        let mut named = BTreeSet::new();
        for text in turn {
            lore.names.find_in(text, |at, is_keyword| {
                if !is_keyword {
                    named.insert(at);
                }
            });
        }
        for at in named {
            *naming.entry(at).or_default() += 1;
        }
    }
    let is_open = |entry: &LoreEntry| npcs.iter().all(|npc| entry.text.is_always_open_to(npc));
    let mut found: Vec<(u32, &LoreEntry)> = naming
        .into_iter()
        .map(|(at, turns)| (turns, &lore.entries[at]))
        .filter(|(_, entry)| is_open(entry))
        .collect();
    found.sort_by(|(turns, entry), (others, other)| {
        let by_name = || entry.text.name.cmp(&other.text.name);
        others
            .cmp(turns)
            .then_with(by_name)
            .then_with(|| entry.id.cmp(&other.id))
    });
    Ok(found.into_iter().map(|(_, entry)| entry.clone()).collect())
}

/// Returns those of `asked` (an entry, and the NPC that told of it) that the player at `viewpoint` may hear.
pub(super) async fn open_entries(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    asked: &HashSet<(NpcId, LoreId)>,
) -> StoreResult<HashSet<(NpcId, LoreId)>> {
    if asked.is_empty() || viewpoint.sees_all_players {
        return Ok(HashSet::new());
    }
    let (lore, state) = tokio::try_join!(
        services.memory_cache.lore.load_lore(services, scope, world),
        services.memory_cache.world_state(services, scope, &world.id),
    )?;
    let tellers: HashSet<&NpcId> = asked.iter().map(|(npc, _)| npc).collect();
    let mut open = HashSet::new();
    for teller in tellers {
        let Some(npc) = services.ledger.authored.load_npc(scope, &world.id, teller).await? else {
            continue;
        };
        let (settings, player) = (&world.settings, viewpoint.player.as_ref());
        let context = ConditionContext::new(&state, settings, &npc, player, services.clock.now());
        let is_open = |id: &LoreId| lore.entry(id).is_some_and(|entry| context.all_hold(&entry.text.when));
        let of_teller = asked.iter().filter(|(npc, entry)| npc == teller && is_open(entry));
        open.extend(of_teller.cloned());
    }
    Ok(open)
}
