//! Prompts of earlier turns are assembled again from the ledger, and are byte for byte the same.

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{fresh, npc_conversation::conversation, overheard_talk::TASKS, scenarios::put};
use crate::support::{RestClient, TestServer, run};

const VALE: &str = "/v1/worlds/vale";

/// Starts a server with the mock model, which sums up every four turns.
fn start() -> (MockHandle, TestServer) {
    let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    let env = [
        ("COLLOQUY__SUMMARIES__FIRST_AFTER_TURNS", "4"),
        ("COLLOQUY__SUMMARIES__THEN_EVERY_TURNS", "4"),
        ("COLLOQUY__SUMMARIES__MIN_TURNS", "1"),
        ("COLLOQUY__SUMMARIES__BUFFER_MIN_TURNS", "2"),
    ];
    let server = fresh(&env).with_mock(&mock.base_url()).start();
    (mock, server)
}

/// Writes a world with an action, a directive, lore with a state, a scenario with a tell, and a pinned fact.
async fn author_world(backend: &RestClient) {
    let settings = json!({
        "state": [{"name": "siege", "type": "flag", "of": "world", "initial": false}],
        "actions": [{"name": "open_gate", "description": "Opens a gate of the town.", "expires_s": 3600}]
    });
    let world = json!({"name": "Vale", "language": "en", "premise": "A green valley.", "settings": settings});
    put(backend, VALE, &world).await;
    put(backend, &format!("{VALE}/npcs/mira"), &persona("Mira keeps the inn.")).await;
    let directive =
        json!({"keys": ["world:vale:npc:mira"], "text": "It is the week of mourning.", "instructions": ["Whisper."]});
    put(backend, &format!("{VALE}/directives/mourning"), &directive).await;
    let forest = json!({"name": "Dark Forest", "layer": "A1", "characters": ["Krug"], "items": ["crown"],
        "content": "Wolves rule the Dark Forest."});
    put(backend, &format!("{VALE}/lore/dark-forest"), &forest).await;
    let market = json!({"title": "The market years", "content": "I sold plums at the market with my brother."});
    put(backend, &format!("{VALE}/npcs/mira/scenarios/market"), &market).await;
    let well = json!({"title": "The dry well", "content": "My brother fell into the well.", "keywords": ["well"],
        "required_progress": 2, "tell": {"text": "You look away when the well is named."}});
    put(backend, &format!("{VALE}/npcs/mira/scenarios/well"), &well).await;
    let bridge = json!({"subject": "the bridge", "predicate": "be", "object": "closed", "content": "The bridge is closed at night.",
        "kind": "note", "importance": 9, "pinned": true});
    backend.post(&format!("{VALE}/npcs/mira/facts"), &bridge).await;
}

fn persona(description: &str) -> Value {
    json!({"name": "Mira", "language": "en", "persona": {"description": description}})
}

/// A session in which the mock model gives the reply and the intent of each line.
struct Talk<'a> {
    mock: &'a MockHandle,
    backend: &'a RestClient,
    session: String,
}

impl Talk<'_> {
    fn path(&self, rest: &str) -> String {
        format!("/v1/sessions/{}{rest}", self.session)
    }
    /// Says a line. All jobs of earlier turns have ended.
    async fn say(&self, intent: &str, line: &str, reply: &str) -> Value {
        self.backend.idle().await;
        let answer = json!({"reply": reply, "intent": intent});
        self.mock.apply_settings(&answer).unwrap();
        self.backend.post(&self.path("/turns"), &json!({ "text": line })).await
    }
    async fn report(&self, events: Value) {
        let events = json!({ "events": events });
        self.backend.post(&format!("{VALE}/events"), &events).await;
    }
    async fn trace(&self, number: usize) -> Value {
        trace(self.backend, &self.path("/turns"), number).await
    }
}

async fn trace(backend: &RestClient, turns: &str, number: usize) -> Value {
    backend.get(&format!("{turns}/{number}/trace?verify=1")).await
}

/// Asserts that the prompts of all turns can be assembled again. Returns the traces.
async fn assert_all_same(backend: &RestClient, turns: &str, count: usize) -> Vec<Value> {
    let listed = backend.get(&format!("{turns}?limit=200")).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), count);
    let mut traces = Vec::new();
    for number in 1..=count {
        let trace = trace(backend, turns, number).await;
        let verified = &trace["verification"];
        assert_eq!(verified["same"], true, "turn {number}: {verified}");
        assert_eq!(verified["prompt_hash"], trace["prompt_hash"]);
        assert_eq!(
            (&verified["reasons"], &verified["different_sections"]),
            (&Value::Null, &Value::Null)
        );
        traces.push(trace);
    }
    traces
}

fn has_part(traces: &[Value], pointer: &str) -> bool {
    traces
        .iter()
        .any(|trace| trace.pointer(pointer).is_some_and(|part| !part.is_null()))
}

/// The first session of the player, for the memory of later ones.
async fn play_first_session(mock: &MockHandle, backend: &RestClient) -> String {
    let talk = Talk {
        mock,
        backend,
        session: backend.open_session("mira", "p1").await,
    };
    talk.say("chat", "I like grapes.", "Good to know.").await;
    talk.say("chat", "I love boats.", "So do I.").await;
    for line in 3..=6 {
        talk.say("chat", &format!("I like tea number {line}."), "Well.").await;
    }
    backend.idle().await;
    talk.session
}

/// Plays a session with everything that a prompt can have. Returns the number of its standing turns.
async fn play_second_session(talk: &Talk<'_>, first: &str) -> usize {
    talk.say("memory", "What fruit do I like?", "Grapes.").await;
    talk.report(
        json!([{"type": "location", "who": "Mira", "to": "inn"}, {"type": "location", "who": "player:p1", "to": "inn"},
        {"type": "item_gained", "who": "player:p1", "item": "crown"}]),
    )
    .await;
    talk.say("world", "What do you know of the Dark Forest?", "Wolves.")
        .await;
    talk.say(
        "scenario",
        "What happened to your brother at the market?",
        "We sold plums.",
    )
    .await;
    talk.say("scenario", "And the well?", "Hm.").await;
    let gift = json!({"items_gained": ["lamp"], "location": "cellar"});
    talk.say(
        "chat",
        "May I have a lamp?",
        &format!("Take it.\n```state\n{gift}\n```"),
    )
    .await;
    let ask = json!({"actions": [{"name": "open_gate"}]});
    talk.say(
        "chat",
        "The gate, please.",
        &format!("Very well.\n```state\n{ask}\n```"),
    )
    .await;
    let asked = talk.trace(6).await;
    assert_eq!(asked["requested_actions"][0]["status"], "requested", "{asked}");
    talk.say("chat", "Well?", "It takes a while.").await;
    let action = asked["requested_actions"][0]["id"].as_str().unwrap();
    let path = format!("/v1/actions/{action}:done");
    talk.backend.post(&path, &json!({"result": "The gate is open."})).await;
    talk.say(
        "memory",
        "I hate plums. What is with the gate?",
        "It is open, as you see, my friend.",
    )
    .await;
    // The player heard only a part of the reply.
    let cut = json!({"turn": 8, "heard_chars": 10});
    talk.backend.post(&talk.path(":interrupt"), &cut).await;
    talk.say("chat", "Wait.", "I wait.").await;
    let moved = json!({"location": "attic"});
    talk.say("memory", "I love figs.", &format!("Mm.\n```state\n{moved}\n```"))
        .await;
    talk.say("memory", "And now?", "Mm.").await;
    // A turn of the other session knows where Mira is.
    let other = Talk {
        session: first.to_owned(),
        ..*talk
    };
    other.say("chat", "Where are you?", "Up here.").await;
    let last = talk.mock.requests_of("reply").last().unwrap()["messages"].to_string();
    assert!(last.contains("attic"), "{last}");
    // Two turns never happened, nor did she go there.
    talk.backend.idle().await;
    talk.backend.post(&talk.path(":rewind"), &json!({"turn": 9})).await;
    talk.say("memory", "What do you know of me?", "A lot.").await;
    talk.report(
        json!([{"type": "location", "who": "Krug", "to": "Swamp"}, {"type": "status", "who": "Krug", "to": "wounded"}]),
    )
    .await;
    talk.say("world", "Is Krug in the Dark Forest?", "In the swamp.").await;
    // A fact is removed, and what summaries and episodes say of it.
    talk.backend.idle().await;
    let boats = talk
        .backend
        .get(&format!("{VALE}/npcs/mira/facts?player_id=p1&q=boats"))
        .await;
    let fact = boats["items"][0]["id"].as_str().unwrap();
    let (status, _) = talk
        .backend
        .call(Method::DELETE, &format!("/v1/facts/{fact}"), None)
        .await;
    assert_eq!(status, StatusCode::OK);
    for line in [
        "What do you know of boats?",
        "I like grapes.",
        "I love grapes.",
        "Which fruit do I like?",
    ] {
        talk.say("memory", line, "Hm.").await;
    }
    talk.backend.idle().await;
    15
}

#[test]
fn prompts_of_a_session_are_assembled_again_from_the_ledger() {
    run(async {
        let (mock, server) = start();
        let backend = server.backend();
        author_world(&backend).await;
        let first = play_first_session(&mock, &backend).await;
        let talk = Talk {
            mock: &mock,
            backend: &backend,
            session: backend.open_session("mira", "p1").await,
        };
        let count = play_second_session(&talk, &first).await;
        let (calls, turns) = (TASKS.map(|task| mock.calls_of(task)), talk.path("/turns"));
        let traces = assert_all_same(&backend, &turns, count).await;
        for pointer in [
            "/sources/summaries/0",
            "/sources/meeting/summary",
            "/episodes/0/shown",
            "/lore/0/shown",
            "/scenarios/0/shown",
            "/directives/0",
            "/actions/offered/0",
            "/actions/outcomes/0",
            "/requested_actions/0",
        ] {
            assert!(has_part(&traces, pointer), "no turn has {pointer}: {traces:?}");
        }
        let fates: Vec<String> = traces
            .iter()
            .flat_map(|trace| trace["candidates"].as_array().unwrap())
            .map(|candidate| candidate["fate"].as_str().unwrap().to_owned())
            .collect();
        for fate in ["used", "pinned"] {
            assert!(fates.iter().any(|found| found == fate), "{fate}: {fates:?}");
        }
        let statuses: Vec<&Value> = traces
            .iter()
            .filter_map(|trace| trace.pointer("/actions/outcomes/0/status"))
            .collect();
        assert!(
            statuses.contains(&&json!("requested")) && statuses.contains(&&json!("done")),
            "{statuses:?}"
        );
        assert!(has_part(&traces, "/topic_gate"));
        // No model is asked, and other sessions are checked the same way.
        assert_eq!(TASKS.map(|task| mock.calls_of(task)), calls);
        let of_first = format!("/v1/sessions/{first}/turns");
        for number in 1..=6 {
            let verified = trace(&backend, &of_first, number).await["verification"].clone();
            assert_eq!(verified["same"], true, "turn {number}: {verified}");
        }
        // The seventh turn knew a turn of the other session that was taken back since.
        let verified = trace(&backend, &of_first, 7).await["verification"].clone();
        assert_eq!(verified["same"], false, "{verified}");
        assert!(verified["reasons"].to_string().contains("taken back"), "{verified}");

        // An edit of a fact changes only the prompts with the fact.
        let of_plums = |trace: &Value| {
            let candidates = trace["candidates"].as_array().unwrap().iter();
            let mut used = candidates.filter(|fact| fact["fate"] == "used");
            used.find(|fact| fact["content"].to_string().contains("plums")).cloned()
        };
        let mut found = traces
            .iter()
            .zip(1..)
            .filter_map(|(trace, number)| Some((number, of_plums(trace)?)));
        let (number, fact) = found.next().expect("a prompt with plums");
        let id = fact["fact"].as_str().unwrap().to_owned();
        let edit = json!({"content": "The player hates all plums."});
        let edited = backend
            .answer(
                Method::PATCH,
                &format!("/v1/facts/{id}"),
                Some(&edit),
                &[("if-match", "*")],
            )
            .await;
        assert_eq!(edited.unwrap().status, StatusCode::OK);
        let verified = talk.trace(number).await["verification"].clone();
        assert_eq!(
            (&verified["same"], &verified["reasons"]),
            (&json!(false), &json!([format!("the fact {id} was edited")]))
        );
        assert_eq!(verified["different_sections"][0]["name"], "memory", "{verified}");
        assert_eq!(talk.trace(1).await["verification"]["same"], true);

        put(&backend, &format!("{VALE}/npcs/mira"), &persona("Mira sold the inn.")).await;
        for number in [1, 3, count] {
            let verified = talk.trace(number).await["verification"].clone();
            assert_eq!(verified["same"], false, "{verified}");
            let reasons = verified["reasons"].to_string();
            assert!(
                reasons.contains("the NPC `mira` was edited: the turn had version "),
                "{verified}"
            );
            assert_eq!(verified["different_sections"][0]["name"], "system", "{verified}");
        }
        // The trace alone costs no check.
        let plain = backend.get(&format!("{turns}/1/trace")).await;
        assert_eq!(plain.get("verification"), None);
    });
}

#[test]
fn verification_says_when_there_is_nothing_to_compare() {
    run(async {
        let (_mock, server) = start();
        let backend = server.backend();
        let body = json!({"world_id": "vale", "npc_id": "mira", "player_id": "p1", "greeting": true});
        let made = backend.post("/v1/sessions", &body).await;
        let turns = format!("/v1/sessions/{}/turns", made["id"].as_str().unwrap());
        let verified = trace(&backend, &turns, 1).await["verification"].clone();
        assert_eq!(verified["same"], Value::Null);
        assert!(verified["reasons"].to_string().contains("greeting"), "{verified}");
        for (query, status) in [
            ("2/trace?verify=1", StatusCode::NOT_FOUND),
            ("1/trace?verify=maybe", StatusCode::UNPROCESSABLE_ENTITY),
            ("1/trace?verifies=1", StatusCode::UNPROCESSABLE_ENTITY),
        ] {
            assert_eq!(backend.status(&format!("{turns}/{query}")).await, status, "{query}");
        }
        let not_asked = backend.get(&format!("{turns}/1/trace?verify=0")).await;
        assert_eq!(not_asked.get("verification"), None);
    });
}

#[test]
fn prompts_of_an_npc_conversation_are_assembled_again_from_the_ledger() {
    run(async {
        let (mock, server) = start();
        let backend = server.backend();
        let talk = conversation(&server, json!({"auto": false, "max_turns": 6, "watchers": ["p1"]})).await;
        let turns = format!("/v1/npc-conversations/{talk}/turns");
        for line in 1..=6 {
            let place = json!({"location": format!("room {line}")});
            let reply = format!("Ergen likes bread number {line}.\n```state\n{place}\n```");
            mock.apply_settings(&json!({ "reply": reply })).unwrap();
            backend
                .post(&format!("/v1/npc-conversations/{talk}:step"), &json!({}))
                .await;
            backend.idle().await;
        }
        assert_all_same(&backend, &turns, 6).await;
        // The player asks for the lines of the conversation.
        let asked = Talk {
            mock: &mock,
            backend: &backend,
            session: backend.open_session("mira", "p1").await,
        };
        asked
            .say("overheard", "What were you two just talking about?", "Bread.")
            .await;
        asked.say("chat", "I see.", "Well.").await;
        let traces = assert_all_same(&backend, &asked.path("/turns"), 2).await;
        assert_eq!(traces[0]["sources"]["overheard"]["dialogue"], talk.as_str());

        let known = backend.get(&format!("{VALE}/npcs/ergen")).await;
        let mut body = json!({});
        for field in ["name", "language", "factions", "persona"] {
            body[field] = known[field].clone();
        }
        body["persona"]["description"] = json!("Ergen has left the forge.");
        put(&backend, &format!("{VALE}/npcs/ergen"), &body).await;
        let verified = trace(&backend, &turns, 1).await["verification"].clone();
        assert_eq!(verified["same"], false, "{verified}");
        assert!(
            verified["reasons"].to_string().contains("the NPC `ergen` was edited"),
            "{verified}"
        );
    });
}
