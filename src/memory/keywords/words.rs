//! The general information weight of a word, from a fixed table, and the forms of English words.

use std::{collections::HashMap, sync::LazyLock};

use rust_stemmers::{Algorithm, Stemmer};

const ENGLISH_WEIGHTS_DATA: &str = include_str!("../../../config/lexicon/stopwords/en.txt");
const KOREAN_WEIGHTS_DATA: &str = include_str!("../../../config/lexicon/stopwords/ko.txt");

static WORD_WEIGHTS: LazyLock<HashMap<&'static str, f32>> = LazyLock::new(|| {
    let mut table = HashMap::new();
    for data in [ENGLISH_WEIGHTS_DATA, KOREAN_WEIGHTS_DATA] {
        let mut weight = 1.0;
        for line in data.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            if let Some(number) = line.strip_prefix('=') {
                weight = number.trim().parse().unwrap_or(1.0);
            } else {
                table.extend(line.split_whitespace().map(|word| (word, weight)));
            }
        }
    }
    table
});

/// The weight of a word, in [0, 1]. `None`: not in the table, which means 1.
pub fn word_weight(word: &str) -> Option<f32> {
    WORD_WEIGHTS.get(word).copied()
}

/// The weight of an English word: of its singular, of its unchanged form or, for words such as "don't", of its
/// beginning.
pub fn english_weight(word: &str, singular: &str) -> f32 {
    word_weight(singular)
        .or_else(|| word_weight(word))
        .or_else(|| word_weight(singular.split('\'').next().unwrap_or("")))
        .unwrap_or(1.0)
}

/// The Snowball stem of an English word: volunteering, volunteers → volunt. Words with other letters stay unchanged.
pub fn stem_english(word: &str) -> String {
    static ENGLISH: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));
    if word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        ENGLISH.stem(word).into_owned()
    } else {
        word.to_owned()
    }
}

/// Removes plural and possessive endings of an English word: grapes → grape, berries → berry.
pub fn singular_of(word: &str) -> String {
    let word = word
        .strip_suffix("'s")
        .or_else(|| word.strip_suffix('\''))
        .unwrap_or(word);
    if word.len() > 4 {
        if let Some(body) = word.strip_suffix("ies") {
            return format!("{body}y");
        }
        for ending in ["xes", "ches", "shes", "sses", "zes"] {
            if word.ends_with(ending) {
                return word[..word.len() - 2].to_owned();
            }
        }
    }
    let plural = word.len() > 3 && word.ends_with('s') && !["ss", "us", "is"].iter().any(|end| word.ends_with(end));
    if plural {
        word[..word.len() - 1].to_owned()
    } else {
        word.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals_become_singular() {
        for (word, expected) in [
            ("grapes", "grape"),
            ("berries", "berry"),
            ("boxes", "box"),
            ("wolves", "wolve"),
            ("king's", "king"),
            ("glass", "glass"),
            ("bus", "bus"),
            ("ergen", "ergen"),
            ("is", "is"),
            ("ties", "tie"),
        ] {
            assert_eq!(singular_of(word), expected);
        }
    }

    #[test]
    fn forms_of_an_english_word_share_a_stem() {
        for (a, b) in [
            ("volunteering", "volunteers"),
            ("painted", "painting"),
            ("allergies", "allergy"),
            ("adopting", "adoption"),
            ("hopeful", "hope"),
        ] {
            assert_eq!(stem_english(a), stem_english(b), "{a} {b}");
        }
        for word in ["ergen", "3", "café", "мельница"] {
            assert_eq!(stem_english(word), word);
        }
    }

    #[test]
    fn listed_weights_are_between_zero_and_one() {
        assert!(WORD_WEIGHTS.len() > 400, "the data files were read");
        assert!(WORD_WEIGHTS.values().all(|weight| (0.0..1.0).contains(weight)));
        assert_eq!(word_weight("the"), Some(0.0));
        assert_eq!(word_weight("grape"), None);
    }
}
