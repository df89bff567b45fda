//! Splits texts into sentences.

use std::sync::LazyLock;

use unicode_segmentation::UnicodeSegmentation as _;

use super::text::{WordList, word_list};

/// Titles whose full stop ends no sentence, in lower case.
static TITLES: WordList =
    LazyLock::new(|| word_list("dr, mr, mrs, ms, st, prof, capt, sgt, lt, col, gen, rev, fr, sr"));

/// Returns the sentences of a text, each with the blanks behind it. Together they are the text. "Dr. Hempel" and
/// "J. Sorley" are no ends of sentences.
pub fn split_sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut start = 0;
    let ends = text
        .split_sentence_bound_indices()
        .map(|(index, part)| index + part.len());
    ends.filter_map(move |end| {
        let sentence = &text[start..end];
        if end < text.len() && ends_in_abbreviation(sentence) {
            return None;
        }
        start = end;
        Some(sentence)
    })
}

/// True if a text ends in a title or a single capital letter with a full stop.
fn ends_in_abbreviation(text: &str) -> bool {
    let Some(text) = text.trim_end().strip_suffix('.') else {
        return false;
    };
    let word = text.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let mut letters = word.chars();
    let is_initial = letters.next().is_some_and(|c| c.is_uppercase() && c != 'I') && letters.next().is_none();
    is_initial || TITLES.contains(&word.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_and_initials_end_no_sentence() {
        for (text, sentences) in [
            ("", vec![]),
            (
                "He told Dr. Hempel so. She left.",
                vec!["He told Dr. Hempel so. ", "She left."],
            ),
            ("J. Sorley is here. It rains.", vec!["J. Sorley is here. ", "It rains."]),
            ("It was I. She left.", vec!["It was I. ", "She left."]),
            ("Ask the Dr.", vec!["Ask the Dr."]),
            ("비가 온다. 그는 갔다.", vec!["비가 온다. ", "그는 갔다."]),
        ] {
            assert_eq!(split_sentences(text).collect::<Vec<_>>(), sentences, "{text}");
        }
    }
}
