//! The private words of a player in a dialogue, for comparison with later statements.
//!
//! Nobody can be asked whether a statement rests on private content. A statement that shares a word with private
//! content is taken to rest on it: too much privacy is better than too little.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::keywords::{informative_terms, is_small_talk};

/// A text that tells the content shares at least so many terms with the content, and at least one in so many.
const MIN_TOLD_TERMS: usize = 3;
const MIN_TOLD_SHARE: usize = 10;

/// Terms of private content, from [`informative_terms`]. The texts of a prompt would be many times as long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PrivateTerms(BTreeSet<u32>);

impl PrivateTerms {
    /// Adds the terms of `text`.
    pub fn add_text(&mut self, text: &str) {
        self.0.extend(informative_terms(text));
    }

    /// Adds the terms of `text` that are not in `terms`.
    pub fn add_text_except(&mut self, text: &str, terms: &BTreeSet<u32>) {
        self.0.extend(&informative_terms(text) - terms);
    }

    /// True if `texts` share a term that is more than small talk.
    #[must_use]
    pub fn shares_telling_word(&self, texts: &[&str]) -> bool {
        let mut terms = texts.iter().flat_map(|text| informative_terms(text));
        terms.any(|term| self.0.contains(&term) && !is_small_talk(term))
    }

    /// True if `texts` may tell the private content: they share a term, however common, or the content has no terms.
    #[must_use]
    pub fn may_be_told_by(&self, texts: &[&str]) -> bool {
        self.0.is_empty() || texts.iter().any(|text| !self.0.is_disjoint(&informative_terms(text)))
    }

    /// True if `text` tells much of the content: at least three telling terms, and a tenth of all.
    #[must_use]
    pub fn is_told_by(&self, text: &str) -> bool {
        let count = |terms: &mut dyn Iterator<Item = &u32>| terms.filter(|term| !is_small_talk(**term)).count();
        let text_terms = informative_terms(text);
        let told_count = count(&mut self.0.intersection(&text_terms));
        let term_count = count(&mut self.0.iter());
        told_count >= MIN_TOLD_TERMS.min(term_count) && told_count * MIN_TOLD_SHARE >= term_count
    }

    /// Adds the terms of other private content.
    pub fn extend_with(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }

    /// Returns the terms together with the terms of a dialogue's lines.
    #[must_use]
    pub fn with_lines<'t>(mut self, lines: impl IntoIterator<Item = &'t str>) -> Self {
        for line in lines {
            self.add_text(line);
        }
        self
    }

    /// True if a statement may rest on the private content. Terms of `name`, the speaker's name, do not count. There
    /// are two cases:
    ///
    /// * `line` has no terms beyond the private terms.
    /// * `texts`, all visible texts of the statement, share a term that is more than small talk.
    #[must_use]
    pub fn may_underlie(&self, line: &str, texts: &[&str], name: &BTreeSet<u32>) -> bool {
        let is_telling = |term: &u32| !name.contains(term);
        let is_told = |term: &u32| self.0.contains(term);
        let shown_terms = texts.iter().flat_map(|text| informative_terms(text));
        let common = shown_terms
            .filter(is_telling)
            .any(|term| is_told(&term) && !is_small_talk(term));
        common
            || informative_terms(line)
                .iter()
                .filter(|term| is_telling(term))
                .all(is_told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_with_other_content_rests_on_no_confidence() {
        for (told, content, rests) in [
            (
                "What is your favourite song?",
                "Mira's favourite song is the Miller's Grey Mare.",
                false,
            ),
            ("Do you have a brother?", "Mira has a brother named Tobin.", false),
            // The answer only says yes.
            ("Do you have a brother?", "Mira has a brother.", true),
            (
                "I am pregnant. Nobody knows.",
                "Mira was pregnant when she was young.",
                true,
            ),
            ("Are you the thief?", "Mira is the thief.", true),
            ("Hello there", "Mira was born in Rivermouth.", false),
            (
                "좋아하는 노래가 뭐예요?",
                "미라가 가장 좋아하는 노래는 잿빛 암말이다.",
                false,
            ),
            ("저 임신했어요.", "미라는 임신 소식에 기뻐했다.", true),
            // The answer says nothing.
            ("Hello there", "Mira is.", true),
        ] {
            let (confided, name) = (
                PrivateTerms::default().with_lines([told]),
                informative_terms("Mira 미라"),
            );
            assert_eq!(
                confided.may_underlie(content, &[content], &name),
                rests,
                "{told} / {content}"
            );
        }
    }
}
