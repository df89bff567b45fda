//! Records of rewind requests. The ledger stores each key with its answer, so that a repeated request removes no later
//! turn. The audit log stores the callers.

use std::sync::Arc;

use crate::{
    InterruptOutcome,
    messages::{DialogueKey, ReplyHandle},
    node::Node,
};
use colloquy_dialogue::requester::Requesters;
use colloquy_ports::{StoreError, ledger::rewinds::OnKeyConflict};

/// Stores the late requesters' outcome and audit entries, since no rewind of their own does. Both are written, or none.
pub(super) async fn record_outcome(
    node: Arc<Node>,
    (scope, dialogue): DialogueKey,
    late: Requesters,
    outcome: InterruptOutcome,
    on_conflict: OnKeyConflict,
) -> Result<(), StoreError> {
    let ports = &node.ports;
    let acks = late.acks(&ports.ids, ports.clock.now(), dialogue);
    let rewinds = &ports.ledger.rewinds;
    rewinds
        .record_outcome(&scope, dialogue, &acks, &outcome, on_conflict)
        .await
}

/// Returns the callers to answer after the late callers were recorded, or failed to be. On a failure, rewind callers
/// get the error and must retry: a repeated key that is not stored would remove later turns.
pub(super) fn callers_if_recorded<A>(
    recorded: Result<(), StoreError>,
    (_, dialogue): &DialogueKey,
    callers: Vec<A>,
    into_reply: impl Fn(A) -> Result<ReplyHandle<InterruptOutcome>, A>,
) -> Vec<A> {
    let Err(error) = recorded else { return callers };
    tracing::warn!(%dialogue, %error, "who else asked for a move could not be kept");
    let refuse = |caller| match into_reply(caller) {
        Ok(reply) => {
            reply.answer(Err(error.clone().into()));
            None
        }
        Err(other) => Some(other),
    };
    callers.into_iter().filter_map(refuse).collect()
}
