//! Refusals of callers: they come from the ledger and from other nodes, and close streams.

use std::time::Duration;

use actix_web::web;

use crate::AppState;
use colloquy_core::ids::TenantId;
use colloquy_ports::{
    StoreResult,
    ledger::revocations::Revocation,
    peers::{Notice, Peers as _},
};

/// How often a node of a cluster reads disabled tenants and revocations from the ledger: a notice may be lost.
const CLUSTER_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The same for a single node: another process may have written to the ledger.
const SINGLE_NODE_POLL_INTERVAL: Duration = Duration::from_mins(1);

/// Announces that this node disabled or enabled a tenant.
pub async fn publish_tenant_change(state: &AppState, tenant: &TenantId, enabled: bool) {
    let notice = Notice::Tenant {
        tenant: tenant.clone(),
        enabled,
    };
    apply_notice(state, &notice).await;
    notify_other_nodes(state, &notice).await;
}

/// Announces that this node revoked tokens.
pub async fn publish_revocation(state: &AppState, revocation: Revocation) {
    let notice = Notice::Revoked { revocation };
    apply_notice(state, &notice).await;
    notify_other_nodes(state, &notice).await;
}

/// Applies a notice about a tenant or a revocation on this node. Ignores all other notices.
pub async fn apply_notice(state: &AppState, notice: &Notice) {
    match notice {
        Notice::Tenant { tenant, enabled } => state.auth.on_tenant_changed(tenant, *enabled).await,
        Notice::Revoked { revocation } => drop(state.auth.on_revoked(revocation)),
        _ => return,
    }
    state.streams.close_refused(&state.auth);
}

async fn notify_other_nodes(state: &AppState, notice: &Notice) {
    let Some(nodes) = &state.nodes else { return };
    if let Err(error) = nodes.notify_peers(notice).await {
        tracing::info!(%error, "another node was not notified; it reads the revocations from the ledger");
    }
}

/// Reads disabled tenants and revocations from the ledger.
///
/// # Errors
/// The ledger could not answer.
pub async fn catch_up(state: &AppState) -> StoreResult<()> {
    if state.auth.catch_up(&*state.services.ledger.revocations).await? {
        state.streams.close_refused(&state.auth);
    }
    Ok(())
}

/// Calls [`catch_up`] periodically while the server runs.
pub async fn poll_refusals(state: web::Data<AppState>) {
    let pause = if state.nodes.is_some() {
        CLUSTER_POLL_INTERVAL
    } else {
        SINGLE_NODE_POLL_INTERVAL
    };
    let mut ticks = tokio::time::interval(pause);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = catch_up(&state).await {
            tracing::warn!(%error, "disabled tenants and revocations could not be read");
        }
    }
}
