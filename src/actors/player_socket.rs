//! A player's WebSocket: framing, heartbeat, a bounded outbound queue, and nothing of any dialogue.
//!
//! The only file that knows `actix-web-actors`. What the text messages mean is a [`SocketProtocol`]
//! that `http` provides, one per connection.
//!
//! A client that stops reading jams its connection: actix-web then polls the socket's actor no more,
//! so it sees neither its mailbox nor its timers. Therefore the queue, the heartbeat and the cut are
//! kept outside the actor, in [`Connection`] and [`SocketHub`], and a jammed connection is shut down
//! on a duplicate of its TCP descriptor, taken when it was accepted.

use std::{any::Any, sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, dev::Extensions, web::Payload};
use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use super::{Listener, ListenerGone, Published};
use crate::ports::clock::Clock;

/// Limits of the sockets. A section of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SocketSettings {
    /// Sockets open at once on this node; 20,000.
    pub max_open: usize,
    /// Largest message, in bytes, in one frame or several; 16,384.
    pub max_message_bytes: usize,
    /// Messages that may wait for a client; 512.
    pub max_queued: usize,
    /// Bytes that may wait for a client; 1 MiB.
    pub max_queued_bytes: usize,
    /// The server pings this often, in seconds; 15.
    pub ping_s: u64,
    /// Silence after which a connection is dropped, in seconds; 30.
    pub silence_s: u64,
    /// Between the last message and the close frame, in ms; 50.
    pub close_delay_ms: u64,
}

impl Default for SocketSettings {
    fn default() -> Self {
        Self {
            max_open: 20_000,
            max_message_bytes: 16 * 1024,
            max_queued: 512,
            max_queued_bytes: 1024 * 1024,
            ping_s: 15,
            silence_s: 30,
            close_delay_ms: 50,
        }
    }
}

/// Close codes of PROTOCOL §3.
pub mod close {
    pub const MALFORMED: u16 = 4400;
    pub const UNAUTHENTICATED: u16 = 4401;
    pub const FORBIDDEN: u16 = 4403;
    pub const IDLE: u16 = 4408;
    pub const REPLACED: u16 = 4409;
    pub const TOO_LARGE: u16 = 4413;
    pub const TOO_MANY: u16 = 4429;
    pub const SLOW_CONSUMER: u16 = 4430;
    pub const INTERNAL: u16 = 4500;
    pub const DRAINING: u16 = 4503;
}

/// What the messages of one connection mean. Called on the connection's own thread, in the order
/// of the frames; must not block.
pub trait SocketProtocol: Send + Sync {
    /// The connection is open.
    fn on_open(&self, connection: &Arc<Connection>);
    /// A whole text message, at most `max_message_bytes` long.
    fn on_text(&self, connection: &Arc<Connection>, text: ByteString);
    /// The connection is over, for whatever reason. Called exactly once; detach listeners here.
    fn on_close(&self, connection: &Arc<Connection>);
}

/// What differs per connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketOptions {
    /// Subprotocols the server speaks; the first that the client offers is chosen.
    pub subprotocols: &'static [&'static str],
    /// Deltas of one reply are joined for up to this long; zero: sent as they come. At most 1 s.
    pub coalesce: Duration,
}

/// The sending side of one socket. Cheap to share; outlives the socket without keeping it open.
pub struct Connection {}

impl Connection {
    /// Unique in this process.
    #[must_use]
    pub fn id(&self) -> u64 {
        todo!()
    }
    /// Queues a text message. An error: the connection is closing, or was just cut because it does
    /// not keep up.
    pub fn send(&self, text: impl Into<ByteString>) -> Result<(), ListenerGone> {
        let _ = text.into();
        todo!()
    }
    /// Queues an event; deltas may be joined.
    pub fn deliver(&self, event: &Arc<Published>) -> Result<(), ListenerGone> {
        let _ = event;
        todo!()
    }
    /// Closes after what is queued has gone out, and a little later (`close_delay_ms`). The first
    /// call decides the code (a [`close`] code). Send the error event before.
    pub fn close(&self, code: u16, reason: &'static str) {
        let _ = (code, reason);
        todo!()
    }
    /// Whether nothing can be sent any more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        todo!()
    }
}

/// A connection as a listener of dialogues.
pub struct SocketListener {
    pub connection: Arc<Connection>,
    pub sees_optional: bool,
}

impl Listener for SocketListener {
    fn deliver(&self, event: &Arc<Published>) -> Result<(), ListenerGone> {
        self.connection.deliver(event)
    }
    fn sees_optional(&self) -> bool {
        self.sees_optional
    }
    fn is_gone(&self) -> bool {
        self.connection.is_gone()
    }
}

/// Every socket of this node: their heartbeat, their counts and the cut. Cheap to clone.
#[derive(Clone)]
pub struct SocketHub {}

impl SocketHub {
    /// Starts the shared heartbeat on the current tokio runtime.
    pub fn start(settings: SocketSettings, clock: Arc<dyn Clock>) -> Self {
        let _ = (settings, clock);
        todo!()
    }
    /// For `HttpServer::on_connect(SocketHub::on_connect)`: keeps a duplicate of the descriptor.
    pub fn on_connect(connection: &dyn Any, data: &mut Extensions) {
        let _ = (connection, data);
        todo!()
    }
    /// Answers an upgrade request. An error is a response already (400 for a bad handshake, 503 when
    /// `max_open` is reached).
    pub fn serve(
        &self,
        request: &HttpRequest,
        payload: Payload,
        protocol: Arc<dyn SocketProtocol>,
        options: SocketOptions,
    ) -> Result<HttpResponse, actix_web::Error> {
        let _ = (request, payload, protocol, options);
        todo!()
    }
    /// Sockets open now.
    #[must_use]
    pub fn open(&self) -> usize {
        todo!()
    }
    /// How many sockets were closed by this server, by close code (4430 counts slow consumers).
    #[must_use]
    pub fn closed_by_code(&self) -> Vec<(u16, u64)> {
        todo!()
    }
    /// Sends a message to every socket (`server.draining`).
    pub fn broadcast(&self, text: &ByteString) {
        let _ = text;
        todo!()
    }
    /// Closes every socket and waits, at most `deadline`, until they are gone.
    pub async fn close_all(&self, code: u16, reason: &'static str, deadline: Duration) {
        let _ = (code, reason, deadline);
        todo!()
    }
}
