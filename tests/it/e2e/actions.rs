//! Actions: an NPC asks the backend, the backend answers, and a rewind takes the request back.

use colloquy::{mock_llm::MockHandle, tenancy::Role};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    npc_conversation::{last_prompt, with_mock},
    scenarios::put,
};
use crate::support::{RestClient, TestServer, TestSocket, eventually, run};

const ACTIONS: &str = "/v1/worlds/vale/actions";
const WORLD: &str = "/v1/worlds/vale";

/// Writes the world `vale` with an action for everybody, one under a condition, and one of another NPC.
async fn author_actions(backend: &RestClient, expires_s: u32) {
    let settings = json!({
        "state": [{"name": "siege", "type": "flag", "of": "world", "initial": false}],
        "actions": [
            {"name": "open_gate", "description": "Opens a gate of the town.", "expires_s": expires_s, "arguments": {
                "type": "object", "properties": {"gate": {"enum": ["north", "south"]}, "hours": {"type": "integer"}},
                "required": ["gate"], "additionalProperties": false}},
            {"name": "ring_bell", "description": "Rings the bell.", "when": [{"attribute": "siege", "is": true}]},
            {"name": "forge", "description": "Forges a blade.", "npcs": ["ergen"]}
        ]
    });
    let body = json!({"name": "Vale", "language": "en", "settings": settings});
    put(backend, WORLD, &body).await;
    put(
        backend,
        "/v1/worlds/vale/npcs/mira",
        &json!({"name": "Mira", "language": "en"}),
    )
    .await;
}

/// Says a line to which the reply asks for `actions`. Returns the turn.
async fn ask_for(mock: &MockHandle, backend: &RestClient, session: &str, actions: &Value) -> Value {
    let block = json!({ "actions": actions });
    mock.apply_settings(&json!({"reply": format!("Very well.\n```state\n{block}\n```")}))
        .unwrap();
    let turn = say(backend, session, "The gate, please.").await;
    mock.apply_settings(&json!({"reply": "Well."})).unwrap();
    turn
}

async fn say(backend: &RestClient, session: &str, text: &str) -> Value {
    backend
        .post(&format!("/v1/sessions/{session}/turns"), &json!({ "text": text }))
        .await
}

async fn rewind(backend: &RestClient, session: &str, turn: u32) {
    backend
        .post(&format!("/v1/sessions/{session}:rewind"), &json!({ "turn": turn }))
        .await;
}

async fn watch(server: &TestServer, seen: &[&Value]) -> TestSocket {
    let mut socket = TestSocket::open(server.address, &server.token("demo", Role::Backend, None)).await;
    let watching = json!({"type": "world.watch", "world_id": "vale", "actions": seen});
    socket.send(&watching).await;
    socket.until("world.watched").await;
    socket
}

/// Reports an event, and returns the types and ids of all events about actions before its `world.changed`.
async fn events_until_now(backend: &RestClient, socket: &mut TestSocket, mark: &str) -> Vec<(String, Value)> {
    let event = json!({"events": [{"type": "note", "text": mark}]});
    backend.post("/v1/worlds/vale/events", &event).await;
    let mut seen = Vec::new();
    loop {
        let event = socket.next().await;
        match event["type"].as_str().unwrap() {
            "action.requested" => seen.push(("requested".to_owned(), event["action"]["id"].clone())),
            "action.undone" => seen.push(("undone".to_owned(), event["action_id"].clone())),
            "world.changed" if event["changes"].to_string().contains(mark) => return seen,
            _ => {}
        }
    }
}

async fn answer(backend: &RestClient, id: &Value, verb: &str, body: &Value) -> (StatusCode, Value) {
    let path = format!("/v1/actions/{}:{verb}", id.as_str().unwrap());
    backend.call(Method::POST, &path, Some(body)).await
}

async fn action(backend: &RestClient, id: &Value) -> Value {
    backend.get(&format!("/v1/actions/{}", id.as_str().unwrap())).await
}

#[test]
fn action_is_requested_done_mentioned_and_undone_once() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        author_actions(&backend, 60).await;
        let session = backend.open_session("mira", "p1").await;
        let mut socket = watch(&server, &[]).await;
        let mut viewer = TestSocket::open(server.address, &server.token("demo", Role::Viewer, None)).await;
        viewer.send(&json!({"type": "world.watch", "world_id": "vale"})).await;
        viewer.until("world.watched").await;

        let asked = json!([{"name": "open_gate", "arguments": {"gate": "north", "hours": "2"}}]);
        let turn = ask_for(&mock, &backend, &session, &asked).await;
        let prompt = last_prompt(&mock);
        assert!(prompt.contains("- open_gate: Opens a gate of the town."), "{prompt}");
        assert!(!prompt.contains("enum"), "arguments are words: {prompt}");
        assert!(prompt.contains("asks for up to 3"), "the rules of the block: {prompt}");
        for hidden in ["ring_bell", "- forge"] {
            assert!(!prompt.contains(hidden), "`{hidden}` is in {prompt}");
        }
        let requested = socket.until("action.requested").await;
        assert_eq!(viewer.until("action.requested").await, requested);
        let id = &requested["action"]["id"];
        let shown = &requested["action"];
        assert_eq!(
            json!([
                shown["name"],
                shown["arguments"],
                shown["npc_id"],
                shown["player_id"],
                shown["status"]
            ]),
            json!(["open_gate", {"gate": "north", "hours": 2}, "mira", "p1", "requested"])
        );
        assert_eq!((&shown["turn_id"], &shown["turn"]), (&turn["id"], &json!(1)));
        let open = backend.get(&format!("{ACTIONS}?status=requested")).await;
        assert_eq!(open["items"], json!([shown]), "the same over REST");

        let path = format!("/v1/actions/{}", id.as_str().unwrap());
        for (world, status) in [("moor", StatusCode::NOT_FOUND), ("vale", StatusCode::OK)] {
            assert_eq!(server.backend_in(world).status(&path).await, status, "{world}");
        }
        let body = json!({"result": "The north gate is open."});
        let (status, done) = answer(&backend, id, "done", &body).await;
        assert_eq!((status, &done["status"]), (StatusCode::OK, &json!("done")), "{done}");
        assert_eq!(
            answer(&backend, id, "done", &body).await,
            (StatusCode::OK, done.clone())
        );
        let (status, problem) = answer(&backend, id, "refused", &json!({})).await;
        assert_eq!(
            (status, &problem["code"]),
            (StatusCode::CONFLICT, &json!("action_answered"))
        );
        let state = backend.get("/v1/worlds/vale/state").await;
        let event = &state["events"][0];
        assert_eq!(
            event["value"],
            "The action open_gate of Mira was done: The north gate is open."
        );
        assert_eq!(
            json!([event["cause"]["kind"], event["cause"]["id"]]),
            json!(["action", id])
        );

        say(&backend, &session, "Is the gate open?").await;
        let told = "was done: The north gate is open.";
        assert!(last_prompt(&mock).contains(told), "{}", last_prompt(&mock));
        assert!(!last_prompt(&mock).contains("- open_gate:"), "what was done rests");
        say(&backend, &session, "How did it go?").await;
        assert!(last_prompt(&mock).contains(told), "the line points back");
        say(&backend, &session, "And now?").await;
        assert!(!last_prompt(&mock).contains(told), "told once");

        rewind(&backend, &session, 0).await;
        for socket in [&mut socket, &mut viewer] {
            let undone = socket.until("action.undone").await;
            assert_eq!(
                json!([
                    undone["world_id"],
                    undone["action_id"],
                    undone["turn_id"],
                    undone["turn"]
                ]),
                json!(["vale", id, turn["id"], 1])
            );
            assert!(
                events_until_now(&backend, socket, "A cock crows.").await.is_empty(),
                "exactly once"
            );
        }
        assert_eq!(action(&backend, id).await["status"], "undone");
        say(&backend, &session, "Hello again.").await;
        assert!(last_prompt(&mock).contains("- open_gate:"), "it was never done");
        let state = backend.get("/v1/worlds/vale/state").await;
        assert!(state["events"].to_string().find("open_gate").is_none(), "{state}");
        let (status, problem) = answer(&backend, id, "done", &body).await;
        assert_eq!(
            (status, &problem["code"]),
            (StatusCode::CONFLICT, &json!("action_undone"))
        );
    });
}

#[test]
fn unfit_requests_are_refused_with_their_reason_in_the_trace() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        author_actions(&backend, 60).await;
        let session = backend.open_session("mira", "p1").await;
        for (asked, why) in [
            (
                json!([{"name": "ring_bell"}]),
                "`ring_bell` is not allowed here and now",
            ),
            (json!([{"name": "forge"}]), "`forge` is not allowed here and now"),
            (
                json!([{"name": "open_gate", "arguments": {"gate": "a secret door"}}]),
                "do not fit",
            ),
            (json!([{"name": "open_gate"}]), "do not fit"),
        ] {
            let turn = ask_for(&mock, &backend, &session, &asked).await;
            let path = format!("/v1/sessions/{session}/turns/{}/trace", turn["turn"]);
            let notes = backend.get(&path).await["notes"].to_string();
            assert!(
                notes.contains(why) && !notes.contains("secret"),
                "`{why}` is not in {notes}"
            );
        }
        assert_eq!(backend.get(ACTIONS).await["items"], json!([]));

        let begun = json!({"events": [{"type": "attribute", "attribute": "siege", "value": true}]});
        backend.post("/v1/worlds/vale/events", &begun).await;
        ask_for(&mock, &backend, &session, &json!(["ring_bell"])).await;
        assert!(last_prompt(&mock).contains("ring_bell: Rings the bell."));
        assert_eq!(backend.get(ACTIONS).await["items"][0]["name"], "ring_bell");

        let mut world = backend.get(WORLD).await;
        world["settings"]["actions"][0]["arguments"] = json!({"type": "object", "$ref": "https://example.com/s"});
        let body = json!({"name": "Vale", "language": "en", "settings": world["settings"]});
        let (status, problem) = backend.call(Method::PUT, WORLD, Some(&body)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        assert_eq!(problem["errors"][0]["param"], "settings.actions");
        let own = json!({"name": "Mira", "settings": {"actions": []}});
        let (status, _) = backend.call(Method::PUT, "/v1/worlds/vale/npcs/mira", Some(&own)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "of a world alone");
    });
}

#[test]
fn unanswered_action_expires_and_a_refusal_has_a_reason() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        author_actions(&backend, 1).await;
        let session = backend.open_session("mira", "p1").await;
        let asked = json!([{"name": "open_gate", "arguments": {"gate": "north"}}]);
        ask_for(&mock, &backend, &session, &asked).await;
        let id = &backend.get(ACTIONS).await["items"][0]["id"];
        eventually("the action to expire", async || {
            (action(&backend, id).await["status"] == "expired").then_some(())
        })
        .await;
        let (status, problem) = answer(&backend, id, "done", &json!({})).await;
        assert_eq!(
            (status, &problem["code"]),
            (StatusCode::CONFLICT, &json!("action_expired"))
        );

        author_actions(&backend, 60).await;
        ask_for(&mock, &backend, &session, &asked).await;
        let prompt = last_prompt(&mock);
        assert!(
            prompt.contains("got no answer in time, so it did not happen"),
            "{prompt}"
        );
        let open = backend
            .get(&format!("{ACTIONS}?status=requested&dialogue={session}"))
            .await;
        let (status, refused) = answer(
            &backend,
            &open["items"][0]["id"],
            "refused",
            &json!({"reason": "It is stuck."}),
        )
        .await;
        assert_eq!(
            json!([status.as_u16(), refused["reason"]]),
            json!([200, "It is stuck."])
        );
        say(&backend, &session, "And?").await;
        let prompt = last_prompt(&mock);
        assert!(
            prompt.contains("was refused: It is stuck.") && !prompt.contains("no answer in time"),
            "{prompt}"
        );
    });
}

#[test]
fn waiting_action_is_told_and_not_offered_also_in_a_new_session() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        author_actions(&backend, 600).await;
        let begun = json!({"events": [{"type": "attribute", "attribute": "siege", "value": true}]});
        backend.post("/v1/worlds/vale/events", &begun).await;
        let asked = json!([{"name": "ring_bell"}, {"name": "open_gate", "arguments": {"gate": "north"}}]);
        let first = backend.open_session("mira", "p1").await;
        ask_for(&mock, &backend, &first, &asked).await;
        let next = backend.open_session("mira", "p1").await;
        for session in [&first, &next] {
            ask_for(&mock, &backend, session, &asked).await;
            let prompt = last_prompt(&mock);
            assert!(prompt.contains("still waits for its answer"), "{prompt}");
            assert!(!prompt.contains("- ring_bell:"), "{prompt}");
            assert!(prompt.contains("- open_gate:"), "another gate may be opened: {prompt}");
        }
        let waiting = backend.get(&format!("{ACTIONS}?status=requested")).await;
        let items = waiting["items"].as_array().unwrap();
        let bells: Vec<&Value> = items.iter().filter(|action| action["name"] == "ring_bell").collect();
        assert_eq!(bells.len(), 1, "{waiting}");
        let of_another = backend.open_session("mira", "p2").await;
        say(&backend, &of_another, "Hello.").await;
        let prompt = last_prompt(&mock);
        assert!(
            prompt.contains("- ring_bell:") && !prompt.contains("still waits"),
            "{prompt}"
        );
        let (status, _) = answer(&backend, &bells[0]["id"], "refused", &json!({})).await;
        assert_eq!(status, StatusCode::OK);
        say(&backend, &next, "And?").await;
        let prompt = last_prompt(&mock);
        assert!(prompt.contains("- ring_bell:"), "{prompt}");
    });
}

#[test]
fn listener_that_returns_learns_what_was_undone_and_what_is_open() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        author_actions(&backend, 600).await;
        let begun = json!({"events": [{"type": "attribute", "attribute": "siege", "value": true}]});
        backend.post("/v1/worlds/vale/events", &begun).await;
        let session = backend.open_session("mira", "p1").await;
        let mut socket = watch(&server, &[]).await;
        let gate = json!([{"name": "open_gate", "arguments": {"gate": "north"}}]);
        let asked = json!(["ring_bell"]);
        let mut ids = Vec::new();
        for asked in [&gate, &asked] {
            ask_for(&mock, &backend, &session, asked).await;
            ids.push(socket.until("action.requested").await["action"]["id"].clone());
        }
        let saved = backend.post("/v1/worlds/vale/saves", &json!({})).await;
        drop(socket);
        rewind(&backend, &session, 1).await;
        ask_for(&mock, &backend, &session, &asked).await;
        let fresh = backend.get(&format!("{ACTIONS}?status=requested")).await["items"][1]["id"].clone();

        let unknown = json!("act_00000000000000000000000000");
        let mut socket = watch(&server, &[&ids[0], &ids[1], &unknown]).await;
        assert_eq!(
            events_until_now(&backend, &mut socket, "A dog barks.").await,
            [
                ("undone".to_owned(), ids[1].clone()),
                ("requested".to_owned(), fresh.clone())
            ]
        );
        let restore = format!("/v1/worlds/vale/saves/{}:restore", saved["id"].as_str().unwrap());
        backend.post(&restore, &json!({})).await;
        assert_eq!(
            events_until_now(&backend, &mut socket, "A cat meows.").await,
            [("undone".to_owned(), fresh), ("requested".to_owned(), ids[1].clone())]
        );
        assert_eq!(action(&backend, &ids[1]).await["status"], "requested");
    });
}

#[test]
fn action_that_is_undone_before_the_next_read_of_a_watch_is_told_once() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        author_actions(&backend, 60).await;
        let session = backend.open_session("mira", "p1").await;
        let mut socket = watch(&server, &[]).await;
        for mark in ["one", "two", "three"] {
            ask_for(
                &mock,
                &backend,
                &session,
                &json!([{"name": "open_gate", "arguments": {"gate": "north"}}]),
            )
            .await;
            // The backend learns of the action by the list, perhaps before the socket does.
            let waiting = backend.get(&format!("{ACTIONS}?status=requested")).await;
            let id = waiting["items"][0]["id"].clone();
            rewind(&backend, &session, 0).await;
            let seen = events_until_now(&backend, &mut socket, mark).await;
            let undone = seen.iter().filter(|(kind, of)| kind == "undone" && *of == id);
            assert_eq!(undone.count(), 1, "{seen:?}");
            let waiting = backend.get(&format!("{ACTIONS}?status=requested")).await;
            assert_eq!(waiting["items"], json!([]));
        }
    });
}
