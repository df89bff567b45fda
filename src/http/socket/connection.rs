//! The sending side of the sockets: the queue for each client, the heartbeat and the cut.
//!
//! A client that stops reading jams its connection. The web server then no longer polls the socket's actor, so the
//! actor sees neither its mailbox nor its timers. The sending state therefore lives outside the actor, and a jammed
//! connection is cut on the TCP level (`transport`).

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use actix::Addr;
use actix_web::HttpRequest;
use bytestring::ByteString;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::player_socket::{FlushQueued, PlayerSocket};
use colloquy_actors::{ListenerGone, VisibleEvent};
use colloquy_core::{
    ids::TenantId,
    shares::{NoCapacity, ShareGuard, Shares},
};
use colloquy_ports::clock::Clock;
use colloquy_transport as transport;

/// Bytes that may wait for a client: 1 MiB, on average 2 KiB for each of the 512 messages that may wait by default.
const MAX_QUEUED_BYTES: usize = 1024 * 1024;
/// Milliseconds between the last message and the close frame. Clients that drop unread messages at a close have read the
/// message by then.
pub const CLOSE_DELAY_MS: u64 = 50;

/// Limits of the sockets. A section of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketSettings {
    /// Sockets open at once on a node; 20,000.
    pub max_open: usize,
    /// Largest message in bytes, in one or more frames; 16,384.
    pub max_message_bytes: usize,
    /// Messages that may wait for a client; 512.
    pub max_queued: usize,
    /// Seconds between two pings of the server; 15.
    pub ping_s: u64,
    /// Seconds of silence after which a connection is dropped; 30.
    pub silence_s: u64,
}

/// Close codes (docs/protocol.md#close-codes).
pub mod close_code {
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

/// Options of a single connection.
#[derive(Debug, Clone)]
pub struct SocketOptions {
    /// The socket's tenant. `None`: the socket only reports why the connection was refused.
    pub tenant: Option<TenantId>,
    /// Subprotocols of the server; the first subprotocol that the client offers is chosen.
    pub subprotocols: &'static [&'static str],
    /// Deltas of a reply are joined for up to this long; zero: sent at once. At most 1 s.
    pub coalesce: Duration,
    /// Largest message in bytes. `None`: as in the settings.
    pub max_message_bytes: Option<usize>,
    pub own_events: OwnEvents,
}

/// The form of the events that no message of the client caused.
#[derive(Debug, Clone, Copy)]
pub struct OwnEvents {
    /// Writes an error of the connection from its code and its message.
    pub write_error: fn(&'static str, &'static str) -> String,
    /// Writes the notice of a shutdown. `None`: the notice as it is broadcast.
    pub write_draining: Option<fn() -> String>,
}

impl Default for OwnEvents {
    fn default() -> Self {
        Self {
            write_error: |code, message| {
                let error = serde_json::json!({
                    "type": "error",
                    "error": { "code": code, "message": message, "param": null },
                });
                error.to_string()
            },
            write_draining: None,
        }
    }
}

/// The sending side of a socket. Cheap to share; outlives the socket, but does not keep the socket open.
pub struct SocketConnection {
    id: u64,
    hub: Arc<SocketHubState>,
    coalesce: Duration,
    max_message_bytes: usize,
    own_events: OwnEvents,
    /// True if the socket only reports why the connection was refused.
    is_refusal: bool,
    /// Set once the actor runs; until then the queue only fills.
    addr: OnceLock<Addr<PlayerSocket>>,
    outbound: Mutex<OutboundQueue>,
    is_closed: AtomicBool,
    /// When the client was last heard, in ms since the hub started.
    heard_ms: AtomicU64,
    tcp: Option<Arc<transport::TcpConnection>>,
    place: Mutex<Option<SocketPlace>>,
}

#[derive(Default)]
struct OutboundQueue {
    queue: VecDeque<OutboundItem>,
    bytes: usize,
    /// Messages queued since the connection opened.
    queued_count: u64,
    /// Messages that the actor has taken since the connection opened.
    taken_count: u64,
    /// True if a `FlushQueued` is on its way to the actor, or the actor waits to join more deltas.
    woken: bool,
    /// Since when messages wait, in ms since the hub started.
    waits_since_ms: Option<u64>,
    pinged_ms: u64,
    close: Option<(u16, &'static str)>,
    close_since_ms: u64,
}

/// Messages of a connection, counted since the connection opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentCounts {
    /// Messages that were queued for the client.
    pub queued_count: u64,
    /// Messages of these that were given to the network.
    pub taken_count: u64,
}

/// The next step of the actor.
pub(super) enum FlushBatch {
    Now {
        items: VecDeque<OutboundItem>,
        /// Then close with the given code and reason.
        close: Option<(u16, &'static str)>,
    },
    /// Try again after the given time.
    Later(Duration),
    /// The connection was cut.
    Gone,
}

pub(super) enum OutboundItem {
    Text(ByteString),
    Delta(VisibleEvent),
    Ping,
}

impl SocketConnection {
    /// Returns the connection's id, unique in the process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }
    /// Queues a text message. An error: the connection is closing, or was just cut because the client is too slow.
    pub fn send_text(&self, text: impl Into<ByteString>) -> Result<(), ListenerGone> {
        self.push_item(OutboundItem::Text(text.into()))
    }
    /// Queues an event; deltas may be joined.
    pub fn deliver_event(&self, event: &VisibleEvent) -> Result<(), ListenerGone> {
        if !self.coalesce.is_zero() && event.body.as_delta().is_some() {
            return self.push_item(OutboundItem::Delta(event.clone()));
        }
        self.push_item(OutboundItem::Text(event.text().clone()))
    }
    /// Closes the connection `CLOSE_DELAY_MS` after the queued messages have gone out. The first call decides the code
    /// (a [`close_code`] code). Send the error event before.
    pub fn close_after_flush(&self, code: u16, reason: &'static str) {
        let mut outbound = self.outbound.lock();
        if outbound.close.is_some() || self.is_gone() {
            return;
        }
        outbound.close = Some((code, reason));
        outbound.close_since_ms = self.hub.now_ms();
        self.hub.count_close(code);
        self.wake_actor(&mut outbound);
    }
    /// Returns the messages queued so far, and how many of them were given to the network.
    #[must_use]
    pub fn sent_counts(&self) -> SentCounts {
        let outbound = self.outbound.lock();
        SentCounts {
            queued_count: outbound.queued_count,
            taken_count: outbound.taken_count,
        }
    }
    /// True while messages wait for the client.
    pub(super) fn has_queued(&self) -> bool {
        !self.outbound.lock().queue.is_empty()
    }
    /// True if the connection can send no more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    fn push_item(&self, item: OutboundItem) -> Result<(), ListenerGone> {
        let mut outbound = self.outbound.lock();
        if outbound.close.is_some() || self.is_gone() {
            return Err(ListenerGone);
        }
        let limits = &self.hub.settings;
        let bytes = item.byte_len();
        if outbound.queue.len() >= limits.max_queued || outbound.bytes + bytes > MAX_QUEUED_BYTES {
            self.cut_connection(&mut outbound, close_code::SLOW_CONSUMER);
            return Err(ListenerGone);
        }
        outbound.queue.push_back(item);
        outbound.queued_count += 1;
        outbound.bytes += bytes;
        outbound.waits_since_ms.get_or_insert_with(|| self.hub.now_ms());
        self.wake_actor(&mut outbound);
        Ok(())
    }

    /// Wakes the actor, at most once until the actor has looked.
    fn wake_actor(&self, outbound: &mut OutboundQueue) {
        if let Some(addr) = self.addr.get().filter(|_| !outbound.woken) {
            // At most one `FlushQueued` is on its way, so `FlushQueued` cannot fill the mailbox. A closed mailbox means
            // that the socket is gone.
            outbound.woken = addr.try_send(FlushQueued).is_ok();
        }
    }

    /// Shuts the connection down from outside, because the actor may not be polled any more.
    fn cut_connection(&self, outbound: &mut OutboundQueue, code: u16) {
        if outbound.close.is_none() {
            outbound.close = Some((code, ""));
            outbound.close_since_ms = self.hub.now_ms();
            self.hub.count_close(code);
        }
        self.is_closed.store(true, Relaxed);
        outbound.queue = VecDeque::new();
        outbound.bytes = 0;
        if let Some(tcp) = &self.tcp {
            tcp.cut_off();
        }
        self.wake_actor(outbound);
        tracing::info!(connection = self.id, code, "a socket was cut");
    }

    pub(super) fn mark_heard(&self) {
        self.heard_ms.store(self.hub.now_ms(), Relaxed);
    }

    /// Checks the heartbeat of the connection. Runs outside the actor, which may be stuck.
    fn check_heartbeat(&self, now_ms: u64) {
        let limits = &self.hub.settings;
        let silence = limits.silence_s * 1_000;
        let ping = limits.ping_s * 1_000;
        let mut outbound = self.outbound.lock();
        if self.is_gone() {
            return;
        }
        let elapsed_since = |since: u64| now_ms.saturating_sub(since);
        if outbound.close.is_some() {
            // The close frame was not sent or not answered. A refused client has been told all it needs.
            let patience = if self.is_refusal {
                REFUSAL_PATIENCE_MS
            } else {
                CLOSE_PATIENCE_MS
            };
            if elapsed_since(outbound.close_since_ms) >= patience + CLOSE_DELAY_MS {
                let code = outbound.close.map_or(close_code::INTERNAL, |(code, _)| code);
                self.cut_connection(&mut outbound, code);
            }
            return;
        }
        if outbound
            .waits_since_ms
            .is_some_and(|since| elapsed_since(since) >= silence)
        {
            return self.cut_connection(&mut outbound, close_code::SLOW_CONSUMER);
        }
        let silent = elapsed_since(self.heard_ms.load(Relaxed));
        if silent >= silence {
            drop(outbound);
            return self.close_with_error(close_code::IDLE, "idle", "nothing was heard for too long");
        }
        if silent >= ping && elapsed_since(outbound.pinged_ms) >= ping {
            outbound.pinged_ms = now_ms;
            drop(outbound);
            // A full queue cuts the connection, as intended.
            let _ = self.push_item(OutboundItem::Ping);
        }
    }

    /// Sends an error of the connection itself, then closes the connection.
    pub(super) fn close_with_error(&self, code: u16, name: &'static str, message: &'static str) {
        // If the message cannot be sent, the close code reports the error.
        let _ = self.send_text((self.own_events.write_error)(name, message));
        self.close_after_flush(code, name);
    }

    /// Records the address of the running actor, which gets wake-ups from now on.
    pub(super) fn on_opened(&self, addr: Addr<PlayerSocket>) {
        if let Some(tcp) = &self.tcp {
            tcp.mark_as_socket();
        }
        // The cell is set only once; a new connection's cell is empty.
        let _ = self.addr.set(addr);
    }

    /// Returns the size of the largest message from the client, in bytes.
    pub(super) fn max_message_bytes(&self) -> usize {
        self.max_message_bytes
    }

    pub(super) fn is_closing(&self) -> bool {
        self.outbound.lock().close.is_some()
    }

    /// Takes the queued messages. Deltas at the end may wait for more deltas, unless `joining_over`.
    pub(super) fn take_queued(&self, joining_over: bool) -> FlushBatch {
        if self.is_gone() {
            return FlushBatch::Gone;
        }
        let mut outbound = self.outbound.lock();
        if !joining_over && outbound.close.is_none() && matches!(outbound.queue.back(), Some(OutboundItem::Delta(_))) {
            // `woken` stays set: the actor's timer comes before the next wake-up is needed.
            return FlushBatch::Later(self.coalesce);
        }
        outbound.bytes = 0;
        outbound.woken = false;
        outbound.taken_count = outbound.queued_count;
        outbound.waits_since_ms = None;
        FlushBatch::Now {
            items: std::mem::take(&mut outbound.queue),
            close: outbound.close,
        }
    }

    pub(super) fn on_ended(&self) {
        let mut outbound = self.outbound.lock();
        self.is_closed.store(true, Relaxed);
        outbound.queue = VecDeque::new();
        outbound.bytes = 0;
        drop(outbound);
        drop(self.place.lock().take());
        self.hub.sockets.lock().remove(&self.id);
    }
}

impl OutboundItem {
    fn byte_len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Delta(event) => event.body.as_delta().map_or(0, |(_, _, text)| text.len()) + 128,
            Self::Ping => 8,
        }
    }
}

/// All sockets of the node: their heartbeat, their counts and the cut. Cheap to clone.
#[derive(Clone)]
pub struct SocketHub {
    hub: Arc<SocketHubState>,
}

struct SocketHubState {
    settings: SocketSettings,
    clock: Arc<dyn Clock>,
    started: Instant,
    next_id: AtomicU64,
    sockets: Mutex<HashMap<u64, Weak<SocketConnection>>>,
    places: Arc<Shares<TenantId>>,
    refusals: Arc<Shares<()>>,
    closed: Mutex<BTreeMap<u16, u64>>,
}

/// The place that a socket occupies while open.
enum SocketPlace {
    Open { _place: ShareGuard<TenantId> },
    Refused { _place: ShareGuard<()> },
}

/// Sockets open at once only to report a refusal. Further clients get only the status of their upgrade.
const MAX_REFUSAL_SOCKETS: usize = 64;
/// How long a peer may take to answer a close frame.
const CLOSE_PATIENCE_MS: u64 = 2_000;
/// The same for a refused client, which was told why.
const REFUSAL_PATIENCE_MS: u64 = 250;
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
const MAX_COALESCE: Duration = Duration::from_secs(1);

impl SocketHubState {
    fn now_ms(&self) -> u64 {
        let elapsed = self.clock.monotonic_now().saturating_duration_since(self.started);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }
    fn count_close(&self, code: u16) {
        *self.closed.lock().entry(code).or_default() += 1;
    }
    fn open_connections(&self) -> Vec<Arc<SocketConnection>> {
        self.sockets.lock().values().filter_map(Weak::upgrade).collect()
    }
}

impl SocketHub {
    /// Starts the shared heartbeat on the current tokio runtime. The heartbeat ends with the last clone.
    pub fn start(settings: SocketSettings, clock: Arc<dyn Clock>) -> Self {
        let hub = Arc::new(SocketHubState {
            started: clock.monotonic_now(),
            places: Shares::new("sockets", settings.max_open),
            refusals: Shares::new("sockets for refusals", MAX_REFUSAL_SOCKETS),
            settings,
            clock,
            next_id: AtomicU64::new(1),
            sockets: Mutex::default(),
            closed: Mutex::default(),
        });
        let weak_hub = Arc::downgrade(&hub);
        tokio::spawn(async move {
            let mut beats = tokio::time::interval(HEARTBEAT_INTERVAL);
            beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                beats.tick().await;
                let Some(hub) = weak_hub.upgrade() else { break };
                let now_ms = hub.now_ms();
                for connection in hub.open_connections() {
                    connection.check_heartbeat(now_ms);
                }
            }
        });
        Self { hub }
    }
    /// Registers a connection for the request.
    ///
    /// # Errors
    /// The node or the tenant has reached its limit of sockets.
    pub(super) fn register_connection(
        &self,
        request: &HttpRequest,
        options: &SocketOptions,
    ) -> Result<Arc<SocketConnection>, NoCapacity> {
        let hub = &self.hub;
        let place = match &options.tenant {
            Some(tenant) => SocketPlace::Open {
                _place: hub.places.acquire_share(tenant)?,
            },
            None => SocketPlace::Refused {
                _place: hub.refusals.acquire_share(&())?,
            },
        };
        // A server on other streams can serve sockets, but cannot cut jammed connections.
        let tcp = request.conn_data::<Arc<transport::TcpConnection>>().cloned();
        let connection = Arc::new(SocketConnection {
            id: hub.next_id.fetch_add(1, Relaxed),
            hub: Arc::clone(hub),
            coalesce: options.coalesce.min(MAX_COALESCE),
            max_message_bytes: options.max_message_bytes.unwrap_or(hub.settings.max_message_bytes),
            own_events: options.own_events,
            is_refusal: options.tenant.is_none(),
            addr: OnceLock::new(),
            outbound: Mutex::default(),
            is_closed: AtomicBool::new(false),
            heard_ms: AtomicU64::new(hub.now_ms()),
            tcp,
            place: Mutex::new(Some(place)),
        });
        hub.sockets.lock().insert(connection.id, Arc::downgrade(&connection));
        Ok(connection)
    }
    /// Returns the number of open sockets, including sockets that only report a refusal.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.hub.sockets.lock().len()
    }
    /// Returns how many sockets found no place.
    #[must_use]
    pub fn refused_count(&self) -> u64 {
        self.hub.places.refused_count()
    }
    /// Returns how many sockets the server closed, by close code (4430 counts slow consumers).
    #[must_use]
    pub fn closed_by_code(&self) -> Vec<(u16, u64)> {
        self.hub.closed.lock().iter().map(|(code, n)| (*code, *n)).collect()
    }
    /// Sends the notice of a shutdown to every socket: `notice` (`server.draining`), or the notice in the socket's form.
    pub fn broadcast_draining(&self, notice: &ByteString) {
        for connection in self.hub.open_connections() {
            let write_own_notice = connection.own_events.write_draining;
            let text = write_own_notice.map_or_else(|| notice.clone(), |write| write().into());
            // Gone sockets need no message.
            let _ = connection.send_text(text);
        }
    }
    /// Closes every socket and waits up to `deadline` for the end; then cuts the rest.
    pub async fn close_all(&self, code: u16, reason: &'static str, deadline: Duration) {
        for connection in self.hub.open_connections() {
            connection.close_after_flush(code, reason);
        }
        let closing = async {
            while self.open_count() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(deadline, closing).await.is_err() {
            for connection in self.hub.open_connections() {
                let mut outbound = connection.outbound.lock();
                connection.cut_connection(&mut outbound, code);
            }
        }
    }
}
