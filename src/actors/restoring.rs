//! A save that is loaded, as the actors of this node and of the others hear of it. One that is not told
//! hears of it by the fence: its epoch is no longer the ledger's.

use std::{collections::HashMap, sync::Arc};

use super::{
    registry::{Node, send},
    rewinding, session,
};
use crate::{
    ids::{DialogueId, WorldId},
    ports::{ledger::saves::RestoredDialogue, peers::Notice},
    tenancy::TenantScope,
};

/// Has the other nodes tell theirs.
pub(super) async fn tell_peers(node: &Node, scope: &TenantScope, world: &WorldId, dialogues: Vec<RestoredDialogue>) {
    let Some(several) = &node.membership else { return };
    let notice = Notice::Restored {
        tenant: scope.tenant().clone(),
        world: world.clone(),
        dialogues,
    };
    if let Err(error) = several.peers.tell(&notice).await {
        tracing::warn!(%error, "not every node heard of a restore; those that did not learn of it when they write");
    }
}

/// Tells every actor of the world that what it holds is not what stands. They have the message when
/// this returns, so that whatever is asked of them later finds the world restored.
pub(super) async fn tell(node: &Arc<Node>, scope: &TenantScope, world: &WorldId, dialogues: Vec<RestoredDialogue>) {
    let ids: Vec<DialogueId> = dialogues.iter().map(|dialogue| dialogue.id).collect();
    let mut moved: HashMap<DialogueId, Arc<RestoredDialogue>> = dialogues
        .into_iter()
        .map(|dialogue| (dialogue.id, Arc::new(dialogue)))
        .collect();
    let mut sessions = Vec::new();
    // Which world an actor is of, only it knows.
    node.sessions.each(|(tenant, id), entry| {
        if tenant == scope && entry.actor.addr.connected() {
            sessions.push((*id, entry.actor.addr.clone()));
        }
    });
    for (id, addr) in sessions {
        let told = session::WorldRestored {
            world: world.clone(),
            moved: moved.remove(&id),
        };
        // One that is gone holds nothing.
        let _ = send(&addr, told).await;
    }
    let mut conversations = Vec::new();
    node.conversations.each(|(tenant, id), entry| {
        if tenant == scope && entry.actor.addr.connected() {
            conversations.push((*id, entry.actor.addr.clone()));
        }
    });
    for (id, addr) in conversations {
        let told = session::WorldRestored {
            world: world.clone(),
            moved: moved.remove(&id),
        };
        let _ = send(&addr, told).await;
    }
    // Sessions that the save closed have been told of it as what it made of them.
    rewinding::tell_others(Arc::clone(node), scope.clone(), ids, Vec::new()).await;
}
