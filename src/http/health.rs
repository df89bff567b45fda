//! `/healthz`, `/readyz`, `/metrics`.

use std::time::Duration;

use actix_web::{HttpResponse, get, web};
use moka::future::Cache;
use prometheus::{Encoder, TextEncoder};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    AppState,
    errors::{Code, Problem},
    to_the_end,
};
use crate::ports::{StoreError, ledger::Ledger, vectors::IndexState};

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

/// Whether the ledger can be written to, as it was found within the last second.
#[derive(Debug, Clone)]
pub struct WriteProbe(Cache<(), Result<(), String>>);

impl Default for WriteProbe {
    fn default() -> Self {
        Self(Cache::builder().time_to_live(Self::KEPT_FOR).build())
    }
}

impl WriteProbe {
    /// Nobody needs a token to ask: however many do, this is the time between two writes.
    const KEPT_FOR: Duration = Duration::from_secs(1);
    /// How long a write may take; less than `colloquy health` waits.
    const LIMIT: Duration = Duration::from_millis(1_500);

    /// Whoever asks first writes, whether or not they wait for it; the others share what comes of it.
    async fn ask(&self, ledger: &Ledger) -> Result<(), Problem> {
        let (kept, maintenance) = (self.0.clone(), ledger.maintenance.clone());
        let asking = async move {
            let write = async {
                match tokio::time::timeout(Self::LIMIT, maintenance.try_write()).await {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(StoreError::NotWritable(why))) => Err(why),
                    Ok(Err(error)) => {
                        tracing::warn!(%error, "the ledger cannot be written to");
                        Err("the write was refused; the server's log says why".to_owned())
                    }
                    Err(_) => Err(format!("a write took longer than {:?}", Self::LIMIT)),
                }
            };
            Ok(kept.get_with((), write).await)
        };
        let written: Result<(), String> = to_the_end(asking).await?;
        written.map_err(|why| {
            Problem::new(
                Code::LedgerNotWritable,
                format!("nothing can be written to the ledger: {why}"),
            )
        })
    }
}

/// The server takes new work: it is not shutting down, and its ledger answers and can be written to. Where nothing can
/// be written (a full disk, a read-only file, a database in recovery) the code is `ledger_not_writable`.
#[utoipa::path(tag = "operation", responses((status = 200, body = Health)))]
#[get("/readyz")]
pub async fn readyz(state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    if !state.readiness.get() {
        return Err(Problem::new(Code::Draining, "the server is starting or shutting down"));
    }
    let services = &state.services;
    let buffers = tokio::time::timeout(BUFFERS_WAIT, services.buffers.ping());
    let writing = state.writes.ask(&services.ledger);
    let (ledger, written, buffers) = tokio::join!(services.ledger.maintenance.ping(), writing, buffers);
    ledger?;
    written?;
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
#[utoipa::path(tag = "operation", responses((status = 200, body = String, content_type = "text/plain"), (status = 404, description = "They are at an address of their own (`telemetry.metrics_listen`)")))]
#[get("/metrics")]
pub async fn metrics(state: web::Data<AppState>) -> Result<HttpResponse, Problem> {
    if !state.metrics_here {
        return Err(Problem::new(Code::NotFound, "there is nothing at /metrics"));
    }
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
