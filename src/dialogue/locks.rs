//! Disclosure locks (`memory::locks`) of facts that some players may not hear: which locks are open.
//! `turn/prompt_locks.rs` records the locks of each prompt.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{Services, knowledge::lore};
use colloquy_core::{
    ids::{FactId, LoreId, NpcId, ScenarioId},
    scope::TenantScope,
};
use colloquy_memory::{
    agreement::is_date_word,
    authored::{Npc, World},
    condition::ConditionContext,
    fact::{Fact, Viewpoint},
    keywords::{informative_terms, is_hangul},
    locks::{DisclosureLock, DisclosureLocks},
    lore::is_named_in,
    private_terms::PrivateTerms,
    progress::{self, NpcNames},
    trace::LockedWords,
};
use colloquy_ports::{StoreResult, ledger::scenarios::RequiredProgress};

/// Words that most promises and most memories share.
const COMMON_WORDS: &str = "promise promises promised agree agreed player 약속 약속하다 약속했다 플레이어";

/// The terms of the speakers' names and of common words. They identify no text.
pub(super) fn silent_terms<'n>(names: impl IntoIterator<Item = &'n str>) -> BTreeSet<u32> {
    let names = names.into_iter().chain([COMMON_WORDS]);
    names.flat_map(informative_terms).collect()
}

/// Returns the words of texts without the `silent` words, and without dates and numbers, which unrelated texts share.
pub(super) fn words_of(texts: &[&str], silent: &BTreeSet<u32>) -> PrivateTerms {
    let mut words = PrivateTerms::default();
    for text in texts {
        let has_letter = |word: &&str| word.chars().any(char::is_alphabetic) && !is_date_word(word);
        let content_words: Vec<&str> = text.split_whitespace().filter(has_letter).collect();
        words.add_text_except(&content_words.join(" "), silent);
    }
    words
}

/// The locks of texts that only one player hears. Lore with conditions locks those that share a word with an entry: the
/// player has heard the entry, and an unrelated text stays known when the conditions end.
#[derive(Debug, Default)]
pub(super) struct LocksByWords {
    /// Locks of every text.
    pub certain: DisclosureLocks,
    /// Locks of texts that share a word.
    pub by_words: Vec<LockedWords>,
    /// The same for entries of the lore.
    lore: Vec<LockedEntry>,
}

/// The words of an entry of the lore, and its locks.
#[derive(Debug)]
struct LockedEntry {
    /// Texts in another script can share no word, and are locked.
    is_korean: bool,
    /// The name and the aliases. A name that is made of common words ("old well") counts as a whole.
    names: Vec<String>,
    words: LockedWords,
}

impl LockedEntry {
    fn may_be_told_by(&self, texts: &[&str], is_korean: bool) -> bool {
        let is_named = |text: &&str| self.names.iter().any(|name| is_named_in(text, name));
        self.is_korean != is_korean || self.words.words.may_be_told_by(texts) || texts.iter().any(is_named)
    }
}

impl LocksByWords {
    /// Returns locks of every text.
    pub(super) fn of_every_text(locks: DisclosureLocks) -> Self {
        Self {
            certain: locks,
            ..Self::default()
        }
    }

    /// Compares texts with the present entries of the lore among `locks`, without the words of [`silent_terms`].
    pub(super) async fn load(
        services: &Services,
        scope: &TenantScope,
        world: &World,
        locks: &DisclosureLocks,
        npc_name: &str,
    ) -> StoreResult<Self> {
        let mut split = Self::of_every_text(locks.clone());
        if locks.lore_keys().next().is_none() {
            return Ok(split);
        }
        let lore = services.memory_cache.lore.load_lore(services, scope, world).await?;
        let silent = &silent_terms([npc_name]);
        for (npc, entry) in locks.lore_keys() {
            // The words of a deleted entry are unknown.
            let Some(stored_entry) = lore.entry(entry) else {
                continue;
            };
            let lock = DisclosureLock::Lore {
                npc: npc.clone(),
                entry: entry.clone(),
            };
            split.certain.0.remove(&lock);
            let text = &stored_entry.text;
            let names = text.aliases.iter().chain(&text.keywords).chain([&text.name]);
            let mut words = PrivateTerms::default();
            for part in names.chain([&text.content]) {
                let content_words: Vec<&str> = part.split_whitespace().filter(|word| !is_date_word(word)).collect();
                words.add_text_except(&content_words.join(" "), silent);
            }
            let locks: DisclosureLocks = [lock].into_iter().collect();
            split.lore.push(LockedEntry {
                is_korean: has_hangul(&text.content),
                names: text.aliases.iter().chain([&text.name]).cloned().collect(),
                words: LockedWords { words, locks },
            });
        }
        Ok(split)
    }

    /// Returns the locks of a text, given with its keywords.
    pub(super) fn locks_of(&self, texts: &[&str]) -> DisclosureLocks {
        let mut locks = self.certain.clone();
        let is_korean = texts.iter().any(|text| has_hangul(text));
        let memories = self.by_words.iter().filter(|locked| locked.words.may_be_told_by(texts));
        let entries = self.lore.iter().filter(|entry| entry.may_be_told_by(texts, is_korean));
        for locked in memories.chain(entries.map(|entry| &entry.words)) {
            locks.extend_with(&locked.locks);
        }
        locks
    }
}

pub(super) fn has_hangul(text: &str) -> bool {
    text.chars().any(is_hangul)
}

/// Returns the entries of `locked` that are open to the hearers at `viewpoint`. Without locks, nothing is read.
pub(super) async fn filter_open<T>(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    locked: Vec<(T, DisclosureLocks)>,
) -> StoreResult<Vec<T>> {
    let entries = locked.iter().flat_map(|(_, locks)| locks.lore_keys());
    let entries: HashSet<(NpcId, LoreId)> = entries.map(|(npc, entry)| (npc.clone(), entry.clone())).collect();
    let (unlocked, open) = tokio::try_join!(
        unlocked_scenarios(services, scope, world, viewpoint, &locked),
        lore::open_entries(services, scope, world, viewpoint, &entries),
    )?;
    let gossip = world.settings.allows_gossip();
    let is_unlocked = |(npc, scenario): (&NpcId, &ScenarioId)| unlocked.contains(&(npc.clone(), scenario.clone()));
    let is_open = |locks: &DisclosureLocks| {
        locks.are_open_to(viewpoint, gossip, is_unlocked, |(npc, entry)| {
            open.contains(&(npc.clone(), entry.clone()))
        })
    };
    Ok(locked
        .into_iter()
        .filter(|(_, locks)| is_open(locks))
        .map(|(content, _)| content)
        .collect())
}

/// Returns the `facts` that may be used from `viewpoint`, in the same order.
pub(super) async fn filter_open_facts(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    mut facts: Vec<Fact>,
) -> StoreResult<Vec<Fact>> {
    let locked = facts.iter().filter(|fact| !fact.locks.is_empty());
    let locked: Vec<_> = locked.map(|fact| (fact.id, fact.locks.clone())).collect();
    let locked_ids: HashSet<FactId> = locked.iter().map(|(fact, _)| *fact).collect();
    let open: HashSet<FactId> = filter_open(services, scope, world, viewpoint, locked)
        .await?
        .into_iter()
        .collect();
    facts.retain(|fact| !locked_ids.contains(&fact.id) || open.contains(&fact.id));
    Ok(facts)
}

/// Returns the NPCs whose scenarios have conditions.
async fn load_tellers(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    required: &[RequiredProgress],
) -> StoreResult<HashMap<NpcId, Npc>> {
    let mut tellers: HashMap<NpcId, Npc> = HashMap::new();
    for requirement in required.iter().filter(|requirement| !requirement.when.is_empty()) {
        let id = &requirement.npc;
        if !tellers.contains_key(id) {
            let npc = services.ledger.authored.load_npc(scope, &world.id, id).await?;
            tellers.extend(npc.map(|npc| (id.clone(), npc)));
        }
    }
    Ok(tellers)
}

/// Returns the scenarios among the locks that the player may hear.
async fn unlocked_scenarios<T>(
    services: &Services,
    scope: &TenantScope,
    world: &World,
    viewpoint: &Viewpoint,
    locked: &[(T, DisclosureLocks)],
) -> StoreResult<HashSet<(NpcId, ScenarioId)>> {
    let scenario_keys: BTreeSet<(NpcId, ScenarioId)> = locked
        .iter()
        .flat_map(|(_, locks)| locks.scenario_keys())
        .map(|(npc, scenario)| (npc.clone(), scenario.clone()))
        .collect();
    if scenario_keys.is_empty() || viewpoint.sees_all_players {
        return Ok(HashSet::new());
    }
    let scenario_keys: Vec<(NpcId, ScenarioId)> = scenario_keys.into_iter().collect();
    let scenarios = &services.ledger.scenarios;
    let (required, state) = tokio::try_join!(
        scenarios.load_required_progress(scope, &world.id, &scenario_keys),
        services.memory_cache.world_state(services, scope, &world.id),
    )?;
    let rules = world.settings.unlock_rules();
    let tellers = load_tellers(services, scope, world, &required).await?;
    let conditions_hold = |requirement: &RequiredProgress| {
        requirement.when.is_empty()
            || tellers.get(&requirement.npc).is_some_and(|npc| {
                let settings = &world.settings;
                let player = viewpoint.player.as_ref();
                let context = ConditionContext::new(&state, settings, npc, player, services.clock.now());
                context.all_hold(&requirement.when)
            })
    };
    // Without a player, or at no progress, only scenarios that need no progress are open.
    let progress_with = |npc: &NpcId, name: &str| {
        progress::progress_state(
            &state.milestones,
            rules,
            &NpcNames::new(npc, name),
            viewpoint.player.as_ref(),
        )
        .progress()
    };
    Ok(required
        .into_iter()
        .filter(|requirement| {
            progress_with(&requirement.npc, &requirement.npc_name) >= requirement.progress
                && conditions_hold(requirement)
        })
        .map(|requirement| (requirement.npc, requirement.scenario))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_locks_texts_with_its_words_or_with_its_whole_name() {
        let mut words = PrivateTerms::default();
        words.add_text("The smugglers hid the crown.");
        let entry = LockedEntry {
            is_korean: false,
            names: vec!["old well".to_owned()],
            words: LockedWords {
                words,
                locks: DisclosureLocks::default(),
            },
        };
        for (text, is_korean, may_tell) in [
            ("The old well holds a ring.", false, true),
            ("Something lies in the Old Well.", false, true),
            ("The crown is heavy.", false, true),
            ("All is well, old friend.", false, false),
            ("The oldest wells are dry.", false, false),
            ("오늘은 비가 온다.", true, true),
        ] {
            assert_eq!(entry.may_be_told_by(&[text], is_korean), may_tell, "{text}");
        }
    }
}
