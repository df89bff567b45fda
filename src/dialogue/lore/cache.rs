//! The lore of worlds in this node's memory.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use moka::sync::Cache;

use crate::Services;
use colloquy_core::{
    ids::{LoreId, TenantId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::World,
    backend_names::BackendNames,
    keywords::normalise_text,
    lore::{LoreEntry, NameIndex},
    near_vectors::NearVectors,
};
use colloquy_ports::{StoreError, StoreResult, ledger::lore::WorldLore};

/// The size of all cached lore of a node, in bytes.
const MAX_CACHED_BYTES: u64 = 256 * 1024 * 1024;
/// The size that one world counts at most, in bytes.
const MAX_WORLD_BYTES: usize = 64 * 1024 * 1024;
/// The number of worlds with a lock for loading.
const MAX_LOADING_WORLDS: u64 = 1_024;
/// The most entries to which one entry leads.
const MAX_LEADS: usize = 20;

/// The lore of the worlds that were used last.
pub struct LoreCache {
    worlds: Cache<(TenantId, WorldId), Arc<LoadedLore>>,
    /// A world is loaded once at a time.
    loading: Cache<(TenantId, WorldId), Arc<tokio::sync::Mutex<()>>>,
}

impl Default for LoreCache {
    fn default() -> Self {
        // The cache refuses a value that is larger than the cache.
        let bytes = |_: &_, lore: &Arc<LoadedLore>| u32::try_from(lore.bytes.min(MAX_WORLD_BYTES)).unwrap_or(u32::MAX);
        let worlds = Cache::builder().weigher(bytes).max_capacity(MAX_CACHED_BYTES).build();
        Self {
            worlds,
            loading: Cache::new(MAX_LOADING_WORLDS),
        }
    }
}

impl LoreCache {
    /// Returns the lore of a world, at least as new as `world`.
    pub(crate) async fn load_lore(
        &self,
        services: &Services,
        scope: &TenantScope,
        world: &World,
    ) -> StoreResult<Arc<LoadedLore>> {
        let key = (scope.tenant().clone(), world.id.clone());
        let cached = || self.worlds.get(&key).filter(|lore| lore.version >= world.lore_version);
        if let Some(lore) = cached() {
            return Ok(lore);
        }
        let loading = self.loading.get_with(key.clone(), Arc::default);
        let _one = loading.lock().await;
        if let Some(lore) = cached() {
            return Ok(lore);
        }
        let stored = services.ledger.lore.load_world_lore(scope, &world.id).await?;
        let model = services.embedder.info().model.clone();
        let loaded = tokio::task::spawn_blocking(move || LoadedLore::new(stored, &model))
            .await
            .map_err(|error| StoreError::Unavailable(format!("the lore could not be prepared: {error}")))??;
        let lore = Arc::new(loaded);
        self.worlds.insert(key, Arc::clone(&lore));
        Ok(lore)
    }
}

/// All lore of a world, prepared for searches.
#[derive(Debug)]
pub(crate) struct LoadedLore {
    version: u32,
    /// By id.
    pub entries: Vec<LoreEntry>,
    /// The vectors of the entries; empty for a vector of another embedder.
    pub vectors: Vec<Vec<f32>>,
    /// The same vectors, for a first look.
    pub near: NearVectors,
    /// Names, aliases and keywords.
    pub names: NameIndex,
    /// Entries by place. Places are normalised.
    pub by_place: HashMap<String, Vec<usize>>,
    pub characters: CharacterIndex,
    /// The entries to which each entry leads: its relations, and the entries that its content names.
    pub leads_to: Vec<Vec<usize>>,
    /// The entries that are always in the prompt.
    pub always: Vec<usize>,
    /// The items and places in conditions of lore and scenarios.
    pub backend_names: BackendNames,
    bytes: usize,
}

impl LoadedLore {
    /// Prepares the lore. `model` is the embedder's model.
    fn new(stored: WorldLore, model: &str) -> StoreResult<Self> {
        let mut entries = Vec::with_capacity(stored.entries.len());
        let mut vectors = Vec::with_capacity(stored.entries.len());
        for lore in stored.entries {
            let is_comparable = lore.embedding.model == model;
            vectors.push(if is_comparable {
                lore.embedding.vector
            } else {
                Vec::new()
            });
            entries.push(lore.entry);
        }
        let all_names = entries.iter().enumerate().flat_map(|(at, entry)| {
            let text = &entry.text;
            let names = std::iter::once(&text.name)
                .chain(&text.aliases)
                .map(|name| (name, false));
            let keywords = text.keywords.iter().map(|keyword| (keyword, true));
            names
                .chain(keywords)
                .map(move |(name, is_keyword)| (name.as_str(), at, is_keyword))
        });
        let names = index_names(all_names)?;
        let mut by_place: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, entry) in entries.iter().enumerate() {
            if let Some(place) = &entry.text.place {
                by_place.entry(normalise_text(place.trim())).or_default().push(at);
            }
        }
        let characters = entries.iter().map(|entry| entry.text.characters.as_slice());
        let characters = CharacterIndex::new(characters)?;
        let leads_to = entries.iter().enumerate().map(|(at, entry)| {
            let mut seen = HashSet::from([at]);
            let position = |id: &LoreId| entries.binary_search_by(|other| other.id.cmp(id)).ok();
            let mut found: Vec<usize> = entry.text.related.iter().filter_map(position).collect();
            found.retain(|other| seen.insert(*other));
            names.find_in(&entry.text.content, |other, is_keyword| {
                if !is_keyword && found.len() < MAX_LEADS && seen.insert(other) {
                    found.push(other);
                }
            });
            found
        });
        let leads_to: Vec<Vec<usize>> = leads_to.collect();
        let mut backend_names = BackendNames::default();
        for entry in &entries {
            let text = &entry.text;
            backend_names.add_secret(&text.when, text.tell.as_ref());
            for rule in &text.layers {
                backend_names.add_conditions(&rule.when);
            }
        }
        backend_names.add_conditions(&stored.conditions_of_scenarios);
        let near = NearVectors::new(&vectors);
        let always = (0..entries.len()).filter(|at| entries[*at].text.always).collect();
        let texts: usize = entries.iter().map(|entry| entry.text.content.len() + 1_000).sum();
        let floats: usize = vectors.iter().map(Vec::len).sum();
        Ok(Self {
            version: stored.version,
            bytes: texts + 4 * floats + near.memory_bytes() + names.memory_bytes() + characters.names.memory_bytes(),
            entries,
            vectors,
            near,
            names,
            by_place,
            characters,
            leads_to,
            always,
            backend_names,
        })
    }

    /// Returns the entry with this id.
    pub(crate) fn entry(&self, id: &LoreId) -> Option<&LoreEntry> {
        let at = self.entries.binary_search_by(|entry| entry.id.cmp(id)).ok()?;
        Some(&self.entries[at])
    }
}

/// The characters of which the entries tell.
#[derive(Debug)]
pub(crate) struct CharacterIndex {
    /// The normalised names, sorted, each with the positions of its entries.
    characters: Vec<(String, Vec<usize>)>,
    /// Finds the names in a text. A position of the index is one of `characters`.
    names: NameIndex,
}

impl CharacterIndex {
    /// Builds the index from the characters of each entry, in the order of the entries.
    fn new<'a>(of_entries: impl IntoIterator<Item = &'a [String]>) -> StoreResult<Self> {
        let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, characters) in of_entries.into_iter().enumerate() {
            for name in characters {
                by_name.entry(normalise_text(name.trim())).or_default().push(at);
            }
        }
        let characters: Vec<(String, Vec<usize>)> = by_name.into_iter().collect();
        let names = characters.iter().enumerate();
        let names = index_names(names.map(|(at, (name, _))| (name.as_str(), at, false)))?;
        Ok(Self { characters, names })
    }

    /// Returns the entries about the character with this normalised name.
    pub(super) fn entries_about(&self, name: &str) -> &[usize] {
        let found = self.characters.binary_search_by(|(known, _)| known.as_str().cmp(name));
        found.map_or(&[][..], |at| self.characters[at].1.as_slice())
    }

    /// Returns the normalised names that a text has, each once, with the entries about the character.
    pub(super) fn find_in(&self, text: &str) -> impl Iterator<Item = (&str, &[usize])> {
        let mut found = BTreeSet::new();
        self.names.find_in(text, |at, _| {
            found.insert(at);
        });
        found.into_iter().map(move |at| {
            let (name, entries) = &self.characters[at];
            (name.as_str(), entries.as_slice())
        })
    }
}

fn index_names<'a>(names: impl IntoIterator<Item = (&'a str, usize, bool)>) -> StoreResult<NameIndex> {
    NameIndex::build(names).map_err(|error| StoreError::Corrupt(format!("the names of the lore are too long: {error}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn characters_of_entries_are_found_by_name_and_in_a_text() {
        let of_entries = [
            vec![" Mira ".to_owned(), "민수".to_owned()],
            vec![],
            vec!["mira".to_owned()],
        ];
        let characters = CharacterIndex::new(of_entries.iter().map(Vec::as_slice)).unwrap();
        assert_eq!(characters.entries_about("mira"), [0, 2]);
        assert!(characters.entries_about("bera").is_empty());
        let found = |text: &str| -> Vec<(String, Vec<usize>)> {
            let named = characters.find_in(text);
            named
                .map(|(name, entries)| (name.to_owned(), entries.to_vec()))
                .collect()
        };
        assert_eq!(found("Is MIRA here? Mira?"), [("mira".to_owned(), vec![0, 2])]);
        assert_eq!(found("민수는 어디 있어?"), [("민수".to_owned(), vec![0])]);
        assert!(found("Is Miranda here?").is_empty());
    }
}
