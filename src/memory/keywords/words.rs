//! How informative a word is: a fixed background table instead of counts over the store.
//!
//! Both store columns must give the same fact the same score, and taking back one fact must not
//! move another's. So nothing here depends on what is stored.

use std::{collections::HashMap, sync::LazyLock};

const EN: &str = include_str!("../../../config/lexicon/stopwords/en.txt");
const KO: &str = include_str!("../../../config/lexicon/stopwords/ko.txt");

static TABLE: LazyLock<HashMap<&'static str, f32>> = LazyLock::new(|| {
    let mut table = HashMap::new();
    for data in [EN, KO] {
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

/// The weight of a word, in [0, 1]; `None`: it is not in the table, which means 1.
pub fn weight(word: &str) -> Option<f32> {
    TABLE.get(word).copied()
}

/// Takes plural and possessive endings off an English word: grapes → grape, berries → berry.
pub fn singular(word: &str) -> String {
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
    fn plurals() {
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
            assert_eq!(singular(word), expected);
        }
    }

    #[test]
    fn every_listed_weight_is_a_share() {
        assert!(TABLE.len() > 400, "the data files were read");
        assert!(TABLE.values().all(|weight| (0.0..1.0).contains(weight)));
        assert_eq!(weight("the"), Some(0.0));
        assert_eq!(weight("grape"), None);
    }
}
