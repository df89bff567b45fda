//! Counts and latencies of requests, and counts of socket messages.

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry};

use super::backlog::BacklogMetrics;

#[derive(Debug)]
pub struct HttpMetrics {
    /// Requests by method, route pattern and status.
    pub requests: IntCounterVec,
    /// Seconds until the response's head, by route pattern.
    pub latency: HistogramVec,
    /// Socket messages by type.
    pub messages: IntCounterVec,
    /// Error events and problem responses by code.
    pub errors: IntCounterVec,
    /// Currently open sockets.
    pub sockets: IntGauge,
    /// Lengths of the ledger's queues.
    pub backlog: BacklogMetrics,
    /// Requests and sockets forwarded to the owner of their dialogue, by outcome.
    pub forwarded: IntCounterVec,
}

impl HttpMetrics {
    /// Creates the metrics and registers them.
    ///
    /// # Errors
    /// A metric is already registered.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Self {
            requests: IntCounterVec::new(
                Opts::new("colloquy_http_requests_total", "Requests answered"),
                &["method", "route", "status"],
            )?,
            latency: HistogramVec::new(
                HistogramOpts::new("colloquy_http_request_seconds", "Seconds until the response's head").buckets(vec![
                    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
                ]),
                &["route"],
            )?,
            messages: IntCounterVec::new(
                Opts::new("colloquy_socket_messages_total", "Socket messages received"),
                &["type"],
            )?,
            errors: IntCounterVec::new(Opts::new("colloquy_errors_total", "Errors told to clients"), &["code"])?,
            sockets: IntGauge::new("colloquy_sockets_open", "Sockets that are open now")?,
            backlog: BacklogMetrics::register(registry)?,
            forwarded: IntCounterVec::new(
                Opts::new(
                    "colloquy_forwarded_total",
                    "Requests and sockets that went on to the node that owns their dialogue",
                ),
                &["kind", "outcome"],
            )?,
        };
        registry.register(Box::new(metrics.requests.clone()))?;
        registry.register(Box::new(metrics.latency.clone()))?;
        registry.register(Box::new(metrics.messages.clone()))?;
        registry.register(Box::new(metrics.errors.clone()))?;
        registry.register(Box::new(metrics.sockets.clone()))?;
        registry.register(Box::new(metrics.forwarded.clone()))?;
        Ok(metrics)
    }
}
