//! Lines that certainly ask nothing (docs/algorithms.md#intent-and-follow-ups). Their intent needs no model.

use std::sync::LazyLock;

use super::{
    is_hangul, normalise_text, points_at,
    references::{ReferencePhrase, occur_in_order, padded_words, parse_phrases},
    words::word_weight,
};

const ASKING_DATA: &str = include_str!("../../../config/lexicon/stopwords/asking.txt");

/// The mark of an ending in [`ASKING_DATA`].
const ENDING_MARK: char = '~';

/// A shorter line leaves too much unsaid ("more, please").
const MIN_WORDS: usize = 3;

static ASKING_PHRASES: LazyLock<Vec<Vec<ReferencePhrase>>> = LazyLock::new(|| {
    let phrases = parse_phrases(ASKING_DATA).into_iter();
    phrases.filter(|phrase| !phrase[0].0.starts_with(ENDING_MARK)).collect()
});
static ASKING_ENDINGS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let lines = ASKING_DATA.lines().map(str::trim);
    lines.filter_map(|line| line.strip_prefix(ENDING_MARK)).collect()
});

/// The verbs that begin an English question.
const HELPERS: [&str; 36] = [
    "do",
    "does",
    "did",
    "is",
    "are",
    "was",
    "were",
    "am",
    "have",
    "has",
    "had",
    "can",
    "could",
    "will",
    "would",
    "should",
    "may",
    "shall",
    "must",
    "isn't",
    "aren't",
    "wasn't",
    "weren't",
    "don't",
    "doesn't",
    "didn't",
    "won't",
    "can't",
    "couldn't",
    "wouldn't",
    "shouldn't",
    "haven't",
    "hasn't",
    "hadn't",
    "ain't",
    "any",
];
/// A line of so few words that begins with "and" asks for more of the same ("and the other five").
const MAX_WORDS_AFTER_AND: usize = 5;
/// The subjects that follow these verbs in a question.
const SUBJECTS: [&str; 14] = [
    "i", "you", "u", "ya", "he", "she", "they", "we", "it", "there", "anyone", "anybody", "somebody", "someone",
];
/// Words before the first word of a question.
const OPENINGS: [&str; 12] = [
    "and", "so", "but", "or", "well", "then", "oh", "hey", "um", "uh", "please", "ok",
];

/// True if a player's line certainly asks nothing, also no question without a mark, and does not point at
/// `reply_before`, the NPC's last line. In doubt the answer is false, as for any line that is neither English nor
/// Korean.
#[must_use]
pub fn asks_nothing(line: &str, reply_before: &str) -> bool {
    if line.contains(['?', '？']) || points_at(line, &[reply_before]) {
        return false;
    }
    let line = normalise_text(line).replace('’', "'");
    let words = padded_words(&line);
    let count = words.split_whitespace().count();
    if count < MIN_WORDS
        || (count <= MAX_WORDS_AFTER_AND && words.starts_with(" and "))
        || ASKING_PHRASES.iter().any(|phrase| occur_in_order(&words, phrase))
    {
        return false;
    }
    let mut sentences = line.split(['.', '!', ',', ';', ':', '…', '—', '\n']);
    if line.chars().any(is_hangul) {
        !sentences.any(ends_like_korean_question)
    } else {
        is_english(&words) && !sentences.any(begins_like_english_question) && !has_inversion(&words)
    }
}

fn ends_like_korean_question(sentence: &str) -> bool {
    let sentence = sentence.trim_end_matches(|c: char| !c.is_alphanumeric() || matches!(c, 'ㅋ' | 'ㅎ' | 'ㅠ' | 'ㅜ'));
    ASKING_ENDINGS.iter().any(|ending| sentence.ends_with(ending))
}

/// True if a line has an English word that other languages lack: "the", "my".
fn is_english(words: &str) -> bool {
    words.split_whitespace().any(|word| word_weight(word) == Some(0.0))
}

fn begins_like_english_question(sentence: &str) -> bool {
    let words = padded_words(sentence);
    let first = words.split_whitespace().find(|word| !OPENINGS.contains(word));
    first.is_some_and(|word| HELPERS.contains(&word))
}

/// True if a line has a verb before its subject: "and do you".
fn has_inversion(words: &str) -> bool {
    let words: Vec<&str> = words.split_whitespace().collect();
    words
        .windows(2)
        .any(|pair| HELPERS.contains(&pair[0]) && SUBJECTS.contains(&pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines in the style of players, sorted by people with the rules of the classifier's prompt: language, intent, the
    /// NPC's last line (or empty), and the player's line.
    const SORTED_LINES: &str = include_str!("../../../tests/data/intents.tsv");

    #[test]
    fn lines_that_ask_nothing_are_small_talk() {
        let mut small_talk = [0, 0];
        for row in SORTED_LINES.lines() {
            let columns: Vec<&str> = row.split('\t').collect();
            let [_, intent, reply_before, line] = columns[..] else {
                panic!("{row}")
            };
            let asks = !asks_nothing(line, reply_before);
            assert!(asks || intent == "chat", "{intent}: {line}");
            small_talk[usize::from(asks)] += usize::from(intent == "chat");
        }
        // Nearly half of the small talk is recognised, so that fewer lines cost a call.
        assert!(small_talk[0] >= 60, "{small_talk:?}");
    }

    #[test]
    fn lines_in_other_languages_and_short_lines_may_ask() {
        for line in [
            "wo wohnt mein bruder",
            "dónde vive mi hermano",
            "彼はどこに住んでいる",
            "more of it",
            "그리고",
            "",
        ] {
            assert!(!asks_nothing(line, ""), "{line}");
        }
        let told = "I mended the cage door for you.";
        assert!(asks_nothing(told, ""));
        assert!(
            !asks_nothing(told, "The cage is broken."),
            "the line points at the reply before"
        );
    }
}
