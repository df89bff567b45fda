//! The nodes of a server that is several processes: who is there, and what they own.
//!
//! A node says again and again that it lives. One that has not for the length of its lease is dead to
//! the others: whatever it owns may be taken over, dialogue by dialogue ([`super::dialogues::OwnershipClaim`]),
//! and it learns of that when it says so next. Nothing here fences a write; epochs do.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::{
    ids::{DialogueId, NodeId, TenantId},
    ports::StoreResult,
};

/// A node that said lately that it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveNode {
    pub id: NodeId,
    /// Where the other nodes reach it.
    pub url: String,
    /// Dead from then on, unless it says that it lives before.
    pub until: DateTime<Utc>,
}

/// What a node hears that says it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatOutcome {
    /// It was never dead.
    StillAlive,
    /// It was dead to the others: what it owned may be another's by now.
    WasDead,
}

/// A node that died and left something behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadNode {
    pub id: NodeId,
    /// Conversations it owns that go on by themselves; nobody else would wake them.
    pub auto_conversations: Vec<(TenantId, DialogueId)>,
}

/// Who is there. Without a scope, since nodes serve every tenant.
#[async_trait]
pub trait NodeStore: Send + Sync {
    /// What time it is by the ledger's own clock.
    async fn ledger_time(&self) -> StoreResult<DateTime<Utc>>;
    /// A process begins. An earlier one at the same URL is dead from `now` on: it cannot be there too.
    async fn register_node(&self, node: &LiveNode, now: DateTime<Utc>) -> StoreResult<()>;
    /// The node lives until `node.until`.
    async fn record_heartbeat(&self, node: &LiveNode, now: DateTime<Utc>) -> StoreResult<HeartbeatOutcome>;
    /// The node stops: what it owns is anybody's from `now` on.
    async fn deregister_node(&self, node: NodeId, now: DateTime<Utc>) -> StoreResult<()>;
    /// Those that live, by id.
    async fn list_live_nodes(&self, now: DateTime<Utc>) -> StoreResult<Vec<LiveNode>>;
    /// Every dialogue the node owns.
    async fn list_owned_dialogues(&self, node: NodeId) -> StoreResult<Vec<(TenantId, DialogueId)>>;
    /// Those that have left or were dead by `by`, and that nobody has buried.
    async fn list_dead_nodes(&self, by: DateTime<Utc>) -> StoreResult<Vec<DeadNode>>;
    /// Frees the jobs of a node that has left or was dead by `by`, once. `false`: it lives, or another was faster.
    async fn release_dead_node(&self, node: NodeId, by: DateTime<Utc>) -> StoreResult<bool>;
}
