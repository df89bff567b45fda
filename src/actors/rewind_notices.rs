//! Notices of rewinds to others: to sessions that were closed with their turns, and to the curator.

use std::sync::Arc;

use super::{
    dialogue::due_jobs::make_jobs_due,
    messages::{ClosedInLedger, CuratorRequest, DialogueKey},
    node::Node,
};
use colloquy_core::{ids::DialogueId, scope::TenantScope};
use colloquy_ports::peers::Notice;

/// Notifies closed sessions on the node. Returns the sessions that are not here.
pub(super) async fn notify_closed(node: &Node, scope: &TenantScope, closed: Vec<DialogueId>) -> Vec<DialogueId> {
    let mut elsewhere = Vec::new();
    for id in closed {
        let session = node
            .actors()
            .and_then(|actors| actors.closed_notices(&(scope.clone(), id)));
        match session {
            Some(session) => {
                // A session that is just stopping reads its closed state at the next load.
                let _ = session.send(&node.metrics, ClosedInLedger("rewound")).await;
            }
            None => elsewhere.push(id),
        }
    }
    elsewhere
}

/// Makes the held jobs of a closed session due, as the actor of a closing session does. The session has no actor on
/// this node.
async fn release_jobs_of_closed(node: &Arc<Node>, (scope, id): DialogueKey) {
    let dialogues = &node.ports.ledger.dialogues;
    let reading = async {
        let session = dialogues.load_dialogue(&scope, id).await?;
        let head_turn = session.map_or(0, |session| session.head_turn);
        dialogues.load_turns(&scope, id, head_turn, head_turn).await
    };
    let head = reading.await.map(|mut turns| turns.pop());
    match head {
        Ok(Some(head)) => drop(make_jobs_due(Arc::clone(node), (scope, id), head.id).await),
        Ok(None) => {}
        // The jobs become due by themselves.
        Err(error) => tracing::warn!(dialogue = %id, %error, "a closed session could not be read"),
    }
}

/// Notifies other parties of rewinds: sessions that were `closed` with their turns, and the curator.
pub(super) async fn notify_others(
    node: Arc<Node>,
    scope: TenantScope,
    rewound_dialogues: Vec<DialogueId>,
    closed: Vec<DialogueId>,
) {
    let elsewhere = notify_closed(&node, &scope, closed).await;
    if let Some(curator) = node.actors().and_then(|actors| actors.curator(&scope)) {
        // A curator that is just stopping leaves the work to the next curator.
        let _ = curator
            .send(&node.metrics, CuratorRequest::TurnsUnsaid(rewound_dialogues))
            .await;
    }
    if let Some(membership) = node.membership.as_ref().filter(|_| !elsewhere.is_empty()) {
        let notice = Notice::Closed {
            tenant: scope.tenant().clone(),
            sessions: elsewhere.clone(),
        };
        if let Err(error) = membership.peers.notify_peers(&notice).await {
            tracing::warn!(%error, "not every node heard of closed sessions; those that did not learn of it when they write");
        }
    }
    for session in elsewhere {
        release_jobs_of_closed(&node, (scope.clone(), session)).await;
    }
}
