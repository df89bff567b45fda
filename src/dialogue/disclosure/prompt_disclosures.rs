//! What the prompt of a turn discloses: the locks of its content, and its private words.

use std::collections::BTreeSet;

use super::locks_by_words::words_of;
use colloquy_memory::{
    disclosure::{locks::DisclosureLocks, private_terms::PrivateTerms},
    trace::LockedWords,
};

/// The locked and the private content in the prompt of a turn.
#[derive(Default)]
pub(crate) struct Disclosures {
    /// Locks that count as told as soon as a prompt has their content.
    pub told_at_once: DisclosureLocks,
    /// Texts whose locks count as told by a reply that shares a word with the text.
    texts: Vec<(String, DisclosureLocks)>,
    /// The words of content that is private to the player.
    pub confided: PrivateTerms,
}

impl Disclosures {
    /// Adds a text of the prompt that some players may not hear. A text without locks adds nothing.
    pub(crate) fn add_text(&mut self, text: &str, locks: &DisclosureLocks) {
        if !locks.is_empty() {
            self.texts.push((text.to_owned(), locks.clone()));
        }
    }

    /// True if no text of the prompt has locks of its own.
    pub(crate) const fn has_no_texts(&self) -> bool {
        self.texts.is_empty()
    }

    /// Returns the words of the locked texts, without the `silent` words, which identify no text.
    pub(crate) fn locked_words(&self, silent: &BTreeSet<u32>) -> Vec<LockedWords> {
        let locked_words = self.texts.iter().map(|(text, locks)| LockedWords {
            words: words_of(&[text], silent),
            locks: locks.clone(),
        });
        locked_words.collect()
    }
}
