//! What a node's curator is doing, for backends.

use tokio::sync::oneshot;

use super::Dialogues;
use crate::{
    curator::{DescribeCurator, NodeCurator},
    node::send_message,
};
use colloquy_core::scope::TenantScope;

impl Dialogues {
    /// Describes the tenant's curator on this node. Wakes no curator.
    pub async fn describe_curator(&self, scope: &TenantScope) -> NodeCurator {
        let node = self.node();
        let addr = {
            let shard = node.curators.lock_shard(scope);
            shard.get(scope).map(|entry| entry.addr.clone())
        };
        let mut curator = None;
        if let Some(addr) = addr {
            let (reply, answer) = oneshot::channel();
            // A curator that is just stopping answers nothing.
            if send_message(node, &addr, DescribeCurator { reply }).await.is_ok() {
                curator = answer.await.ok();
            }
        }
        NodeCurator {
            node: node.id,
            curator,
            waits_for_budget: node.is_over_job_budget(scope),
        }
    }
}
