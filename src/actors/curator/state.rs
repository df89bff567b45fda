//! What a node's curator is doing, for backends.

use actix::{Handler, Message};
use chrono::{DateTime, Utc};
use tokio::sync::oneshot;

use super::Curator;
use colloquy_core::ids::NodeId;

/// The curator of a tenant on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CuratorState {
    /// Jobs in memory, running jobs included.
    pub held_jobs: usize,
    pub running_jobs: usize,
    /// When the curator next looks for silent dialogues; `None` while it looks.
    pub next_look_at: Option<DateTime<Utc>>,
}

/// The curator of a tenant, as this node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeCurator {
    pub node: NodeId,
    /// `None`: the node has no curator of the tenant at the moment.
    pub curator: Option<CuratorState>,
    /// True if the tenant's jobs wait, because the model budget of the day is used up.
    pub waits_for_budget: bool,
}

/// Asks a curator for its state.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct DescribeCurator {
    pub reply: oneshot::Sender<CuratorState>,
}

impl Handler<DescribeCurator> for Curator {
    type Result = ();

    fn handle(&mut self, DescribeCurator { reply }: DescribeCurator, _: &mut Self::Context) {
        let clock = &self.node.ports.clock;
        let wait = self.silence.wait_from(clock.monotonic_now());
        let concurrency = self.node.ports.settings.jobs.concurrency.max(1);
        debug_assert!(
            self.slots.available_permits() <= concurrency,
            "no more slots are free than there are"
        );
        let state = CuratorState {
            held_jobs: self.held_jobs.len(),
            running_jobs: concurrency.saturating_sub(self.slots.available_permits()),
            next_look_at: (!self.silence.is_looking()).then(|| clock.now() + wait),
        };
        // The caller may have given up.
        let _ = reply.send(state);
    }
}
