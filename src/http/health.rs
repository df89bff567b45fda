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
use crate::ports::vectors::IndexState;

#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// `ok`.
    status: &'static str,
    version: &'static str,
    /// `/readyz`: `ready`; `filling` or `away`, and facts are found by their words alone until it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<&'static str>,
    /// `/readyz`: `ready`; `away`, and what was said last is read from the ledger until they are back.
    #[serde(skip_serializing_if = "Option::is_none")]
    buffers: Option<&'static str>,
}

const OK: Health = Health {
    status: "ok",
    version: env!("CARGO_PKG_VERSION"),
    index: None,
    buffers: None,
};

/// How long a probe waits for what turns can do without.
const BUFFERS_WAIT: Duration = Duration::from_millis(500);

/// The process lives.
#[utoipa::path(tag = "operation", responses((status = 200, body = Health)))]
#[get("/healthz")]
pub async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(OK)
}

/// The server takes new work: it is not shutting down and its ledger answers.
#[utoipa::path(tag = "operation", responses((status = 200, body = Health)))]
#[get("/readyz")]
pub async fn readyz(state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    if !state.readiness.get() {
        return Err(Problem::new(Code::Draining, "the server is starting or shutting down"));
    }
    let services = &state.services;
    let buffers = tokio::time::timeout(BUFFERS_WAIT, services.buffers.ping());
    let (ledger, buffers) = tokio::join!(services.ledger.maintenance.ping(), buffers);
    ledger?;
    // A turn can do without the index and the buffers, so a node where they are away takes turns.
    let index = match services.index.state() {
        IndexState::Ready => "ready",
        IndexState::Filling => "filling",
        IndexState::Away => "away",
    };
    Ok(HttpResponse::Ok().json(Health {
        index: Some(index),
        buffers: Some(if matches!(buffers, Ok(Ok(()))) { "ready" } else { "away" }),
        ..OK
    }))
}

/// Metrics in the text format of Prometheus.
#[utoipa::path(tag = "operation", responses((status = 200, body = String, content_type = "text/plain")))]
#[get("/metrics")]
pub async fn metrics(state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    state
        .metrics
        .sockets
        .set(i64::try_from(state.sockets.open()).unwrap_or(i64::MAX));
    let services = &state.services;
    let backlog = &state.metrics.backlog;
    backlog
        .read(services.ledger.maintenance.as_ref(), services.clock.as_ref())
        .await;
    let mut text = Vec::new();
    TextEncoder::new()
        .encode(&state.registry.gather(), &mut text)
        .map_err(|error| Problem::internal(&error))?;
    Ok(HttpResponse::Ok().content_type(prometheus::TEXT_FORMAT).body(text))
}
