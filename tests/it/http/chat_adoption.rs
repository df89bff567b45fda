//! Characters of chat programs that are adopted into an authored world, and how far an imported talk is learned from.

use std::{sync::Arc, time::Duration};

use colloquy::{adapters::scripted::ScriptedLlm, tenancy::Role};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    chat::{COMPLETIONS, assistant, complete, content, system, talks, turns, user},
    fakes::REPLY,
    harness::{HttpTestClient, HttpTestOptions, HttpTestServer},
};
use crate::support::eventually;

const ADOPT: &str = "/v1/worlds/vale/npcs/mira:adopt";

/// A server on which Ann's chat program talks with its own Mira. Another Mira is an authored NPC of the vale.
struct Adoption {
    server: HttpTestServer,
    client: HttpTestClient,
    /// The world of Ann's characters.
    hidden: String,
}

impl Adoption {
    async fn begin(options: HttpTestOptions) -> Self {
        let server = HttpTestServer::with(options);
        let client = server.start_demo_world().await;
        let mira = json!({"name": "Mira", "persona": {"description": "Sells herbs at the well."}});
        client.put("/v1/worlds/vale/npcs/mira", &mira).await;
        let mut adoption = Self {
            server,
            client,
            hidden: String::new(),
        };
        adoption
            .say_to_character(&[assistant("Herbs?"), user("My name is Ann.")])
            .await;
        let worlds = adoption.client.get("/v1/worlds").await;
        let ids = worlds["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|world| world["id"].as_str().unwrap());
        ids.into_iter()
            .find(|id| id.starts_with("chats-"))
            .unwrap()
            .clone_into(&mut adoption.hidden);
        adoption
    }

    /// Asks the character of the program for the next reply of Ann's talk.
    async fn say_to_character(&self, talk: &[Value]) -> Value {
        let head = system("Write Mira's next reply in a fictional chat between Mira and Ann.");
        let messages = [&[head], talk].concat();
        let body = json!({"model": "colloquy/proxy", "user": "ann", "messages": messages});
        self.client.post(COMPLETIONS, &body).await
    }

    /// Asks the authored NPC for the next reply of Ann's talk.
    async fn say_to_adopted(&self, talk: &[Value]) -> Value {
        let body = json!({"model": "vale/mira", "user": "ann", "messages": talk});
        self.client.post(COMPLETIONS, &body).await
    }

    fn body(&self) -> Value {
        json!({"world_id": self.hidden, "npc_id": "mira"})
    }

    async fn adopt(&self) -> Value {
        let adopted = self.client.post(ADOPT, &self.body()).await;
        assert_eq!(adopted["complete"], true, "{adopted}");
        adopted
    }

    async fn facts(&self, world: &str) -> Vec<Value> {
        let facts = self.client.get(&format!("/v1/worlds/{world}/npcs/mira/facts")).await;
        facts["items"].as_array().unwrap().clone()
    }
}

fn stored_turns(adopted: &Value) -> Vec<u64> {
    let sessions = adopted["sessions"].as_array().unwrap().iter();
    sessions
        .map(|session| session["stored_turns"].as_u64().unwrap())
        .collect()
}

#[actix_web::test]
async fn adopted_talk_goes_on_with_the_authored_npc() {
    let adoption = Adoption::begin(HttpTestOptions::default()).await;
    let first = [assistant("Herbs?"), user("My name is Ann.")];
    let talk = [&first[..], &[assistant(REPLY), user("Two.")]].concat();
    adoption.say_to_character(&talk).await;
    let said = turns(&[("", "Herbs?"), ("My name is Ann.", REPLY), ("Two.", REPLY)]);

    let adopted = adoption.adopt().await;
    assert_eq!(stored_turns(&adopted), [3]);
    let session = &adopted["sessions"][0];
    assert_eq!(
        (&session["player_id"], &session["learning"]["turns"]),
        (&json!("ann"), &json!(3))
    );
    assert_eq!(talks(&adoption.client, "vale").await, std::slice::from_ref(&said));
    assert_eq!(
        talks(&adoption.client, &adoption.hidden).await,
        [said],
        "the character keeps its talk"
    );

    // The program shows the talk of the character to the authored NPC.
    let talk = [&talk[..], &[assistant(REPLY), user("Three.")]].concat();
    adoption.say_to_adopted(&talk).await;
    let gone_on = turns(&[
        ("", "Herbs?"),
        ("My name is Ann.", REPLY),
        ("Two.", REPLY),
        ("Three.", REPLY),
    ]);
    assert_eq!(talks(&adoption.client, "vale").await, std::slice::from_ref(&gone_on));

    // A repeat takes nothing back, and stores nothing twice.
    let again = adoption.adopt().await;
    assert_eq!(stored_turns(&again), [0]);
    assert_eq!(again["sessions"][0]["session_id"], session["session_id"]);
    assert_eq!(talks(&adoption.client, "vale").await, std::slice::from_ref(&gone_on));

    // The talks have parted.
    let talk = [&talk[..3], &[user("Other.")]].concat();
    adoption.say_to_character(&talk).await;
    let parted = adoption.adopt().await;
    let reason = json!([{"source_session_id": session["source_session_id"], "reason": "differs"}]);
    assert_eq!((&parted["not_adopted"], &parted["sessions"]), (&reason, &json!([])));
    assert_eq!(talks(&adoption.client, "vale").await, [gone_on]);
    let audit = adoption.server.as_role(Role::Admin).get("/v1/audit").await.to_string();
    assert!(audit.contains("npc.adopt"), "{audit}");
}

#[actix_web::test]
async fn repeated_adoption_adds_only_what_is_missing() {
    let adoption = Adoption::begin(HttpTestOptions::default()).await;
    let first = adoption.adopt().await;
    assert_eq!(stored_turns(&first), [2]);
    let talk = [
        assistant("Herbs?"),
        user("My name is Ann."),
        assistant(REPLY),
        user("Two."),
    ];
    adoption.say_to_character(&talk).await;
    // A talk of its own, and one of another player with a character of the same name.
    adoption.say_to_character(&[user("Hello.")]).await;
    let other = json!({"model": "colloquy/proxy", "user": "bob", "messages": [system("You are Mira."), user("Bob.")]});
    adoption.client.post(COMPLETIONS, &other).await;
    assert_eq!(stored_turns(&adoption.adopt().await), [1, 1]);
    let all = [
        turns(&[("Hello.", REPLY)]),
        turns(&[("", "Herbs?"), ("My name is Ann.", REPLY), ("Two.", REPLY)]),
    ];
    assert_eq!(talks(&adoption.client, "vale").await, all);

    // An adoption that stored a part goes on with the rest.
    let session = first["sessions"][0]["session_id"].as_str().unwrap();
    let rewind = format!("/v1/sessions/{session}:rewind");
    adoption.client.post(&rewind, &json!({"turn": 1})).await;
    let body = adoption.body();
    let call = || adoption.client.call(Method::POST, ADOPT, Some(&body));
    let (one, two) = tokio::join!(call(), call());
    let done = [one, two].into_iter().filter(|(status, answer)| {
        assert!(*status == 200 || *status == 429, "{answer}");
        *status == 200
    });
    let stored: u64 = done.flat_map(|(_, answer)| stored_turns(&answer)).sum();
    assert_eq!(stored, 2, "two at once");
    assert_eq!(talks(&adoption.client, "vale").await, all);

    // A closed session stays closed.
    adoption.client.post(&rewind, &json!({"turn": 1})).await;
    adoption
        .client
        .call(Method::DELETE, &format!("/v1/sessions/{session}"), None)
        .await;
    assert_eq!(adoption.adopt().await["not_adopted"][0]["reason"], "closed");
}

#[actix_web::test]
async fn one_player_and_talks_with_one_npc_can_be_adopted() {
    let adoption = Adoption::begin(HttpTestOptions::default()).await;
    let client = &adoption.client;
    for player in ["ann", "bob"] {
        let body = json!({"model": "vale/ergen", "user": player, "messages": [user(&format!("I am {player}."))]});
        client.post(COMPLETIONS, &body).await;
    }
    let both = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "player_id": "bob"});
    let both = client.post("/v1/sessions", &both).await;
    let path = format!("/v1/sessions/{}/turns", both["id"].as_str().unwrap());
    client.post(&path, &json!({"text": "Hello, both."})).await;
    let bran = json!({"name": "Bran", "persona": {"description": "A carter."}});
    client.put("/v1/worlds/vale/npcs/bran", &bran).await;
    let body = json!({"world_id": "vale", "npc_id": "ergen", "player_id": "bob"});
    let adopted = client.post("/v1/worlds/vale/npcs/bran:adopt", &body).await;
    assert_eq!(stored_turns(&adopted), [1]);
    assert_eq!(adopted["sessions"][0]["player_id"], "bob");
    let not_adopted = json!([{"source_session_id": both["id"], "reason": "several_npcs"}]);
    assert_eq!(adopted["not_adopted"], not_adopted);
}

#[actix_web::test]
async fn facts_are_learned_anew_and_those_of_people_are_copied() {
    let adoption = Adoption::begin(HttpTestOptions {
        llm: Arc::new(ScriptedLlm::new()),
        ..HttpTestOptions::default()
    })
    .await;
    let client = &adoption.client;
    let mut talk = vec![
        assistant("Herbs?"),
        user("My name is Ann."),
        assistant("Ah."),
        user("I like grapes."),
    ];
    let answer = adoption.say_to_character(&talk).await;
    let told = async |world: &str| {
        let facts = adoption.facts(world).await;
        facts
            .into_iter()
            .find(|fact| fact["content"].as_str().unwrap().contains("grapes"))
    };
    // The next line ends the wait for the playback of the reply.
    talk.extend([assistant(content(&answer)), user("Something else.")]);
    adoption.say_to_character(&talk).await;
    let learned = eventually("the character learns", async || told(&adoption.hidden).await).await;
    let fact = json!({"subject": "player:ann", "predicate": "owns", "object": "a mule", "kind": "other",
        "content": "Ann owns a mule.", "private_to": "ann", "importance": 7});
    client
        .post(&format!("/v1/worlds/{}/npcs/mira/facts", adoption.hidden), &fact)
        .await;
    let edited = format!("/v1/facts/{}", learned["id"].as_str().unwrap());
    client
        .call(
            Method::PATCH,
            &edited,
            Some(&json!({"content": "Ann likes grapes a lot."})),
        )
        .await;

    let adopted = adoption.adopt().await;
    assert_eq!(
        (&adopted["copied_facts"], &adopted["not_copied_facts"]),
        (&json!(1), &json!([learned["id"]]))
    );
    assert_eq!(adoption.adopt().await["copied_facts"], 0);
    eventually("the authored NPC learns", async || told("vale").await).await;
    let facts = adoption.facts("vale").await;
    let copied: Vec<_> = facts
        .iter()
        .filter(|fact| fact["content"] == "Ann owns a mule.")
        .collect();
    assert_eq!(copied.len(), 1);
    assert_eq!(
        (&copied[0]["private_to"], &copied[0]["importance"]),
        (&json!("ann"), &json!(7))
    );

    // A copy that was removed does not come back.
    let path = format!("/v1/facts/{}", copied[0]["id"].as_str().unwrap());
    client.call(Method::DELETE, &path, None).await;
    assert_eq!(adoption.adopt().await["copied_facts"], 0);
}

#[actix_web::test]
async fn bad_adoptions_are_refused_and_store_nothing() {
    let adoption = Adoption::begin(HttpTestOptions::default()).await;
    let (server, client) = (&adoption.server, &adoption.client);
    let good = adoption.body();
    let body = |field: &str, value: &str| {
        let mut body = good.clone();
        body[field] = json!(value);
        body
    };
    for (path, body, status, param) in [
        ("/v1/worlds/nowhere/npcs/mira:adopt", good.clone(), 404, Value::Null),
        ("/v1/worlds/vale/npcs/nobody:adopt", good.clone(), 404, Value::Null),
        (ADOPT, body("npc_id", "nobody"), 404, json!("npc_id")),
        (ADOPT, body("world_id", "nowhere"), 404, json!("npc_id")),
        (ADOPT, body("world_id", "vale"), 422, json!("npc_id")),
        (ADOPT, body("npc_id", "Not an id"), 422, json!("npc_id")),
        (ADOPT, body("player_id", ""), 422, json!("player_id")),
        (ADOPT, body("memories", "all"), 422, json!("memories")),
        (ADOPT, json!({"npc_id": "mira"}), 422, json!("world_id")),
    ] {
        let (found, answer) = client.call(Method::POST, path, Some(&body)).await;
        assert_eq!(
            (found.as_u16(), &answer["param"]),
            (status, &param),
            "{path} {body}: {answer}"
        );
    }
    let bound = server.token_for("acme", Role::Backend, None, Some("vale"), Duration::from_mins(1));
    for (token, status) in [
        (server.token("rival", Role::Backend, None), 404),
        (bound, 404),
        (server.token("acme", Role::Player, Some("ann")), 403),
        (server.token("acme", Role::Viewer, None), 403),
        (server.token("acme", Role::Operator, None), 403),
    ] {
        let answer = server.client(token).call(Method::POST, ADOPT, Some(&good)).await;
        assert_eq!(answer.0, status, "{}", answer.1);
    }
    let death = json!({"events": [{"type": "status", "who": "mira", "to": "dead"}]});
    client.post("/v1/worlds/vale/events", &death).await;
    let refused = client.status_and_code(Method::POST, ADOPT, Some(&good)).await;
    assert_eq!(refused, (409, "npc_dead".to_owned()));
    assert_eq!(talks(client, "vale").await.len(), 0);
}

#[actix_web::test]
async fn learning_of_an_imported_talk_is_counted() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let talk = [
        user("One."),
        assistant("Yes."),
        user("Two."),
        assistant("No."),
        user("DULL."),
        assistant("Hm."),
        user("Four."),
    ];
    complete(&client, "vale/ergen", &talk).await;
    let session = client.get("/v1/sessions?world_id=vale").await["items"][0]["id"].clone();
    let path = format!("/v1/sessions/{}/learning", session.as_str().unwrap());
    let progress = eventually("all but the last turn are read", async || {
        let progress = client.get(&path).await;
        (progress["learned"] == 2 && progress["failed"] == 1).then_some(progress)
    })
    .await;
    // The last turn waits for the next line.
    let expected = json!({"turns": 4, "learned": 2, "waiting": 1, "failed": 1, "summarised_to": 0});
    assert_eq!(progress, expected);
    let player = server.as_role(Role::Player);
    assert_eq!(player.call(Method::GET, &path, None).await.0, 403);
    let rival = server.client(server.token("rival", Role::Backend, None));
    assert_eq!(rival.call(Method::GET, &path, None).await.0, 404);
    let unknown = "/v1/sessions/ses_00000000000000000000000000/learning";
    assert_eq!(client.call(Method::GET, unknown, None).await.0, 404);
}
