//! A player talks with an NPC that remembers: by the third turn, after a restart, and in a new session.

use serde_json::Value;

use super::fresh;
use crate::support::{TestServer, eventually, run};

struct TastePhrases {
    npc: &'static str,
    likes: &'static str,
    chatter: &'static str,
    asks: &'static str,
    fruit: &'static str,
    changes: &'static str,
    new_fruit: &'static str,
    former: &'static str,
    wish: &'static str,
}

const ENGLISH: TastePhrases = TastePhrases {
    npc: "mira",
    likes: "I like grapes.",
    chatter: "The weather is nice today.",
    asks: "What fruit do I like?",
    fruit: "grapes",
    changes: "I don't like grapes anymore. I like peaches now.",
    new_fruit: "peaches",
    former: "I used to like apples.",
    wish: "Forget that I like grapes.",
};

const KOREAN: TastePhrases = TastePhrases {
    npc: "ergen",
    likes: "나는 포도를 좋아해.",
    chatter: "오늘 날씨가 좋네요.",
    asks: "내가 좋아하는 과일이 뭐였지?",
    fruit: "포도",
    changes: "이제 포도는 싫어. 지금은 복숭아를 좋아해.",
    new_fruit: "복숭아",
    former: "예전에는 사과를 좋아했어.",
    wish: "내가 포도를 좋아한다는 거 잊어 줘.",
};

fn mentions(text: &str, word: &str) -> bool {
    text.to_lowercase().contains(word)
}

fn facts_about<'a>(facts: &'a [Value], word: &'a str) -> impl Iterator<Item = &'a Value> {
    facts
        .iter()
        .filter(move |f| mentions(f["content"].as_str().unwrap(), word))
}

async fn wait_for_fact(server: &TestServer, npc: &str, word: &str) -> Value {
    let rest = server.backend();
    eventually(&format!("a fact about {word}"), || async {
        let facts = rest.facts(npc).await;
        facts_about(&facts, word).find(|f| f["invalid_at"].is_null()).cloned()
    })
    .await
}

fn assert_remembers_taste(language: &TastePhrases) {
    run(async {
        let data = fresh(&[]);
        let server = data.start();
        let mut socket = server.player("p1").await;
        let session = socket.session(language.npc, "p1").await;

        let first = socket.say_line(&session, language.likes).await;
        assert_eq!((first.turn, first.status.as_str()), (1, "completed"));
        assert_eq!(first.streamed, first.text, "the deltas are the reply");
        assert!(!first.text.is_empty());
        // A line waits only for the facts of the turn just before it, so the third line would be too early.
        wait_for_fact(&server, language.npc, language.fruit).await;
        socket.say_line(&session, language.chatter).await;
        let third = socket.say_line(&session, language.asks).await;
        assert!(mentions(&third.text, language.fruit), "by the third turn: {third:?}");

        // The trace shows the fact with the parts of its score.
        let trace = server
            .backend()
            .get(&format!("/v1/sessions/{session}/turns/3/trace"))
            .await;
        let used: Vec<&Value> = trace["candidates"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|c| mentions(c["content"].as_str().unwrap(), language.fruit))
            .collect();
        assert!(!used.is_empty(), "{trace}");
        let score = &used[0]["score"];
        let part = |name: &str| score[name].as_f64().unwrap();
        let sum = 0.15 * part("recency") + 0.15 * part("importance") + 0.5 * part("relevance") + 0.2 * part("keyword");
        assert!((part("total") - sum).abs() < 1e-6, "{score}");
        assert!(part("keyword") > 0.0, "{score}");
        drop(socket);

        // After a restart, in a new session.
        wait_for_fact(&server, language.npc, language.fruit).await;
        let server = server.stop().start();
        let mut socket = server.player("p1").await;
        let session = socket.session(language.npc, "p1").await;
        let again = socket.say_line(&session, language.asks).await;
        assert!(mentions(&again.text, language.fruit), "after a restart: {again:?}");

        // Another player's session does not know the taste.
        let mut stranger = server.player("p2").await;
        let session = stranger.session(language.npc, "p2").await;
        let unknown = stranger.say_line(&session, language.asks).await;
        assert!(!mentions(&unknown.text, language.fruit), "told in private: {unknown:?}");
    });
}

#[test]
fn taste_is_remembered_in_english() {
    assert_remembers_taste(&ENGLISH);
}

#[test]
fn taste_is_remembered_in_korean() {
    assert_remembers_taste(&KOREAN);
}

fn assert_follows_change(language: &TastePhrases) {
    run(async {
        let server = fresh(&[]).start();
        let mut socket = server.player("p1").await;
        let session = socket.session(language.npc, "p1").await;
        socket.say_line(&session, language.likes).await;
        let old = wait_for_fact(&server, language.npc, language.fruit).await;
        socket.say_line(&session, language.changes).await;
        wait_for_fact(&server, language.npc, language.new_fruit).await;

        let rest = server.backend();
        let superseded = eventually("the older taste to end", || async {
            let facts = rest.facts(language.npc).await;
            facts
                .into_iter()
                .find(|f| f["id"] == old["id"] && !f["invalid_at"].is_null())
        })
        .await;
        assert!(superseded["invalid_at"].is_string(), "{superseded}");

        let answer = socket.say_line(&session, language.asks).await;
        assert!(mentions(&answer.text, language.new_fruit), "{answer:?}");
    });
}

#[test]
fn changed_taste_is_answered_with_the_newer_one_in_english() {
    assert_follows_change(&ENGLISH);
}

#[test]
fn changed_taste_is_answered_with_the_newer_one_in_korean() {
    assert_follows_change(&KOREAN);
}

fn assert_present_taste_survives(language: &TastePhrases) {
    run(async {
        let server = fresh(&[]).start();
        let mut socket = server.player("p1").await;
        let session = socket.session(language.npc, "p1").await;
        socket.say_line(&session, language.likes).await;
        let present = wait_for_fact(&server, language.npc, language.fruit).await;
        let turn = socket.say_line(&session, language.former).await;
        // Jobs of a dialogue run in order, so the previous turn's job is done when the next turn's job is done.
        let rest = server.backend();
        eventually("the jobs to be done", || async {
            let session = rest.get(&format!("/v1/sessions/{session}")).await;
            (session["head_turn"] == turn.turn).then_some(())
        })
        .await;
        let answer = socket.say_line(&session, language.asks).await;
        assert!(mentions(&answer.text, language.fruit), "{answer:?}");
        let facts = rest.facts(language.npc).await;
        let still = facts.iter().find(|f| f["id"] == present["id"]).unwrap();
        assert!(
            still["invalid_at"].is_null(),
            "a former taste erased a present one: {still}"
        );
    });
}

#[test]
fn former_taste_does_not_erase_a_present_one_in_english() {
    assert_present_taste_survives(&ENGLISH);
}

#[test]
fn former_taste_does_not_erase_a_present_one_in_korean() {
    assert_present_taste_survives(&KOREAN);
}

fn assert_forgets_on_request(language: &TastePhrases) {
    run(async {
        let server = fresh(&[]).start();
        let mut socket = server.player("p1").await;
        let session = socket.session(language.npc, "p1").await;
        socket.say_line(&session, language.likes).await;
        let told = wait_for_fact(&server, language.npc, language.fruit).await;
        socket.say_line(&session, language.wish).await;

        let rest = server.backend();
        let forgotten = eventually("the fact to be forgotten", || async {
            let facts = rest.facts(language.npc).await;
            facts
                .into_iter()
                .find(|f| f["id"] == told["id"] && !f["invalid_at"].is_null())
        })
        .await;
        assert_eq!(forgotten["invalid_reason"], "forgotten", "{forgotten}");
        assert_eq!(
            facts_about(&rest.facts(language.npc).await, language.fruit).count(),
            1,
            "asking to forget taught nothing"
        );

        let answer = socket.say_line(&session, language.asks).await;
        assert!(!mentions(&answer.text, language.fruit), "in this session: {answer:?}");
        let session = socket.session(language.npc, "p1").await;
        let answer = socket.say_line(&session, language.asks).await;
        assert!(!mentions(&answer.text, language.fruit), "in a new session: {answer:?}");
    });
}

#[test]
fn taste_is_forgotten_on_request_in_english() {
    assert_forgets_on_request(&ENGLISH);
}

#[test]
fn taste_is_forgotten_on_request_in_korean() {
    assert_forgets_on_request(&KOREAN);
}
