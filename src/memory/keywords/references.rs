//! Lines that refer to an earlier line. Their search includes the last raw turns, and scenarios just unlocked or told
//! come first (docs/algorithms.md#intent-and-follow-ups).

use std::sync::LazyLock;

use super::{informative::informative_terms, normal_text::normalise_text, query_terms};

const REFERENCES_DATA: &str = include_str!("../../../config/lexicon/stopwords/pointing.txt");
const PRONOUNS_DATA: &str = include_str!("../../../config/lexicon/stopwords/pronouns.txt");

/// The minimum weight of a word that "that" belongs to: "that evening".
const MIN_NOUN_WEIGHT: f32 = 0.3;

/// A phrase, and whether it must end where a word ends.
pub(super) type ReferencePhrase = (&'static str, bool);

static REFERENCE_PHRASES: LazyLock<Vec<Vec<ReferencePhrase>>> = LazyLock::new(|| parse_phrases(REFERENCES_DATA));
static PRONOUNS: LazyLock<Vec<Vec<ReferencePhrase>>> = LazyLock::new(|| parse_phrases(PRONOUNS_DATA));

pub(super) fn parse_phrases(data: &'static str) -> Vec<Vec<ReferencePhrase>> {
    data.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(parse_phrase)
        .collect()
}

/// Parses the parts of a phrase, joined by `+`, each with a `$` if it must end where a word ends.
pub(super) fn parse_phrase(phrase: &'static str) -> Vec<ReferencePhrase> {
    let parts = phrase.split(" + ");
    parts
        .map(|part| part.strip_suffix('$').map_or((part, false), |phrase| (phrase, true)))
        .collect()
}

/// True if a line may speak of what `texts` has: it refers back, has a pronoun for somebody, or shares an informative
/// word.
#[must_use]
pub fn points_at(line: &str, texts: &[&str]) -> bool {
    let words = padded_words(line);
    if refers_back(line) || PRONOUNS.iter().any(|phrases| occur_in_order(&words, phrases)) {
        return true;
    }
    let terms = informative_terms(line);
    texts.iter().any(|text| !terms.is_disjoint(&informative_terms(text)))
}

/// True if a line refers to an earlier line ("then", "that", "what you just said"; 그때, 그거, 방금 말한 거).
#[must_use]
pub fn refers_back(text: &str) -> bool {
    let line = padded_words(text);
    REFERENCE_PHRASES.iter().any(|phrases| occur_in_order(&line, phrases)) || has_referring_that(text)
}

/// Returns the words with single blanks between them and at either end, without punctuation.
pub(super) fn padded_words(text: &str) -> String {
    let mut line = String::with_capacity(text.len() + 2);
    line.push(' ');
    for word in split_at_marks(&normalise_text(text)).filter(|word| !word.is_empty()) {
        line.push_str(word);
        line.push(' ');
    }
    line
}

/// Splits a text at every character that belongs to no word. Two such characters have an empty word between them.
fn split_at_marks(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '\'')
}

pub(super) fn occur_in_order(line: &str, phrases: &[ReferencePhrase]) -> bool {
    let mut from = 0;
    phrases.iter().all(|&(phrase, is_whole_word)| {
        let hit = line[from..].match_indices(phrase).find(|&(start, _)| {
            let start = from + start;
            line[..start].ends_with(' ') && (!is_whole_word || line[start + phrase.len()..].starts_with(' '))
        });
        if let Some((start, _)) = hit {
            from += start + phrase.len();
        }
        hit.is_some()
    })
}

/// True if "that" refers back ("who did that?", "is that true?").
///
/// A conjunction ("I know that he left"), an opinion ("that's strong stuff!", "that was fun") and "that" before an
/// informative word ("that first day") do not refer back.
fn has_referring_that(text: &str) -> bool {
    const JOINS: [&str; 17] = [
        "i", "you", "he", "she", "we", "they", "it", "the", "my", "your", "his", "her", "our", "their", "there", "a",
        "an",
    ];
    const ASKS: [&str; 7] = ["what", "who", "where", "when", "why", "how", "which"];
    const JUDGES: [&str; 15] = [
        "is", "was", "are", "were", "isn't", "wasn't", "sounds", "looks", "seems", "smells", "tastes", "would", "must",
        "will", "does",
    ];
    // Before "that" in "is that true?" and "did that hurt?".
    const HELPERS: [&str; 12] = [
        "is", "was", "are", "were", "isn't", "wasn't", "does", "did", "would", "will", "could", "can",
    ];
    let text = normalise_text(text);
    // A mark leaves an empty word, which ends what "that" can belong to.
    let words: Vec<&str> = text.split_whitespace().flat_map(split_at_marks).collect();
    let word = |index: usize| words.get(index).copied().unwrap_or("");
    let before = |index: usize, distance: usize| index.checked_sub(distance).map_or("", word);
    words.iter().enumerate().any(|(index, this)| match *this {
        "that's" => ASKS.contains(&word(index + 1)),
        "that" | "those" if JUDGES.contains(&word(index + 1)) => ASKS.contains(&word(index + 2)),
        "that" | "those" => {
            let next = word(index + 1);
            let asks_of_that = HELPERS.contains(&before(index, 1)) && !ASKS.contains(&before(index, 2));
            let is_alone = asks_of_that && word(index + 2).is_empty();
            !JOINS.contains(&next) && (is_alone || !can_be_noun(next))
        }
        _ => false,
    })
}

/// True if an English word is informative enough to be what "that" belongs to.
fn can_be_noun(word: &str) -> bool {
    query_terms(word).0.iter().any(|(_, weight)| *weight >= MIN_NOUN_WEIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_points_at_the_last_turn_by_a_pronoun_or_a_word_of_it() {
        let said = ["My sister Bera lives in Oakford.", "A fine place. I sell salt."];
        for (line, points) in [
            ("Where does Bera live?", true),
            ("How old is she?", true),
            ("Is Oakford far?", true),
            ("What did you just say?", true),
            ("Do you have a room?", false),
            ("Is it cold today?", false),
            ("Hello!", false),
        ] {
            assert_eq!(points_at(line, &said), points, "{line}");
        }
        let said = ["내 동생 베라는 오크포드에 살아요.", "좋은 곳이지요."];
        for (line, points) in [
            ("베라가 어디 산다고 했죠?", true),
            ("그녀는 몇 살이에요?", true),
            ("그분은 잘 지내나요?", true),
            ("빈 방이 있나요?", false),
        ] {
            assert_eq!(points_at(line, &said), points, "{line}");
        }
    }

    #[test]
    fn referring_lines_are_recognised() {
        for line in [
            "그때 어떻게 됐어?",
            "그거 더 말해 줘",
            "방금 말한 거 진짜야?",
            "아까 그 얘기 마저 해 줘",
            "아까 말씀하신 데가 어디예요?",
            "아까 네가 말한 사람 말이야",
            "방금 뭐라고 했어?",
            "그 사람은 누구야?",
            "And then?",
            "What happened then?",
            "Who did that?",
            "What did you just say?",
            "tell me more about that, please",
            "Is that true?",
            "Is that true, Bram?",
            "And did that hurt?",
            "What was that thing you said?",
            "I like that. Bram does too.",
            "Tell me about that, Bram.",
            "That's what I meant.",
        ] {
            assert!(refers_back(line), "{line}");
        }
    }

    #[test]
    fn other_lines_are_not_referring() {
        for line in [
            "내가 좋아하는 과일이 뭐였지?",
            "방금 왔어",
            "그림을 그리자",
            "What fruit do I like?",
            "I know that he lives here",
            "That's strange.",
            "That's strong stuff! Is it market day again?",
            "That was a good year",
            "Those are fine boots",
            "What was it he said on the train, that first day?",
            "Where were you that evening?",
            "Is that door locked at night?",
            "Who was that man?",
            "Were those boots yours?",
            "Strengthen the gate",
            "나는 포도를 좋아해",
            "저 사실 아까 민수한테 들켰어요. 형이 다 말해 줬다며 놀리더라고요",
            "방금 민수랑 그네 탔어",
            "아까 선생님이 저한테 이야기책을 주셨어요",
            "",
        ] {
            assert!(!refers_back(line), "{line}");
        }
    }
}
