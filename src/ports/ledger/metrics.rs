//! A ledger's own measurements, for `/metrics`. The engine counts, and `app` publishes.

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntGauge, Registry};

use super::new_job::JobKind;

/// Seconds, from 0.1 ms to the longest permitted time of a statement.
const DURATION_BUCKETS: [f64; 14] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
];

/// Waits and transactions of one ledger. Cheap to clone; all clones share the same counts.
#[derive(Debug, Clone)]
pub struct LedgerMetrics {
    waits: HistogramVec,
    /// Seconds that a read waited for its connection.
    pub read_waits: Histogram,
    /// Seconds that a write waited for its connection, or for its turn.
    pub write_waits: Histogram,
    /// Seconds that background work waited for a background connection, before the common wait. Empty on engines
    /// without background connections.
    pub background_waits: Histogram,
    /// Seconds of a transaction, from its BEGIN to the end of its COMMIT.
    pub transactions: Histogram,
    /// Size of each committed group of writes; 1 on engines without groups.
    pub grouped: Histogram,
    /// Running and waiting writes.
    pub writes: IntGauge,
    /// Writes refused because of a full queue. Published with the other refusals.
    pub writes_refused: IntCounter,
    /// Connections in use.
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
    /// Registers the metrics.
    ///
    /// # Errors
    /// Fails if the registry already has these metrics.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.waits.clone()))?;
        registry.register(Box::new(self.transactions.clone()))?;
        registry.register(Box::new(self.grouped.clone()))?;
        registry.register(Box::new(self.writes.clone()))?;
        registry.register(Box::new(self.busy.clone()))
    }
}

/// Raises a gauge by 1 for its own lifetime.
#[derive(Debug)]
pub struct GaugeGuard(IntGauge);

impl GaugeGuard {
    /// Raises `gauge` by 1 until the guard is dropped.
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

/// The length of the ledger's queues, for all tenants and nodes together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Backlog {
    /// Changed facts not yet in the index.
    pub outbox: QueueBacklog,
    /// Pending jobs per kind, with jobs that wait for a retry and running jobs.
    pub pending: Vec<(JobKind, QueueBacklog)>,
    /// Dead jobs per kind.
    pub dead: Vec<(JobKind, u64)>,
}

/// The number of entries, and the wait of the oldest entry.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct QueueBacklog {
    pub count: u64,
    /// Seconds; 0 for an empty queue.
    pub oldest_s: f64,
}
