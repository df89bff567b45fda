//! Stopping for good: no new turns, running ones ended or cut, and what this node owns given up.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use actix::{Addr, Handler};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::sync::oneshot;

use super::Sessions;
use crate::{
    actors::{
        curator,
        mailbox::{Mailbox, Posted, send},
        registry::Node,
        session,
    },
    ports::StoreError,
};

/// What a drain came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    /// Turns that ended by themselves.
    pub finished: usize,
    /// Turns that were cut at the deadline (committed as interrupted).
    pub cut: usize,
    /// Turns that did not end even then; their lines were never acknowledged.
    pub abandoned: usize,
    /// Jobs that still ran; they stay leased to this node and run after the next start.
    pub jobs_left: usize,
}

/// What is left of a drain's deadline for turns that had to be cut, at most.
const CUT_GRACE: Duration = Duration::from_secs(2);

impl Sessions {
    /// Stops for good: refuses new lines at once (`SessionError::Draining`), lets running turns end
    /// by themselves, cuts those that have not shortly before the deadline, stops the actors and
    /// writes what is buffered. Listeners stay attached until their turn has ended.
    pub async fn drain(&self, deadline: Duration) -> Drained {
        self.drain_within(deadline.saturating_sub(CUT_GRACE.min(deadline / 4)), deadline)
            .await
    }

    /// As [`Self::drain`], which says when turns are cut: `patience` from now, at most `deadline`.
    pub(in crate::actors) async fn drain_within(&self, patience: Duration, deadline: Duration) -> Drained {
        self.node.draining.store(true, Relaxed);
        let now = self.node.ports.clock.instant();
        let (cut_at, end) = (now + patience, now + deadline);
        let mut drained = Drained::default();
        let mut waiting = FuturesUnordered::new();
        let (sessions, conversations) = (self.node.sessions.addrs(), self.node.conversations.addrs());
        // Among others a dialogue is theirs as soon as nothing runs in it; alone it may be listened to till
        // the end.
        let leaves = self.node.membership.is_some();
        for addr in sessions {
            waiting.push(drained_one(Arc::clone(&self.node), addr, leaves).boxed());
        }
        for addr in conversations {
            waiting.push(drained_one(Arc::clone(&self.node), addr, leaves).boxed());
        }
        while let Ok(Some(had_turn)) = timeout_at(cut_at, waiting.next()).await {
            drained.finished += usize::from(had_turn);
        }
        if !waiting.is_empty() {
            // Best effort: a full mailbox is a dialogue that answers by itself.
            for addr in self.node.sessions.addrs() {
                let _ = addr.try_send(session::CutNow);
            }
            for addr in self.node.conversations.addrs() {
                let _ = addr.try_send(session::CutNow);
            }
            while let Ok(Some(had_turn)) = timeout_at(end, waiting.next()).await {
                drained.cut += usize::from(had_turn);
            }
            drained.abandoned = waiting.len();
        }
        drained.jobs_left = self.drain_curators(end).await;
        self.chores.stop.cancel();
        let task = self.chores.task.lock().take();
        if let Some(task) = task {
            // Writing usage is worth a moment even after the deadline.
            let last = self.node.ports.clock.instant().max(end) + Duration::from_secs(1);
            let _ = timeout_at(last, task).await;
        }
        for addr in self.node.sessions.addrs() {
            let _ = addr.try_send(session::Stop);
        }
        for addr in self.node.conversations.addrs() {
            let _ = addr.try_send(session::Stop);
        }
        let last = self.node.ports.clock.instant().max(end) + Duration::from_secs(1);
        if !matches!(timeout_at(last, self.give_up_everything()).await, Ok(Ok(()))) {
            tracing::warn!("the dialogues of this node could not be given up; their ownership runs out by itself");
        }
        drained
    }

    async fn give_up_everything(&self) -> Result<(), StoreError> {
        let (node, ledger) = (&self.node, &self.node.ports.ledger);
        if node.membership.is_some() {
            // Whatever is still its own is taken over from a node that is no more.
            return ledger.nodes.leave(node.id, node.ports.clock.now()).await;
        }
        ledger.dialogues.release_all(node.id).await
    }

    async fn drain_curators(&self, end: Instant) -> usize {
        let mut curators = Vec::new();
        self.node.curators.each(|_, entry| curators.push(entry.addr.clone()));
        let mut left = 0;
        for addr in curators {
            let (reply, answer) = oneshot::channel();
            if send(&self.node, &addr, curator::Drain { reply }).await.is_err() {
                continue;
            }
            left += match timeout_at(end, answer).await {
                Ok(answer) => answer.unwrap_or(0),
                Err(_elapsed) => 1,
            };
            let _ = addr.try_send(curator::Stop);
        }
        left
    }
}

/// Whether a dialogue had a turn running when it was told to take no more, once none does. Then, if it
/// `leaves`, it is given up.
async fn drained_one<A>(node: Arc<Node>, addr: Addr<A>, leaves: bool) -> bool
where
    A: Mailbox + Handler<Posted<session::Drain>> + Handler<Posted<session::Stop>>,
{
    let (reply, answer) = oneshot::channel();
    // An actor that is gone has no turn.
    let had_turn = send(&node, &addr, session::Drain { reply }).await.is_ok() && answer.await.unwrap_or(false);
    if leaves {
        let _ = send(&node, &addr, session::Stop).await;
    }
    had_turn
}

async fn timeout_at<F: Future>(at: Instant, future: F) -> Result<F::Output, tokio::time::error::Elapsed> {
    tokio::time::timeout_at(at.into(), future).await
}
