//! The TCP connections of this node: their number, their time without a request, and how to cut a connection.
//!
//! The server hands each connection to actix-web as a [`watched_stream::WatchedStream`]. The wrapper can cut a
//! connection whose peer reads nothing, without a second descriptor. The wrapper also shows the current activity of
//! each connection.

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
use colloquy_ports::clock::Clock;

/// The number of connections, and the time limit of each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections open at once, sockets included.
    pub max_open: usize,
    /// Additional connections for probes and operators, used if all others are taken.
    pub reserve: usize,
    /// Time limit for the head of a request, from its first byte. For a new connection, from the connect. 5 s: a head is
    /// one or two packets, which a slow network may send again a few times.
    pub head: Duration,
    /// How long a peer may read no byte of an answer; 30 s, as long as a socket may be silent by default.
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

/// The key that an address counts for: an IPv4 address itself, or the /64 network of an IPv6 address. An owner of one
/// IPv6 address has its whole network.
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

/// Time limit for a request's head on a connection of the reserve.
const RESERVE_HEAD_TIMEOUT: Duration = Duration::from_secs(1);
/// The interval between two checks of all connections.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);
/// Reserve connections without a request that one address may have.
const MAX_RESERVE_PER_ADDRESS: usize = 2;
/// How long no search for room starts after a search without result, in milliseconds.
const NO_ROOM_BACKOFF_MS: u64 = 100;
/// The fraction of connections cut to make room, 1/32, because the search reads all connections.
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
    /// No search for room before this time, in ms since the table started.
    no_room_until: AtomicU64,
    refused: AtomicU64,
    cut_count: AtomicU64,
}

/// Without connections that the table has cut; their descriptors close a moment later.
#[derive(Default)]
struct OpenConnections {
    usual: HashMap<u64, Arc<TcpConnection>>,
    reserve: HashMap<u64, Arc<TcpConnection>>,
}

/// The activity of a connection, for its handler and for the code that cuts connections.
pub struct TcpConnection {
    id: u64,
    address: Option<IpAddr>,
    in_reserve: bool,
    table: Weak<ConnectionTable>,
    /// The task that serves the connection.
    task: AtomicWaker,
    is_cut: AtomicBool,
    is_socket: AtomicBool,
    /// Number of running requests.
    requests: AtomicUsize,
    /// Start of the time without a running request, in ms since the table started.
    idle_since: AtomicU64,
    /// Time of the first byte since `idle_since`; [`NEVER_MS`] if no byte came.
    first_byte_at: AtomicU64,
    /// Start of the time in which the peer reads nothing; [`NEVER_MS`] if the peer reads.
    blocked: AtomicU64,
}

const NEVER_MS: u64 = u64::MAX;

/// A running request. While a connection has a request, the connection keeps its place.
pub struct RequestGuard(Arc<TcpConnection>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let connection = &self.0;
        connection.idle_since.store(connection.now_ms(), Relaxed);
        connection.first_byte_at.store(NEVER_MS, Relaxed);
        connection.requests.fetch_sub(1, Relaxed);
    }
}

impl TcpConnection {
    /// True if the connection uses a place of the reserve, because all others were taken.
    #[must_use]
    pub fn is_in_reserve(&self) -> bool {
        self.in_reserve
    }
    /// Ends the connection, regardless of the peer. The connection's task learns of the end at once.
    pub fn cut_off(&self) {
        if !self.is_cut.swap(true, Relaxed) {
            self.task.wake();
        }
    }
    /// Starts a request, until the value is dropped.
    #[must_use]
    pub fn begin_request(self: &Arc<Self>) -> RequestGuard {
        self.requests.fetch_add(1, Relaxed);
        RequestGuard(Arc::clone(self))
    }
    /// Marks the connection as a WebSocket. Sockets have a heartbeat in another module.
    pub fn mark_as_socket(&self) {
        self.is_socket.store(true, Relaxed);
    }

    fn now_ms(&self) -> u64 {
        self.table.upgrade().map_or(0, |table| table.now_ms())
    }
    fn on_bytes_read(&self) {
        if self.first_byte_at.load(Relaxed) == NEVER_MS && self.requests.load(Relaxed) == 0 {
            self.first_byte_at.store(self.now_ms(), Relaxed);
        }
    }
    fn on_write_blocked(&self) {
        if self.blocked.load(Relaxed) == NEVER_MS {
            self.blocked.store(self.now_ms(), Relaxed);
        }
    }
    fn on_write_progress(&self) {
        // Usually already set, and a load is cheaper than a store.
        if self.blocked.load(Relaxed) != NEVER_MS {
            self.blocked.store(NEVER_MS, Relaxed);
        }
    }

    /// True if the connection has no request and no pending answer bytes. The connection waits for a request, or
    /// receives a request slowly.
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
        // actix-web enforces the second limit itself, except for a peer that started a request during an answer.
        self.is_idle()
            && (passed(self.first_byte_at.load(Relaxed), head)
                || passed(self.idle_since.load(Relaxed), KEEP_ALIVE + head))
    }
}

impl ConnectionTable {
    fn now_ms(&self) -> u64 {
        let passed = self.clock.monotonic_now().saturating_duration_since(self.started);
        u64::try_from(passed.as_millis()).unwrap_or(NEVER_MS - 1)
    }
    fn cut_all(&self, connections: impl Iterator<Item = Arc<TcpConnection>>) {
        for connection in connections {
            self.cut_count.fetch_add(1, Relaxed);
            connection.cut_off();
        }
    }
    /// Cuts idle connections to make room for at least one. Connections of the reserve stay: they have their own time
    /// limit.
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
            let connection_count = of_address.get(&connection.address).copied().unwrap_or_default();
            (
                Reverse(connection_count),
                connection.idle_since.load(Relaxed),
                connection.id,
            )
        });
        let cut_ids: Vec<u64> = idle
            .iter()
            .take(1 + usual.len() / CUT_DIVISOR)
            .map(|connection| connection.id)
            .collect();
        self.cut_all(cut_ids.iter().filter_map(|id| usual.remove(id)));
    }
}

impl ConnectionRegistry {
    /// Starts to watch connections on the current tokio runtime, until the last clone is dropped.
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
                cut_count: AtomicU64::new(0),
            }),
        }
    }

    /// Number of open connections.
    #[must_use]
    pub fn open_count(&self) -> usize {
        let open = self.table.open.lock();
        open.usual.len() + open.reserve.len()
    }
    /// Maximum number of connections, without the reserve.
    #[must_use]
    pub fn max_open(&self) -> usize {
        self.table.limits.max_open
    }
    /// Connections that found no place since the start.
    #[must_use]
    pub fn refused_count(&self) -> u64 {
        self.table.refused.load(Relaxed)
    }
    /// Connections cut since the start, because they took too long or to make room.
    #[must_use]
    pub fn cut_count(&self) -> u64 {
        self.table.cut_count.load(Relaxed)
    }

    /// Finds a place for a new connection. If no place is free, idle connections are cut. The address with the most
    /// idle connections comes first; within an address, the longest idle connection. Without idle connections, the new
    /// connection may use the reserve, in which each address has few places.
    ///
    /// # Errors
    /// No place is free.
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
            first_byte_at: AtomicU64::new(now),
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

    /// Cuts connections that exceed a time limit.
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
