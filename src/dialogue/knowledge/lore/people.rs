//! Whom a line means: people by a short name, and the dead by words of dying.

use std::{cmp::Reverse, collections::BTreeSet};

use chrono::{DateTime, Utc};

use super::{
    cache::{CharacterIndex, LoadedLore},
    short_names::telling_short_names,
};
use crate::turn::TurnInput;
use colloquy_memory::{
    authored::WorldSettings,
    game_clock::GameClock,
    keywords::{informative_terms, normalise_text, short_names_of},
    lore::{LoreEntry, has_short_name, is_named_in, speaks_of_death},
    party,
    state::WorldState,
};

/// The most of the dead for whom lore is looked for: those who died last.
const MAX_DEAD: usize = 8;
/// A death is news for so many days of the world's clock.
const NEWS_DAYS: i64 = 7;

/// True if somebody else among `names` than `whole` may be meant by `short`.
fn is_of_another<'n>(short: &str, full_name: &str, mut names: impl Iterator<Item = &'n str>) -> bool {
    let short_key = normalise_text(short);
    let full_name = normalise_text(full_name);
    names.any(|name| {
        let other = normalise_text(name);
        other != full_name && (other == short_key || short_names_of(name).any(|part| part == short))
    })
}

/// The people whom a line of a turn may mean.
#[derive(Clone)]
pub(super) struct KnownPeople<'a> {
    /// The NPC that is spoken to, normalised: its name in a line is an address.
    speaker: String,
    names: Vec<&'a str>,
}

impl<'a> KnownPeople<'a> {
    pub(super) fn of_turn(input: &'a TurnInput, state: &'a WorldState) -> Self {
        let cast = input.scene.iter().flat_map(|scene| &scene.cast);
        let cast = cast.map(|member| member.name.as_str());
        let other_names = state.characters.keys().map(String::as_str);
        let other_names = other_names.filter(|name| !party::is_player(name));
        Self {
            speaker: normalise_text(&input.npc.name),
            names: cast.chain(other_names).chain([input.npc.name.as_str()]).collect(),
        }
    }

    /// Returns the characters of the lore whom a text means by a short name, each with the entries about it. A short
    /// name that somebody else has too means nobody.
    fn find_short<'l>(&self, characters: &'l CharacterIndex, text: &str) -> Vec<(&'l str, &'l [usize])> {
        let matches = characters.find_short_in(text);
        let unique_matches = matches.filter(|(short, full_name, _)| {
            *full_name != self.speaker && !is_of_another(short, full_name, self.names.iter().copied())
        });
        unique_matches
            .map(|(_, full_name, entries)| (full_name, entries))
            .collect()
    }
}

/// Calls `on_match` with the position of each entry that a text names, and whether a keyword alone names it. The short
/// name of a person names the entries with the person's name.
pub(super) fn find_names(
    lore: &LoadedLore,
    people: &KnownPeople<'_>,
    text: &str,
    mut on_match: impl FnMut(usize, bool),
) {
    lore.names.find_in(text, &mut on_match);
    for (name, entries) in people.find_short(&lore.characters, text) {
        for index in entries {
            if normalise_text(lore.entries[*index].text.name.trim()) == name {
                on_match(*index, false);
            }
        }
    }
}

/// Returns the normalised names of the characters whom a text means, by a whole or a short name. A name that is a common
/// word ("Will") means nobody.
pub(super) fn names_meant<'l>(
    characters: &'l CharacterIndex,
    people: &KnownPeople<'_>,
    text: &str,
) -> impl Iterator<Item = &'l str> {
    let matches = characters.find_in(text).chain(people.find_short(characters, text));
    let names: Vec<&str> = matches.map(|(name, _)| name).collect();
    let is_telling = |name: &&str| !name.is_ascii() || !informative_terms(name).is_empty();
    names.into_iter().filter(is_telling)
}

/// Returns the entries about the characters whom a line names, and those about the dead if the line speaks of dying.
/// The NPC that is spoken to does not count.
pub(super) fn entries_about_meant(
    characters: &CharacterIndex,
    state: &WorldState,
    people: &KnownPeople<'_>,
    line: &str,
) -> BTreeSet<usize> {
    let named_people = characters
        .find_in(line)
        .chain(people.find_short(characters, line))
        .filter(|(name, _)| *name != people.speaker);
    let mut indexes: BTreeSet<usize> = named_people.flat_map(|(_, entries)| entries.iter().copied()).collect();
    if speaks_of_death(line) {
        for (name, _) in newest_dead(state) {
            let name = normalise_text(name);
            if name != people.speaker {
                indexes.extend(characters.entries_about(&name));
            }
        }
    }
    indexes
}

/// Returns the names of the dead who are no players, and when they died: the newest deaths first.
fn newest_dead(state: &WorldState) -> Vec<(&str, Option<DateTime<Utc>>)> {
    let characters = state.characters.iter();
    let mut dead: Vec<_> = characters
        .filter(|(name, character)| character.is_dead() && !party::is_player(name))
        .collect();
    dead.sort_by_key(|(_, character)| Reverse(character.status_since));
    let newest = dead.into_iter().take(MAX_DEAD);
    newest
        .map(|(name, character)| (name.as_str(), character.status_since))
        .collect()
}

/// Returns the entries that tell of the deaths of the last days, the newest deaths first. `is_news`: true if the death
/// of the character with this name counts.
pub(super) fn recent_deaths(
    lore: &LoadedLore,
    state: &WorldState,
    settings: &WorldSettings,
    now: DateTime<Utc>,
    is_news: impl Fn(&str) -> bool,
) -> Vec<usize> {
    let clock = GameClock::new(settings, state);
    let first_day = GameClock::day_at(clock, now) - NEWS_DAYS;
    let mut indexes = Vec::new();
    for (name, died_at) in newest_dead(state) {
        let entries = lore.characters.entries_about(&normalise_text(name));
        let is_old = died_at.is_none_or(|died_at| GameClock::day_at(clock, died_at) < first_day);
        if is_old || entries.is_empty() || !is_news(name) {
            continue;
        }
        for index in entries {
            let text = &lore.entries[*index].text;
            let tells = speaks_of_death(&text.name) || speaks_of_death(&text.content);
            if tells && !indexes.contains(index) {
                indexes.push(*index);
            }
        }
    }
    indexes
}

/// Somebody who is dead, with the short names that nobody else has.
pub(crate) struct DeadPerson<'s> {
    pub name: &'s str,
    short: Vec<&'s str>,
}

impl<'s> DeadPerson<'s> {
    /// `people` are the names among which short names must be unambiguous.
    pub(crate) fn new<'n>(name: &'s str, people: &(impl Iterator<Item = &'n str> + Clone)) -> Self {
        let short = telling_short_names(name).filter(|short| !is_of_another(short, name, people.clone()));
        Self {
            name,
            short: short.collect(),
        }
    }

    pub(crate) fn is_named_in(&self, text: &str) -> bool {
        is_named_in(text, self.name) || self.short.iter().any(|short| has_short_name(text, short))
    }

    /// True if the person is one of the entry's characters.
    pub(crate) fn is_in(&self, entry: &LoreEntry) -> bool {
        let name = normalise_text(self.name);
        let mut characters = entry.text.characters.iter();
        characters.any(|character| normalise_text(character.trim()) == name)
    }

    /// True if the entry is about the person alone, so that its names may mean the person.
    pub(crate) fn is_alone_in(&self, entry: &LoreEntry) -> bool {
        entry.text.characters.len() == 1 && self.is_in(entry)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use colloquy_memory::state::StateChange;

    fn state_with_dead(names: &[&str]) -> WorldState {
        let mut state = WorldState::default();
        for (day, name) in (1_i64..).zip(names) {
            let die = StateChange::Status {
                who: (*name).to_owned(),
                status: "dead".to_owned(),
            };
            state.apply_change(&die, DateTime::UNIX_EPOCH + chrono::TimeDelta::days(day), None);
        }
        state
    }

    #[test]
    fn words_of_dying_find_the_entries_about_the_dead() {
        let of_entries = [
            vec!["Emmerich Vogt".to_owned()],
            vec!["Corvin".to_owned()],
            vec!["곽분네".to_owned()],
            vec!["Ottilie".to_owned()],
        ];
        let characters = CharacterIndex::new(of_entries.iter().map(Vec::as_slice), []).unwrap();
        let people = KnownPeople {
            speaker: "corvin".to_owned(),
            names: vec!["Corvin"],
        };
        let found = |state: &WorldState, line: &str| -> Vec<usize> {
            let found = entries_about_meant(&characters, state, &people, line);
            found.into_iter().collect()
        };
        let state = state_with_dead(&["Emmerich Vogt", "곽분네", "Corvin"]);
        for (line, entries) in [
            ("Did you hear who died at the face?", vec![0, 2]),
            ("누가 죽었다며?", vec![0, 2]),
            ("Ottilie said somebody is dead.", vec![0, 2, 3]),
            ("What's the news?", vec![]),
        ] {
            assert_eq!(found(&state, line), entries, "{line}");
        }
        let nobody = found(&WorldState::default(), "Who died?");
        assert_eq!(nobody, Vec::<usize>::new(), "all are alive");
        assert_eq!(found(&WorldState::default(), "Emmerich looked tired."), [0]);
    }

    #[test]
    fn short_name_of_somebody_else_means_nobody_of_the_lore() {
        let of_entries = [vec!["Anna Reiter".to_owned()], vec!["최칠성".to_owned()]];
        let characters = CharacterIndex::new(of_entries.iter().map(Vec::as_slice), []).unwrap();
        let found = |names: &[&str], line: &str| {
            let people = KnownPeople {
                speaker: normalise_text(names[0]),
                names: names.to_vec(),
            };
            let found = people.find_short(&characters, line);
            found.first().map(|(name, _)| (*name).to_owned())
        };
        let anna = Some("anna reiter".to_owned());
        assert_eq!(found(&["Ottilie"], "Your Anna boils the sheets?"), anna);
        assert_eq!(
            found(&["Ottilie", "Anna Reiter"], "Anna's here."),
            anna,
            "she has a state"
        );
        assert_eq!(found(&["Ottilie", "Anna Berg"], "Your Anna?"), None);
        assert_eq!(found(&["Anna Reiter"], "Anna, good day."), None, "she is spoken to");
        assert_eq!(found(&["곽분네"], "칠성이는 어디 있어요?"), Some("최칠성".to_owned()));
        assert_eq!(found(&["곽분네", "박칠성"], "칠성이는 어디 있어요?"), None);
    }

    #[test]
    fn dead_person_is_named_by_a_short_name_that_nobody_else_has() {
        let named =
            |name: &str, people: &[&str], text: &str| DeadPerson::new(name, &people.iter().copied()).is_named_in(text);
        let vogt = "Emmerich Vogt";
        assert!(named(vogt, &[vogt], "Emmerich gave me a crust."));
        assert!(named(vogt, &[vogt], "poor Emmerich Vogt"));
        assert!(!named(vogt, &[vogt, "Emmerich Kranz"], "Emmerich gave me a crust."));
        assert!(!named("Will Carter", &[], "Will you come?"), "a common word");
        assert!(named("곽분네", &["곽분네"], "분네는 어디 묻혔어요?"));
        assert_eq!(newest_dead(&state_with_dead(&["Bram", "Anna"]))[0].0, "Anna");
    }
}
