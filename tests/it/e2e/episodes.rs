//! Episodes: every turn leaves a line, later sessions recall lines in three stages, and a rewind takes lines back.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    fresh,
    npc_conversation::{last_prompt, with_mock},
    scenarios::put,
};
use crate::support::{RestClient, run};

const EPISODES: &str = "/v1/worlds/vale/npcs/mira/episodes";
const HEADING: &str = "[What happened between you and the player]";
const HEADING_OF_LINE: &str = "[What else happened between you and the player]";

/// Says the lines, and waits for what is learned from them.
async fn say_all(backend: &RestClient, session: &str, lines: &[&str]) {
    for line in lines {
        let path = format!("/v1/sessions/{session}/turns");
        backend.post(&path, &json!({ "text": line })).await;
    }
    backend.idle().await;
}

async fn preview(backend: &RestClient, session: &str, text: &str) -> Value {
    let path = format!("/v1/sessions/{session}/context");
    backend.post(&path, &json!({ "text": text })).await
}

async fn rewind(backend: &RestClient, session: &str, turn: u32) {
    backend
        .post(&format!("/v1/sessions/{session}:rewind"), &json!({ "turn": turn }))
        .await;
    backend.idle().await;
}

/// Returns the texts of the standing episodes, oldest first.
async fn texts(backend: &RestClient, player: &str) -> Vec<String> {
    let listed = backend.get(&format!("{EPISODES}?player_id={player}&limit=200")).await;
    let items = listed["items"].as_array().unwrap().iter().rev();
    items.map(|item| item["text"].as_str().unwrap().to_owned()).collect()
}

/// Returns the stage of each episode in a prompt, with its text.
fn used(preview: &Value) -> Vec<(String, String)> {
    let traced = preview["episodes"].as_array().cloned().unwrap_or_default();
    let used = traced.iter().filter(|traced| traced["fate"] == "used");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    used.map(|traced| (text(&traced["stage"]), text(&traced["shown"])))
        .collect()
}

fn is_used(preview: &Value, stage: &str, part: &str) -> bool {
    used(preview)
        .iter()
        .any(|(of, text)| of == stage && text.contains(part))
}

/// Returns the lines under a heading of a prompt.
fn lines_under(preview: &Value, heading: &str) -> Vec<String> {
    let messages = preview["messages"].as_array().unwrap().iter();
    let mut contents = messages.filter_map(|message| message["content"].as_str());
    let Some((_, rest)) = contents.find_map(|content| content.split_once(heading)) else {
        return Vec::new();
    };
    let lines = rest.lines().skip(1).take_while(|line| line.starts_with("- "));
    lines.map(str::to_owned).collect()
}

/// Returns the lines of both sections in a prompt: the newest and the most important, and then what the line brings.
fn section(preview: &Value) -> Vec<String> {
    [HEADING, HEADING_OF_LINE]
        .iter()
        .flat_map(|heading| lines_under(preview, heading))
        .collect()
}

/// A first session: something important, something to ask about, and small talk at its end.
const FIRST: [&str; 9] = [
    "I am allergic to nuts.",
    "I love grapes.",
    "I like plums.",
    "I like bread.",
    "I like tea.",
    "I like boats.",
    "A fine day, is it not?",
    "The road was long today.",
    "And how is the mill?",
];

#[test]
fn next_session_recalls_the_important_the_recent_and_the_similar() {
    run(async {
        let server = fresh(&[]).start();
        let backend = server.backend();
        let first = backend.open_session("mira", "p1").await;
        say_all(&backend, &first, &FIRST).await;
        let told = texts(&backend, "p1").await;
        assert_eq!(told.len(), FIRST.len(), "{told:?}");
        assert_eq!(told[0], "The player is allergic to nuts.");
        assert_eq!(told[7], "The player: \"The road was long today.\"");
        let listed = backend.get(&format!("{EPISODES}?player_id=p1&limit=2")).await;
        let newest = &listed["items"][0];
        assert_eq!((&newest["dialogue_id"], &newest["turn"]), (&json!(first), &json!(9)));
        assert!(newest["importance"].as_u64().unwrap() <= 2, "{newest}");
        let next = listed["next"].as_str().unwrap();
        let second = backend
            .get(&format!("{EPISODES}?player_id=p1&limit=2&after={next}"))
            .await;
        assert_eq!(second["items"][0]["turn"], 7);

        // The lines of the turns are in the prompt.
        let same = preview(&backend, &first, "Do you remember grapes?").await;
        assert_eq!(used(&same), [], "{same}");
        assert_eq!(
            same["episodes"].as_array().map_or(0, Vec::len),
            0,
            "they are not even read: {same}"
        );

        let second = backend.open_session("mira", "p1").await;
        let shown = preview(&backend, &second, "What do you know of my love of grapes?").await;
        assert!(is_used(&shown, "recent", "likes boats"), "{shown}");
        assert!(
            !shown.to_string().contains("how is the mill"),
            "small talk is not recent: {shown}"
        );
        assert!(is_used(&shown, "important", "allergic to nuts"), "{shown}");
        // A found fact of the turn says the same as its episode.
        let mut episodes = shown["episodes"].as_array().unwrap().iter();
        let of_grapes = episodes.find(|episode| episode["turn"] == 2).unwrap();
        assert_eq!(of_grapes["fate"], "in_facts", "{shown}");
        assert!(shown.to_string().contains("The player loves grapes."), "{shown}");
        let lines = lines_under(&shown, HEADING);
        assert!(lines[0].contains("allergic"), "in order of time: {lines:?}");
        assert_eq!(
            lines.last().unwrap(),
            "- earlier today | turn 6 | The player likes boats.",
            "{lines:?}"
        );
        let of_line = lines_under(&shown, HEADING_OF_LINE);
        assert!(of_line.is_empty(), "the facts tell what the line brings: {of_line:?}");
        say_all(&backend, &second, &["Hello again."]).await;
        let trace = backend.get(&format!("/v1/sessions/{second}/turns/1/trace")).await;
        assert!(is_used(&trace, "important", "allergic to nuts"), "{trace}");

        for (player, npc) in [("p2", "mira"), ("p1", "ergen")] {
            let body = json!({"world_id": "vale", "npc_id": npc, "player_id": player});
            let other = backend.post("/v1/sessions", &body).await;
            let other = other["id"].as_str().unwrap();
            let shown = preview(&backend, other, "Do you remember grapes?").await;
            assert_eq!(used(&shown), [], "{player} {npc}");
        }
        let nobody = backend.get(&format!("{EPISODES}?player_id=p2")).await;
        assert_eq!(nobody["items"], json!([]));
        let (status, _) = backend.call(Method::GET, EPISODES, None).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "a player is needed");
    });
}

#[test]
fn rewind_takes_episodes_away_and_a_restored_save_brings_them_back() {
    run(async {
        let server = fresh(&[]).start();
        let backend = server.backend();
        let first = backend.open_session("mira", "p1").await;
        say_all(
            &backend,
            &first,
            &["I like plums.", "I am allergic to nuts.", "I love grapes."],
        )
        .await;
        let second = backend.open_session("mira", "p1").await;
        let before = preview(&backend, &second, "Hello.").await;
        assert_eq!(section(&before).len(), 3, "{before}");
        let saved = backend.post("/v1/worlds/vale/saves", &json!({})).await;

        rewind(&backend, &first, 1).await;
        assert_eq!(texts(&backend, "p1").await, ["The player likes plums."]);
        let after = preview(&backend, &second, "What of nuts and grapes?").await;
        assert_eq!(section(&after).len(), 1, "{after}");
        assert!(!after.to_string().contains("allergic"), "{after}");
        // The turn has another line now.
        say_all(&backend, &first, &["I like bread."]).await;
        let told = texts(&backend, "p1").await;
        assert_eq!(told, ["The player likes plums.", "The player likes bread."]);

        let id = saved["id"].as_str().unwrap();
        backend
            .post(&format!("/v1/worlds/vale/saves/{id}:restore"), &json!({}))
            .await;
        backend.idle().await;
        let told = texts(&backend, "p1").await;
        assert_eq!(told.len(), 3, "{told:?}");
        let again = preview(&backend, &second, "Hello.").await;
        assert_eq!(section(&again), section(&before));
    });
}

#[test]
fn shortened_reply_and_greeting_keep_one_episode_each() {
    run(async {
        let server = fresh(&[]).start();
        let backend = server.backend();
        let body = json!({"world_id": "vale", "npc_id": "mira", "player_id": "p1", "greeting": true});
        let made = backend.post("/v1/sessions", &body).await;
        let session = made["id"].as_str().unwrap();
        let greeted = ["Mira greeted the player."];
        assert_eq!(texts(&backend, "p1").await, greeted);
        let cut = async |turn: u32| {
            let path = format!("/v1/sessions/{session}:interrupt");
            let cut = backend.post(&path, &json!({"turn": turn, "heard_chars": 7})).await;
            assert_eq!(cut["turn"], turn, "{cut}");
            backend.idle().await;
        };
        cut(1).await;
        assert_eq!(texts(&backend, "p1").await, greeted);
        backend
            .post(&format!("/v1/sessions/{session}:regenerate"), &json!({}))
            .await;
        assert_eq!(texts(&backend, "p1").await, greeted);
        say_all(&backend, session, &["I love grapes."]).await;
        let both = ["Mira greeted the player.", "The player loves grapes."];
        assert_eq!(texts(&backend, "p1").await, both);
        cut(2).await;
        assert_eq!(texts(&backend, "p1").await, both, "the shortened turn is read again");
    });
}

#[test]
fn forgotten_statements_are_cut_from_episodes() {
    run(async {
        let server = fresh(&[]).start();
        let backend = server.backend();
        let first = backend.open_session("mira", "p1").await;
        say_all(&backend, &first, &["I love grapes.", "I like plums."]).await;
        let second = backend.open_session("mira", "p1").await;
        let before = preview(&backend, &second, "Hello.").await;
        assert!(section(&before)[0].contains("grapes"), "{before}");
        say_all(&backend, &second, &["Forget that I love grapes."]).await;
        let third = backend.open_session("mira", "p1").await;
        let after = preview(&backend, &third, "What of grapes?").await;
        let lines = section(&after);
        assert!(lines.iter().any(|line| line.contains("plums")), "{after}");
        assert!(!lines.iter().any(|line| line.contains("grapes")), "{lines:?}");
    });
}

#[test]
fn episode_of_a_locked_past_is_shown_only_while_it_is_open() {
    run(async {
        let (mock, server) = with_mock();
        let backend = server.backend();
        let well = json!({"title": "The dry well", "content": "My brother Anselm fell into the well.",
            "keywords": ["brother"], "required_progress": 2});
        put(&backend, "/v1/worlds/vale/npcs/mira/scenarios/well", &well).await;
        let progress = "/v1/worlds/vale/players/p1/progress/mira";
        put(&backend, progress, &json!({"progress": 2})).await;
        mock.apply_settings(&json!({"reply": "He fell.", "intent": "scenario"}))
            .unwrap();
        let first = backend.open_session("mira", "p1").await;
        let asked = "What happened to your brother?";
        say_all(&backend, &first, &[asked]).await;
        assert!(last_prompt(&mock).contains("Anselm"));
        assert_eq!(texts(&backend, "p1").await.len(), 1);
        let second = backend.open_session("mira", "p1").await;
        // No fact came of the turn, so only a similar line recalls it.
        let open = preview(&backend, &second, asked).await;
        let shown = section(&open);
        assert!(shown.iter().any(|line| line.contains("your brother")), "{open}");
        put(&backend, progress, &json!({"progress": 0})).await;
        let locked = preview(&backend, &second, asked).await;
        assert_eq!(
            (section(&locked), &locked["episodes"]),
            (vec![], &Value::Null),
            "{locked}"
        );
    });
}

#[test]
fn session_that_ends_early_is_known_in_the_next() {
    run(async {
        let (mock, server) = with_mock();
        mock.apply_settings(&json!({"reply": "Hm."})).unwrap();
        let backend = server.backend();
        let first = backend.open_session("mira", "p1").await;
        say_all(&backend, &first, &["I love grapes.", "I like plums.", "I like bread."]).await;
        let (status, _) = backend
            .call(Method::DELETE, &format!("/v1/sessions/{first}"), None)
            .await;
        assert!(status.is_success());
        backend.idle().await;
        let second = backend.open_session("mira", "p1").await;
        let shown = preview(&backend, &second, "Hello.").await;
        assert_eq!(section(&shown).len(), 3, "{shown}");
    });
}
