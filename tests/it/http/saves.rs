//! Saves over REST.

use colloquy::tenancy::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::harness::{HttpTestServer, json_of};

const SAVES: &str = "/v1/worlds/vale/saves";

#[actix_web::test]
async fn save_is_taken_listed_restored_and_deleted() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let session = client.session("p7").await["id"].as_str().unwrap().to_owned();
    let turns = format!("/v1/sessions/{session}/turns");
    client.post(&turns, &json!({"text": "hello"})).await;

    let keyed = |name: &str| {
        let request = client.request(Method::POST, SAVES).header("idempotency-key", "slot 1");
        request.json(&json!({ "name": name })).send()
    };
    let response = keyed("Before the gate").await.unwrap();
    assert_eq!(response.status(), 201);
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let (_, save) = json_of(response).await;
    assert_eq!(
        (&save["world_id"], &save["name"], &save["dialogues"]),
        (&json!("vale"), &json!("Before the gate"), &json!(1))
    );
    assert_eq!(client.get(&location).await, save);
    let (status, again) = json_of(keyed("Before the gate").await.unwrap()).await;
    assert_eq!((status.as_u16(), &again), (201, &save), "a retry takes no other");
    assert_eq!(keyed("Another").await.unwrap().status(), 422);
    let response = client.request(Method::POST, SAVES).send().await.unwrap();
    let (status, unnamed) = json_of(response).await;
    assert_eq!((status.as_u16(), &unnamed["name"]), (201, &json!("")), "{unnamed}");
    let listed = client.get(&format!("{SAVES}?limit=1")).await;
    assert_eq!(listed["items"], json!([unnamed]));
    let next = listed["next"].as_str().unwrap();
    let rest = client.get(&format!("{SAVES}?limit=1&after={next}")).await;
    assert_eq!(rest, json!({"items": [save], "next": null}));

    client.post(&turns, &json!({"text": "more"})).await;
    let restore = format!("{location}:restore");
    let told = client.post(&restore, &json!({"key": "load"})).await;
    assert_eq!((&told["save_id"], &told["changed_dialogues"]), (&save["id"], &json!(1)));
    assert_eq!(
        (&told["removed_turns"], &told["reinstated_turns"]),
        (&json!(1), &json!(0))
    );
    client.post(&turns, &json!({"text": "more, otherwise"})).await;
    assert_eq!(client.post(&restore, &json!({"key": "load"})).await, told);
    let request = client.request(Method::POST, &restore).header("idempotency-key", "load");
    assert_eq!(json_of(request.send().await.unwrap()).await.1, told);
    let said = client.get(&turns).await;
    assert_eq!(said["items"].as_array().unwrap().len(), 2, "nothing was restored twice");
    let other = format!("{SAVES}/{}:restore", unnamed["id"].as_str().unwrap());
    let taken = client
        .status_and_code(Method::POST, &other, Some(&json!({"key": "load"})))
        .await;
    assert_eq!(taken, (422, "idempotency_mismatch".to_owned()));

    assert_eq!(client.call(Method::DELETE, &location, None).await.0, 204);
    for (method, path) in [
        (Method::DELETE, location.clone()),
        (Method::GET, location.clone()),
        (Method::POST, restore.clone()),
    ] {
        let gone = client.status_and_code(method, &path, None).await;
        assert_eq!(gone, (404, "not_found".to_owned()), "{path}");
    }
    let audit = server.as_role(Role::Admin).get("/v1/audit").await;
    let actions: Vec<&str> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| row["action"].as_str())
        .filter(|action| *action != "session.restore")
        .collect();
    assert_eq!(
        actions[..4],
        ["save.delete", "save.restore", "save.create", "save.create"]
    );
}

#[actix_web::test]
async fn save_errors_are_explained() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let refused = |path: String, body: Value| {
        let client = &client;
        async move { client.status_and_code(Method::POST, &path, Some(&body)).await }
    };
    let not_valid = (422, "validation_failed".to_owned());
    let missing = (404, "not_found".to_owned());
    assert_eq!(
        refused(SAVES.to_owned(), json!({"name": "x".repeat(201)})).await,
        not_valid
    );
    assert_eq!(refused(SAVES.to_owned(), json!({"nam": "x"})).await, not_valid);
    assert_eq!(refused("/v1/worlds/nowhere/saves".to_owned(), json!({})).await, missing);
    let save = client.post(SAVES, &json!({"name": "x".repeat(200)})).await["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let restore = format!("{SAVES}/{save}:restore");
    assert_eq!(refused(restore.clone(), json!({"key": ""})).await, not_valid);
    let elsewhere = format!("/v1/worlds/nowhere/saves/{save}:restore");
    assert_eq!(refused(elsewhere, json!({})).await, missing);
    let unknown = format!("{SAVES}/save_00000000000000000000000000:restore");
    assert_eq!(refused(unknown, json!({})).await, missing);
    assert_eq!(refused(format!("{SAVES}/nonsense:restore"), json!({})).await, missing);
    assert_eq!(
        client
            .status_and_code(Method::GET, "/v1/worlds/nowhere/saves", None)
            .await,
        missing
    );
    let stranger = server.client(server.token("rival", Role::Backend, None));
    for (method, path) in [
        (Method::GET, SAVES.to_owned()),
        (Method::POST, restore),
        (Method::DELETE, format!("{SAVES}/{save}")),
        (Method::GET, format!("{SAVES}/{save}")),
    ] {
        let (status, _) = stranger.call(method, &path, None).await;
        assert_eq!(status, 404, "{path} of another tenant");
    }
}
