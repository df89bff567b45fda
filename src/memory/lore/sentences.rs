//! Finds texts by the words of a line: one sentence of the text has two of them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use crate::{
    keywords::{informative_words, is_small_talk_word, proper_nouns},
    sentences::split_sentences,
};

/// The words that a line and a sentence must share.
const MIN_COMMON_WORDS: usize = 2;
/// A word that more texts have than this, and more than one in twenty, says nothing.
const MAX_TEXTS_OF_WORD: usize = 10;
/// The most words of a line that count: the rarest.
const MAX_WORDS: usize = 20;
/// The most sentences that are compared with a line, those of the rarest words first.
const MAX_COMPARED: usize = 2_000;

/// The sentences of texts by their informative words.
#[derive(Debug, Default)]
pub struct SentenceIndex {
    /// For each word the sentences that have it: the position of the text, and the number of the sentence.
    sentences: HashMap<u32, Vec<(usize, usize)>>,
}

impl SentenceIndex {
    /// Builds the index of texts, which are found by their positions.
    #[must_use]
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut sentences: HashMap<u32, Vec<(usize, usize)>> = HashMap::new();
        let mut count = 0;
        for (text_index, text) in texts.into_iter().enumerate() {
            count = text_index + 1;
            for (nth, sentence) in split_sentences(text).enumerate() {
                for word in informative_words(sentence) {
                    sentences.entry(word).or_default().push((text_index, nth));
                }
            }
        }
        let max_texts = MAX_TEXTS_OF_WORD.max(count / 20);
        sentences.retain(|_, positions| {
            let texts: BTreeSet<usize> = positions.iter().map(|(text_index, _)| *text_index).collect();
            texts.len() <= max_texts
        });
        Self { sentences }
    }

    /// Returns the size of the index in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let lists = self.sentences.values().map(|positions| 48 + 16 * positions.capacity());
        lists.sum()
    }

    /// Returns the positions of the texts of which one sentence has two words of a line, those with the most words
    /// first. Names do not count, and neither do words that everybody uses. `names` are known names: of the listener,
    /// and others that the line has.
    #[must_use]
    pub fn find_by_line(&self, line: &str, names: &[&str]) -> Vec<usize> {
        let mut words = informative_words(line);
        words.retain(|word| !is_small_talk_word(*word));
        let nouns = proper_nouns(line);
        for name in nouns.iter().map(String::as_str).chain(names.iter().copied()) {
            for word in informative_words(name) {
                words.remove(&word);
            }
        }
        let of_words = words.iter().filter_map(|word| self.sentences.get(word));
        let mut of_words: Vec<&Vec<(usize, usize)>> = of_words.collect();
        of_words.sort_by_key(|sentences| sentences.len());
        let of_rarest = of_words.into_iter().take(MAX_WORDS).flatten();
        let mut common: HashMap<(usize, usize), usize> = HashMap::new();
        for sentence in of_rarest.take(MAX_COMPARED) {
            *common.entry(*sentence).or_default() += 1;
        }
        let mut best: BTreeMap<usize, usize> = BTreeMap::new();
        for ((text_index, _), count) in common {
            let best_count = best.entry(text_index).or_default();
            *best_count = count.max(*best_count);
        }
        let mut ranked: Vec<(usize, usize)> = best
            .into_iter()
            .filter(|(_, count)| *count >= MIN_COMMON_WORDS)
            .collect();
        ranked.sort_by_key(|(text_index, count)| (Reverse(*count), *text_index));
        ranked.into_iter().map(|(text_index, _)| text_index).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_words_of_one_sentence_find_a_text() {
        let index = SentenceIndex::new([
            "The old wall stands. Lime is burned in the kiln at night, below the quarry.",
            "The mill grinds rye. Whoever enters the quarry pays a toll.",
            "석회는 가마에서 밤마다 굽는다. 채석장은 닫혔다.",
            "Anna Reiter boils the sheets.",
        ]);
        for (line, found) in [
            ("Who burns the kiln?", vec![0]),
            ("Is the kiln near the mill?", vec![]),
            ("Who burns the kilns below the quarry, and pays the toll?", vec![0, 1]),
            ("석회를 가마에서 누가 구워요?", vec![2]),
            ("석회가마는 어디 있어요?", vec![]),
            // A name of two words is one thing.
            ("Have you seen Anna Reiter?", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(index.find_by_line(line, &["Mira"]), found, "{line}");
        }
        let (lime, none) = (SentenceIndex::new(["Mira burns lime."]), Vec::<usize>::new());
        assert_eq!(lime.find_by_line("Do you sell lime, mira?", &["Mira"]), none);
        assert_eq!(lime.find_by_line("Do you burn lime, mira?", &["Mira"]), [0]);
    }

    #[test]
    fn korean_small_talk_and_known_names_say_nothing() {
        let index = SentenceIndex::new(["어머니는 할머니와 산다.", "최덕수는 석회를 굽는다."]);
        for (line, names, found) in [
            ("어머니하고 할머니는 어디 계세요?", vec![], vec![]),
            ("최덕수가 석회를 팔아요?", vec![], vec![1]),
            ("최덕수가 석회를 팔아요?", vec!["최덕수"], vec![]),
        ] {
            assert_eq!(index.find_by_line(line, &names), found, "{line} {names:?}");
        }
    }

    #[test]
    fn rarest_words_of_a_long_line_count() {
        let rare: Vec<String> = ('a'..='t').map(|letter| format!("{letter}xyz")).collect();
        let common = ["The granite ledge is wet."; 2];
        let index = SentenceIndex::new(rare.iter().map(String::as_str).chain(common));
        for (count, found) in [(MAX_WORDS - 2, vec![20, 21]), (MAX_WORDS, vec![])] {
            let line = format!("granite ledge {}", rare[..count].join(" "));
            assert_eq!(index.find_by_line(&line, &[]), found, "{count} rarer words");
        }
    }

    #[test]
    fn bounded_number_of_sentences_is_compared() {
        for (sentences, found) in [(10, vec![2]), (MAX_COMPARED, vec![])] {
            let texts = ["Granite. ".repeat(sentences), "Ledge. ".repeat(sentences)];
            let index = SentenceIndex::new(texts.iter().map(String::as_str).chain(["A granite ledge."]));
            assert_eq!(index.find_by_line("granite ledge", &[]), found, "{sentences}");
        }
    }

    #[test]
    fn word_of_most_texts_says_nothing() {
        for (texts, found) in [(10, 10), (11, 0)] {
            let index = SentenceIndex::new(vec!["The granite ledge is wet."; texts]);
            let by_line = index.find_by_line("Is there a granite ledge?", &["Mira"]);
            assert_eq!(by_line.len(), found, "{texts}");
        }
    }
}
