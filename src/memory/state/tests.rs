use proptest::prelude::*;

use super::*;
use colloquy_core::ids::DialogueKind;

fn folded<'a>(changes: impl Iterator<Item = &'a StateChange>) -> WorldState {
    fold_changes(changes.map(|change| (change, DateTime::UNIX_EPOCH)))
}
fn hp(delta: i32) -> StateChange {
    StateChange::HpDelta {
        who: "player".into(),
        delta,
    }
}
fn relation(delta: i32) -> StateChange {
    StateChange::Relationship {
        from: "mira".into(),
        to: "player".into(),
        kind: "trust".into(),
        delta,
    }
}
fn gain(count: u32) -> StateChange {
    StateChange::ItemGained {
        who: "player".into(),
        item: "물약".into(),
        count,
    }
}
fn lose(count: u32) -> StateChange {
    StateChange::ItemLost {
        who: "player".into(),
        item: "물약".into(),
        count,
    }
}
fn player(state: &WorldState) -> &Character {
    &state.characters["player"]
}

#[test]
fn relationship_kind_is_read_in_any_historical_spelling() {
    let of = |kind: &str| StateChange::Relationship {
        from: "mira".into(),
        to: "player".into(),
        kind: kind.into(),
        delta: 5,
    };
    let written = ["Trust", "trust", "신뢰", "blood oath", "Blood Oath"].map(of);
    let state = folded(written.iter());
    let kinds: Vec<_> = state
        .relationships
        .iter()
        .map(|r| (r.kind.as_str(), r.strength))
        .collect();
    assert_eq!(kinds, [("blood oath", 10), ("trust", 15)]);
}

#[test]
fn item_count_is_capped() {
    let many = vec![gain(9_000); 3];
    let state = folded(many.iter());
    assert_eq!(player(&state).items["물약"], MAX_HELD);
}

#[test]
fn sets_replace_and_deltas_add() {
    let to = |to: &str| StateChange::Location {
        who: "player".into(),
        to: to.into(),
    };
    let met = |whom: &str| StateChange::Met {
        who: "player".into(),
        whom: whom.into(),
    };
    let changes = [
        to("Vale"),
        hp(-30),
        to("어둠의 숲"),
        hp(10),
        gain(2),
        lose(1),
        relation(5),
        relation(-2),
        met("mira"),
        met("mira"),
        met("ergen"),
        StateChange::Separated {
            who: "player".into(),
            whom: "mira".into(),
        },
        StateChange::Mood {
            who: "mira".into(),
            mood: "calm".into(),
        },
        StateChange::Status {
            who: "player".into(),
            status: "wounded".into(),
        },
        StateChange::Happened {
            text: "it rained".into(),
        },
        StateChange::Note {
            text: "bring rope".into(),
        },
    ];
    let state = folded(changes.iter());
    let who = player(&state);
    assert_eq!(
        (who.location.as_deref(), who.hp, who.status.as_deref()),
        (Some("어둠의 숲"), Some(80), Some("wounded"))
    );
    assert_eq!(who.items["물약"], 1);
    assert_eq!(who.with, ["ergen"]);
    assert_eq!(state.relationships[0].strength, 3);
    assert_eq!(state.characters["mira"].mood.as_deref(), Some("calm"));
    assert_eq!(
        (state.events.as_slice(), state.notes.as_slice()),
        (&["it rained".to_owned()][..], &["bring rope".to_owned()][..])
    );
}

#[test]
fn companion_counts_in_the_dialogues_that_set_it_or_in_all_if_the_backend_did() {
    let [first, second] = [1, 2].map(|number| DialogueId::new(DialogueKind::Session, ulid::Ulid(number)));
    let met = |whom: &str| StateChange::Met {
        who: "player".into(),
        whom: whom.into(),
    };
    let mut state = WorldState::default();
    let changes = [
        (met("mira"), Some(first)),
        (met("ergen"), Some(first)),
        (met("ergen"), Some(second)),
        (met("krug"), None),
        (met("krug"), Some(first)),
        (met("tom"), Some(first)),
        (met("tom"), None),
    ];
    for (change, dialogue) in &changes {
        state.apply_change(change, DateTime::UNIX_EPOCH, *dialogue);
    }
    let companions = |state: &WorldState, dialogue| -> Vec<String> {
        player(state).companions_in(dialogue).map(str::to_owned).collect()
    };
    assert_eq!(companions(&state, first), ["mira", "ergen", "krug", "tom"]);
    assert_eq!(companions(&state, second), ["ergen", "krug", "tom"]);
    let separated = StateChange::Separated {
        who: "player".into(),
        whom: "krug".into(),
    };
    state.apply_change(&separated, DateTime::UNIX_EPOCH, Some(second));
    state.apply_change(&met("krug"), DateTime::UNIX_EPOCH, Some(second));
    assert_eq!(companions(&state, first), ["mira", "ergen", "tom"]);
    assert_eq!(companions(&state, second), ["ergen", "tom", "krug"]);
}

#[test]
fn old_place_is_known_in_the_dialogues_that_set_it_or_in_all_if_the_backend_did() {
    let [first, second] = [1, 2].map(|number| DialogueId::new(DialogueKind::Session, ulid::Ulid(number)));
    let known = |changes: &[(&str, Option<DialogueId>)]| {
        let mut state = WorldState::default();
        for (place, dialogue) in changes {
            let moved = StateChange::Location {
                who: "player".into(),
                to: (*place).into(),
            };
            state.apply_change(&moved, DateTime::UNIX_EPOCH, *dialogue);
        }
        [first, second].map(|dialogue| player(&state).known_location(dialogue, |_| false).is_some())
    };
    let (of_first, of_second) = (Some(first), Some(second));
    assert_eq!(known(&[("Mill", of_first)]), [true, false]);
    assert_eq!(known(&[("Mill", of_first), ("mill", of_second)]), [true, true]);
    assert_eq!(known(&[("Mill", of_first), ("Inn", of_second)]), [false, true]);
    assert_eq!(known(&[("Mill", None), ("mill", of_second)]), [true, true]);
    assert_eq!(known(&[("Mill", of_first), ("Mill", None)]), [true, true]);
    assert_eq!(known(&[("Mill", None), ("Inn", of_second)]), [false, true]);
}

#[test]
fn steps_are_clamped() {
    // Clamping only at the end would give 100 - 150 + 20 = 0.
    assert_eq!(player(&folded([hp(-150), hp(20)].iter())).hp, Some(20));
    assert_eq!(player(&folded([hp(50), hp(-20)].iter())).hp, Some(80));
    assert_eq!(
        folded([relation(150), relation(-10)].iter()).relationships[0].strength,
        90
    );
    assert_eq!(player(&folded([lose(5), gain(2)].iter())).items["물약"], 2);
    assert!(player(&folded([gain(2), lose(9)].iter())).items.is_empty());
}

#[test]
fn relationships_are_directed_and_by_kind() {
    let back = StateChange::Relationship {
        from: "player".into(),
        to: "mira".into(),
        kind: "trust".into(),
        delta: 1,
    };
    let fear = StateChange::Relationship {
        from: "mira".into(),
        to: "player".into(),
        kind: "fear".into(),
        delta: 2,
    };
    let state = folded([relation(3), back, fear].iter());
    let strengths: Vec<_> = state
        .relationships
        .iter()
        .map(|r| (r.from.as_str(), r.kind.as_str(), r.strength))
        .collect();
    assert_eq!(
        strengths,
        [("mira", "fear", 2), ("mira", "trust", 3), ("player", "trust", 1)]
    );
}

#[test]
fn events_are_limited_to_the_latest() {
    let events: Vec<_> = (0..50).map(|n| StateChange::Happened { text: n.to_string() }).collect();
    let state = folded(events.iter());
    assert_eq!(
        (state.events.len(), state.events[MAX_RECENT_SENTENCES - 1].as_str()),
        (MAX_RECENT_SENTENCES, "49")
    );
}

#[test]
fn state_round_trips() {
    let state = folded([hp(-1), relation(2), gain(3)].iter());
    let text = serde_json::to_string(&state).unwrap_or_default();
    assert_eq!(serde_json::from_str::<WorldState>(&text).ok(), Some(state));
}

proptest! {
    #[test]
    fn state_bounds_hold_for_any_changes(deltas in prop::collection::vec((any::<i32>(), any::<u32>()), 0..40)) {
        let changes: Vec<_> = deltas.iter().flat_map(|&(delta, count)| [hp(delta), relation(delta), gain(count), lose(count / 2)]).collect();
        let state = folded(changes.iter());
        prop_assert!(state.characters.values().all(|who| who.hp.is_none_or(|hp| (0..=MAX_HP).contains(&hp))));
        prop_assert!(state.characters.values().flat_map(|who| who.items.values()).all(|count| *count > 0));
        prop_assert!(state.relationships.iter().all(|r| (-100..=100).contains(&r.strength)));
    }

    /// The base of every rewind: a fold of all standing changes is a fold of the first ones, continued with the
    /// last.
    #[test]
    fn fold_continues_from_a_fold(deltas in prop::collection::vec(any::<i32>(), 1..20)) {
        let changes: Vec<_> = deltas.iter().flat_map(|&delta| [hp(delta), relation(delta)]).collect();
        let (last, rest) = changes.split_last().ok_or_else(|| TestCaseError::reject("empty"))?;
        let mut state = folded(rest.iter());
        state.apply_change(last, DateTime::UNIX_EPOCH, None);
        prop_assert_eq!(state, folded(changes.iter()));
    }
}

#[test]
fn backend_sets_values_and_attributes_are_clamped_by_their_rule() {
    let delta = |delta: f64| StateChange::AttributeDelta {
        who: Some("player".into()),
        name: "mana".into(),
        delta,
        start: 20.0,
        min: 0.0,
        max: 50.0,
    };
    let strength = |strength| StateChange::RelationshipStrength {
        from: "mira".into(),
        to: "player".into(),
        kind: "Trust".into(),
        strength,
    };
    let count = |to| StateChange::ItemCount {
        who: "player".into(),
        item: "물약".into(),
        to,
    };
    let hp = |to| StateChange::Hp {
        who: "player".into(),
        to,
    };
    let changes = [
        delta(100.0),
        delta(-45.0),
        strength(30),
        relation(-5),
        count(7),
        lose(2),
        hp(3),
    ];
    let state = folded(changes.iter());
    let who = player(&state);
    assert_eq!(
        who.attributes["mana"],
        AttributeValue::Number(5.0),
        "each step is clamped"
    );
    assert_eq!(
        (state.relationships[0].strength, who.items["물약"], who.hp),
        (25, 5, Some(3))
    );
    assert!(player(&folded([gain(2), count(0)].iter())).items.is_empty());
}

#[test]
fn dead_are_at_no_place() {
    let to = |who: &str, to: &str| StateChange::Location {
        who: who.into(),
        to: to.into(),
    };
    let died = StateChange::Status {
        who: "Bram".into(),
        status: DEAD.into(),
    };
    let changes = [
        to("Mira", "Inn"),
        to("Bram", "inn"),
        to("player:p7", "INN"),
        to("Tom", "Mill"),
        died,
    ];
    let state = folded(changes.iter());
    let here: Vec<_> = state.people_at("Inn").map(|(name, _)| name).collect();
    assert_eq!(here, ["Mira", "player:p7"]);
    assert_eq!(state.dead_names().collect::<Vec<_>>(), ["Bram"]);
}
