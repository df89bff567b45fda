//! Lines of chat programs: long ones, joined ones and refused ones.

use std::time::Duration;

use colloquy::{http::ChatSettings, tenancy::Role};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{
    budgets::set_budget,
    chat::{COMPLETIONS, assistant, complete, content, system, talks, turns, user},
    fakes::REPLY,
    harness::{HttpTestClient, HttpTestOptions, HttpTestServer},
};

const MODEL: &str = "vale/ergen";

async fn ask(client: &HttpTestClient, messages: &[Value]) -> (StatusCode, Value) {
    let body = json!({"model": MODEL, "messages": messages});
    client.call(Method::POST, COMPLETIONS, Some(&body)).await
}

#[actix_web::test]
async fn line_of_paragraphs_is_stored_whole_or_refused() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let paragraph = "The long road. ".repeat(43);
    let line = format!("{0}\n\n{0}\n\n{0}", paragraph.trim_end());
    complete(&client, MODEL, &[user(&line)]).await;
    let stored = turns(&[(&line, REPLY)]);
    assert_eq!(talks(&client, "vale").await, std::slice::from_ref(&stored));
    let long = format!("{line}\n\n{line}\n\nShort.");
    let (status, error) = ask(&client, &[user(&line), assistant(REPLY), user(&long)]).await;
    assert_eq!(
        (status, &error["error"]["code"]),
        (StatusCode::BAD_REQUEST, &json!("line_too_long"))
    );
    assert_eq!(error["error"]["param"], "messages");
    assert_eq!(talks(&client, "vale").await, [stored]);
}

#[actix_web::test]
async fn refused_line_takes_no_turn_back() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let operator = server.as_role(Role::Operator);
    let mut messages = Vec::new();
    for line in ["One.", "Two.", "Three."] {
        messages.push(user(line));
        let answer = complete(&client, MODEL, &messages).await;
        messages.push(assistant(content(&answer)));
    }
    let before = talks(&client, "vale").await;
    let (status, error) = ask(
        &client,
        &[messages[0].clone(), messages[1].clone(), user(&"a".repeat(2_500))],
    )
    .await;
    assert_eq!(
        (status, &error["error"]["code"]),
        (StatusCode::BAD_REQUEST, &json!("line_too_long"))
    );
    assert_eq!(talks(&client, "vale").await, before);
    set_budget(&operator, json!({"tokens_per_day": 1})).await;
    let edited = [messages[0].clone(), messages[1].clone(), user("Another one.")];
    let (status, error) = ask(&client, &edited).await;
    assert_eq!(
        (status, &error["error"]["code"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("budget_spent"))
    );
    assert_eq!(talks(&client, "vale").await, before);
}

#[actix_web::test]
async fn very_many_paragraphs_and_notes_are_read_in_time() {
    let server = HttpTestServer::with(HttpTestOptions {
        chat: ChatSettings::default(),
        ..HttpTestOptions::default()
    });
    server.start_demo_world().await;
    let player = server.client(server.token("acme", Role::Player, Some("ann")));
    let reply = "So it is. ".repeat(40_000);
    let notes = std::iter::repeat_n(system("[Rain.]"), 1_000);
    let talk: Vec<Value> = [user("Hi."), assistant(&reply)].into_iter().chain(notes).collect();
    for (messages, expected) in [
        (vec![user(&"a\n\n".repeat(300_000))], StatusCode::BAD_REQUEST),
        (talk, StatusCode::FORBIDDEN),
    ] {
        let answer = tokio::time::timeout(Duration::from_secs(10), ask(&player, &messages)).await;
        let (status, error) = answer.expect("an answer in time");
        assert_eq!(status, expected, "{error}");
    }
}
