//! Disabled tenants: the server does no work for a disabled tenant. Conversations that pace themselves say no more
//! lines. Jobs wait in the ledger, which leases none of them; running jobs are dropped. Conversations and jobs continue
//! once the tenant is enabled. The module does not decide which callers are let in, and a running turn may end.

use std::{collections::HashSet, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{chores, messages::StopCurator, node::send_message, npc_conversation::ContinueTalking, registry::Registry};
use colloquy_core::{ids::TenantId, scope::TenantScope};
use colloquy_ports::StoreResult;

/// Follows changes of the set of disabled tenants until `stop`.
pub(super) async fn run(node: Arc<Registry>, stop: CancellationToken) {
    let mut changes = node.ports.disabled.subscribe();
    let mut disabled = HashSet::new();
    loop {
        let now = changes.borrow_and_update().clone();
        for tenant in now.difference(&disabled) {
            stop_tenant_jobs(&node, tenant).await;
        }
        for tenant in disabled.difference(&now) {
            let scope = TenantScope::new(tenant.clone());
            if let Err(error) = resume_tenant(&node, &scope).await {
                tracing::warn!(%tenant, %error, "jobs of a tenant that was enabled go on once their leases have run out");
            }
        }
        disabled = now;
        if !matches!(stop.run_until_cancelled(changes.changed()).await, Some(Ok(()))) {
            return;
        }
    }
}

/// Stops the tenant's curators. Their jobs stay leased until the tenant is enabled or the lease runs out; no node
/// leases the jobs meanwhile.
async fn stop_tenant_jobs(node: &Arc<Registry>, tenant: &TenantId) {
    let mut curators = Vec::new();
    node.curators.for_each_entry(|scope, entry| {
        if scope.tenant() == tenant {
            curators.push(entry.addr.clone());
        }
    });
    for curator in curators {
        // A curator that is gone has already stopped.
        let _ = send_message(node, &curator, StopCurator).await;
    }
}

async fn resume_tenant(node: &Arc<Registry>, scope: &TenantScope) -> StoreResult<()> {
    let mut conversations = Vec::new();
    node.conversations.for_each_entry(|(owner, _), entry| {
        if owner == scope {
            conversations.push(entry.actor.addr.clone());
        }
    });
    for conversation in conversations {
        // An evicted conversation continues when a request loads the conversation.
        let _ = send_message(node, &conversation, ContinueTalking).await;
    }
    node.ports.ledger.jobs.release_tenant_leases(scope, node.id).await?;
    chores::sweep_tenant(node, scope).await
}
