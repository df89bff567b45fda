//! Short names of people.

use colloquy_memory::keywords::{informative_terms, short_names_of};

/// Returns the short names of a person without common words such as "Will".
pub(super) fn telling_short_names(name: &str) -> impl Iterator<Item = &str> {
    short_names_of(name).filter(|short| !short.is_ascii() || !informative_terms(short).is_empty())
}
