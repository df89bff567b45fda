//! The paths of the OpenAI API: which turns stand after requests of chat programs.

use colloquy::{http::ChatSettings, tenancy::Role};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    fakes::REPLY,
    harness::{HttpTestClient, HttpTestOptions, HttpTestServer, json_of},
    openai_schema,
};

pub(super) const COMPLETIONS: &str = "/v1/chat/completions";

pub(super) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub(super) fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

pub(super) fn system(text: &str) -> Value {
    json!({"role": "system", "content": text})
}

pub(super) async fn complete(client: &HttpTestClient, model: &str, messages: &[Value]) -> Value {
    client
        .post(COMPLETIONS, &json!({"model": model, "messages": messages}))
        .await
}

pub(super) fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

/// The standing turns of a session, as (line, reply).
pub(super) async fn turns_of(client: &HttpTestClient, session: &str) -> Vec<(String, String)> {
    let page = client.get(&format!("/v1/sessions/{session}/turns?limit=200")).await;
    let text = |turn: &Value, name: &str| turn[name].as_str().unwrap().to_owned();
    let turns = page["items"].as_array().unwrap().iter();
    turns
        .map(|turn| (text(turn, "player_text"), text(turn, "reply_text")))
        .collect()
}

/// The sessions of a world, newest first, each with its standing turns as (line, reply).
pub(super) async fn talks(client: &HttpTestClient, world: &str) -> Vec<Vec<(String, String)>> {
    let sessions = client.get(&format!("/v1/sessions?world_id={world}")).await;
    let mut talks = Vec::new();
    for session in sessions["items"].as_array().unwrap() {
        talks.push(turns_of(client, session["id"].as_str().unwrap()).await);
    }
    talks
}

pub(super) fn turns(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = expected
        .iter()
        .map(|(line, reply)| ((*line).to_owned(), (*reply).to_owned()));
    owned.collect()
}

#[actix_web::test]
async fn transcript_decides_which_turns_stand() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let ask = async |messages: &[Value]| complete(&client, "vale/ergen", messages).await;
    let greeting = assistant("What will it be?");
    let (one, two) = ([greeting.clone(), user("One.")], [assistant(REPLY), user("Two.")]);
    let first = ask(&one).await;
    assert_eq!(content(&first), REPLY);
    assert_eq!(first["object"], "chat.completion");
    assert_eq!(first["choices"][0]["finish_reason"], "stop");
    ask(&[&one[..], &two].concat()).await;
    let said = turns(&[("", "What will it be?"), ("One.", REPLY), ("Two.", REPLY)]);
    assert_eq!(talks(&client, "vale").await, std::slice::from_ref(&said));

    // The same last line again: the reply is said anew.
    ask(&[&one[..], &two].concat()).await;
    assert_eq!(talks(&client, "vale").await, [said]);

    // An edited line takes back the turns from there, and the talk goes on with the edited ones.
    let edited = [
        &one[..],
        &[
            assistant(REPLY),
            user("Dos."),
            assistant("A reply of old."),
            user("Three."),
        ],
    ]
    .concat();
    ask(&edited).await;
    let said = turns(&[
        ("", "What will it be?"),
        ("One.", REPLY),
        ("Dos.", "A reply of old."),
        ("Three.", REPLY),
    ]);
    assert_eq!(talks(&client, "vale").await, [said]);

    // The last messages were deleted.
    ask(&[&one[..], &[assistant(REPLY), user("Four.")]].concat()).await;
    let said = turns(&[("", "What will it be?"), ("One.", REPLY), ("Four.", REPLY)]);
    assert_eq!(talks(&client, "vale").await, [said]);

    // The front was cut away.
    ask(&[user("Four."), assistant(REPLY), user("Five.")]).await;
    let said = turns(&[
        ("", "What will it be?"),
        ("One.", REPLY),
        ("Four.", REPLY),
        ("Five.", REPLY),
    ]);
    assert_eq!(talks(&client, "vale").await, std::slice::from_ref(&said));

    // A talk that shares no line is a talk of its own.
    ask(&[user("Hello.")]).await;
    assert_eq!(talks(&client, "vale").await, [turns(&[("Hello.", REPLY)]), said]);
}

#[actix_web::test]
async fn beginning_of_a_reply_in_the_transcript_is_what_was_heard() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    complete(&client, "vale:ergen", &[user("One.")]).await;
    let heard: String = REPLY.chars().take(5).collect();
    complete(&client, "vale:ergen", &[user("One."), assistant(&heard), user("What?")]).await;
    let heard = heard.trim_end();
    assert_eq!(
        talks(&client, "vale").await,
        [turns(&[("One.", heard), ("What?", REPLY)])]
    );
}

#[actix_web::test]
async fn reply_at_the_end_of_the_transcript_goes_on() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    complete(&client, "vale/ergen", &[user("One.")]).await;
    let more = complete(&client, "vale/ergen", &[user("One."), assistant(REPLY)]).await;
    let whole = format!("{REPLY}{}", content(&more));
    assert!(!content(&more).is_empty());
    assert_eq!(talks(&client, "vale").await, [turns(&[("One.", &whole)])]);
}

#[actix_web::test]
async fn first_of_several_replies_stands_until_another_is_shown() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let body = json!({"model": "vale/ergen", "messages": [user("One.")], "n": 3});
    let answer = client.post(COMPLETIONS, &body).await;
    let indexes: Vec<_> = answer["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|choice| choice["index"].clone())
        .collect();
    assert_eq!(indexes, [0, 1, 2]);
    assert_eq!(talks(&client, "vale").await, [turns(&[("One.", REPLY)])]);
    complete(
        &client,
        "vale/ergen",
        &[user("One."), assistant("Another one."), user("Two.")],
    )
    .await;
    assert_eq!(
        talks(&client, "vale").await,
        [turns(&[("One.", "Another one."), ("Two.", REPLY)])]
    );
}

#[actix_web::test]
async fn stream_has_the_chunks_of_the_openai_api() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let body = json!({"model": "vale/ergen", "messages": [user("One.")], "stream": true,
        "stream_options": {"include_usage": true}});
    let response = client
        .request(Method::POST, COMPLETIONS)
        .json(&body)
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert!(response.headers().contains_key("x-colloquy-session"));
    let text = response.text().await.unwrap();
    let frames: Vec<&str> = text.split("\n\n").filter(|frame| !frame.is_empty()).collect();
    assert_eq!(frames.last(), Some(&"data: [DONE]"));
    let chunks = frames[..frames.len() - 1]
        .iter()
        .map(|frame| frame.strip_prefix("data: ").unwrap());
    let chunks: Vec<Value> = chunks.map(|json| serde_json::from_str(json).unwrap()).collect();
    chunks.iter().for_each(openai_schema::assert_valid_event);
    let said = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
    assert_eq!(said.collect::<String>(), REPLY);
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let usage = chunks.last().unwrap();
    assert_eq!(
        (
            usage["choices"].as_array().unwrap().len(),
            usage["usage"]["total_tokens"].is_u64()
        ),
        (0, true)
    );
    assert_eq!(chunks[chunks.len() - 2]["choices"][0]["finish_reason"], "stop");
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["id"] == chunks[0]["id"] && chunk["object"] == "chat.completion.chunk")
    );
}

#[actix_web::test]
async fn character_of_the_chat_program_gets_a_world_of_its_own() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let head = system("Write Mira's next reply in a fictional chat between Mira and Ann.");
    let body = |messages: &[Value]| json!({"model": "colloquy/proxy", "user": "ann", "messages": messages, "top_k": 5});
    let first = [head.clone(), assistant("Herbs?"), user("My name is Ann.")];
    client.post(COMPLETIONS, &body(&first)).await;
    let models = client.get("/v1/models").await;
    let ids: Vec<&str> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    let made = ids
        .iter()
        .find(|id| id.ends_with("/mira"))
        .unwrap_or_else(|| panic!("no Mira in {ids:?}"));
    let world = made.split('/').next().unwrap();
    let said = turns(&[("", "Herbs?"), ("My name is Ann.", REPLY)]);
    assert_eq!(talks(&client, world).await, [said]);
    // The text of the chat program is at the head of the prompt, to the letter.
    let session = client.get(&format!("/v1/sessions?world_id={world}")).await["items"][0]["id"].clone();
    let trace = client
        .get(&format!(
            "/v1/sessions/{}/turns/2/trace?verify=1",
            session.as_str().unwrap()
        ))
        .await;
    assert_eq!(trace["verification"]["same"], Value::Null, "{trace}");
    // Another player's character is another NPC.
    let other = json!({"model": "colloquy/proxy", "user": "bob", "messages": first});
    client.post(COMPLETIONS, &other).await;
    assert_eq!(talks(&client, world).await.len(), 1);
}

#[actix_web::test]
async fn errors_have_the_form_of_the_openai_api() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let call = async |body: &Value| {
        json_of(
            client
                .request(Method::POST, COMPLETIONS)
                .json(body)
                .send()
                .await
                .unwrap(),
        )
        .await
    };
    for (body, status, code, param) in [
        (
            json!({"model": "vale/ergen", "messages": []}),
            400,
            "validation_failed",
            json!("messages"),
        ),
        (
            json!({"model": "nobody", "messages": [user("Hi")]}),
            404,
            "not_found",
            json!("model"),
        ),
        (
            json!({"model": "vale/nobody", "messages": [user("Hi")]}),
            404,
            "not_found",
            json!("model"),
        ),
        (
            json!({"model": "vale/ergen", "messages": [user(&"x".repeat(3_000))]}),
            400,
            "line_too_long",
            json!("messages"),
        ),
        (json!([]), 400, "validation_failed", json!("body")),
    ] {
        let (found, answer) = call(&body).await;
        assert_eq!(
            (found.as_u16(), &answer["error"]["code"], &answer["error"]["param"]),
            (status, &json!(code), &param),
            "{answer}"
        );
        assert!(answer["error"]["message"].is_string() && answer["error"]["type"].is_string());
    }
    let large = json!({"model": "vale/ergen", "messages": [user(&"x".repeat(300_000))]});
    assert_eq!(call(&large).await.0, 413);
    let viewer = server.as_role(Role::Viewer);
    let (status, answer) = json_of(
        viewer
            .request(Method::POST, COMPLETIONS)
            .json(&json!({}))
            .send()
            .await
            .unwrap(),
    )
    .await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["type"]),
        (403, &json!("permission_error"))
    );
    let stranger = server.client("nonsense".to_owned());
    let (status, answer) = json_of(stranger.request(Method::GET, "/v1/models").send().await.unwrap()).await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"]),
        (401, &json!("unauthenticated"))
    );
    let rival = server.client(server.token("rival", Role::Backend, None));
    let (status, _) = json_of(
        rival
            .request(Method::POST, COMPLETIONS)
            .json(&json!({"model": "vale/ergen", "messages": [user("Hi")]}))
            .send()
            .await
            .unwrap(),
    )
    .await;
    assert_eq!(status, 404);
}

#[actix_web::test]
async fn players_see_models_and_no_prompt_sizes() {
    let server = HttpTestServer::start();
    server.start_demo_world().await;
    let player = server.as_role(Role::Player);
    let models = player.get("/v1/models").await;
    assert_eq!(models["data"][0]["id"], "vale/ergen");
    assert_eq!(
        models["data"].as_array().unwrap().len(),
        1,
        "no characters of their own"
    );
    assert_eq!(player.get("/v1/models/vale/ergen").await["object"], "model");
    let answer = complete(&player, "vale/ergen", &[user("Hi")]).await;
    assert_eq!(answer["usage"]["prompt_tokens"], 0);
    let refused = json!({"model": "colloquy/proxy", "messages": [user("Hi")]});
    assert_eq!(player.call(Method::POST, COMPLETIONS, Some(&refused)).await.0, 403);
}

#[actix_web::test]
async fn further_names_mean_npcs_of_their_tenant() {
    let named = json!([{"name": "gpt-4o", "tenant": "acme", "world": "vale", "npc": "ergen"},
        {"name": "writer", "proxy": true, "world": "tales"}]);
    let server = HttpTestServer::with(HttpTestOptions {
        chat: ChatSettings {
            models: serde_json::from_value(named).unwrap(),
            allowed_origins: vec!["https://chat.example".to_owned()],
            ..ChatSettings::default()
        },
        ..HttpTestOptions::default()
    });
    let client = server.start_demo_world().await;
    complete(&client, "gpt-4o", &[user("Hi")]).await;
    assert_eq!(talks(&client, "vale").await, [turns(&[("Hi", REPLY)])]);
    complete(&client, "writer", &[system("You are Tom."), user("Hi")]).await;
    assert_eq!(client.get("/v1/worlds/tales/npcs/tom").await["name"], "Tom");
    let rival = server.client(server.token("rival", Role::Backend, None));
    let body = json!({"model": "gpt-4o", "messages": [user("Hi")]});
    assert_eq!(rival.call(Method::POST, COMPLETIONS, Some(&body)).await.0, 404);

    let preflight = client
        .request(Method::OPTIONS, COMPLETIONS)
        .header("origin", "https://chat.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,content-type");
    let response = preflight.send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(
        response.headers()["access-control-allow-origin"],
        "https://chat.example"
    );
}

/// The ids that `GET /v1/models` lists.
async fn model_ids(client: &HttpTestClient) -> Vec<String> {
    let models = client.get("/v1/models").await;
    let models = models["data"].as_array().unwrap().iter();
    models.map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

#[actix_web::test]
async fn tenant_keeps_model_names_of_its_own() {
    let configured = json!([{"name": "gpt-4o", "proxy": true, "world": "tales"}, {"name": "shared", "proxy": true}]);
    let server = HttpTestServer::with(HttpTestOptions {
        chat: ChatSettings {
            models: serde_json::from_value(configured).unwrap(),
            ..ChatSettings::default()
        },
        ..HttpTestOptions::default()
    });
    let client = server.start_demo_world().await;
    assert_eq!(client.get("/v1/chat-models").await, json!({"models": []}));
    let body = json!({"models": [{"name": "gpt-4o", "world_id": "vale", "npc_id": "ergen"},
        {"name": "teller", "proxy": true, "world_id": "stories", "settings": {"gossip": true, "items": ["rope"]}}]});
    let put = |tag: (&'static str, &'static str)| {
        let request = client.request(Method::PUT, "/v1/chat-models").header(tag.0, tag.1);
        request.json(&body).send()
    };
    assert_eq!(put(("if-match", "*")).await.unwrap().status(), 412);
    let (made, view) = json_of(put(("if-none-match", "*")).await.unwrap()).await;
    assert_eq!((made.as_u16(), &view["models"][0]["npc_id"]), (201, &json!("ergen")));
    assert_eq!(put(("if-none-match", "*")).await.unwrap().status(), 412);
    assert_eq!(put(("if-match", "\"1\"")).await.unwrap().status(), 200);
    assert_eq!(client.get("/v1/chat-models").await, view);

    // The tenant's name comes before that of the configuration.
    complete(&client, "gpt-4o", &[user("Hi")]).await;
    assert_eq!(talks(&client, "vale").await, [turns(&[("Hi", REPLY)])]);
    complete(&client, "teller", &[system("You are Tom."), user("Hi")]).await;
    let world = client.get("/v1/worlds/stories").await;
    assert_eq!(world["settings"], json!({"gossip": true, "items": ["rope"]}));
    let listed = model_ids(&client).await;
    for (name, times) in [("gpt-4o", 1), ("teller", 1), ("shared", 1), ("colloquy/proxy", 1)] {
        assert_eq!(
            listed.iter().filter(|id| *id == name).count(),
            times,
            "{name}: {listed:?}"
        );
    }

    // Other tenants have the names of the configuration alone.
    let rival = server.client(server.token("rival", Role::Backend, None));
    assert_eq!(rival.get("/v1/chat-models").await, json!({"models": []}));
    assert_eq!(model_ids(&rival).await, ["gpt-4o", "shared", "colloquy/proxy"]);
    let asked = json!({"model": "teller", "messages": [user("Hi")]});
    assert_eq!(rival.call(Method::POST, COMPLETIONS, Some(&asked)).await.0, 404);

    // Without the row, the name of the configuration counts again.
    client.put("/v1/chat-models", &json!({"models": []})).await;
    complete(&client, "gpt-4o", &[system("You are Ida."), user("Hi")]).await;
    assert_eq!(client.get("/v1/worlds/tales/npcs/ida").await["name"], "Ida");
    let audit = server.as_role(Role::Admin).get("/v1/audit").await.to_string();
    assert!(audit.contains("chat_models.put"), "{audit}");
}

#[actix_web::test]
async fn faulty_model_names_are_named_and_change_nothing() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let good = json!({"name": "smith", "world_id": "vale", "npc_id": "ergen"});
    client.put("/v1/chat-models", &json!({"models": [good]})).await;
    for (row, param) in [
        (json!({"name": "smith", "proxy": true}), "models[1].name"),
        (json!({"name": "", "proxy": true}), "models[1].name"),
        (json!({"name": "a\nb", "proxy": true}), "models[1].name"),
        (json!({"proxy": true}), "models[1].name"),
        (
            json!({"name": "a", "world_id": "vale", "npc_id": "ergen", "proxy": true}),
            "models[1].npc_id",
        ),
        (json!({"name": "a", "world_id": "vale"}), "models[1].npc_id"),
        (json!({"name": "a", "npc_id": "ergen"}), "models[1].world_id"),
        (json!({"name": "a"}), "models[1].npc_id"),
        (
            json!({"name": "a", "world_id": "vale", "npc_id": "nobody"}),
            "models[1].npc_id",
        ),
        (
            json!({"name": "a", "world_id": "Not an id", "npc_id": "ergen"}),
            "models[1].world_id",
        ),
        (
            json!({"name": "a", "proxy": true, "upstream": "unknown"}),
            "models[1].upstream",
        ),
        (
            json!({"name": "a", "world_id": "vale", "npc_id": "ergen", "upstream": "x"}),
            "models[1].upstream",
        ),
        (
            json!({"name": "a", "world_id": "vale", "npc_id": "ergen", "settings": {"gossip": true}}),
            "models[1].settings",
        ),
        (
            json!({"name": "a", "proxy": true, "settings": {"models": {"judge": "x"}}}),
            "models[1].settings.models.judge",
        ),
        (
            json!({"name": "a", "proxy": true, "settings": {"recall": {"top_k": 101}}}),
            "models[1].settings.recall",
        ),
        (
            json!({"name": "a", "proxy": true, "tenant": "rival"}),
            "models[1].tenant",
        ),
    ] {
        let body = json!({"models": [good, row]});
        let (status, answer) = client.call(Method::PUT, "/v1/chat-models", Some(&body)).await;
        assert_eq!(status, 422, "{row}: {answer}");
        assert!(
            answer["errors"].to_string().contains(&format!("\"{param}")),
            "{row}: {answer}"
        );
    }
    let many: Vec<Value> = (0..101)
        .map(|at| json!({"name": format!("n{at}"), "proxy": true}))
        .collect();
    let (status, _) = client
        .call(Method::PUT, "/v1/chat-models", Some(&json!({"models": many})))
        .await;
    assert_eq!(status, 422);
    let stored = client.get("/v1/chat-models").await;
    assert_eq!(stored["models"].as_array().unwrap().len(), 1, "{stored}");
}

#[actix_web::test]
async fn simultaneous_requests_for_a_session_double_no_turn() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    complete(&client, "vale/ergen", &[user("One.")]).await;
    let sessions = client.get("/v1/sessions?world_id=vale").await;
    let session = sessions["items"][0]["id"].as_str().unwrap();
    let mut said = turns(&[("One.", REPLY)]);
    for round in 0..8 {
        // The same transcript, under no name and under the id of the session.
        said.extend((0..3).map(|at| (format!("Line {round}-{at}."), format!("Reply {round}-{at}."))));
        let messages = said.iter().flat_map(|(line, reply)| [user(line), assistant(reply)]);
        let last = format!("Line {round}.");
        let messages: Vec<Value> = messages.chain([user(&last)]).collect();
        let body = json!({"model": "vale/ergen", "messages": messages});
        let ask = async |name: Option<&str>| {
            let request = client.request(Method::POST, COMPLETIONS).json(&body);
            let request = match name {
                Some(name) => request.header("x-colloquy-session", name),
                None => request,
            };
            json_of(request.send().await.unwrap()).await
        };
        let (unnamed, named) = tokio::join!(ask(None), ask(Some(session)));
        assert!(unnamed.0 == 200 || named.0 == 200, "{unnamed:?} {named:?}");
        for (status, answer) in [unnamed, named] {
            let refused = ["stale_head", "turn_in_progress", "turn_unsaid"].map(Value::from);
            assert!(
                status == 200 || status == 409 && refused.contains(&answer["error"]["code"]),
                "{answer}"
            );
        }
        said.push((last, REPLY.to_owned()));
        assert_eq!(talks(&client, "vale").await, std::slice::from_ref(&said));
    }
}

#[actix_web::test]
async fn header_names_the_talk() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let ask = async |name: &str, messages: &[Value]| {
        let request = client
            .request(Method::POST, COMPLETIONS)
            .header("x-colloquy-session", name);
        let body = json!({"model": "vale/ergen", "messages": messages});
        json_of(request.json(&body).send().await.unwrap()).await.0.as_u16()
    };
    // A program that names the talk may send its last line alone.
    for line in ["One.", "Two."] {
        assert_eq!(ask("slot-1", &[user(line)]).await, 200);
    }
    assert_eq!(
        talks(&client, "vale").await,
        [turns(&[("One.", REPLY), ("Two.", REPLY)])]
    );
    assert_eq!(ask("slot-2", &[user("One.")]).await, 200);
    assert_eq!(talks(&client, "vale").await.len(), 2);
    // A session of the game is reached by its id only.
    let session = client.session("Backend").await["id"].as_str().unwrap().to_owned();
    assert_eq!(ask(&session, &[user("Three.")]).await, 200);
    assert_eq!(talks(&client, "vale").await[0], turns(&[("Three.", REPLY)]));
    assert_eq!(ask(&session, &[system("Nothing.")]).await, 400);
    assert_eq!(ask("ses_00000000000000000000000000", &[user("Hi")]).await, 404);
}

#[actix_web::test]
async fn notes_about_the_scene_are_in_the_prompt_and_in_the_trace() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let messages = [system("It is a rainy night."), user("One.")];
    complete(&client, "vale/ergen", &messages).await;
    let session = client.get("/v1/sessions?world_id=vale").await["items"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let trace = client
        .get(&format!("/v1/sessions/{session}/turns/1/trace?verify=1"))
        .await;
    assert_eq!(
        trace["sources"]["scene_notes"],
        json!(["It is a rainy night."]),
        "{trace}"
    );
    assert_eq!(trace["verification"]["same"], true, "{trace}");
    let sections = trace["sections"].as_array().unwrap();
    assert!(
        sections.iter().any(|section| section["name"] == "scene_notes"),
        "{trace}"
    );
}
