//! Tenants' budgets over REST and sockets, and the models that NPCs may name.

use colloquy::tenancy::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    harness::{HttpTestClient, HttpTestOptions, HttpTestServer},
    roles::sample_body,
};

fn report_line(report: &Value, name: &str) -> Value {
    let lines = report["budgets"].as_array().unwrap();
    lines.iter().find(|line| line["budget"] == name).unwrap().clone()
}

pub(super) async fn set_budget(operator: &HttpTestClient, budget: Value) -> Value {
    let body = json!({"budget": budget});
    let (status, tenant) = operator.call(Method::PATCH, "/v1/tenants/acme", Some(&body)).await;
    assert_eq!(status, 200, "{tenant}");
    tenant["budget"].clone()
}

/// Returns the status, code and wait in seconds of a refused POST.
async fn post_rejected(client: &HttpTestClient, path: &str, body: &Value) -> (u16, String, u64) {
    let response = client.request(Method::POST, path).json(body).send().await.unwrap();
    let status = response.status().as_u16();
    let wait = response.headers().get("retry-after").unwrap().to_str().unwrap().parse();
    let problem: Value = response.json().await.unwrap();
    (status, problem["code"].as_str().unwrap().to_owned(), wait.unwrap())
}

/// Returns the path for turns of a new session.
async fn new_turns_path(client: &HttpTestClient, player: &str) -> String {
    let session = client.session(player).await;
    format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap())
}

#[actix_web::test]
async fn token_budget_of_a_day_rejects_only_its_own_tenant_when_used_up() {
    let server = HttpTestServer::start();
    let (client, operator) = (server.start_demo_world().await, server.as_role(Role::Operator));
    let path = new_turns_path(&client, "p1").await;
    let hello = json!({"text": "hello there"});
    let report = client.get("/v1/usage").await;
    let tokens = report_line(&report, "tokens_per_day");
    assert_eq!((&tokens["limit"], &tokens["warning"]), (&Value::Null, &Value::Null));

    let given = set_budget(&operator, json!({"tokens_per_day": 1})).await;
    assert_eq!(given["tokens_per_day"], 1);
    client.post(&path, &hello).await;
    let (status, code, wait) = post_rejected(&client, &path, &hello).await;
    assert_eq!((status, code.as_str()), (429, "budget_spent"));
    assert!(wait <= 86_400, "{wait}");
    // A socket gets the same error, and no turn.
    let mut socket = server.socket(&server.token("acme", Role::Player, Some("p7"))).await;
    let session = socket.session().await;
    let say = json!({"type": "player.say", "session_id": session, "text": "hello there"});
    socket.send(say.clone()).await;
    let done = socket.until_event("reply.done").await;
    assert_eq!(
        (&done["status"], &done["error"]["code"]),
        (&json!("failed"), &json!("budget_spent"))
    );
    assert!(
        done["error"]["retry_after_ms"].as_u64().unwrap() <= 86_400_000,
        "{done}"
    );
    // Manual facts cannot be embedded either.
    let fact = sample_body("/v1/worlds/{world}/npcs/{npc}/facts");
    let (status, code, _) = post_rejected(&client, "/v1/worlds/vale/npcs/ergen/facts", &fact).await;
    assert_eq!((status, code.as_str()), (429, "budget_spent"));
    let report = client.get("/v1/usage").await;
    let tokens = report_line(&report, "tokens_per_day");
    assert_eq!((&tokens["limit"], &tokens["warning"]), (&json!(1.0), &json!("spent")));
    assert!(tokens["used"].as_f64().unwrap() >= 15.0, "{tokens}");
    let tomorrow = tokens["resets_at"].as_str().unwrap();
    assert!(tomorrow.ends_with("T00:00:00Z"), "{tomorrow}");

    // Another tenant's budget is unaffected. Calls without a model are not refused.
    let rival = server.client(server.token("rival", Role::Admin, None));
    rival.put("/v1/worlds/vale", &json!({"name": "Vale"})).await;
    rival.put("/v1/worlds/vale/npcs/ergen", &json!({"name": "Ergen"})).await;
    let theirs = new_turns_path(&rival, "p1").await;
    rival.post(&theirs, &hello).await;
    assert_eq!(client.get(&path).await["items"].as_array().unwrap().len(), 1);

    // With a larger budget, turns continue. Refused turns left no data.
    assert_eq!(set_budget(&operator, json!({})).await, Value::Null);
    client.post(&path, &hello).await;
    socket.send(say).await;
    assert_eq!(socket.until_event("reply.done").await["turn"], 1);
}

#[actix_web::test]
async fn money_budget_of_a_day_uses_the_prices_of_models() {
    let price: Vec<_> = ["fake=1000000/0/1000000", "small=1/1/1"]
        .map(|price| price.parse().unwrap())
        .into();
    let server = HttpTestServer::with(HttpTestOptions {
        prices: price,
        ..HttpTestOptions::default()
    });
    let (client, operator) = (server.start_demo_world().await, server.as_role(Role::Operator));
    let path = new_turns_path(&client, "p1").await;
    let hello = json!({"text": "hello there"});
    // A reply uses ten tokens at price 1 and five at price 1.
    set_budget(&operator, json!({"cost_per_day": 14.5})).await;
    client.post(&path, &hello).await;
    assert_eq!(post_rejected(&client, &path, &hello).await.1, "budget_spent");
    let report = client.get("/v1/usage").await;
    let cost = report_line(&report, "cost_per_day");
    assert!(cost["used"].as_f64().unwrap() >= 15.0, "{cost}");
    assert_eq!(cost["warning"], "spent");

    // Without a model's price, costs cannot be counted.
    let server = HttpTestServer::start();
    let operator = server.as_role(Role::Operator);
    let body = json!({"budget": {"cost_per_day": 1}});
    let (status, problem) = operator.call(Method::PATCH, "/v1/tenants/acme", Some(&body)).await;
    assert_eq!(
        (status.as_u16(), &problem["param"]),
        (422, &json!("budget.cost_per_day"))
    );
}

#[actix_web::test]
async fn storage_budget_limits_stored_rows() {
    let server = HttpTestServer::start();
    let (client, operator) = (server.start_demo_world().await, server.as_role(Role::Operator));
    let path = new_turns_path(&client, "p1").await;
    let hello = json!({"text": "hello there"});
    client.post(&path, &hello).await;
    set_budget(&operator, json!({"dialogues": 3, "turns": 3})).await;
    let talk = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "auto": false});
    client.put("/v1/worlds/vale/npcs/mira", &json!({"name": "Mira"})).await;
    client.post("/v1/npc-conversations", &talk).await;
    let report = client.get("/v1/usage").await;
    assert_eq!(
        report_line(&report, "dialogues")["used"],
        2.0,
        "what was there before is counted"
    );
    new_turns_path(&client, "p3").await;
    let session = json!({"world_id": "vale", "npc_ids": ["ergen"], "player_id": "p4"});
    for (path, body) in [("/v1/sessions", &session), ("/v1/npc-conversations", &talk)] {
        let (status, code, wait) = post_rejected(&client, path, body).await;
        assert_eq!((status, code.as_str(), wait), (429, "budget_spent", 3_600), "{path}");
    }
    client.post(&path, &hello).await;
    let report = client.get("/v1/usage").await;
    let stored = report_line(&report, "turns");
    assert_eq!((&stored["used"], &stored["warning"]), (&json!(2.0), &Value::Null));
    client.post(&path, &hello).await;
    let (status, code, _) = post_rejected(&client, &path, &hello).await;
    assert_eq!((status, code.as_str()), (429, "budget_spent"));
    let report = client.get("/v1/usage").await;
    assert_eq!(report_line(&report, "turns")["warning"], "spent");
    assert_eq!(report_line(&report, "dialogues")["warning"], "spent");
    set_budget(&operator, json!({"turns": 4, "dialogues": 0})).await;
    client.post(&path, &hello).await;
    client.post("/v1/sessions", &session).await;
}

#[actix_web::test]
async fn budget_is_set_by_the_operator_within_bounds() {
    let server = HttpTestServer::start();
    let operator = server.as_role(Role::Operator);
    let path = "/v1/tenants/acme";
    for budget in [
        json!({"tokens_per_day": -1}),
        json!({"turns": 1e13}),
        json!({"cost_per_day": -0.5}),
        json!({"calls": 1}),
        json!(3),
    ] {
        let body = json!({"budget": budget});
        let (status, problem) = operator.call(Method::PATCH, path, Some(&body)).await;
        assert_eq!(status, 422, "{budget}: {problem}");
    }
    let admin = server.as_role(Role::Admin);
    let body = json!({"budget": {"turns": 1}});
    assert_eq!(admin.status_and_code(Method::PATCH, path, Some(&body)).await.0, 403);
    let made = json!({"id": "studio-b", "budget": {"turns": 5, "tokens_per_day": 0}});
    let studio = operator.post("/v1/tenants", &made).await;
    assert_eq!(
        (&studio["budget"]["turns"], &studio["budget"]["dialogues"]),
        (&json!(5), &Value::Null)
    );
}

#[actix_web::test]
async fn npc_names_a_model_only_if_the_operator_allows_it() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let path = "/v1/worlds/vale/npcs/ergen";
    let named = |model: &str| json!({"name": "Ergen", "model": model});
    let (status, problem) = client.call(Method::PUT, path, Some(&named("huge"))).await;
    assert_eq!((status.as_u16(), &problem["param"]), (422, &json!("model")));
    for model in ["small", "fake"] {
        client.put(path, &named(model)).await;
        let turns = new_turns_path(&client, model).await;
        let turn = client.post(&turns, &json!({"text": "hello there"})).await;
        let trace = client.get(&format!("{turns}/{}/trace", turn["turn"])).await;
        let calls = trace["calls"].as_array().unwrap();
        let reply = calls.iter().find(|call| call["task"] == "reply").unwrap();
        assert_eq!(reply["model"], model, "{trace}");
    }
}

#[actix_web::test]
async fn player_does_not_take_all_dialogues_of_its_tenant() {
    let server = HttpTestServer::start();
    let (client, operator) = (server.start_demo_world().await, server.as_role(Role::Operator));
    set_budget(&operator, json!({"dialogues": 40})).await;
    for _ in 0..10 {
        client.session("p1").await;
    }
    let session = |player: &str| json!({"world_id": "vale", "npc_ids": ["ergen"], "player_id": player});
    let (status, code, _) = post_rejected(&client, "/v1/sessions", &session("p1")).await;
    assert_eq!((status, code.as_str()), (429, "player_budget_spent"));
    client.session("p2").await;
    // Refused sessions took no place.
    let report = client.get("/v1/usage").await;
    assert_eq!(report_line(&report, "dialogues")["used"], 11.0);
}

#[actix_web::test]
async fn player_with_a_spent_share_makes_no_npcs_go_on() {
    let server = HttpTestServer::start();
    let (client, operator) = (server.start_demo_world().await, server.as_role(Role::Operator));
    client.put("/v1/worlds/vale/npcs/mira", &json!({"name": "Mira"})).await;
    let body = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "auto": false, "open": true,
        "interrupters": "all"});
    let talk = client.post("/v1/npc-conversations", &body).await;
    let path = format!("/v1/npc-conversations/{}", talk["id"].as_str().unwrap());
    client.post(&format!("{path}:step"), &json!({})).await;
    // A reply uses fifteen tokens, more than a tenth of the budget.
    set_budget(&operator, json!({"tokens_per_day": 140})).await;
    let turns = new_turns_path(&client, "p1").await;
    client.post(&turns, &json!({"text": "hello there"})).await;
    let player = |name: &str| server.client(server.token("acme", Role::Player, Some(name)));
    for (verb, body) in [(":interrupt", json!({"turn": 1})), (":resume", json!({}))] {
        let path = format!("{path}{verb}");
        let (status, code, _) = post_rejected(&player("p1"), &path, &body).await;
        assert_eq!((status, code.as_str()), (429, "player_budget_spent"), "{verb}");
        player("p2").post(&path, &body).await;
    }
}

#[actix_web::test]
async fn dialogues_opened_at_once_are_counted_at_once() {
    let server = HttpTestServer::start();
    let (client, operator) = (server.start_demo_world().await, server.as_role(Role::Operator));
    set_budget(&operator, json!({"dialogues": 5})).await;
    let open = |number: usize| {
        let client = client.clone();
        async move {
            let body = json!({"world_id": "vale", "npc_ids": ["ergen"], "player_id": format!("p{number}")});
            client.call(Method::POST, "/v1/sessions", Some(&body)).await.0.as_u16()
        }
    };
    let answers = futures_util::future::join_all((0..20).map(open)).await;
    let made = answers.iter().filter(|status| **status == 201).count();
    assert_eq!((made, answers.len()), (5, 20), "{answers:?}");
    assert!(answers.iter().all(|status| [201, 429].contains(status)), "{answers:?}");
}

#[actix_web::test]
async fn authored_budget_limits_what_authors_write_and_no_deletion() {
    let server = HttpTestServer::start();
    let (client, operator) = (server.start_demo_world().await, server.as_role(Role::Operator));
    let report = client.get("/v1/usage").await;
    let [worlds, bytes] = ["worlds", "authored_bytes"].map(|name| report_line(&report, name)["used"].as_f64().unwrap());
    assert!(worlds > 0.5 && worlds < 1.5 && bytes > 2_048.0, "{report}");
    let used = bytes.to_string().parse::<u64>().unwrap();
    set_budget(&operator, json!({"worlds": 2, "authored_bytes": used + 6_000})).await;
    client.put("/v1/worlds/moor", &json!({"name": "Moor"})).await;
    let put = async |path: &str, body: Value| client.status_and_code(Method::PUT, path, Some(&body)).await;
    let spent = (429, "budget_spent".to_owned());
    assert_eq!(put("/v1/worlds/fen", json!({"name": "Fen"})).await, spent);
    let entry = |content: &str| json!({"name": "Mill", "content": content});
    let long = "word ".repeat(700);
    client.put("/v1/worlds/moor/lore/mill", &entry(&long)).await;
    // Every way to write more is closed: entries, imports, NPCs, scenarios, directives, facts, and saves.
    assert_eq!(put("/v1/worlds/moor/lore/inn", entry(&long)).await, spent);
    let book = json!({"spec": "lorebook_v3", "data": {"entries": [{"name": "Inn", "keys": ["inn"], "content": long}]}});
    let fact = sample_body("/v1/worlds/{world}/npcs/{npc}/facts");
    let mut refused = Vec::new();
    for (method, path, body) in [
        (Method::POST, "/v1/worlds/moor/lore:import", book),
        (
            Method::PUT,
            "/v1/worlds/vale/npcs/ergen",
            json!({"name": "Ergen", "persona": {"description": long}}),
        ),
        (
            Method::PUT,
            "/v1/worlds/vale/npcs/ergen/scenarios/youth",
            json!({"title": "Youth", "content": long, "required_progress": 0}),
        ),
        (
            Method::PUT,
            "/v1/worlds/vale/directives/hush",
            json!({"keys": ["world:vale"], "text": long[..450]}),
        ),
        (Method::POST, "/v1/worlds/vale/npcs/ergen/facts", fact),
        (Method::POST, "/v1/worlds/vale/saves", json!({"name": "one"})),
    ] {
        refused.push(client.status_and_code(method, path, Some(&body)).await);
    }
    assert_eq!(refused, vec![spent.clone(); 6]);
    let report = client.get("/v1/usage").await;
    assert_eq!(report_line(&report, "worlds")["warning"], "spent");
    // Shorter texts and deletions make room.
    client.put("/v1/worlds/moor/lore/mill", &entry("A mill.")).await;
    client.put("/v1/worlds/moor/lore/inn", &entry("An inn.")).await;
    let deleted = client.call(Method::DELETE, "/v1/worlds/moor", None).await.0;
    assert_eq!(deleted, 204);
    client.put("/v1/worlds/fen", &json!({"name": "Fen"})).await;
}
