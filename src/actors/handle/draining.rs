//! The drain of a node: no new turns, running turns end or are cut, and the node gives up its dialogues.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use actix::{Addr, Handler};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::sync::oneshot;

use super::Dialogues;
use crate::{
    mailbox::{Mailbox, QueuedMessage},
    messages::{CutRunningTurn, DrainCurator, DrainDialogue, StopCurator, StopDialogue},
    node::send_message,
    registry::Registry,
};
use colloquy_ports::StoreError;

/// The result of a drain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DrainReport {
    /// Turns that ended normally.
    pub finished: usize,
    /// Turns that were cut at the deadline (committed as interrupted).
    pub cut_turns: usize,
    /// Turns that did not end even after the cut; their lines were never acknowledged.
    pub abandoned: usize,
    /// Jobs that still ran. The jobs stay leased to the node and run after the next start.
    pub jobs_left: usize,
}

/// The part of a drain's deadline reserved for turns that had to be cut, at most.
const CUT_GRACE: Duration = Duration::from_secs(2);

impl Dialogues {
    /// Drains the node. New lines are refused at once (`DialogueError::Draining`). Running turns may end normally;
    /// shortly before the deadline, the remaining turns are cut. Then the actors stop, and buffered data is written.
    /// Listeners stay attached until their turn has ended.
    pub async fn drain_node(&self, deadline: Duration) -> DrainReport {
        self.drain_node_within(deadline.saturating_sub(CUT_GRACE.min(deadline / 4)), deadline)
            .await
    }

    /// As [`Self::drain_node`], with the time of the cut: `patience` from now, at most `deadline`.
    pub(crate) async fn drain_node_within(&self, patience: Duration, deadline: Duration) -> DrainReport {
        self.node.draining.store(true, Relaxed);
        let now = self.node.ports.clock.monotonic_now();
        let cut_at = now + patience;
        let end = now + deadline;
        let mut drained = DrainReport::default();
        let mut drains = FuturesUnordered::new();
        let sessions = self.node.sessions.live_addrs();
        let conversations = self.node.conversations.live_addrs();
        // In a cluster, other nodes get a dialogue as soon as its turn has ended. A single node retains listeners to
        // the end.
        let leaves = self.node.membership.is_some();
        for addr in sessions {
            drains.push(drain_dialogue(Arc::clone(&self.node), addr, leaves).boxed());
        }
        for addr in conversations {
            drains.push(drain_dialogue(Arc::clone(&self.node), addr, leaves).boxed());
        }
        while let Ok(Some(had_turn)) = timeout_at(cut_at, drains.next()).await {
            drained.finished += usize::from(had_turn);
        }
        if !drains.is_empty() {
            // Best effort: a dialogue with a full mailbox is still handling messages.
            for addr in self.node.sessions.live_addrs() {
                let _ = addr.try_send(CutRunningTurn);
            }
            for addr in self.node.conversations.live_addrs() {
                let _ = addr.try_send(CutRunningTurn);
            }
            while let Ok(Some(had_turn)) = timeout_at(end, drains.next()).await {
                drained.cut_turns += usize::from(had_turn);
            }
            drained.abandoned = drains.len();
        }
        drained.jobs_left = self.drain_curators(end).await;
        self.chores.stop.cancel();
        let task = self.chores.task.lock().take();
        if let Some(task) = task {
            // Writing usage is worth a moment even after the deadline.
            let last = self.node.ports.clock.monotonic_now().max(end) + Duration::from_secs(1);
            let _ = timeout_at(last, task).await;
        }
        for addr in self.node.sessions.live_addrs() {
            let _ = addr.try_send(StopDialogue);
        }
        for addr in self.node.conversations.live_addrs() {
            let _ = addr.try_send(StopDialogue);
        }
        let last = self.node.ports.clock.monotonic_now().max(end) + Duration::from_secs(1);
        if !matches!(timeout_at(last, self.release_all_dialogues()).await, Ok(Ok(()))) {
            tracing::warn!("the dialogues of this node could not be given up; their ownership runs out by itself");
        }
        drained
    }

    async fn release_all_dialogues(&self) -> Result<(), StoreError> {
        let node = &self.node;
        let ledger = &self.node.ports.ledger;
        if node.membership.is_some() {
            // Other nodes take over the remaining dialogues of a deregistered node.
            return ledger.nodes.deregister_node(node.id, node.ports.clock.now()).await;
        }
        ledger.dialogues.release_all_ownership(node.id).await
    }

    async fn drain_curators(&self, end: Instant) -> usize {
        let mut curators = Vec::new();
        self.node
            .curators
            .for_each_entry(|_, entry| curators.push(entry.addr.clone()));
        let mut remaining_jobs = 0;
        for addr in curators {
            let (reply, answer) = oneshot::channel();
            if send_message(&self.node, &addr, DrainCurator { reply }).await.is_err() {
                continue;
            }
            remaining_jobs += match timeout_at(end, answer).await {
                Ok(answer) => answer.unwrap_or(0),
                Err(_elapsed) => 1,
            };
            let _ = addr.try_send(StopCurator);
        }
        remaining_jobs
    }
}

/// Tells a dialogue to accept no more lines, and waits for the running turn. True if a turn was running. With `leaves`,
/// the dialogue is then given up.
async fn drain_dialogue<A>(node: Arc<Registry>, addr: Addr<A>, leaves: bool) -> bool
where
    A: Mailbox + Handler<QueuedMessage<DrainDialogue>> + Handler<QueuedMessage<StopDialogue>>,
{
    let (reply, answer) = oneshot::channel();
    // A stopped actor has no turn.
    let had_turn = send_message(&node, &addr, DrainDialogue { reply }).await.is_ok() && answer.await.unwrap_or(false);
    if leaves {
        let _ = send_message(&node, &addr, StopDialogue).await;
    }
    had_turn
}

async fn timeout_at<F: Future>(deadline: Instant, future: F) -> Result<F::Output, tokio::time::error::Elapsed> {
    tokio::time::timeout_at(deadline.into(), future).await
}
