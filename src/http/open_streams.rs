//! The open streams of callers, and how they close after a tenant was disabled or a token revoked.
//!
//! Owns the list of open sockets and streams of this node. Does not own the refusals: the authenticator does.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use actix_web::web;
use parking_lot::Mutex;

use super::{AppState, errors::Problem};
use colloquy_core::{ids::TenantId, scope::Principal};
use colloquy_ports::{
    StoreResult,
    ledger::revocations::Revocation,
    peers::{Notice, Peers as _},
};
use colloquy_tenancy::auth::Authenticator;

/// How often a node of a cluster reads disabled tenants and revocations from the ledger: a notice may be lost.
const CLUSTER_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The same for a single node: another process may have written to the ledger.
const SINGLE_NODE_POLL_INTERVAL: Duration = Duration::from_mins(1);

/// A stream that stays open for a caller after the request.
pub trait ClosableStream: Send + Sync {
    /// The current caller of the stream.
    fn principal(&self) -> Principal;
    /// Sends the reason, and closes the stream.
    fn close_with_reason(&self, problem: &Problem);
}

/// The open streams of this node. Cheap to clone.
#[derive(Clone, Default)]
pub struct OpenStreams(Arc<StreamTable>);

#[derive(Default)]
struct StreamTable {
    next_id: AtomicU64,
    streams: Mutex<HashMap<u64, Weak<dyn ClosableStream>>>,
}

/// An entry of the list, until dropped.
pub struct OpenStreamGuard {
    table: Arc<StreamTable>,
    id: u64,
}

impl Drop for OpenStreamGuard {
    fn drop(&mut self) {
        self.table.streams.lock().remove(&self.id);
    }
}

impl OpenStreams {
    /// Adds a stream. If the caller is already refused, the stream closes at once.
    #[must_use]
    pub fn add_stream(&self, auth: &Authenticator, stream: &Arc<dyn ClosableStream>) -> OpenStreamGuard {
        let id = self.0.next_id.fetch_add(1, Relaxed);
        self.0.streams.lock().insert(id, Arc::downgrade(stream));
        close_if_refused(auth, &**stream);
        OpenStreamGuard {
            table: self.0.clone(),
            id,
        }
    }

    /// Closes the streams of refused callers.
    fn close_refused(&self, auth: &Authenticator) {
        let streams: Vec<_> = self.0.streams.lock().values().filter_map(Weak::upgrade).collect();
        for stream in streams {
            close_if_refused(auth, &*stream);
        }
    }
}

fn close_if_refused(auth: &Authenticator, stream: &dyn ClosableStream) {
    if let Err(refusal) = auth.check_not_refused(&stream.principal()) {
        stream.close_with_reason(&refusal.into());
    }
}

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
