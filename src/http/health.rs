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
    run_uncancelled,
};
use colloquy_ports::{
    StoreError,
    ledger::{Ledger, Maintenance},
    vectors::IndexState,
};

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

/// Checks that the ledger answers and is writable; the result is cached for one second.
#[derive(Debug, Clone)]
pub struct LedgerProbe(Cache<(), Result<(), Problem>>);

impl Default for LedgerProbe {
    fn default() -> Self {
        Self(Cache::builder().time_to_live(Self::PROBE_TTL).build())
    }
}

impl LedgerProbe {
    /// The time between two checks. The probe needs no token, so the number of callers must not matter.
    const PROBE_TTL: Duration = Duration::from_secs(1);
    /// Timeout of a test write; shorter than the timeout of `colloquy health`.
    const WRITE_TIMEOUT: Duration = Duration::from_millis(1_500);
    /// After a refused test write: how long to look for other writes, and how often.
    const OTHER_WRITES_TIMEOUT: Duration = Duration::from_millis(250);
    const OTHER_WRITES_POLL: Duration = Duration::from_millis(10);

    /// The first caller starts the check, which finishes even if the caller leaves. The other callers share the result.
    async fn check_ledger(&self, ledger: &Ledger) -> Result<(), Problem> {
        let cached_check = self.0.clone();
        let maintenance = ledger.maintenance.clone();
        let check = async move {
            let probe = async {
                let (ping, write) = tokio::join!(maintenance.ping(), Self::probe_write(maintenance.as_ref()));
                ping?;
                write.map_err(|cause| {
                    Problem::new(
                        Code::LedgerNotWritable,
                        format!("nothing can be written to the ledger: {cause}"),
                    )
                })
            };
            Ok(cached_check.get_with((), probe).await)
        };
        run_uncancelled(check).await?
    }

    /// Makes a test write, or returns why the write failed. A busy ledger may be slow or refuse a write. While other
    /// writes are committed, the ledger counts as writable.
    async fn probe_write(maintenance: &dyn Maintenance) -> Result<(), String> {
        let write_count = || maintenance.ledger_metrics().grouped.get_sample_count();
        let count_before = write_count();
        let cause = match tokio::time::timeout(Self::WRITE_TIMEOUT, maintenance.try_write()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(StoreError::NotWritable(cause))) => return Err(cause),
            Ok(Err(error)) => {
                tracing::warn!(%error, "a test write to the ledger failed");
                "the write was refused; the server's log says why".to_owned()
            }
            Err(_) => format!("a write took longer than {:?}", Self::WRITE_TIMEOUT),
        };
        let other_writes = async {
            while write_count() == count_before {
                tokio::time::sleep(Self::OTHER_WRITES_POLL).await;
            }
        };
        tokio::time::timeout(Self::OTHER_WRITES_TIMEOUT, other_writes)
            .await
            .map_err(|_| cause)
    }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use colloquy_core::scope::TenantScope;
    use colloquy_ports::{
        StoreResult,
        ledger::{
            PruneBefore,
            metrics::{Backlog, LedgerMetrics},
        },
    };

    /// Refuses the probe's write, or does not answer.
    struct Busy {
        meters: LedgerMetrics,
        hangs: bool,
    }

    #[async_trait]
    impl Maintenance for Busy {
        async fn ping(&self) -> StoreResult<()> {
            Ok(())
        }
        async fn try_write(&self) -> StoreResult<()> {
            if self.hangs {
                std::future::pending::<()>().await;
            }
            Err(StoreError::Unavailable("too many writes are waiting".to_owned()))
        }
        async fn load_backlog(&self) -> StoreResult<Backlog> {
            Ok(Backlog::default())
        }
        fn ledger_metrics(&self) -> &LedgerMetrics {
            &self.meters
        }
        async fn prune_expired(&self, _: &TenantScope, _: &PruneBefore, _: u32) -> StoreResult<u64> {
            Ok(0)
        }
        async fn count_grown_tables(&self) -> StoreResult<usize> {
            Ok(0)
        }
        async fn close_connections(&self) {}
    }

    #[tokio::test]
    async fn ledger_probe_passes_a_busy_ledger_and_fails_a_stalled_one() {
        let cases = [(false, false), (false, true), (true, false), (true, true)];
        let probes = cases.map(|(hangs, writes)| async move {
            let meters = LedgerMetrics::default();
            let ledger = Busy {
                meters: meters.clone(),
                hangs,
            };
            let other_writes = async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                if writes {
                    meters.grouped.observe(1.0);
                }
            };
            let (result, ()) = tokio::join!(LedgerProbe::probe_write(&ledger), other_writes);
            assert_eq!(result.is_ok(), writes, "hangs: {hangs}");
        });
        futures_util::future::join_all(probes).await;
    }
}
