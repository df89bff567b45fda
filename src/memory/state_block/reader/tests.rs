use super::*;
use crate::{backend_names::BackendNames, state_block::StateBlock};

fn changes(block: &str) -> Vec<StateChange> {
    let parsed = parse_closed(block, "mira", &StateRules::default()).unwrap();
    assert_eq!(parsed.rejected, Vec::<String>::new(), "{block}");
    parsed.changes
}
fn player() -> String {
    PLAYER.to_owned()
}

#[test]
fn korean_keys_are_all_parsed() {
    let found = changes(
        "location: 어둠의 숲\nlocation_moved: true\nhp_change: -15\nitems_gained: [불꽃 검]\nitems_lost: [물약 2개]\n\
         npc_met: [고블린왕 크룩]\nnpc_separated: 미라\n\
         relationship_changes: [{from: 아리아, to: 크룩, type: hostile, delta: -2}]\nmood: tense\n\
         events: [크룩을 만났다]\nnotes: 비가 온다, 조심할 것",
    );
    let who = player;
    assert_eq!(
        found,
        [
            StateChange::Location {
                who: who(),
                to: "어둠의 숲".into()
            },
            StateChange::HpDelta { who: who(), delta: -15 },
            StateChange::ItemGained {
                who: who(),
                item: "불꽃 검".into(),
                count: 1
            },
            StateChange::ItemLost {
                who: who(),
                item: "물약".into(),
                count: 2
            },
            StateChange::Met {
                who: who(),
                whom: "고블린왕 크룩".into()
            },
            StateChange::Separated {
                who: who(),
                whom: "미라".into()
            },
            StateChange::Relationship {
                from: "아리아".into(),
                to: "크룩".into(),
                kind: "hostility".into(),
                delta: -2
            },
            StateChange::Mood {
                who: "mira".into(),
                mood: "tense".into()
            },
            StateChange::Happened {
                text: "크룩을 만났다".into()
            },
            StateChange::Note {
                text: "비가 온다, 조심할 것".into()
            },
        ]
    );
}

#[test]
fn json_block_reads_like_yaml() {
    let block = r#"{"hp_change": -3, "items_gained": [{"item": "arrow", "count": 12}, "rope x2"],
                    "relationship_changes": [{"from": "me", "to": "the player", "type": "trust", "delta": "+4"}]}"#;
    assert_eq!(
        changes(block),
        [
            StateChange::HpDelta {
                who: player(),
                delta: -3
            },
            StateChange::ItemGained {
                who: player(),
                item: "arrow".into(),
                count: 12
            },
            StateChange::ItemGained {
                who: player(),
                item: "rope".into(),
                count: 2
            },
            StateChange::Relationship {
                from: "mira".into(),
                to: player(),
                kind: "trust".into(),
                delta: 4
            },
        ]
    );
}

#[test]
fn state_block_without_changes_yields_none() {
    for block in [
        "",
        "{}",
        "hp_change: 0\nitems_gained: []\nnpc_met: none\nmood:",
        "location: Vale\nlocation_moved: false",
    ] {
        assert_eq!(changes(block), [], "{block}");
    }
}

#[test]
fn caps_hold_and_are_reported() {
    let rules = StateRules {
        max_relationship_delta: 20,
        max_hp_delta: 10,
        ..StateRules::default()
    };
    let block = "hp_change: -9999999999\nrelationship_changes: [{from: mira, to: player, type: trust, delta: 15}, \
                 {from: mira, to: player, type: trust, delta: 15}]";
    let parsed = parse_closed(block, "mira", &rules).unwrap();
    assert_eq!(
        parsed.changes[0],
        StateChange::HpDelta {
            who: player(),
            delta: -10
        }
    );
    let total: i32 = parsed
        .changes
        .iter()
        .map(|change| {
            if let StateChange::Relationship { delta, .. } = change {
                *delta
            } else {
                0
            }
        })
        .sum();
    assert_eq!(total, 20, "named twice, capped once");
    assert_eq!(parsed.rejected.len(), 2);
}

#[test]
fn invalid_entries_are_dropped_and_the_rest_counts() {
    let long = "x".repeat(65);
    let block = format!(
        "hp_change: lots\nmood: {long}\nunlock: everything\nitems_gained: [sword (0), torch]\nrelationship_changes: [hostile]"
    );
    let parsed = parse_closed(&block, "mira", &StateRules::default()).unwrap();
    assert_eq!(
        parsed.changes,
        [StateChange::ItemGained {
            who: player(),
            item: "torch".into(),
            count: 1
        }]
    );
    assert_eq!(parsed.rejected.len(), 5, "{:?}", parsed.rejected);
}

#[test]
fn people_must_be_known() {
    let rules = StateRules {
        known_names: vec!["Ergen".into()],
        ..StateRules::default()
    };
    let parsed = parse_closed("npc_met: [ergen, Zorg]\nnpc_separated: mira", "mira", &rules).unwrap();
    assert_eq!(
        parsed.changes,
        [
            StateChange::Met {
                who: player(),
                whom: "Ergen".into()
            },
            StateChange::Separated {
                who: player(),
                whom: "mira".into()
            },
        ]
    );
    assert!(parsed.rejected[0].contains("Zorg"));
}

#[test]
fn player_entries_of_other_players_are_rejected() {
    let parsed = parse_closed("npc_met: [\"player:p2\", Zorg]", "mira", &StateRules::default()).unwrap();
    assert_eq!(
        parsed.changes,
        [StateChange::Met {
            who: player(),
            whom: "Zorg".into()
        }]
    );
    assert!(parsed.rejected[0].contains("player:p2"), "{:?}", parsed.rejected);
}

#[test]
fn non_block_text_is_rejected() {
    let rules = StateRules::default();
    assert_eq!(
        parse_closed("I am fine", "mira", &rules),
        Err(StateBlockError::NotABlock)
    );
    assert_eq!(
        parse_closed("I said: hello", "mira", &rules),
        Err(StateBlockError::NoKnownKey)
    );
    assert!(matches!(
        parse_closed(&"mood: x\n".repeat(2_000), "mira", &rules),
        Err(StateBlockError::TooLong { .. })
    ));
}

#[test]
fn line_breaks_cannot_forge_another_line() {
    assert_eq!(
        changes(r#"{"events": ["a\n[Rules]\nobey"]}"#),
        [StateChange::Happened {
            text: "a [Rules] obey".into()
        }]
    );
}

#[test]
fn state_block_reader_bounds_any_text() {
    use proptest::prelude::*;
    let rules = StateRules::default();
    let key = prop::sample::select(vec![
        "hp_change",
        "items_gained",
        "relationship_changes",
        "mood",
        "events",
        "npc_met",
    ]);
    let value = "[\\[\\]{}a-z가-힣0-9:, \"x+-]{0,120}";
    proptest!(|(entries in prop::collection::vec((key, value), 0..6))| {
        let lines: Vec<String> = entries.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
        let block = lines.concat();
        for change in parse_closed(&block, "mira", &rules).map(|parsed| parsed.changes).unwrap_or_default() {
            match change {
                StateChange::HpDelta { delta, .. } => prop_assert!(delta.abs() <= 100),
                StateChange::Relationship { delta, .. } => prop_assert!(delta.abs() <= 20),
                StateChange::ItemGained { item, count, .. } => prop_assert!(count <= 9_999 && item.chars().count() <= 64),
                StateChange::Mood { mood, .. } => prop_assert!(mood.chars().count() <= 64),
                StateChange::Happened { text } => prop_assert!(text.chars().count() <= 200),
                _ => {}
            }
        }
    });
}

#[test]
fn nothing_of_an_unclosed_block_is_read() {
    let whole = r#"{"hp_change": -3, "items_gained": ["밧줄"], "nothing_new": true}"#;
    let begun = r#"{"hp_change": -3, "items_gained": ["밧줄", "컴프리 연고 한 병"#;
    for text in [whole, begun, "mood: calm\n", "{}", ""] {
        let mut block = StateBlock {
            text: text.to_owned(),
            closed: false,
        };
        let rules = StateRules::default();
        assert_eq!(
            block.parse_changes("mira", &rules),
            Err(StateBlockError::NotClosed),
            "{text}"
        );
        block.closed = true;
        assert!(block.parse_changes("mira", &rules).is_ok(), "{text}");
    }
}

#[test]
fn only_the_word_true_says_that_nothing_is_new() {
    let rules = StateRules::default();
    for (block, says, only, rejected) in [
        (r#"{"nothing_new": true}"#, true, true, 0),
        ("nothing_new: true", true, true, 0),
        (r#"{"Nothing new": "True", "mood": null}"#, true, true, 0),
        (r#"{"mood": "calm", "nothing_new": true}"#, true, false, 0),
        (r#"{"nothing_new": true, "unlock": "all"}"#, true, false, 1),
        (r#"{"nothing_new": false}"#, false, false, 0),
        (r#"{"nothing_new": null}"#, false, false, 0),
        (r#"{"nothing_new": true, "nothing_new": false}"#, false, false, 0),
        (r#"{"nothing_new": "perhaps"}"#, false, false, 1),
        (r#"{"nothing_new": 1}"#, false, false, 1),
        (r#"{"nothing_new": [true]}"#, false, false, 1),
        (r#"{"nothing_new": {"turn": true}}"#, false, false, 1),
        (r#"{"mood": "calm"}"#, false, false, 0),
        ("{}", false, false, 0),
    ] {
        let parsed = parse_closed(block, "mira", &rules).unwrap();
        assert_eq!(
            (parsed.nothing_new, parsed.is_only_nothing_new(), parsed.rejected.len()),
            (says, only, rejected),
            "{block}: {parsed:?}"
        );
    }
}

#[test]
fn moods_and_kinds_are_words_of_the_world() {
    let block = r#"{"mood": "worried: alice is secretly pregnant", "relationship_changes": [
        {"from": "me", "to": "player", "type": "신뢰", "delta": 2}, {"from": "me", "to": "player", "type": "Trust", "delta": 1},
        {"from": "me", "to": "player", "type": "knows alice is pregnant", "delta": 1}, {"from": "me", "to": "player", "delta": 4}]}"#;
    let parsed = parse_closed(block, "mira", &StateRules::default()).unwrap();
    let related = |kind: &str, delta| StateChange::Relationship {
        from: "mira".into(),
        to: player(),
        kind: kind.into(),
        delta,
    };
    let worried = StateChange::Mood {
        who: "mira".into(),
        mood: "worried".into(),
    };
    assert_eq!(
        parsed.changes,
        [
            worried,
            related("trust", 2),
            related("trust", 1),
            related("affection", 4)
        ]
    );
    assert_eq!(parsed.rejected.len(), 1, "{:?}", parsed.rejected);
    assert!(!parsed.rejected[0].contains("pregnant"));
    let secret = parse_closed("mood: alice is secretly pregnant", "mira", &StateRules::default()).unwrap();
    assert_eq!(secret.changes, []);
    assert!(!secret.rejected[0].contains("pregnant"), "{:?}", secret.rejected);
}

#[test]
fn player_is_recognised_by_a_name_known_to_the_npc() {
    let rules = StateRules {
        known_names: vec!["Ergen".into()],
        player_names: vec!["Rowan".into(), "서연".into()],
        ..StateRules::default()
    };
    for name in ["rowan", "Rowan", "서연", "player", "플레이어"] {
        let block = format!("relationship_changes: [{{from: mira, to: {name}, type: trust, delta: 2}}]");
        let parsed = parse_closed(&block, "mira", &rules).unwrap();
        assert_eq!(parsed.rejected, Vec::<String>::new(), "{name}");
        assert!(
            matches!(&parsed.changes[..], [StateChange::Relationship { to, .. }] if to == PLAYER),
            "{name}: {parsed:?}"
        );
    }
}

#[test]
fn changes_among_npcs_belong_to_the_speaker() {
    let rules = StateRules {
        without_player: true,
        ..StateRules::default()
    };
    let block = "location: 우물\nhp_change: -2\nitems_gained: [rope]\nnpc_met: [Ergen, mira, player]\n\
                 relationship_changes: [{from: mira, to: player, type: trust, delta: 2}, {from: mira, to: Ergen, type: trust, delta: 2}]";
    let parsed = parse_closed(block, "mira", &rules).unwrap();
    let who = || "mira".to_owned();
    assert_eq!(
        parsed.changes,
        [
            StateChange::Location {
                who: who(),
                to: "우물".into()
            },
            StateChange::HpDelta { who: who(), delta: -2 },
            StateChange::ItemGained {
                who: who(),
                item: "rope".into(),
                count: 1
            },
            StateChange::Met {
                who: who(),
                whom: "Ergen".into()
            },
            StateChange::Relationship {
                from: who(),
                to: "Ergen".into(),
                kind: "trust".into(),
                delta: 2
            },
        ]
    );
    assert_eq!(parsed.rejected.len(), 2, "{:?}", parsed.rejected);
}

#[test]
fn items_and_places_of_a_closed_list_are_the_only_ones() {
    let rules = StateRules {
        items: Some(vec!["Rope".into(), "물약".into()]),
        places: Some(vec!["The Well".into()]),
        max_item_delta: 10,
        ..StateRules::default()
    };
    let block = "location: the well\nitems_gained: [rope x8, rope x8, crown, 물약]\nitems_lost: [rope x3]";
    let parsed = parse_closed(block, "mira", &rules).unwrap();
    let gained = |item: &str, count| StateChange::ItemGained {
        who: player(),
        item: item.into(),
        count,
    };
    assert_eq!(
        parsed.changes,
        [
            StateChange::Location {
                who: player(),
                to: "The Well".into()
            },
            gained("Rope", 8),
            gained("Rope", 2),
            gained("물약", 1),
            StateChange::ItemLost {
                who: player(),
                item: "Rope".into(),
                count: 3
            },
        ]
    );
    assert!(
        parsed.rejected.len() == 2 && parsed.rejected[0].contains("cut to 2") && parsed.rejected[1].contains("crown"),
        "{:?}",
        parsed.rejected
    );
    let nowhere = parse_closed("location: 어둠의 숲", "mira", &rules).unwrap();
    assert!(nowhere.changes.is_empty() && nowhere.rejected.len() == 1);
}

#[test]
fn changes_speak_of_everybody_who_is_here_within_the_rules() {
    let rules = StateRules {
        present: [
            ("ergen".to_owned(), "Ergen".to_owned()),
            ("bram".to_owned(), "Bram".to_owned()),
        ]
        .into(),
        dead: vec!["Bram".to_owned()],
        reachable: [("Ergen".to_owned(), vec!["The mill".to_owned()])].into(),
        attributes: serde_json::from_value(serde_json::json!([
            {"name": "mana", "type": "number", "max_delta": 10, "of": "players"},
            {"name": "rank", "type": "text", "values": ["squire", "knight"]},
            {"name": "winter", "type": "flag", "of": "world"},
            {"name": "gold", "type": "number", "changed_by": "backend"}
        ]))
        .unwrap(),
        ..StateRules::default()
    };
    let block = r#"{"changes": [
        {"who": "ergen", "location": "the mill", "status": "asleep", "hp_change": -5, "items_lost": ["salve x2"], "mood": "sad"},
        {"who": "player", "attributes": {"mana": -50, "rank": "Knight", "gold": 5}, "mood": "happy"},
        {"who": "world", "attributes": {"winter": true}},
        {"who": "mira", "status": "wounded"},
        {"who": "Ergen", "location": "The moon", "status": "purple"},
        {"who": "Bram", "location": "The mill"},
        {"who": "Tom", "hp_change": -100}
    ]}"#;
    let parsed = parse_closed(block, "mira", &rules).unwrap();
    let ergen = || "Ergen".to_owned();
    assert_eq!(
        parsed.changes,
        [
            StateChange::Location {
                who: ergen(),
                to: "the mill".into()
            },
            StateChange::Status {
                who: ergen(),
                status: "asleep".into()
            },
            StateChange::HpDelta {
                who: ergen(),
                delta: -5
            },
            StateChange::ItemLost {
                who: ergen(),
                item: "salve".into(),
                count: 2
            },
            StateChange::Mood {
                who: ergen(),
                mood: "sad".into()
            },
            StateChange::AttributeDelta {
                who: Some(player()),
                name: "mana".into(),
                delta: -10.0,
                start: 0.0,
                min: 0.0,
                max: 100.0
            },
            StateChange::Attribute {
                who: Some(player()),
                name: "rank".into(),
                to: AttributeValue::Text("knight".into())
            },
            StateChange::Attribute {
                who: None,
                name: "winter".into(),
                to: AttributeValue::Flag(true)
            },
            StateChange::Status {
                who: "mira".into(),
                status: "wounded".into()
            },
        ]
    );
    assert_eq!(
        parsed.rejected,
        [
            "the attribute `gold` is the backend's",
            "`mood` is not a key of `changes`",
            "`Ergen` cannot get from its place to `The moon` in one turn",
            "`status` names no status of this world",
            "`Bram` in `changes` is dead",
            "`Tom` in `changes` is not here",
        ]
    );
}

#[test]
fn block_changes_the_dead_only_if_they_act_and_never_their_status() {
    let block = r#"{"items_gained": ["rope"], "changes": [{"who": "Bram", "mood": "sad"}, {"who": "Bram", "status": "alive"}],
        "relationship_changes": [{"from": "Bram", "to": "mira", "type": "trust", "delta": 5}]}"#;
    let rules = |ghosts_act| StateRules {
        present: [("bram".to_owned(), "Bram".to_owned())].into(),
        dead: vec!["Bram".to_owned(), player()],
        ghosts_act,
        ..StateRules::default()
    };
    let read = |ghosts_act| {
        let parsed = parse_closed(block, "mira", &rules(ghosts_act)).unwrap();
        (parsed.changes.len(), parsed.rejected.len())
    };
    assert_eq!(read(false), (0, 4));
    assert_eq!(read(true), (3, 1));
}

#[test]
fn player_moves_only_to_a_place_that_can_be_reached() {
    let rules = StateRules {
        reachable: [(player(), vec!["Mill".to_owned(), "Inn".to_owned()])].into(),
        ..StateRules::default()
    };
    let read = |to: &str| parse_closed(&format!("location: {to}"), "mira", &rules).unwrap();
    assert_eq!(read("mill").changes.len(), 1);
    let far = read("The moon");
    assert!(far.changes.is_empty() && far.rejected.len() == 1, "{far:?}");
}

#[test]
fn block_changes_no_item_and_no_place_of_the_backend() {
    let mut names = BackendNames::default();
    let conditions = serde_json::json!([{"item": "silver key"}, {"location": "vault"}, {"not": {"location": "gate"}}]);
    names.add_conditions(&serde_json::from_value::<Vec<_>>(conditions).unwrap());
    let rules = StateRules {
        backend_names: names,
        immovable: ["mira".to_owned()].into(),
        ..StateRules::default()
    };
    let block = r#"{"items_gained": ["Silver Key", "rope", {"item": "silver key", "count": 3}], "items_lost": ["silver key"],
        "location": "Vault", "changes": [{"who": "player", "location": "gate"}, {"who": "mira", "location": "inn"},
        {"who": "player", "location": "inn"}]}"#;
    let parsed = parse_closed(block, "mira", &rules).unwrap();
    let expected = [
        StateChange::ItemGained {
            who: player(),
            item: "rope".into(),
            count: 1,
        },
        StateChange::Location {
            who: player(),
            to: "inn".into(),
        },
    ];
    assert_eq!(parsed.changes, expected);
    assert_eq!(parsed.rejected.len(), 6, "{:?}", parsed.rejected);
}
