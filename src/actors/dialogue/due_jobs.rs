//! Jobs that waited until a turn was heard.

use std::sync::Arc;

use crate::{
    messages::{CuratorRequest, DialogueKey},
    node::Node,
};
use colloquy_core::ids::TurnId;
use colloquy_ports::ledger::jobs::JobKind;

/// Makes the jobs due that waited until a turn was heard. Returns the kinds of the turn's jobs that run or are due;
/// `None`: the ledger did not answer, and the jobs become due by themselves.
pub(crate) async fn make_jobs_due(node: Arc<Node>, (scope, id): DialogueKey, turn: TurnId) -> Option<Vec<JobKind>> {
    let jobs = &node.ports.ledger.jobs;
    match jobs.make_due(&scope, id, turn, node.ports.clock.now()).await {
        Ok(due) => {
            if !due.is_empty()
                && let Some(curator) = node.actors().and_then(|actors| actors.curator(&scope))
            {
                // A curator that is just stopping leaves the jobs to the next curator.
                let _ = curator.send(&node.metrics, CuratorRequest::JobsDue).await;
            }
            Some(due)
        }
        Err(error) => {
            tracing::warn!(dialogue = %id, %error, "jobs could not be made due");
            None
        }
    }
}
