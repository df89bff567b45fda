//! The locks of a text, by the words that the text shares with locked content.

use std::collections::BTreeSet;

use crate::Services;
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    agreement::is_date_word,
    authored::World,
    disclosure::{
        locks::{DisclosureLock, DisclosureLocks},
        private_terms::PrivateTerms,
    },
    keywords::{informative_terms, is_hangul},
    lore::is_named_in,
    trace::{LockedWords, TurnTrace},
};
use colloquy_ports::{StoreResult, ledger::jobs::JobInput};

/// Words that most promises and most memories share.
const COMMON_WORDS: &str = "promise promises promised agree agreed player 약속 약속하다 약속했다 플레이어";

/// The terms of the speakers' names and of common words. They identify no text.
pub(crate) fn silent_terms<'n>(names: impl IntoIterator<Item = &'n str>) -> BTreeSet<u32> {
    let names = names.into_iter().chain([COMMON_WORDS]);
    names.flat_map(informative_terms).collect()
}

/// Returns the words of texts without the `silent` words, and without dates and numbers, which unrelated texts share.
pub(crate) fn words_of(texts: &[&str], silent: &BTreeSet<u32>) -> PrivateTerms {
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
pub(crate) struct LocksByWords {
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
    pub(crate) fn of_every_text(locks: DisclosureLocks) -> Self {
        Self {
            certain: locks,
            ..Self::default()
        }
    }

    /// Compares texts with the present entries of the lore among `locks`, without the words of [`silent_terms`].
    pub(crate) async fn load(
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

    /// Returns the locks of what a player's dialogue may have told by the turn of `trace`, and of the locked memories of
    /// the turn's prompt.
    pub(crate) async fn of_told(
        services: &Services,
        scope: &TenantScope,
        job_input: &JobInput,
        trace: &TurnTrace,
    ) -> StoreResult<Self> {
        let told_locks = trace.told_locks.as_ref().unwrap_or(&trace.locks);
        let mut locks = Self::load(services, scope, &job_input.world, told_locks, &job_input.npc.name).await?;
        locks.by_words.extend(trace.locked.iter().cloned());
        Ok(locks)
    }

    /// Returns the locks of a text, given with its keywords.
    pub(crate) fn locks_of(&self, texts: &[&str]) -> DisclosureLocks {
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

pub(crate) fn has_hangul(text: &str) -> bool {
    text.chars().any(is_hangul)
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
