//! Saves over real sockets: an old save has no memory of its future, and a newer save is restored whole.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::fresh;
use crate::support::{RestClient, eventually, run};

const SAVES: &str = "/v1/worlds/vale/saves";

async fn take_save(rest: &RestClient, name: &str) -> String {
    let save = rest.post(SAVES, &json!({ "name": name })).await;
    save["id"].as_str().unwrap().to_owned()
}

async fn restore_save(rest: &RestClient, save: &str) -> Value {
    rest.post(&format!("{SAVES}/{save}:restore"), &json!({})).await
}

async fn standing_turns(rest: &RestClient, session: &str) -> Vec<Value> {
    let page = rest.get(&format!("/v1/sessions/{session}/turns")).await;
    page["items"].as_array().unwrap().clone()
}

/// Returns the facts valid now.
async fn valid_contents(rest: &RestClient, npc: &str) -> Vec<String> {
    let facts = rest.facts(npc).await;
    let standing = facts.iter().filter(|fact| fact["invalid_at"].is_null());
    let mut contents: Vec<String> = standing
        .map(|fact| fact["content"].as_str().unwrap().to_owned())
        .collect();
    contents.sort();
    contents
}

async fn wait_until_learned(rest: &RestClient, npc: &str, word: &str) {
    eventually(&format!("a fact about {word}"), || async {
        let facts = valid_contents(rest, npc).await;
        facts.iter().any(|fact| fact.contains(word)).then_some(())
    })
    .await;
}

/// Returns the readable state of a world, as far as its turns stand.
async fn observe_dialogues(rest: &RestClient, sessions: &[&str], conversations: &[&str]) -> Value {
    let mut seen = json!({});
    let kinds = [("sessions", sessions), ("npc-conversations", conversations)];
    for (kind, dialogues) in kinds {
        for dialogue in dialogues {
            let path = format!("/v1/{kind}/{dialogue}");
            let view = rest.get(&path).await;
            let (status, head) = (view["status"].clone(), view["head_turn"].clone());
            let turns = rest.get(&format!("{path}/turns")).await;
            let summaries = rest.get(&format!("{path}/summaries")).await;
            seen[*dialogue] = json!({"status": status, "head": head, "turns": turns, "summaries": summaries});
        }
    }
    for session in sessions {
        if seen[*session]["status"] == "open" {
            seen[*session]["prompt"] = json!(prompt(rest, session).await);
        }
    }
    for npc in ["mira", "ergen"] {
        let mut facts: Vec<String> = (rest.facts(npc).await.iter())
            .filter(|fact| fact["invalid_reason"] != "unsaid")
            .map(|fact| format!("{} {} {}", fact["id"], fact["content"], fact["invalid_reason"]))
            .collect();
        facts.sort();
        seen[npc] = json!(facts);
    }
    seen
}

/// Returns the prompt of a question, which includes the current state.
async fn prompt(rest: &RestClient, session: &str) -> String {
    let path = format!("/v1/sessions/{session}/context");
    let preview = rest.post(&path, &json!({"text": "What fruit do I like?"})).await;
    preview["messages"].to_string()
}

/// Returns the readable state once all jobs are done.
async fn observe_when_idle(rest: &RestClient, sessions: &[&str], conversations: &[&str]) -> Value {
    rest.idle().await;
    observe_dialogues(rest, sessions, conversations).await
}

#[test]
fn saves_older_then_newer_are_restored_whole() {
    run(async {
        let server = fresh(&[
            ("COLLOQUY__SAVES__MAX_PER_WORLD", "2"),
            ("COLLOQUY__SUMMARIES__FIRST_AFTER_TURNS", "2"),
            ("COLLOQUY__SUMMARIES__THEN_EVERY_TURNS", "1"),
        ])
        .start();
        let rest = server.backend();
        let (mut one, mut two) = (server.player("p1").await, server.player("p2").await);
        let first = one.session("mira", "p1").await;
        one.say_line(&first, "I like grapes.").await;
        one.say_line(&first, "Let us go to the mill.").await;
        wait_until_learned(&rest, "mira", "grapes").await;
        let talk = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "topic": "the mill", "auto": false});
        let talk = rest.post("/v1/npc-conversations", &talk).await;
        let talk = talk["id"].as_str().unwrap();
        let step = format!("/v1/npc-conversations/{talk}:step");
        rest.post(&step, &json!({})).await;
        let before = observe_when_idle(&rest, &[&first], &[talk]).await;
        let older = take_save(&rest, "older").await;
        assert_eq!(
            before[&first]["summaries"]["items"].as_array().unwrap().len(),
            1,
            "{before}"
        );
        let state = before[&first]["prompt"].as_str().unwrap();
        assert!(state.contains("location"), "{state}");

        // The taste changes, the other player tells the same NPC a fact, and the first player moves.
        one.say_line(&first, "I do not like grapes any more. I like figs.")
            .await;
        one.say_line(&first, "Let us go to the market.").await;
        wait_until_learned(&rest, "mira", "figs").await;
        let second = two.session("mira", "p2").await;
        two.say_line(&second, "I like plums.").await;
        wait_until_learned(&rest, "mira", "plums").await;
        rest.post(&step, &json!({})).await;
        rest.post(&step, &json!({})).await;
        let after = observe_when_idle(&rest, &[&first, &second], &[talk]).await;
        let newer = take_save(&rest, "newer").await;
        let (status, full) = rest.call(Method::POST, SAVES, Some(&json!({}))).await;
        assert_eq!((status.as_u16(), &full["code"]), (409, &json!("too_many_saves")));
        let superseded = |seen: &Value| seen["mira"].to_string().contains("superseded");
        assert!(superseded(&after) && !superseded(&before), "{after}");
        assert_ne!(before[&first]["prompt"], after[&first]["prompt"]);
        assert_ne!(before[&first]["summaries"], after[&first]["summaries"]);

        let told = restore_save(&rest, &older).await;
        assert_eq!(
            (&told["changed_dialogues"], &told["ended_dialogues"]),
            (&json!(3), &json!(1))
        );
        let rewound = one.until("dialogue.rewound").await;
        assert_eq!(
            (&rewound["turn"], &rewound["removed_turns"]),
            (&json!(2), &json!([3, 4]))
        );
        assert_eq!(two.until("session.closed").await["reason"], "restored");
        assert_eq!(
            observe_when_idle(&rest, &[&first], &[talk]).await,
            before,
            "the older save"
        );
        assert!(standing_turns(&rest, &second).await.is_empty());
        let answer = one.say_line(&first, "What fruit do I like?").await;
        assert!(answer.turn == 3 && answer.text.contains("grapes"), "{answer:?}");
        assert!(
            !answer.text.contains("figs") && !answer.text.contains("plums"),
            "{answer:?}"
        );
        // The save is restored whole again, after any later turns.
        restore_save(&rest, &older).await;
        assert_eq!(
            observe_when_idle(&rest, &[&first], &[talk]).await,
            before,
            "the older save again"
        );

        restore_save(&rest, &newer).await;
        assert_eq!(
            observe_when_idle(&rest, &[&first, &second], &[talk]).await,
            after,
            "the newer save"
        );
        let answer = one.say_line(&first, "What fruit do I like?").await;
        assert!(answer.turn == 5 && answer.text.contains("figs"), "{answer:?}");
        let line = rest.post(&step, &json!({})).await;
        assert_eq!(line["turn"], 4, "the NPCs go on, too");
        rest.call(Method::DELETE, &format!("{SAVES}/{older}"), None).await;
        take_save(&rest, "there is room again").await;
    });
}

#[test]
fn kill_during_a_restore_leaves_all_of_it_or_nothing() {
    run(async {
        let data = fresh(&[]);
        let mut server = data.spawn();
        let rest = server.backend();
        let mut sessions = Vec::new();
        let mut socket = server.player("p1").await;
        for _ in 0..5 {
            let session = socket.session("mira", "p1").await;
            socket.say_line(&session, "I like grapes.").await;
            sessions.push(session);
        }
        let mut saves = vec![take_save(&rest, "low").await];
        for session in &sessions {
            socket.say_line(session, "I like figs.").await;
            socket.say_line(session, "I like plums.").await;
        }
        saves.push(take_save(&rest, "high").await);
        drop(socket);
        let mut low = false;
        for round in 0..8_u64 {
            // Restores alternate between the saves. Each kill comes a little later.
            let path = format!("{SAVES}/{}:restore", saves[usize::from(low)]);
            let rest = server.backend();
            let asked = tokio::spawn(async move { rest.attempt(Method::POST, &path, None).await });
            tokio::time::sleep(Duration::from_millis(round * 3)).await;
            server = server.kill().spawn();
            let acknowledged = asked.await.unwrap().is_ok_and(|(status, _)| status.is_success());
            let rest = server.backend();
            let mut lengths = Vec::new();
            for session in &sessions {
                lengths.push(standing_turns(&rest, session).await.len());
            }
            assert!(lengths == [1; 5] || lengths == [3; 5], "half of a save: {lengths:?}");
            let wanted = if low { 3 } else { 1 };
            assert!(
                !acknowledged || lengths == [wanted; 5],
                "an acknowledged restore was lost"
            );
            low = lengths == [1; 5];
        }
        let rest = server.backend();
        restore_save(&rest, &saves[0]).await;
        let path = format!("/v1/sessions/{}/turns", sessions[0]);
        let answer = rest.post(&path, &json!({"text": "What fruit do I like?"})).await;
        let text = answer["reply_text"].as_str().unwrap();
        assert!(text.contains("grapes") && !text.contains("figs"), "{answer}");
    });
}
