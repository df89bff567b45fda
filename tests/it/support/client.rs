//! A game client's socket and a backend's REST calls.

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream,
    tungstenite::{Error, Message, client::IntoClientRequest},
};

use super::{PATIENCE, eventually_after_outage};

/// A player's socket.
pub struct TestSocket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

/// A finished turn as the client saw it.
#[derive(Debug)]
pub struct SocketReply {
    pub turn: u64,
    pub text: String,
    pub status: String,
    /// The deltas, joined.
    pub streamed: String,
}

impl TestSocket {
    pub async fn open(address: SocketAddr, token: &str) -> Self {
        Self::try_open(address, token).await.expect("the socket was refused")
    }
    /// Opens a socket at another path, such as `/v1/realtime?model=vale/mira`.
    pub async fn open_at(address: SocketAddr, token: &str, path: &str) -> Self {
        Self::try_open_at(address, token, path)
            .await
            .expect("the socket was refused")
    }
    /// Opens a socket, or returns the status of the refusal.
    pub async fn try_open(address: SocketAddr, token: &str) -> Result<Self, StatusCode> {
        Self::try_open_at(address, token, "/v1/ws").await
    }
    async fn try_open_at(address: SocketAddr, token: &str, path: &str) -> Result<Self, StatusCode> {
        let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("Authorization", bearer);
        match tokio_tungstenite::connect_async(request).await {
            Ok((stream, _)) => Ok(Self { stream }),
            Err(Error::Http(response)) => Err(StatusCode::from_u16(response.status().as_u16()).unwrap()),
            Err(error) => panic!("cannot connect: {error}"),
        }
    }
    /// Opens a player's socket at a server that may be gone or stopping.
    pub async fn open_if_reachable(address: SocketAddr, token: &str) -> Option<Self> {
        let mut request = format!("ws://{address}/v1/ws").into_client_request().unwrap();
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("Authorization", bearer);
        let (stream, _) = tokio_tungstenite::connect_async(request).await.ok()?;
        Some(Self { stream })
    }
    /// Sends a line like [`Self::send_line`], with the key as event id. Returns `false` if the socket is closed.
    pub async fn try_send_line(&mut self, session: &str, key: &str, text: &str) -> bool {
        let say = json!({"type": "player.say", "event_id": key, "session_id": session, "key": key, "text": text});
        self.stream.send(Message::text(say.to_string())).await.is_ok()
    }
    /// Sends a message. Returns `false` if the socket is closed.
    pub async fn try_send(&mut self, message: &Value) -> bool {
        self.stream.send(Message::text(message.to_string())).await.is_ok()
    }
    pub async fn send(&mut self, message: &Value) {
        self.send_raw(message.to_string()).await;
    }
    pub async fn send_raw(&mut self, text: String) {
        self.stream.send(Message::text(text)).await.unwrap();
    }
    /// Returns the next event, or the code of the closed socket.
    pub async fn next_or_close(&mut self) -> Result<Value, u16> {
        let receiving = async {
            loop {
                match self.stream.next().await {
                    Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                    Some(Ok(Message::Close(frame))) => return Err(frame.map_or(1005, |f| f.code.into())),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Err(1006),
                }
            }
        };
        timeout(PATIENCE, receiving).await.expect("the server said nothing")
    }
    pub async fn next(&mut self) -> Value {
        match self.next_or_close().await {
            Ok(event) => event,
            Err(code) => panic!("the socket was closed with {code}"),
        }
    }
    /// Returns the next event of this type, skipping other events. Panics on an unexpected error event.
    pub async fn until(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next().await;
            if event["type"] == kind {
                return event;
            }
            assert_ne!(event["type"], "error", "waiting for {kind}: {event}");
        }
    }
    /// Opens a session with an NPC of the demo.
    pub async fn session(&mut self, npc: &str, player: &str) -> String {
        self.send(&json!({"type": "session.create", "world_id": "vale", "npc_id": npc, "player_id": player}))
            .await;
        self.until("session.created").await["session_id"]
            .as_str()
            .unwrap()
            .to_owned()
    }
    /// Sends a line without waiting.
    pub async fn send_line(&mut self, session: &str, key: &str, text: &str) {
        self.send(&json!({"type": "player.say", "session_id": session, "key": key, "text": text}))
            .await;
    }
    /// Says a line, and waits until its turn is committed or has failed.
    pub async fn say_line(&mut self, session: &str, text: &str) -> SocketReply {
        self.send_line(session, &format!("{:x}", rand::random::<u128>()), text)
            .await;
        self.reply().await
    }
    /// Waits for the end of the running turn.
    pub async fn reply(&mut self) -> SocketReply {
        let mut streamed = String::new();
        loop {
            let event = self.next().await;
            match event["type"].as_str().unwrap() {
                "reply.delta" => streamed.push_str(event["text"].as_str().unwrap()),
                "reply.done" => {
                    let reply = SocketReply {
                        turn: event["turn"].as_u64().unwrap(),
                        text: event["text"].as_str().unwrap().to_owned(),
                        status: event["status"].as_str().unwrap().to_owned(),
                        streamed,
                    };
                    if reply.status != "failed" {
                        let committed = self.until("turn.committed").await;
                        assert_eq!(committed["turn"], reply.turn);
                    }
                    return reply;
                }
                "error" => panic!("{event}"),
                _ => {}
            }
        }
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct RestAnswer {
    pub status: StatusCode,
    /// The whole seconds to wait before a retry.
    pub retry_after: Option<u64>,
    pub body: Value,
}

/// The REST API with one token.
#[derive(Clone)]
pub struct RestClient {
    http: reqwest::Client,
    address: SocketAddr,
    token: String,
}

impl RestClient {
    pub fn new(address: SocketAddr, token: String) -> Self {
        colloquy::adapters::openai::install_crypto();
        Self {
            http: reqwest::Client::new(),
            address,
            token,
        }
    }
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> (StatusCode, Value) {
        self.attempt(method, path, body).await.unwrap()
    }
    /// Waits until all jobs are done.
    pub async fn idle(&self) {
        eventually_after_outage("every job to end", async || {
            let jobs = self.get("/v1/jobs?status=pending").await;
            jobs["items"].as_array().unwrap().is_empty().then_some(())
        })
        .await;
    }
    /// Calls a server that may go away during the call.
    pub async fn attempt(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> reqwest::Result<(StatusCode, Value)> {
        let answer = self.answer(method, path, body, &[]).await?;
        Ok((answer.status, answer.body))
    }
    /// Posts a file, and returns the status and the bytes of the answer.
    pub async fn post_file(&self, path: &str, file: &[u8]) -> (StatusCode, Vec<u8>) {
        let request = self.http.post(format!("http://{}{path}", self.address));
        let request = request.bearer_auth(&self.token).timeout(PATIENCE).body(file.to_vec());
        let response = request.send().await.unwrap();
        (response.status(), response.bytes().await.unwrap().to_vec())
    }
    /// Calls with further headers, and returns the answer with its headers' values.
    pub async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> reqwest::Result<RestAnswer> {
        let mut request = self
            .http
            .request(method, format!("http://{}{path}", self.address))
            .bearer_auth(&self.token)
            .timeout(PATIENCE);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await?;
        let retry_after = response.headers().get("retry-after");
        Ok(RestAnswer {
            status: response.status(),
            retry_after: retry_after.and_then(|seconds| seconds.to_str().ok()?.parse().ok()),
            body: response.json().await.unwrap_or(Value::Null),
        })
    }
    pub async fn status(&self, path: &str) -> StatusCode {
        self.call(Method::GET, path, None).await.0
    }
    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call(Method::GET, path, None).await;
        assert!(status.is_success(), "GET {path}: {status} {body}");
        body
    }
    pub async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.call(Method::POST, path, Some(body)).await;
        assert!(status.is_success(), "POST {path}: {status} {answer}");
        answer
    }
    /// Posts, and returns the answer with any status.
    pub async fn post_answer(&self, path: &str, body: &Value) -> RestAnswer {
        self.answer(Method::POST, path, Some(body), &[]).await.unwrap()
    }
    /// Opens a session of a player with an NPC of the demo, and returns its id. The token is a backend's.
    pub async fn open_session(&self, npc: &str, player: &str) -> String {
        let body = json!({"world_id": "vale", "npc_id": npc, "player_id": player});
        let made = self.post("/v1/sessions", &body).await;
        made["id"].as_str().unwrap().to_owned()
    }
    /// Returns the plain text of a path, such as `/metrics`.
    pub async fn text(&self, path: &str) -> String {
        let url = format!("http://{}{path}", self.address);
        self.http.get(url).send().await.unwrap().text().await.unwrap()
    }
    /// Returns the facts of an NPC of the demo, valid and invalid, in the order of the list.
    pub async fn facts(&self, npc: &str) -> Vec<Value> {
        let path = format!("/v1/worlds/vale/npcs/{npc}/facts?include_invalid=true&limit=200");
        self.get(&path).await["items"].as_array().unwrap().clone()
    }
}
