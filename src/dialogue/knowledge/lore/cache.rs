//! The lore of worlds in this node's memory.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use moka::sync::Cache;

use super::short_names::telling_short_names;
use crate::Services;
use colloquy_core::{
    ids::{LoreId, TenantId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::World,
    backend_names::BackendNames,
    keywords::{normalise_text, short_names_of},
    lore::{LoreEntry, NameIndex, NameLookup, SentenceIndex, has_short_name},
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
    /// The contents by the words of their sentences.
    pub sentences: SentenceIndex,
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
    pub(super) fn new(stored: WorldLore, model: &str) -> StoreResult<Self> {
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
        let names = index_entry_names(&entries)?;
        let mut by_place: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, entry) in entries.iter().enumerate() {
            if let Some(place) = &entry.text.place {
                by_place.entry(normalise_text(place.trim())).or_default().push(index);
            }
        }
        let characters = entries.iter().map(|entry| entry.text.characters.as_slice());
        let own_names = entries.iter().enumerate().flat_map(|(index, entry)| {
            let names = std::iter::once(&entry.text.name).chain(&entry.text.aliases);
            names.map(move |name| (index, name.as_str()))
        });
        let characters = CharacterIndex::new(characters, own_names)?;
        let leads_to = find_leads(&entries, &names);
        let mut backend_names = backend_names_in(&entries);
        backend_names.add_conditions(&stored.conditions_of_scenarios);
        let near = NearVectors::new(&vectors);
        let sentences = SentenceIndex::new(entries.iter().map(|entry| entry.text.content.as_str()));
        let always = (0..entries.len()).filter(|index| entries[*index].text.always).collect();
        let texts: usize = entries.iter().map(|entry| entry.text.content.len() + 1_000).sum();
        let floats: usize = vectors.iter().map(Vec::len).sum();
        let indexes = [
            near.memory_bytes(),
            names.memory_bytes(),
            sentences.memory_bytes(),
            characters.memory_bytes(),
        ];
        Ok(Self {
            version: stored.version,
            bytes: texts + 4 * floats + indexes.iter().sum::<usize>(),
            entries,
            vectors,
            near,
            names,
            sentences,
            by_place,
            characters,
            leads_to,
            always,
            backend_names,
        })
    }

    /// Returns the entry with this id.
    pub(crate) fn entry(&self, id: &LoreId) -> Option<&LoreEntry> {
        let index = self.entries.binary_search_by(|entry| entry.id.cmp(id)).ok()?;
        Some(&self.entries[index])
    }

    /// Returns the names of entries and characters that a line has, those by which the line may mean a person among
    /// them.
    pub(super) fn names_in(&self, line: &str) -> Vec<&str> {
        let mut indexes = BTreeSet::new();
        self.names.find_in(line, |index, is_keyword| {
            if !is_keyword {
                indexes.insert(index);
            }
        });
        let of_entries = indexes.iter().flat_map(|index| {
            let text = &self.entries[*index].text;
            text.aliases.iter().chain([&text.name])
        });
        let lookup = NameLookup::in_text(line);
        let has_name = |name: &&str| lookup.has_name(name);
        let mut names: Vec<&str> = of_entries.map(String::as_str).filter(has_name).collect();
        names.extend(self.characters.find_in(line).map(|(name, _)| name));
        names.extend(self.characters.find_short_in(line).map(|(short, ..)| short));
        names
    }
}

fn index_entry_names(entries: &[LoreEntry]) -> StoreResult<NameIndex> {
    let all_names = entries.iter().enumerate().flat_map(|(index, entry)| {
        let text = &entry.text;
        let names = std::iter::once(&text.name)
            .chain(&text.aliases)
            .map(|name| (name, false));
        let keywords = text.keywords.iter().map(|keyword| (keyword, true));
        names
            .chain(keywords)
            .map(move |(name, is_keyword)| (name.as_str(), index, is_keyword))
    });
    index_names(all_names)
}

/// Returns to which other entries each entry leads: first the related ones, then those that its content names.
fn find_leads(entries: &[LoreEntry], names: &NameIndex) -> Vec<Vec<usize>> {
    let leads_of = |(index, entry): (usize, &LoreEntry)| {
        let mut linked = HashSet::from([index]);
        let position = |id: &LoreId| entries.binary_search_by(|other| other.id.cmp(id)).ok();
        let mut leads: Vec<usize> = entry.text.related.iter().filter_map(position).collect();
        leads.retain(|lead| linked.insert(*lead));
        names.find_in(&entry.text.content, |lead, is_keyword| {
            if !is_keyword && leads.len() < MAX_LEADS && linked.insert(lead) {
                leads.push(lead);
            }
        });
        leads
    };
    entries.iter().enumerate().map(leads_of).collect()
}

fn backend_names_in(entries: &[LoreEntry]) -> BackendNames {
    let mut backend_names = BackendNames::default();
    for entry in entries {
        let text = &entry.text;
        backend_names.add_secret(&text.when, text.tell.as_ref());
        for rule in &text.layers {
            backend_names.add_conditions(&rule.when);
        }
    }
    backend_names
}

/// The characters of which the entries tell.
#[derive(Debug)]
pub(crate) struct CharacterIndex {
    /// The normalised names, sorted, each with the positions of its entries.
    characters: Vec<(String, Vec<usize>)>,
    /// Finds the names in a text. A position of the index is one of `characters`.
    names: NameIndex,
    /// The short names that one character alone has, each with the position of the character.
    short: Vec<(String, usize)>,
    /// Finds the short names in a text. A position of the index is one of `short`.
    short_names: NameIndex,
}

impl CharacterIndex {
    /// Builds the index from the characters of each entry, in the order of the entries. `own_names` are the names and
    /// aliases of entries, each with the position of its entry.
    pub(super) fn new<'a>(
        of_entries: impl IntoIterator<Item = &'a [String]>,
        own_names: impl IntoIterator<Item = (usize, &'a str)>,
    ) -> StoreResult<Self> {
        let mut by_name: BTreeMap<String, (&str, Vec<usize>)> = BTreeMap::new();
        for (index, characters) in of_entries.into_iter().enumerate() {
            for name in characters {
                let name = name.trim();
                let slot = by_name.entry(normalise_text(name));
                slot.or_insert_with(|| (name, Vec::new())).1.push(index);
            }
        }
        let (spelled, characters): (Vec<&str>, Vec<(String, Vec<usize>)>) = by_name
            .into_iter()
            .map(|(name, (spelled, entries))| (spelled, (name, entries)))
            .unzip();
        let short = unique_short_names(&characters, &spelled, own_names);
        let short_names = short.iter().enumerate();
        let short_names = index_names(short_names.map(|(index, (name, _))| (*name, index, false)))?;
        let short = short
            .into_iter()
            .map(|(name, index)| (name.to_owned(), index))
            .collect();
        let names = characters.iter().enumerate();
        let names = index_names(names.map(|(index, (name, _))| (name.as_str(), index, false)))?;
        Ok(Self {
            characters,
            names,
            short,
            short_names,
        })
    }

    fn memory_bytes(&self) -> usize {
        self.names.memory_bytes() + self.short_names.memory_bytes()
    }

    /// Returns the entries about the character with this normalised name.
    pub(super) fn entries_about(&self, name: &str) -> &[usize] {
        let position = self
            .characters
            .binary_search_by(|(stored_name, _)| stored_name.as_str().cmp(name));
        position.map_or(&[][..], |index| self.characters[index].1.as_slice())
    }

    /// Returns the normalised names that a text has, each once, with the entries about the character.
    pub(super) fn find_in(&self, text: &str) -> impl Iterator<Item = (&str, &[usize])> {
        let mut indexes = BTreeSet::new();
        self.names.find_in(text, |index, _| {
            indexes.insert(index);
        });
        indexes.into_iter().map(move |index| {
            let (name, entries) = &self.characters[index];
            (name.as_str(), entries.as_slice())
        })
    }

    /// Returns the characters whose short names a text has: the short name, the whole name in its normalised form, and
    /// the entries about the character.
    pub(super) fn find_short_in(&self, text: &str) -> impl Iterator<Item = (&str, &str, &[usize])> {
        let mut indexes = BTreeSet::new();
        self.short_names.find_in(text, |index, _| {
            if has_short_name(text, &self.short[index].0) {
                indexes.insert(index);
            }
        });
        indexes.into_iter().map(move |index| {
            let (short, position) = &self.short[index];
            let (name, entries) = &self.characters[*position];
            (short.as_str(), name.as_str(), entries.as_slice())
        })
    }
}

/// Returns the short names that one character alone has, each with the position of the character. A name of an entry
/// about somebody or something else means no character. `spelled` are the names of `characters` as authors write them.
fn unique_short_names<'a>(
    characters: &[(String, Vec<usize>)],
    spelled: &[&'a str],
    own_names: impl IntoIterator<Item = (usize, &'a str)>,
) -> Vec<(&'a str, usize)> {
    let mut owners: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    let mut short: Vec<(&str, usize)> = Vec::new();
    for (position, &name) in spelled.iter().enumerate() {
        owners.entry(normalise_text(name)).or_default().insert(position);
        for part in telling_short_names(name) {
            owners.entry(normalise_text(part)).or_default().insert(position);
            short.push((part, position));
        }
    }
    let mut ambiguous: HashSet<String> = HashSet::new();
    for (index, name) in own_names {
        let name = name.trim();
        let full_key = normalise_text(name);
        let is_another = |position: &usize| {
            let (key, entries) = &characters[*position];
            *key != full_key && !entries.contains(&index)
        };
        for part in short_names_of(name).chain([name]).map(normalise_text) {
            if owners
                .get(&part)
                .is_some_and(|positions| positions.iter().any(is_another))
            {
                ambiguous.insert(part);
            }
        }
    }
    short.retain(|(part, _)| {
        let key = normalise_text(part);
        owners.get(&key).is_some_and(|positions| positions.len() == 1) && !ambiguous.contains(&key)
    });
    short
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
        let characters = CharacterIndex::new(of_entries.iter().map(Vec::as_slice), []).unwrap();
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

    #[test]
    fn short_name_means_the_only_character_that_has_it() {
        let of_entries = [
            vec!["Anna Reiter".to_owned(), "Hugo Reiter".to_owned()],
            vec!["Emmerich Vogt".to_owned()],
            vec![],
        ];
        let found = |own_names: &[(usize, &str)], text: &str| -> Vec<String> {
            let of_entries = of_entries.iter().map(Vec::as_slice);
            let characters = CharacterIndex::new(of_entries, own_names.iter().copied()).unwrap();
            let found = characters.find_short_in(text);
            found.map(|(_, name, _)| name.to_owned()).collect()
        };
        let none = Vec::<String>::new();
        let own_names = [(0, "Anna Reiter"), (1, "Emmerich"), (2, "The Bridge")];
        assert_eq!(found(&own_names, "How is your Anna?"), ["anna reiter"]);
        assert_eq!(
            found(&own_names, "Emmerich and Vogt"),
            ["emmerich vogt"; 2],
            "each of the names"
        );
        assert_eq!(found(&own_names, "The Reiters, and Reiter"), none, "two have the name");
        assert_eq!(found(&[(2, "Anna")], "How is your Anna?"), none, "an entry of another");
        assert_eq!(found(&[(2, "Anna Berg")], "How is your Anna?"), none);
        assert_eq!(found(&[(2, "Anna Reiter")], "How is your Anna?"), ["anna reiter"]);
    }
}
