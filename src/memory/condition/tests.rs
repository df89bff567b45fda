//! When conditions hold, and which are refused.

use chrono::{DateTime, Utc};
use serde_json::json;

use super::*;
use crate::state::{StateChange, fold_changes};

fn npc() -> Npc {
    Npc {
        world: "fens".parse().unwrap(),
        id: "rosa".parse().unwrap(),
        name: "Rosa".to_owned(),
        persona: crate::authored::Persona::default(),
        language: crate::authored::Language::En,
        factions: vec![],
        model: None,
        settings: crate::authored::TierSettings::default(),
        has_scenarios: false,
        has_tells: false,
        version: 1,
        updated_at: DateTime::UNIX_EPOCH,
    }
}

fn holds(condition: serde_json::Value, player: Option<&str>) -> bool {
    let changes: Vec<StateChange> = serde_json::from_value(json!([
        {"change": "item_gained", "who": "player:p7", "item": "Silver Key", "count": 1},
        {"change": "location", "who": "player:p7", "to": "The Mill"},
        {"change": "met", "who": "player:p7", "whom": "Bram"},
        {"change": "separated", "who": "player:p7", "whom": "Bram"},
        {"change": "relationship", "from": "Rosa", "to": "player:p7", "kind": "trust", "delta": 20},
        {"change": "status", "who": "Bram", "status": "dead"},
        {"change": "hp", "who": "Rosa", "to": 30},
        {"change": "attribute", "who": null, "name": "winter", "to": true},
        {"change": "attribute", "who": "player:p7", "name": "rank", "to": "knight"},
        {"change": "progress", "who": "player:p7", "npc": "rosa", "to": 40},
    ]))
    .unwrap();
    let settings: WorldSettings = serde_json::from_value(json!({"state": [
        {"name": "winter", "type": "flag", "of": "world"},
        {"name": "rank", "type": "text", "values": ["squire", "knight"], "of": "players"},
        {"name": "mana", "type": "number", "initial": 20, "of": "players"},
    ]}))
    .unwrap();
    let state = fold_changes(changes.iter().map(|change| (change, DateTime::<Utc>::UNIX_EPOCH)));
    let player = player.map(|player| player.parse().unwrap());
    let context = ConditionContext {
        state: &state,
        settings: &settings,
        npc: &npc(),
        player: player.as_ref(),
        now: None,
    };
    context.holds(&serde_json::from_value(condition).unwrap())
}

#[test]
fn condition_follows_the_state_of_the_player_the_npc_and_others() {
    for (condition, p7, p8, nobody) in [
        (json!({"item": "silver key"}), true, false, false),
        (json!({"item": "silver key", "of": "npc"}), false, false, false),
        (json!({"location": "the mill"}), true, false, false),
        (json!({"met": "bram"}), true, false, false),
        (json!({"relationship": "trust", "at_least": 20}), true, false, false),
        (json!({"relationship": "trust", "at_least": 21}), false, false, false),
        (json!({"relationship": "trust", "at_least": 0}), true, true, false),
        (json!({"status": "dead", "of": "bram"}), true, true, true),
        (json!({"status": "alive"}), true, true, false),
        (json!({"status": "alive", "of": "npc"}), true, true, true),
        (json!({"hp_at_most": 30, "of": "npc"}), true, true, true),
        (json!({"hp_at_most": 99}), false, false, false),
        (json!({"attribute": "Winter", "is": true}), true, true, true),
        (json!({"attribute": "rank", "is": "Knight"}), true, false, false),
        (json!({"attribute": "mana", "at_least": 20}), true, true, false),
        (json!({"attribute": "gold", "at_least": 0}), false, false, false),
        (json!({"progress": 40}), true, false, false),
        (json!({"progress": 41}), false, false, false),
        (json!({"not": {"item": "silver key"}}), false, true, false),
        (json!({"not": {"item": "silver key", "of": "npc"}}), true, true, true),
        (json!({"not": {"attribute": "winter", "is": false}}), true, true, true),
        // What the world does not have is not decided either way.
        (
            json!({"not": {"attribute": "gold", "at_least": 5}}),
            false,
            false,
            false,
        ),
        (json!({"not": {"attribute": "rank", "is": "king"}}), true, true, false),
        (
            json!({"not": {"location": "The Mill", "of": "Player"}}),
            false,
            true,
            false,
        ),
        (json!({"not": {"status": "dead", "of": "Bram"}}), false, false, false),
        (json!({"after": "0001-01-01"}), false, false, false),
        (json!({"not": {"after": "0001-01-01"}}), false, false, false),
    ] {
        let found = [Some("p7"), Some("p8"), None].map(|player| holds(condition.clone(), player));
        assert_eq!(found, [p7, p8, nobody], "{condition}");
    }
}

#[test]
fn condition_on_the_time_follows_the_clock_of_the_world() {
    let settings: WorldSettings = serde_json::from_value(json!({"clock": {
        "calendar": {"months": [{"name": "Thaw", "days": 30}, {"name": "Frost", "days": 30}], "weekdays": ["Ash", "Oak"]},
        "start": "0007-02-02 23:30"}}))
    .unwrap();
    let (state, npc) = (WorldState::default(), npc());
    let clock = crate::game_clock::GameClock::new(&settings, &state).unwrap();
    let context = ConditionContext {
        state: &state,
        settings: &settings,
        npc: &npc,
        player: None,
        now: Some(clock.game_time_at(DateTime::UNIX_EPOCH)),
    };
    for (condition, expected) in [
        (json!({"time": {"from": "18:00", "until": "06:00"}}), true),
        (json!({"time": {"from": "23:30", "until": "23:31"}}), true),
        (json!({"time": {"from": "06:00", "until": "23:30"}}), false),
        (json!({"time": {"from": "23:31", "until": "23:30"}}), false),
        (json!({"after": "0007-02-02 23:30"}), true),
        (json!({"after": "0007-02-02"}), true),
        (json!({"after": "0007-02-03"}), false),
        (json!({"before": "0007-02-03"}), true),
        (json!({"before": "0007-02-02 23:30"}), false),
        (json!({"weekday": "oak"}), true),
        (json!({"weekday": "Ash"}), false),
        (json!({"month": "FROST"}), true),
        (json!({"month": "Thaw"}), false),
        (json!({"not": {"month": "Thaw"}}), true),
        (json!({"not": {"time": {"from": "18:00", "until": "06:00"}}}), false),
    ] {
        let read: Condition = serde_json::from_value(condition.clone()).unwrap();
        assert_eq!((read.find_fault(), read.find_time_fault(&settings)), (None, None));
        assert_eq!(context.holds(&read), expected, "{condition}");
        let without = ConditionContext { now: None, ..context };
        assert!(!without.holds(&read) && read.find_time_fault(&WorldSettings::default()).is_some());
    }
    // What the calendar has not never holds, also inside `not`.
    for unknown in [
        json!({"weekday": "Monday"}),
        json!({"month": "March"}),
        json!({"after": "0007-03-01"}),
        json!({"before": "0007-02-31"}),
    ] {
        for condition in [unknown.clone(), json!({"not": unknown})] {
            let read: Condition = serde_json::from_value(condition.clone()).unwrap();
            assert!(!context.holds(&read), "{condition}");
            assert!(read.find_time_fault(&settings).is_some(), "{condition}");
        }
    }
}

#[test]
fn condition_that_is_none_is_refused() {
    for text in [
        "{}",
        r#"{"item":"key","location":"mill"}"#,
        r#"{"attribute":"mana"}"#,
        r#"{"progress":2000000}"#,
    ] {
        let error = serde_json::from_str::<Condition>(text).unwrap_err().to_string();
        assert!(error.contains("must be one condition"), "{text}: {error}");
    }
    for value in [
        json!({"item": " "}),
        json!({"item": "x".repeat(65)}),
        json!({"hp_at_most": 101}),
        json!({"relationship": "trust", "at_least": 101}),
        json!({"not": {"not": {"item": "key"}}}),
        json!({"time": {"from": "18:00", "until": "18:00"}}),
        json!({"time": {"from": "25:00", "until": "18:00"}}),
        json!({"after": "tomorrow"}),
        json!({"weekday": " "}),
    ] {
        let condition: Condition = serde_json::from_value(value.clone()).unwrap();
        assert!(condition.find_fault().is_some(), "{value}");
    }
    let fine: Condition = serde_json::from_value(json!({"item": "key", "of": "npc"})).unwrap();
    assert_eq!(fine.find_fault(), None);
}
