//! This node among others: saying that it lives, learning that it was thought dead, taking up what the
//! dead left behind, and knowing where the others are.
//!
//! Owns no truth: who owns a dialogue is a row of the ledger, and what a node may write is decided by its
//! epoch. A node that was frozen learns here that others took over meanwhile; until it has, its epochs
//! refuse what it writes.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use parking_lot::{Mutex, RwLock};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{
    chores,
    mailbox::send_message,
    registry::{DialogueKey, Node},
    session::OwnershipLost,
};
use crate::{
    ids::NodeId,
    ports::{
        StoreResult,
        clock::Clock,
        ledger::nodes::{HeartbeatOutcome, LiveNode, NodeStore},
        owners::OwnerCache,
        peers::Peers,
        vectors::FactIndex,
    },
    tenancy::TenantScope,
};

/// How long what people wrote is believed without looking again: a notice of an edit may be lost.
const AUTHORED_TTL: Duration = Duration::from_mins(1);

/// Where the other nodes are. Shared by those who talk to them.
pub struct Neighbours {
    own: NodeId,
    nodes: Arc<dyn NodeStore>,
    clock: Arc<dyn Clock>,
    live: RwLock<HashMap<NodeId, String>>,
    /// Changes whenever a node came or went.
    changed: watch::Sender<u64>,
    beats: Mutex<HeartbeatRecord>,
}

/// How this node has lately been able to say that it lives. While the ledger is away nobody can, so that nobody's
/// silence means anything until everybody has had the time to speak again.
#[derive(Default)]
struct HeartbeatRecord {
    /// When it said so last.
    last: Option<DateTime<Utc>>,
    /// When it had said so last before it could not.
    before: Option<DateTime<Utc>>,
    /// Since when it can again; `None`: it cannot.
    since: Option<Instant>,
    /// Its clock is not the ledger's: by it nobody is dead, since it cannot tell.
    is_off: bool,
}

impl HeartbeatRecord {
    fn record_success(&mut self, at: DateTime<Utc>, now: Instant, patience: Duration) {
        self.since.get_or_insert(now);
        if self.can_judge_dead(now, patience) {
            self.before = None;
        }
        self.last = Some(at);
    }

    /// Whether it has been able to for so long that all the others have had the time to. Before that only those are dead
    /// that have left.
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
    pub fn new(own: NodeId, nodes: Arc<dyn NodeStore>, clock: Arc<dyn Clock>) -> Self {
        Self {
            own,
            nodes,
            clock,
            live: RwLock::default(),
            changed: watch::Sender::new(0),
            beats: Mutex::default(),
        }
    }

    /// Whoever has not been heard of since then is dead. That is `now`, or where the ledger was away a moment ago, when
    /// it went. To a node whose clock is off only those are dead that have left.
    #[must_use]
    pub fn dead_cutoff(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        let beats = self.beats.lock();
        if beats.is_off {
            return DateTime::UNIX_EPOCH;
        }
        beats.before.map_or(now, |before| before.min(now))
    }

    /// Compares this node's clock with the ledger's. One that is off by more than a third of the `lease` would think others
    /// dead that live: it says so and takes nothing over until it is right again.
    ///
    /// # Errors
    /// The ledger cannot be asked.
    pub async fn compare_clocks(&self, lease: Duration) -> StoreResult<()> {
        let (asked_at, asked) = (self.clock.now(), self.clock.monotonic_now());
        let theirs = self.nodes.ledger_time().await?;
        let took = self.clock.monotonic_now().saturating_duration_since(asked);
        let apart = (theirs - (asked_at + took / 2)).abs().to_std().unwrap_or(Duration::MAX);
        // When it was asked is known to half the time that the answer took.
        let is_off = apart > lease / 3 + took / 2;
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

    /// This node.
    #[must_use]
    pub fn own_id(&self) -> NodeId {
        self.own
    }

    /// The others that live, as the ledger has it now.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub async fn refresh_others(&self) -> StoreResult<Vec<LiveNode>> {
        let mut live = self.nodes.list_live_nodes(self.clock.now()).await?;
        live.retain(|node| node.id != self.own);
        let known: HashMap<NodeId, String> = live.iter().map(|node| (node.id, node.url.clone())).collect();
        let mut held = self.live.write();
        if *held != known {
            *held = known;
            drop(held);
            self.changed.send_modify(|version| *version += 1);
        }
        Ok(live)
    }

    /// Where a node is reached. `None`: it is this one, or none that lives.
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

    /// Returns once a node is dead to this one.
    pub async fn wait_until_dead(&self, node: NodeId) {
        let mut changed = self.changed.subscribe();
        while self.live.read().contains_key(&node) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }
}

/// How this node is one of several.
pub struct Membership {
    pub neighbours: Arc<Neighbours>,
    /// Where the others reach this one.
    pub url: String,
    pub heartbeat: Duration,
    /// After this much silence a node is dead to the others.
    pub lease: Duration,
    pub peers: Arc<dyn Peers>,
    /// `None`: the ledger is asked each time.
    pub owners: Option<Arc<dyn OwnerCache>>,
    /// What this node's own index holds beside the ledger, if it has one of its own.
    pub index: Option<Arc<dyn FactIndex>>,
}

impl Membership {
    /// Others have a lease's time to say that they live, too, and this node one beat more to hear it.
    fn judge_dead_after(&self) -> Duration {
        self.lease + self.heartbeat
    }

    fn record_heartbeat(&self, kept_at: Option<DateTime<Utc>>, now: Instant) {
        let mut beats = self.neighbours.beats.lock();
        match kept_at {
            Some(at) => beats.record_success(at, now, self.judge_dead_after()),
            None => beats.record_failure(),
        }
    }

    fn live_node_row(&self, node: &Node) -> LiveNode {
        LiveNode {
            id: node.id,
            url: self.url.clone(),
            until: node.ports.clock.now() + self.lease,
        }
    }
}

/// Says that this node lives, until `stop`.
pub(super) async fn run(node: Arc<Node>, stop: CancellationToken) {
    let Some(several) = node.membership.clone() else { return };
    let mut authored_at = node.ports.clock.monotonic_now();
    let mut was_dead = false;
    let mut taking_up: Option<JoinHandle<()>> = None;
    loop {
        let began = node.ports.clock.now();
        let beaten = within_lease("say that it lives", &several, send_heartbeat(&node, &several)).await;
        if beaten == Some(HeartbeatOutcome::WasDead) {
            tracing::warn!("this node was dead to the others for a while; what they took over is theirs");
        }
        let kept_at = (beaten == Some(HeartbeatOutcome::StillAlive)).then_some(began);
        several.record_heartbeat(kept_at, node.ports.clock.monotonic_now());
        // What came of one that failed is not known.
        was_dead |= beaten != Some(HeartbeatOutcome::StillAlive);
        if was_dead && beaten.is_some() {
            // Until it has succeeded once.
            was_dead = within_lease(
                "find out what it owns",
                &several,
                disown_lost_dialogues(&node, &several),
            )
            .await
            .is_none();
        }
        // Beside the heartbeat, which may not wait for it.
        if taking_up.as_ref().is_none_or(JoinHandle::is_finished) && !node.is_draining() {
            taking_up = Some(actix::spawn(take_over_dead_nodes(
                Arc::clone(&node),
                Arc::clone(&several),
            )));
        }
        let now = node.ports.clock.monotonic_now();
        if now.saturating_duration_since(authored_at) >= AUTHORED_TTL {
            authored_at = now;
            node.npcs.for_each_entry(|_, entry| entry.cell.clear_rows());
        }
        if stop
            .run_until_cancelled(tokio::time::sleep(several.heartbeat))
            .await
            .is_none()
        {
            return;
        }
    }
}

/// What came of `work`; `None`: it failed, or took as long as this node is thought alive, which is as bad.
async fn within_lease<T>(what: &str, several: &Membership, work: impl Future<Output = StoreResult<T>>) -> Option<T> {
    match tokio::time::timeout(several.lease, work).await {
        Ok(Ok(done)) => Some(done),
        Ok(Err(error)) => {
            tracing::warn!(%error, "this node could not {what}");
            None
        }
        Err(_elapsed) => {
            tracing::warn!("this node could not {what} in time");
            None
        }
    }
}

async fn send_heartbeat(node: &Node, several: &Membership) -> StoreResult<HeartbeatOutcome> {
    let nodes = &node.ports.ledger.nodes;
    several.neighbours.compare_clocks(several.lease).await?;
    let beat = nodes
        .record_heartbeat(&several.live_node_row(node), node.ports.clock.now())
        .await?;
    several.neighbours.refresh_others().await?;
    Ok(beat)
}

/// Takes up what nodes left behind that are dead: their conversations that go on by themselves, their jobs.
async fn take_over_dead_nodes(node: Arc<Node>, several: Arc<Membership>) {
    if let Err(error) = try_take_over_dead_nodes(&node, &several).await {
        tracing::warn!(%error, "what dead nodes left behind could not be taken up; it is tried again");
    }
}

async fn try_take_over_dead_nodes(node: &Arc<Node>, several: &Membership) -> StoreResult<()> {
    let nodes = &node.ports.ledger.nodes;
    // A moment later than others may take over what they are asked for: one that is late is not buried.
    let now = node.ports.clock.now();
    let instant = node.ports.clock.monotonic_now();
    let knows = several
        .neighbours
        .beats
        .lock()
        .can_judge_dead(instant, several.judge_dead_after());
    let by = if knows {
        several.neighbours.dead_cutoff(now) - several.heartbeat
    } else {
        DateTime::UNIX_EPOCH
    };
    for dead in nodes.list_dead_nodes(by).await? {
        if dead.id == node.id {
            continue;
        }
        for (tenant, conversation) in dead.auto_conversations {
            // Taken over when it loads; if another node was faster, it stops again.
            if let Err(error) = node
                .get_or_spawn_conversation(&(TenantScope::new(tenant), conversation))
                .await
            {
                tracing::warn!(dialogue = %conversation, %error, "a conversation could not be taken up");
            }
        }
        if nodes.release_dead_node(dead.id, by).await? {
            tracing::info!(dead = %dead.id, "took up what a node left behind");
            chores::sweep_all_tenants(node).await?;
        }
    }
    Ok(())
}

/// Whatever is no longer this node's is let go, and whoever listens to it is told to come back.
async fn disown_lost_dialogues(node: &Arc<Node>, several: &Membership) -> StoreResult<()> {
    // Listed before it is asked what is owned: what is taken meanwhile is not in the list.
    let (mut sessions, mut conversations) = (Vec::new(), Vec::new());
    node.sessions
        .for_each_entry(|key, entry| sessions.push((key.clone(), entry.actor.addr.clone())));
    node.conversations
        .for_each_entry(|key, entry| conversations.push((key.clone(), entry.actor.addr.clone())));
    let owned = node.ports.ledger.nodes.list_owned_dialogues(node.id).await?;
    let owned: HashSet<DialogueKey> = owned
        .into_iter()
        .map(|(tenant, id)| (TenantScope::new(tenant), id))
        .collect();
    for (key, addr) in sessions {
        if !owned.contains(&key) {
            // One that is gone holds nothing.
            let _ = send_message(node, &addr, OwnershipLost).await;
        }
    }
    for (key, addr) in conversations {
        if !owned.contains(&key) {
            let _ = send_message(node, &addr, OwnershipLost).await;
        }
    }
    node.npcs.for_each_entry(|_, entry| entry.cell.clear_rows());
    if let Some(index) = &several.index {
        // What was told to the nodes that lived was not told to this one.
        for tenant in node.ports.ledger.tenants.list_all().await? {
            index.clear_tenant(&TenantScope::new(tenant.id)).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::{
        ids::{DialogueId, TenantId},
        ports::{clock::ManualClock, ledger::nodes::DeadNode},
    };

    /// Knows what time it is, and nothing else.
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
        let (own, ledgers) = (ManualClock::starting_at(start), ManualClock::starting_at(start));
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
        own.advance(Duration::from_secs(4));
        assert_eq!(dead_by().await, own.now());
    }

    #[test]
    fn node_that_has_not_listened_long_declares_no_peer_dead() {
        let (mut beats, patience) = (HeartbeatRecord::default(), Duration::from_secs(8));
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
