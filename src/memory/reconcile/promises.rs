//! What a promise or an intention is about. Two promises can only touch each other if they are about like deeds.

use std::{collections::BTreeSet, sync::LazyLock};

use super::rules::{SILENT_WORDS, is_one_of, raw_words};
use crate::{
    agreement::canonical_words,
    fact::Statement,
    keywords::normalise_text,
    party,
    text::{WordList, word_list},
};

/// Words of a promise besides the promised deed. Korean words are beginnings.
static PROMISE_WORDS: WordList = LazyLock::new(|| {
    word_list(
        "promise, promised, promises, will, shall, mean, means, intend, intends, plan, plans, want, wants, owe, owes, \
         agree, agreed, agrees, tells, says, teaches, asks, swear, swore, sworn, vow, vowed, vows, goal, word, have, has, must, should, need, \
         needs, going, go, goes, get, gets, give, gives, take, takes, make, makes, do, on, by, at, in, to, for, with, \
         from, before, after, until, when, if, that, this, his, her, their, day, today, tomorrow, 약속, 하기, 하다, \
         하려, 하겠, 해야, 예정, 계획, 생각, 다음, 내일, 모레, 오늘, 까지, 위해",
    )
});
/// Words for anybody and anything. Two promises to tell nobody and to give nothing have no deed in common. Korean words
/// are beginnings.
static INDEFINITE_WORDS: WordList = LazyLock::new(|| {
    word_list(
        "nobody, nothing, anybody, anyone, anything, somebody, someone, something, everybody, everyone, \
         everything, 아무, 누구, 누군, 무엇, 무언, 뭔가, 모두",
    )
});
/// Korean stems of one syllable that carry no meaning of their own. Nouns of one syllable (책, 귤) do.
const EMPTY_STEMS: [&str; 13] = [
    "하", "되", "있", "없", "않", "주", "가", "오", "수", "것", "그", "한", "할",
];

/// A promised or intended deed, without the words of promising, indefinite words, days, numbers, and the people between
/// whom it stands.
#[derive(Debug, Clone)]
pub(super) struct PromisedDeed {
    /// The words of the object; names only if there are no other words.
    object: BTreeSet<String>,
    words: BTreeSet<String>,
    /// The words of names, and "player". The party to whom a deed is promised is in most sentences.
    names: BTreeSet<String>,
}

impl PromisedDeed {
    /// `None`: the statement is no promise and no intention.
    pub(super) fn from_statement(statement: &Statement) -> Option<Self> {
        if !statement.kind.is_intention(statement.tense) {
            return None;
        }
        let people = [&statement.subject, &statement.speaker].map(|name| canonical_words(&party::plain_name(name)));
        let deed_words = |text: &str| -> BTreeSet<String> {
            let says_nothing = |word: &str| {
                [&PROMISE_WORDS, &INDEFINITE_WORDS, &SILENT_WORDS]
                    .iter()
                    .any(|list| is_one_of(word, list))
            };
            let told = raw_words(text).filter(|word| !says_nothing(word));
            told.flat_map(canonical_words)
                .filter(|word| {
                    !is_one_of(word, &PROMISE_WORDS)
                        && !EMPTY_STEMS.contains(&word.as_str())
                        && !word.starts_with(|c: char| c.is_ascii_digit())
                        && !people.iter().any(|name| name.contains(word))
                })
                .collect()
        };
        // Lower case hides names, so they are found before.
        let capitalised = raw_words(&statement.content)
            .skip(1)
            .chain(raw_words(&statement.object));
        let capitalised = capitalised.filter(|word| word.starts_with(char::is_uppercase));
        let mut names: BTreeSet<String> = capitalised.flat_map(|word| deed_words(&normalise_text(word))).collect();
        names.extend(["player", "플레이어"].into_iter().flat_map(canonical_words));
        let mut object = deed_words(&normalise_text(&statement.object));
        let mut words = deed_words(&normalise_text(&statement.content));
        words.extend(object.iter().cloned());
        if !object.is_subset(&names) {
            object.retain(|word| !names.contains(word));
        }
        Some(Self { object, words, names })
    }

    /// True if two deeds have a thing in common; without a thing, a person and a verb. Deeds with different things need
    /// one word more. All names together count as one word.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let have_things = !self.object.is_empty() && !other.object.is_empty();
        let least = if have_things { 3 } else { 2 };
        let is_name = |word: &&String| self.names.contains(*word) || other.names.contains(*word);
        let (names, others): (Vec<_>, Vec<_>) = self.words.intersection(&other.words).partition(is_name);
        // Half of a thing's words may be chance: "member number", "face Number Two".
        let is_in = |object: &BTreeSet<String>, words: &BTreeSet<String>| {
            let common = object.intersection(words).count();
            2 * common > object.len() || common > 0 && 2 * common == object.len() && others.len() > 1
        };
        is_in(&self.object, &other.words)
            || is_in(&other.object, &self.words)
            || others.len() + usize::from(!names.is_empty()) >= least
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::{FactKind, Importance, Polarity, Tense};

    fn deed(object: &str, content: &str) -> Option<PromisedDeed> {
        PromisedDeed::from_statement(&Statement {
            subject: "player:p7".into(),
            predicate: "promise".into(),
            object: object.into(),
            content: content.into(),
            keywords: Vec::new(),
            speaker: "player:p7".into(),
            kind: FactKind::Goal,
            importance: Importance::DEFAULT,
            polarity: Polarity::Positive,
            tense: Tense::Future,
            pinned: false,
        })
    }

    #[test]
    fn party_of_two_deeds_is_no_common_deed() {
        for (one, other) in [
            (
                ("fuses", "Emmerich Vogt tells the player to count fuses."),
                (
                    "the thin wire",
                    "Emmerich Vogt tells the player to bring the thin wire.",
                ),
            ),
            (
                (
                    "that the player must have no quinine",
                    "Ottilie Brandt tells Hempel of the quinine.",
                ),
                (
                    "what the player told",
                    "What the player told of her father stays with Ottilie Brandt.",
                ),
            ),
        ] {
            let found = deed(one.0, one.1).zip(deed(other.0, other.1));
            assert!(
                found.is_some_and(|(one, other)| !one.is_like(&other)),
                "{one:?} {other:?}"
            );
        }
    }

    #[test]
    fn indefinite_words_are_no_common_deed() {
        for (one, other, are_like) in [
            (
                ("nobody", "The player promises to tell nobody of the debt."),
                ("nobody", "The player promises to lend nobody the boat."),
                false,
            ),
            (
                ("아무에게도", "플레이어는 빚 이야기를 아무에게도 꺼내지 않을 것이다."),
                ("아무에게도", "플레이어는 배를 아무에게도 빌려주지 않을 것이다."),
                false,
            ),
            (
                ("nobody", "The player promises to tell nobody of the debt."),
                ("the debt", "The player promises to keep the debt a secret."),
                true,
            ),
        ] {
            let found = deed(one.0, one.1).zip(deed(other.0, other.1));
            assert!(
                found.is_some_and(|(one, other)| one.is_like(&other) == are_like),
                "{} / {}",
                one.1,
                other.1
            );
        }
    }
}
