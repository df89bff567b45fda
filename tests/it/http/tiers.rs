//! The settings of tenants, worlds, NPCs and sessions, and how they come together.

use colloquy::tenancy::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::harness::{HttpTestServer, json_of};

#[actix_web::test]
async fn tenant_settings_are_versioned_and_checked() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let none = client.get("/v1/settings").await;
    assert_eq!(none, json!({"tier": "tenant", "settings": {}}));
    let body = json!({"gossip": true, "recall": {"top_k": 4}, "prompt": {"ask_for_state": false}});
    let put = |tag: (&'static str, &'static str), body: &Value| {
        let request = client.request(Method::PUT, "/v1/settings").header(tag.0, tag.1);
        request.json(body).send()
    };
    assert_eq!(put(("if-match", "*"), &body).await.unwrap().status(), 412);
    let made = json_of(put(("if-none-match", "*"), &body).await.unwrap()).await;
    assert_eq!((made.0.as_u16(), &made.1["settings"]), (201, &body));
    assert_eq!(put(("if-match", "\"1\""), &body).await.unwrap().status(), 200);
    assert_eq!(put(("if-match", "\"1\""), &body).await.unwrap().status(), 412);
    let known = client
        .request(Method::GET, "/v1/settings")
        .header("if-none-match", "\"2\"");
    assert_eq!(known.send().await.unwrap().status(), 304);
    for (body, named) in [
        (json!({"moods": ["calm"]}), "\"moods\""),
        (json!({"recal": {}}), "recal"),
        (json!({"recall": {"top": 3}}), "recall.top"),
        (json!({"recall": {"top_k": 101}}), "top_k"),
        (
            json!({"recall": {"weights": {"recency": 1, "importance": 1, "relevance": 1, "keyword": 1}}}),
            "weights",
        ),
        (json!({"prompt": {"total_tokens": 9000}}), "prompt.total_tokens"),
        (json!({"prompt": {"lore_tokens": 100_001}}), "lore_tokens"),
        (json!({"summaries": {"force_turns": 0}}), "force_turns"),
        (json!({"models": {"judge": "another"}}), "settings.models.judge"),
    ] {
        let (status, answer) = client.call(Method::PUT, "/v1/settings", Some(&body)).await;
        assert_eq!(status, 422, "{named}: {answer}");
        assert!(answer.to_string().contains(named), "{named}: {answer}");
    }
    let audit = server.as_role(Role::Admin).get("/v1/audit").await.to_string();
    assert!(audit.contains("settings.put"), "{audit}");
}

#[actix_web::test]
async fn effective_settings_name_the_tier_of_each_value() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    client
        .put(
            "/v1/settings",
            &json!({"gossip": true, "recall": {"top_k": 4, "preset": "rag"}}),
        )
        .await;
    let world = json!({"name": "Vale", "settings": {"places": ["mill"], "recall": {"top_k": 5},
        "summaries": {"force_turns": 12}}});
    client.put("/v1/worlds/vale", &world).await;
    let npc = json!({"name": "Ergen", "settings": {"gossip": false, "curation": {"every_turns": 0}}});
    client.put("/v1/worlds/vale/npcs/ergen", &npc).await;
    let body = json!({"world_id": "vale", "npc_id": "ergen", "player_id": "p7",
        "settings": {"recall": {"weights": {"recency": 0.25, "importance": 0.25, "relevance": 0.25, "keyword": 0.25}}}});
    let session = client.post("/v1/sessions", &body).await;
    let own = format!("/v1/sessions/{}/settings", session["id"].as_str().unwrap());
    assert_eq!(client.get(&own).await["settings"], body["settings"]);
    assert_eq!(
        client.get("/v1/worlds/vale/npcs/ergen/settings").await["settings"],
        npc["settings"]
    );
    assert_eq!(client.get("/v1/worlds/vale/settings").await["effective"], Value::Null);
    let view = client.get(&format!("{own}?effective=true")).await;
    assert_eq!(view["tier"], "session");
    for (name, value, from) in [
        ("gossip", json!(false), "npc"),
        ("places", json!(["mill"]), "world"),
        ("recall.top_k", json!(5), "world"),
        (
            "recall.weights",
            body["settings"]["recall"]["weights"].clone(),
            "session",
        ),
        ("recall.min_score", json!(0.05), "configuration"),
        ("summaries.force_turns", json!(12), "world"),
        ("curation.every_turns", json!(0), "npc"),
        ("prompt.lore_tokens", json!(800), "configuration"),
    ] {
        assert_eq!(view["effective"][name], json!({"value": value, "from": from}), "{name}");
    }
    assert_eq!(view["effective"].get("recall.preset"), None);
    let of_world = client.get("/v1/worlds/vale/settings?effective=true").await;
    assert_eq!(
        of_world["effective"]["recall.preset"],
        json!({"value": "rag", "from": "tenant"})
    );
    let wrong = client.call(Method::GET, "/v1/settings?effective=maybe", None).await;
    assert_eq!(wrong.0, 422, "{}", wrong.1);
    // Only a backend may set settings of a session.
    let player = server.as_role(Role::Player);
    let (status, answer) = player.call(Method::POST, "/v1/sessions", Some(&body)).await;
    assert_eq!((status.as_u16(), &answer["param"]), (403, &json!("settings")));
    let unknown = json!({"world_id": "vale", "npc_id": "ergen", "player_id": "p7", "settings": {"places": []}});
    let (status, answer) = client.call(Method::POST, "/v1/sessions", Some(&unknown)).await;
    assert_eq!(
        (status.as_u16(), &answer["errors"][0]["param"]),
        (422, &json!("settings.places"))
    );
}
