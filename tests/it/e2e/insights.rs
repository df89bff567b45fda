//! Insights over HTTP: made by passes, listed, deleted, taken back, and shown to those who may know.

use colloquy::tenancy::Role;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    fresh,
    npc_conversation::{conversation, with_mock},
};
use crate::support::{RestClient, eventually, run};

const INSIGHTS: &str = "/v1/worlds/vale/npcs/mira/insights";
const RUN: &str = "/v1/worlds/vale/curation:run";

async fn say(backend: &RestClient, session: &str, text: &str) {
    let path = format!("/v1/sessions/{session}/turns");
    backend.post(&path, &json!({ "text": text })).await;
}

async fn run_pass(backend: &RestClient, dialogue: &str) {
    backend.post(RUN, &json!({ "dialogue_id": dialogue })).await;
    backend.idle().await;
}

/// Returns the texts of the listed insights, newest first.
async fn texts(backend: &RestClient, query: &str) -> Vec<String> {
    let listed = backend.get(&format!("{INSIGHTS}?{query}")).await;
    let items = listed["items"].as_array().unwrap().iter();
    items.map(|item| item["text"].as_str().unwrap().to_owned()).collect()
}

/// Returns the insights in the prompt for a line.
async fn shown(backend: &RestClient, session: &str, text: &str) -> Vec<String> {
    let path = format!("/v1/sessions/{session}/context");
    let preview = backend.post(&path, &json!({ "text": text })).await;
    let traced = preview["insights"].as_array().cloned().unwrap_or_default();
    let used = traced.iter().filter(|traced| traced["fate"] == "used");
    let shown: Vec<String> = used
        .map(|traced| traced["shown"].as_str().unwrap().to_owned())
        .collect();
    let messages = preview["messages"].to_string();
    assert!(shown.iter().all(|text| messages.contains(text)), "{preview}");
    shown
}

#[test]
fn insights_of_a_session_are_listed_shown_taken_back_and_deleted() {
    run(async {
        let server = fresh(&[]).start();
        let backend = server.backend();
        let first = backend.open_session("mira", "p1").await;
        say(&backend, &first, "I like plums.").await;
        run_pass(&backend, &first).await;
        assert_eq!(texts(&backend, "").await, ["The player likes plums."]);
        say(&backend, &first, "I like bread.").await;
        run_pass(&backend, &first).await;
        assert_eq!(texts(&backend, "").await, ["The player likes bread."], "one a day");
        let listed = backend.get(INSIGHTS).await["items"][0].clone();
        assert_eq!(
            (
                &listed["entity"],
                &listed["player_id"],
                &listed["turn"],
                &listed["dialogue_id"]
            ),
            (&json!("player:p1"), &json!("p1"), &json!(2), &json!(first)),
            "{listed}"
        );
        for (query, count) in [
            ("entity=player:p1", 1),
            ("entity=ferry", 0),
            ("player_id=p1", 1),
            ("player_id=p2", 0),
        ] {
            assert_eq!(texts(&backend, query).await.len(), count, "{query}");
        }

        let second = backend.open_session("mira", "p1").await;
        assert_eq!(shown(&backend, &second, "Hello.").await, ["The player likes bread."]);
        let other = backend.open_session("mira", "p2").await;
        assert!(shown(&backend, &other, "Hello.").await.is_empty());
        let ergen = backend.open_session("ergen", "p1").await;
        assert!(shown(&backend, &ergen, "Hello.").await.is_empty());

        let saved = backend.post("/v1/worlds/vale/saves", &json!({})).await;
        backend
            .post(&format!("/v1/sessions/{first}:rewind"), &json!({"turn": 1}))
            .await;
        assert_eq!(texts(&backend, "").await, ["The player likes plums."]);
        assert_eq!(shown(&backend, &second, "Hello.").await, ["The player likes plums."]);
        let restore = format!("/v1/worlds/vale/saves/{}:restore", saved["id"].as_str().unwrap());
        backend.post(&restore, &json!({})).await;
        assert_eq!(texts(&backend, "").await, ["The player likes bread."]);

        let path = format!("{INSIGHTS}/{}", listed["id"].as_str().unwrap());
        let elsewhere = path.replace("mira", "ergen");
        let (status, _) = backend.call(Method::DELETE, &elsewhere, None).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        let (status, _) = backend.call(Method::DELETE, &path, None).await;
        assert_eq!(status, StatusCode::NO_CONTENT);
        let (status, _) = backend.call(Method::DELETE, &path, None).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "once");
        assert!(texts(&backend, "").await.is_empty());
        backend.post(&restore, &json!({})).await;
        assert!(texts(&backend, "").await.is_empty(), "an edit stands");
        let audit = server.rest(Role::Admin).get("/v1/audit?limit=20").await;
        assert!(audit.to_string().contains("insight.delete"), "{audit}");
        server.stop();
    });
}

#[test]
fn insight_about_an_npc_is_for_the_other_and_for_players_who_could_listen() {
    run(async {
        let server = fresh(&[]).start();
        let backend = server.backend();
        let mill = json!({
            "subject": "Mira", "predicate": "likes", "object": "the old mill", "content": "Mira likes the old mill.",
            "kind": "preference"
        });
        backend.post("/v1/worlds/vale/npcs/mira/facts", &mill).await;
        let body = json!({
            "world_id": "vale", "npc_ids": ["ergen", "mira"], "topic": "the old mill", "auto": false,
            "watchers": ["p1"], "max_turns": 8
        });
        let made = backend.post("/v1/npc-conversations", &body).await;
        let id = made["id"].as_str().unwrap().to_owned();
        let listed = eventually("an insight", || async {
            let step = format!("/v1/npc-conversations/{id}:step");
            let (status, _) = backend.call(Method::POST, &step, Some(&json!({}))).await;
            assert!(status.is_success(), "{status}");
            run_pass(&backend, &id).await;
            let mut listed = Vec::new();
            for npc in ["ergen", "mira"] {
                let found = backend.get(&format!("/v1/worlds/vale/npcs/{npc}/insights")).await;
                let insights = found["items"].as_array().unwrap().clone();
                listed.extend(insights.into_iter().map(|insight| (npc, insight)));
            }
            listed.into_iter().next()
        })
        .await;
        let (npc, insight) = &listed;
        let about = insight["entity"].as_str().unwrap();
        assert_ne!(about.to_lowercase(), *npc, "nobody has one about itself");
        assert_eq!(
            (&insight["player_id"], &insight["dialogue_id"]),
            (&Value::Null, &json!(id))
        );
        let watcher = backend.open_session(npc, "p1").await;
        let stranger = backend.open_session(npc, "p2").await;
        let names_it = format!("What of {about}?");
        assert_eq!(shown(&backend, &watcher, &names_it).await.len(), 1);
        assert!(shown(&backend, &stranger, &names_it).await.is_empty());
        server.stop();
    });
}

#[test]
fn insight_of_npcs_about_a_third_thing_is_for_both_and_for_players_who_could_listen() {
    run(async {
        let (mock, server) = with_mock();
        let answer = json!({
            "findings": [], "edits": [], "done": true,
            "insights": [{"about": "", "entity": "the ferry", "text": "The ferry is late.", "turns": []}],
        });
        mock.apply_settings(&json!({ "curation": answer.to_string() })).unwrap();
        let backend = server.backend();
        let id = conversation(&server, json!({"auto": false, "watchers": ["p1"]})).await;
        for _ in 0..2 {
            backend
                .post(&format!("/v1/npc-conversations/{id}:step"), &json!({}))
                .await;
        }
        run_pass(&backend, &id).await;
        let mut ids = Vec::new();
        for npc in ["ergen", "mira"] {
            let listed = backend.get(&format!("/v1/worlds/vale/npcs/{npc}/insights")).await["items"].clone();
            let insight = &listed[0];
            assert_eq!(
                (
                    &insight["entity"],
                    &insight["text"],
                    &insight["dialogue_id"],
                    &listed[1]
                ),
                (
                    &json!("the ferry"),
                    &json!("The ferry is late."),
                    &json!(id),
                    &Value::Null
                ),
                "{npc}: {listed}"
            );
            ids.push(insight["id"].clone());
            let watcher = backend.open_session(npc, "p1").await;
            let stranger = backend.open_session(npc, "p2").await;
            let names_it = "What of the ferry?";
            assert_eq!(
                shown(&backend, &watcher, names_it).await,
                ["The ferry is late."],
                "{npc}"
            );
            assert!(shown(&backend, &stranger, names_it).await.is_empty(), "{npc}");
        }
        assert_ne!(ids[0], ids[1], "each NPC has its own");
        server.stop();
    });
}

#[test]
fn session_that_ends_leaves_insights() {
    run(async {
        let server = fresh(&[
            ("COLLOQUY__SUMMARIES__AFTER_SILENCE_S", "1"),
            ("COLLOQUY__JOBS__POLL_S", "1"),
        ])
        .start();
        let backend = server.backend();
        let session = backend.open_session("mira", "p1").await;
        for line in ["Good morning.", "It rains.", "I like plums.", "Good night."] {
            say(&backend, &session, line).await;
        }
        let path = format!("/v1/sessions/{session}");
        let (status, _) = backend.call(Method::DELETE, &path, None).await;
        assert_eq!(status, StatusCode::NO_CONTENT);
        let told = eventually("the pass at the end", || async {
            Some(texts(&backend, "").await).filter(|told| !told.is_empty())
        })
        .await;
        assert_eq!(told, ["The player likes plums."]);
        server.stop();
    });
}

#[test]
fn dry_run_answers_with_the_pass_and_stores_nothing() {
    run(async {
        let server = fresh(&[]).start();
        let backend = server.backend();
        let session = backend.open_session("mira", "p1").await;
        let ask = json!({ "dialogue_id": session, "dry_run": true });
        let none = backend.call(Method::POST, RUN, Some(&ask)).await;
        assert_eq!(none, (StatusCode::OK, json!({ "pass": null })));
        say(&backend, &session, "I like plums.").await;
        say(&backend, &session, "I don't like plums.").await;
        backend.idle().await;
        let (status, made) = backend.call(Method::POST, RUN, Some(&ask)).await;
        assert_eq!(status, StatusCode::OK, "{made}");
        let pass = &made["pass"];
        assert_eq!((&pass["from_turn"], &pass["to_turn"]), (&json!(1), &json!(2)), "{made}");
        assert_eq!(pass["findings"][0]["kind"], "contradiction", "{made}");
        assert_eq!(pass["insights"][0]["entity"], "player:p1", "{made}");
        assert!(pass["narrative_memory"].as_str().unwrap().contains("plums"), "{made}");
        for path in ["/v1/worlds/vale/curation", "/v1/worlds/vale/curation/passes", INSIGHTS] {
            assert_eq!(backend.get(path).await["items"], json!([]), "{path}");
        }
        let (_, again) = backend.call(Method::POST, RUN, Some(&ask)).await;
        assert_eq!(again, made, "the same turns are unread");
        let unknown = json!({ "dialogue_id": "ses_00000000000000000000000000", "dry_run": true });
        let (status, answer) = backend.call(Method::POST, RUN, Some(&unknown)).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{answer}");
        let wrong = json!({ "dialogue_id": session, "dry_run": "yes" });
        let (status, answer) = backend.call(Method::POST, RUN, Some(&wrong)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
        server.stop();
    });
}
