//! `/healthz`, `/readyz`, `/metrics`.

use std::time::Duration;

use actix_web::{HttpResponse, get, web};
use prometheus::{Encoder, TextEncoder};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    AppState,
    errors::{Code, Problem},
};
use colloquy_ports::vectors::IndexState;

#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// `ok`.
    status: &'static str,
    version: &'static str,
    /// The search index in `/readyz`: `ready`, `filling` or `away`. Until `ready`, facts are found by keywords only.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<&'static str>,
    /// The dialogue buffers in `/readyz`: `ready` or `away`. While `away`, recent turns are read from the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    buffers: Option<&'static str>,
}

const HEALTHY: Health = Health {
    status: "ok",
    version: env!("CARGO_PKG_VERSION"),
    index: None,
    buffers: None,
};

/// Timeout of the probe for the buffers, which turns can do without.
const BUFFERS_TIMEOUT: Duration = Duration::from_millis(500);

/// Succeeds while the process runs.
#[utoipa::path(tag = "operation", responses((status = 200, body = Health)))]
#[get("/healthz")]
pub async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(HEALTHY)
}

/// Succeeds if the server accepts new work.
///
/// The server must not be starting or shutting down, and the ledger must answer and be writable. A node of several whose
/// clock is off answers `clock_off`. If writes fail (a full
/// disk, a read-only file, a database in recovery), the code is `ledger_not_writable`.
#[utoipa::path(tag = "operation", responses((status = 200, body = Health)))]
#[get("/readyz")]
pub async fn readyz(state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    if !state.readiness.get() {
        return Err(Problem::new(Code::Draining, "the server is starting or shutting down"));
    }
    if state.sessions.is_clock_off() {
        let detail = "the clock of this node is not that of the database, so other nodes refuse its requests";
        return Err(Problem::new(Code::ClockOff, detail));
    }
    let services = &state.services;
    let buffers = tokio::time::timeout(BUFFERS_TIMEOUT, services.buffers.ping());
    let (ledger, buffers) = tokio::join!(state.ledger_probe.check_ledger(&services.ledger), buffers);
    ledger?;
    // A turn can do without the index and the buffers, so a node without them accepts turns.
    let index = match services.index.index_state() {
        IndexState::Ready => "ready",
        IndexState::Filling => "filling",
        IndexState::Away => "away",
    };
    Ok(HttpResponse::Ok().json(Health {
        index: Some(index),
        buffers: Some(if matches!(buffers, Ok(Ok(()))) { "ready" } else { "away" }),
        ..HEALTHY
    }))
}

/// Returns metrics in the text format of Prometheus.
#[utoipa::path(tag = "operation", responses((status = 200, body = String, content_type = "text/plain"), (status = 404, description = "They are at an address of their own (`telemetry.metrics_listen`)")))]
#[get("/metrics")]
pub async fn metrics(state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    if !state.metrics_here {
        return Err(Problem::new(Code::NotFound, "there is nothing at /metrics"));
    }
    state
        .metrics
        .sockets
        .set(i64::try_from(state.sockets.open_count()).unwrap_or(i64::MAX));
    let services = &state.services;
    let backlog = &state.metrics.backlog;
    backlog
        .refresh_gauges(services.ledger.maintenance.as_ref(), services.clock.as_ref())
        .await;
    let mut text = Vec::new();
    TextEncoder::new()
        .encode(&state.registry.gather(), &mut text)
        .map_err(|error| Problem::internal_error(&error))?;
    Ok(HttpResponse::Ok().content_type(prometheus::TEXT_FORMAT).body(text))
}
