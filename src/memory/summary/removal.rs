//! Statements whose words no longer hold: whether a text tells one, and texts without the sentences that do.

use std::collections::BTreeSet;

use crate::{
    agreement::{polarity_of, tense_of},
    keywords::{TermWeights, document_terms, query_coverage, query_terms, sentence_key},
    sentences::split_sentences,
};

/// The share of a statement's informative words that a text must have to tell the statement. Requests to forget use the
/// same share for facts.
const MIN_COVERAGE: f64 = 0.5;

/// The share of the informative words of a corrected statement that a sentence must have, beside the words that the
/// correction replaced.
const MIN_COVERAGE_OF_CORRECTED: f64 = 0.2;

/// A statement whose words no longer hold.
#[derive(Debug, Clone, Copy)]
pub struct RemovedText<'a> {
    pub content: &'a str,
    /// The sentence that holds instead, if one does.
    pub correction: Option<&'a str>,
}

/// The words by which a text tells a removed statement.
#[derive(Debug)]
pub struct RemovedWords {
    all: TermWeights,
    /// The words that the correction replaced. Empty: the statement was removed as a whole.
    replaced: TermWeights,
}

impl RemovedWords {
    /// `None`: the correction still says everything that the statement said.
    #[must_use]
    pub fn of_text(removed: &RemovedText<'_>) -> Option<Self> {
        let terms = query_terms(removed.content);
        let Some(correction) = removed.correction else {
            let replaced = TermWeights::default();
            return Some(Self { all: terms, replaced });
        };
        let present: BTreeSet<u64> = document_terms(correction, &[])
            .0
            .into_iter()
            .map(|(term, _)| term)
            .collect();
        let replaced = terms.0.iter().filter(|(term, _)| !present.contains(term)).copied();
        let replaced = TermWeights(replaced.collect());
        let is_extended = || {
            let [before, after] = [removed.content, correction].map(sentence_key);
            let after: BTreeSet<&str> = after.split(' ').collect();
            before.split(' ').all(|word| after.contains(word))
                && polarity_of(removed.content) == polarity_of(correction)
                && tense_of(removed.content) == tense_of(correction)
        };
        (!replaced.0.is_empty() || !is_extended()).then_some(Self { all: terms, replaced })
    }

    /// True if a text with the terms `text_terms` ([`document_terms`]) tells the statement.
    #[must_use]
    pub fn are_told_by(&self, text_terms: &TermWeights) -> bool {
        self.share_in(text_terms).1
    }

    /// How much of the statement a text tells, in \[0, 1\], and whether this is enough to tell the statement.
    fn share_in(&self, text_terms: &TermWeights) -> (f64, bool) {
        let share = query_coverage(&self.all, text_terms);
        if self.replaced.0.is_empty() {
            return (share, share >= MIN_COVERAGE);
        }
        let replaced = query_coverage(&self.replaced, text_terms);
        let is_told = replaced >= MIN_COVERAGE && share >= MIN_COVERAGE_OF_CORRECTED;
        (replaced, is_told)
    }
}

/// Returns a text without the sentences that tell a statement of `removed`, compared by words. `None`: no sentence is
/// left.
#[must_use]
pub fn without_removed<'w>(text: &str, removed: impl IntoIterator<Item = &'w RemovedWords>) -> Option<String> {
    let mut removed = removed.into_iter().peekable();
    // Most texts are compared with nothing.
    if removed.peek().is_none() {
        return Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    }
    // The terms of the text and of its sentences are counted once for all statements.
    let sentences = split_sentences(text);
    let sentences = sentences.map(|sentence| (sentence, document_terms(sentence, &[])));
    let mut sentences: Vec<(&str, TermWeights)> = sentences.collect();
    let mut text_terms = document_terms(text, &[]);
    for words in removed {
        let before = sentences.len();
        sentences.retain(|(_, terms)| !words.are_told_by(terms));
        if sentences.len() < before {
            text_terms = document_terms(&concat_sentences(&sentences), &[]);
        }
        // Two sentences may tell a statement together when neither does alone.
        while words.are_told_by(&text_terms) {
            let share = |index: &usize| words.share_in(&sentences[*index].1).0;
            let telling = (0..sentences.len()).max_by(|a, b| share(a).total_cmp(&share(b)));
            let Some(telling) = telling else { break };
            sentences.remove(telling);
            text_terms = document_terms(&concat_sentences(&sentences), &[]);
        }
    }
    let remaining = concat_sentences(&sentences).trim().to_owned();
    debug_assert!(remaining.len() <= text.len(), "a removal only shortens a text");
    (!remaining.is_empty()).then_some(remaining)
}

fn concat_sentences(sentences: &[(&str, TermWeights)]) -> String {
    sentences.iter().map(|(sentence, _)| *sentence).collect()
}

/// Returns [`without_removed`] for statements without a correction.
#[must_use]
pub fn without_content(text: &str, removed: &[impl AsRef<str>]) -> Option<String> {
    let removed = removed.iter().filter_map(|content| {
        RemovedWords::of_text(&RemovedText {
            content: content.as_ref(),
            correction: None,
        })
    });
    without_removed(text, &removed.collect::<Vec<_>>())
}

/// The words of a text, to find whether it tells what another text says, compared as in [`without_content`].
#[derive(Debug, Clone)]
pub struct ToldContent {
    document_terms: TermWeights,
    query_terms: TermWeights,
}

impl ToldContent {
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        Self {
            document_terms: document_terms(text, &[]),
            query_terms: query_terms(text),
        }
    }

    /// True if this text tells what `statement` says.
    #[must_use]
    pub fn tells(&self, statement: &Self) -> bool {
        query_coverage(&statement.query_terms, &self.document_terms) >= MIN_COVERAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_statements_are_found_by_words() {
        let told = ToldContent::of_text("The player met the goblin chief in the forest. They spoke of plums.");
        assert!(told.tells(&ToldContent::of_text("The player met the chief of the goblins.")));
        assert!(!told.tells(&ToldContent::of_text("The player lost a silver ring at the well.")));
        assert!(!told.tells(&ToldContent::of_text("")));
    }

    #[test]
    fn sentences_about_forgotten_facts_are_dropped() {
        for (text, gone, left) in [
            (
                "The player told of a sister, Anna, who hides a silver key in Oakford. They spoke of the weather.",
                "The player's sister Anna hides the silver key.",
                Some("They spoke of the weather."),
            ),
            (
                "They spoke of plums and of the weather.",
                "The player likes plums.",
                None,
            ),
            (
                "They spoke of pears.",
                "The player likes plums.",
                Some("They spoke of pears."),
            ),
            (
                "The player helped at the mill and likes pears.",
                "The player broke a knee at the mill.",
                Some("The player helped at the mill and likes pears."),
            ),
            (
                "둘은 약방에서 만났다. 플레이어는 무릎을 다쳤다고 말했다. 플레이어는 꿀을 약속했다.",
                "플레이어는 무릎을 다쳤다.",
                Some("둘은 약방에서 만났다. 플레이어는 꿀을 약속했다."),
            ),
            (
                "플레이어는 소금을 사 갔다.",
                "플레이어는 무릎을 다쳤다.",
                Some("플레이어는 소금을 사 갔다."),
            ),
        ] {
            let found = without_content(text, &["The mill burned down.", gone]);
            assert_eq!(found.as_deref(), left, "{text} / {gone}");
        }
        assert_eq!(without_content("They met. ", &[""; 0]).as_deref(), Some("They met."));
        assert_eq!(without_content(" ", &[""; 0]), None);
    }

    #[test]
    fn dropped_sentence_tells_nothing_together_with_others() {
        let text = "A silver key shone. A mill stood by a barrel.";
        let together = "silver key, mill, barrel";
        let left = |removed: &[&str]| without_content(text, removed);
        assert_ne!(left(&[together]).as_deref(), Some(text));
        assert_eq!(
            left(&["A silver key shone.", together]).as_deref(),
            Some("A mill stood by a barrel.")
        );
    }

    #[test]
    fn corrected_words_are_dropped_and_the_words_that_still_hold_stay() {
        for (text, content, correction, left) in [
            (
                "The player likes mangoes. They spoke of the rain.",
                "The player likes mangoes.",
                "The player likes limes.",
                Some("They spoke of the rain."),
            ),
            (
                "The player said that limes are a favourite. The player likes plums.",
                "The player likes mangoes.",
                "The player likes limes.",
                Some("The player said that limes are a favourite. The player likes plums."),
            ),
            // Few words of a long statement, and the wrong one among them.
            (
                "Anna lives in Oakford. They spoke of the fair in Oakford.",
                "The player's sister Anna moved to a blue house in Oakford in spring.",
                "The player's sister Anna moved to a blue house in Greystone in spring.",
                Some("They spoke of the fair in Oakford."),
            ),
            // Only a word without information differs.
            (
                "The player likes mangoes. It rained.",
                "The player likes mangoes.",
                "The player does not like mangoes.",
                Some("It rained."),
            ),
            // The correction adds something.
            (
                "The player likes limes.",
                "The player likes limes.",
                "The player likes limes and lemons.",
                Some("The player likes limes."),
            ),
            (
                "플레이어는 망고를 좋아한다고 말했다. 비가 왔다.",
                "플레이어는 망고를 좋아한다.",
                "플레이어는 라임을 좋아한다.",
                Some("비가 왔다."),
            ),
            (
                "플레이어는 라임을 좋아한다고 말했다.",
                "플레이어는 망고를 좋아한다.",
                "플레이어는 라임을 좋아한다.",
                Some("플레이어는 라임을 좋아한다고 말했다."),
            ),
        ] {
            let correction = Some(correction);
            let removed = RemovedWords::of_text(&RemovedText { content, correction });
            assert_eq!(without_removed(text, &removed).as_deref(), left, "{text} / {content}");
        }
    }
}
