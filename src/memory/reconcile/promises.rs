//! What a promise or an intention is about. Two promises can only touch each other if they are about like deeds.

use std::{collections::BTreeSet, sync::LazyLock};

use super::rules::{SILENT_WORDS, is_one_of, raw_words};
use crate::{
    agreement::{canonical_words, is_date_word},
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
         하려, 하겠, 해야, 예정, 계획, 생각, 싶, 함께, 다음, 내일, 모레, 오늘, 까지, 위해",
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
/// Korean stems that carry no meaning of their own: light verbs, and particles after a quotation. Nouns of one syllable
/// (책, 귤) do.
const EMPTY_STEMS: [&str; 30] = [
    "하", "되", "있", "없", "않", "주", "가", "오", "두", "놓", "보", "드리", "수", "것", "그", "한", "할", "줄", "올",
    "갈", "에", "를", "을", "는", "와", "로", "의", "에서", "에게", "한테",
];
/// Endings of a light verb: 갖다 주기로, 갖다 주겠다고.
const LIGHT_VERB_ENDINGS: [char; 2] = ['기', '겠'];
/// Korean numerals before a counted thing: "병" in "두 병" is an amount.
const NUMERALS: [&str; 19] = [
    "한", "두", "세", "네", "석", "넉", "다섯", "여섯", "일곱", "여덟", "아홉", "열", "열두", "스무", "서른", "마흔",
    "쉰", "몇", "여러",
];
/// Particles behind the person to whom something is promised.
const RECIPIENT_PARTICLES: [&str; 5] = ["에게서", "한테서", "에게", "한테", "께"];

/// A promised or intended deed, without the words of promising, indefinite words, days, amounts, and the people between
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
            let telling_words = uncounted_words(text).filter(|word| !says_nothing(word));
            telling_words
                .flat_map(canonical_words)
                .filter(|word| {
                    !is_one_of(word, &PROMISE_WORDS)
                        && !is_empty_stem(word)
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
        let recipients = raw_words(&statement.content).filter_map(recipient_in);
        let names = capitalised.chain(recipients);
        let mut names: BTreeSet<String> = names.flat_map(|word| deed_words(&normalise_text(word))).collect();
        names.extend(["player", "플레이어"].into_iter().flat_map(canonical_words));
        let mut object = deed_words(&normalise_text(&statement.object));
        let content = normalise_text(&statement.content);
        let undated: Vec<&str> = content.split_whitespace().filter(|word| !is_date_word(word)).collect();
        let mut words = deed_words(&undated.join(" "));
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
        let min_words = if have_things { 3 } else { 2 };
        let is_name = |word: &&String| self.names.contains(*word) || other.names.contains(*word);
        let (names, other_words): (Vec<_>, Vec<_>) = self.words.intersection(&other.words).partition(is_name);
        // Half of a thing's words may be chance: "member number", "face Number Two".
        let is_in = |object: &BTreeSet<String>, words: &BTreeSet<String>| {
            let common = object.intersection(words).count();
            2 * common > object.len() || common > 0 && 2 * common == object.len() && other_words.len() > 1
        };
        is_in(&self.object, &other.words)
            || is_in(&other.object, &self.words)
            || other_words.len() + usize::from(!names.is_empty()) >= min_words
    }
}

/// The words of a text without Korean numerals and what they count.
fn uncounted_words(text: &str) -> impl Iterator<Item = &str> {
    let mut is_behind_numeral = false;
    raw_words(text).filter(move |word| {
        let is_counted = is_behind_numeral;
        is_behind_numeral = NUMERALS.contains(word);
        !is_counted && !is_behind_numeral
    })
}

/// True if a stem is a light verb or a particle.
fn is_empty_stem(stem: &str) -> bool {
    let verb = stem.strip_suffix(LIGHT_VERB_ENDINGS).unwrap_or(stem);
    EMPTY_STEMS.contains(&verb)
}

/// The Korean name of a person to whom something is promised: 윤하람 in 윤하람에게.
fn recipient_in(word: &str) -> Option<&str> {
    let mut particles = RECIPIENT_PARTICLES.iter();
    let name = particles.find_map(|particle| word.strip_suffix(particle))?;
    (!name.is_empty()).then_some(name)
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
            let deeds = deed(one.0, one.1).zip(deed(other.0, other.1));
            assert!(
                deeds.is_some_and(|(one, other)| !one.is_like(&other)),
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
            let deeds = deed(one.0, one.1).zip(deed(other.0, other.1));
            assert!(
                deeds.is_some_and(|(one, other)| one.is_like(&other) == are_like),
                "{} / {}",
                one.1,
                other.1
            );
        }
    }

    #[test]
    fn particles_light_verbs_days_and_amounts_are_no_common_deed() {
        for (one, other, are_like) in [
            (
                ("귤", "플레이어는 2024-04-11에 윤하람에게 귤을 갖다 주기로 했다."),
                ("영화표", "플레이어는 2024-04-13에 윤하람에게 영화표를 사 주기로 했다."),
                false,
            ),
            (
                ("매실주 두 병", "플레이어는 매실주 두 병을 갖다주기로 했다."),
                ("막걸리 두 병", "플레이어는 막걸리 두 병을 갖다주기로 했다."),
                false,
            ),
            (
                (
                    "『바다와 나비』",
                    "플레이어는 4월에 윤하람에게 『바다와 나비』를 보여 주겠다고 했다.",
                ),
                ("『귤밭』", "플레이어는 4월에 윤하람에게 『귤밭』를 돌려 주겠다고 했다."),
                false,
            ),
            (
                ("매실주 한 병", "플레이어는 매실주 한 병을 갖다주기로 했다."),
                ("매실주 두 병", "플레이어는 매실주 두 병을 갖다주기로 했다."),
                true,
            ),
            (
                ("6월 백일장", "플레이어는 6월 백일장에 나가기로 했다."),
                ("6월 백일장", "플레이어는 6월 백일장에 나가지 않기로 했다."),
                true,
            ),
        ] {
            let deeds = deed(one.0, one.1).zip(deed(other.0, other.1));
            assert!(
                deeds.is_some_and(|(one, other)| one.is_like(&other) == are_like),
                "{} / {}",
                one.1,
                other.1
            );
        }
    }
}
