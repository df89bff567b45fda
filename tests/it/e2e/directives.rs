//! Directives: in the prompts of the dialogues that their keys select, from the next turn on.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    npc_conversation::{conversation, last_prompt, with_mock},
    scenarios::put,
};
use crate::support::{RestClient, run};

const DIRECTIVES: &str = "/v1/worlds/vale/directives";

async fn say(backend: &RestClient, session: &str, text: &str) -> Value {
    let path = format!("/v1/sessions/{session}/turns");
    let turn = backend.post(&path, &json!({ "text": text })).await;
    backend.get(&format!("{path}/{}/trace", turn["turn"])).await
}

#[test]
fn directives_reach_the_dialogues_of_their_keys_from_the_next_turn_on() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        let (mira, ergen) = (
            backend.open_session("mira", "p1").await,
            backend.open_session("ergen", "p1").await,
        );
        say(&backend, &mira, "Good day.").await;
        assert!(!last_prompt(&mock).contains("[Directives]"));
        let mourning = json!({"keys": ["world:vale:npc:mi*"], "text": "It is the week of mourning.",
            "instructions": ["Whisper."], "fails_if": ["names the dead queen"]});
        put(&backend, &format!("{DIRECTIVES}/mourning"), &mourning).await;
        let of_session = json!({"keys": [format!("world:vale:npc:*:session:{mira}")], "instructions": ["Offer tea."],
            "priority": 1});
        put(&backend, &format!("{DIRECTIVES}/tea"), &of_session).await;

        let trace = say(&backend, &mira, "How are you?").await;
        let prompt = last_prompt(&mock);
        assert!(
            prompt.contains(r"[Directives]\nIt is the week of mourning.\n- Offer tea.\n- Whisper.\n"),
            "{prompt}"
        );
        assert!(prompt.contains(r"\n- names the dead queen\n\n"), "{prompt}");
        assert_eq!(trace["key"], format!("world:vale:npc:mira:session:{mira}"));
        let expected = json!([
            {"directive": "tea", "text": false, "instructions": 1, "fails_if": 0},
            {"directive": "mourning", "text": true, "instructions": 1, "fails_if": 1},
        ]);
        assert_eq!(trace["directives"], expected);
        // The beginning of the prompt stays the same from turn to turn.
        let trace = say(&backend, &mira, "And now?").await;
        let sections = trace["sections"].as_array().unwrap();
        let rules = sections.iter().find(|section| section["name"] == "system").unwrap();
        assert!(
            trace["unchanged_tokens"].as_u64() >= rules["tokens"].as_u64(),
            "{trace}"
        );

        let trace = say(&backend, &ergen, "How are you?").await;
        assert!(!last_prompt(&mock).contains("mourning"));
        assert_eq!(trace.get("directives"), None);
        let preview = format!("/v1/sessions/{mira}/context");
        let preview = backend.post(&preview, &json!({"text": "And you?"})).await;
        assert_eq!(preview["directives"], expected);

        // Only the second session is one of a guard.
        for (key, found) in [
            ("world:vale:npc:mi*", vec![&mira]),
            ("world:vale:npc:*:session:*", vec![&ergen, &mira]),
            ("world:vale:npc:*:conversation:*", vec![]),
        ] {
            let listed = backend.get(&format!("/v1/sessions?key={key}")).await;
            let listed: Vec<&str> = listed["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| it["id"].as_str().unwrap())
                .collect();
            assert_eq!(listed, found, "{key}");
        }

        let gone = backend
            .call(Method::DELETE, &format!("{DIRECTIVES}/mourning"), None)
            .await;
        assert_eq!(gone.0, 204);
        say(&backend, &mira, "And now?").await;
        let prompt = last_prompt(&mock);
        assert!(
            prompt.contains(r"[Directives]\n- Offer tea.\n\n") && !prompt.contains("mourning"),
            "{prompt}"
        );
    });
}

#[test]
fn directives_for_conversations_reach_only_lines_of_their_npc() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        let curt = json!({"keys": ["world:vale:npc:ergen:conversation:*"], "instructions": ["Be curt."]});
        put(&backend, &format!("{DIRECTIVES}/curt"), &curt).await;
        let id = conversation(&server, json!({"auto": false})).await;
        for _ in 0..2 {
            backend
                .post(&format!("/v1/npc-conversations/{id}:step"), &json!({}))
                .await;
        }
        let prompts: Vec<String> = mock.requests_of("reply").iter().map(Value::to_string).collect();
        assert_eq!(prompts.len(), 2);
        for prompt in prompts {
            assert_eq!(prompt.contains("Be curt."), prompt.contains("에르겐이다"), "{prompt}");
        }
        let session = backend.open_session("ergen", "p1").await;
        say(&backend, &session, "Good day.").await;
        assert!(!last_prompt(&mock).contains("Be curt."));
    });
}
