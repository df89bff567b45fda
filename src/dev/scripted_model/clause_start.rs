//! Words at the start of a clause that say nothing.

use super::lexicon::Lexicon;

/// Removes fillers and an addressed name from the start of an English clause.
pub(super) fn strip_start(lexicon: &Lexicon, piece: &str, vocative: &str) -> String {
    let mut rest = piece.trim().trim_start_matches([',', ' ']);
    loop {
        let lower = rest.to_lowercase();
        let longest = lexicon
            .word_list("fillers")
            .iter()
            .map(String::as_str)
            .filter(|filler| starts_with_words(&lower, filler))
            .max_by_key(|filler| filler.len());
        let length = match longest {
            Some(filler) if !filler.is_empty() => filler.len(),
            _ if !vocative.is_empty() && (rest == vocative || rest.starts_with(&format!("{vocative},"))) => {
                vocative.len()
            }
            _ => return rest.to_owned(),
        };
        // Lower-casing can change lengths outside ASCII. Fillers are ASCII, so their matches are ASCII too.
        rest = rest
            .get(length..)
            .unwrap_or_default()
            .trim_start_matches([',', ' ', ':']);
    }
}

fn starts_with_words(text: &str, words: &str) -> bool {
    text.strip_prefix(words)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ',', ':']))
}
