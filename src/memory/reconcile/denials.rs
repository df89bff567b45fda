//! Denials for all time: a speaker says that something was never so ("was never a smith").

use super::rules::{CommonMatter, SILENT_WORDS, StatementFeatures, is_one_of, raw_words};
use crate::{
    agreement::canonical_words,
    fact::{Polarity, Statement, Tense},
    keywords::normalise_text,
};

impl StatementFeatures {
    /// The common matter with an older statement of the same speaker in the same memory. Between memories, a denial for
    /// all time is no common matter: only a search from the denial finds such a pair, and either fact may be learned
    /// first.
    #[must_use]
    pub fn matter_of_speaker(&self, older: &Self) -> CommonMatter {
        let common = self.common_matter(older);
        CommonMatter {
            is_one_matter: common.is_one_matter || self.denies_for_all_time(older),
            ..common
        }
    }

    /// True if this statement says that something was never so, and an older one that affirms has half of its words.
    pub(super) fn denies_for_all_time(&self, older: &Self) -> bool {
        let common = self.denied.iter().filter(|word| older.words.contains(*word)).count();
        older.polarity == Polarity::Positive && common > 0 && 2 * common >= self.denied.len()
    }
}

/// The words of what a statement denies for all time: of its object, or of its predicate if there is no object. Empty:
/// no such denial.
pub(super) fn words_denied_for_all_time(statement: &Statement) -> Vec<String> {
    if !is_denial_for_all_time(statement) {
        return Vec::new();
    }
    let telling_words = |text: &str| -> Vec<String> {
        let text = normalise_text(text);
        let words = raw_words(&text).filter(|word| *word != "never" && !is_one_of(word, &SILENT_WORDS));
        words.flat_map(canonical_words).collect()
    };
    let object = telling_words(&statement.object);
    if object.is_empty() {
        telling_words(&statement.predicate)
    } else {
        object
    }
}

/// True if a statement says that something was never so. "Never eats meat" is a habit of the present.
pub(super) fn is_denial_for_all_time(statement: &Statement) -> bool {
    if statement.polarity != Polarity::Negative
        || statement.tense == Tense::Future
        || statement.kind.is_intention(statement.tense)
    {
        return false;
    }
    let is_past = statement.tense == Tense::Past;
    let text = normalise_text(&statement.content);
    let words: Vec<&str> = raw_words(&text).collect();
    words.iter().enumerate().any(|(at, word)| {
        let before = at.checked_sub(1).map_or("", |before| words[before]);
        let next = words.get(at + 1).copied().unwrap_or_default();
        match *word {
            "never" => is_past || matches!(before, "has" | "have") || matches!(next, "had" | "was" | "were"),
            // 대장장이였던 적이 없다
            "적이" | "적은" | "적도" | "적" => next.starts_with('없'),
            "한" => next == "번도",
            "한번도" | "원래" | "애초에" | "처음부터" => true,
            _ => false,
        }
    })
}
