//! NPCs' memories of their own past, and players' progress with NPCs.

use colloquy::tenancy::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::harness::{HttpTestServer, json_of};

const WELL: &str = "/v1/worlds/vale/npcs/ergen/scenarios/well";
const PROGRESS: &str = "/v1/worlds/vale/players/p7/progress/ergen";

fn well_scenario() -> Value {
    json!({"title": "The well", "content": "It is dry.", "keywords": ["well"], "synonyms": ["우물"], "required_progress": 2})
}

#[actix_web::test]
async fn scenarios_are_created_replaced_listed_and_deleted() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let put = |tag: (&'static str, &'static str), body: Value| {
        let request = client.request(Method::PUT, WELL).header(tag.0, tag.1);
        request.json(&body).send()
    };
    assert_eq!(put(("if-match", "*"), well_scenario()).await.unwrap().status(), 412);
    let made = put(("if-none-match", "*"), well_scenario()).await.unwrap();
    assert_eq!(
        (made.status().as_u16(), made.headers()["location"].to_str().unwrap()),
        (201, WELL)
    );
    let made = json_of(made).await.1;
    let expected = json!({"world_id": "vale", "npc_id": "ergen", "id": "well", "title": "The well", "content": "It is dry.",
        "keywords": ["well"], "synonyms": ["우물"], "required_progress": 2, "version": 1, "updated_at": made["updated_at"]});
    assert_eq!(made, expected);
    assert_eq!(
        put(("if-none-match", "*"), well_scenario()).await.unwrap().status(),
        412
    );
    assert_eq!(put(("if-match", "\"1\""), well_scenario()).await.unwrap().status(), 200);
    let stale = json_of(put(("if-match", "\"1\""), well_scenario()).await.unwrap()).await;
    assert_eq!((stale.0.as_u16(), &stale.1["code"]), (412, &json!("version_mismatch")));
    let known = client.request(Method::GET, WELL).header("if-none-match", "\"2\"");
    assert_eq!(known.send().await.unwrap().status(), 304);

    let tower = json!({"title": "The tower", "content": "It fell."});
    client.put("/v1/worlds/vale/npcs/ergen/scenarios/tower", &tower).await;
    let page = client.get("/v1/worlds/vale/npcs/ergen/scenarios?limit=1").await;
    assert_eq!(
        json!([
            page["items"][0]["id"],
            page["items"][0]["required_progress"],
            page["next"]
        ]),
        json!(["tower", 0, "tower"])
    );
    for path in [
        "/v1/worlds/vale/npcs/nobody/scenarios",
        "/v1/worlds/none/npcs/ergen/scenarios",
    ] {
        assert_eq!(client.status_and_code(Method::GET, path, None).await.0, 404, "{path}");
        let put = client
            .status_and_code(Method::PUT, &format!("{path}/well"), Some(&well_scenario()))
            .await;
        assert_eq!(put.0, 404, "{path}");
    }
    assert_eq!(client.call(Method::DELETE, WELL, None).await.0, 204);
    assert_eq!(client.status_and_code(Method::DELETE, WELL, None).await.0, 404);
    assert_eq!(client.status_and_code(Method::GET, WELL, None).await.0, 404);
    let audit = server.as_role(Role::Admin).get("/v1/audit").await.to_string();
    assert!(
        audit.contains("scenario.put") && audit.contains("vale/ergen/well") && !audit.contains("dry"),
        "{audit}"
    );
}

#[actix_web::test]
async fn invalid_fields_are_all_named() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let named = async |path: &str, body: Value| {
        let (status, answer) = client.call(Method::PUT, path, Some(&body)).await;
        assert_eq!(status, 422, "{answer}");
        let errors = answer["errors"].as_array().unwrap().iter();
        let mut fields: Vec<String> = errors
            .map(|error| error["param"].as_str().unwrap().to_owned())
            .collect();
        fields.sort();
        fields
    };
    let body = json!({"title": "x".repeat(201), "content": "  ", "keywords": vec!["k"; 33], "synonyms": ["two\nlines"],
        "required_progress": 1_000_001});
    let fields = ["content", "keywords", "required_progress", "synonyms[0]", "title"];
    assert_eq!(named(WELL, body).await, fields);
    let progress = named(PROGRESS, json!({"progress": 1_000_001})).await;
    assert_eq!(progress, ["progress"]);
    let rule = |when: Value| json!({"npc": "ergen", "progress": 1, "when": when});
    let unlocks = json!([
        rule(json!({"item": "key"})),
        {"npc": "ergen", "progress": 0, "when": {"location": "x".repeat(65)}},
        rule(json!({})),
        rule(json!({"item": "key", "met": "Bram"})),
        rule(json!({"relationship": "trust"})),
        rule(json!({"relationship": "trust", "at_least": 101})),
    ]);
    let world = json!({"name": "Vale", "settings": {"unlocks": unlocks}});
    let fields = [
        "settings.unlocks[1].progress",
        "settings.unlocks[1].when.location",
        "settings.unlocks[2].when",
        "settings.unlocks[3].when",
        "settings.unlocks[4].when",
        "settings.unlocks[5].when.at_least",
    ];
    assert_eq!(named("/v1/worlds/vale", world).await, fields);
    let many = json!({"name": "Vale", "settings": {"unlocks": vec![rule(json!({"met": "Bram"})); 51]}});
    assert_eq!(named("/v1/worlds/vale", many).await, ["settings.unlocks"]);
    // The maximum length equals the maximum of names in a state block.
    let longest = json!({"name": "Vale", "settings": {"unlocks": [rule(json!({"item": "x".repeat(64)}))]}});
    client.put("/v1/worlds/vale", &longest).await;
    // Only the world sets the rules of progress.
    let npc = "/v1/worlds/vale/npcs/ergen";
    for unlocks in [json!([rule(json!({"item": "key"}))]), json!([])] {
        let own = json!({"name": "Ergen", "settings": {"unlocks": unlocks}});
        assert_eq!(named(npc, own).await, ["settings.unlocks"]);
    }
    assert_eq!(client.get(npc).await["version"], 1);
}

#[actix_web::test]
async fn progress_is_set_and_read() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let shown = async || {
        let view = client.get(PROGRESS).await;
        (view["progress"].as_u64().unwrap(), view["set"].as_u64().unwrap())
    };
    assert_eq!(shown().await, (0, 0));
    for to in [3, 3, 1] {
        let set = client.put(PROGRESS, &json!({ "progress": to })).await;
        assert_eq!((&set["progress"], &set["player_id"]), (&json!(to), &json!("p7")));
        assert_eq!(shown().await, (to, to));
    }
    // A request without a change writes no audit row.
    let audit = server.as_role(Role::Admin).get("/v1/audit").await;
    let rows = audit["items"].as_array().unwrap().iter();
    assert_eq!(rows.filter(|row| row["action"] == "progress.put").count(), 2);
    for path in [
        "/v1/worlds/vale/players/p7/progress/nobody",
        "/v1/worlds/none/players/p7/progress/ergen",
    ] {
        assert_eq!(client.status_and_code(Method::GET, path, None).await.0, 404, "{path}");
        let put = client
            .status_and_code(Method::PUT, path, Some(&json!({"progress": 1})))
            .await;
        assert_eq!(put.0, 404, "{path}");
    }
    let rules = json!([{"npc": "ergen", "progress": 2, "when": {"relationship": "trust", "at_least": 40}}]);
    let world = json!({"name": "Vale", "settings": {"unlocks": rules.clone()}});
    assert_eq!(
        client.put("/v1/worlds/vale", &world).await["settings"]["unlocks"],
        rules
    );
    assert_eq!(shown().await, (1, 1), "nobody trusts anybody yet");
}

#[actix_web::test]
async fn scenarios_and_progress_are_not_found_by_another_tenant() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    client.put(WELL, &well_scenario()).await;
    let rival = server.client(server.token("rival", Role::Backend, None));
    for (method, path, body) in [
        (Method::GET, WELL, None),
        (Method::PUT, WELL, Some(well_scenario())),
        (Method::DELETE, WELL, None),
        (Method::GET, "/v1/worlds/vale/npcs/ergen/scenarios", None),
        (Method::GET, PROGRESS, None),
        (Method::PUT, PROGRESS, Some(json!({"progress": 1}))),
    ] {
        let refused = rival.status_and_code(method.clone(), path, body.as_ref()).await;
        assert_eq!(refused.0, 404, "{method} {path}");
    }
    assert_eq!(client.get(WELL).await["version"], 1);
}
