#![allow(clippy::unwrap_used)]

mod input;
mod round_trips;

use serde_json::{Value, json};

use super::*;
use crate::{
    language::Language,
    lore::{LoreLayer, LoreText},
};
use colloquy_core::ids::LoreId;

const KEEPER: &[u8] = include_bytes!("cards/lighthouse_keeper.json");
const INNKEEPER: &[u8] = include_bytes!("cards/innkeeper.json");
const WOLF: &[u8] = include_bytes!("cards/wolf.json");

/// The fields of a report, each with its entry before a slash.
fn fields(report: &[NotTaken]) -> Vec<String> {
    let field = |part: &NotTaken| match &part.entry {
        Some(entry) => format!("{entry}/{}", part.field),
        None => part.field.clone(),
    };
    report.iter().map(field).collect()
}

fn book(value: &Value) -> (Vec<(LoreId, LoreText)>, Vec<NotTaken>) {
    parse_lorebook(value.to_string().as_bytes()).unwrap().to_entries()
}

fn book_of_entry(entry: &Value) -> (Vec<(LoreId, LoreText)>, Vec<NotTaken>) {
    book(&json!({"entries": [entry]}))
}

fn card_with(field: &str, value: &Value) -> Value {
    let mut card = json!({"spec": "chara_card_v2", "spec_version": "2.0", "data": {"name": "Maud"}});
    card["data"][field] = value.clone();
    card
}

fn npc(value: &Value) -> (ImportedNpc, Vec<NotTaken>) {
    parse_card(value.to_string().as_bytes()).unwrap().to_npc()
}

#[test]
fn card_of_v2_becomes_an_npc_with_a_report() {
    let card = parse_card(KEEPER).unwrap();
    let (npc, report) = card.to_npc();
    assert_eq!((npc.name.as_str(), npc.language), ("Maud Carrow", Language::En));
    assert_eq!(
        npc.persona.description,
        "Maud Carrow keeps the light on Gull Rock. She is sixty, wears a coat of oilskin, and has not been ashore for \
         nine years.\n\nPersonality: Dry, patient and exact. Maud Carrow trusts the barometer more than people.\n\n\
         Scenario: A storm has driven the player onto the rock.  beats on the lamp room."
    );
    assert_eq!(
        npc.persona.speech_style,
        "the player: Do you never get lonely?\nMaud Carrow: I have eleven gulls and a clock. The clock is better \
         company.\n\nthe player: When will the storm end?\nMaud Carrow: When the glass says so. Not before."
    );
    assert_eq!(
        npc.persona.greeting,
        "Mind the third step, it is loose. You are lucky, the player: the tide missed you by a yard."
    );
    assert!(npc.persona.boundaries.is_empty() && npc.persona.cues.is_empty());
    let mut reported = fields(&report);
    reported.sort();
    assert_eq!(
        reported,
        [
            "alternate_greetings",
            "character_version",
            "creator",
            "creator_notes",
            "extensions",
            "scenario",
            "system_prompt",
            "tags"
        ]
    );
    let macros = report.iter().find(|part| part.field == "scenario").unwrap();
    assert_eq!(macros.reason, "the macro {{random}} was removed");
}

#[test]
fn lorebook_of_a_card_becomes_entries_with_a_report() {
    let card = parse_card(KEEPER).unwrap();
    let lorebook = card.lorebook().unwrap();
    assert_eq!((lorebook.name(), lorebook.entry_count()), ("Gull Rock", 3));
    let (entries, report) = lorebook.to_entries();
    let rock = LoreText {
        name: "Gull Rock".into(),
        aliases: vec!["the rock".into()],
        content: "Gull Rock lies two miles off the coast. Only Maud Carrow lives there.".into(),
        layer: LoreLayer::A1,
        always: true,
        ..LoreText::default()
    };
    let lamp = LoreText {
        name: "The lamp".into(),
        aliases: vec!["lamp".into(), "light".into()],
        content: "The lamp burns whale oil. It has failed once, on the night the Petrel sank.".into(),
        layer: LoreLayer::A3,
        sticky: 3,
        cooldown: 1,
        group: Some("light".into()),
        ..LoreText::default()
    };
    let id = |id: &str| id.parse::<LoreId>().unwrap();
    assert_eq!(entries, [(id("gull-rock"), rock), (id("the-lamp"), lamp)]);
    let mut reported = fields(&report);
    reported.sort();
    assert_eq!(
        reported,
        [
            "Gull Rock/keys",
            "The Petrel/enabled",
            "The lamp/group",
            "The lamp/secondary_keys",
            "extensions.position",
            "extensions.probability",
            "insertion_order",
            "position",
            "recursive_scanning",
            "scan_depth",
            "token_budget"
        ]
    );
}

#[test]
fn korean_card_gets_korean_labels_and_decorators_count() {
    let card = parse_card(INNKEEPER).unwrap();
    let (npc, report) = card.to_npc();
    assert_eq!(npc.language, Language::Ko);
    let description = &npc.persona.description;
    assert!(description.contains("\n\n성격: 말이 많고"), "{description}");
    assert!(
        description.contains("상황: 눈이 쌓인 밤, 플레이어가 주막 문을"),
        "{description}"
    );
    assert_eq!(
        npc.persona.greeting,
        "어서 오시게, 플레이어! 국밥부터 한 그릇 하시겠나?"
    );
    let mut reported = fields(&report);
    reported.sort();
    assert_eq!(reported, ["assets", "group_only_greetings", "nickname"]);

    let (entries, report) = card.lorebook().unwrap().to_entries();
    let ids: Vec<&str> = entries.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["entry-1", "entry-2"]);
    let (pass, soup) = (&entries[0].1, &entries[1].1);
    assert_eq!(
        (pass.content.as_str(), pass.sticky),
        ("고갯마루에는 겨울마다 산적이 나온다.", 8)
    );
    assert_eq!(pass.aliases, ["재"]);
    assert_eq!(
        (soup.name.as_str(), soup.content.as_str()),
        ("국밥", "덕배의 국밥은 세 냥이다.")
    );
    assert!(soup.always && soup.layer == LoreLayer::A1);
    let mut reported = fields(&report);
    reported.sort();
    assert_eq!(
        reported,
        [
            "@@depth",
            "insertion_order",
            "고갯마루/@@keep_activate_after_match",
            "국밥/@@exclude_keys",
            "국밥/@@host_only",
            "금고/@@dont_activate"
        ]
    );
}

#[test]
fn bare_card_of_v1_is_read() {
    let card = parse_card(WOLF).unwrap();
    let (npc, report) = card.to_npc();
    assert_eq!(report, []);
    assert!(npc.persona.description.starts_with("The Grey Wolf lives in the wood"));
    assert!(npc.persona.description.ends_with("\n\nPersonality: Sly and courteous."));
    assert!(npc.persona.greeting.starts_with("Good morning, the player."));
    assert!(card.lorebook().is_none());
    assert_eq!(parse_lorebook(WOLF), Err(CardError::NoLorebook));
}

#[test]
fn long_texts_are_cut_at_a_sentence_and_reported() {
    let sentence = "The tide comes in twice a day. ";
    let (npc, report) = npc(&card_with("description", &json!(sentence.repeat(200))));
    let description = npc.persona.description;
    assert!(description.chars().count() <= 4_000 && description.chars().count() > 3_900);
    assert!(description.ends_with("a day."), "{description}");
    assert_eq!(fields(&report), ["description"]);

    let (npc, report) = self::npc(&card_with("first_mes", &json!("가".repeat(1_001))));
    assert_eq!(npc.persona.greeting.chars().count(), 1_000);
    assert_eq!(fields(&report), ["first_mes"]);

    let (entries, report) = book_of_entry(&json!({"keys": ["tide"], "content": sentence.repeat(200)}));
    assert!(entries[0].1.content.ends_with("a day."));
    assert_eq!(fields(&report), ["tide/content"]);
}

#[test]
fn macros_are_nested_and_case_does_not_matter() {
    let text = "{{Char}} and {{USER}}{{// a {{user}} note}}, {{random::{{char}},b}}<start>{{newline}}end {{ and }}";
    let (npc, report) = npc(&card_with("description", &json!(text)));
    assert_eq!(npc.persona.description, "Maud and the player,\nend");
    let reasons: Vec<&str> = report.iter().map(|part| part.reason.as_str()).collect();
    assert_eq!(
        reasons,
        ["the macro {{random}} was removed", "the macro {{and}} was removed"]
    );
    let unclosed = self::npc(&card_with("description", &json!("{{char}} has {{ a brace"))).0;
    assert_eq!(unclosed.persona.description, "Maud has {{ a brace");
}

#[test]
fn export_of_world_info_is_read() {
    let (entries, report) = book(&json!({"entries": {
        "10": {"uid": 10, "key": ["well"], "keysecondary": [], "comment": "", "content": "{{char}} fears the well.",
            "constant": false, "selective": true, "order": 100, "position": 0, "disable": false, "sticky": 40,
            "caseSensitive": null, "vectorized": false, "group": "places"},
        "2": {"uid": 2, "key": ["Mill"], "comment": "Mill", "content": "The mill is old.", "disable": false},
        "3": {"uid": 3, "key": ["Ford"], "comment": "Ford", "content": "The ford is deep.", "disable": true},
    }}));
    let names: Vec<&str> = entries.iter().map(|(_, text)| text.name.as_str()).collect();
    assert_eq!(names, ["Mill", "well"]);
    let well = &entries[1].1;
    assert_eq!(well.content, "the character fears the well.");
    assert_eq!((well.sticky, well.group.as_deref()), (8, Some("places")));
    assert_eq!(fields(&report), ["order", "Ford/enabled", "well/sticky"]);
}

#[test]
fn keys_beyond_the_aliases_are_keywords() {
    let mut keys: Vec<String> = (0..59).map(|nth| format!("key {nth}")).collect();
    keys.extend([
        "KEY 3".into(),
        "x".repeat(65),
        "/a.*b/".into(),
        "two\nlines".into(),
        String::new(),
    ]);
    let (entries, report) = book_of_entry(&json!({"name": "Keys", "keys": keys, "content": "Keys."}));
    let text = &entries[0].1;
    assert_eq!((text.aliases.len(), text.keywords.len()), (16, 32));
    assert_eq!(text.keywords[0], "key 16");
    let reasons: Vec<&str> = report.iter().map(|part| part.reason.as_str()).collect();
    // The line break in a key became a space.
    assert_eq!(
        reasons,
        [
            "not taken: 1 of 64 keys; they are regular expressions",
            "not taken: 1 of 64 keys; they are longer than 64 characters",
            "not taken: 12 of 64 keys; they are more than 16 aliases and 32 keywords"
        ]
    );
}

#[test]
fn names_and_ids_are_found_for_every_entry() {
    let entries = [
        json!({"name": "Château d'Or", "keys": [], "content": "A."}),
        json!({"name": "chateau dor", "keys": [], "content": "B."}),
        json!({"comment": "n".repeat(101), "keys": ["Château d'Or"], "content": "C."}),
        json!({"keys": ["/only/"], "content": "D."}),
        json!({"name": "n".repeat(101), "content": "E."}),
        json!({"name": "empty", "content": "@@depth 3\n {{// nothing}}"}),
    ];
    let (entries, report) = book(&json!({"spec": "lorebook_v3", "data": {"entries": entries}}));
    let ids: Vec<&str> = entries.iter().map(|(id, _)| id.as_str()).collect();
    let cut = "n".repeat(58);
    assert_eq!(ids, ["chateau-dor", "chateau-dor-2", "chateau-dor-3", "entry-4", &cut]);
    assert_eq!(
        fields(&report),
        [
            "Entry 4/name".to_owned(),
            "Entry 4/keys".to_owned(),
            format!("{}/name", "n".repeat(100)),
            "@@depth".to_owned(),
            "empty/content".to_owned(),
        ]
    );
}

#[test]
fn number_after_an_id_avoids_the_ids_of_other_names() {
    let entry = |name: &str| json!({"name": name, "content": "A."});
    let mut last = entry("fen");
    last["extensions"] = json!({"colloquy": {"id": "fen-3"}});
    let all = [entry("fen"), entry("Fen 2"), entry("fen"), last];
    let (entries, _) = book(&json!({"entries": all}));
    let ids: Vec<&str> = entries.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["fen", "fen-2", "fen-4", "fen-3"]);
}

#[test]
fn decorator_activate_wins_and_text_with_at_signs_stays() {
    for (content, taken) in [
        ("@@activate\n@@dont_activate\nA.", Some(("A.", true))),
        ("@@keep_activate_after_match\n@@@activate\nA.", Some(("A.", false))),
        ("@@dont_activate\nA.", None),
        ("@@unknown\n@@@dont_activate\nA.", None),
        ("A.\n@@activate", Some(("A.\n@@activate", false))),
        ("@@@@\nA.", Some(("@@@@\nA.", false))),
    ] {
        let (entries, _) = book_of_entry(&json!({"name": "a", "content": content}));
        let found = entries.first().map(|(_, text)| (text.content.as_str(), text.always));
        assert_eq!(found, taken, "{content}");
    }
}
