//! The nodes of a server with several processes: which nodes live, and which dialogues belong to which node.
//!
//! A node sends regular heartbeats. Without a heartbeat for the length of its lease, a node is dead to the other nodes.
//! They may take over its dialogues one by one ([`super::dialogues::OwnershipClaim`]), and the answer to its next
//! heartbeat tells the node. Epochs fence writes; nodes do not.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::StoreResult;
use colloquy_core::ids::{DialogueId, NodeId, TenantId};

/// A node with a recent heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveNode {
    pub id: NodeId,
    /// The URL for requests of other nodes.
    pub url: String,
    /// The end of the node's lease. A heartbeat extends the lease.
    pub until: DateTime<Utc>,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatOutcome {
    /// The node was alive all the time.
    StillAlive,
    /// The node was dead to the other nodes, which may own its dialogues by now.
    WasDead,
}

/// A dead node with unfinished work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadNode {
    pub id: NodeId,
    /// Its NPC conversations in auto mode. Without a takeover, no node would continue them.
    pub auto_conversations: Vec<(TenantId, DialogueId)>,
}

/// The registry of nodes. No method has a tenant scope, since nodes serve every tenant.
#[async_trait]
pub trait NodeStore: Send + Sync {
    /// Returns the time of the ledger's own clock.
    async fn ledger_time(&self) -> StoreResult<DateTime<Utc>>;
    /// Registers a new process, which takes over its URL: an earlier node at the same URL is dead from `now` on.
    async fn register_node(&self, node: &LiveNode, now: DateTime<Utc>) -> StoreResult<()>;
    /// Extends the node's life until `node.until`.
    async fn record_heartbeat(&self, node: &LiveNode, now: DateTime<Utc>) -> StoreResult<HeartbeatOutcome>;
    /// Deregisters a node on shutdown. From `now` on, any node may take over its dialogues.
    async fn deregister_node(&self, node: NodeId, now: DateTime<Utc>) -> StoreResult<()>;
    /// Returns the live nodes, by id.
    async fn list_live_nodes(&self, now: DateTime<Utc>) -> StoreResult<Vec<LiveNode>>;
    /// Returns every dialogue of the node.
    async fn list_owned_dialogues(&self, node: NodeId) -> StoreResult<Vec<(TenantId, DialogueId)>>;
    /// Returns the nodes that left or were dead by `now` and are not released yet.
    async fn list_dead_nodes(&self, now: DateTime<Utc>) -> StoreResult<Vec<DeadNode>>;
    /// Frees the jobs of a node that left or was dead by `now`, once. Returns `false` if it lives or has been released.
    async fn release_dead_node(&self, node: NodeId, now: DateTime<Utc>) -> StoreResult<bool>;
}
