//! `/metrics` at a separate address, if configured: on a network for scrapers that clients cannot reach.

use std::net::{SocketAddr, TcpListener};

use actix_web::{
    App, HttpServer,
    dev::{Server, ServerHandle},
    web,
};
use anyhow::Context as _;

use crate::config::{Config, ListenAddress};
use colloquy_http as http;
use colloquy_http::AppState;

/// A second server with a single route. Its owner must poll it.
pub(super) struct MetricsServer {
    pub(super) address: SocketAddr,
    server: Server,
}

impl MetricsServer {
    /// Binds the address, if configured. `state` is the state of the main server.
    pub(super) fn bind_if_configured(config: &Config, state: &AppState) -> anyhow::Result<Option<Self>> {
        let Some(listen) = &config.telemetry.metrics_listen else {
            return Ok(None);
        };
        let listen: ListenAddress = listen.parse().map_err(anyhow::Error::msg)?;
        let listener = TcpListener::bind(listen.0)
            .with_context(|| format!("cannot listen on {} (telemetry.metrics_listen)", listen.0))?;
        let address = listener.local_addr()?;
        let state = web::Data::new(AppState {
            metrics_here: true,
            ..state.clone()
        });
        let server = HttpServer::new(move || App::new().app_data(state.clone()).configure(http::configure_metrics))
            .workers(1)
            .disable_signals()
            .shutdown_timeout(1)
            .listen(listener)?
            .run();
        tracing::info!(%address, "metrics are served at their own address");
        Ok(Some(Self { address, server }))
    }

    /// Serves until the returned handle stops the server.
    pub(super) fn spawn(self) -> ServerHandle {
        let handle = self.server.handle();
        actix_web::rt::spawn(self.server);
        handle
    }
}
