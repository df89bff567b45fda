//! Lore: what the NPC is told of the world, under which conditions, and what a rewind takes back.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    npc_conversation::{last_prompt, with_mock},
    scenarios::put,
};
use crate::support::{RestClient, run};

const LORE: &str = "/v1/worlds/vale/lore";

async fn author_lore(backend: &RestClient) {
    for (id, entry) in [
        (
            "dark-forest",
            json!({"name": "Dark Forest", "aliases": ["the black wood"], "layer": "A1", "place": "Dark Forest",
                "content": "Wolves rule the Dark Forest since the Great Collapse.", "related": ["keep"]}),
        ),
        (
            "collapse",
            json!({"name": "Great Collapse", "layer": "A1", "content": "The mountain fell in one night."}),
        ),
        (
            "keep",
            json!({"name": "Silver Keep", "layer": "A3", "content": "Nine knights hold the Silver Keep."}),
        ),
        (
            "goblin-king",
            json!({"name": "Krug", "layer": "A2", "characters": ["Krug"], "items": ["crown"],
                "content": "Krug is the king of the goblins."}),
        ),
        (
            "well",
            json!({"name": "old well", "layer": "A2", "content": "Mira threw the ledger into the old well.",
                "when": [{"item": "silver key"}], "tell": {"text": "You look away when the well is named."}}),
        ),
        (
            "vault",
            json!({"name": "vault", "layer": "A2", "content": "The vault opens at noon.", "when": [{"item": "silver key"}]}),
        ),
        (
            "guild",
            json!({"name": "thieves' guild", "layer": "A2", "content": "The guild meets under the bridge.",
                "known_by": {"npcs": ["tom"]}}),
        ),
    ] {
        put(backend, &format!("{LORE}/{id}"), &entry).await;
    }
}

async fn report(backend: &RestClient, events: Value) {
    backend
        .post("/v1/worlds/vale/events", &json!({ "events": events }))
        .await;
}

async fn say(backend: &RestClient, session: &str, text: &str) -> Value {
    let path = format!("/v1/sessions/{session}/turns");
    backend.post(&path, &json!({ "text": text })).await
}

async fn preview(backend: &RestClient, session: &str, text: &str) -> Value {
    let path = format!("/v1/sessions/{session}/context");
    backend.post(&path, &json!({ "text": text })).await
}

/// A PNG of one pixel.
const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

async fn import_file(backend: &RestClient, path: &str, file: &Value, expected: StatusCode) -> Value {
    let (status, answer) = backend.call(Method::POST, path, Some(file)).await;
    assert_eq!(status, expected, "{path}: {answer}");
    answer
}

fn fates(traced: &Value) -> Vec<String> {
    let lore = traced["lore"].as_array().cloned().unwrap_or_default();
    let one = |entry: &Value| format!("{} {} {}", entry["entry"], entry["found_by"], entry["fate"]).replace('"', "");
    lore.iter().map(one).collect()
}

#[test]
fn lore_that_the_line_is_about_is_in_the_prompt_with_its_state() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        author_lore(&backend).await;
        let session = backend.open_session("mira", "p1").await;
        say(&backend, &session, "What do you know of the Dark Forest?").await;
        let prompt = last_prompt(&mock);
        for part in [
            "[What you know of the world]",
            "Dark Forest: Wolves rule",
            "The mountain fell",
            "Nine knights",
        ] {
            assert!(prompt.contains(part), "{part}: {prompt}");
        }
        let trace = backend.get(&format!("/v1/sessions/{session}/turns/1/trace")).await;
        let found = fates(&trace);
        assert_eq!(found[0], "dark-forest name used", "{found:?}");
        assert!(found.contains(&"collapse related used".to_owned()), "{found:?}");

        report(
            &backend,
            json!([
                {"type": "location", "who": "Krug", "to": "Swamp"},
                {"type": "status", "who": "Krug", "to": "wounded"},
                {"type": "item_gained", "who": "player:p1", "item": "crown"},
                {"type": "location", "who": "player:p1", "to": "Dark Forest"}
            ]),
        )
        .await;
        let history = backend.get(&format!("{LORE}/goblin-king/history")).await;
        let changes = history["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| json!([item["change"], item["cause"]["kind"]]));
        let expected = json!([["location", "event"], ["status", "event"], ["item_gained", "event"]]);
        assert_eq!(changes.collect::<Value>(), expected, "{history}");
        say(&backend, &session, "And who is Krug?").await;
        let prompt = last_prompt(&mock);
        let krug = "Krug (now: Krug is at Swamp, wounded; the player has: crown): Krug is the king of the goblins.";
        assert!(prompt.contains(krug), "{prompt}");
        assert!(prompt.contains("Wolves rule"), "the player is in the forest: {prompt}");
        let shown = preview(&backend, &session, "And what was that?").await;
        let found = fates(&shown);
        assert!(found.contains(&"goblin-king pointed_at used".to_owned()), "{found:?}");
        let shown = preview(&backend, &session, "Tell me of Krug's crown.").await;
        let best = &shown["lore"][0];
        assert_eq!(
            json!([best["entry"], best["score"]["place"]]),
            json!(["dark-forest", 3.0]),
            "{shown}"
        );
    });
}

#[test]
fn unmentioned_lore_decays_and_a_rewind_takes_mentions_back() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        author_lore(&backend).await;
        mock.apply_settings(&json!({"reply": "Hm."})).unwrap();
        let session = backend.open_session("mira", "p1").await;
        for turn in 1..=8 {
            say(&backend, &session, &format!("It is day {turn}.")).await;
        }
        // Turn 9: nobody has named the keep for eight turns. The line leads to it, through the forest.
        let about = "What of the Dark Forest?";
        let shown = preview(&backend, &session, about).await.to_string();
        assert!(!shown.contains("Nine knights hold"), "{shown}");
        say(&backend, &session, "Is the Silver Keep far?").await;
        assert!(last_prompt(&mock).contains("Nine knights hold"));
        let shown = preview(&backend, &session, about).await.to_string();
        assert!(shown.contains("Nine knights hold"), "the mention counts: {shown}");
        backend
            .post(&format!("/v1/sessions/{session}:rewind"), &json!({"turn": 8}))
            .await;
        let shown = preview(&backend, &session, about).await.to_string();
        assert!(!shown.contains("Nine knights hold"), "nobody has named it: {shown}");
    });
}

#[test]
fn conditions_and_tells_keep_lore_back() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        author_lore(&backend).await;
        let session = backend.open_session("mira", "p1").await;
        let asked = "What is in the old well, in the vault, and where does the thieves' guild meet?";
        say(&backend, &session, asked).await;
        let prompt = last_prompt(&mock);
        assert!(prompt.contains("You look away when the well is named."), "{prompt}");
        for secret in ["threw the ledger", "opens at noon", "under the bridge"] {
            assert!(!prompt.contains(secret), "{secret}: {prompt}");
        }
        let key = json!([{"type": "item_gained", "who": "player:p1", "item": "Silver Key"}]);
        report(&backend, key).await;
        mock.apply_settings(&json!({"reply": "The ledger is in the well, and the vault opens at noon."}))
            .unwrap();
        say(&backend, &session, asked).await;
        let prompt = last_prompt(&mock);
        assert!(!prompt.contains("You look away"), "{prompt}");
        assert!(
            prompt.contains("threw the ledger") && prompt.contains("opens at noon"),
            "{prompt}"
        );
        assert!(!prompt.contains("under the bridge"), "{prompt}");
        let trace = backend.get(&format!("/v1/sessions/{session}/turns/2/trace")).await;
        assert_eq!(trace["locks"], "lore:mira/vault;lore:mira/well", "{trace}");
        backend.idle().await;

        // Another player without the key is told nothing of it, not even from what Mira learned.
        let other = json!({"world_id": "vale", "npc_id": "mira", "player_id": "p2"});
        let made = backend.post("/v1/sessions", &other).await;
        let shown = preview(&backend, made["id"].as_str().unwrap(), asked).await.to_string();
        assert!(!shown.contains("noon") && !shown.contains("ledger"), "{shown}");
    });
}

#[test]
fn tell_needs_more_than_the_name_of_a_character() {
    run(async {
        let (_mock, server) = with_mock();
        let backend = server.backend();
        for (id, entry) in [
            (
                "drowned-ship",
                json!({"name": "drowned ship", "layer": "A2", "content": "Captain Voss scuttled the Petrel.",
                    "characters": ["Captain Voss"], "when": [{"item": "silver key"}],
                    "tell": {"text": "You fall silent when the drowned ship is named."}}),
            ),
            (
                "voss",
                json!({"name": "harbour watch", "layer": "A2", "content": "Captain Voss leads the watch.",
                    "characters": ["Captain Voss"]}),
            ),
        ] {
            put(&backend, &format!("{LORE}/{id}"), &entry).await;
        }
        let session = backend.open_session("mira", "p1").await;
        let shown = preview(&backend, &session, "Captain Voss sends her greetings.").await;
        assert_eq!(fates(&shown), ["voss character used"], "{shown}");
        assert!(!shown.to_string().contains("You fall silent"), "{shown}");
        let shown = preview(&backend, &session, "What of Captain Voss and the drowned ship?").await;
        assert!(fates(&shown).contains(&"drowned-ship name used".to_owned()), "{shown}");
        assert!(shown.to_string().contains("You fall silent"), "{shown}");
    });
}

#[test]
fn nobody_is_near_at_a_place_of_an_earlier_dialogue() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        let settings = json!({"clock": {"start": "1024-03-05 14:30"}});
        let world = json!({"name": "Vale", "language": "en", "settings": settings});
        put(&backend, "/v1/worlds/vale", &world).await;
        let road = json!({"name": "salt road", "layer": "A2", "content": "Bram guards the salt road.",
            "characters": ["Bram"]});
        put(&backend, &format!("{LORE}/road"), &road).await;
        let to_inn = ["mira", "player:p1", "Bram"].map(|who| json!({"type": "location", "who": who, "to": "Inn"}));
        report(&backend, json!(to_inn)).await;
        let session = backend.open_session("mira", "p1").await;
        let block = json!({"changes": [{"who": "Bram", "location": "Mill"}]});
        mock.apply_settings(&json!({"reply": format!("Go, then!\n```state\n{block}\n```")}))
            .unwrap();
        say(&backend, &session, "Send him to the mill.").await;
        report(
            &backend,
            json!([{"type": "location", "who": "player:p1", "to": "Mill"}]),
        )
        .await;
        let nearby = async || {
            let later = backend.open_session("mira", "p1").await;
            let shown = preview(&backend, &later, "What of the salt road?").await;
            shown["lore"][0]["score"]["nearby"].clone()
        };
        assert_eq!(nearby().await, json!(2.0), "the same day");
        report(&backend, json!([{"type": "time_passed", "days": 3}])).await;
        assert_eq!(nearby().await, json!(0.0), "nobody knows whether Bram is still there");
    });
}

#[test]
fn two_words_of_a_sentence_find_an_entry() {
    run(async {
        let (_mock, server) = with_mock();
        let backend = server.backend();
        let content = "Grandfathers remember seven floods, three fires and a plague of locusts here. Behind the chapel \
            stand four cottages, a smithy, a cooperage and a rope walk. Lime is burned in the kiln whenever masons \
            need mortar. Peddlers bring ribbons, needles, pewter spoons and almanacs from beyond the mountain pass.";
        let entry = json!({"name": "northern works", "layer": "A2", "content": content});
        put(&backend, &format!("{LORE}/works"), &entry).await;
        let session = backend.open_session("mira", "p1").await;
        for (line, found) in [
            ("Who burns the kiln?", vec!["works meaning used"]),
            ("My uncle dreamt of a chapel, and then of a kiln that sang.", vec![]),
        ] {
            let body = json!({"text": line, "intent": "world"});
            let shown = backend.post(&format!("/v1/sessions/{session}/context"), &body).await;
            assert_eq!(fates(&shown), found, "{line}: {shown}");
        }
    });
}

#[test]
fn recent_death_of_somebody_close_is_known_whatever_the_line() {
    run(async {
        let (_mock, server) = with_mock();
        let backend = server.backend();
        for (id, who) in [("bram-death", "Bram"), ("krug-death", "Krug"), ("rose-death", "Rose")] {
            let entry = json!({"name": format!("the end of {who}"), "layer": "A2", "characters": [who],
                "content": format!("{who} died at the ford."), "when": [{"status": "dead", "of": who}]});
            put(&backend, &format!("{LORE}/{id}"), &entry).await;
        }
        let brother = json!({"subject": "Mira", "predicate": "be the sister of", "object": "Bram",
            "content": "Mira is the sister of Bram.", "kind": "relationship", "importance": 7});
        let husband = json!({"subject": "Mira", "predicate": "be married to", "object": "Tom",
            "content": "Mira married Tom under a rose arch.", "kind": "relationship", "importance": 7});
        for fact in [brother, husband] {
            backend.post("/v1/worlds/vale/npcs/mira/facts", &fact).await;
        }
        let session = backend.open_session("mira", "p1").await;
        let shown = preview(&backend, &session, "Good morning.").await;
        assert_eq!(fates(&shown), Vec::<String>::new(), "all are alive: {shown}");
        let died = ["Bram", "Krug"].map(|who| json!({"type": "status", "who": who, "to": "dead"}));
        report(&backend, json!(died)).await;
        // The newest death, of somebody whom nothing names.
        report(&backend, json!([{"type": "status", "who": "Rose", "to": "dead"}])).await;
        let shown = preview(&backend, &session, "Good morning.").await;
        assert_eq!(fates(&shown), ["bram-death meaning used"], "{shown}");
        assert!(shown.to_string().contains("Bram died at the ford."), "{shown}");
    });
}

#[test]
fn death_that_nobody_asked_for_is_told_only_with_a_word_of_it() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        let entry = json!({"name": "the end of Bram", "layer": "A2", "characters": ["Bram"],
            "content": "Bram died at the ford.", "when": [{"status": "dead", "of": "Bram"}]});
        put(&backend, &format!("{LORE}/bram-death"), &entry).await;
        let brother = json!({"subject": "Mira", "predicate": "be the sister of", "object": "Bram",
            "content": "Mira is the sister of Bram.", "kind": "relationship", "importance": 7});
        backend.post("/v1/worlds/vale/npcs/mira/facts", &brother).await;
        report(&backend, json!([{"type": "status", "who": "Bram", "to": "dead"}])).await;
        let lock = "lore:mira/bram-death";
        for (line, reply, told) in [
            ("Good morning.", "Hm.", ""),
            ("Your hands shake.", "The ford took my Bram.", lock),
            ("Where does Bram live?", "Hm.", lock),
        ] {
            mock.apply_settings(&json!({ "reply": reply })).unwrap();
            let session = backend.open_session("mira", "p1").await;
            say(&backend, &session, line).await;
            let trace = backend.get(&format!("/v1/sessions/{session}/turns/1/trace")).await;
            assert_eq!(trace["locks"], lock, "{line}: {trace}");
            assert_eq!(trace["told_locks"], told, "{line}: {trace}");
        }
    });
}

#[test]
fn decayed_entry_takes_no_place_of_a_recent_death() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        for (id, layer) in [("bram-burial", "A4"), ("bram-death", "A2")] {
            let entry = json!({"name": id, "layer": layer, "characters": ["Bram"],
                "content": "Bram died at the ford.", "when": [{"status": "dead", "of": "Bram"}]});
            put(&backend, &format!("{LORE}/{id}"), &entry).await;
        }
        let brother = json!({"subject": "Mira", "predicate": "be the sister of", "object": "Bram",
            "content": "Mira is the sister of Bram.", "kind": "relationship", "importance": 7});
        backend.post("/v1/worlds/vale/npcs/mira/facts", &brother).await;
        report(&backend, json!([{"type": "status", "who": "Bram", "to": "dead"}])).await;
        mock.apply_settings(&json!({"reply": "Hm."})).unwrap();
        let session = backend.open_session("mira", "p1").await;
        let shown = preview(&backend, &session, "Good morning.").await;
        assert_eq!(fates(&shown), ["bram-burial meaning used"], "{shown}");
        for turn in 1..=3 {
            say(&backend, &session, &format!("It is day {turn}.")).await;
        }
        let shown = preview(&backend, &session, "Good morning.").await;
        assert_eq!(fates(&shown), ["bram-death meaning used"], "{shown}");
    });
}

#[test]
fn lore_that_a_hearer_does_not_know_is_marked_in_company() {
    run(async {
        let (_mock, server) = with_mock();
        let backend = server.backend();
        author_lore(&backend).await;
        let entry = json!({"name": "lime kiln", "content": "A tunnel begins in the lime kiln.",
            "known_by": {"npcs": ["mira"]}});
        put(&backend, &format!("{LORE}/kiln"), &entry).await;
        let asked = "What is in the lime kiln, and who rules the Dark Forest?";
        let shown_to = async |npcs: &[&str]| {
            let body = json!({"world_id": "vale", "npc_ids": npcs, "player_id": "p1"});
            let made = backend.post("/v1/sessions", &body).await;
            let prompt = preview(&backend, made["id"].as_str().unwrap(), asked).await;
            prompt["messages"].to_string()
        };
        let (alone, in_company) = (shown_to(&["mira"]).await, shown_to(&["mira", "ergen"]).await);
        let mark = "(unknown to 에르겐)";
        assert!(
            alone.contains("lime kiln: A tunnel") && !alone.contains(mark),
            "{alone}"
        );
        assert!(
            in_company.contains("lime kiln: (unknown to 에르겐) A tunnel begins"),
            "{in_company}"
        );
        assert_eq!(
            in_company.matches(mark).count(),
            1,
            "all know of the forest: {in_company}"
        );
    });
}

#[test]
fn lore_is_authored_with_etags_and_clear_faults() {
    run(async {
        let (_mock, server) = with_mock();
        let backend = server.backend();
        let path = format!("{LORE}/keep");
        let keep = json!({"name": "Keep", "content": "Old."});
        let (status, made) = backend.call(Method::PUT, &path, Some(&keep)).await;
        assert_eq!((status, &made["layer"]), (StatusCode::CREATED, &json!("A3")), "{made}");
        let bad = json!({"name": "", "content": "x", "sticky": 9, "tell": {"text": "Hm."},
            "when": [{"item": "key", "location": "x"}]});
        let (status, problem) = backend.call(Method::PUT, &path, Some(&bad)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        let bad = json!({"name": " ", "content": "x", "sticky": 9, "tell": {"text": "Hm."}});
        let (status, problem) = backend.call(Method::PUT, &path, Some(&bad)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        let faulty = problem["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|fault| &fault["param"]);
        assert_eq!(faulty.collect::<Vec<_>>(), ["name", "tell", "sticky"], "{problem}");
        let listed = backend.get(LORE).await;
        assert_eq!(listed["items"][0], made, "{listed}");
        let (status, _) = backend.call(Method::DELETE, &path, None).await;
        assert_eq!(status, StatusCode::NO_CONTENT);
        let (status, _) = backend.call(Method::GET, &path, None).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        let (status, _) = backend
            .call(Method::PUT, "/v1/worlds/nowhere/lore/keep", Some(&keep))
            .await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    });
}

#[test]
fn card_and_lorebook_are_imported_and_exported() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        let card: Value = serde_json::from_str(include_str!(
            "../../../src/memory/character_card/cards/lighthouse_keeper.json"
        ))
        .unwrap();
        let import = "/v1/worlds/vale/npcs/maud:import";
        let made = import_file(&backend, import, &card, StatusCode::OK).await;
        assert_eq!(made["lore"], json!({"created": 2, "updated": 0}), "{made}");
        let npc = &made["npc"];
        assert_eq!(
            json!([npc["id"], npc["language"], npc["version"]]),
            json!(["maud", "en", 1])
        );
        assert!(!made["not_taken"].as_array().unwrap().is_empty());
        let again = import_file(&backend, import, &card, StatusCode::OK).await;
        assert_eq!(again["lore"], json!({"created": 0, "updated": 2}), "a repeat is safe");
        let (_, lamp) = backend.call(Method::GET, &format!("{LORE}/maud-the-lamp"), None).await;
        assert_eq!(lamp["known_by"], json!({"npcs": ["maud"]}), "{lamp}");

        let session = json!({"world_id": "vale", "npc_id": "maud", "player_id": "p1"});
        let session = backend.post("/v1/sessions", &session).await["id"]
            .as_str()
            .unwrap()
            .to_owned();
        say(&backend, &session, "Has the lamp ever failed?").await;
        assert!(
            last_prompt(&mock).contains("on the night the Petrel sank"),
            "{}",
            last_prompt(&mock)
        );

        let exported = backend.get("/v1/worlds/vale/npcs/maud:export").await;
        assert_eq!(exported["spec"], "chara_card_v3", "{exported}");
        let copy = import_file(&backend, "/v1/worlds/vale/npcs/copy:import", &exported, StatusCode::OK).await;
        assert_eq!(copy["npc"]["persona"], made["npc"]["persona"], "{copy}");
        let picture = BASE64_STANDARD.decode(PICTURE).unwrap();
        let export = "/v1/worlds/vale/npcs/maud:export";
        let (status, png) = backend.post_file(export, &picture).await;
        assert!(status.is_success() && png.len() > picture.len(), "{status}");
        let (status, of_png) = backend.post_file("/v1/worlds/vale/npcs/copy:import", &png).await;
        let of_png: Value = serde_json::from_slice(&of_png).unwrap();
        assert_eq!(
            (status, &of_png["npc"]["persona"]),
            (StatusCode::OK, &made["npc"]["persona"]),
            "{of_png}"
        );
        let (status, problem) = backend.post_file(export, b"a picture").await;
        let problem = String::from_utf8(problem).unwrap();
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        let book = backend.get(&format!("{LORE}:export")).await;
        let (before, path) = (backend.get(LORE).await, format!("{LORE}:import"));
        let report = import_file(&backend, &path, &book, StatusCode::OK).await;
        let not_taken = report["not_taken"].as_array().unwrap().iter().map(|one| &one["field"]);
        assert_eq!(not_taken.collect::<Vec<_>>(), ["insertion_order"], "{report}");
        assert_eq!(report.get("npc"), None);
        let texts = |listed: &Value| {
            let mut items = listed["items"].clone();
            for item in items.as_array_mut().unwrap() {
                item.as_object_mut()
                    .unwrap()
                    .retain(|key, _| !["version", "updated_at"].contains(&key.as_str()));
            }
            items
        };
        assert_eq!(texts(&backend.get(LORE).await), texts(&before));

        for (body, says) in [
            (json!({"spec": "lorebook_v3", "data": {"entries": 5}}), "entries"),
            (json!({"spec": "recipe_v1"}), "recipe_v1"),
        ] {
            let problem = import_file(&backend, &path, &body, StatusCode::UNPROCESSABLE_ENTITY).await;
            assert!(problem.to_string().contains(says), "{problem}");
        }
        let gone = import_file(
            &backend,
            "/v1/worlds/nowhere/npcs/maud:import",
            &card,
            StatusCode::NOT_FOUND,
        )
        .await;
        assert_eq!(gone["code"], "not_found");
    });
}
