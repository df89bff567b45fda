//! The composition root: the only module that names adapters. It builds the services that the configuration selects,
//! and runs them until a stop signal.

pub mod backup;
mod cluster;
pub mod data_folder;
pub mod demo;
pub mod descriptors;
mod instrumented;
mod ledger;
mod metrics;
mod metrics_address;
mod models;
#[cfg(feature = "qdrant")]
mod qdrant;
#[cfg(feature = "redis")]
mod redis;
mod steady_clock;
pub mod store_probes;
mod stores;
mod webhooks;

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use actix_web::{dev::Server, rt::task::JoinHandle, web};
use anyhow::Context;
use chrono::{DateTime, Utc};
use prometheus::Registry;

use self::{
    cluster::ClusterNode,
    data_folder::DataFolder,
    instrumented::{InstrumentedBuffers, InstrumentedIndex, InstrumentedTurns},
    metrics_address::MetricsServer,
    steady_clock::SteadyClock,
    stores::FactIndexes,
};
pub use self::{
    ledger::{has_tenant, migrate_schema as migrate_ledger},
    models::{llm_options, uncalibrated_embedder},
    stores::open_services,
};
use crate::{
    config::{Config, ListenAddress},
    lifecycle::{self, RunningServer},
};
use colloquy_actors::handle::Dialogues;
use colloquy_core::ids::TenantId;
use colloquy_dialogue::{Services, jobs};
use colloquy_http as http;
use colloquy_http::{
    AppState, LedgerProbe, Readiness,
    metrics::HttpMetrics,
    open_streams::OpenStreams,
    socket::player_socket::{SocketHub, SocketSettings},
};
use colloquy_ports::{
    clock::{Clock, IdSource, SystemClock},
    ledger::{Ledger, tenants::Tenant},
    vectors::FactIndex,
};
use colloquy_tenancy::{
    auth::{AuthSettings, Authenticator},
    limits::RateLimits,
};
use colloquy_transport as transport;
use colloquy_transport::ConnectionRegistry;
use colloquy_webhooks::{Deliveries, Webhooks};
use tokio_util::sync::CancellationToken;

/// How long startup waits until a shared index is ready.
const SHARED_INDEX_WAIT: Duration = Duration::from_secs(2);

/// How long a shutdown waits for the end of running deliveries.
const DELIVERIES_PATIENCE: Duration = Duration::from_secs(3);

/// A server that is bound to its address but not yet running.
pub struct Application {
    address: SocketAddr,
    server: Server,
    metrics: Option<MetricsServer>,
    running: RunningServer,
    notice: Duration,
    deadline: Duration,
    services: Services,
    /// `None`: this node delivers no messages of webhooks.
    deliveries: Option<Deliveries>,
    state: web::Data<AppState>,
    behind: jobs::LaggingTenants,
    auth: AuthSettings,
    /// Locks the data folder against other servers while this value lives.
    folder: DataFolder,
}

/// How long a stopping server says so before it takes no more requests. A single server has no other node that balancers
/// could use.
fn drain_notice(config: &Config) -> Duration {
    let notice = config.node.url.is_some().then_some(config.server.drain_notice_ms);
    Duration::from_millis(notice.unwrap_or_default())
}

impl Application {
    /// Opens the stores, starts the actors and binds the address (port 0: any free port). Connections wait until the
    /// application runs. Must be called within an actix `System`.
    ///
    /// # Errors
    /// Describes the fault and its remedy for the operator.
    pub async fn build(config: &Config) -> anyhow::Result<Self> {
        let machine_clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let clock: Arc<dyn Clock> = Arc::new(SteadyClock::new(machine_clock.clone()));
        let ids = Arc::new(IdSource::from_thread_rng(clock.clone()));
        let folder = DataFolder::lock_folder(&config.data_dir)?;
        let auth = auth_settings(config)?;

        let registry = Registry::new();
        let (mut services, indexes) = stores::open_stores(config, clock.clone(), ids.clone()).await?;
        let indexes = instrument_stores(&mut services, indexes, &registry)?;
        ensure_tenants(&services.ledger, &config.tenants, clock.now()).await?;
        if config.demo.enabled {
            demo::ensure_demo(&services.ledger, &ids, clock.now()).await?;
        }
        let authenticator = open_authenticator(auth.clone(), machine_clock, &mut services).await?;

        let listener = bind_listener(config)?;
        let address = listener.local_addr()?;

        let several = cluster::join_cluster(config, &mut services, &indexes, &listener).await?;
        let behind = wait_for_index(&services).await;
        let nodes = several.as_ref().map(|several| several.nodes.clone());
        let sessions = start_sessions(config, services.clone(), several, &folder)?;
        let connections = ConnectionRegistry::start_watching(descriptors::connection_limits(config), clock.clone());
        let sockets = start_sockets(config, &connections, clock.clone());
        let limits = RateLimits::new(config.limits.clone(), connections.max_open());
        metrics::register_metrics(&registry, &services, &sessions, &sockets, &connections, &limits)?;
        let readiness = Readiness::default();
        let webhooks = Arc::new(Webhooks::new(config.webhooks.clone()));
        let deliveries = webhooks::build_deliveries(&webhooks, &services, sessions.node_id(), &registry)?;
        let state = AppState {
            services: services.clone(),
            sessions: sessions.clone(),
            sockets: sockets.clone(),
            streams: OpenStreams::default(),
            auth: Arc::new(authenticator),
            limits,
            settings: Arc::new(config.http.clone()),
            chat: Arc::new(config.chat.clone()),
            threads: http::ChatThreads::default(),
            mcp: Arc::new(config.mcp.clone()),
            metrics: Arc::new(HttpMetrics::register(&registry)?),
            webhooks,
            registry,
            readiness: readiness.clone(),
            ledger_probe: LedgerProbe::default(),
            nodes,
            metrics_here: config.telemetry.metrics_listen.is_none(),
        };
        let metrics = MetricsServer::bind_if_configured(config, &state)?;
        let state = web::Data::new(state);
        http::refusals::catch_up(&state).await?;
        let server = start_server(config, listener, &connections, state.clone())?;
        readiness.set(true);
        tracing::info!(%address, "listening");
        Ok(Self {
            address,
            running: RunningServer {
                readiness,
                sessions,
                sockets,
                server: server.handle(),
                ledger: services.ledger.clone(),
                clock,
            },
            server,
            metrics,
            notice: drain_notice(config),
            deadline: Duration::from_secs(config.server.shutdown_deadline_s),
            services,
            deliveries,
            state,
            behind,
            auth,
            folder,
        })
    }

    /// The bound address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// The address of `/metrics`, if separate.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|metrics| metrics.address)
    }
    /// The services of this server, for tests and for the startup banner.
    #[must_use]
    pub fn services(&self) -> &Services {
        &self.services
    }
    /// The keys and rules for signing and checking tokens.
    #[must_use]
    pub fn auth_settings(&self) -> &AuthSettings {
        &self.auth
    }

    /// Serves until SIGTERM or SIGINT, then stops in order.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed, or the server fails.
    pub async fn run_until_stopped(self) -> anyhow::Result<()> {
        let signal = lifecycle::stop_signal().context("cannot listen for signals")?;
        self.run_until(async {
            let name = signal.await;
            tracing::info!(signal = name, "received a signal to stop");
        })
        .await
    }

    /// Serves until `stop` resolves, then stops in order.
    ///
    /// # Errors
    /// If the server fails.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let Self {
            server,
            metrics,
            running,
            notice,
            deadline,
            services,
            deliveries,
            state,
            behind,
            folder,
            ..
        } = self;
        let stop_deliveries = CancellationToken::new();
        let deliveries = deliveries.map(|deliveries| actix_web::rt::spawn(deliveries.run(stop_deliveries.clone())));
        let upkeep = [
            actix_web::rt::spawn(jobs::run_embedding_backfill(services.clone())),
            actix_web::rt::spawn(jobs::maintain_index(services, behind)),
            actix_web::rt::spawn(http::refusals::poll_refusals(state)),
        ];
        let metrics = metrics.map(MetricsServer::spawn);
        // The server is a task of its own, so connections are served while the actors drain.
        let serving = actix_web::rt::spawn(server);
        tokio::pin!(serving);
        tokio::select! {
            ended = &mut serving => {
                upkeep.iter().for_each(JoinHandle::abort);
                stop_deliveries.cancel();
                running.shut_down(Duration::ZERO, deadline).await;
                return Ok(ended??);
            }
            () = stop => {}
        }
        upkeep.iter().for_each(JoinHandle::abort);
        running.readiness.set(false);
        // The claims of messages are released while the ledger is open.
        stop_deliveries.cancel();
        if let Some(deliveries) = deliveries {
            let _ = tokio::time::timeout(DELIVERIES_PATIENCE, deliveries).await;
        }
        running.shut_down(notice, deadline).await;
        serving.await??;
        // The metrics server stops last, so that scrapes cover the shutdown.
        if let Some(metrics) = metrics {
            metrics.stop(false).await;
        }
        drop(folder);
        Ok(())
    }
}

/// Counts and times the calls to the stores.
fn instrument_stores(
    services: &mut Services,
    indexes: FactIndexes,
    registry: &Registry,
) -> prometheus::Result<FactIndexes> {
    let turns = InstrumentedTurns::new(services.ledger.turns.clone(), services.clock.clone(), registry)?;
    services.ledger.turns = Arc::new(turns);
    services.buffers = Arc::new(InstrumentedBuffers::new(services.buffers.clone(), registry)?);
    let indexes = indexes.try_map(|index| {
        let observed = InstrumentedIndex::new(index, registry)?;
        Ok::<_, prometheus::Error>(Arc::new(observed) as Arc<dyn FactIndex>)
    })?;
    services.index = indexes.with_held_index(indexes.local_index.clone());
    Ok(indexes)
}

/// Builds the authenticator. Revocations are loaded before any request is served.
async fn open_authenticator(
    settings: AuthSettings,
    clock: Arc<dyn Clock>,
    services: &mut Services,
) -> anyhow::Result<Authenticator> {
    let authenticator = Authenticator::new(settings, clock, services.ledger.tenants.clone())?;
    authenticator.catch_up(&*services.ledger.revocations).await?;
    services.disabled = authenticator.disabled_tenants().clone();
    Ok(authenticator)
}

/// Starts the actors. `several`: the membership in a cluster. A single server has the id in its data folder.
fn start_sessions(
    config: &Config,
    services: Services,
    several: Option<ClusterNode>,
    folder: &DataFolder,
) -> anyhow::Result<Dialogues> {
    let settings = config.actors.clone();
    Ok(if let Some(several) = several {
        Dialogues::start_in_cluster(services, settings, several.membership)
    } else {
        let id = folder.node_id(&services.ids)?;
        Dialogues::start(services, id, settings)
    })
}

fn bind_listener(config: &Config) -> anyhow::Result<TcpListener> {
    let listen: ListenAddress = config.server.listen.parse().map_err(anyhow::Error::msg)?;
    TcpListener::bind(listen.0)
        .with_context(|| format!("cannot listen on {}; is another server running there?", listen.0))
}

/// Waits at most [`SHARED_INDEX_WAIT`] for a shared index. An index that needs longer is completed while the server
/// already handles turns.
async fn wait_for_index(services: &Services) -> jobs::LaggingTenants {
    let ready = tokio::time::timeout(SHARED_INDEX_WAIT, jobs::activate_index(services)).await;
    ready.ok().and_then(Result::ok).unwrap_or_default()
}

fn start_sockets(config: &Config, connections: &ConnectionRegistry, clock: Arc<dyn Clock>) -> SocketHub {
    let settings = SocketSettings {
        // Each socket is a connection.
        max_open: config.socket.max_open.min(connections.max_open()),
        ..config.socket.clone()
    };
    SocketHub::start(settings, clock)
}

/// Starts the workers, which serve requests once the server is polled.
fn start_server(
    config: &Config,
    listener: TcpListener,
    connections: &ConnectionRegistry,
    state: web::Data<AppState>,
) -> std::io::Result<Server> {
    transport::start_server(listener, config.server.workers, connections, move |app| {
        let chat = Arc::clone(&state.chat);
        app.app_data(state.clone())
            .configure(move |cfg| http::configure(cfg, &chat));
    })
}

/// Returns the keys and rules of tokens: from the configuration, or with the secret of the data folder.
///
/// # Errors
/// If the secret cannot be read or created.
pub fn auth_settings(config: &Config) -> anyhow::Result<AuthSettings> {
    let mut settings = config.auth.clone();
    if settings.needs_secret() {
        settings.hs256_secret = Some(data_folder::load_or_create_secret(&config.data_dir)?);
    }
    Ok(settings)
}

async fn ensure_tenants(ledger: &Ledger, tenants: &[TenantId], now: DateTime<Utc>) -> anyhow::Result<()> {
    for id in tenants {
        let tenant = Tenant {
            id: id.clone(),
            name: id.to_string(),
            enabled: true,
            budget: None,
            created_at: now,
            version: 1,
        };
        if ledger.tenants.ensure_tenant(&tenant).await? {
            tracing::info!(tenant = %id, "created a tenant");
        }
    }
    Ok(())
}

/// Checks that the ledger's URL and the models' vocabulary can be read. Contacts no server and creates no file.
///
/// # Errors
/// Describes the fault, without any password.
pub fn check_config(config: &Config) -> anyhow::Result<()> {
    ledger::check_url(config)?;
    if let Some(path) = &config.llm.tokenizer_file {
        models::load_vocabulary(path)?;
    }
    Ok(())
}
