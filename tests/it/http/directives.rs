//! Directives of a world.

use colloquy::tenancy::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::harness::{HttpTestServer, json_of};

const MOURNING: &str = "/v1/worlds/vale/directives/mourning";

#[actix_web::test]
async fn directives_are_created_replaced_listed_and_deleted() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let body = json!({"keys": ["world:vale:npc:guard-*:session:*"], "text": " It is the week of mourning.\n",
        "fails_if": ["names the dead queen"], "priority": 2});
    let put = |tag: (&'static str, &'static str)| {
        let request = client.request(Method::PUT, MOURNING).header(tag.0, tag.1);
        request.json(&body).send()
    };
    assert_eq!(put(("if-match", "*")).await.unwrap().status(), 412);
    let made = put(("if-none-match", "*")).await.unwrap();
    assert_eq!(
        (made.status().as_u16(), made.headers()["location"].to_str().unwrap()),
        (201, MOURNING)
    );
    let made = json_of(made).await.1;
    let expected = json!({"world_id": "vale", "id": "mourning", "keys": ["world:vale:npc:guard-*:session:*"],
        "text": "It is the week of mourning.", "instructions": [], "fails_if": ["names the dead queen"], "priority": 2,
        "version": 1, "updated_at": made["updated_at"]});
    assert_eq!(made, expected);
    assert_eq!(put(("if-match", "\"1\"")).await.unwrap().status(), 200);
    assert_eq!(put(("if-match", "\"1\"")).await.unwrap().status(), 412);
    let known = client.request(Method::GET, MOURNING).header("if-none-match", "\"2\"");
    assert_eq!(known.send().await.unwrap().status(), 304);
    let feast = json!({"keys": ["world:*"], "instructions": ["Sing."]});
    client.put("/v1/worlds/vale/directives/feast", &feast).await;
    let page = client.get("/v1/worlds/vale/directives?limit=1").await;
    assert_eq!(json!([page["items"][0]["id"], page["next"]]), json!(["feast", "feast"]));
    let path = "/v1/worlds/none/directives";
    assert_eq!(client.status_and_code(Method::GET, path, None).await.0, 404);
    let elsewhere = client
        .status_and_code(Method::PUT, &format!("{path}/feast"), Some(&feast))
        .await;
    assert_eq!(elsewhere.0, 404);
    assert_eq!(client.call(Method::DELETE, MOURNING, None).await.0, 204);
    assert_eq!(client.status_and_code(Method::DELETE, MOURNING, None).await.0, 404);
    assert_eq!(client.status_and_code(Method::GET, MOURNING, None).await.0, 404);
    let audit = server.as_role(Role::Admin).get("/v1/audit").await.to_string();
    assert!(
        audit.contains("directive.put") && audit.contains("vale/mourning") && !audit.contains("week"),
        "{audit}"
    );
}

#[actix_web::test]
async fn invalid_directives_are_refused_by_field() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let named = async |body: Value| {
        let (status, answer) = client.call(Method::PUT, MOURNING, Some(&body)).await;
        assert_eq!(status, 422, "{answer}");
        answer.to_string()
    };
    for (body, fault) in [
        (json!({"keys": [], "text": "x"}), "keys"),
        (json!({"keys": vec!["world:vale"; 17], "text": "x"}), "keys"),
        (json!({"keys": ["npc:guard-*"], "text": "x"}), "keys"),
        (
            json!({"keys": ["world:dale:npc:*"], "text": "x"}),
            "selects no dialogue",
        ),
        (
            json!({"keys": ["world:vale"]}),
            "a text, an instruction or a failure condition",
        ),
        (
            json!({"keys": ["world:vale"], "text": " \n "}),
            "a text, an instruction",
        ),
        (json!({"keys": ["world:vale"], "text": "x".repeat(501)}), "text"),
        (
            json!({"keys": ["world:vale"], "instructions": vec!["x"; 6]}),
            "instructions",
        ),
        (
            json!({"keys": ["world:vale"], "instructions": ["two\nlines"]}),
            "instructions[0]",
        ),
        (
            json!({"keys": ["world:vale"], "fails_if": ["x".repeat(101)]}),
            "fails_if[0]",
        ),
        (
            json!({"keys": ["world:vale"], "text": "x", "priority": 1001}),
            "priority",
        ),
        (json!({"keys": ["world:vale"], "text": "x", "glob": "*"}), "glob"),
    ] {
        let answer = named(body).await;
        assert!(answer.contains(fault), "{fault}: {answer}");
    }
    let listed = client.call(Method::GET, "/v1/sessions?key=guards", None).await;
    assert_eq!(listed.0, 422, "{}", listed.1);
    assert_eq!(client.status_and_code(Method::GET, MOURNING, None).await.0, 404);
}
