//! Lines about the world: what the turns of earlier dialogues set.

use super::*;
use crate::prompt::world::{Onlooker, world_lines};
use colloquy_memory::state::StateChange;

const PLAYER_KEY: &str = "player:p7";

fn session(number: u128) -> DialogueId {
    DialogueId::new(DialogueKind::Session, ulid::Ulid(number))
}

fn met(whom: &str) -> StateChange {
    StateChange::Met {
        who: PLAYER_KEY.to_owned(),
        whom: whom.to_owned(),
    }
}

fn moved_to(place: &str) -> StateChange {
    StateChange::Location {
        who: PLAYER_KEY.to_owned(),
        to: place.to_owned(),
    }
}

/// Returns the lines of a prompt of day `day` for changes with their days and dialogues.
fn lines(
    language: Language,
    changes: &[(StateChange, i64, Option<DialogueId>)],
    in_dialogue: u128,
    day: i64,
) -> String {
    let (world, npc, player) = (world(language), npc(language), "p7".parse().unwrap());
    let mut state = WorldState::default();
    for (change, day, dialogue) in changes {
        state.apply_change(change, at(*day), *dialogue);
    }
    let onlooker = Onlooker {
        dialogue: session(in_dialogue),
        world: &world,
        npc: &npc,
        player: Some(&player),
        scene: None,
        now: at(day),
    };
    world_lines(&TEMPLATES, &state, &onlooker).unwrap().join("\n")
}

#[test]
fn companion_of_an_earlier_dialogue_is_left_out() {
    let by_turn = |dialogue| [(met("Lorenz"), 0, Some(session(dialogue)))];
    for (language, with) in [(Language::En, "with: Lorenz"), (Language::Ko, "함께 있음: Lorenz")] {
        assert!(lines(language, &by_turn(2), 2, 9).contains(with), "of this dialogue");
        assert_eq!(lines(language, &by_turn(1), 2, 0), "", "of another dialogue");
        assert!(
            lines(language, &[(met("Lorenz"), 0, None)], 2, 9).contains(with),
            "of the backend"
        );
    }
}

#[test]
fn companion_of_the_backend_stays_when_the_place_of_both_is_left_out() {
    let lorenz_moved = StateChange::Location {
        who: "Lorenz".to_owned(),
        to: "The mill".to_owned(),
    };
    let changes = [
        (met("Lorenz"), 0, None),
        (moved_to("The mill"), 0, Some(session(1))),
        (lorenz_moved, 0, Some(session(1))),
    ];
    let later = lines(Language::En, &changes, 2, 9);
    assert!(later.contains("with: Lorenz") && !later.contains("The mill"), "{later}");
}

#[test]
fn place_of_an_earlier_dialogue_is_left_out_after_a_day() {
    let by_turn = [(moved_to("The mill"), 0, Some(session(1)))];
    for (language, at_mill, last_at_mill) in [
        (Language::En, "; at: The mill", "; last at: The mill"),
        (Language::Ko, "; 위치: The mill", "; 마지막 위치: The mill"),
    ] {
        for day in [0, 1] {
            let later = lines(language, &by_turn, 2, day);
            assert!(later.contains(last_at_mill), "{later}");
        }
        assert_eq!(lines(language, &by_turn, 2, 2), "", "two days later");
        assert!(
            lines(language, &by_turn, 1, 9).contains(at_mill),
            "in the dialogue itself"
        );
        let by_backend = [(moved_to("The mill"), 0, None)];
        assert!(lines(language, &by_backend, 2, 9).contains(at_mill));
    }
}

#[test]
fn mood_of_an_earlier_day_is_left_out() {
    let calm = StateChange::Mood {
        who: "mira".to_owned(),
        mood: "calm".to_owned(),
    };
    for (language, mood) in [(Language::En, "mood: calm"), (Language::Ko, "기분: ")] {
        for by in [None, Some(session(1)), Some(session(2))] {
            let changes = [(calm.clone(), 3, by)];
            let today = lines(language, &changes, 2, 3);
            assert!(today.contains(mood), "{today}");
            assert_eq!(lines(language, &changes, 2, 4), "", "the next day");
        }
    }
}

#[test]
fn nobody_is_near_at_a_place_of_an_earlier_dialogue() {
    let to_mill = |who: &str| StateChange::Location {
        who: who.to_owned(),
        to: "The mill".to_owned(),
    };
    let bram = (to_mill("Bram"), 0, Some(session(1)));
    let near = |mira, day| lines(Language::En, &[bram.clone(), (to_mill("Mira"), 0, mira)], 2, day);
    assert!(near(None, 1).contains("Also here: Bram"));
    let later = near(None, 2);
    assert!(
        later.contains("Mira; at: The mill") && !later.contains("Bram"),
        "{later}"
    );
    assert_eq!(near(Some(session(1)), 2), "");
}

#[test]
fn line_about_somebody_near_has_the_place() {
    let moved_to_mill = |who: &str| StateChange::Location {
        who: who.to_owned(),
        to: "The mill".to_owned(),
    };
    let calm = StateChange::Mood {
        who: "Bram".to_owned(),
        mood: "calm".to_owned(),
    };
    let mut changes = vec![(moved_to_mill("Mira"), 0, None), (moved_to_mill("Bram"), 0, None)];
    let text = lines(Language::En, &changes, 2, 0);
    assert_eq!(text, "Mira; at: The mill\nAlso here: Bram");
    changes.push((calm, 0, None));
    let text = lines(Language::En, &changes, 2, 0);
    assert_eq!(text, "Mira; at: The mill\nBram; at: The mill; mood: calm");
}
