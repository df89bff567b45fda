//! The check that the ledger answers and is writable.

use std::time::Duration;

use moka::future::Cache;

use crate::{
    errors::{Code, Problem},
    uncancelled::run_uncancelled,
};
use colloquy_ports::{
    StoreError,
    ledger::{Ledger, Maintenance},
};

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
    pub(super) async fn check_ledger(&self, ledger: &Ledger) -> Result<(), Problem> {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use colloquy_core::scope::TenantScope;
    use colloquy_ports::{
        StoreError, StoreResult,
        ledger::{
            Maintenance, PruneBefore,
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
