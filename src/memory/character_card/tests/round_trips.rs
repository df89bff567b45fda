//! An export is imported again without a loss.

use proptest::prelude::*;

use super::*;
use crate::{
    authored::Persona,
    condition::Condition,
    disclosure::secrecy::Tell,
    lore::{KnownBy, LayerRule},
};

fn any_layer() -> impl Strategy<Value = LoreLayer> {
    prop::sample::select(vec![LoreLayer::A1, LoreLayer::A2, LoreLayer::A3, LoreLayer::A4])
}

fn any_label() -> impl Strategy<Value = String> {
    "[A-Za-z가-힣/(){}@,. ]{1,20}|/[a-z]{1,4}/i?|\\{\\{(char|user|x)\\}\\}"
}

fn any_prose() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Za-z가-힣 .]{1,80}",
        "(@@activate\n|@@depth 4\n|\\{\\{user\\}\\}|<START>|[a-z]{1,5}|\r\n|\n\n\n|\t| ){1,12}",
        "\\PC{1,40}",
    ]
}

fn any_conditions() -> impl Strategy<Value = Vec<Condition>> {
    let one = any_label().prop_flat_map(|name| {
        prop::sample::select(vec![
            json!({"item": name}),
            json!({"location": name, "of": "npc"}),
            json!({"not": {"met": name}}),
            json!({"relationship": name, "at_least": -20}),
            json!({"attribute": name, "at_least": 2.5}),
            json!({"attribute": name, "is": true}),
            json!({"progress": 40}),
        ])
        .prop_map(|value| serde_json::from_value(value).unwrap())
    });
    prop::collection::vec(one, 0..3)
}

fn any_id() -> impl Strategy<Value = String> {
    "[a-z0-9][a-z0-9_-]{0,20}"
}

prop_compose! {
    fn any_entry()(
        name in any_label(),
        lists in prop::collection::vec(prop::collection::vec(any_label(), 0..5), 4),
        content in any_prose(),
        layer in any_layer(),
        rule in prop::option::of((any_layer(), any_conditions())),
        place in prop::option::of(any_label()),
        related in prop::collection::vec(any_id(), 0..3),
        npcs in prop::collection::vec(any_id(), 0..2),
        (when, tell_when) in (any_conditions(), any_conditions()),
        tell in prop::option::of(any_prose()),
        always in any::<bool>(),
        turns in (0_u32..=4, 0_u32..=4),
        group in prop::option::of(any_label()),
    ) -> LoreText {
        let tell = tell.filter(|_| !when.is_empty()).map(|text| Tell { text, when: tell_when });
        let [aliases, keywords, characters, items] = lists.try_into().unwrap();
        LoreText {
            name, aliases, keywords, content, layer,
            layers: rule.into_iter().map(|(layer, when)| LayerRule { layer, when }).collect(),
            place, characters, items,
            related: related.iter().map(|id| id.parse().unwrap()).collect(),
            known_by: KnownBy { npcs: npcs.iter().map(|id| id.parse().unwrap()).collect(), factions: vec![] },
            when, tell, always, sticky: turns.0, cooldown: turns.1, group,
        }
    }
}

proptest! {
    #[test]
    fn exported_lorebook_is_imported_without_a_loss(
        entries in prop::collection::btree_map(any_id(), any_entry(), 0..6),
    ) {
        let entries = entries.into_iter().map(|(id, text)| (id.parse::<LoreId>().unwrap(), text));
        let entries: Vec<_> = entries.filter(|(_, text)| text.find_faults().is_empty()).collect();
        let exported = Lorebook::from_entries("Fens", &entries).to_string();
        let lorebook = parse_lorebook(exported.as_bytes()).unwrap();
        prop_assert_eq!(lorebook.name(), "Fens");
        let (imported, report) = lorebook.to_entries();
        prop_assert_eq!(imported, entries);
        let unexpected: Vec<_> = report.iter().filter(|part| part.field != "insertion_order").collect();
        prop_assert!(unexpected.is_empty(), "{:?}", unexpected);
    }

    #[test]
    fn exported_npc_is_imported_without_a_loss(
        name in "[A-Za-z가-힣]{1,10}", description in any_prose(), speech_style in any_prose(), greeting in any_prose(),
        boundaries in prop::collection::vec("[a-z ]{0,10}[a-z]", 0..4), is_korean in any::<bool>(), entry in any_entry(),
    ) {
        let npc = ImportedNpc {
            name,
            persona: Persona { description, speech_style, greeting, boundaries, cues: vec!["nod".into()] },
            language: if is_korean { Language::Ko } else { Language::En },
        };
        let entries = [("one".parse::<LoreId>().unwrap(), entry)];
        let entries = if entries[0].1.find_faults().is_empty() { &entries[..] } else { &[] };
        let exported = card_from_npc(&npc, entries);
        prop_assert_eq!(&exported["spec"], "chara_card_v3");
        let card = parse_card(exported.to_string().as_bytes()).unwrap();
        let (imported, report) = card.to_npc();
        prop_assert_eq!(imported, npc);
        prop_assert_eq!(report, vec![]);
        let lore = card.lorebook().map(|book| book.to_entries().0).unwrap_or_default();
        prop_assert_eq!(lore, entries);
    }
}

#[test]
fn edits_by_another_program_are_taken() {
    let text = LoreText {
        name: "The well".into(),
        aliases: vec!["well".into()],
        keywords: vec!["water".into()],
        content: "The well is deep.".into(),
        layer: LoreLayer::A4,
        place: Some("Square".into()),
        ..LoreText::default()
    };
    let mut exported = Lorebook::from_entries("", &[("well".parse().unwrap(), text.clone())]);
    let entry = &mut exported["data"]["entries"][0];
    entry["keys"] = json!(["The well", "water", "spring"]);
    entry["content"] = json!("{{user}} drinks here.");
    let (entries, _) = book(&exported);
    let edited = LoreText {
        aliases: vec!["spring".into()],
        content: "the player drinks here.".into(),
        ..text.clone()
    };
    assert_eq!(entries, [("well".parse().unwrap(), edited)]);
    // Fields that are broken by hand are left out alone.
    exported["data"]["entries"][0]["extensions"]["colloquy"]["layer"] = json!("A9");
    let (entries, report) = book(&exported);
    assert_eq!((entries[0].1.layer, entries[0].0.as_str()), (LoreLayer::A3, "the-well"));
    assert!(fields(&report).contains(&"The well/extensions.colloquy".to_owned()));
}

#[test]
fn fields_over_the_limits_are_left_out_with_a_report() {
    let own = json!({"id": "a", "place": "p".repeat(65)});
    let (entries, report) = book_of_entry(&json!({"name": "A", "content": "A.", "extensions": {"colloquy": own}}));
    assert_eq!((entries.len(), &entries[0].1.place), (1, &None));
    assert_eq!(report[0].reason, "place: takes at most 64 characters");
    let own = json!({"language": "en", "cues": ["nod", "x".repeat(33)]});
    let (npc, report) = npc(&card_with("extensions", &json!({"colloquy": own})));
    assert_eq!(npc.persona.cues, ["nod"]);
    assert_eq!(fields(&report), ["extensions.colloquy.cues"]);
}
