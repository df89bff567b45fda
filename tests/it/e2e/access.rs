//! Wrong tokens, foreign tenants and foreign players.

use std::time::Duration;

use colloquy::tenancy::Role;
use jsonwebtoken::{Algorithm, EncodingKey, Header, jwk::Jwk};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::fresh;
use crate::support::{RestClient, TestSocket, run};

#[test]
fn invalid_tokens_are_rejected_everywhere() {
    run(async {
        // Within the leeway an expired token still works.
        let server = fresh(&[("COLLOQUY__AUTH__LEEWAY_S", "0")]).start();
        let good = server.token("demo", Role::Player, Some("p1"));
        let mut parts: Vec<&str> = good.split('.').collect();
        let reversed: String = parts[2].chars().rev().collect();
        parts[2] = &reversed;
        let forged = parts.join(".");
        let expired = server.token_for("demo", Role::Player, Some("p1"), Duration::ZERO);
        let nobody = server.token("unknown-studio", Role::Backend, None);
        for (name, token) in [
            ("garbage", "x.y.z"),
            ("forged", &forged),
            ("expired", &expired),
            ("no tenant", &nobody),
        ] {
            let rest = RestClient::new(server.address, token.to_owned());
            assert_eq!(rest.status("/v1/worlds").await, StatusCode::UNAUTHORIZED, "{name}");
            let refused = TestSocket::try_open(server.address, token).await.err();
            assert_eq!(refused, Some(StatusCode::UNAUTHORIZED), "{name}");
        }
        assert_eq!(
            RestClient::new(server.address, good).status("/v1/sessions").await,
            StatusCode::OK
        );
    });
}

#[test]
fn foreign_objects_are_not_found() {
    run(async {
        let server = fresh(&[("COLLOQUY__TENANTS", "rival")]).start();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.say_line(&session, "I like grapes.").await;

        let rival = RestClient::new(server.address, server.token("rival", Role::Admin, None));
        let other = RestClient::new(server.address, server.token("demo", Role::Player, Some("p2")));
        let path = format!("/v1/sessions/{session}");
        for rest in [&rival, &other] {
            assert_eq!(rest.status(&path).await, StatusCode::NOT_FOUND);
            assert_eq!(rest.status(&format!("{path}/turns")).await, StatusCode::NOT_FOUND);
            let said = rest
                .call(Method::POST, &format!("{path}/turns"), Some(&json!({"text": "hi"})))
                .await;
            assert_eq!(said.0, StatusCode::NOT_FOUND, "{}", said.1);
        }
        assert_eq!(rival.status("/v1/worlds/vale").await, StatusCode::NOT_FOUND);
        assert_eq!(rival.status("/v1/worlds/vale/npcs/mira").await, StatusCode::NOT_FOUND);
        // A player sees its own session, but no traces or facts.
        let own = RestClient::new(server.address, server.token("demo", Role::Player, Some("p1")));
        assert_eq!(own.status(&path).await, StatusCode::OK);
        assert_eq!(
            own.status(&format!("{path}/turns/1/trace")).await,
            StatusCode::FORBIDDEN
        );
        assert_eq!(
            own.status("/v1/worlds/vale/npcs/mira/facts").await,
            StatusCode::FORBIDDEN
        );

        // The same holds over the socket.
        let mut thief = server.player("p2").await;
        thief
            .send(&json!({"type": "player.say", "session_id": session, "text": "hi"}))
            .await;
        let event = thief.next().await;
        assert_eq!(event["type"], "error", "{event}");
        thief
            .send(&json!({"type": "session.create", "world_id": "vale", "npc_id": "mira", "player_id": "p1"}))
            .await;
        let event = thief.next().await;
        assert_eq!(event["type"], "error", "a player may speak for itself only: {event}");
    });
}

#[test]
fn rewind_of_another_tenant_is_rejected() {
    run(async {
        let server = fresh(&[("COLLOQUY__TENANTS", "rival")]).start();
        let rest = server.backend();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.say_line(&session, "I like grapes.").await;
        let create = json!({"world_id": "vale", "npc_ids": ["mira", "ergen"], "auto": false});
        let talk = rest.post("/v1/npc-conversations", &create).await;
        let session = format!("/v1/sessions/{session}");
        let talk = format!("/v1/npc-conversations/{}", talk["id"].as_str().unwrap());
        rest.post(&format!("{talk}:step"), &json!({})).await;

        let rival = RestClient::new(server.address, server.token("rival", Role::Admin, None));
        let said = async || {
            (
                rest.get(&format!("{session}/turns")).await,
                rest.get(&format!("{talk}/turns")).await,
            )
        };
        let before = said().await;
        let cut = json!({"turn": 1, "heard_chars": 1});
        let back = json!({"turn": 0});
        let anew = json!({"key": "k1"});
        let nothing = json!({});
        let joining = json!({"player_id": "p1"});
        let line = json!({"text": "hi"});
        for (method, path, body) in [
            (Method::POST, format!("{session}:interrupt"), Some(&cut)),
            (Method::POST, format!("{session}:rewind"), Some(&back)),
            (Method::POST, format!("{session}:regenerate"), Some(&anew)),
            (Method::POST, format!("{session}:resume"), Some(&anew)),
            (Method::POST, format!("{session}/context"), Some(&line)),
            (Method::DELETE, session.clone(), None),
            (Method::GET, talk.clone(), None),
            (Method::GET, format!("{talk}/turns"), None),
            (Method::GET, format!("{talk}/summaries"), None),
            (Method::POST, format!("{talk}:step"), Some(&nothing)),
            (Method::POST, format!("{talk}:interrupt"), Some(&cut)),
            (Method::POST, format!("{talk}:resume"), Some(&nothing)),
            (Method::POST, format!("{talk}:join"), Some(&joining)),
            (Method::DELETE, talk.clone(), None),
        ] {
            let (status, answer) = rival.call(method.clone(), &path, body).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{method} {path}: {answer}");
        }
        assert_eq!(said().await, before);
        for path in [&session, &talk] {
            let stands = rest.get(path).await;
            assert_eq!(
                (&stands["head_turn"], &stands["status"]),
                (&json!(1), &json!("open")),
                "{stands}"
            );
        }
    });
}

#[test]
fn key_set_admits_tokens_signed_by_its_keys() {
    fn signing_key(kid: &str) -> (Algorithm, EncodingKey) {
        let pem = |name: &str| {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/keys");
            std::fs::read(format!("{folder}/{name}.private.pem")).unwrap()
        };
        match kid {
            "ed" => (Algorithm::EdDSA, EncodingKey::from_ed_pem(&pem("ed")).unwrap()),
            "ec" => (Algorithm::ES256, EncodingKey::from_ec_pem(&pem("ec")).unwrap()),
            _ => (Algorithm::RS256, EncodingKey::from_rsa_pem(&pem("rsa")).unwrap()),
        }
    }
    let sign = |signer: &str, kid: Option<&str>, audience: &str| {
        let (algorithm, key) = signing_key(signer);
        let mut header = Header::new(algorithm);
        header.kid = kid.map(str::to_owned);
        let claims = json!({"sub": "game", "tid": "demo", "role": "player", "pid": "p1", "aud": audience,
            "exp": 2_000_000_000_u64});
        jsonwebtoken::encode(&header, &claims, &key).unwrap()
    };
    let kids = ["ed", "ec", "rsa"];
    let keys: Vec<Value> = kids
        .iter()
        .map(|kid| {
            let (algorithm, key) = signing_key(kid);
            let mut jwk = Jwk::from_encoding_key(&key, algorithm).unwrap();
            jwk.common.key_id = Some((*kid).to_owned());
            let mut jwk = serde_json::to_value(jwk).unwrap();
            // Key sets contain only public halves.
            jwk.as_object_mut()
                .unwrap()
                .retain(|name, _| !matches!(name.as_str(), "d" | "p" | "q" | "dp" | "dq" | "qi"));
            jwk
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jwks.json");
    std::fs::write(&file, json!({"keys": keys}).to_string()).unwrap();
    run(async {
        let server = fresh(&[("COLLOQUY__AUTH__JWKS_FILE", file.to_str().unwrap())]).start();
        for kid in kids {
            let token = sign(kid, Some(kid), "colloquy");
            let mut socket = TestSocket::open(server.address, &token).await;
            let session = socket.session("mira", "p1").await;
            assert_eq!(socket.say_line(&session, "Hello.").await.turn, 1, "{kid}");
            let rest = RestClient::new(server.address, token);
            assert_eq!(
                rest.status(&format!("/v1/sessions/{session}")).await,
                StatusCode::OK,
                "{kid}"
            );
        }
        for (what, token) in [
            ("another key's name", sign("ed", Some("ec"), "colloquy")),
            ("an unknown name", sign("ed", Some("old"), "colloquy")),
            ("no name", sign("ed", None, "colloquy")),
            ("another audience", sign("ed", Some("ed"), "elsewhere")),
        ] {
            let refused = TestSocket::try_open(server.address, &token).await.err();
            assert_eq!(refused, Some(StatusCode::UNAUTHORIZED), "{what}");
        }
    });
}

#[test]
fn cursor_reveals_nothing_of_foreign_objects() {
    run(async {
        let server = fresh(&[]).start();
        let player = |name: &str| RestClient::new(server.address, server.token("demo", Role::Player, Some(name)));
        let (own, foreign) = (player("p1"), player("p2"));
        let open = async |rest: &RestClient| {
            let new = json!({"world_id": "vale", "npc_id": "mira"});
            rest.post("/v1/sessions", &new).await["id"].as_str().unwrap().to_owned()
        };
        let (first, second, theirs) = (open(&own).await, open(&own).await, open(&foreign).await);
        let talk = json!({"world_id": "vale", "npc_ids": ["mira", "ergen"], "auto": false});
        let talk = server.backend().post("/v1/npc-conversations", &talk).await["id"].clone();
        let after = async |rest: &RestClient, cursor: &str| {
            let path = format!("/v1/sessions?after={cursor}");
            let (status, mut body) = rest.call(Method::GET, &path, None).await;
            body["request_id"] = Value::Null;
            (status, body)
        };
        let (status, page) = after(&own, &second).await;
        assert_eq!((status, &page["items"][0]["id"]), (StatusCode::OK, &json!(first)));
        let unknown = after(&own, "ses_00000000000000000000000001").await;
        assert_eq!(unknown.0, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(after(&own, &theirs).await, unknown);
        assert_eq!(after(&own, talk.as_str().unwrap()).await, unknown);
        // A caller who may see both lists may use either cursor.
        assert_eq!(after(&server.backend(), &theirs).await.0, StatusCode::OK);

        // A fact of another world is no valid cursor, like an unknown fact.
        server
            .rest(Role::Admin)
            .call(
                Method::PUT,
                "/v1/worlds/moor",
                Some(&json!({"name": "Moor", "language": "en"})),
            )
            .await;
        server
            .rest(Role::Admin)
            .call(Method::PUT, "/v1/worlds/moor/npcs/tam", Some(&json!({"name": "Tam"})))
            .await;
        let facts = "/v1/worlds/moor/npcs/tam/facts";
        let fact = json!({"content": "The bridge is out.", "subject": "bridge", "predicate": "be", "object": "out", "kind": "event"});
        let fact = server.backend().post(facts, &fact).await["id"]
            .as_str()
            .unwrap()
            .to_owned();
        let (here, elsewhere) = (
            format!("{facts}?after={fact}"),
            format!("/v1/worlds/vale/npcs/mira/facts?after={fact}"),
        );
        assert_eq!(server.backend().status(&here).await, StatusCode::OK);
        assert_eq!(
            server.backend().status(&elsewhere).await,
            StatusCode::UNPROCESSABLE_ENTITY
        );
    });
}

#[test]
fn repeated_request_renews_no_token_of_an_unreachable_session() {
    run(async {
        let server = fresh(&[]).start();
        let talk = json!({"world_id": "vale", "npc_ids": ["mira", "ergen"], "auto": false, "open": true, "interrupters": "all"});
        let talk = server.backend().post("/v1/npc-conversations", &talk).await["id"].clone();
        let join = format!("/v1/npc-conversations/{}:join", talk.as_str().unwrap());
        let ask = async |token: String| {
            let rest = RestClient::new(server.address, token);
            let keyed = [("Idempotency-Key", "join-1")];
            rest.answer(Method::POST, &join, Some(&json!({})), &keyed)
                .await
                .unwrap()
        };
        let token = server.token("demo", Role::Player, Some("p1"));
        let joined = ask(token.clone()).await;
        assert_eq!(joined.status, StatusCode::CREATED, "{joined:?}");
        // The same player with a token that no longer reaches the world.
        let bound = ask(server.token_in("demo", "p1", "elsewhere")).await;
        assert_eq!(bound.status, StatusCode::NOT_FOUND, "{bound:?}");
        // The first answer's token is still valid.
        let mut socket = server.player("p1").await;
        socket
            .send(&json!({
                "type": "session.resume", "session_id": joined.body["id"], "resume_token": joined.body["resume_token"],
            }))
            .await;
        socket.until("session.resumed").await;
        // A token that reaches the session gets a new resume token.
        let again = ask(token).await;
        assert_eq!(again.status, StatusCode::CREATED);
        assert_ne!(again.body["resume_token"], joined.body["resume_token"]);
    });
}

#[test]
fn prompt_sizes_are_hidden_from_players() {
    run(async {
        let server = fresh(&[]).start();
        let backend = server.backend();
        let player = RestClient::new(server.address, server.token("demo", Role::Player, Some("p1")));
        let new = json!({"world_id": "vale", "npc_id": "mira", "greeting": true});
        let session = player.post("/v1/sessions", &new).await;
        let id = session["id"].as_str().unwrap();
        let turns = format!("/v1/sessions/{id}/turns");
        let said = player.post(&turns, &json!({"text": "Hello!"})).await;
        let regenerated = player.post(&format!("/v1/sessions/{id}:regenerate"), &json!({})).await;
        let mut read = vec![said, regenerated];
        read.extend(player.get(&turns).await["items"].as_array().unwrap().clone());
        assert_eq!(read.len(), 4);
        for turn in &read {
            assert_eq!(
                (&turn["usage"]["prompt_tokens"], &turn["usage"]["cached_tokens"]),
                (&json!(0), &json!(0)),
                "{turn}"
            );
        }
        let own = backend.get(&turns).await["items"][1].clone();
        assert!(own["usage"]["prompt_tokens"].as_u64().unwrap() > 0, "{own}");
        assert_eq!(own["usage"]["completion_tokens"], read[3]["usage"]["completion_tokens"]);
        // The same for a request's event stream. Sockets use the same filter.
        let http = reqwest::Client::new();
        for (token, shown) in [
            (server.token("demo", Role::Player, Some("p1")), false),
            (server.token("demo", Role::Backend, None), true),
        ] {
            let asked = http
                .post(format!("http://{}{turns}", server.address))
                .bearer_auth(token)
                .header("Accept", "text/event-stream")
                .json(&json!({"text": "Is it raining?"}));
            let events = asked.send().await.unwrap().text().await.unwrap();
            assert!(events.contains("reply.done"), "{events}");
            assert_eq!(!events.contains("\"prompt_tokens\":0"), shown, "{events}");
        }
    });
}
