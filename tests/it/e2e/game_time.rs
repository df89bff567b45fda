//! The clock of a world: prompts, memories, conditions and saves go by the time of the game.

use colloquy::tenancy::Role;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    npc_conversation::{last_prompt, with_mock},
    scenarios::put,
};
use crate::support::{RestClient, TestSocket, eventually, run};

const EVENTS: &str = "/v1/worlds/vale/events";
const SAVES: &str = "/v1/worlds/vale/saves";

fn settings(ratio: u32) -> Value {
    json!({
        "clock": {
            "calendar": {
                "months": [{"name": "Thaw", "days": 30}, {"name": "Frost", "days": 30}],
                "weekdays": ["Ashday", "Oakday", "Elmday"],
                "year_label": "year {year} of the Owl"
            },
            "start": "0007-02-29 14:30",
            "ratio": ratio
        },
        "recency_lambda_per_day": 0.1,
        "actions": [{"name": "light_lamp", "description": "Lights the lamp.",
            "when": [{"time": {"from": "18:00", "until": "06:00"}}]}]
    })
}

async fn put_world(backend: &RestClient, settings: Value) {
    let body = json!({"name": "Vale", "language": "en", "settings": settings});
    put(backend, "/v1/worlds/vale", &body).await;
}

async fn report(backend: &RestClient, events: Value) {
    backend.post(EVENTS, &json!({ "events": events })).await;
}

async fn say(backend: &RestClient, session: &str, text: &str) {
    let path = format!("/v1/sessions/{session}/turns");
    backend.post(&path, &json!({ "text": text })).await;
}

async fn preview(backend: &RestClient, session: &str, text: &str) -> String {
    let path = format!("/v1/sessions/{session}/context");
    let preview = backend.post(&path, &json!({ "text": text })).await;
    preview["messages"].to_string()
}

async fn clock(backend: &RestClient) -> Value {
    backend.get("/v1/worlds/vale/state").await["clock"].clone()
}

async fn clock_text(backend: &RestClient) -> String {
    clock(backend).await["time"].as_str().unwrap().to_owned()
}

#[test]
fn prompts_and_ages_go_by_the_clock_of_the_world() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        put_world(&backend, settings(0)).await;
        let session = backend.open_session("mira", "p1").await;
        say(&backend, &session, "I like grapes.").await;
        backend.idle().await;
        let said = "Today is Oakday, 29 Frost, year 7 of the Owl (0007-02-29). It is 14:30, in the afternoon.";
        let prompt = preview(&backend, &session, "What do I like?").await;
        assert!(prompt.contains(said), "{prompt}");
        let asked = mock.requests_of("extraction");
        let asked = asked.iter().map(Value::to_string).collect::<String>();
        assert!(asked.contains("The turn, of Oakday 0007-02-29:"), "{asked}");
        assert!(
            asked.contains("01 Thaw (30), 02 Frost (30); Ashday, Oakday, Elmday"),
            "{asked}"
        );

        report(&backend, json!([{"type": "time_passed", "days": 3, "hours": 4}])).await;
        let prompt = preview(&backend, &session, "What do I like?").await;
        let later = "Today is Oakday, 2 Thaw, year 8 of the Owl (0008-01-02). It is 18:30, in the evening.";
        assert!(prompt.contains(later) && prompt.contains("[3 days ago]"), "{prompt}");
        assert!(!prompt.contains("earlier today"), "{prompt}");
        say(&backend, &session, "Good evening.").await;
        let prompt = last_prompt(&mock);
        assert!(prompt.contains(later) && prompt.contains("[3 days later]"), "{prompt}");
        say(&backend, &session, "And a good night.").await;
        let prompt = last_prompt(&mock);
        assert_eq!(prompt.matches("[3 days later]").count(), 1, "{prompt}");

        let now = clock(&backend).await;
        assert_eq!(
            (
                &now["time"],
                &now["weekday"],
                &now["month"],
                &now["part_of_day"],
                &now["year"]
            ),
            (
                &json!("0008-01-02 18:30"),
                &json!("Oakday"),
                &json!("Thaw"),
                &json!("evening"),
                &json!("year 8 of the Owl")
            )
        );
        assert_eq!(now["cause"]["kind"], "event");
        let of_turn = format!("/v1/worlds/vale/state?dialogue={session}&turn=1");
        let then = backend.get(&of_turn).await["clock"].clone();
        assert_eq!(then["time"], "0007-02-29 14:30");

        // A memory of long ago counts less.
        let recency = async || {
            let facts = backend.get("/v1/worlds/vale/npcs/mira/facts?q=grapes").await;
            assert_eq!(facts["items"][0]["game_time"], "0007-02-29 14:30", "{facts}");
            facts["items"][0]["score"]["recency"].as_f64().unwrap()
        };
        let before = recency().await;
        report(&backend, json!([{"type": "time_passed", "days": 100}])).await;
        let after = recency().await;
        assert!(before > 0.6 && after < 0.001, "{before} {after}");
    });
}

#[test]
fn clock_runs_by_its_ratio_and_by_events_and_never_jumps_with_a_new_ratio() {
    run(async {
        let (_mock, server) = with_mock();
        let backend = server.backend();
        put_world(&backend, json!({})).await;
        assert_eq!(clock(&backend).await, Value::Null);
        let events =
            json!({"events": [{"type": "time_passed", "minutes": 5}, {"type": "time_set", "to": "0001-01-01"}]});
        let (status, problem) = backend.call(Method::POST, EVENTS, Some(&events)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(problem["errors"].as_array().unwrap().len(), 2, "{problem}");
        assert!(problem.to_string().contains("no `settings.clock`"), "{problem}");

        put_world(&backend, settings(0)).await;
        for faulty in [
            json!({"type": "time_passed"}),
            json!({"type": "time_passed", "days": 10_001}),
            json!({"type": "time_passed", "minutes": 5, "to": "0001-01-01"}),
            json!({"type": "time_set", "to": "0007-03-01"}),
            json!({"type": "time_set", "to": "tomorrow"}),
            json!({"type": "time_set"}),
        ] {
            let events = json!({"events": [faulty]});
            let (status, problem) = backend.call(Method::POST, EVENTS, Some(&events)).await;
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        }
        report(
            &backend,
            json!([{"type": "time_set", "to": "0009-01-01 23:00"}, {"type": "time_passed", "hours": 2}]),
        )
        .await;
        let more = json!([{"type": "time_passed", "minutes": 10}]);
        // Events of requests at the same time add up.
        futures_util::future::join_all((0..5).map(|_| report(&backend, more.clone()))).await;
        assert_eq!(clock_text(&backend).await, "0009-01-02 01:50");

        // 10,000 game seconds per second: some days pass while the test runs.
        put_world(&backend, settings(10_000)).await;
        let seconds = async || clock(&backend).await["seconds"].as_i64().unwrap();
        let first = seconds().await;
        let standing = 8 * 60 * 86_400 + 86_400 + 110 * 60;
        assert!((standing..standing + 30 * 86_400).contains(&first), "{first}");
        let fast = eventually("time", || async {
            let now = seconds().await;
            (now > first).then_some(now)
        })
        .await;
        put_world(&backend, settings(0)).await;
        let stopped = seconds().await;
        assert!((fast..fast + 30 * 86_400).contains(&stopped), "{fast} {stopped}");
        assert_eq!(seconds().await, stopped);
    });
}

#[test]
fn faulty_clocks_and_conditions_of_another_calendar_are_refused() {
    run(async {
        let (_mock, server) = with_mock();
        let backend = server.backend();
        let with = |pointer: &str, value: Value| {
            let mut changed = settings(0);
            *changed.pointer_mut(pointer).unwrap() = value;
            changed
        };
        for (settings, why) in [
            (with("/clock/ratio", json!(10_001)), "`ratio`"),
            (with("/clock/start", json!("0007-03-01")), "no day of the calendar"),
            (with("/clock/calendar/months", json!([])), "1 to 24 months"),
            (with("/clock/calendar/year_label", json!("an age")), "`{year}` once"),
            (
                with("/actions/0/when", json!([{"weekday": "Monday"}])),
                "no weekday of the calendar",
            ),
            (
                with("/actions/0/when", json!([{"not": {"month": "May"}}])),
                "no month of the calendar",
            ),
            (with("/clock", Value::Null), "need a clock of the world"),
        ] {
            let body = json!({"name": "Vale", "language": "en", "settings": settings});
            let (status, problem) = backend.call(Method::PUT, "/v1/worlds/vale", Some(&body)).await;
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{why}");
            assert!(problem.to_string().contains(why), "{why}: {problem}");
        }
        let npc = json!({"name": "Mira", "settings": {"clock": settings(0)["clock"]}});
        let (status, _) = backend.call(Method::PUT, "/v1/worlds/vale/npcs/mira", Some(&npc)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    });
}

#[test]
fn lore_and_actions_open_at_night() {
    run(async {
        let (_mock, server) = with_mock();
        let backend = server.backend();
        put_world(&backend, settings(0)).await;
        let entry = json!({"name": "old well", "layer": "A2", "content": "At night a light burns in the old well.",
            "when": [{"time": {"from": "22:00", "until": "05:00"}}, {"month": "frost"}]});
        put(&backend, "/v1/worlds/vale/lore/well", &entry).await;
        let session = backend.open_session("mira", "p1").await;
        let shown = async || {
            let prompt = preview(&backend, &session, "What of the old well?").await;
            (prompt.contains("a light burns"), prompt.contains("light_lamp"))
        };
        assert_eq!(shown().await, (false, false));
        report(&backend, json!([{"type": "time_passed", "hours": 4}])).await;
        assert_eq!(shown().await, (false, true));
        report(&backend, json!([{"type": "time_passed", "hours": 4}])).await;
        assert_eq!(shown().await, (true, true));
        report(&backend, json!([{"type": "time_set", "to": "0008-01-01 23:00"}])).await;
        assert_eq!(shown().await, (false, true), "another month");
    });
}

#[test]
fn restored_save_sets_the_clock_back_and_a_rewind_does_not() {
    run(async {
        let (_mock, server) = with_mock();
        let backend = server.backend();
        put_world(&backend, settings(0)).await;
        let session = backend.open_session("mira", "p1").await;
        say(&backend, &session, "I like grapes.").await;
        backend.idle().await;
        let save = backend.post(SAVES, &json!({"name": "here"})).await;
        let restore = format!("{SAVES}/{}:restore", save["id"].as_str().unwrap());
        let mut socket = TestSocket::open(server.address, &server.token("demo", Role::Backend, None)).await;
        socket.send(&json!({"type": "world.watch", "world_id": "vale"})).await;
        socket.until("world.watched").await;
        report(&backend, json!([{"type": "time_passed", "days": 3}])).await;
        say(&backend, &session, "I like plums.").await;
        assert_eq!(clock_text(&backend).await, "0008-01-02 14:30");
        backend
            .post(&format!("/v1/sessions/{session}:rewind"), &json!({"turn": 1}))
            .await;
        assert_eq!(clock_text(&backend).await, "0008-01-02 14:30");
        for key in ["first", "second"] {
            let body = json!({ "key": key });
            backend.post(&restore, &body).await;
            assert_eq!(clock_text(&backend).await, "0007-02-29 14:30");
            report(&backend, json!([{"type": "time_passed", "days": 1}])).await;
            // A repeated restore changes nothing.
            backend.post(&restore, &body).await;
            assert_eq!(clock_text(&backend).await, "0007-02-30 14:30");
        }
        let prompt = preview(&backend, &session, "What do I like?").await;
        assert!(
            prompt.contains("0007-02-30") && prompt.contains("[yesterday]"),
            "{prompt}"
        );
        let mut set = Vec::new();
        while set.len() < 2 {
            let event = socket.until("world.changed").await;
            let changes = event["changes"].as_array().unwrap().iter();
            set.extend(changes.filter(|change| change["change"] == "time").cloned());
        }
        assert_eq!(set[0]["to"], set[1]["to"]);
        assert_eq!(set[0]["cause"]["kind"], "edit");
    });
}
