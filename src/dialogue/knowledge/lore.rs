//! Lore of a world: the entries of this node's memory, those that a turn's prompt may have, and writes of authors
//! (docs/algorithms.md#lore).
//!
//! All entries of a world, at most 10,000, are in the memory of each node that needs them, and every search is exact.
//! Mentions are counted in the turns of the dialogue. A rewind therefore takes mentions back without further work.

mod cache;
mod entries;
mod found;
mod people;
mod search;
mod section;
mod short_names;
mod write;

use self::found::{FoundLore, LoreHit, LoreNow};
pub use self::write::{embed_lore, import_lore, write_lore};
pub(crate) use self::{
    cache::LoreCache,
    entries::named_entries,
    people::DeadPerson,
    search::{LoreOfTurn, prepare_lore},
    section::Lore,
};

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use crate::disclosure::LoreVerdict;

    use super::{cache::LoadedLore, entries::entries_of_turn, *};
    use colloquy_memory::{
        authored::WorldSettings,
        disclosure::secrecy::Secrecy,
        lore::{LoreEntry, LoreScore, LoreText},
        state::{StateChange, WorldState},
        trace::{LoreFate, LoreSource},
    };
    use colloquy_ports::ledger::{
        lore::{EmbeddedLore, WorldLore},
        scenarios::Embedding,
    };

    fn entry(id: &str, name: &str, aliases: &[&str], characters: &[&str]) -> EmbeddedLore {
        let owned = |list: &[&str]| -> Vec<String> { list.iter().map(|text| (*text).to_owned()).collect() };
        let entry = LoreEntry {
            world: "vale".parse().unwrap(),
            id: id.parse().unwrap(),
            text: LoreText {
                name: name.to_owned(),
                aliases: owned(aliases),
                characters: owned(characters),
                ..LoreText::default()
            },
            version: 1,
            updated_at: chrono::DateTime::UNIX_EPOCH,
        };
        let embedding = Embedding {
            model: String::new(),
            vector: Vec::new(),
        };
        EmbeddedLore { entry, embedding }
    }

    #[test]
    fn tell_counts_only_for_a_prompt_that_shows_it() {
        let stored = entry("ship", "The drowned ship", &[], &["Captain Voss"]).entry;
        let score = LoreScore::default();
        let hit = |secrecy, fate| {
            let mut hit = LoreHit::new(0, &stored, LoreVerdict::sample(secrecy), score, LoreSource::Name);
            hit.trace.fate = fate;
            hit
        };
        let lore = Arc::new(LoadedLore::new(WorldLore::default(), "none").unwrap());
        for (secrecy, fate, has_tell) in [
            (Secrecy::Guarded, LoreFate::Used, true),
            (Secrecy::Guarded, LoreFate::Resting, false),
            (Secrecy::Guarded, LoreFate::Outranked, false),
            (Secrecy::Open, LoreFate::Used, false),
        ] {
            let found = FoundLore {
                lore: Arc::clone(&lore),
                hits: vec![hit(secrecy, fate)],
                unasked_deaths: Vec::new(),
            };
            assert_eq!(found.has_tell(), has_tell, "{secrecy:?} {fate:?}");
        }
    }

    #[test]
    fn entries_about_the_dead_tell_of_recent_deaths() {
        let stored = WorldLore {
            version: 1,
            entries: vec![
                entry("inn", "큰솥 주막", &[], &["곽분네"]),
                entry("vogts-death", "the death of Emmerich Vogt", &[], &["Emmerich Vogt"]),
                entry("wake", "곽분네의 초상", &[], &["곽분네", "황두칠"]),
            ],
            conditions_of_scenarios: Vec::new(),
        };
        let lore = LoadedLore::new(stored, "none").unwrap();
        let day = |day: i64| chrono::DateTime::UNIX_EPOCH + chrono::TimeDelta::days(day);
        let mut state = WorldState::default();
        for (name, died_on) in [("Emmerich Vogt", 10), ("곽분네", 12)] {
            let die = StateChange::Status {
                who: name.to_owned(),
                status: "dead".to_owned(),
            };
            state.apply_change(&die, day(died_on), None);
        }
        let settings = WorldSettings::default();
        let told_on = |today: i64| people::recent_deaths(&lore, &state, &settings, day(today), |_| true);
        assert_eq!(told_on(13), [2, 1], "the newest death first");
        assert_eq!(told_on(18), [2]);
        assert_eq!(told_on(20), Vec::<usize>::new());
        let is_news = |name: &str| name == "Emmerich Vogt";
        let news = people::recent_deaths(&lore, &state, &settings, day(13), is_news);
        assert_eq!(news, [1]);
    }

    #[test]
    fn names_of_entries_and_characters_are_found_in_a_line() {
        let stored = WorldLore {
            version: 1,
            entries: vec![
                entry("inn", "큰솥 주막", &["큰솥"], &["곽분네"]),
                entry("mill", "the old mill", &[], &["Anna Reiter"]),
            ],
            conditions_of_scenarios: Vec::new(),
        };
        let lore = LoadedLore::new(stored, "none").unwrap();
        for (line, names) in [
            ("Anna sleeps in the Old Mill.", vec!["the old mill", "Anna"]),
            ("Anna Reiter?", vec!["anna reiter", "Anna", "Reiter"]),
            ("분네가 큰솥에 있어요?", vec!["큰솥", "분네"]),
            ("Good day.", vec![]),
        ] {
            assert_eq!(lore.names_in(line), names, "{line}");
        }
    }

    #[test]
    fn dead_person_is_named_by_a_given_name_or_by_another_name_of_an_entry() {
        let stored = WorldLore {
            version: 1,
            entries: vec![
                entry("inn", "큰솥 주막", &["큰솥 할멈"], &["곽분네"]),
                entry("rockfall", "the rock fall", &[], &["Emmerich Vogt"]),
                entry("strike", "the strike", &[], &["Emmerich Vogt", "Corvin Haller"]),
                entry("wake", "곽분네의 초상", &[], &["곽분네"]),
            ],
            conditions_of_scenarios: Vec::new(),
        };
        let lore = LoadedLore::new(stored, "none").unwrap();
        let names = ["Emmerich Vogt", "곽분네"];
        let dead = names.map(|name| DeadPerson::new(name, &names.into_iter()));
        let found = |text: &str, dead: &[DeadPerson<'_>]| -> Vec<String> {
            let found = entries_of_turn(&lore, [text, ""], dead, |_| true);
            found.into_iter().map(|at| lore.entries[at].id.to_string()).collect()
        };
        for (text, of_dead, of_living) in [
            ("큰솥 할멈이 더덕 값을 깎으셨는데…", vec!["inn", "wake"], vec!["inn"]),
            ("Emmerich gave me a crust.", vec!["rockfall", "strike"], vec![]),
            ("Will the strike last?", vec!["strike"], vec!["strike"]),
            ("Good day.", vec![], vec![]),
        ] {
            assert_eq!(found(text, &dead), of_dead, "{text}");
            assert_eq!(found(text, &[]), of_living, "all are alive: {text}");
        }
    }
}
