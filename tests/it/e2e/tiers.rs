//! Settings of tenant, world, NPC and session: in effect from the next turn on, and in the work after a turn.

use colloquy::mock_llm::{self, MockOptions};
use serde_json::{Value, json};

use super::{fresh, npc_conversation::last_prompt, scenarios::put};
use crate::support::{RestClient, run};

async fn open_session(backend: &RestClient, settings: Value) -> String {
    let body = json!({"world_id": "vale", "npc_id": "mira", "player_id": "p1", "settings": settings});
    let made = backend.post("/v1/sessions", &body).await;
    made["id"].as_str().unwrap().to_owned()
}

async fn say(backend: &RestClient, session: &str) -> Value {
    let path = format!("/v1/sessions/{session}/turns");
    let turn = backend.post(&path, &json!({"text": "I like plums."})).await;
    backend.get(&format!("{path}/{}/trace", turn["turn"])).await
}

fn budget_of<'a>(trace: &'a Value, section: &str) -> &'a Value {
    let sections = trace["sections"].as_array().unwrap();
    &sections.iter().find(|it| it["name"] == section).unwrap()["budget"]
}

#[test]
fn settings_of_lower_tiers_override_upper_tiers_from_the_next_turn_on() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let env = [("COLLOQUY__LLM__NPC_MODELS", r#"["clever","quick"]"#)];
        let server = fresh(&env).with_mock(&mock.base_url()).start();
        let backend = server.backend();
        let plain = open_session(&backend, Value::Null).await;
        let own = open_session(&backend, json!({"prompt": {"memory_tokens": 77}})).await;
        assert!(
            {
                say(&backend, &plain).await;
                last_prompt(&mock)
            }
            .contains("```state")
        );

        let tenant =
            json!({"prompt": {"ask_for_state": false, "memory_tokens": 500}, "models": {"extraction": "clever"}});
        put(&backend, "/v1/settings", &tenant).await;
        let trace = say(&backend, &plain).await;
        assert!(!last_prompt(&mock).contains("```state"), "{}", last_prompt(&mock));
        assert_eq!(budget_of(&trace, "memory"), 500);
        assert_eq!(budget_of(&say(&backend, &own).await, "memory"), 77);
        backend.idle().await;
        let models = |task: &str| -> Vec<Value> {
            mock.requests_of(task)
                .iter()
                .map(|request| request["model"].clone())
                .collect()
        };
        assert_eq!(models("extraction").last(), Some(&json!("clever")));

        // The world overrides the tenant, and the NPC both.
        let mut world = backend.get("/v1/worlds/vale").await;
        let mut npc = backend.get("/v1/worlds/vale/npcs/mira").await;
        for (object, settings) in [
            (
                &mut world,
                json!({"prompt": {"ask_for_state": true}, "models": {"reply": "quick"}}),
            ),
            (
                &mut npc,
                json!({"prompt": {"memory_tokens": 600}, "models": {"reply": "clever"}}),
            ),
        ] {
            for key in ["id", "world_id", "version", "updated_at"] {
                object.as_object_mut().unwrap().remove(key);
            }
            object["settings"] = settings;
        }
        put(&backend, "/v1/worlds/vale", &world).await;
        let trace = say(&backend, &plain).await;
        assert!(last_prompt(&mock).contains("```state"));
        assert_eq!(
            (budget_of(&trace, "memory"), models("reply").last()),
            (&json!(500), Some(&json!("quick")))
        );
        put(&backend, "/v1/worlds/vale/npcs/mira", &npc).await;
        let trace = say(&backend, &plain).await;
        assert_eq!(
            (budget_of(&trace, "memory"), models("reply").last()),
            (&json!(600), Some(&json!("clever")))
        );
        assert_eq!(budget_of(&say(&backend, &own).await, "memory"), 77);
    });
}

#[test]
fn summaries_and_curation_follow_the_settings_of_their_dialogue() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let server = fresh(&[]).with_mock(&mock.base_url()).start();
        let backend = server.backend();
        let often = json!({"summaries": {"force_turns": 3, "first_after_turns": 3}, "curation": {"every_turns": 2}});
        let (usual, often) = (
            open_session(&backend, Value::Null).await,
            open_session(&backend, often).await,
        );
        for _ in 0..4 {
            say(&backend, &usual).await;
            say(&backend, &often).await;
        }
        backend.idle().await;
        assert_eq!(mock.calls_of("curation"), 2);
        let summaries = async |session: &str| {
            let listed = backend.get(&format!("/v1/sessions/{session}/summaries")).await;
            listed["items"].as_array().unwrap().len()
        };
        assert_eq!((summaries(&usual).await, summaries(&often).await), (0, 1));
    });
}

#[test]
fn shortened_turn_is_read_again_as_the_settings_of_its_session_say() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let server = fresh(&[]).with_mock(&mock.base_url()).start();
        let backend = server.backend();
        let every = json!({"curation": {"every_turns": 1}});
        for (settings, passes) in [(every, 2), (Value::Null, 0)] {
            let before = mock.calls_of("curation");
            let session = open_session(&backend, settings).await;
            say(&backend, &session).await;
            backend.idle().await;
            let cut = json!({"turn": 1, "heard_chars": 3});
            backend.post(&format!("/v1/sessions/{session}:interrupt"), &cut).await;
            backend.idle().await;
            assert_eq!(mock.calls_of("curation") - before, passes);
        }
    });
}
