//! Metrics on `/metrics` besides requests and turns: the meters of each module, and values read at a scrape.

#![expect(clippy::cast_precision_loss, reason = "all these counts stay far below 2^53")]

use std::sync::Arc;

use prometheus::{IntGaugeVec, Opts, Registry};

use colloquy_actors::handle::Dialogues;
use colloquy_dialogue::Services;
use colloquy_http::socket::player_socket::SocketHub;
use colloquy_telemetry as telemetry;
use colloquy_telemetry::MetricKind;
use colloquy_tenancy::limits::RateLimits;
use colloquy_transport::ConnectionRegistry;

/// Registers the meters of every module.
///
/// # Errors
/// If a name is already registered.
pub(super) fn register_metrics(
    registry: &Registry,
    services: &Services,
    sessions: &Dialogues,
    sockets: &SocketHub,
    connections: &ConnectionRegistry,
    limits: &Arc<RateLimits>,
) -> prometheus::Result<()> {
    services.ledger.maintenance.ledger_metrics().register(registry)?;
    services.models.metrics().register(registry)?;
    sessions.metrics().register(registry)?;
    telemetry::register_process_metrics(registry)?;
    let build = IntGaugeVec::new(
        Opts::new("colloquy_build_info", "1; what runs is in the label"),
        &["version"],
    )?;
    build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
    registry.register(Box::new(build))?;
    register_actors(registry, sessions)?;
    register_model_calls(registry, services)?;
    register_connections(registry, connections)?;
    register_closed_sockets(registry, sockets)?;
    register_rejections(registry, services, sessions, sockets, limits)
}

fn register_rejections(
    registry: &Registry,
    services: &Services,
    sessions: &Dialogues,
    sockets: &SocketHub,
    limits: &Arc<RateLimits>,
) -> prometheus::Result<()> {
    let writes = services.ledger.maintenance.ledger_metrics().writes_refused.clone();
    let sessions = sessions.clone();
    let sockets = sockets.clone();
    let limits = Arc::clone(limits);
    telemetry::register_labelled_metric(
        registry,
        MetricKind::Counter,
        "colloquy_share_refusals_total",
        "What was refused since its tenant has its share, or since all is in use",
        "resource",
        move || {
            let (dialogue_requests, dialogues) = sessions.refusal_counts();
            let refusals = [
                ("requests", limits.refused_count()),
                ("dialogue_requests", dialogue_requests),
                ("dialogues", dialogues),
                ("sockets", sockets.refused_count()),
                ("writes", writes.get()),
            ];
            refusals.map(|(resource, count)| (resource, count as f64))
        },
    )
}

fn register_connections(registry: &Registry, connections: &ConnectionRegistry) -> prometheus::Result<()> {
    let source = connections.clone();
    telemetry::register_metric(
        registry,
        MetricKind::Gauge,
        "colloquy_connections_open",
        "TCP connections, sockets included",
        move || source.open_count() as f64,
    )?;
    let source = connections.clone();
    telemetry::register_labelled_metric(
        registry,
        MetricKind::Counter,
        "colloquy_connections_ended_total",
        "TCP connections that found no place (refused), or were ended for taking too long or to make room (cut)",
        "how",
        move || {
            [
                ("refused", source.refused_count() as f64),
                ("cut", source.cut_count() as f64),
            ]
        },
    )
}

fn register_actors(registry: &Registry, sessions: &Dialogues) -> prometheus::Result<()> {
    let source = sessions.clone();
    telemetry::register_labelled_metric(
        registry,
        MetricKind::Gauge,
        "colloquy_actors",
        "Actors in memory on this node",
        "kind",
        move || source.actor_counts().map(|(kind, count)| (kind, count as f64)),
    )?;
    let source = sessions.clone();
    telemetry::register_metric(
        registry,
        MetricKind::Gauge,
        "colloquy_requests_in_flight",
        "Requests to dialogues that wait in a mailbox or are being answered",
        move || source.in_flight_requests().0 as f64,
    )?;
    let source = sessions.clone();
    telemetry::register_metric(
        registry,
        MetricKind::Gauge,
        "colloquy_requests_in_flight_max",
        "As many of them as there may be (actors.max_in_flight); more are refused",
        move || source.in_flight_requests().1 as f64,
    )
}

fn register_model_calls(registry: &Registry, services: &Services) -> prometheus::Result<()> {
    let models = services.models.clone();
    telemetry::register_labelled_metric(
        registry,
        MetricKind::Gauge,
        "colloquy_model_calls",
        "Model and embedder calls that run, or wait for a place of their tenant's",
        "state",
        move || {
            let (running, waiting) = models.running_and_waiting();
            [("running", running as f64), ("waiting", waiting as f64)]
        },
    )
}

fn register_closed_sockets(registry: &Registry, sockets: &SocketHub) -> prometheus::Result<()> {
    let hub = sockets.clone();
    telemetry::register_labelled_metric(
        registry,
        MetricKind::Counter,
        "colloquy_sockets_closed_total",
        "Sockets closed by this server, by close code (4430: slow consumers)",
        "code",
        move || {
            let counts = hub.closed_by_code().into_iter();
            counts.map(|(code, count)| (code.to_string(), count as f64))
        },
    )
}
