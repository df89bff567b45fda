//! Tenants that are disabled: nothing is done for them. Conversations that pace themselves say no line more, jobs wait in the
//! ledger, which leases none of them; what runs of them is dropped. Once the tenant is enabled both go on.
//!
//! Who may come in is not decided here, and a turn that runs is let end.

use std::{collections::HashSet, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{chores, curator, mailbox::send_message, npc_conversation::ContinueTalking, registry::Node};
use crate::{ids::TenantId, ports::StoreResult, tenancy::TenantScope};

/// Until `stop`.
pub(super) async fn run(node: Arc<Node>, stop: CancellationToken) {
    let mut changes = node.ports.disabled.subscribe();
    let mut known = HashSet::new();
    loop {
        let now = changes.borrow_and_update().clone();
        for tenant in now.difference(&known) {
            stop_tenant_jobs(&node, tenant).await;
        }
        for tenant in known.difference(&now) {
            let scope = TenantScope::new(tenant.clone());
            if let Err(error) = resume_tenant(&node, &scope).await {
                tracing::warn!(%tenant, %error, "jobs of a tenant that was enabled go on once their leases have run out");
            }
        }
        known = now;
        if !matches!(stop.run_until_cancelled(changes.changed()).await, Some(Ok(()))) {
            return;
        }
    }
}

/// What runs stays leased until the tenant is enabled, or the lease has run out: nobody leases it meanwhile.
async fn stop_tenant_jobs(node: &Arc<Node>, tenant: &TenantId) {
    let mut curators = Vec::new();
    node.curators.for_each_entry(|scope, entry| {
        if scope.tenant() == tenant {
            curators.push(entry.addr.clone());
        }
    });
    for curator in curators {
        // One that is gone has stopped.
        let _ = send_message(node, &curator, curator::StopCurator).await;
    }
}

async fn resume_tenant(node: &Arc<Node>, scope: &TenantScope) -> StoreResult<()> {
    let mut conversations = Vec::new();
    node.conversations.for_each_entry(|(of, _), entry| {
        if of == scope {
            conversations.push(entry.actor.addr.clone());
        }
    });
    for conversation in conversations {
        // One that has gone out of memory goes on when it is touched.
        let _ = send_message(node, &conversation, ContinueTalking).await;
    }
    node.ports.ledger.jobs.release_tenant_leases(scope, node.id).await?;
    chores::sweep_tenant(node, scope).await
}
