//! The state shared by all handlers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{
    McpSettings,
    errors::Problem,
    ledger_probe::LedgerProbe,
    metrics::HttpMetrics,
    nodes::NodeClient,
    open_streams::OpenStreams,
    openai::{ChatSettings, ChatThreads},
    settings::HttpSettings,
    socket::player_socket::SocketHub,
};
use colloquy_actors::handle::Dialogues;
use colloquy_core::{ids::PlayerId, scope::TenantScope};
use colloquy_dialogue::Services;
use colloquy_tenancy::{auth::Authenticator, limits::RateLimits};
use colloquy_webhooks::Webhooks;

/// The state shared by all handlers. Built once, in `app`, and shared by every worker as `web::Data<AppState>`.
#[derive(Clone)]
pub struct AppState {
    pub services: Services,
    pub sessions: Dialogues,
    pub auth: Arc<Authenticator>,
    pub limits: Arc<RateLimits>,
    pub settings: Arc<HttpSettings>,
    /// Limits and model names of chat programs.
    pub chat: Arc<ChatSettings>,
    /// The talks of chat programs on this node.
    pub threads: ChatThreads,
    /// The settings of webhooks, and the addresses that they may name.
    pub webhooks: Arc<Webhooks>,
    pub mcp: Arc<McpSettings>,
    pub metrics: Arc<HttpMetrics>,
    /// True if this server offers `/metrics`; false if another server of this process does.
    pub metrics_here: bool,
    /// The metrics of `/metrics`.
    pub registry: prometheus::Registry,
    pub readiness: Readiness,
    /// The ledger check of `/readyz`.
    pub ledger_probe: LedgerProbe,
    pub sockets: SocketHub,
    /// The callers' open streams, so that the server can close them.
    pub streams: OpenStreams,
    /// `None`: this server runs alone.
    pub nodes: Option<NodeClient>,
}

impl AppState {
    /// Checks that a player may make NPCs go on or stop.
    ///
    /// # Errors
    /// The player has spent its share of the tenant's budgets.
    pub(crate) async fn check_player_share(&self, scope: &TenantScope, player: &PlayerId) -> Result<(), Problem> {
        let budgets = self.services.models.budgets();
        Ok(budgets.check_share_of(&self.services.ledger, scope, player).await?)
    }
}

/// The readiness in `/readyz`. The first step of a shutdown sets it to false.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Turns readiness on or off.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Release);
    }
    /// True if the server takes new work.
    #[must_use]
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
