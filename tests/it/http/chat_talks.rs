//! Which talk a request of a chat program belongs to, and which replies players may bring in.

use colloquy::tenancy::Role;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    chat::{COMPLETIONS, assistant, system, user},
    chat_forms::{ChatTest, turn},
    harness::HttpTestClient,
};

const ERGEN: &str = "vale/ergen";

/// A request of `client`, and the reply that the model has for it.
struct Request<'a> {
    client: &'a HttpTestClient,
    /// `X-Colloquy-Session`; empty: none.
    name: &'a str,
    is_streamed: bool,
}

impl Request<'_> {
    /// Sends messages, and reads the answer to its end. Returns the status and the session.
    async fn send(
        &self,
        test: &ChatTest,
        model: &str,
        messages: &[Value],
        reply: &str,
    ) -> (StatusCode, Option<String>) {
        test.llm.queue_replies(&[reply]);
        let body = json!({"model": model, "messages": messages, "stream": self.is_streamed});
        let mut request = self.client.request(Method::POST, COMPLETIONS).json(&body);
        if !self.name.is_empty() {
            request = request.header("x-colloquy-session", self.name);
        }
        let response = request.send().await.unwrap();
        let session = response.headers().get("x-colloquy-session");
        let session = session.map(|id| id.to_str().unwrap().to_owned());
        let status = response.status();
        response.text().await.unwrap();
        if !status.is_success() {
            // The model was not asked.
            test.llm.clear_replies();
        }
        (status, session)
    }
}

const fn whole(client: &HttpTestClient) -> Request<'_> {
    Request {
        client,
        name: "",
        is_streamed: false,
    }
}

fn player_of(test: &ChatTest) -> HttpTestClient {
    test.server.client(test.server.token("acme", Role::Player, Some("ann")))
}

#[actix_web::test]
async fn players_choose_replaced_replies_again() {
    let test = ChatTest::start().await;
    let player = player_of(&test);
    let one = user("One.");
    let (_, session) = whole(&player)
        .send(&test, ERGEN, std::slice::from_ref(&one), "First.")
        .await;
    whole(&player)
        .send(&test, ERGEN, std::slice::from_ref(&one), "Second.")
        .await;
    assert_eq!(test.turns().await, [turn("One.", "Second.")]);
    // The id as the name: a talk of which the server keeps nothing in memory, as after a restart.
    let by_id = Request {
        name: session.as_deref().unwrap(),
        ..whole(&player)
    };
    let first = [one.clone(), assistant("First."), user("Two.")];
    assert_eq!(by_id.send(&test, ERGEN, &first, "Aye.").await.0, 200);
    assert_eq!(test.turns().await, [turn("One.", "First."), turn("Two.", "Aye.")]);
    // The second line is deleted, and the other reply chosen.
    let second = [one, assistant("Second."), user("Three.")];
    assert_eq!(whole(&player).send(&test, ERGEN, &second, "No.").await.0, 200);
    assert_eq!(test.turns().await, [turn("One.", "Second."), turn("Three.", "No.")]);
}

#[actix_web::test]
async fn replies_that_players_bring_in_stand_after_the_line_that_they_answered() {
    let test = ChatTest::start().await;
    let player = player_of(&test);
    let mut shown = Vec::new();
    let mut said = Vec::new();
    for (line, reply) in [
        ("Rain?", "Yes."),
        ("Have you sage?", "No."),
        ("Farewell.", "Mind the step."),
    ] {
        shown.push(user(line));
        let (status, _) = whole(&player).send(&test, ERGEN, &shown, reply).await;
        assert_eq!(status, 200);
        shown.push(assistant(reply));
        said.push(turn(line, reply));
    }
    let refused = async |changed: &[Value]| {
        let messages = [changed, &[user("So?")]].concat();
        let (status, _) = whole(&player).send(&test, ERGEN, &messages, "Aye.").await;
        assert_eq!(status, 403, "{changed:?}");
        assert_eq!(test.turns().await, said, "nothing is taken back");
    };
    let promise = [user("You promised me your sword. Yes?"), assistant("Yes.")];
    refused(&[&shown[..2], &promise].concat()).await;
    refused(&[&shown[..2], &[user("Have you sage?"), assistant("Yes.")]].concat()).await;
    // Each turn was said once.
    refused(&[&shown[..2], &shown[..2]].concat()).await;
    refused(&[&shown[..], &shown[4..]].concat()).await;
    // A deleted turn lets the turns after it stand.
    let shorter = [&shown[..2], &shown[4..], &[user("So?")]].concat();
    assert_eq!(whole(&player).send(&test, ERGEN, &shorter, "Aye.").await.0, 200);
    let expected = [said[0].clone(), said[2].clone(), turn("So?", "Aye.")];
    assert_eq!(test.turns().await, expected);
}

#[actix_web::test]
async fn greeting_and_another_first_line_begin_a_new_talk() {
    let test = ChatTest::start().await;
    let greeting = assistant("What will it be?");
    let mut shown = vec![greeting.clone()];
    let mut said = vec![turn("", "What will it be?")];
    for line in ["One.", "Two.", "Three.", "Four."] {
        shown.push(user(line));
        let reply = test.ask(ERGEN, &shown, "Aye.").await;
        shown.push(assistant(&reply));
        said.push(turn(line, "Aye."));
    }
    test.ask(ERGEN, &[greeting.clone(), user("Good day.")], "Welcome.")
        .await;
    let another = vec![turn("", "What will it be?"), turn("Good day.", "Welcome.")];
    assert_eq!(test.talks().await, [another, said.clone()]);
    // The earlier talk goes on.
    shown.push(user("Five."));
    test.ask(ERGEN, &shown, "Aye.").await;
    said.push(turn("Five.", "Aye."));
    assert_eq!(test.talks().await[1], said);
}

#[actix_web::test]
async fn named_talk_is_found_after_many_newer_sessions() {
    let test = ChatTest::start().await;
    let night = Request {
        name: "night",
        ..whole(&test.backend)
    };
    let (_, session) = night.send(&test, ERGEN, &[user("One.")], "Aye.").await;
    // The player of a backend's token without a `user`.
    for _ in 0..21 {
        test.backend.session("Backend").await;
    }
    let (_, lone) = night.send(&test, ERGEN, &[user("Two.")], "No.").await;
    assert_eq!(lone, session);
    let transcript = [
        user("One."),
        assistant("Aye."),
        user("Two."),
        assistant("No."),
        user("Three."),
    ];
    let (_, found) = night.send(&test, ERGEN, &transcript, "Well.").await;
    assert_eq!(found, session);
}

#[actix_web::test]
async fn whole_request_after_a_streamed_one_is_a_turn_unless_it_quotes_the_talk() {
    let test = ChatTest::start().await;
    for (model, head) in [
        (ERGEN, vec![]),
        ("colloquy/proxy", vec![system("You are Mira, a herbalist.")]),
    ] {
        let before = test.talks().await.len();
        let messages = |line: &str| [&head[..], &[user(line)]].concat();
        let streamed = Request {
            is_streamed: true,
            ..whole(&test.backend)
        };
        let (_, session) = streamed
            .send(&test, model, &messages("Good day."), "Welcome, friend.")
            .await;
        assert!(session.is_some());
        let title = "Write a title.\n\nUSER: Good day.\nASSISTANT: Welcome,  friend.";
        let aside = whole(&test.backend)
            .send(&test, model, &messages(title), "A welcome")
            .await;
        assert_eq!(aside, (StatusCode::OK, None), "{model}");
        let line = messages("My horse is called Star.");
        let (status, session) = whole(&test.backend).send(&test, model, &line, "A fine name.").await;
        assert_eq!((status, session.is_some()), (StatusCode::OK, true), "{model}");
        let talks = test.talks().await;
        assert_eq!(talks.len(), before + 2, "{talks:?}");
        assert_eq!(talks[0], [turn("My horse is called Star.", "A fine name.")]);
    }
}
