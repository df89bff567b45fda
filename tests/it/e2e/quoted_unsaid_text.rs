//! Facts repeated in other dialogues stand after a rewind at their origin. The rewind reports those dialogues.

use colloquy::{
    mock_llm::{self, MockOptions},
    tenancy::Role,
};
use serde_json::json;

use super::fresh;
use crate::support::{RestClient, TestSocket, run};

async fn session(rest: &RestClient, npc: &str) -> String {
    let body = json!({"world_id": "vale", "npc_id": npc, "player_id": "p1"});
    rest.post("/v1/sessions", &body).await["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Says a line, and waits for its jobs.
async fn say_and_learn(rest: &RestClient, session: &str, text: &str) {
    rest.post(&format!("/v1/sessions/{session}/turns"), &json!({"text": text}))
        .await;
    rest.idle().await;
}

#[test]
fn rewind_reports_the_prompts_that_quoted_the_unsaid_text() {
    run(async {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let url = mock.base_url();
        let server = fresh(&[]).with_mock(&url).start();
        let rest = server.backend();
        let spoken = session(&rest, "mira").await;
        for line in ["Hello.", "I like plums."] {
            say_and_learn(&rest, &spoken, line).await;
        }
        // Only the first NPC knows the fact.
        let [knows, does_not] = [session(&rest, "mira").await, session(&rest, "ergen").await];
        for elsewhere in [&knows, &does_not] {
            say_and_learn(&rest, elsewhere, "Hello.").await;
            say_and_learn(&rest, elsewhere, "What do I like, plums?").await;
            let asked = mock.requests_of("reply").pop().unwrap().to_string();
            let has_it = asked.contains("The player likes plums.");
            assert_eq!(has_it, *elsewhere == knows, "{asked}");
        }

        let backend = server.token("demo", Role::Backend, None);
        let mut socket = TestSocket::open(server.address, &backend).await;
        socket
            .send(&json!({"type": "session.resume", "session_id": spoken}))
            .await;
        socket.until("session.resumed").await;
        let back = format!("/v1/sessions/{spoken}:rewind");
        rest.post(&back, &json!({"turn": 1})).await;
        let rewound = socket.until("dialogue.rewound").await;
        let quoted = rewound["quoted_in"].as_array().unwrap();
        assert!(quoted.contains(&json!({"dialogue_id": knows, "turn": 2})), "{rewound}");
        assert!(quoted.iter().all(|place| place["dialogue_id"] == knows), "{rewound}");
        for elsewhere in [&knows, &does_not] {
            let page = rest.get(&format!("/v1/sessions/{elsewhere}/turns")).await;
            assert_eq!(page["items"].as_array().unwrap().len(), 2, "{page}");
        }
        // A rewind without quoted facts reports no turns.
        rest.post(&back, &json!({"turn": 0})).await;
        let again = socket.until("dialogue.rewound").await;
        assert_eq!(again["quoted_in"], json!([]), "{again}");
    });
}
