//! The local node's place in a cluster: the other nodes' addresses, and what is known of their heartbeats.
//!
//! The module owns no truth: a row of the ledger names the owner of a dialogue. `heartbeat` sends the heartbeats.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use colloquy_core::ids::NodeId;
use colloquy_ports::{
    StoreResult,
    clock::Clock,
    ledger::nodes::{LiveNode, NodeStore},
    owners::OwnerCache,
    peers::Peers,
    vectors::FactIndex,
};

/// The addresses of the other nodes. Shared by all parts that call other nodes.
pub struct Neighbours {
    own_id: NodeId,
    nodes: Arc<dyn NodeStore>,
    clock: Arc<dyn Clock>,
    live: RwLock<HashMap<NodeId, String>>,
    /// Changes whenever a node comes or goes.
    changed: watch::Sender<u64>,
    beats: Mutex<HeartbeatRecord>,
}

/// The local node's recent success with heartbeats. While the ledger is away, no node can send a heartbeat. Silence
/// therefore means nothing until every node has had the time for another heartbeat.
#[derive(Default)]
struct HeartbeatRecord {
    /// The last successful heartbeat.
    last: Option<DateTime<Utc>>,
    /// The last successful heartbeat before the failures began.
    before: Option<DateTime<Utc>>,
    /// Since when heartbeats succeed again; `None`: they fail.
    since: Option<Instant>,
    /// True if the node's clock differs from the ledger's. Such a node cannot judge silence, and declares no other node
    /// dead.
    is_off: bool,
}

impl HeartbeatRecord {
    fn record_success(&mut self, beaten_at: DateTime<Utc>, now: Instant, patience: Duration) {
        self.since.get_or_insert(now);
        if self.can_judge_dead(now, patience) {
            self.before = None;
        }
        self.last = Some(beaten_at);
    }

    /// True if heartbeats have succeeded for so long that all other nodes have had the time for a heartbeat. Before
    /// then, only nodes that have left count as dead.
    fn can_judge_dead(&self, now: Instant, patience: Duration) -> bool {
        self.since
            .is_some_and(|since| now.saturating_duration_since(since) >= patience)
    }

    fn record_failure(&mut self) {
        self.before = self.before.or(self.last);
        self.since = None;
    }
}

impl Neighbours {
    #[must_use]
    pub fn new(own_id: NodeId, nodes: Arc<dyn NodeStore>, clock: Arc<dyn Clock>) -> Self {
        Self {
            own_id,
            nodes,
            clock,
            live: RwLock::default(),
            changed: watch::Sender::new(0),
            beats: Mutex::default(),
        }
    }

    /// Returns the cutoff: a node without a heartbeat since then is dead. The cutoff is `now`, or the start of a recent
    /// outage of the ledger. For a node whose clock is off, only nodes that have left are dead.
    #[must_use]
    pub fn dead_cutoff(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        let beats = self.beats.lock();
        if beats.is_off {
            return DateTime::UNIX_EPOCH;
        }
        beats.before.map_or(now, |before| before.min(now))
    }

    /// True if the local clock is not the ledger's: other nodes refuse what this node sends.
    #[must_use]
    pub fn is_clock_off(&self) -> bool {
        self.beats.lock().is_off
    }

    /// Compares the local clock with the ledger's. A clock that is off by more than a third of the `lease` would
    /// declare live nodes dead. The node then logs an error and takes over nothing until the clock is right.
    ///
    /// # Errors
    /// The ledger cannot be asked.
    pub async fn compare_clocks(&self, lease: Duration) -> StoreResult<()> {
        let local_time = self.clock.now();
        let started = self.clock.monotonic_now();
        let ledger_time = self.nodes.ledger_time().await?;
        let round_trip = self.clock.monotonic_now().saturating_duration_since(started);
        let apart = (ledger_time - (local_time + round_trip / 2))
            .abs()
            .to_std()
            .unwrap_or(Duration::MAX);
        // The time of the ledger's answer is known only to within half the round trip.
        let is_off = apart > lease / 3 + round_trip / 2;
        let was_off = std::mem::replace(&mut self.beats.lock().is_off, is_off);
        let off_ms = u64::try_from(apart.as_millis()).unwrap_or(u64::MAX);
        match (was_off, is_off) {
            (false, true) => tracing::error!(
                off_ms,
                "this node's clock is not the database's: it takes over nothing of other nodes until it is right"
            ),
            (true, false) => tracing::info!(off_ms, "this node's clock is right again"),
            _ => {}
        }
        Ok(())
    }

    /// Returns the id of the local node.
    #[must_use]
    pub fn own_id(&self) -> NodeId {
        self.own_id
    }

    /// Reads the other live nodes from the ledger.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub async fn refresh_others(&self) -> StoreResult<Vec<LiveNode>> {
        let mut live = self.nodes.list_live_nodes(self.clock.now()).await?;
        live.retain(|node| node.id != self.own_id);
        let urls: HashMap<NodeId, String> = live.iter().map(|node| (node.id, node.url.clone())).collect();
        let mut live_urls = self.live.write();
        if *live_urls != urls {
            *live_urls = urls;
            drop(live_urls);
            self.changed.send_modify(|version| *version += 1);
        }
        Ok(live)
    }

    /// Returns the URL of a node. `None`: the id is the local node or no live node.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub async fn url_of(&self, node: NodeId) -> StoreResult<Option<String>> {
        if let Some(url) = self.live.read().get(&node) {
            return Ok(Some(url.clone()));
        }
        self.refresh_others().await?;
        Ok(self.live.read().get(&node).cloned())
    }

    /// Returns once the local node considers `node` dead.
    pub async fn wait_until_dead(&self, node: NodeId) {
        let mut changed = self.changed.subscribe();
        while self.live.read().contains_key(&node) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }
}

/// The local node's membership in a cluster.
pub struct Membership {
    pub neighbours: Arc<Neighbours>,
    /// The URL at which other nodes reach the local node.
    pub url: String,
    pub heartbeat: Duration,
    /// After a silence of this length, the other nodes consider a node dead.
    pub lease: Duration,
    pub peers: Arc<dyn Peers>,
    /// `None`: the ledger is asked each time.
    pub owners: Option<Arc<dyn OwnerCache>>,
    /// The local copy of the fact index, if the node has its own copy beside the ledger.
    pub index: Option<Arc<dyn FactIndex>>,
}

impl Membership {
    /// Returns the wait before judging other nodes: a lease for their heartbeats and one beat to read them.
    fn judge_dead_after(&self) -> Duration {
        self.lease + self.heartbeat
    }

    /// Returns the cutoff of a takeover: nodes without a heartbeat since then are dead. Before the local node can judge
    /// silence, only nodes that have left are dead.
    pub(super) fn takeover_cutoff(&self, now: DateTime<Utc>, instant: Instant) -> DateTime<Utc> {
        let can_judge = self
            .neighbours
            .beats
            .lock()
            .can_judge_dead(instant, self.judge_dead_after());
        if can_judge {
            self.neighbours.dead_cutoff(now) - self.heartbeat
        } else {
            DateTime::UNIX_EPOCH
        }
    }

    pub(super) fn record_heartbeat(&self, kept_at: Option<DateTime<Utc>>, now: Instant) {
        let mut beats = self.neighbours.beats.lock();
        match kept_at {
            Some(beaten_at) => beats.record_success(beaten_at, now, self.judge_dead_after()),
            None => beats.record_failure(),
        }
    }

    /// Returns the row of the node in the ledger, as of `now`.
    pub(super) fn live_node_row(&self, node: NodeId, now: DateTime<Utc>) -> LiveNode {
        LiveNode {
            id: node,
            url: self.url.clone(),
            until: now + self.lease,
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use colloquy_core::ids::{DialogueId, TenantId};
    use colloquy_ports::{
        clock::ManualClock,
        ledger::nodes::{DeadNode, HeartbeatOutcome},
    };

    /// A node store that knows only the time.
    struct ClockOnlyNodeStore(Arc<ManualClock>);

    #[async_trait]
    impl NodeStore for ClockOnlyNodeStore {
        async fn ledger_time(&self) -> StoreResult<DateTime<Utc>> {
            Ok(self.0.now())
        }
        async fn register_node(&self, _: &LiveNode, _: DateTime<Utc>) -> StoreResult<()> {
            unreachable!()
        }
        async fn record_heartbeat(&self, _: &LiveNode, _: DateTime<Utc>) -> StoreResult<HeartbeatOutcome> {
            unreachable!()
        }
        async fn deregister_node(&self, _: NodeId, _: DateTime<Utc>) -> StoreResult<()> {
            unreachable!()
        }
        async fn list_live_nodes(&self, _: DateTime<Utc>) -> StoreResult<Vec<LiveNode>> {
            unreachable!()
        }
        async fn list_owned_dialogues(&self, _: NodeId) -> StoreResult<Vec<(TenantId, DialogueId)>> {
            unreachable!()
        }
        async fn list_dead_nodes(&self, _: DateTime<Utc>) -> StoreResult<Vec<DeadNode>> {
            unreachable!()
        }
        async fn release_dead_node(&self, _: NodeId, _: DateTime<Utc>) -> StoreResult<bool> {
            unreachable!()
        }
    }

    #[tokio::test]
    async fn node_with_skewed_clock_declares_no_peer_dead() {
        let start = DateTime::from_timestamp(1_800_000_000, 0).expect("a moment");
        let own = ManualClock::starting_at(start);
        let ledgers = ManualClock::starting_at(start);
        let neighbours = Neighbours::new(
            NodeId::from_u128(1),
            Arc::new(ClockOnlyNodeStore(ledgers.clone())),
            own.clone(),
        );
        let lease = Duration::from_secs(6);
        let dead_by = async || {
            neighbours.compare_clocks(lease).await.expect("it answers");
            neighbours.dead_cutoff(own.now())
        };
        assert_eq!(dead_by().await, start);
        own.advance(Duration::from_secs(1));
        assert_eq!(dead_by().await, own.now(), "as far apart as they may be");
        own.advance(Duration::from_secs(4));
        assert_eq!(dead_by().await, DateTime::UNIX_EPOCH);
        ledgers.advance(Duration::from_secs(9));
        assert_eq!(dead_by().await, DateTime::UNIX_EPOCH, "behind is as bad");
        assert!(neighbours.is_clock_off());
        own.advance(Duration::from_secs(4));
        assert_eq!(dead_by().await, own.now());
        assert!(!neighbours.is_clock_off());
    }

    #[test]
    fn node_that_has_not_listened_long_declares_no_peer_dead() {
        let mut beats = HeartbeatRecord::default();
        let patience = Duration::from_secs(8);
        let at = DateTime::UNIX_EPOCH;
        let began = ManualClock::starting_at(at).monotonic_now();
        let after = |secs| began + Duration::from_secs(secs);
        assert!(!beats.can_judge_dead(began, patience), "it has not even begun");
        beats.record_failure();
        beats.record_success(at, began, patience);
        beats.record_success(at, after(4), patience);
        assert!(!beats.can_judge_dead(after(7), patience));
        assert!(beats.can_judge_dead(after(8), patience));
        beats.record_failure();
        assert!(!beats.can_judge_dead(after(9), patience));
        beats.record_success(at, after(10), patience);
        assert!(
            !beats.can_judge_dead(after(17), patience),
            "the others were away as well"
        );
        assert!(beats.can_judge_dead(after(18), patience));
    }
}
