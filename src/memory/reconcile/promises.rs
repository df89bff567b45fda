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
/// Korean stems of one syllable that carry no meaning of their own. Nouns of one syllable (책, 귤) do.
const EMPTY_STEMS: [&str; 13] = [
    "하", "되", "있", "없", "않", "주", "가", "오", "수", "것", "그", "한", "할",
];

/// A promised or intended deed, without the words of promising, days, numbers, and the people between whom it stands.
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
            let told =
                raw_words(text).filter(|word| !is_one_of(word, &PROMISE_WORDS) && !is_one_of(word, &SILENT_WORDS));
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
        !self.object.is_disjoint(&other.words)
            || !other.object.is_disjoint(&self.words)
            || others.len() + usize::from(!names.is_empty()) >= least
    }
}
