use super::*;
use serde_json::{Value, json};

fn settings() -> WorldSettings {
    serde_json::from_value(json!({
        "items": ["Silver key"],
        "places": ["Vale", "Dark Forest"],
        "state": [
            {"name": "mana", "type": "number", "max": 50, "initial": 20, "of": "players"},
            {"name": "rank", "type": "text", "values": ["squire", "knight"]},
            {"name": "winter", "type": "flag", "of": "world"}
        ]
    }))
    .unwrap()
}

fn read(event: Value) -> Result<StateChange, Vec<String>> {
    let settings = settings();
    let rules = EventRules {
        settings: &settings,
        vocabulary: Vocabulary::from_settings(&settings),
        npc_names: [("mira".to_owned(), "Mira".to_owned())].into(),
    };
    let event: WorldEvent = serde_json::from_value(event).unwrap();
    let faults = |faults: Vec<EventFault>| {
        let told = faults
            .into_iter()
            .map(|fault| format!("{} {}", fault.field, fault.reason));
        told.collect()
    };
    event.to_change(&rules).map_err(faults)
}

#[test]
fn event_of_each_type_becomes_a_change() {
    let (mira, player) = (|| "Mira".to_owned(), || "player:p7".to_owned());
    for (event, change) in [
        (
            json!({"type": "location", "who": "mira", "to": "dark forest"}),
            StateChange::Location {
                who: mira(),
                to: "Dark Forest".into(),
            },
        ),
        (
            json!({"type": "hp", "who": "player:p7", "value": 0}),
            StateChange::Hp { who: player(), to: 0 },
        ),
        (
            json!({"type": "hp", "who": "Bram", "change": -5}),
            StateChange::HpDelta {
                who: "Bram".into(),
                delta: -5,
            },
        ),
        (
            json!({"type": "status", "who": "MIRA", "to": "killed"}),
            StateChange::Status {
                who: mira(),
                status: "dead".into(),
            },
        ),
        (
            json!({"type": "mood", "who": "mira", "to": "슬픔"}),
            StateChange::Mood {
                who: mira(),
                mood: "sad".into(),
            },
        ),
        (
            json!({"type": "item_gained", "who": "player:p7", "item": "silver key"}),
            StateChange::ItemGained {
                who: player(),
                item: "Silver key".into(),
                count: 1,
            },
        ),
        (
            json!({"type": "item_count", "who": "player:p7", "item": "Silver key", "count": 0}),
            StateChange::ItemCount {
                who: player(),
                item: "Silver key".into(),
                to: 0,
            },
        ),
    ] {
        assert_eq!(read(event.clone()), Ok(change), "{event}");
    }
}

#[test]
fn event_about_a_relationship_or_an_attribute_becomes_a_change() {
    let (mira, player) = (|| "Mira".to_owned(), || "player:p7".to_owned());
    for (event, change) in [
        (
            json!({"type": "met", "who": "player:p7", "whom": "mira"}),
            StateChange::Met {
                who: player(),
                whom: mira(),
            },
        ),
        (
            json!({"type": "relationship", "who": "mira", "whom": "player:p7", "kind": "신뢰", "value": -100}),
            StateChange::RelationshipStrength {
                from: mira(),
                to: player(),
                kind: "trust".into(),
                strength: -100,
            },
        ),
        (
            json!({"type": "attribute", "who": "player:p7", "attribute": "Mana", "change": -5.5}),
            StateChange::AttributeDelta {
                who: Some(player()),
                name: "mana".into(),
                delta: -5.5,
                start: 20.0,
                min: 0.0,
                max: 50.0,
            },
        ),
        (
            json!({"type": "attribute", "who": "mira", "attribute": "rank", "value": "Knight"}),
            StateChange::Attribute {
                who: Some(mira()),
                name: "rank".into(),
                to: AttributeValue::Text("knight".into()),
            },
        ),
        (
            json!({"type": "attribute", "attribute": "winter", "value": true}),
            StateChange::Attribute {
                who: None,
                name: "winter".into(),
                to: AttributeValue::Flag(true),
            },
        ),
        (
            json!({"type": "event", "text": "The mill burned."}),
            StateChange::Happened {
                text: "The mill burned.".into(),
            },
        ),
    ] {
        assert_eq!(read(event.clone()), Ok(change), "{event}");
    }
}

#[test]
fn every_fault_of_an_event_is_named() {
    for (event, faults) in [
        (
            json!({"type": "location", "to": "the moon", "item": "rope"}),
            &[
                "who is missing; an event of the type `location` needs it",
                "to is not listed in the settings of this world",
                "item has no meaning for an event of the type `location`",
            ][..],
        ),
        (
            json!({"type": "status", "who": "the player", "to": "purple"}),
            &[
                "who must name the player: `player:` and the id",
                "to is no status of this world",
            ],
        ),
        (
            json!({"type": "hp", "who": "Mira", "value": 101}),
            &["value must be 0 to 100"],
        ),
        (
            json!({"type": "hp", "who": "Mira", "value": 1, "change": 1}),
            &["change must not be beside `value`"],
        ),
        (
            json!({"type": "hp", "who": "Mira"}),
            &["value is missing, and so is `change`"],
        ),
        (
            json!({"type": "item_gained", "who": "Mira", "item": "rope", "count": 0}),
            &[
                "item is not listed in the settings of this world",
                "count must be 1 to 9999",
            ],
        ),
        (
            json!({"type": "met", "who": "mira", "whom": "Mira"}),
            &["whom must be somebody else than `who`"],
        ),
        (
            json!({"type": "attribute", "who": "Mira", "attribute": "mana", "value": 1}),
            &["who has no attribute `mana`"],
        ),
        (
            json!({"type": "attribute", "attribute": "winter", "value": 1}),
            &["value takes true or false"],
        ),
        (
            json!({"type": "attribute", "who": "Mira", "attribute": "luck", "value": 1}),
            &["attribute is no attribute of this world"],
        ),
        (
            json!({"type": "event"}),
            &["text is missing; an event of the type `event` needs it"],
        ),
    ] {
        let found = read(event.clone()).unwrap_err();
        assert_eq!(found, faults, "{event}");
    }
    let long = "x".repeat(65);
    let found = read(json!({"type": "met", "who": "player:no blanks", "whom": long})).unwrap_err();
    assert!(
        found.len() == 2 && found[1] == "whom is longer than 64 characters",
        "{found:?}"
    );
    let found = read(json!({"type": "note", "text": "two\nlines"})).unwrap_err();
    assert!(found.len() == 1 && found[0].starts_with("text "), "{found:?}");
}

#[test]
fn time_events_need_a_clock_and_bounded_amounts() {
    let read_in = |settings: Value, event: Value| {
        let settings: WorldSettings = serde_json::from_value(settings).unwrap();
        let rules = EventRules {
            settings: &settings,
            vocabulary: Vocabulary::from_settings(&settings),
            npc_names: BTreeMap::new(),
        };
        let event: WorldEvent = serde_json::from_value(event).unwrap();
        event.to_change(&rules).map_err(|faults| faults[0].field)
    };
    let clock = json!({"clock": {"start": "0001-01-02", "ratio": 3}});
    let passed = |seconds| StateChange::TimePassed {
        seconds,
        start: 86_400.into(),
        ratio: 3.0,
    };
    let set = StateChange::Time {
        to: (2 * 86_400 + 61 * 60).into(),
        ratio: 3.0,
    };
    for (event, expected) in [
        (json!({"type": "time_set", "to": "0001-01-03 01:01"}), Ok(set)),
        (json!({"type": "time_passed", "minutes": 1}), Ok(passed(60))),
        (
            json!({"type": "time_passed", "days": 1, "hours": 1, "minutes": 1}),
            Ok(passed(86_400 + 3_660)),
        ),
        (json!({"type": "time_passed", "days": 10_000}), Ok(passed(864_000_000))),
        (
            json!({"type": "time_passed", "days": 10_000, "minutes": 1}),
            Err("minutes"),
        ),
        (
            json!({"type": "time_passed", "days": u32::MAX, "hours": u32::MAX}),
            Err("minutes"),
        ),
        (json!({"type": "time_passed", "minutes": 0}), Err("minutes")),
        (json!({"type": "time_passed", "days": 1, "count": 1}), Err("count")),
        (json!({"type": "time_set", "to": "0001-02-30"}), Err("to")),
        (json!({"type": "time_set"}), Err("to")),
        (json!({"type": "note", "text": "x", "days": 1}), Err("days")),
    ] {
        assert_eq!(read_in(clock.clone(), event.clone()), expected, "{event}");
    }
    for event in [
        json!({"type": "time_set", "to": "0001-01-03"}),
        json!({"type": "time_passed", "days": 1}),
    ] {
        assert_eq!(read_in(json!({}), event), Err("type"));
    }
}
