//! The likeliest intent of a line by its words (docs/algorithms.md#intent-and-follow-ups).

use std::sync::LazyLock;

use super::{
    asking::asks_something,
    references::{ReferencePhrase, occur_in_order, padded_words, parse_phrase},
};
use crate::turn::Intent;

const INTENT_DATA: &str = include_str!("../../../config/lexicon/stopwords/expected_intents.txt");

/// The phrases with their intents. The first phrase of a line counts.
static INTENT_PHRASES: LazyLock<Vec<(Intent, Vec<ReferencePhrase>)>> = LazyLock::new(|| {
    let lines = INTENT_DATA.lines().map(str::trim);
    lines
        .filter_map(|line| line.split_once(": "))
        .filter_map(|(intent, phrase)| Some((intent.parse().ok()?, parse_phrase(phrase))))
        .collect()
});

/// Returns the likeliest intent of a player's line, by phrases in English and Korean. A question without such a phrase is
/// about the world, and any other line is small talk.
///
/// The answer is the classifier's in two lines of three: see the test below.
#[must_use]
pub fn expected_intent(line: &str) -> Intent {
    let words = padded_words(line);
    let named = INTENT_PHRASES
        .iter()
        .find(|(_, phrases)| occur_in_order(&words, phrases));
    match named {
        Some((intent, _)) => *intent,
        None if asks_something(line) => Intent::World,
        None => Intent::Chat,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keywords::asking::{asks_nothing, tests::SORTED_LINES};

    #[test]
    fn every_line_of_the_data_has_an_intent() {
        let lines = INTENT_DATA
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        assert_eq!(INTENT_PHRASES.len(), lines.count());
    }

    #[test]
    fn two_lines_of_three_get_the_intent_that_people_gave_them() {
        let mut right = 0;
        let mut wrong = Vec::new();
        for row in SORTED_LINES.lines() {
            let columns: Vec<&str> = row.split('\t').collect();
            let [_, intent, reply_before, line] = columns[..] else {
                panic!("{row}")
            };
            // Such a line needs no classifier.
            if asks_nothing(line, reply_before) {
                continue;
            }
            let expected = expected_intent(line);
            if expected.as_str() == intent {
                right += 1;
            } else {
                wrong.push(format!("{intent}, not {}: {line}", expected.as_str()));
            }
        }
        assert!(right > 2 * wrong.len(), "{right} right\n{}", wrong.join("\n"));
    }
}
