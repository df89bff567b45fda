//! The people in a line, found by the names that a memory knows: "Anna", "my sister", "내 동생이".

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use super::NameAliases;
use crate::{
    keywords, party,
    text::{WordList, word_list},
};

/// Words before a thing that belongs to the speaker, in each language.
const SPEAKER_POSSESSIVES: [&str; 9] = ["my", "our", "내", "제", "우리", "저희", "나의", "저의", "우리의"];
/// Words before a thing that belongs to the listener.
static LISTENER_POSSESSIVES: WordList =
    LazyLock::new(|| word_list("your, 네, 니, 너의, 너희, 자네, 자네의, 당신, 당신의, 그대, 그대의"));
/// Most words between an owner and the owned thing: "my dear old sister".
const MAX_WORDS_BETWEEN: usize = 2;
/// Syllables of a Korean word that is clear alone, or stands for a longer word that ends in it: 동생 for 여동생.
const MIN_NAME_SYLLABLES: usize = 2;
/// Names with less total weight are taken as ordinary words: "Will", "May".
const MIN_NAME_WEIGHT: f32 = 0.5;

/// The speaker and the listener of a line. Names are as stored in facts: `player:p7`, `Mira`.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpeakerAndListener<'a> {
    pub speaker: Option<&'a str>,
    pub listener: Option<&'a str>,
}

impl NameAliases {
    /// The other names of people in a line, as words for a search. Of a player's belongings ("the player's sister")
    /// only the thing ("sister") is returned. The listener's names are left out, because they say nothing about the
    /// topic of a line.
    #[must_use]
    pub fn names_mentioned(&self, line: &str, roles: SpeakerAndListener<'_>) -> BTreeSet<String> {
        let mut search_names = BTreeSet::new();
        if self.0.is_empty() {
            return search_names;
        }
        let line = LineWords::parse_line(line, self, roles);
        let short = self.short_names();
        for group in &self.0 {
            if line
                .listener
                .as_ref()
                .is_some_and(|listener| group.contains_key(listener))
            {
                continue;
            }
            let (mentioned, unmentioned): (Vec<_>, Vec<_>) = group.iter().partition(|(key, _)| line.mentions_key(key));
            let in_short = || {
                let mut names = short.iter().filter(|(_, key)| group.contains_key(**key));
                names.any(|(part, _)| is_distinctive_name(part) && line.name_ends(part).next().is_some())
            };
            if !mentioned.is_empty() || in_short() {
                search_names.extend(
                    unmentioned
                        .into_iter()
                        .filter_map(|(key, name)| search_words(key, name)),
                );
            }
        }
        search_names
    }

    /// The parts of full names by which people are called, each with the key of the full name: "ida" and "marrable" of
    /// "ida marrable", 민수 of 김민수. A part of several people's names, or a part that is itself a name, is left out.
    fn short_names(&self) -> BTreeMap<&str, &str> {
        let mut parts: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        for group in &self.0 {
            let is_person = group.keys().any(|key| party::is_player(key) || key.contains('/'));
            for key in group.keys().filter(|key| !key.contains('/') && !party::is_player(key)) {
                for part in parts_of_name(key, is_person) {
                    let of_key = parts.entry(part).or_insert(Some(key.as_str()));
                    *of_key = of_key.filter(|other| group.contains_key(*other));
                }
            }
        }
        let is_name = |part: &str| self.0.iter().any(|group| group.contains_key(part));
        let unique = parts.into_iter().filter_map(|(part, key)| Some((part, key?)));
        unique.filter(|(part, _)| !is_name(part)).collect()
    }
}

/// The parts of a full name. A name of two Latin words has parts only if its bearer is a person: the inn in "Lantern
/// Inn" may be any inn.
fn parts_of_name(key: &str, is_person: bool) -> Vec<&str> {
    if let Some(given_name) = keywords::korean_given_name(key) {
        return vec![given_name];
    }
    match key.split_once(' ') {
        Some((first, last)) if is_person && !last.contains(' ') && key.is_ascii() => vec![first, last],
        _ => Vec::new(),
    }
}

/// `None`: the name is a player, for whom no word can be searched.
fn search_words(key: &str, name: &str) -> Option<String> {
    match key.split_once('/') {
        Some((owner, possession)) if party::is_player(owner) || party::means_player(owner) => {
            Some(possession.to_owned())
        }
        _ => (!party::is_player(key)).then(|| name.to_owned()),
    }
}

/// The words of a line. "네," with punctuation means "yes" and not "your".
fn words_of(line: &str) -> Vec<String> {
    let line = keywords::normalise_text(line);
    let tokens = line.split_inclusive(|c: char| !c.is_alphanumeric());
    tokens
        .filter_map(|token| {
            let word = token.trim_end_matches(|c: char| !c.is_alphanumeric());
            let is_yes = word == "네" && !token.ends_with(char::is_whitespace) && token != word;
            (!word.is_empty() && !is_yes).then(|| word.to_owned())
        })
        .collect()
}

/// A line as words. Queries use [keys](party::subject_key).
struct LineWords {
    words: Vec<String>,
    speaker: Option<String>,
    listener: Option<String>,
    /// All known names of one word: a thing after such a name belongs to the named person.
    anybody: Vec<String>,
}

impl LineWords {
    fn parse_line(line: &str, names: &NameAliases, roles: SpeakerAndListener<'_>) -> Self {
        let listener = roles.listener.map(party::subject_key);
        let name_keys = names.0.iter().flat_map(|group| group.keys()).cloned();
        Self {
            words: words_of(line),
            speaker: roles.speaker.map(party::subject_key),
            anybody: name_keys
                .filter(|key| !key.contains(['/', ' ']))
                .chain(listener.clone())
                .collect(),
            listener,
        }
    }

    /// True if the line mentions the person with this key.
    fn mentions_key(&self, key: &str) -> bool {
        let Some((owner, possession)) = key.split_once('/') else {
            return !party::is_player(key) && is_distinctive_name(key) && self.name_ends(key).next().is_some();
        };
        let possession: Vec<&str> = possession.split(' ').collect();
        let is_speaker =
            |speaker: &String| speaker == owner || (speaker == party::PLAYER && party::means_player(owner));
        if self.speaker.as_ref().is_some_and(is_speaker) {
            return self.has_owned_behind(&SPEAKER_POSSESSIVES, &possession) || self.has_unowned(&possession);
        }
        let of_listener =
            self.listener.as_deref() == Some(owner) && self.has_owned_behind(&LISTENER_POSSESSIVES, &possession);
        of_listener || self.name_ends(owner).any(|end| self.is_owned_at(end, &possession))
    }

    /// The ends of all places of a name in the line.
    fn name_ends(&self, name: &str) -> impl Iterator<Item = usize> {
        let name: Vec<&str> = name.split(' ').collect();
        (0..self.words.len()).filter_map(move |start| self.name_end_at(start, &name))
    }

    /// The end of a name that begins at a word.
    fn name_end_at(&self, start: usize, name: &[&str]) -> Option<usize> {
        let (last, first) = name.split_last()?;
        let end = start + name.len();
        let words = self.words.get(start..end)?;
        let begins = words.iter().zip(first).all(|(word, part)| word == part);
        (begins && keywords::matches_name(&words[first.len()], last)).then_some(end)
    }

    fn has_owned_behind(&self, owners: &[&str], owned: &[&str]) -> bool {
        let mut words = self.words.iter().enumerate();
        words.any(|(index, word)| owners.contains(&word.as_str()) && self.is_owned_at(index + 1, owned))
    }

    /// True if the thing after an owner is `owned`: after some other words, or only its last word.
    fn is_owned_at(&self, behind: usize, owned: &[&str]) -> bool {
        // The `s` of "Mira's".
        let behind = behind + usize::from(self.words.get(behind).is_some_and(|word| word == "s"));
        let is = |end: usize| !self.words[end..].starts_with(&["in".to_owned(), "law".to_owned()]);
        (0..=MAX_WORDS_BETWEEN).any(|skipped| self.name_end_at(behind + skipped, owned).is_some_and(is))
            || matches!(owned, [_, head] if self.name_end_at(behind, &[*head]).is_some_and(is))
            || matches!(owned, [only] if self.words.get(behind).is_some_and(|word| is_compound_ending(word, only)))
    }

    /// Korean mentions the speaker's own family without an owner.
    fn has_unowned(&self, owned: &[&str]) -> bool {
        let [owned] = owned else { return false };
        let is_owned = |word: &str| keywords::matches_name(word, owned) || is_compound_ending(word, owned);
        let is_anybodys = |word: &String| {
            let names = || self.anybody.iter().any(|name| keywords::matches_name(word, name));
            word.ends_with('의') || LISTENER_POSSESSIVES.contains(&word.as_str()) || names()
        };
        let mut words = self.words.iter().enumerate();
        is_long_korean(owned)
            && words.any(|(index, word)| is_owned(word) && !(index > 0 && is_anybodys(&self.words[index - 1])))
    }
}

/// True if a name is rare enough among words. A single Korean syllable begins many words.
fn is_distinctive_name(name: &str) -> bool {
    let weight: f32 = keywords::query_terms(name).0.iter().map(|(_, weight)| weight).sum();
    weight >= MIN_NAME_WEIGHT && name.chars().nth(1).is_some()
}

/// True if a Korean word is the end of a longer word, with or without particles: 동생이 of 여동생, or 여동생 of 동생.
fn is_compound_ending(word: &str, owned: &str) -> bool {
    if !is_long_korean(word) || !is_long_korean(owned) {
        return false;
    }
    let stem: String = keywords::korean_stem(&word.chars().collect::<Vec<_>>())
        .into_iter()
        .collect();
    is_long_korean(&stem) && (stem.ends_with(owned) || owned.ends_with(&stem))
}

fn is_long_korean(word: &str) -> bool {
    word.chars().count() >= MIN_NAME_SYLLABLES && word.chars().all(keywords::is_hangul)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            NameAssertion,
            tests::{nicknamed, told},
        },
        *,
    };

    const P7: SpeakerAndListener<'static> = SpeakerAndListener {
        speaker: Some("player:p7"),
        listener: Some("Mira"),
    };

    fn spoken_of(told: &[NameAssertion<'_>], line: &str) -> Vec<String> {
        NameAliases::from_assertions(told)
            .names_mentioned(line, P7)
            .into_iter()
            .collect()
    }

    #[test]
    fn name_in_a_line_adds_its_aliases() {
        let names = [
            told("player:p7's sister", "Anna"),
            told("The Lantern Inn", "the old house"),
            told("Captain Vale", "the crow"),
        ];
        for (line, others) in [
            ("What do you know of Anna?", &["sister"][..]),
            ("Anna's moved, by the way", &["sister"]),
            ("How is my sister?", &["Anna"]),
            ("How is my dear sister's shop?", &["Anna"]),
            ("our sister", &["Anna"]),
            ("Anna is my sister", &[]),
            ("How is your sister?", &[]),
            ("How is Mira's sister?", &[]),
            ("my sister-in-law is here", &[]),
            ("a sister of the abbey", &[]),
            ("Annabel came by", &[]),
            ("Is the lantern inn open?", &["the old house"]),
            ("I saw the old house", &["The Lantern Inn"]),
            ("an old cottage, a house", &[]),
            ("Captain Vale's horse", &["the crow"]),
            ("the captain", &[]),
            ("", &[]),
        ] {
            assert_eq!(spoken_of(&names, line), others, "{line}");
        }
    }

    #[test]
    fn korean_names_have_particles_and_implied_owners() {
        let names = [
            told("player:p7의 여동생", "서연"),
            told("player:p7의 누나", "지영"),
            told("에르겐의 스승", "도윤"),
        ];
        for (line, others) in [
            ("서연이 소식 들었어?", &["여동생"][..]),
            ("서연이가 이사했대", &["여동생"]),
            ("서연한테 들었어", &["여동생"]),
            ("서연은 어디 살지?", &["여동생"]),
            ("내 여동생은 어디 살지?", &["서연"]),
            ("내 동생은 어디 살지?", &["서연"]),
            ("여동생이 뭐래?", &["서연"]),
            ("우리 누나한테 전해 줘", &["지영"]),
            ("요즘 누나는 어때?", &["지영"]),
            ("네 여동생은 어디 살지?", &[]),
            ("네, 여동생이 왔어요.", &["서연"]),
            ("네! 여동생은 잘 지내요.", &["서연"]),
            ("도윤의 누나는?", &["에르겐의 스승"]),
            ("에르겐의 스승은 누구야?", &["도윤"]),
            ("동생 얘기 했었나", &["서연"]),
            ("서연화가 피었네", &[]),
        ] {
            assert_eq!(spoken_of(&names, line), others, "{line}");
        }
    }

    #[test]
    fn full_name_is_mentioned_by_its_parts_unless_several_share_them() {
        let names = [
            told("player:p7", "Ida Marrable"),
            told("player:p7's cousin", "Piet Marrable"),
            told("The Lantern Inn", "Old House"),
            told("player:p7의 친구", "김민수"),
            nicknamed("박정호", "곰쌤"),
        ];
        for (line, others) in [
            ("Has anybody asked for Ida?", &["Ida Marrable"][..]),
            ("How is Piet?", &["Piet Marrable", "cousin"]),
            ("a house of the Marrables, Marrable", &[]),
            ("an inn, a house", &[]),
            ("민수한테 들켰어요", &["김민수", "친구"]),
            ("정호 선생님은요?", &["곰쌤", "박정호"]),
            ("곰쌤은 어디 계세요?", &["박정호"]),
            ("민수기는 어디 있지", &[]),
        ] {
            assert_eq!(spoken_of(&names, line), others, "{line}");
        }
        let namesakes = [told("player:p7의 친구", "김민수"), told("player:p7의 사촌", "박민수")];
        assert_eq!(spoken_of(&namesakes, "민수는 어때?"), [""; 0]);
    }

    #[test]
    fn owner_of_a_relation_depends_on_speaker_and_listener() {
        let author = NameAssertion {
            authored: true,
            ..told("Mira's sister", "Elna")
        };
        let names = [
            author,
            told("player:p7's sister", "Anna"),
            told("player:p8's sister", "Clara"),
        ];
        assert_eq!(spoken_of(&names, "How is your sister?"), ["Elna"]);
        assert_eq!(spoken_of(&names, "How is my sister?"), ["Anna"]);
        assert_eq!(spoken_of(&names, "Elna?"), ["Mira's sister"]);
        let names = NameAliases::from_assertions(&names);
        assert!(
            names
                .names_mentioned("my sister, your sister", SpeakerAndListener::default())
                .is_empty()
        );
        assert!(NameAliases::default().names_mentioned("Anna", P7).is_empty());
    }

    #[test]
    fn loose_kinship_word_matches_a_closer_one() {
        let names = [told("player:p7's older brother", "Corin")];
        assert_eq!(spoken_of(&names, "Where is my brother?"), ["Corin"]);
        assert_eq!(spoken_of(&names, "Where is my older brother?"), ["Corin"]);
        assert_eq!(spoken_of(&names, "Where is my younger brother?"), [""; 0]);
    }

    #[test]
    fn listener_and_player_are_not_the_topic_of_a_line() {
        let by_mira = NameAssertion {
            npc: Some("Mira"),
            ..told("Mira", "Mimi")
        };
        let names = [by_mira, told("player:p7", "Rowan"), told("Rowan", "the wolf")];
        assert_eq!(spoken_of(&names, "Mimi, I am back"), [""; 0]);
        assert_eq!(spoken_of(&names, "Do you know Rowan?"), ["the wolf"]);
        assert_eq!(spoken_of(&names, "What do I like?"), [""; 0]);
    }
}
