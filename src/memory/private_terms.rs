//! What a dialogue has been told that is private to its player, as far as it can be compared with what is said later.
//!
//! Whether a statement rests on something nobody can be asked. One that has a word in common with it is taken to rest on it,
//! so that rather too much stays private than too little.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::keywords::{informative_terms, is_small_talk};

/// Terms of what is private, as [`informative_terms`] has them. A prompt's texts are many times as long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PrivateTerms(BTreeSet<u32>);

impl PrivateTerms {
    /// With what `text` tells.
    pub fn add_text(&mut self, text: &str) {
        self.0.extend(informative_terms(text));
    }

    /// With what `text` tells in other words than these terms.
    pub fn add_text_except(&mut self, text: &str, terms: &BTreeSet<u32>) {
        self.0.extend(&informative_terms(text) - terms);
    }

    /// Whether texts have a word of it that is more than small talk.
    #[must_use]
    pub fn shares_telling_word(&self, texts: &[&str]) -> bool {
        let mut told = texts.iter().flat_map(|text| informative_terms(text));
        told.any(|term| self.0.contains(&term) && !is_small_talk(term))
    }

    /// Whether texts may tell of it: they have a word of it, however common, or it has none to be known by.
    #[must_use]
    pub fn may_be_told_by(&self, texts: &[&str]) -> bool {
        self.0.is_empty() || texts.iter().any(|text| !self.0.is_disjoint(&informative_terms(text)))
    }

    /// With what was private elsewhere as well.
    pub fn extend_with(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }

    /// With what the lines of a dialogue tell.
    #[must_use]
    pub fn with_lines<'t>(mut self, lines: impl IntoIterator<Item = &'t str>) -> Self {
        for line in lines {
            self.add_text(line);
        }
        self
    }

    /// Whether a statement may rest on it: `said` says nothing beyond it, or `texts`, all that the statement would show, have
    /// a word in common with it that is more than small talk. Terms of `name`, the speaker's, tell nothing.
    #[must_use]
    pub fn may_underlie(&self, said: &str, texts: &[&str], name: &BTreeSet<u32>) -> bool {
        let tells = |term: &u32| !name.contains(term);
        let is_told = |term: &u32| self.0.contains(term);
        let shown = texts.iter().flat_map(|text| informative_terms(text));
        let common = shown.filter(tells).any(|term| is_told(&term) && !is_small_talk(term));
        common || informative_terms(said).iter().filter(|term| tells(term)).all(is_told)
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
            // It only says yes.
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
            // It says nothing at all.
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
