//! Notices of a restored save to the actors of the local node and of other nodes. An actor that gets no notice learns
//! of the restore by the fence: the actor's epoch is no longer the ledger's.

use std::sync::Arc;

use super::{messages::WorldRestored, node::send_message, registry::Registry, rewind_notices};
use colloquy_core::{
    ids::{DialogueId, DialogueKind},
    scope::TenantScope,
};
use colloquy_ports::{ledger::saves::RestoredDialogue, peers::Notice};

/// Asks the other nodes to notify their actors.
pub(super) async fn notify_peers(node: &Registry, scope: &TenantScope, dialogues: Vec<RestoredDialogue>) {
    let Some(membership) = &node.membership else { return };
    let notice = Notice::Restored {
        tenant: scope.tenant().clone(),
        dialogues,
    };
    if let Err(error) = membership.peers.notify_peers(&notice).await {
        tracing::warn!(%error, "not every node heard of a restore; those that did not learn of it when they write");
    }
}

/// Tells the actors of the restored dialogues that their cached state no longer stands. The actors have the message
/// when the call returns, so later requests find the restored world.
pub(super) async fn notify_actors(node: &Arc<Registry>, scope: &TenantScope, dialogues: Vec<RestoredDialogue>) {
    let ids: Vec<DialogueId> = dialogues.iter().map(|dialogue| dialogue.id).collect();
    for dialogue in dialogues {
        let key = (scope.clone(), dialogue.id);
        let notice = WorldRestored(Arc::new(dialogue));
        // A stopped actor has no cached state.
        match key.1.kind() {
            DialogueKind::Session => {
                if let Some(addr) = node.sessions.find_live(&key) {
                    let _ = send_message(node, &addr, notice).await;
                }
            }
            DialogueKind::NpcConversation => {
                if let Some(addr) = node.conversations.find_live(&key) {
                    let _ = send_message(node, &addr, notice).await;
                }
            }
        }
    }
    // The notices above tell the sessions that the save has closed about their new state.
    rewind_notices::notify_others(Arc::clone(&node.node), scope.clone(), ids, Vec::new()).await;
}
