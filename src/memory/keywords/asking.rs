//! Lines that certainly ask nothing (docs/algorithms.md#intent-and-follow-ups). Their intent needs no model.

use std::sync::LazyLock;

use super::{
    korean::is_hangul,
    normal_text::normalise_text,
    references::{ReferencePhrase, occur_in_order, padded_words, parse_phrases, points_at, refers_back},
    words::word_weight,
};

const ASKING_DATA: &str = include_str!("../../../config/lexicon/stopwords/asking.txt");

/// The mark of an ending in [`ASKING_DATA`].
const ENDING_MARK: char = '~';

const QUESTION_MARKS: [char; 2] = ['?', '？'];
/// The marks at the end of a statement. Players who type no marks leave out question marks, too.
const STATEMENT_MARKS: [char; 4] = ['.', '!', '。', '！'];
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

/// The verbs that begin an English question, whatever follows.
const ASKING_VERBS: [&str; 16] = [
    "do", "does", "did", "is", "are", "was", "were", "am", "can", "could", "will", "would", "should", "shall", "when",
    "which",
];
/// The other verbs that stand before the subject of a question. They also begin orders: "have a seat", "don't move".
const OTHER_VERBS: [&str; 20] = [
    "have",
    "has",
    "had",
    "may",
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
    "ain't",
];
/// A line of so few words that begins with "and" asks for more of the same ("and the other five").
const MAX_WORDS_AFTER_AND: usize = 5;
/// A line of so few words may answer the reply before, and choose what the NPC tells ("the flood, if you don't mind").
const MAX_WORDS_OF_ANSWER: usize = 8;
/// The subjects that follow these verbs in a question.
const SUBJECTS: [&str; 14] = [
    "i", "you", "u", "ya", "he", "she", "they", "we", "it", "there", "anyone", "anybody", "somebody", "someone",
];
/// The ends of Korean greetings, farewells and requests, which sound like questions.
const KOREAN_COURTESIES: [&str; 3] = ["안녕하세요", "주세요", "계세요"];
const SENTENCE_ENDS: [char; 5] = ['.', '!', ';', '…', '\n'];
/// Words before the first word of a question.
const OPENINGS: [&str; 12] = [
    "and", "so", "but", "or", "well", "then", "oh", "hey", "um", "uh", "please", "ok",
];

/// True if a player's line is closed by a mark and certainly asks nothing, also no question without a mark.
/// `reply_before` is the NPC's last line, which a short line may answer. In doubt the answer is false, as for any line
/// that is neither English nor Korean.
#[must_use]
pub fn asks_nothing(line: &str, reply_before: &str) -> bool {
    let is_closed = line
        .trim_end_matches(['"', '”', '\'', '’', ')'])
        .ends_with(STATEMENT_MARKS);
    if !is_closed || line.contains(QUESTION_MARKS) || refers_back(line) {
        return false;
    }
    let line = normalise_text(line).replace('’', "'");
    let words = padded_words(&line);
    let count = words.split_whitespace().count();
    let may_answer = || reply_before.contains(QUESTION_MARKS) || points_at(&line, &[reply_before]);
    if count < MIN_WORDS
        || (count <= MAX_WORDS_OF_ANSWER && may_answer())
        || (count <= MAX_WORDS_AFTER_AND && words.starts_with(" and "))
    {
        return false;
    }
    let is_korean = line.chars().any(is_hangul);
    (is_korean || is_english(&words)) && !sounds_like_question(&line, &words)
}

/// True if a line sounds like a question or a request to tell, with or without a mark.
pub(super) fn asks_something(line: &str) -> bool {
    let normal_line = normalise_text(line).replace('’', "'");
    line.contains(QUESTION_MARKS) || sounds_like_question(&normal_line, &padded_words(&normal_line))
}

/// True for a question or a request to tell. `words`: the padded words of the normalised `line`.
fn sounds_like_question(line: &str, words: &str) -> bool {
    let mut sentences = line.split(SENTENCE_ENDS);
    let is_question = if line.chars().any(is_hangul) {
        sentences.any(ends_like_korean_question)
    } else {
        sentences.any(sounds_like_english_question) || has_inversion(words)
    };
    is_question || ASKING_PHRASES.iter().any(|phrase| occur_in_order(words, phrase))
}

fn ends_like_korean_question(sentence: &str) -> bool {
    let sentence = sentence.trim_end_matches(|c: char| !c.is_alphanumeric() || matches!(c, 'ㅋ' | 'ㅎ' | 'ㅠ' | 'ㅜ'));
    has_asking_ending(sentence) && !KOREAN_COURTESIES.iter().any(|courtesy| sentence.ends_with(courtesy))
}

fn has_asking_ending(sentence: &str) -> bool {
    ASKING_ENDINGS.iter().any(|ending| sentence.ends_with(ending))
}

/// True if a line has an English word that other languages lack: "the", "my".
fn is_english(words: &str) -> bool {
    words.split_whitespace().any(|word| word_weight(word) == Some(0.0))
}

fn sounds_like_english_question(sentence: &str) -> bool {
    let words = padded_words(sentence);
    let first = words.split_whitespace().find(|word| !OPENINGS.contains(word));
    first.is_some_and(|word| ASKING_VERBS.contains(&word)) || has_asking_ending(words.trim_end())
}

/// True if a line has a verb before its subject: "and do you".
fn has_inversion(words: &str) -> bool {
    let words: Vec<&str> = words.split_whitespace().collect();
    let is_verb = |word| ASKING_VERBS.contains(&word) || OTHER_VERBS.contains(&word);
    words
        .windows(2)
        .any(|pair| is_verb(pair[0]) && SUBJECTS.contains(&pair[1]))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Lines in the style of players, sorted by people with the rules of the classifier's prompt: language, intent, the
    /// NPC's last line (or empty), and the player's line.
    pub(in crate::keywords) const SORTED_LINES: &str = include_str!("../../../tests/data/intents.tsv");

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
        assert!(small_talk[0] >= 25, "{small_talk:?}");
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
