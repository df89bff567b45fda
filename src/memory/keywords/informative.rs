//! The informative terms of a text, for finding texts about the same content.

use std::{collections::BTreeSet, sync::LazyLock};

use super::{TermForms, UNIGRAM_WEIGHT, count_as_f32, for_each_run, hash_term, word_terms};

/// Words with less weight, in [0, 1], reveal no content.
const MIN_INFORMATIVE_WEIGHT: f32 = 0.5;
/// Words that everybody may use about any topic.
const SMALL_TALK_DATA: &str = include_str!("../../../config/lexicon/stopwords/small_talk.txt");

static SMALL_TALK_TERMS: LazyLock<BTreeSet<u32>> = LazyLock::new(|| small_talk_hashes(informative_terms));
static SMALL_TALK_WORDS: LazyLock<BTreeSet<u32>> = LazyLock::new(|| small_talk_hashes(informative_words));

fn small_talk_hashes(hashes_of: impl Fn(&str) -> BTreeSet<u32>) -> BTreeSet<u32> {
    let lines = SMALL_TALK_DATA.lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(hashes_of).collect()
}

/// A term for each informative word of a text.
///
/// Korean words, and words in scripts without spaces, have one term for every two adjacent characters. Other forms of a
/// word then share some terms. Two words with the same hash count as one word.
#[must_use]
pub fn informative_terms(text: &str) -> BTreeSet<u32> {
    let mut term_set = BTreeSet::new();
    for_each_run(text, &mut |run, script, attached| {
        let mut terms = Vec::new();
        let emit = &mut |term: u64, weight: f32, _: bool| terms.push((term, weight));
        let Some(word) = word_terms(run, script, attached, TermForms::STEMS, emit) else {
            return;
        };
        if word.weight >= MIN_INFORMATIVE_WEIGHT {
            // A single character of a longer word has no information.
            let min_weight = 1.5 * UNIGRAM_WEIGHT * word.weight / count_as_f32(word.stem.chars().count());
            let terms = terms.into_iter().filter(|(_, weight)| *weight > min_weight);
            term_set.extend(terms.map(|(term, _)| fold_term(term)));
        }
    });
    term_set
}

/// A term for each informative word of a text, in any script: the stem of the word. Numbers and words of one character
/// have none.
#[must_use]
pub fn informative_words(text: &str) -> BTreeSet<u32> {
    let mut word_set = BTreeSet::new();
    for_each_run(text, &mut |run, script, attached| {
        let word = word_terms(run, script, attached, TermForms::STEMS, &mut |_, _, _| {});
        let Some(word) = word.filter(|word| word.weight >= MIN_INFORMATIVE_WEIGHT) else {
            return;
        };
        let is_number = word.stem.chars().all(char::is_numeric);
        if !is_number && word.stem.chars().nth(1).is_some() {
            word_set.insert(fold_term(hash_term(word.stem.chars())));
        }
    });
    word_set
}

/// True if a term of [`informative_terms`] belongs to a small-talk word: "song", "brother", "고향".
#[must_use]
pub fn is_small_talk(term: u32) -> bool {
    SMALL_TALK_TERMS.contains(&term)
}

/// True if a word of [`informative_words`] is a small-talk word: "song", "brother", "어머니".
#[must_use]
pub fn is_small_talk_word(word: u32) -> bool {
    SMALL_TALK_WORDS.contains(&word)
}

fn fold_term(term: u64) -> u32 {
    let half = u64::from(u32::MAX);
    u32::try_from((term >> 32) ^ (term & half)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_forms_share_their_telling_terms() {
        for (one, other, same) in [
            ("She is pregnant.", "the pregnant one", true),
            ("two brothers", "her brother's", true),
            ("방앗간에서 일한다", "방앗간집", true),
            ("임신했어요", "임신한 사람", true),
            ("I like it very much", "Do you like me?", false),
            ("나무를 좋아해요", "나비를 좋아해요", false),
        ] {
            let found = informative_terms(one).intersection(&informative_terms(other)).count() > 0;
            assert_eq!(found, same, "{one} / {other}");
        }
    }

    #[test]
    fn common_topics_are_small_talk() {
        for (text, is) in [
            ("Do you have a favourite song?", true),
            ("고향이 어디예요?", true),
            ("어머니와 할머니는 남동생을 알아요?", true),
            ("the miller's grey mare", false),
            ("임신", false),
        ] {
            assert_eq!(informative_terms(text).into_iter().all(is_small_talk), is, "{text}");
            let mut words = informative_words(text).into_iter();
            assert_eq!(words.all(is_small_talk_word), is, "{text}");
        }
    }
}
