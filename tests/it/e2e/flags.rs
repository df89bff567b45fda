//! Flagged facts over REST: each reason with each decision, and what happens to decisions when turns are taken back.

use colloquy::{
    mock_llm::{self, MockHandle, MockOptions},
    ports::clock::{Clock as _, SystemClock},
    tenancy::Role,
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::fresh;
use crate::support::{RestClient, TestServer, eventually, run};

const FLAGS: &str = "/v1/worlds/vale/flags";

struct Stage {
    mock: MockHandle,
    server: TestServer,
    backend: RestClient,
    session: String,
}

impl Stage {
    async fn start() -> Self {
        let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
        let server = fresh(&[("COLLOQUY__JOBS__POLL_S", "1")])
            .with_mock(&mock.base_url())
            .start();
        let backend = server.backend();
        let mut stage = Self {
            mock,
            server,
            backend,
            session: String::new(),
        };
        stage.session = stage.open_session("p1").await;
        stage
    }
    async fn open_session(&self, player: &str) -> String {
        let body = json!({"world_id": "vale", "npc_id": "mira", "player_id": player});
        id_of(&self.backend.post("/v1/sessions", &body).await)
    }
    /// The judge gives `verdict` from now on.
    fn judge(&self, verdict: &str) {
        self.mock.apply_settings(&json!({ "verdict": verdict })).unwrap();
    }
    async fn say_in(&self, session: &str, text: &str) {
        let path = format!("/v1/sessions/{session}/turns");
        self.backend.post(&path, &json!({ "text": text })).await;
        self.backend.idle().await;
    }
    async fn rewind_in(&self, session: &str, turn: u32) {
        let path = format!("/v1/sessions/{session}:rewind");
        self.backend.post(&path, &json!({ "turn": turn })).await;
        self.backend.idle().await;
    }
    async fn say(&self, text: &str) {
        self.say_in(&self.session, text).await;
    }
    async fn rewind(&self, turn: u32) {
        self.rewind_in(&self.session, turn).await;
    }
    /// A person writes that the player likes a fruit, which the NPC knows of this player.
    async fn write_taste(&self, fruit: &str) -> String {
        let body = json!({
            "subject": "player", "predicate": "like", "object": fruit, "kind": "preference", "private_to": "p1",
            "content": format!("The player likes {fruit}."), "keywords": [fruit],
        });
        id_of(&self.backend.post("/v1/worlds/vale/npcs/mira/facts", &body).await)
    }
    /// A person writes a fact with a telephone number.
    async fn write_number(&self, who: &str, number: &str) -> String {
        let body = json!({
            "subject": who, "predicate": "have", "object": "a telephone", "kind": "profile",
            "content": format!("{who} can be called at {number}."),
        });
        id_of(&self.backend.post("/v1/worlds/vale/npcs/mira/facts", &body).await)
    }
    async fn flags(&self, query: &str) -> Vec<Value> {
        let listed = self.backend.get(&format!("{FLAGS}?{query}")).await;
        listed["items"].as_array().unwrap().clone()
    }
    async fn fact(&self, id: &str) -> Value {
        self.backend.get(&format!("/v1/facts/{id}")).await
    }
    async fn decide(&self, fact: &str, flag: &str, body: &Value) -> (StatusCode, Value) {
        let path = format!("{FLAGS}/{fact}/{flag}:decide");
        self.backend.call(Method::POST, &path, Some(body)).await
    }
    async fn decided(&self, fact: &str, flag: &str, body: &Value) -> Value {
        let (status, answer) = self.decide(fact, flag, body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    }
    /// The contents of a search in the NPC's memory of the player, best first.
    async fn search(&self, text: &str) -> Vec<String> {
        let path = format!("/v1/worlds/vale/npcs/mira/facts?q={text}&player_id=p1");
        let found = self.backend.get(&path).await;
        let contents = found["items"].as_array().unwrap().iter();
        contents
            .map(|fact| fact["content"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn id_of(value: &Value) -> String {
    value["id"].as_str().unwrap().to_owned()
}

fn facts_of(flags: &[Value]) -> Vec<&str> {
    flags.iter().map(|flag| flag["fact"]["id"].as_str().unwrap()).collect()
}

#[test]
fn contradicted_facts_are_accepted_corrected_and_dismissed() {
    run(async {
        let stage = Stage::start().await;
        let [grapes, plums, pears] = [
            stage.write_taste("grapes").await,
            stage.write_taste("plums").await,
            stage.write_taste("pears").await,
        ];
        for line in ["I hate grapes.", "I hate plums.", "I hate pears."] {
            stage.say(line).await;
        }
        let open = stage.flags("flag=contradicted").await;
        assert_eq!(facts_of(&open), [&*pears, &*plums, &*grapes]);
        let flag = &open[2];
        assert_eq!((&flag["state"], &flag["decided_by"]), (&json!("open"), &Value::Null));
        let said = &flag["statements"][0];
        assert_eq!(
            (&said["content"], &said["speaker"], &said["source_turn"]),
            (&json!("The player hates grapes."), &json!("player:p1"), &json!(1))
        );
        assert_eq!(stage.flags("npc_id=mira").await.len(), 3);
        assert_eq!(stage.flags("npc_id=ergen").await.len(), 0);

        // Accepted: the author's fact ends, and the statement stays.
        let accept = json!({"decision": "accepted", "reason": "Tastes change."});
        let accepted = stage.decided(&grapes, "contradicted", &accept).await;
        assert_eq!(
            (&accepted["state"], &accepted["reason"], &accepted["decided_role"]),
            (&json!("accepted"), &json!("Tastes change."), &json!("backend"))
        );
        let ended = stage.fact(&grapes).await;
        assert_eq!(
            (&ended["invalid_reason"], &ended["invalid_by"]),
            (&json!("superseded"), &said["id"])
        );
        let found = stage.search("grapes").await;
        assert!(found.contains(&"The player hates grapes.".to_owned()), "{found:?}");
        assert!(!found.contains(&"The player likes grapes.".to_owned()), "{found:?}");
        assert_eq!(
            stage.decided(&grapes, "contradicted", &accept).await,
            accepted,
            "repeated"
        );

        // Corrected: another fact takes the place of the author's fact.
        let correction = json!({"predicate": "like", "object": "plum jam", "content": "The player likes plum jam."});
        let correct = json!({ "decision": "corrected", "correction": correction });
        let corrected = stage.decided(&plums, "contradicted", &correct).await;
        assert_eq!(corrected["state"], "corrected");
        let by = corrected["fact"]["invalid_by"].as_str().unwrap();
        let jam = stage.fact(by).await;
        assert_eq!(
            (&jam["corrects"], &jam["object"], &jam["authored"]),
            (&json!(plums), &json!("plum jam"), &json!(true))
        );
        let found = stage.search("plum%20jam").await;
        assert!(found.contains(&"The player likes plum jam.".to_owned()), "{found:?}");
        assert!(!found.contains(&"The player likes plums.".to_owned()), "{found:?}");
        assert_eq!(
            stage.decided(&plums, "contradicted", &correct).await,
            corrected,
            "repeated"
        );
        let (status, late) = stage
            .decide(&plums, "contradicted", &json!({"decision": "dismissed"}))
            .await;
        assert_eq!((status, &late["code"]), (StatusCode::CONFLICT, &json!("fact_ended")));
        assert!(late["detail"].as_str().unwrap().contains(by), "{late}");

        // Dismissed: the fact stays, and the same words do not flag the fact again.
        stage
            .decided(&pears, "contradicted", &json!({"decision": "dismissed"}))
            .await;
        assert!(stage.fact(&pears).await["invalid_at"].is_null());
        stage.say("I hate pears.").await;
        assert_eq!(stage.flags("flag=contradicted").await.len(), 0);
        let path = "/v1/worlds/vale/npcs/mira/facts?flagged=true&player_id=p1";
        assert_eq!(stage.backend.get(path).await["items"], json!([]));
        let decided = stage.flags("state=decided").await;
        assert_eq!(facts_of(&decided), [&*pears, &*plums, &*grapes]);

        // A flag goes with its turn, and the author's fact is valid again.
        stage.rewind(0).await;
        assert!(stage.fact(&grapes).await["invalid_at"].is_null());
        assert_eq!(stage.flags("state=decided").await.len(), 0);
        let (status, gone) = stage.decide(&grapes, "contradicted", &accept).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{gone}");
        // A person's correction stands.
        assert!(stage.fact(by).await["invalid_at"].is_null());
        stage.server.stop();
    });
}

#[test]
fn repetition_of_an_accepted_statement_counts_once_the_statement_is_unsaid() {
    run(async {
        let stage = Stage::start().await;
        let grapes = stage.write_taste("grapes").await;
        stage.judge("contradicts");
        stage.say("I hate grapes.").await;
        stage
            .decided(&grapes, "contradicted", &json!({"decision": "accepted"}))
            .await;
        let other = stage.open_session("p1").await;
        stage.judge("same");
        stage.say_in(&other, "I hate all grapes.").await;
        assert_eq!(stage.flags("flag=contradicted").await.len(), 0);
        // As if the first statement had never been made.
        stage.judge("contradicts");
        stage.rewind(0).await;
        assert!(stage.fact(&grapes).await["invalid_at"].is_null());
        let flagged = eventually("the repetition flags the fact", async || {
            stage.flags("flag=contradicted").await.pop()
        })
        .await;
        assert_eq!(
            (&flagged["fact"]["id"], &flagged["state"]),
            (&json!(grapes), &json!("open"))
        );
        assert_eq!(flagged["statements"][0]["source_dialogue_id"], json!(other));
        assert_eq!(stage.flags("state=decided").await.len(), 0);
        stage.server.stop();
    });
}

#[test]
fn personal_data_is_accepted_corrected_and_dismissed() {
    run(async {
        let stage = Stage::start().await;
        let smith = stage.write_number("The smith", "010-1234-5678").await;
        let miller = stage.write_number("The miller", "010-2345-6789").await;
        let tailor = stage.write_number("The tailor", "010-3456-7890").await;
        let open = stage.flags("flag=pii").await;
        assert_eq!(facts_of(&open), [&*tailor, &*miller, &*smith]);
        assert_eq!(
            (&open[0]["fact"]["pii"], &open[0]["statements"]),
            (&json!(["phone"]), &json!([]))
        );

        stage
            .decided(
                &smith,
                "pii",
                &json!({"decision": "accepted", "reason": "It is a game number."}),
            )
            .await;
        stage.decided(&miller, "pii", &json!({"decision": "dismissed"})).await;
        let correction = json!({"content": "The tailor can be called.", "importance": 3});
        let correct = json!({ "decision": "corrected", "correction": correction });
        let corrected = stage.decided(&tailor, "pii", &correct).await;
        let fact = &corrected["fact"];
        assert_eq!(
            (&fact["content"], &fact["pii"], &fact["importance"], &fact["id"]),
            (
                &json!("The tailor can be called."),
                &json!([]),
                &json!(3),
                &json!(tailor)
            )
        );
        assert_eq!(stage.decided(&tailor, "pii", &correct).await, corrected, "repeated");
        assert_eq!(stage.flags("flag=pii").await.len(), 0);
        let decided = stage.flags("flag=pii&state=decided").await;
        let states: Vec<&Value> = decided.iter().map(|flag| &flag["state"]).collect();
        assert_eq!(states, ["corrected", "dismissed", "accepted"]);
        // Edits of persons stand.
        stage.say("It rains.").await;
        stage.rewind(0).await;
        assert_eq!(stage.flags("flag=pii&state=decided").await, decided);
        stage.server.stop();
    });
}

#[test]
fn merged_facts_are_accepted_corrected_and_dismissed() {
    run(async {
        let stage = Stage::start().await;
        stage.judge("same");
        let (mut merged, mut sessions) = (Vec::new(), Vec::new());
        for player in ["p1", "p2", "p3"] {
            let session = stage.open_session(player).await;
            stage.say_in(&session, "I like grapes.").await;
            assert_eq!(stage.flags("").await.len(), merged.len(), "said once");
            stage.say_in(&session, "I like red grapes.").await;
            let open = stage.flags("flag=over_merged").await;
            assert_eq!(open.len(), merged.len() + 1, "{open:?}");
            assert_eq!(open[0]["statements"].as_array().unwrap().len(), 2, "{open:?}");
            merged.push(id_of(&open[0]["fact"]));
            sessions.push(session);
        }
        stage
            .decided(&merged[0], "over_merged", &json!({"decision": "accepted"}))
            .await;
        stage
            .decided(&merged[1], "over_merged", &json!({"decision": "dismissed"}))
            .await;
        let correction = json!({
            "subject": "player", "predicate": "love", "object": "raisins", "kind": "habit", "importance": 8,
            "content": "The player eats raisins every day.", "valid_at": "2020-05-04T00:00:00Z",
        });
        let correct = json!({ "decision": "corrected", "correction": correction });
        let corrected = stage.decided(&merged[2], "over_merged", &correct).await;
        let new = stage.fact(corrected["fact"]["invalid_by"].as_str().unwrap()).await;
        assert_eq!(
            (
                &new["subject"],
                &new["predicate"],
                &new["kind"],
                &new["importance"],
                &new["valid_at"]
            ),
            (
                &json!("player:p3"),
                &json!("love"),
                &json!("habit"),
                &json!(8),
                &json!("2020-05-04T00:00:00Z")
            )
        );
        assert_eq!(
            (&new["speaker"], &new["authored"], &new["private_to"]),
            (&json!("player:p3"), &json!(false), &json!("p3"))
        );
        assert_eq!(stage.flags("").await.len(), 0);
        assert_eq!(stage.flags("state=decided").await.len(), 3);
        // The same words again change nothing.
        stage.say_in(&sessions[0], "I like red grapes.").await;
        assert_eq!(stage.flags("").await.len(), 0);
        // The corrected fact falls with the turn that stated the fact.
        stage.rewind_in(&sessions[2], 1).await;
        assert_eq!(stage.fact(&id_of(&new)).await["invalid_reason"], "unsaid");
        assert_eq!(stage.flags("state=decided").await.len(), 2);
        stage.rewind_in(&sessions[0], 0).await;
        assert_eq!(stage.flags("state=decided").await.len(), 1);
        stage.server.stop();
    });
}

#[test]
fn statement_and_dates_of_a_fact_are_edited_as_a_new_fact() {
    run(async {
        let stage = Stage::start().await;
        let fact = stage.write_taste("grapes").await;
        let path = format!("/v1/facts/{fact}");
        let change = async |path: &str, body: Value| stage.backend.call(Method::PATCH, path, Some(&body)).await;
        let now = SystemClock.now();
        let (status, answer) = change(&path, json!({"invalid_at": now + chrono::TimeDelta::days(1)})).await;
        assert_eq!(
            (status, &answer["param"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_at"))
        );
        let (status, answer) = change(
            &path,
            json!({"valid_at": "2020-01-02T00:00:00Z", "invalid_at": "2020-01-01T00:00:00Z"}),
        )
        .await;
        assert_eq!(
            (status, &answer["param"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid_at"))
        );
        // The same values are no change.
        let (_, same) = change(&path, json!({"object": "grapes", "kind": "preference"})).await;
        assert_eq!((&same["id"], &same["version"]), (&json!(fact), &json!(1)));
        let body = json!({"kind": "habit", "valid_at": "2020-01-01T00:00:00Z", "invalid_at": "2021-01-01T00:00:00Z"});
        let (status, new) = change(&path, body).await;
        assert_eq!(status, StatusCode::OK, "{new}");
        assert_eq!(
            (
                &new["corrects"],
                &new["kind"],
                &new["invalid_reason"],
                &new["invalid_at"]
            ),
            (
                &json!(fact),
                &json!("habit"),
                &json!("ended"),
                &json!("2021-01-01T00:00:00Z")
            )
        );
        assert_eq!(stage.fact(&fact).await["invalid_by"], new["id"]);
        let listed = async |at: &str| {
            let path = format!("/v1/worlds/vale/npcs/mira/facts?player_id=p1&subject=player&at={at}");
            let listed = stage.backend.get(&path).await;
            listed["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(id_of)
                .collect::<Vec<_>>()
        };
        assert_eq!(listed("2020-06-01T00:00:00Z").await, [id_of(&new)]);
        assert!(listed("2022-06-01T00:00:00Z").await.is_empty());
        let (status, late) = change(&path, json!({"object": "plums"})).await;
        assert_eq!((status, &late["code"]), (StatusCode::CONFLICT, &json!("fact_ended")));
        stage.server.stop();
    });
}

#[test]
fn wrong_decisions_are_refused() {
    run(async {
        let stage = Stage::start().await;
        let fact = stage.write_number("The smith", "010-1234-5678").await;
        let path = format!("{FLAGS}/{fact}/pii:decide");
        for (body, param) in [
            (json!({"decision": "maybe"}), "decision"),
            (json!({"decision": "corrected"}), "correction"),
            (json!({"decision": "corrected", "correction": {}}), "correction"),
            (
                json!({"decision": "accepted", "correction": {"pinned": true}}),
                "correction",
            ),
            (json!({"decision": "accepted", "reason": "x".repeat(301)}), "reason"),
            (json!({"decision": "accepted", "reason": "two\nlines"}), "reason"),
            (
                json!({"decision": "corrected", "correction": {"importance": 11}}),
                "correction.importance",
            ),
            (
                json!({"decision": "corrected", "correction": {"subject": "x".repeat(201)}}),
                "correction.subject",
            ),
            (
                json!({"decision": "corrected", "correction": {"invalid_at": "2999-01-01T00:00:00Z"}}),
                "correction.invalid_at",
            ),
        ] {
            let (status, answer) = stage.backend.call(Method::POST, &path, Some(&body)).await;
            assert_eq!(
                (status, &answer["param"]),
                (StatusCode::UNPROCESSABLE_ENTITY, &json!(param)),
                "{answer}"
            );
        }
        let body = json!({"decision": "accepted"});
        for (path, status) in [
            (format!("{FLAGS}/{fact}/contradicted:decide"), StatusCode::NOT_FOUND),
            (format!("{FLAGS}/{fact}/doubtful:decide"), StatusCode::NOT_FOUND),
            (
                format!("{FLAGS}/fact_00000000000000000000000000/pii:decide"),
                StatusCode::NOT_FOUND,
            ),
            (
                format!("/v1/worlds/elsewhere/flags/{fact}/pii:decide"),
                StatusCode::NOT_FOUND,
            ),
        ] {
            assert_eq!(
                stage.backend.call(Method::POST, &path, Some(&body)).await.0,
                status,
                "{path}"
            );
        }
        for role in [Role::Viewer, Role::Operator] {
            let refused = stage.server.rest(role).call(Method::POST, &path, Some(&body)).await;
            assert_eq!(refused.0, StatusCode::FORBIDDEN, "{refused:?}");
        }
        for query in ["after=x", "limit=0", "flag=odd", "state=closed"] {
            let (status, answer) = stage.backend.call(Method::GET, &format!("{FLAGS}?{query}"), None).await;
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{query}: {answer}");
        }
        assert_eq!(stage.flags("").await.len(), 1, "refused requests change nothing");
        stage.server.stop();
    });
}

#[test]
fn decision_is_repeated_by_its_key_and_audited() {
    run(async {
        let stage = Stage::start().await;
        let fact = stage.write_number("The smith", "010-1234-5678").await;
        let path = format!("{FLAGS}/{fact}/pii:decide");
        let body = json!({"decision": "accepted"});
        let key = [("Idempotency-Key", "k1")];
        let first = stage
            .backend
            .answer(Method::POST, &path, Some(&body), &key)
            .await
            .unwrap();
        assert_eq!(first.status, StatusCode::OK, "{}", first.body);
        stage.decided(&fact, "pii", &json!({"decision": "dismissed"})).await;
        let again = stage
            .backend
            .answer(Method::POST, &path, Some(&body), &key)
            .await
            .unwrap();
        assert_eq!((again.status, &again.body), (StatusCode::OK, &first.body));
        let other = json!({"decision": "dismissed"});
        let other = stage
            .backend
            .answer(Method::POST, &path, Some(&other), &key)
            .await
            .unwrap();
        assert_eq!(other.body["code"], "idempotency_mismatch", "{}", other.body);
        assert_eq!(stage.flags("state=decided").await[0]["state"], "dismissed");

        let audit = stage.server.rest(Role::Admin).get("/v1/audit?limit=200").await;
        let rows = audit["items"].as_array().unwrap().iter();
        let rows: Vec<&Value> = rows.filter(|row| row["action"] == "flag.decide").collect();
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!(rows[0]["object"], format!("{fact}/pii"));
        // The fact is gone.
        let removed = stage
            .backend
            .call(Method::DELETE, &format!("/v1/facts/{fact}"), None)
            .await;
        assert_eq!(removed.0, StatusCode::OK);
        let (status, gone) = stage.decide(&fact, "pii", &body).await;
        assert_eq!((status, &gone["code"]), (StatusCode::CONFLICT, &json!("fact_ended")));
        stage.server.stop();
    });
}
