//! The heartbeats of the local node in a cluster, and the takeover of and from dead nodes.
//!
//! The epoch of a dialogue decides which writes of a node the ledger accepts. A node that was frozen learns here that
//! other nodes took over meanwhile. Until then, its old epochs make the ledger refuse its writes.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    chores,
    membership::Membership,
    messages::{DialogueKey, OwnershipLost},
    node::send_message,
    npc_conversation::ConversationKind,
    registry::Registry,
};
use colloquy_core::scope::TenantScope;
use colloquy_ports::{StoreResult, ledger::nodes::HeartbeatOutcome};

/// How long authored rows are used without another read: a notice of an edit may be lost.
const AUTHORED_TTL: Duration = Duration::from_mins(1);

/// Sends heartbeats until `stop`.
pub(super) async fn run(node: Arc<Registry>, stop: CancellationToken) {
    let Some(membership) = node.membership.clone() else {
        return;
    };
    let mut authored_at = node.ports.clock.monotonic_now();
    let mut was_dead = false;
    let mut taking_up: Option<JoinHandle<()>> = None;
    loop {
        let started_at = node.ports.clock.now();
        let beaten = within_lease("say that it lives", &membership, send_heartbeat(&node, &membership)).await;
        if beaten == Some(HeartbeatOutcome::WasDead) {
            tracing::warn!("this node was dead to the others for a while; what they took over is theirs");
        }
        let kept_at = (beaten == Some(HeartbeatOutcome::StillAlive)).then_some(started_at);
        membership.record_heartbeat(kept_at, node.ports.clock.monotonic_now());
        // The outcome of a failed heartbeat is unknown.
        was_dead |= beaten != Some(HeartbeatOutcome::StillAlive);
        if was_dead && beaten.is_some() {
            // The check repeats until it has succeeded once.
            was_dead = within_lease(
                "find out what it owns",
                &membership,
                disown_lost_dialogues(&node, &membership),
            )
            .await
            .is_none();
        }
        // A separate task, because the heartbeat may not wait for the takeover.
        if taking_up.as_ref().is_none_or(JoinHandle::is_finished) && !node.is_draining() {
            taking_up = Some(actix::spawn(take_over_dead_nodes(
                Arc::clone(&node),
                Arc::clone(&membership),
            )));
        }
        let now = node.ports.clock.monotonic_now();
        if now.saturating_duration_since(authored_at) >= AUTHORED_TTL {
            authored_at = now;
            node.npcs.for_each_entry(|_, entry| entry.cell.clear_rows());
        }
        if stop
            .run_until_cancelled(tokio::time::sleep(membership.heartbeat))
            .await
            .is_none()
        {
            return;
        }
    }
}

/// Returns the result of `work`; `None`: `work` failed or took longer than the lease, which is as bad.
async fn within_lease<T>(task: &str, membership: &Membership, work: impl Future<Output = StoreResult<T>>) -> Option<T> {
    match tokio::time::timeout(membership.lease, work).await {
        Ok(Ok(output)) => Some(output),
        Ok(Err(error)) => {
            tracing::warn!(%error, "this node could not {task}");
            None
        }
        Err(_elapsed) => {
            tracing::warn!("this node could not {task} in time");
            None
        }
    }
}

async fn send_heartbeat(node: &Registry, membership: &Membership) -> StoreResult<HeartbeatOutcome> {
    let nodes = &node.ports.ledger.nodes;
    membership.neighbours.compare_clocks(membership.lease).await?;
    let now = node.ports.clock.now();
    let beat = nodes
        .record_heartbeat(&membership.live_node_row(node.id, now), now)
        .await?;
    membership.neighbours.refresh_others().await?;
    Ok(beat)
}

/// Takes over the self-paced conversations and the jobs of dead nodes.
async fn take_over_dead_nodes(node: Arc<Registry>, membership: Arc<Membership>) {
    if let Err(error) = try_take_over_dead_nodes(&node, &membership).await {
        tracing::warn!(%error, "what dead nodes left behind could not be taken up; it is tried again");
    }
}

async fn try_take_over_dead_nodes(node: &Arc<Registry>, membership: &Membership) -> StoreResult<()> {
    let nodes = &node.ports.ledger.nodes;
    // Later than the takeover of requested dialogues, so that a merely late node is not buried.
    let now = node.ports.clock.now();
    let instant = node.ports.clock.monotonic_now();
    let cutoff = membership.takeover_cutoff(now, instant);
    for dead_node in nodes.list_dead_nodes(cutoff).await? {
        if dead_node.id == node.id {
            continue;
        }
        for (tenant, conversation) in dead_node.auto_conversations {
            // The load takes ownership. If another node was faster, the actor stops again.
            if let Err(error) = node
                .get_or_spawn_dialogue(&(TenantScope::new(tenant), conversation), ConversationKind::default)
                .await
            {
                tracing::warn!(dialogue = %conversation, %error, "a conversation could not be taken up");
            }
        }
        if nodes.release_dead_node(dead_node.id, cutoff).await? {
            tracing::info!(dead = %dead_node.id, "took up what a node left behind");
            chores::sweep_all_tenants(node).await?;
        }
    }
    Ok(())
}

/// Drops dialogues that the node no longer owns, and tells their listeners to reconnect.
async fn disown_lost_dialogues(node: &Arc<Registry>, membership: &Membership) -> StoreResult<()> {
    // Listed before the ledger is asked: dialogues that are taken meanwhile are not in the list.
    let mut sessions = Vec::new();
    let mut conversations = Vec::new();
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
            // A stopped actor has no cached state.
            let _ = send_message(node, &addr, OwnershipLost).await;
        }
    }
    for (key, addr) in conversations {
        if !owned.contains(&key) {
            let _ = send_message(node, &addr, OwnershipLost).await;
        }
    }
    node.npcs.for_each_entry(|_, entry| entry.cell.clear_rows());
    if let Some(index) = &membership.index {
        // The node missed the index notices that live nodes got.
        for tenant in node.ports.ledger.tenants.list_all().await? {
            index.clear_tenant(&TenantScope::new(tenant.id)).await?;
        }
    }
    Ok(())
}
