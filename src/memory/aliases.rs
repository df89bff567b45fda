//! Aliases: the names under which a memory knows one person or thing.
//!
//! A fact tells a name ("The player's sister is called Anna"). Names are therefore unsaid, restored, corrected and
//! erased with their facts, and the knowers of the fact know the name. This module decides which names are believed.

mod mentions;
mod sentence;

use std::collections::{BTreeMap, BTreeSet};

pub use self::mentions::SpeakerAndListener;
use super::{
    fact::{Polarity, Statement, Tense},
    keywords, party,
};

/// Predicates that name a subject, in each language: `object` is its name.
pub const NAMING_PREDICATES: [&str; 2] = ["be named", "이름이다"];
/// Predicates of nicknames and titles, in each language: names beside the name.
const NICKNAME_PREDICATES: [&str; 2] = ["be nicknamed", "별명이다"];
/// Words of a sentence that tells a nickname under another predicate.
const NICKNAME_WORDS: [&str; 3] = ["nickname", "별명", "애칭"];
/// Words of a sentence that corrects a name: "not Ida but Ada".
const CORRECTION_WORDS: [&str; 9] = [
    "not", "isn't", "wasn't", "never", "wrong", "mistake", "아니", "잘못", "틀",
];
/// Other spellings of the predicates in the output of models.
const PREDICATE_SPELLINGS: [(&str, &str); 4] = [
    (
        NAMING_PREDICATES[0],
        "named, is named, be called, is called, be known as, is known as, go by, be the same as, name is, have name",
    ),
    (
        NAMING_PREDICATES[1],
        "이름은, 불리다, 라고 불리다, 이라고 불리다, 이름, 같은 사람이다",
    ),
    (
        NICKNAME_PREDICATES[0],
        "nicknamed, is nicknamed, have nickname, have the nickname, have a nickname, nickname is, nickname, be titled",
    ),
    (
        NICKNAME_PREDICATES[1],
        "별명, 별명은, 별명이, 별명으로 불리다, 애칭, 애칭이다, 칭호, 칭호이다",
    ),
];
/// Most words of a name. A longer text is a description.
const MAX_NAME_WORDS: usize = 4;

/// The stored form of a predicate: all naming predicates of a language become the same words.
#[must_use]
pub fn canonical_predicate(predicate: String) -> String {
    let lower = predicate.to_lowercase();
    PREDICATE_SPELLINGS
        .iter()
        .find(|(_, spellings)| spellings.split(", ").any(|spelling| spelling == lower))
        .map_or(predicate, |(canonical, _)| (*canonical).to_owned())
}

/// True for the predicates of names, nicknames and titles.
#[must_use]
pub fn is_naming_predicate(predicate: &str) -> bool {
    NAMING_PREDICATES.contains(&predicate) || is_nickname_predicate(predicate)
}

/// True for the predicates of nicknames and titles.
fn is_nickname_predicate(predicate: &str) -> bool {
    NICKNAME_PREDICATES.contains(&predicate)
}

/// True if the name in a naming statement is a nickname or a title.
#[must_use]
pub fn tells_nickname(statement: &Statement) -> bool {
    is_nickname(&statement.predicate, &statement.content)
}

/// True if a statement that names its subject tells a nickname or a title, by its predicate or its sentence.
#[must_use]
pub fn is_nickname(predicate: &str, content: &str) -> bool {
    let content = || keywords::normalise_text(content);
    is_nickname_predicate(predicate) || NICKNAME_WORDS.iter().any(|word| content().contains(word))
}

/// True if a naming statement takes back the name in an older statement: "The player's name is not Ida but Ada".
#[must_use]
pub fn corrects_name(new: &Statement, old: &Statement) -> bool {
    let content = keywords::normalise_text(&new.content).replace('\u{2019}', "'");
    let words: Vec<&str> = content
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .collect();
    let is_correction = |word: &&str| {
        let mut corrections = CORRECTION_WORDS.iter();
        corrections.any(|prefix| word == prefix || prefix.starts_with(keywords::is_hangul) && word.starts_with(prefix))
    };
    let name = keywords::normalise_text(&old.object);
    let names_old = name.split_whitespace().all(|part| {
        words
            .iter()
            .any(|word| word.strip_suffix("'s").unwrap_or(word).starts_with(part))
    });
    names_old && words.iter().any(is_correction)
}

/// True if a statement names its subject.
#[must_use]
pub fn states_name(statement: &Statement) -> bool {
    is_naming_predicate(&statement.predicate)
        && statement.polarity == Polarity::Positive
        && statement.tense != Tense::Past
        && !statement.object.is_empty()
        && party::subject_key(&statement.object) != party::subject_key(&statement.subject)
        && statement.object.split_whitespace().count() <= MAX_NAME_WORDS
}

/// An assertion that a subject has a name, with its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameAssertion<'a> {
    pub subject: &'a str,
    pub name: &'a str,
    /// The NPC that asserts the name; `None`: a player or an author.
    pub npc: Option<&'a str>,
    pub authored: bool,
    /// True for a nickname or a title, which a person has beside the name.
    pub nickname: bool,
}

impl<'a> NameAssertion<'a> {
    /// The assertion in a statement, if the statement names its subject.
    #[must_use]
    pub fn from_statement(statement: &'a Statement, authored: bool) -> Option<Self> {
        states_name(statement).then(|| Self {
            nickname: tells_nickname(statement),
            ..Self::from_speaker(&statement.speaker, authored, &statement.subject, &statement.object)
        })
    }

    /// The assertion that `speaker` gives `subject` the name `name`.
    #[must_use]
    pub fn from_speaker(speaker: &'a str, authored: bool, subject: &'a str, name: &'a str) -> Self {
        Self {
            subject,
            name,
            npc: (!authored && !party::is_player(speaker)).then_some(speaker),
            authored,
            nickname: false,
        }
    }
}

/// True for the key of a player, not of a player's belonging (`player:p7/sister`).
fn is_player_key(key: &str) -> bool {
    party::is_player(key) && !key.contains('/')
}

/// Groups of names of the same person or thing. Each name has its key and its spelling.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameAliases(Vec<BTreeMap<String, String>>);

impl NameAliases {
    /// Groups the asserted names. In doubt two names stay separate:
    ///
    /// * A name of several subjects joins nobody.
    /// * Several names of one subject join nobody, because a player may have two sisters. A player and an NPC are one
    ///   person each, with any number of names; and anybody may have nicknames beside a single name.
    /// * Two speakers are never the same person.
    /// * Only authors and NPCs can say that an NPC is somebody else.
    #[must_use]
    pub fn from_assertions(assertions: &[NameAssertion<'_>]) -> Self {
        if assertions.is_empty() {
            return Self::default();
        }
        let keys: Vec<(String, String)> = assertions
            .iter()
            .map(|assertion| {
                (
                    party::subject_key(assertion.subject),
                    party::subject_key(assertion.name),
                )
            })
            .collect();
        // The names of each subject besides nicknames.
        let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut subjects: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        // The first of several spellings, in an order independent of the order of the facts.
        let mut spellings: BTreeMap<&str, &str> = BTreeMap::new();
        for ((subject, name), assertion) in keys.iter().zip(assertions) {
            let of_subject = names.entry(subject).or_default();
            if !assertion.nickname {
                of_subject.insert(name);
            }
            subjects.entry(name).or_default().insert(subject);
            for (key, spelling) in [(subject, assertion.subject), (name, assertion.name)] {
                let chosen_spelling = spellings.entry(key).or_insert(spelling);
                *chosen_spelling = spelling.min(chosen_spelling);
            }
        }
        let npcs: BTreeSet<String> = assertions
            .iter()
            .filter_map(|assertion| assertion.npc.map(party::subject_key))
            .collect();
        let mut sure: BTreeMap<(&str, &str), bool> = BTreeMap::new();
        for ((subject, name), assertion) in keys.iter().zip(assertions) {
            let is_one_person = is_player_key(subject) || npcs.contains(subject) || names[subject.as_str()].len() <= 1;
            if is_one_person && subjects[name.as_str()].len() == 1 {
                // One trusted source is enough.
                *sure.entry((subject, name)).or_default() |= assertion.authored || assertion.npc.is_some();
            }
        }
        let mut groups = Self::default();
        for ((subject, name), of_npcs_too) in sure {
            let pair = [subject, name].map(|key| (key.to_owned(), spellings[key].to_owned()));
            groups.merge_group(pair, |joined| {
                let players = joined.values().filter(|name| party::is_player(name)).count();
                let npcs = joined.keys().filter(|key| npcs.contains(*key)).count();
                players + npcs <= 1 && (npcs == 0 || of_npcs_too)
            });
        }
        groups
    }

    fn merge_group(&mut self, pair: [(String, String); 2], may_be_one: impl FnOnce(&BTreeMap<String, String>) -> bool) {
        let mut joined = BTreeMap::from(pair);
        let (overlapping, separate): (Vec<_>, Vec<_>) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|group| group.keys().any(|key| joined.contains_key(key)));
        joined.extend(
            overlapping
                .iter()
                .flatten()
                .map(|(key, name)| (key.clone(), name.clone())),
        );
        self.0 = separate;
        if may_be_one(&joined) {
            self.0.push(joined);
        } else {
            self.0.extend(overlapping);
        }
    }

    /// The other names of a subject, in any spelling of the subject.
    pub fn other_names(&self, subject: &str) -> impl Iterator<Item = &str> {
        let key = party::subject_key(subject);
        let group = self.0.iter().find(|group| group.contains_key(&key));
        group
            .into_iter()
            .flatten()
            .filter(move |(other, _)| **other != key)
            .map(|(_, name)| name.as_str())
    }

    /// The names of each person or thing, as spelled.
    pub fn name_groups(&self) -> impl Iterator<Item = impl Iterator<Item = &str>> {
        self.0.iter().map(|group| group.values().map(String::as_str))
    }

    /// The keys of a subject and of its other names.
    #[must_use]
    pub fn keys_of(&self, subject: &str) -> Vec<String> {
        let key = party::subject_key(subject);
        match self.0.iter().find(|group| group.contains_key(&key)) {
            Some(group) => group.keys().cloned().collect(),
            None => vec![key],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn told<'a>(subject: &'a str, name: &'a str) -> NameAssertion<'a> {
        NameAssertion {
            subject,
            name,
            npc: None,
            authored: false,
            nickname: false,
        }
    }

    /// A nickname.
    pub(super) fn nicknamed<'a>(subject: &'a str, name: &'a str) -> NameAssertion<'a> {
        NameAssertion {
            nickname: true,
            ..told(subject, name)
        }
    }

    fn others(told: &[NameAssertion<'_>], of: &str) -> Vec<String> {
        NameAliases::from_assertions(told)
            .other_names(of)
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn person_has_many_names() {
        let sister = told("player:p7's sister", "Anna");
        assert_eq!(others(&[sister], "Anna"), ["player:p7's sister"]);
        assert_eq!(others(&[sister], "player:p7's sister"), ["Anna"]);
        let chain = [sister, told("Anna", "the baker"), told("Hob", "Bob")];
        assert_eq!(others(&chain, "the baker"), ["Anna", "player:p7's sister"]);
        assert_eq!(others(&chain, "Mira"), Vec::<String>::new());
    }

    #[test]
    fn spellings_of_a_name_are_one() {
        let told = [
            told("player:p7's sister", "Anna"),
            told("player:p7\u{2019}s Sister", "anna"),
            told("The Lantern Inn", "the old house"),
        ];
        assert_eq!(others(&told, "ANNA"), ["player:p7's sister"]);
        assert_eq!(
            NameAliases::from_assertions(&told).keys_of("lantern inn"),
            ["lantern inn", "old house"].map(str::to_owned)
        );
        assert_eq!(
            NameAliases::from_assertions(&told).keys_of("Mira"),
            ["mira"].map(str::to_owned)
        );
    }

    #[test]
    fn ambiguous_names_stay_separate() {
        let sister = told("player:p7's sister", "Anna");
        for doubtful in [
            vec![sister, told("player:p7's dog", "Anna")],
            vec![sister, told("player:p7's sister", "Clara")],
        ] {
            assert_eq!(
                NameAliases::from_assertions(&doubtful),
                NameAliases::default(),
                "{doubtful:?}"
            );
        }
    }

    #[test]
    fn player_and_npc_have_any_number_of_names_and_others_have_nicknames() {
        let player = [told("player:p7", "Ida Marrable"), nicknamed("player:p7", "Wren")];
        assert_eq!(others(&player, "Wren"), ["Ida Marrable", "player:p7"]);
        let titles = [told("player:p7", "Ida"), told("player:p7", "the Lady of the Fen")];
        assert_eq!(others(&titles, "Ida"), ["the Lady of the Fen", "player:p7"]);
        let by_mira = |name| NameAssertion {
            npc: Some("Mira"),
            ..told("Mira", name)
        };
        assert_eq!(
            others(&[by_mira("Mimi"), by_mira("the Red")], "Mimi"),
            ["Mira", "the Red"]
        );
        let teacher = [told("박정호", "박정호 선생님"), nicknamed("박정호", "곰쌤")];
        assert_eq!(others(&teacher, "곰쌤"), ["박정호", "박정호 선생님"]);
        let sister = told("player:p7's sister", "Anna");
        assert_eq!(
            others(&[sister, nicknamed("player:p7's sister", "Annie")], "Annie"),
            ["Anna", "player:p7's sister"]
        );
        // Whose nickname?
        let sisters = [
            sister,
            told("player:p7's sister", "Clara"),
            nicknamed("player:p7's sister", "Annie"),
        ];
        assert_eq!(NameAliases::from_assertions(&sisters), NameAliases::default());
    }

    #[test]
    fn correction_of_a_name_is_told_from_a_second_name() {
        let statement = |object: &str, content: &str| Statement {
            subject: "player:p7".into(),
            predicate: "be named".into(),
            object: object.into(),
            content: content.into(),
            keywords: Vec::new(),
            speaker: "player:p7".into(),
            kind: crate::fact::FactKind::PersonalInfo,
            importance: crate::fact::Importance::DEFAULT,
            polarity: Polarity::Positive,
            tense: Tense::Present,
            pinned: false,
        };
        let ida = statement("Ida", "The player's name is Ida.");
        let doyun = statement("이도윤", "플레이어의 이름은 이도윤이다.");
        for (old, content, is) in [
            (&ida, "The player's name is not Ida but Ada.", true),
            (&ida, "The player's name isn\u{2019}t Ida.", true),
            (&ida, "Friends call the player Wren.", false),
            (&ida, "The player is called Ida Marrable.", false),
            (&doyun, "플레이어의 이름은 이도윤이 아니라 이도현이다.", true),
            (&doyun, "플레이어의 별명은 똘이이다.", false),
        ] {
            assert_eq!(corrects_name(&statement("Ada", content), old), is, "{content}");
        }
        assert!(tells_nickname(&statement("똘이", "플레이어의 별명은 똘이이다.")) && !tells_nickname(&ida));
    }

    #[test]
    fn speakers_are_never_merged() {
        let spoke = NameAssertion {
            npc: Some("Mira"),
            ..told("the well", "Old Deep")
        };
        let by_mira = |subject, name| NameAssertion {
            npc: Some("Mira"),
            ..told(subject, name)
        };
        let two_players = [told("player:p7", "Rowan"), told("player:p8", "Rowan")];
        assert_eq!(others(&two_players, "Rowan"), Vec::<String>::new());
        assert_eq!(others(&[told("player:p7", "Rowan")], "Rowan"), ["player:p7"]);
        assert_eq!(
            others(&[told("player:p7", "player:p8")], "player:p8"),
            Vec::<String>::new()
        );
        assert_eq!(
            others(&[spoke, told("player:p7", "Mira")], "Mira"),
            Vec::<String>::new()
        );
        // A player cannot decide who the NPC is.
        assert_eq!(others(&[spoke, told("Mira", "the spy")], "Mira"), Vec::<String>::new());
        assert_eq!(others(&[by_mira("Mira", "Mimi")], "Mimi"), ["Mira"]);
        // Not by a detour either.
        let detour = [
            spoke,
            told("player:p7", "Rowan"),
            by_mira("Mira", "Mimi"),
            told("Mimi", "Rowan"),
        ];
        assert_eq!(others(&detour, "Rowan"), Vec::<String>::new());
    }

    #[test]
    fn naming_predicates_have_one_wording() {
        assert_eq!(canonical_predicate("Is Called".to_owned()), "be named");
        assert_eq!(canonical_predicate("이라고 불리다".to_owned()), "이름이다");
        assert_eq!(canonical_predicate("Is nicknamed".to_owned()), "be nicknamed");
        assert_eq!(canonical_predicate("별명".to_owned()), "별명이다");
        assert_eq!(canonical_predicate("like".to_owned()), "like");
    }
}
