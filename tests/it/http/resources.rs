//! Worlds, NPCs, facts and the operator's endpoints.

use colloquy::tenancy::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::harness::{HttpTestServer, json_of};

#[actix_web::test]
async fn worlds_and_npcs_are_created_replaced_and_deleted() {
    let server = HttpTestServer::start();
    let client = server.as_role(Role::Backend);
    let world = json!({"name": "Vale", "language": "ko", "rules": ["No magic."], "settings": {"max_hp_delta": 50}});
    let (status, made) = client.call(Method::PUT, "/v1/worlds/vale", Some(&world)).await;
    assert_eq!(status, 201);
    assert_eq!(
        (&made["id"], &made["settings"]["max_hp_delta"]),
        (&json!("vale"), &json!(50))
    );

    let response = client.request(Method::GET, "/v1/worlds/vale").send().await.unwrap();
    let tag = response.headers()["etag"].to_str().unwrap().to_owned();
    let unchanged = client
        .request(Method::GET, "/v1/worlds/vale")
        .header("if-none-match", &tag);
    assert_eq!(unchanged.send().await.unwrap().status(), 304);

    let put = |tag: &str| {
        let request = client.request(Method::PUT, "/v1/worlds/vale").header("if-match", tag);
        request.json(&json!({"name": "The Vale"})).send()
    };
    let replaced = put(&tag).await.unwrap();
    assert_eq!(replaced.status(), 200);
    assert_ne!(replaced.headers()["etag"].to_str().unwrap(), tag);
    let stale = put(&tag).await.unwrap();
    assert_eq!(stale.status(), 412);
    assert_eq!(json_of(stale).await.1["code"], "version_mismatch");
    for (tag, status) in [
        ("\"banana\"", 412),
        ("W/\"2\"", 412),
        ("banana", 400),
        ("\"1\", \"2\"", 400),
        ("2", 400),
    ] {
        assert_eq!(put(tag).await.unwrap().status(), status, "{tag}");
    }
    assert_eq!(client.get("/v1/worlds/vale").await["name"], "The Vale");

    let npc = json!({"name": "Ergen", "factions": ["smiths"], "persona": {"description": "A smith.", "cues": ["nod"]}});
    assert_eq!(
        client
            .status_and_code(Method::PUT, "/v1/worlds/none/npcs/ergen", Some(&npc))
            .await
            .0,
        404
    );
    assert_eq!(
        client
            .call(Method::PUT, "/v1/worlds/vale/npcs/ergen", Some(&npc))
            .await
            .0,
        201
    );
    assert_eq!(
        client
            .call(Method::PUT, "/v1/worlds/vale/npcs/ergen", Some(&npc))
            .await
            .0,
        200
    );
    let request = client
        .request(Method::PUT, "/v1/worlds/vale/npcs/nobody")
        .header("if-match", "*");
    assert_eq!(request.json(&npc).send().await.unwrap().status(), 412);
    assert_eq!(
        client.get("/v1/worlds/vale/npcs/ergen").await["persona"]["cues"],
        json!(["nod"])
    );
    client.put("/v1/worlds/vale/npcs/mira", &json!({"name": "Mira"})).await;

    let mut names = Vec::new();
    let mut after = String::new();
    loop {
        let page = client.get(&format!("/v1/worlds/vale/npcs?limit=1{after}")).await;
        assert_eq!(page["items"].as_array().unwrap().len(), 1);
        names.push(page["items"][0]["id"].as_str().unwrap().to_owned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    names.sort();
    assert_eq!(names, ["ergen", "mira"]);

    assert_eq!(
        client.call(Method::DELETE, "/v1/worlds/vale/npcs/mira", None).await.0,
        204
    );
    assert_eq!(
        client
            .status_and_code(Method::DELETE, "/v1/worlds/vale/npcs/mira", None)
            .await
            .0,
        404
    );
    assert_eq!(client.call(Method::DELETE, "/v1/worlds/vale", None).await.0, 204);
    assert_eq!(
        client.status_and_code(Method::GET, "/v1/worlds/vale", None).await.0,
        404
    );

    let audit = server.as_role(Role::Admin).get("/v1/audit").await;
    let actions: Vec<_> = audit["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["action"].as_str().unwrap())
        .collect();
    assert_eq!(actions.first(), Some(&"world.delete"), "{actions:?}");
    assert!(actions.contains(&"npc.put"), "{actions:?}");
}

fn grapes_fact() -> Value {
    json!({
        "subject": "player", "predicate": "likes", "object": "grapes", "content": "The player likes grapes.",
        "keywords": ["grape", "fruit"], "kind": "preference", "importance": 7
    })
}

#[actix_web::test]
async fn player_is_a_subject_of_its_own() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let facts = "/v1/worlds/vale/npcs/ergen/facts";
    assert_eq!(client.post(facts, &grapes_fact()).await["subject"], "player");
    let mut private = grapes_fact();
    private["private_to"] = json!("p7");
    assert_eq!(client.post(facts, &private).await["subject"], "player:p7");
    for (query, found) in [
        ("subject=player", 1),
        ("subject=player:p7", 1),
        ("subject=player&player_id=p7", 1),
        ("subject=player&player_id=p8", 0),
    ] {
        let items = &client.get(&format!("{facts}?{query}")).await["items"];
        assert_eq!(items.as_array().unwrap().len(), found, "{query}: {items}");
    }
}

#[actix_web::test]
async fn facts_are_written_found_corrected_removed_and_reinstated() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let facts = "/v1/worlds/vale/npcs/ergen/facts";
    let response = client
        .request(Method::POST, facts)
        .json(&grapes_fact())
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 201);
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let (_, fact) = json_of(response).await;
    assert_eq!(location, format!("/v1/facts/{}", fact["id"].as_str().unwrap()));
    assert_eq!(
        (&fact["knowers"], &fact["authored"]),
        (&json!(["npc:ergen"]), &json!(true))
    );
    assert_eq!(fact["cause"]["kind"], "edit");

    let found = client.get(&format!("{facts}?q=which%20fruit")).await;
    assert_eq!(found["items"][0]["id"], fact["id"]);
    let score = &found["items"][0]["score"];
    for part in ["recency", "importance", "relevance", "keyword", "total"] {
        let value = score[part].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&value), "{part} of {score}");
    }
    assert!(score["keyword"].as_f64().unwrap() > 0.0, "{score}");
    assert_eq!(client.get(&format!("{facts}?kind=goal")).await["items"], json!([]));
    assert_eq!(
        client.get(&format!("{facts}?subject=player")).await["items"][0]["id"],
        fact["id"]
    );
    assert_eq!(
        client
            .status_and_code(Method::GET, &format!("{facts}?q=x&kind=goal"), None)
            .await,
        (422, "validation_failed".to_owned())
    );

    let patch = |tag: &str, body: Value| {
        client
            .request(Method::PATCH, &location)
            .header("if-match", tag)
            .json(&body)
            .send()
    };
    let tag = format!("\"{}\"", fact["version"]);
    let edited = patch(&tag, json!({"content": "The player loves grapes.", "pinned": true}))
        .await
        .unwrap();
    assert_eq!(edited.status(), 200);
    assert_eq!(patch(&tag, json!({"pinned": false})).await.unwrap().status(), 412);
    assert_eq!(patch("*", json!({"importance": 11})).await.unwrap().status(), 422);
    let now = client.get(&location).await;
    assert_eq!(
        (&now["content"], &now["pinned"]),
        (&json!("The player loves grapes."), &json!(true))
    );

    let (status, gone) = client.call(Method::DELETE, &location, None).await;
    assert_eq!((status.as_u16(), &gone["invalid_reason"]), (200, &json!("removed")));
    assert_eq!(client.get(facts).await["items"], json!([]));
    assert_eq!(client.get(&format!("{facts}?q=grapes")).await["items"], json!([]));
    assert_eq!(
        client.get(&format!("{facts}?include_invalid=true")).await["items"][0]["id"],
        fact["id"]
    );
    let back = client.post(&format!("{location}:restore"), &json!({})).await;
    assert_eq!(back["invalid_at"], Value::Null);
    assert_eq!(
        client.get(&format!("{facts}?q=grapes")).await["items"][0]["id"],
        fact["id"]
    );

    let history = client.get(&format!("{location}/history")).await;
    let whats: Vec<_> = history["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["what"].as_str().unwrap())
        .collect();
    assert_eq!(whats[0], "created", "{history}");
    assert_eq!(history["items"][0]["cause"]["kind"], "edit", "{history}");
    assert!(whats.contains(&"edited") && whats.contains(&"invalidated"), "{history}");
}

#[actix_web::test]
async fn manual_facts_are_validated() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let facts = "/v1/worlds/vale/npcs/ergen/facts";
    let mut wrong = grapes_fact();
    wrong["importance"] = json!(0);
    wrong["content"] = json!("");
    wrong["keywords"] = json!(["x".repeat(65)]);
    let (status, problem) = client.call(Method::POST, facts, Some(&wrong)).await;
    assert_eq!(status, 422);
    assert_eq!(problem["errors"].as_array().unwrap().len(), 3, "{problem}");
    let mut wrong = grapes_fact();
    wrong["knowers"] = json!(["everybody"]);
    assert_eq!(client.status_and_code(Method::POST, facts, Some(&wrong)).await.0, 422);
    wrong["knowers"] = json!([]);
    assert_eq!(client.status_and_code(Method::POST, facts, Some(&wrong)).await.0, 422);
    assert_eq!(
        client
            .status_and_code(Method::POST, "/v1/worlds/vale/npcs/nobody/facts", Some(&grapes_fact()))
            .await
            .0,
        404
    );
    assert_eq!(
        client
            .status_and_code(Method::GET, "/v1/facts/fact_00000000000000000000000000", None)
            .await
            .0,
        404
    );
    assert_eq!(
        client.status_and_code(Method::GET, "/v1/facts/nonsense", None).await.0,
        404
    );
}

#[actix_web::test]
async fn player_tokens_open_only_their_own_sessions() {
    let server = HttpTestServer::start();
    let backend = server.start_demo_world().await;
    let answer = backend
        .post(
            "/v1/tokens",
            &json!({"player_id": "p9", "world_id": "vale", "ttl_s": 60}),
        )
        .await;
    let player = server.client(answer["token"].as_str().unwrap().to_owned());
    let session = player
        .post("/v1/sessions", &json!({"world_id": "vale", "npc_id": "ergen"}))
        .await;
    assert_eq!(session["player_id"], "p9");
    let other = json!({"world_id": "vale", "npc_id": "ergen", "player_id": "p8"});
    assert_eq!(
        player
            .status_and_code(Method::POST, "/v1/sessions", Some(&other))
            .await
            .0,
        403
    );
    let too_long = json!({"player_id": "p9", "ttl_s": 86_401});
    assert_eq!(
        backend
            .status_and_code(Method::POST, "/v1/tokens", Some(&too_long))
            .await
            .0,
        422
    );
}

#[actix_web::test]
async fn usage_and_jobs_are_listed() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    assert!(client.get("/v1/usage").await["items"].is_array());
    assert!(client.get("/v1/jobs?status=dead").await["items"].is_array());
    assert_eq!(
        client
            .status_and_code(Method::GET, "/v1/jobs?status=lost", None)
            .await
            .0,
        422
    );
    assert_eq!(
        client
            .status_and_code(Method::GET, "/v1/usage?from=2020-01-01&to=2026-01-01", None)
            .await
            .0,
        422
    );
}

#[actix_web::test]
async fn npc_without_a_language_has_that_of_its_world() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    client
        .put("/v1/worlds/naru", &json!({"name": "나루", "language": "ko"}))
        .await;
    let path = "/v1/worlds/naru/npcs/seol";
    for (body, expected) in [
        (json!({"name": "설단"}), "ko"),
        (json!({"name": "Seol", "language": "en"}), "en"),
    ] {
        client.put(path, &body).await;
        assert_eq!(client.get(path).await["language"], expected);
    }
    client.put("/v1/worlds/vale/npcs/seol", &json!({"name": "Seol"})).await;
    assert_eq!(client.get("/v1/worlds/vale/npcs/seol").await["language"], "en");
}

#[actix_web::test]
async fn npc_overrides_settings_of_its_world() {
    let server = HttpTestServer::start();
    let backend = server.start_demo_world().await;
    let path = "/v1/worlds/vale/npcs/ergen";
    assert_eq!(backend.get(path).await["settings"], json!({}));
    let wrong = json!({"name": "Ergen", "settings": {"max_hp_delta": -1, "recency_lambda_per_day": 11, "mood": 1}});
    assert_eq!(
        backend.status_and_code(Method::PUT, path, Some(&wrong)).await,
        (422, "validation_failed".to_owned())
    );
    let fact = json!({"subject": "player", "predicate": "likes", "object": "grapes", "kind": "preference",
        "content": "The player likes grapes.", "valid_at": "2020-01-01T00:00:00Z"});
    backend.post(&format!("{path}/facts"), &fact).await;
    let recency = async || {
        let found = backend.get(&format!("{path}/facts?q=grapes")).await;
        let session = backend.session("p7").await["id"].as_str().unwrap().to_owned();
        let turns = format!("/v1/sessions/{session}/turns");
        backend.post(&turns, &json!({"text": "what do I like, grapes?"})).await;
        let trace = backend.get(&format!("{turns}/1/trace")).await;
        (
            found["items"][0]["score"]["recency"].as_f64().unwrap(),
            trace["candidates"][0]["score"]["recency"].as_f64().unwrap(),
        )
    };
    let (searched, recalled) = recency().await;
    assert!(
        searched < 0.1 && recalled < 0.1,
        "{searched} {recalled}: as configured, years fade"
    );
    let body = json!({"name": "Ergen", "settings": {"recency_lambda_per_day": 0.0}});
    assert_eq!(backend.put(path, &body).await["settings"], body["settings"]);
    let (searched, recalled) = recency().await;
    assert!(
        searched > 0.99 && recalled > 0.99,
        "{searched} {recalled}: this NPC does not forget"
    );
}

#[actix_web::test]
async fn dead_job_is_retried() {
    let server = HttpTestServer::start();
    let client = server.start_demo_world().await;
    let session = client.session("p7").await["id"].as_str().unwrap().to_owned();
    for text in ["hello", "DULL"] {
        client
            .post(&format!("/v1/sessions/{session}/turns"), &json!({"text": text}))
            .await;
    }
    let one = async |status: &str| loop {
        let jobs = client.get(&format!("/v1/jobs?status={status}")).await;
        if let Some(job) = jobs["items"].get(0) {
            break job["id"].as_str().unwrap().to_owned();
        }
        tokio::task::yield_now().await;
    };
    let (done, dead) = (one("done").await, one("dead").await);
    let retry = |job: &str| format!("/v1/jobs/{job}:retry");
    assert_eq!(
        client.status_and_code(Method::POST, &retry(&done), None).await,
        (409, "job_not_dead".to_owned())
    );
    let rival = server.client(server.token("rival", Role::Admin, None));
    assert_eq!(rival.status_and_code(Method::POST, &retry(&dead), None).await.0, 404);
    let (status, job) = client.call(Method::POST, &retry(&dead), None).await;
    assert_eq!(
        (status.as_u16(), &job["id"], &job["attempts"]),
        (200, &json!(dead), &json!(0))
    );
    assert_eq!(job["status"], "pending");
    let audit = server.as_role(Role::Admin).get("/v1/audit").await;
    let row = &audit["items"][0];
    assert_eq!((&row["action"], &row["object"]), (&json!("job.retry"), &json!(dead)));
    assert_eq!(
        client
            .status_and_code(Method::POST, "/v1/jobs/nonsense:retry", None)
            .await
            .0,
        404
    );
}

#[actix_web::test]
async fn world_sets_how_memories_are_chosen() {
    let server = HttpTestServer::start();
    let client = server.as_role(Role::Backend);
    let recall = json!({"preset": "rag", "diversity": 0.3});
    let world = json!({"name": "Vale", "settings": {"recall": recall}});
    let (_, made) = client.call(Method::PUT, "/v1/worlds/vale", Some(&world)).await;
    assert_eq!(made["settings"]["recall"], recall);
    assert_eq!(client.get("/v1/worlds/vale").await["settings"]["recall"], recall);
    for wrong in [json!({"preset": "magic"}), json!({"diversity": 1.5}), json!({"mmr": 1})] {
        let world = json!({"name": "Vale", "settings": {"recall": wrong}});
        let refused = client
            .status_and_code(Method::PUT, "/v1/worlds/vale", Some(&world))
            .await;
        assert_eq!(refused.0, 422, "{wrong}");
    }
}
