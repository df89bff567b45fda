//! Denials for all time: a speaker says that something was never so ("was never a smith").

use std::sync::LazyLock;

use super::rules::{CommonMatter, SILENT_WORDS, StatementFeatures, is_one_of, raw_words};
use crate::{
    agreement::{canonical_words, same_words},
    fact::{Polarity, Statement, Tense},
    keywords::normalise_text,
    text::{WordList, word_list},
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

    /// True if this statement says that something was never so, and an older one affirms that: with a word of its verb,
    /// and of one denied thing half of the words, or all of at most two.
    pub(super) fn denies_for_all_time(&self, older: &Self) -> bool {
        let denied = &self.denied;
        let is_told = |word: &&String| older.words.contains(*word);
        let is_thing_told = |thing: &Vec<String>| {
            let missing = thing.iter().filter(|word| !is_told(word)).count();
            let may_miss = if thing.len() <= 2 { 0 } else { thing.len() / 2 };
            missing <= may_miss
        };
        older.polarity == Polarity::Positive
            && denied.things.iter().any(is_thing_told)
            && (denied.verb.is_empty()
                || denied
                    .verb
                    .iter()
                    .any(|word| is_told(&word) || older.verb.contains(word)))
    }
}

/// What a statement denies for all time.
#[derive(Debug, Clone, Default)]
pub(super) struct DeniedMatter {
    /// The words of each thing in the object, or of the predicate if there is no object. Empty: the statement is no
    /// such denial.
    pub things: Vec<Vec<String>>,
    /// The words of the predicate beside an object, without verbs that say little ("was never a smith").
    pub verb: Vec<String>,
}

/// Verbs and prepositions that say little of what is denied.
static PLAIN_WORDS: WordList = LazyLock::new(|| {
    word_list(
        "never, was, were, have, has, had, been, be, say, says, said, as, in, on, at, from, with, for, by, into, \
         말하다, 이다, 있다, 없다, 아니다, 이, 있, 없, 아니",
    )
});

/// Words between two denied things.
const JOINING_WORDS: [&str; 7] = ["and", "or", "nor", "또는", "혹은", "및", "그리고"];
/// Particles behind a Korean thing before another one: 형제나 배.
const JOINING_PARTICLES: [&str; 8] = ["이나", "이랑", "하고", "와", "과", "나", "랑", "도"];

/// Returns what a statement denies for all time.
pub(super) fn matter_denied_for_all_time(statement: &Statement) -> DeniedMatter {
    if !is_denial_for_all_time(statement) {
        return DeniedMatter::default();
    }
    let things = things_in(&statement.object);
    let verb = telling_words(&statement.predicate);
    if things.is_empty() {
        let things = if verb.is_empty() { Vec::new() } else { vec![verb] };
        return DeniedMatter {
            things,
            verb: Vec::new(),
        };
    }
    DeniedMatter { things, verb }
}

/// Returns the stems of the words that say what is denied.
fn telling_words(text: &str) -> Vec<String> {
    let text = normalise_text(text);
    let words = raw_words(&text).filter(|word| !is_one_of(word, &SILENT_WORDS) && !PLAIN_WORDS.contains(word));
    let stems = words.flat_map(canonical_words);
    stems.filter(|stem| !PLAIN_WORDS.contains(&stem.as_str())).collect()
}

/// Returns the telling words of each thing in an object: "a brother nor a boat" names two.
fn things_in(object: &str) -> Vec<Vec<String>> {
    let object = normalise_text(object);
    let mut things: Vec<Vec<String>> = Vec::new();
    let mut is_next_thing = true;
    for token in object.split_whitespace() {
        let word = token.trim_matches(|c: char| !c.is_alphanumeric());
        if JOINING_WORDS.contains(&word) {
            is_next_thing = true;
            continue;
        }
        let words = telling_words(word);
        match things.last_mut().filter(|_| !is_next_thing) {
            Some(thing) => thing.extend(words),
            None => things.push(words),
        }
        is_next_thing = token.ends_with(',') || has_joining_particle(word);
    }
    things.retain(|thing| !thing.is_empty());
    things
}

/// True if a Korean word joins the next thing to it. 사과 and 누나 only end like such a word.
fn has_joining_particle(word: &str) -> bool {
    let is_joined = |thing: &str| !thing.is_empty() && same_words(word, thing);
    let mut particles = JOINING_PARTICLES.iter();
    particles.any(|particle| word.strip_suffix(particle).is_some_and(is_joined))
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
    words.iter().enumerate().any(|(index, word)| {
        let before = index.checked_sub(1).map_or("", |before| words[before]);
        let next = words.get(index + 1).copied().unwrap_or_default();
        match *word {
            "never" => is_past || matches!(before, "has" | "have") || matches!(next, "had" | "was" | "were"),
            // 대장장이였던 적이 없다
            "적이" | "적은" | "적도" | "적" => next.starts_with('없'),
            "한" => next == "번도",
            "한번도" => true,
            _ => false,
        }
    })
}
