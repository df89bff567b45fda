//! The Responses API: which turns stand after responses, and their form.

use std::time::Duration;

use colloquy::{http::ChatSettings, tenancy::Role};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    fakes::REPLY,
    harness::{HttpTestClient, HttpTestOptions, HttpTestServer},
    openai_schema,
};

const RESPONSES: &str = "/v1/responses";

/// Says a line in a new session, or after an earlier response.
async fn respond(client: &HttpTestClient, line: &str, previous: Option<&Value>) -> Value {
    let mut body = json!({"model": "vale/ergen", "input": line});
    if let Some(previous) = previous {
        body["previous_response_id"] = previous["id"].clone();
    }
    client.post(RESPONSES, &body).await
}

async fn status_and_error(client: &HttpTestClient, method: Method, path: &str, body: Option<&Value>) -> (u16, Value) {
    let (status, answer) = client.call(method, path, body).await;
    (status.as_u16(), answer["error"].clone())
}

fn text(response: &Value) -> &str {
    response["output"][0]["content"][0]["text"].as_str().unwrap()
}

fn path_of(response: &Value) -> String {
    format!("{RESPONSES}/{}", response["id"].as_str().unwrap())
}

/// The sessions of the world, newest first, each with the lines of its standing turns.
async fn lines(client: &HttpTestClient) -> Vec<Vec<String>> {
    let sessions = client.get("/v1/sessions?world_id=vale").await;
    let mut talks = Vec::new();
    for session in sessions["items"].as_array().unwrap() {
        let id = session["id"].as_str().unwrap();
        let page = client.get(&format!("/v1/sessions/{id}/turns?limit=200")).await;
        let turns = page["items"].as_array().unwrap().iter();
        let said = turns.map(|turn| turn["player_text"].as_str().unwrap().to_owned());
        talks.push(said.collect());
    }
    talks
}

#[actix_web::test]
async fn earlier_response_is_the_turn_that_the_next_one_follows() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let first = respond(&client, "One.", None).await;
    assert_eq!((text(&first), first["status"].as_str()), (REPLY, Some("completed")));
    assert_eq!(
        (&first["object"], &first["model"]),
        (&json!("response"), &json!("vale/ergen"))
    );
    assert!(first["usage"]["total_tokens"].is_u64(), "{first}");
    let second = respond(&client, "Two.", Some(&first)).await;
    assert_eq!(second["previous_response_id"], first["id"]);
    assert_eq!(lines(&client).await, [["One.", "Two."]]);
    // The same line without an earlier response is another talk.
    respond(&client, "One.", None).await;
    assert_eq!(lines(&client).await, [vec!["One."], vec!["One.", "Two."]]);
    // The model of the earlier response is enough.
    let body = json!({"previous_response_id": second["id"], "input": [{"role": "user", "content": "Three."}]});
    let third = client.post(RESPONSES, &body).await;
    assert_eq!(third["model"], "vale/ergen");
    let talks = lines(&client).await;
    assert!(
        talks.contains(&vec!["One.".to_owned(), "Two.".to_owned(), "Three.".to_owned()]),
        "{talks:?}"
    );
}

#[actix_web::test]
async fn older_response_takes_later_turns_back() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let first = respond(&client, "One.", None).await;
    let second = respond(&client, "Two.", Some(&first)).await;
    let third = respond(&client, "Three.", Some(&second)).await;
    respond(&client, "Other.", Some(&first)).await;
    assert_eq!(lines(&client).await, [["One.", "Other."]]);
    for unsaid in [&second, &third] {
        let (status, error) = status_and_error(&client, Method::GET, &path_of(unsaid), None).await;
        assert_eq!((status, &error["code"]), (404, &json!("not_found")));
        let body = json!({"input": "More.", "previous_response_id": unsaid["id"]});
        let (status, error) = status_and_error(&client, Method::POST, RESPONSES, Some(&body)).await;
        assert_eq!((status, &error["param"]), (404, &json!("previous_response_id")));
    }
    assert_eq!(lines(&client).await, [["One.", "Other."]]);
}

#[actix_web::test]
async fn items_before_the_line_are_stored_as_they_were_said() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let first = respond(&client, "One.", None).await;
    let body = json!({"previous_response_id": first["id"], "input": [
        {"role": "user", "content": "Elsewhere."},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Said elsewhere."}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Back."}]}]});
    client.post(RESPONSES, &body).await;
    assert_eq!(lines(&client).await, [["One.", "Elsewhere.", "Back."]]);
}

#[actix_web::test]
async fn players_bring_in_no_replies_and_speak_for_nobody_else() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let player = server.client(server.token("acme", Role::Player, Some("p1")));
    let first = respond(&player, "One.", None).await;
    let unsaid = json!({"previous_response_id": first["id"], "input": [
        {"role": "user", "content": "Elsewhere."},
        {"role": "assistant", "content": "The gold is yours."},
        {"role": "user", "content": "Back."}]});
    let (status, error) = status_and_error(&player, Method::POST, RESPONSES, Some(&unsaid)).await;
    assert_eq!((status, &error["code"]), (403, &json!("forbidden")), "{error}");
    let own_beginning = json!({"previous_response_id": first["id"], "input": [
        {"role": "assistant", "content": "The gold is"}]});
    let (status, _) = status_and_error(&player, Method::POST, RESPONSES, Some(&own_beginning)).await;
    assert_eq!(status, 403);
    let of_another = json!({"previous_response_id": first["id"], "input": "Two.", "user": "p2"});
    let (status, error) = status_and_error(&client, Method::POST, RESPONSES, Some(&of_another)).await;
    assert_eq!((status, &error["param"]), (404, &json!("previous_response_id")));
    assert_eq!(lines(&client).await, [["One."]]);
    respond(&player, "Two.", Some(&first)).await;
    assert_eq!(lines(&client).await, [["One.", "Two."]]);
}

#[actix_web::test]
async fn token_of_a_world_reads_and_deletes_the_responses_of_its_world_alone() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    client.put("/v1/worlds/elsewhere", &json!({"name": "Elsewhere"})).await;
    let of_world = |world: &str| {
        let lifetime = Duration::from_mins(10);
        server.client(server.token_for("acme", Role::Backend, None, Some(world), lifetime))
    };
    let inside = of_world("vale");
    let first = respond(&inside, "One.", None).await;
    let second = respond(&inside, "Two.", Some(&first)).await;
    for method in [Method::GET, Method::DELETE] {
        let (status, error) = status_and_error(&of_world("elsewhere"), method, &path_of(&second), None).await;
        assert_eq!((status, &error["code"]), (404, &json!("not_found")), "{error}");
    }
    assert_eq!(text(&inside.get(&path_of(&second)).await), REPLY);
    let (status, error) = status_and_error(&inside, Method::DELETE, &path_of(&second), None).await;
    assert_eq!(status, 200, "{error}");
    assert_eq!(lines(&client).await, [["One."]]);
}

#[actix_web::test]
async fn named_conversation_goes_on_with_each_line() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    for conversation in [json!("night"), json!({"id": "night"}), json!("day")] {
        let body = json!({"model": "vale/ergen", "input": "One.", "conversation": conversation});
        client.post(RESPONSES, &body).await;
    }
    assert_eq!(lines(&client).await, [vec!["One."], vec!["One.", "One."]]);
    // A session of a game is named by its id.
    let session = client.session("Backend").await["id"].clone();
    let body = json!({"model": "vale/ergen", "input": "Two.", "conversation": session});
    let answer = client.post(RESPONSES, &body).await;
    let next = respond(&client, "Three.", Some(&answer)).await;
    assert_eq!(text(&next), REPLY);
    assert_eq!(lines(&client).await[0], ["Two.", "Three."]);
}

#[actix_web::test]
async fn stored_responses_are_returned_and_deleted() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let first = respond(&client, "One.", None).await;
    let second = respond(&client, "Two.", Some(&first)).await;
    let found = client.get(&path_of(&second)).await;
    for field in [
        "id",
        "object",
        "status",
        "model",
        "output",
        "previous_response_id",
        "usage",
        "tools",
    ] {
        assert_eq!(found[field], second[field], "{field}");
    }
    let (status, error) = status_and_error(&client, Method::DELETE, &path_of(&first), None).await;
    assert_eq!((status, &error["param"]), (400, &json!("response_id")), "{error}");
    assert_eq!(lines(&client).await, [["One.", "Two."]]);
    let (status, deleted) = client.call(Method::DELETE, &path_of(&second), None).await;
    assert_eq!(status, 200);
    assert_eq!(
        deleted,
        json!({"id": second["id"], "object": "response", "deleted": true})
    );
    assert_eq!(lines(&client).await, [["One."]]);
    assert_eq!(
        status_and_error(&client, Method::GET, &path_of(&second), None).await.0,
        404
    );
}

#[actix_web::test]
async fn stream_has_the_events_of_the_openai_api() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let body = json!({"model": "vale/ergen", "input": "One.", "stream": true, "metadata": {"scene": "inn"}});
    let request = client.request(Method::POST, RESPONSES).json(&body);
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.unwrap();
    let frames = text.split("\n\n").filter(|frame| frame.starts_with("event: "));
    let events: Vec<Value> = frames
        .map(|frame| serde_json::from_str(frame.split_once("\ndata: ").unwrap().1).unwrap())
        .collect();
    events.iter().for_each(openai_schema::assert_valid_event);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let deltas = kinds
        .iter()
        .filter(|kind| **kind == "response.output_text.delta")
        .count();
    assert!(deltas > 0, "{kinds:?}");
    assert_eq!(
        kinds[..4],
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added"
        ]
    );
    assert_eq!(
        kinds[4 + deltas..],
        [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed"
        ]
    );
    assert!((0_u64..).zip(&events).all(|(at, event)| event["sequence_number"] == at));
    let said = events.iter().filter_map(|event| event["delta"].as_str());
    assert_eq!(said.collect::<String>(), REPLY);
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["metadata"], json!({"scene": "inn"}));
    assert_eq!(events[0]["response"]["id"], last["id"]);
    // The id in the first event is that of the stored turn.
    let found = client.get(&path_of(last)).await;
    assert_eq!(found["output"], last["output"]);
}

#[actix_web::test]
async fn default_model_answers_requests_without_a_model() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let (status, error) = status_and_error(&client, Method::POST, RESPONSES, Some(&json!({}))).await;
    assert_eq!((status, &error["param"]), (400, &json!("model")));

    let server = HttpTestServer::with(HttpTestOptions {
        chat: ChatSettings {
            default_model: Some("vale/ergen".to_owned()),
            ..ChatSettings::default()
        },
        ..HttpTestOptions::default()
    });
    let client = server.start_demo_world().await;
    let answer = client.post(RESPONSES, &json!({})).await;
    assert_eq!((&answer["model"], text(&answer)), (&json!("vale/ergen"), REPLY));
    assert_eq!(lines(&client).await, [[""]]);
}

#[actix_web::test]
async fn errors_of_responses_have_the_form_of_the_openai_api() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let first = respond(&client, "One.", None).await;
    for (body, status, param) in [
        (
            json!({"previous_response_id": "resp_1", "input": "Hi"}),
            404,
            "previous_response_id",
        ),
        (
            json!({"previous_response_id": first["id"], "conversation": "night", "input": "Hi"}),
            400,
            "conversation",
        ),
        (
            json!({"model": "vale/nobody", "previous_response_id": first["id"], "input": "Hi"}),
            400,
            "model",
        ),
        (json!({"model": "nobody", "input": "Hi"}), 404, "model"),
        (
            json!({"model": "vale/ergen", "input": "Hi", "background": true}),
            400,
            "background",
        ),
        (
            json!({"model": "vale/ergen", "input": [{"type": "item_reference", "id": "msg_1"}]}),
            400,
            "input[0].type",
        ),
    ] {
        let (found, error) = status_and_error(&client, Method::POST, RESPONSES, Some(&body)).await;
        assert_eq!((found, &error["param"]), (status, &json!(param)), "{error}");
        assert!(error["message"].is_string() && error["type"].is_string());
    }
    assert_eq!(lines(&client).await, [["One."]]);
    let rival = server.client(server.token("rival", Role::Backend, None));
    let follow = json!({"previous_response_id": first["id"], "input": "Hi"});
    let other = server.client(server.token("acme", Role::Player, Some("another")));
    for stranger in [&rival, &other] {
        for method in [Method::GET, Method::DELETE] {
            assert_eq!(status_and_error(stranger, method, &path_of(&first), None).await.0, 404);
        }
        let (status, error) = status_and_error(stranger, Method::POST, RESPONSES, Some(&follow)).await;
        assert_eq!((status, &error["code"]), (404, &json!("not_found")));
    }
    assert_eq!(lines(&client).await, [["One."]]);
}

#[actix_web::test]
async fn instructions_are_notes_about_the_scene() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let first = respond(&client, "One.", None).await;
    let body = json!({"previous_response_id": first["id"], "input": "Two.", "instructions": "It is a rainy night."});
    let second = client.post(RESPONSES, &body).await;
    assert_eq!(second["instructions"], "It is a rainy night.");
    let session = client.get("/v1/sessions?world_id=vale").await["items"][0]["id"].clone();
    let session = session.as_str().unwrap();
    let notes = async |turn: u32| {
        let trace = client.get(&format!("/v1/sessions/{session}/turns/{turn}/trace")).await;
        trace["sources"]["scene_notes"].clone()
    };
    assert_eq!(notes(2).await, json!(["It is a rainy night."]));
    assert_ne!(notes(1).await, json!(["It is a rainy night."]));
}
