//! A player's WebSocket: the framing, without knowledge of dialogues.
//!
//! The only file that uses `actix-web-actors`. A [`SocketProtocol`] from `http`, one per connection, interprets the
//! text messages. [`SocketConnection`] owns the messages that wait for the client.

use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use actix::{Actor, ActorContext, AsyncContext, Handler, Message, StreamHandler};
use actix_http::ws::Item as Part;
use actix_web::{HttpRequest, HttpResponse, error::PayloadError, web::Payload};
use actix_web_actors::ws;
use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use futures_util::{Stream, StreamExt};

use super::connection::{CLOSE_DELAY_MS, FlushBatch, OutboundItem};
pub use super::connection::{
    OwnEvents, SentCounts, SocketConnection, SocketHub, SocketOptions, SocketSettings, close_code,
};
use colloquy_actors::VisibleEvent;
use colloquy_core::shares::NoCapacity;

/// Interprets the messages of a connection. Called on the connection's own thread, in the order of the frames; must not
/// block.
pub trait SocketProtocol: Send + Sync {
    /// Called when the connection is open.
    fn on_open(&self, connection: &Arc<SocketConnection>);
    /// Called with a whole text message, at most `max_message_bytes` long.
    fn on_text(&self, connection: &Arc<SocketConnection>, text: ByteString);
    /// Called exactly once when the connection ends, for any reason. Implementations detach listeners here.
    fn on_close(&self, connection: &Arc<SocketConnection>);
}

impl SocketHub {
    /// Answers an upgrade request.
    ///
    /// # Errors
    /// No place is free, or the handshake is bad; the latter error is already a response (400).
    pub fn serve_upgrade(
        &self,
        request: &HttpRequest,
        payload: Payload,
        protocol: Arc<dyn SocketProtocol>,
        options: &SocketOptions,
    ) -> Result<HttpResponse, UpgradeError> {
        let connection = self.register_connection(request, options)?;
        let unread = Rc::new(Cell::new(0));
        let payload = FrameByteStream {
            payload,
            connection: Arc::clone(&connection),
            unread: Rc::clone(&unread),
            max: connection.max_message_bytes() + UNREAD_SLACK,
        };
        let socket = PlayerSocket {
            connection: Arc::clone(&connection),
            protocol,
            unread,
            partial: None,
            closing: false,
        };
        ws::WsResponseBuilder::new(socket, request, payload)
            .protocols(options.subprotocols)
            .frame_size(connection.max_message_bytes())
            .start()
            .inspect_err(|_| connection.on_ended())
            .map_err(UpgradeError::Handshake)
    }
}

/// Why an upgrade failed.
#[derive(Debug)]
pub enum UpgradeError {
    NoPlace(NoCapacity),
    /// The response to a bad handshake.
    Handshake(actix_web::Error),
}

impl From<NoCapacity> for UpgradeError {
    fn from(no_capacity: NoCapacity) -> Self {
        Self::NoPlace(no_capacity)
    }
}

/// Bytes read ahead beyond the largest message: other frames and the rest of a read.
const UNREAD_SLACK: usize = 64 * 1024;

/// The bytes of a connection on their way to the frame decoder. The decoder buffers every byte of a frame until the
/// last byte has come, for any declared length of the frame.
struct FrameByteStream {
    payload: Payload,
    connection: Arc<SocketConnection>,
    /// Bytes given to the decoder since the last whole frame.
    unread: Rc<Cell<usize>>,
    max: usize,
}

impl Stream for FrameByteStream {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(chunk) = std::task::ready!(self.payload.poll_next_unpin(cx)) else {
                return Poll::Ready(None);
            };
            let Ok(bytes) = &chunk else {
                return Poll::Ready(Some(chunk));
            };
            let unread = self.unread.get().saturating_add(bytes.len());
            self.unread.set(unread);
            if unread <= self.max {
                return Poll::Ready(Some(chunk));
            }
            // Later bytes are read and dropped, so that a reset does not lose the close frame. A peer that keeps
            // sending is cut soon after.
            self.connection.close_with_error(
                close_code::TOO_LARGE,
                "payload_too_large",
                "the message is larger than allowed",
            );
        }
    }
}

/// A wake-up: messages are queued for the client.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct FlushQueued;

/// The actor of a socket. Lives and dies with its connection, on the connection's thread.
pub(super) struct PlayerSocket {
    connection: Arc<SocketConnection>,
    protocol: Arc<dyn SocketProtocol>,
    /// See [`FrameByteStream`].
    unread: Rc<Cell<usize>>,
    /// A message that comes in several frames.
    partial: Option<BytesMut>,
    /// True if the close frame is due or sent; incoming messages are then ignored.
    closing: bool,
}

impl PlayerSocket {
    /// Writes the queued messages; deltas at the end may wait a little for more deltas.
    fn flush_queued(&mut self, joining_over: bool, ctx: &mut ws::WebsocketContext<Self>) {
        let (items, close) = match self.connection.take_queued(joining_over) {
            FlushBatch::Gone => return ctx.stop(),
            FlushBatch::Later(pause) => {
                ctx.run_later(pause, |socket, ctx| socket.flush_queued(true, ctx));
                return;
            }
            FlushBatch::Now { items, close } => (items, close),
        };
        let mut joined = JoinedDeltas::default();
        for item in items {
            match item {
                OutboundItem::Delta(event) => joined.add_delta(event, ctx),
                OutboundItem::Text(text) => {
                    joined.write_joined(ctx);
                    ctx.text(text);
                }
                OutboundItem::Ping => ctx.ping(b""),
            }
        }
        joined.write_joined(ctx);
        if let Some((code, reason)) = close
            && !self.closing
        {
            self.closing = true;
            let delay = Duration::from_millis(CLOSE_DELAY_MS);
            // The heartbeat cuts the connection if the peer does not answer.
            ctx.run_later(delay, move |_, ctx| {
                ctx.close(Some(ws::CloseReason {
                    code: ws::CloseCode::from(code),
                    description: (!reason.is_empty()).then(|| reason.to_owned()),
                }));
            });
        }
    }

    /// Handles a part of a text message in several frames.
    fn on_message_part(&mut self, part: &Bytes, is_last: bool) {
        let max = self.connection.max_message_bytes();
        let Some(partial) = &mut self.partial else {
            return self.reject_malformed("a continuation of no message");
        };
        if partial.len() + part.len() > max {
            return self.reject_too_large();
        }
        partial.extend_from_slice(part);
        if is_last {
            let message = self.partial.take().unwrap_or_default().freeze();
            match ByteString::try_from(message) {
                Ok(text) => self.protocol.on_text(&self.connection, text),
                Err(_) => self.reject_malformed("text that is not UTF-8"),
            }
        }
    }

    fn reject_malformed(&mut self, message: &'static str) {
        self.connection
            .close_with_error(close_code::MALFORMED, "malformed_request", message);
    }

    fn reject_too_large(&mut self) {
        self.partial = None;
        self.connection.close_with_error(
            close_code::TOO_LARGE,
            "payload_too_large",
            "the message is larger than allowed",
        );
    }
}

/// Consecutive deltas of a reply on the way to a single message.
#[derive(Default)]
struct JoinedDeltas {
    first_delta: Option<VisibleEvent>,
    next_deltas: Vec<VisibleEvent>,
    end: usize,
}

impl JoinedDeltas {
    fn add_delta(&mut self, event: VisibleEvent, ctx: &mut ws::WebsocketContext<PlayerSocket>) {
        let Some((turn, offset, text)) = event.body.as_delta() else {
            return ctx.text(event.text().clone());
        };
        let follows = self.first_delta.as_ref().is_some_and(|first_delta| {
            first_delta.dialogue_id == event.dialogue_id
                && first_delta
                    .body
                    .as_delta()
                    .is_some_and(|(first_turn, ..)| first_turn == turn)
                && self.end == offset
        });
        if follows {
            self.end += text.chars().count();
            self.next_deltas.push(event);
        } else {
            self.write_joined(ctx);
            self.end = offset + text.chars().count();
            self.first_delta = Some(event);
        }
    }

    fn write_joined(&mut self, ctx: &mut ws::WebsocketContext<PlayerSocket>) {
        let Some(first_delta) = self.first_delta.take() else {
            return;
        };
        let next_deltas = std::mem::take(&mut self.next_deltas);
        if next_deltas.is_empty() {
            return ctx.text(first_delta.text().clone());
        }
        ctx.text(first_delta.join_deltas(&next_deltas).text().clone());
    }
}

impl Actor for PlayerSocket {
    type Context = ws::WebsocketContext<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.connection.on_opened(ctx.address());
        self.protocol.on_open(&self.connection);
        self.flush_queued(true, ctx);
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        self.connection.on_ended();
        self.protocol.on_close(&self.connection);
    }
}

impl Handler<FlushQueued> for PlayerSocket {
    type Result = ();

    fn handle(&mut self, FlushQueued: FlushQueued, ctx: &mut Self::Context) {
        self.flush_queued(false, ctx);
    }
}

impl StreamHandler<Result<ws::Message, ws::ProtocolError>> for PlayerSocket {
    fn handle(&mut self, message: Result<ws::Message, ws::ProtocolError>, ctx: &mut Self::Context) {
        if let Ok(ws::Message::Close(_)) = &message {
            if !self.closing {
                ctx.close(None);
            }
            return ctx.stop();
        }
        if self.closing || self.connection.is_closing() {
            return;
        }
        self.unread.set(0);
        self.connection.mark_heard();
        match message {
            Ok(ws::Message::Text(text)) => self.protocol.on_text(&self.connection, text),
            Ok(ws::Message::Ping(payload)) => ctx.pong(&payload),
            Ok(ws::Message::Pong(_) | ws::Message::Nop | ws::Message::Close(_)) => {}
            Ok(ws::Message::Binary(_) | ws::Message::Continuation(Part::FirstBinary(_))) => {
                self.reject_malformed("messages are text");
            }
            Ok(ws::Message::Continuation(Part::FirstText(part))) => {
                self.partial = Some(BytesMut::new());
                self.on_message_part(&part, false);
            }
            Ok(ws::Message::Continuation(Part::Continue(part))) => self.on_message_part(&part, false),
            Ok(ws::Message::Continuation(Part::Last(part))) => self.on_message_part(&part, true),
            Err(ws::ProtocolError::Overflow) => self.reject_too_large(),
            Err(ws::ProtocolError::Io(error)) if error.kind() != std::io::ErrorKind::Other => ctx.stop(),
            Err(_) => self.reject_malformed("not a valid WebSocket message"),
        }
    }

    /// Handles a client that left without a close frame.
    fn finished(&mut self, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
