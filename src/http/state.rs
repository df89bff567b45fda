//! What every handler may reach.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{
    health::LedgerProbe, metrics::HttpMetrics, nodes::NodeClient, open_streams::OpenStreams, settings::HttpSettings,
};
use crate::{
    actors::{handle::Sessions, player_socket::SocketHub},
    dialogue::Services,
    tenancy::{auth::Authenticator, limits::RateLimits},
};

/// Everything a handler may reach. Built once, in `app`, and shared by every worker as
/// `web::Data<AppState>`.
#[derive(Clone)]
pub struct AppState {
    pub services: Services,
    pub sessions: Sessions,
    pub auth: Arc<Authenticator>,
    pub limits: Arc<RateLimits>,
    pub settings: Arc<HttpSettings>,
    pub metrics: Arc<HttpMetrics>,
    /// Whether this server offers `/metrics`, or another of this process does.
    pub metrics_here: bool,
    /// What `/metrics` gathers.
    pub registry: prometheus::Registry,
    pub readiness: Readiness,
    /// What `/readyz` knows of the ledger.
    pub ledger_probe: LedgerProbe,
    pub sockets: SocketHub,
    /// What callers have open, so that it can be closed.
    pub streams: OpenStreams,
    /// `None`: this server is alone.
    pub nodes: Option<NodeClient>,
}

/// Whether `/readyz` says yes. Turned off first thing in a shutdown.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Turns readiness on or off.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Release);
    }
    /// Whether the server takes new work.
    #[must_use]
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
