//! Sockets at nodes that do not own the dialogues.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::{NodeCluster, forwarded_count, standing_lines};
use crate::support::{TestServer, TestSocket, eventually, run};

pub(super) async fn resume_session(
    socket: &mut TestSocket,
    session: &str,
    token: &str,
    last_seq: u64,
) -> (Value, Vec<Value>) {
    socket
        .send(
            &json!({"type": "session.resume", "event_id": "r", "session_id": session, "resume_token": token,
            "last_seq": last_seq}),
        )
        .await;
    let mut before = Vec::new();
    loop {
        let event = socket.next().await;
        if event["type"] == "session.resumed" {
            return (event, before);
        }
        assert_ne!(event["type"], "error", "{event}");
        before.push(event);
    }
}

async fn close_code(socket: &mut TestSocket) -> u16 {
    loop {
        if let Err(code) = socket.next_or_close().await {
            return code;
        }
    }
}

#[test]
fn session_is_resumed_and_spoken_in_at_another_node() {
    run(async {
        let nodes = NodeCluster::start(2, &[]).await;
        let (session, token) = nodes.session(0).await;
        let mut socket = nodes.servers[1].player("p1").await;
        let (resumed, missed) = resume_session(&mut socket, &session, &token, 1).await;
        assert_eq!(resumed["head_turn"], 1, "{resumed}");
        let kinds: Vec<&str> = missed.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["turn.started", "reply.done", "turn.committed"]);

        let reply = socket.say_line(&session, "And you?").await;
        assert_eq!((reply.turn, reply.status.as_str()), (2, "completed"));
        assert_eq!(reply.streamed, reply.text);
        assert!(forwarded_count(&nodes.servers[1], "socket").await >= 1.0);
        // The owner's errors refer to the client's messages.
        socket
            .send(&json!({"type": "player.interrupt", "event_id": "i", "session_id": session, "turn": 9}))
            .await;
        let refused = loop {
            let event = socket.next().await;
            if event["type"] == "error" {
                break event;
            }
        };
        assert_eq!(
            (&refused["re"], &refused["dialogue_id"]),
            (&json!("i"), &json!(session))
        );
        assert_eq!(standing_lines(&nodes.servers[0].backend(), &session).await.len(), 2);

        // A newer connection at the owner takes over the session, and the older socket closes.
        let mut newer = nodes.servers[0].player("p1").await;
        resume_session(&mut newer, &session, &token, 1).await;
        assert_eq!(close_code(&mut socket).await, 4409);
        assert_eq!(newer.say_line(&session, "Still there?").await.turn, 3);
    });
}

async fn wait_for_event(socket: &mut TestSocket, kind: &str, turn: u64) -> Value {
    loop {
        let event = socket.until(kind).await;
        if event["turn"].as_u64() >= Some(turn) {
            return event;
        }
    }
}

pub(super) async fn conversation(server: &TestServer, auto: bool) -> String {
    let body = json!({"world_id": "vale", "npc_ids": ["ergen", "mira"], "topic": "the mill", "auto": auto,
        "max_turns": 100, "open": true, "interrupters": "all"});
    let made = server.backend().post("/v1/npc-conversations", &body).await;
    made["id"].as_str().unwrap().to_owned()
}

pub(super) async fn watch_conversation(socket: &mut TestSocket, id: &str) {
    socket
        .send(&json!({"type": "npc_conversation.watch", "conversation_id": id}))
        .await;
    socket.until("npc_conversation.created").await;
}

#[test]
fn conversation_is_watched_and_interrupted_across_nodes() {
    run(async {
        let nodes = NodeCluster::start(3, &[]).await;
        let id = conversation(&nodes.servers[0], false).await;
        let path = format!("/v1/npc-conversations/{id}");
        nodes.servers[0]
            .backend()
            .post(&format!("{path}:step"), &json!({}))
            .await;
        let mut ears = Vec::new();
        for server in &nodes.servers {
            let mut socket = server.player("p1").await;
            watch_conversation(&mut socket, &id).await;
            ears.push(socket);
        }
        // The conversation may be stepped at any node.
        nodes.servers[1]
            .backend()
            .post(&format!("{path}:step"), &json!({}))
            .await;
        for ear in &mut ears {
            wait_for_event(ear, "npc_turn.committed", 2).await;
        }
        // An interrupt with a line opens a session at the owner. The player speaks in the session from here.
        let socket = &mut ears[2];
        socket
            .send(
                &json!({"type": "npc_conversation.interrupt", "event_id": "c", "conversation_id": id, "turn": 1,
                "key": "in", "text": "Wait, who stole it?"}),
            )
            .await;
        let created = socket.until("session.created").await;
        assert_eq!(created["re"], "c");
        let session = created["session_id"].as_str().unwrap().to_owned();
        assert_eq!(socket.reply().await.turn, 1);
        assert_eq!(socket.say_line(&session, "Go on.").await.turn, 2);
        let rewound = ears[1].until("dialogue.rewound").await;
        assert_eq!(rewound["removed_turns"], json!([2]), "{rewound}");
        assert_eq!(
            standing_lines(&nodes.servers[1].backend(), &session).await,
            ["Wait, who stole it?", "Go on."]
        );
    });
}

#[test]
fn remote_session_is_notified_when_its_source_line_is_unsaid() {
    run(async {
        let nodes = NodeCluster::start(2, &[]).await;
        let id = conversation(&nodes.servers[0], false).await;
        let path = format!("/v1/npc-conversations/{id}");
        let rest = nodes.servers[0].backend();
        for _ in 0..2 {
            rest.post(&format!("{path}:step"), &json!({})).await;
        }
        // The session is joined and used at the other node.
        let other = nodes.servers[1].backend();
        let joined = other.post(&format!("{path}:join"), &json!({"player_id": "p1"})).await;
        let session = joined["id"].as_str().unwrap().to_owned();
        let (mut socket, token) = (
            nodes.servers[1].player("p1").await,
            joined["resume_token"].as_str().unwrap(),
        );
        resume_session(&mut socket, &session, token, 1).await;
        assert_eq!(socket.say_line(&session, "Hello.").await.turn, 1);
        rest.post(&format!("{path}:interrupt"), &json!({"turn": 1})).await;
        let closed = socket.until("session.closed").await;
        assert_eq!(
            (&closed["dialogue_id"], &closed["reason"]),
            (&json!(session), &json!("rewound"))
        );
    });
}

#[test]
fn socket_ticket_of_one_node_works_once_at_another() {
    run(async {
        let nodes = NodeCluster::start(2, &[]).await;
        let player = nodes.servers[0].rest(colloquy::tenancy::Role::Player);
        let ticket = player.post("/v1/tickets", &json!({})).await;
        let ticket = ticket["ticket"].as_str().unwrap();
        let other = nodes.servers[1].address;
        let url = format!("ws://{other}/v1/ws?ticket={ticket}");
        let (mut stream, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
        stream.send(Message::text(r#"{"type":"ping","t":1}"#)).await.unwrap();
        let answer = stream.next().await.unwrap().unwrap().into_text().unwrap();
        assert!(answer.contains("pong"), "{answer}");
        let (mut again, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
        let refused = again.next().await.unwrap().unwrap().into_text().unwrap();
        assert!(refused.contains("unauthenticated"), "{refused}");
    });
}

#[test]
fn fact_learned_at_one_node_is_remembered_at_another() {
    run(async {
        let nodes = NodeCluster::start(2, &[]).await;
        let [first, second] = [0, 1].map(|at| nodes.servers[at].backend());
        let open = async |rest: &crate::support::RestClient| {
            let body = json!({"world_id": "vale", "npc_id": "mira", "player_id": "p1"});
            let made = rest.post("/v1/sessions", &body).await;
            made["id"].as_str().unwrap().to_owned()
        };
        let (here, there) = (open(&first).await, open(&second).await);
        // Both nodes load mira's memory before any learning.
        super::say(&first, &here, "a", "Hello.").await;
        super::say(&second, &there, "b", "Hello.").await;
        first.idle().await;
        super::say(&first, &here, "c", "I like grapes.").await;
        first.idle().await;
        eventually("the other node to know", || async {
            let path = format!("/v1/sessions/{there}/context");
            let preview = second.post(&path, &json!({"text": "What fruit do I like?"})).await;
            preview["messages"].to_string().contains("grapes").then_some(())
        })
        .await;
        // Manual edits reach the other node as well.
        let path = "/v1/worlds/vale/npcs/mira";
        let mut mira = second.get(path).await;
        mira["persona"]["description"] = json!("She keeps seventeen geese.");
        let body = json!({"name": mira["name"], "language": mira["language"], "persona": mira["persona"]});
        let (status, answer) = second.call(reqwest::Method::PUT, path, Some(&body)).await;
        assert!(status.is_success(), "{status} {answer}");
        let preview = first
            .post(&format!("/v1/sessions/{here}/context"), &json!({"text": "Hm?"}))
            .await;
        assert!(preview["messages"].to_string().contains("seventeen geese"), "{preview}");
    });
}
