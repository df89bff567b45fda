//! What a ledger measures of itself, for `/metrics`. The engine counts; `app` shows it.

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntGauge, Registry};

use super::jobs::JobKind;

/// Seconds from a tenth of a millisecond to the longest that a statement may take.
const DURATION_BUCKETS: [f64; 14] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
];

/// Waits and transactions of one ledger. Cheap to clone: clones count together.
#[derive(Debug, Clone)]
pub struct LedgerMetrics {
    waits: HistogramVec,
    /// Seconds a read waited for its connection.
    pub read_waits: Histogram,
    /// Seconds a write waited for its connection, or for its turn.
    pub write_waits: Histogram,
    /// Seconds that what nobody waits for waited for one of its connections, before it waited as the others do. Empty on
    /// engines that have none of its own.
    pub background_waits: Histogram,
    /// Seconds a transaction took, from its BEGIN to the end of its COMMIT.
    pub transactions: Histogram,
    /// Writes that were committed together, once they are; 1 on engines that do not group.
    pub grouped: Histogram,
    /// Writes that run or wait.
    pub writes: IntGauge,
    /// Writes that were refused since too many wait already. Shown with what else is refused.
    pub writes_refused: IntCounter,
    /// Connections on loan.
    pub busy: IntGauge,
}

impl Default for LedgerMetrics {
    fn default() -> Self {
        Self::new().expect("the names are constants, and a test makes them")
    }
}

impl LedgerMetrics {
    fn new() -> prometheus::Result<Self> {
        let waits = HistogramVec::new(
            HistogramOpts::new(
                "colloquy_ledger_wait_seconds",
                "Seconds a read, a write or what nobody waits for (background) waited for a connection of the ledger",
            )
            .buckets(DURATION_BUCKETS.to_vec()),
            &["for"],
        )?;
        Ok(Self {
            read_waits: waits.with_label_values(&["read"]),
            write_waits: waits.with_label_values(&["write"]),
            background_waits: waits.with_label_values(&["background"]),
            waits,
            transactions: Histogram::with_opts(
                HistogramOpts::new("colloquy_ledger_transaction_seconds", "Seconds per write transaction")
                    .buckets(DURATION_BUCKETS.to_vec()),
            )?,
            grouped: Histogram::with_opts(
                HistogramOpts::new(
                    "colloquy_ledger_group_writes",
                    "Writes committed together in one transaction",
                )
                .buckets(vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]),
            )?,
            writes: IntGauge::new("colloquy_ledger_writes", "Ledger writes that run or wait on this node")?,
            writes_refused: IntCounter::new("refused", "Writes that were refused")?,
            busy: IntGauge::new("colloquy_ledger_connections_busy", "Connections of the ledger in use")?,
        })
    }
    /// Shows them.
    ///
    /// # Errors
    /// If the registry has them already.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.waits.clone()))?;
        registry.register(Box::new(self.transactions.clone()))?;
        registry.register(Box::new(self.grouped.clone()))?;
        registry.register(Box::new(self.writes.clone()))?;
        registry.register(Box::new(self.busy.clone()))
    }
}

/// Counts one more in a gauge for as long as it lives.
#[derive(Debug)]
pub struct GaugeGuard(IntGauge);

impl GaugeGuard {
    /// One more of `gauge`.
    #[must_use]
    pub fn increment_gauge(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// What waits in the ledger's queues, of all tenants and nodes together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Backlog {
    /// Changed facts that the index has not been told of.
    pub outbox: QueueBacklog,
    /// Per kind: jobs that are pending, those that wait to be tried again and those that run included.
    pub pending: Vec<(JobKind, QueueBacklog)>,
    /// Per kind: jobs that were given up.
    pub dead: Vec<(JobKind, u64)>,
}

/// How many wait, and for how long the oldest has.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct QueueBacklog {
    pub count: u64,
    /// Seconds; 0 if nothing waits.
    pub oldest_s: f64,
}
