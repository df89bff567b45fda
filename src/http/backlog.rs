//! The lengths of the ledger's queues, read for each scrape of `/metrics`. A value that cannot be read is left out: an
//! old value would look current.

use std::time::{Duration, Instant};

use prometheus::{GaugeVec, Opts, Registry};
use tokio::{sync::Mutex, time::timeout};

use colloquy_ports::{
    clock::Clock,
    ledger::{Maintenance, jobs::JobKind, metrics::Backlog},
};

/// Scrapes within this time share one read.
const BACKLOG_TTL: Duration = Duration::from_secs(5);
/// Longest time that a scrape waits for the read.
const BACKLOG_READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Gauges of the queues.
#[derive(Debug)]
pub struct BacklogMetrics {
    outbox: GaugeVec,
    outbox_age: GaugeVec,
    pending: GaugeVec,
    pending_age: GaugeVec,
    dead: GaugeVec,
    read_at: Mutex<Option<Instant>>,
}

impl BacklogMetrics {
    /// Creates the gauges and registers them.
    ///
    /// # Errors
    /// A gauge is already registered.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str, labels: &[&str]| -> prometheus::Result<GaugeVec> {
            let gauge = GaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        Ok(Self {
            outbox: gauge("colloquy_outbox_rows", "Changed facts that wait for the index", &[])?,
            outbox_age: gauge(
                "colloquy_outbox_oldest_seconds",
                "How long the oldest of them has waited",
                &[],
            )?,
            pending: gauge(
                "colloquy_jobs_pending",
                "After-turn jobs of all nodes that are not done",
                &["kind"],
            )?,
            pending_age: gauge(
                "colloquy_jobs_oldest_seconds",
                "How long ago the turn of the oldest of them was committed",
                &["kind"],
            )?,
            dead: gauge(
                "colloquy_jobs_dead",
                "Jobs that were given up; a person should look",
                &["kind"],
            )?,
            read_at: Mutex::default(),
        })
    }

    /// Reads the queues, unless another scrape has just read them.
    pub async fn refresh_gauges(&self, ledger: &dyn Maintenance, clock: &dyn Clock) {
        let mut read_at = self.read_at.lock().await;
        let now = clock.monotonic_now();
        if read_at.is_some_and(|last_read_at| now.saturating_duration_since(last_read_at) < BACKLOG_TTL) {
            return;
        }
        match timeout(BACKLOG_READ_TIMEOUT, ledger.load_backlog()).await {
            Ok(Ok(backlog)) => {
                *read_at = Some(now);
                self.set_gauges(&backlog);
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "the queue lengths could not be read for the metrics");
                self.reset_gauges();
            }
            Err(_elapsed) => self.reset_gauges(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of rows stay below 2^53")]
    fn set_gauges(&self, backlog: &Backlog) {
        let no_labels: [&str; 0] = [];
        self.outbox
            .with_label_values(&no_labels)
            .set(backlog.outbox.count as f64);
        self.outbox_age
            .with_label_values(&no_labels)
            .set(backlog.outbox.oldest_s);
        for kind in JobKind::ALL {
            let queue = backlog.pending.iter().find(|(queue_kind, _)| *queue_kind == kind);
            let queue = queue.map(|(_, queue)| *queue).unwrap_or_default();
            let dead = backlog.dead.iter().find(|(queue_kind, _)| *queue_kind == kind);
            let kind = [kind.as_str()];
            self.pending.with_label_values(&kind).set(queue.count as f64);
            self.pending_age.with_label_values(&kind).set(queue.oldest_s);
            self.dead
                .with_label_values(&kind)
                .set(dead.map_or(0, |(_, count)| *count) as f64);
        }
    }

    fn reset_gauges(&self) {
        for gauge in [
            &self.outbox,
            &self.outbox_age,
            &self.pending,
            &self.pending_age,
            &self.dead,
        ] {
            gauge.reset();
        }
    }
}
