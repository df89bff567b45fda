//! Talks with Mira of the demo over a WebSocket: a streamed reply, a reply that the player cuts, and a
//! connection that drops and resumes. See `examples/README.md`.

use std::{
    env,
    error::Error,
    io::{self, Write},
};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest},
};

type Failure = Box<dyn Error + Send + Sync>;
type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn connect(url: &str, token: &str) -> Result<Socket, Failure> {
    let mut request = url.into_client_request()?;
    let bearer = format!("Bearer {token}").parse()?;
    request.headers_mut().insert("Authorization", bearer);
    let opened = connect_async(request).await;
    let (socket, _) = opened.map_err(|error| format!("cannot connect to {url}: {error}"))?;
    Ok(socket)
}

/// A player's connection, and what the player sees of the dialogue.
struct Client {
    socket: Socket,
    /// The NPC's words so far, and whether they are all of the reply.
    reply: String,
    is_done: bool,
    /// Of the last durable event: what a resume begins after.
    last_seq: u64,
}

impl Client {
    async fn send(&mut self, message: Value) -> Result<(), Failure> {
        Ok(self.socket.send(Message::text(message.to_string())).await?)
    }

    /// The next event. A game does this once a frame, for each event that has arrived.
    async fn next(&mut self) -> Result<Value, Failure> {
        let text = loop {
            match self.socket.next().await.ok_or("the connection is closed")?? {
                Message::Text(text) => break text,
                Message::Close(frame) => return Err(format!("the connection is closed: {frame:?}").into()),
                // Pings are answered underneath.
                _ => {}
            }
        };
        let event: Value = serde_json::from_str(&text)?;
        // Deltas have no number.
        self.last_seq = event["seq"].as_u64().unwrap_or(self.last_seq);
        let words = event["text"].as_str().unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "error" => return Err(event["error"].to_string().into()),
            "turn.started" => (self.reply, self.is_done) = (String::new(), false),
            // After a resume one delta from offset 0 has the whole reply so far.
            "reply.delta" if event["offset"] == 0 => words.clone_into(&mut self.reply),
            "reply.delta" => self.reply.push_str(words),
            "reply.done" if event["status"] == "failed" => return Err("the reply failed; repeat its line".into()),
            "reply.done" => (self.reply, self.is_done) = (words.to_owned(), true),
            _ => {}
        }
        Ok(event)
    }

    /// The next event in which `field` is `value`.
    async fn until(&mut self, field: &str, value: &str) -> Result<Value, Failure> {
        loop {
            let event = self.next().await?;
            if event[field] == value {
                return Ok(event);
            }
        }
    }
}

/// The whole conversation. What happens is written to `out`.
pub async fn chat(url: &str, token: &str, out: &mut (dyn Write + Send)) -> Result<(), Failure> {
    let mut client = Client {
        socket: connect(url, token).await?,
        reply: String::new(),
        is_done: false,
        last_seq: 0,
    };
    client
        .send(json!({"type": "session.create", "world_id": "vale", "npc_id": "mira"}))
        .await?;
    let created = client.until("type", "session.created").await?;
    let session = &created["session_id"];
    writeln!(out, "session {session}")?;
    // The key makes it safe to send a line again: the server answers a key once.
    let say = |key: &str, text: &str| json!({"type": "player.say", "session_id": session, "key": key, "text": text});

    // 1. A reply as it streams. With turn.committed it is safe on the server.
    write!(out, "you> I like grapes.\nmira> ")?;
    client.send(say("line-1", "I like grapes.")).await?;
    let (mut event, mut pieces) = (Value::Null, 0);
    while event["type"] != "turn.committed" {
        event = client.next().await?;
        if event["type"] == "reply.delta" {
            pieces += 1;
            write!(out, "{}", event["text"].as_str().unwrap_or_default())?;
            out.flush()?;
        }
    }
    writeln!(out, " ({pieces} pieces)")?;

    // 2. The player cuts in. A game with voices counts the characters that were played; here they are those shown.
    writeln!(out, "you> Tell me about the forest.")?;
    client.send(say("line-2", "Tell me about the forest.")).await?;
    let turn = client.until("type", "turn.started").await?["turn"].clone();
    while client.reply.len() < 8 && !client.is_done {
        client.next().await?;
    }
    writeln!(out, "mira> {}...", client.reply)?;
    // The server counts Unicode scalar values: a `char` is one.
    let heard = client.reply.chars().count();
    let interrupt = json!({"type": "player.interrupt", "event_id": "cut", "session_id": session, "turn": turn,
        "heard_chars": heard});
    client.send(interrupt).await?;
    let cut = client.until("re", "cut").await?;
    if cut["type"] == "dialogue.rewound" {
        // The reply was complete by then. It is cut afterwards, and the client shortens its copy.
        let heard = cut["heard_chars"].as_u64().unwrap_or_default().try_into()?;
        client.reply = client.reply.chars().take(heard).collect();
    }
    writeln!(out, "cut: turn {turn} is now \"{}\" ({})", client.reply, cut["type"])?;

    // 3. The connection drops in mid-reply. The reply goes on, and a resume brings the events that were missed.
    writeln!(out, "you> What fruit do I like?")?;
    client.send(say("line-3", "What fruit do I like?")).await?;
    client.until("type", "turn.started").await?;
    client.socket = connect(url, token).await?;
    let resume = json!({"type": "session.resume", "session_id": session, "resume_token": created["resume_token"],
        "last_seq": client.last_seq});
    client.send(resume).await?;
    let resumed = client.until("type", "session.resumed").await?;
    while !client.is_done {
        client.next().await?;
    }
    writeln!(
        out,
        "resumed: {} missed events\nmira> {}",
        resumed["replayed"], client.reply
    )?;

    client
        .send(json!({"type": "session.close", "session_id": session}))
        .await?;
    let closed = client.until("type", "session.closed").await?;
    writeln!(out, "closed: {}", closed["reason"])?;
    Ok(client.socket.close(None).await?)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = env::var("COLLOQUY_URL").unwrap_or_else(|_| "ws://127.0.0.1:8080/v1/ws".to_owned());
    let token = env::var("COLLOQUY_TOKEN").unwrap_or_default();
    chat(&url, &token, &mut io::stdout()).await
}
