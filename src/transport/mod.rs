//! The TCP connections of this node: how many there may be, how long one may keep its place without a request, and how
//! one is cut from outside.
//!
//! The server that it starts hands each connection to actix-web as a [`watched_stream::WatchedStream`]. That is how a connection
//! can be cut whose peer reads nothing, without a second descriptor, and how it is known what each of them is doing.

mod server;
#[cfg(test)]
mod tests;
mod watched_stream;

use std::{
    cmp::Reverse,
    collections::HashMap,
    io,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

pub use self::server::{KEEP_ALIVE, start_server};
use crate::ports::clock::Clock;

/// How many connections there may be, and how long each step may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections open at once, sockets included.
    pub max_open: usize,
    /// Further ones, for probes and operators: they get an answer where all others are taken.
    pub reserve: usize,
    /// How long the head of a request may take, from its first byte; of a new connection, from its beginning.
    pub head: Duration,
    /// How long a peer may take none of an answer.
    pub write: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            max_open: 25_000,
            reserve: 16,
            head: Duration::from_secs(5),
            write: Duration::from_secs(30),
        }
    }
}

/// Whom an address stands for: itself; of IPv6 its network of 64 bits, since whoever has one address of that has all of them.
#[must_use]
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            Ipv6Addr::from_bits(network).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// How long a connection of the reserve may take for the head of its request.
const RESERVE_HEAD_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two looks at all connections.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);
/// How many connections of the reserve one address may have without a request.
const MAX_RESERVE_PER_ADDRESS: usize = 2;
/// How long nobody looks for room where there was none.
const NO_ROOM_BACKOFF_MS: u64 = 100;
/// One in so many is cut when room is made, since that takes a look at all of them.
const CUT_DIVISOR: usize = 32;

/// Every connection of this node. Cheap to clone.
#[derive(Clone)]
pub struct ConnectionRegistry {
    table: Arc<ConnectionTable>,
}

struct ConnectionTable {
    limits: ConnectionLimits,
    clock: Arc<dyn Clock>,
    started: Instant,
    next_id: AtomicU64,
    open: Mutex<OpenConnections>,
    /// Until when there is no use in looking for room, in ms since the table began.
    no_room_until: AtomicU64,
    refused: AtomicU64,
    cut: AtomicU64,
}

/// Without those that were cut by the table, whose descriptors are closed a moment later.
#[derive(Default)]
struct OpenConnections {
    usual: HashMap<u64, Arc<TcpConnection>>,
    reserve: HashMap<u64, Arc<TcpConnection>>,
}

/// What a connection is doing, for its handler and for whoever has to cut it.
pub struct TcpConnection {
    id: u64,
    address: Option<IpAddr>,
    in_reserve: bool,
    table: Weak<ConnectionTable>,
    /// The task that serves it.
    task: AtomicWaker,
    is_cut: AtomicBool,
    is_socket: AtomicBool,
    /// Requests that are being answered.
    requests: AtomicUsize,
    /// Since when none is, in ms since the table began.
    idle_since: AtomicU64,
    /// When the first byte came since then; [`NEVER_MS`].
    heard: AtomicU64,
    /// Since when the peer takes nothing of what is written; [`NEVER_MS`].
    blocked: AtomicU64,
}

const NEVER_MS: u64 = u64::MAX;

/// A request that is being answered. While there is one, its connection keeps its place.
pub struct RequestGuard(Arc<TcpConnection>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let connection = &self.0;
        connection.idle_since.store(connection.now_ms(), Relaxed);
        connection.heard.store(NEVER_MS, Relaxed);
        connection.requests.fetch_sub(1, Relaxed);
    }
}

impl TcpConnection {
    /// Whether it has its place from the reserve, since all others were taken.
    #[must_use]
    pub fn is_in_reserve(&self) -> bool {
        self.in_reserve
    }
    /// Ends the connection, whatever its peer does. The task that serves it finds out at once.
    pub fn cut_off(&self) {
        if !self.is_cut.swap(true, Relaxed) {
            self.task.wake();
        }
    }
    /// A request of it is being answered, until the value is dropped.
    #[must_use]
    pub fn begin_request(self: &Arc<Self>) -> RequestGuard {
        self.requests.fetch_add(1, Relaxed);
        RequestGuard(Arc::clone(self))
    }
    /// It is a WebSocket from now on: it has a heartbeat, which is not this module's.
    pub fn mark_as_socket(&self) {
        self.is_socket.store(true, Relaxed);
    }

    fn now_ms(&self) -> u64 {
        self.table.upgrade().map_or(0, |table| table.now_ms())
    }
    fn on_bytes_read(&self) {
        if self.heard.load(Relaxed) == NEVER_MS && self.requests.load(Relaxed) == 0 {
            self.heard.store(self.now_ms(), Relaxed);
        }
    }
    fn on_write_blocked(&self) {
        if self.blocked.load(Relaxed) == NEVER_MS {
            self.blocked.store(self.now_ms(), Relaxed);
        }
    }
    fn on_write_progress(&self) {
        // Mostly it is so already, and a load is cheaper than a store.
        if self.blocked.load(Relaxed) != NEVER_MS {
            self.blocked.store(NEVER_MS, Relaxed);
        }
    }

    /// Whether it has no request, and nothing of an answer is on its way: it waits for a request, or its peer takes its time
    /// to send one.
    fn is_idle(&self) -> bool {
        self.requests.load(Relaxed) == 0
            && !self.is_socket.load(Relaxed)
            && !self.is_cut.load(Relaxed)
            && self.blocked.load(Relaxed) == NEVER_MS
    }
    fn is_overdue(&self, now: u64, limits: &ConnectionLimits) -> bool {
        if self.is_socket.load(Relaxed) {
            return false;
        }
        let passed = |since: u64, limit: Duration| {
            since != NEVER_MS && u128::from(now.saturating_sub(since)) >= limit.as_millis()
        };
        if passed(self.blocked.load(Relaxed), limits.write) {
            return true;
        }
        let head = if self.in_reserve {
            RESERVE_HEAD_TIMEOUT
        } else {
            limits.head
        };
        // The second one is actix-web's to keep, but for a peer that began a request while it was answered.
        self.is_idle()
            && (passed(self.heard.load(Relaxed), head) || passed(self.idle_since.load(Relaxed), KEEP_ALIVE + head))
    }
}

impl ConnectionTable {
    fn now_ms(&self) -> u64 {
        let passed = self.clock.monotonic_now().saturating_duration_since(self.started);
        u64::try_from(passed.as_millis()).unwrap_or(NEVER_MS - 1)
    }
    fn cut_all(&self, connections: impl Iterator<Item = Arc<TcpConnection>>) {
        for connection in connections {
            self.cut.fetch_add(1, Relaxed);
            connection.cut_off();
        }
    }
    /// Cuts idle connections so that there is room for one at least. Those of the reserve stay: they have their own time.
    fn make_room(&self, usual: &mut HashMap<u64, Arc<TcpConnection>>) {
        if self.now_ms() < self.no_room_until.load(Relaxed) {
            return;
        }
        let mut idle: Vec<&Arc<TcpConnection>> = usual.values().filter(|connection| connection.is_idle()).collect();
        if idle.is_empty() {
            self.no_room_until.store(self.now_ms() + NO_ROOM_BACKOFF_MS, Relaxed);
            return;
        }
        let mut of_address: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for connection in &idle {
            *of_address.entry(connection.address).or_default() += 1;
        }
        idle.sort_unstable_by_key(|connection| {
            let many = of_address.get(&connection.address).copied().unwrap_or_default();
            (Reverse(many), connection.idle_since.load(Relaxed), connection.id)
        });
        let chosen: Vec<u64> = idle
            .iter()
            .take(1 + usual.len() / CUT_DIVISOR)
            .map(|connection| connection.id)
            .collect();
        self.cut_all(chosen.iter().filter_map(|id| usual.remove(id)));
    }
}

impl ConnectionRegistry {
    /// Begins to look after connections, on the current tokio runtime, until the last clone is dropped.
    #[must_use]
    pub fn start_watching(limits: ConnectionLimits, clock: Arc<dyn Clock>) -> Self {
        let connections = Self::new(limits, clock);
        let table = Arc::downgrade(&connections.table);
        tokio::spawn(async move {
            let mut looks = tokio::time::interval(SWEEP_INTERVAL);
            looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                looks.tick().await;
                let Some(table) = table.upgrade() else { break };
                Self { table }.cut_overdue();
            }
        });
        connections
    }

    fn new(limits: ConnectionLimits, clock: Arc<dyn Clock>) -> Self {
        Self {
            table: Arc::new(ConnectionTable {
                limits,
                started: clock.monotonic_now(),
                clock,
                next_id: AtomicU64::new(1),
                open: Mutex::default(),
                no_room_until: AtomicU64::new(0),
                refused: AtomicU64::new(0),
                cut: AtomicU64::new(0),
            }),
        }
    }

    /// Connections open now.
    #[must_use]
    pub fn open_count(&self) -> usize {
        let open = self.table.open.lock();
        open.usual.len() + open.reserve.len()
    }
    /// Connections that there may be, the reserve not counted.
    #[must_use]
    pub fn max_open(&self) -> usize {
        self.table.limits.max_open
    }
    /// Connections that found no place, since the start.
    #[must_use]
    pub fn refused_count(&self) -> u64 {
        self.table.refused.load(Relaxed)
    }
    /// Connections that were ended for taking too long, or to make room, since the start.
    #[must_use]
    pub fn cut_count(&self) -> u64 {
        self.table.cut.load(Relaxed)
    }

    /// A place for a new connection. Where none is free, those that have had no request for longest make room, first of
    /// all those of the address that has most of them. If there are none, it may have one of the reserve, of which one address
    /// has few.
    ///
    /// # Errors
    /// There is no place.
    fn admit_connection(&self, address: Option<IpAddr>) -> io::Result<Arc<TcpConnection>> {
        let table = &self.table;
        let limits = &table.limits;
        let mut open = table.open.lock();
        if open.usual.len() >= limits.max_open {
            table.make_room(&mut open.usual);
        }
        let in_reserve = open.usual.len() >= limits.max_open;
        let reserve = &open.reserve;
        let is_its_own =
            |connection: &&Arc<TcpConnection>| connection.address == address && connection.requests.load(Relaxed) == 0;
        if in_reserve
            && (reserve.len() >= limits.reserve
                || reserve.values().filter(is_its_own).count() >= MAX_RESERVE_PER_ADDRESS)
        {
            table.refused.fetch_add(1, Relaxed);
            return Err(io::Error::other("there are as many connections as there may be"));
        }
        let now = table.now_ms();
        let connection = Arc::new(TcpConnection {
            id: table.next_id.fetch_add(1, Relaxed),
            address,
            in_reserve,
            table: Arc::downgrade(table),
            task: AtomicWaker::new(),
            is_cut: AtomicBool::new(false),
            is_socket: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            idle_since: AtomicU64::new(now),
            heard: AtomicU64::new(now),
            blocked: AtomicU64::new(NEVER_MS),
        });
        let places = if in_reserve { &mut open.reserve } else { &mut open.usual };
        places.insert(connection.id, Arc::clone(&connection));
        Ok(connection)
    }

    fn remove_connection(&self, connection: &TcpConnection) {
        let mut open = self.table.open.lock();
        let places = if connection.in_reserve {
            &mut open.reserve
        } else {
            &mut open.usual
        };
        places.remove(&connection.id);
    }

    /// Cuts those that take too long.
    fn cut_overdue(&self) {
        let table = &self.table;
        let now = table.now_ms();
        let mut open = table.open.lock();
        let OpenConnections { usual, reserve } = &mut *open;
        for places in [usual, reserve] {
            let overdue = places.extract_if(|_, connection| connection.is_overdue(now, &table.limits));
            table.cut_all(overdue.map(|(_, connection)| connection));
        }
    }
}
