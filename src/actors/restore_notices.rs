//! A save that is loaded, as the actors of this node and of the others hear of it. One that is not told
//! hears of it by the fence: its epoch is no longer the ledger's.

use std::sync::Arc;

use super::{mailbox::send_message, registry::Node, rewinding, session};
use crate::{
    ids::{DialogueId, DialogueKind},
    ports::{ledger::saves::RestoredDialogue, peers::Notice},
    tenancy::TenantScope,
};

/// Has the other nodes tell theirs.
pub(super) async fn notify_peers(node: &Node, scope: &TenantScope, dialogues: Vec<RestoredDialogue>) {
    let Some(several) = &node.membership else { return };
    let notice = Notice::Restored {
        tenant: scope.tenant().clone(),
        dialogues,
    };
    if let Err(error) = several.peers.notify_peers(&notice).await {
        tracing::warn!(%error, "not every node heard of a restore; those that did not learn of it when they write");
    }
}

/// Tells the actors of the dialogues that were taken from them that what they hold is not what stands. They have
/// the message when this returns, so that whatever is asked of them later finds the world restored.
pub(super) async fn notify_actors(node: &Arc<Node>, scope: &TenantScope, dialogues: Vec<RestoredDialogue>) {
    let ids: Vec<DialogueId> = dialogues.iter().map(|dialogue| dialogue.id).collect();
    for dialogue in dialogues {
        let key = (scope.clone(), dialogue.id);
        let told = session::WorldRestored(Arc::new(dialogue));
        // One that is gone holds nothing.
        match key.1.kind() {
            DialogueKind::Session => {
                if let Some(addr) = node.sessions.find_live(&key) {
                    let _ = send_message(node, &addr, told).await;
                }
            }
            DialogueKind::NpcConversation => {
                if let Some(addr) = node.conversations.find_live(&key) {
                    let _ = send_message(node, &addr, told).await;
                }
            }
        }
    }
    // Sessions that the save closed have been told of it as what it made of them.
    rewinding::notify_others(Arc::clone(node), scope.clone(), ids, Vec::new()).await;
}
