//! Metrics of webhooks.

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use colloquy_ports::ledger::webhooks::DisabledReason;

/// Metrics of the deliveries of this node.
#[derive(Debug, Clone)]
pub struct WebhookMetrics {
    /// By outcome: `delivered` or `failed`.
    pub(crate) attempts: IntCounterVec,
    pub(crate) given_up: IntCounter,
    /// By reason.
    pub(crate) disabled: IntCounterVec,
    pub(crate) duration: Histogram,
    /// Of all tenants, as last read.
    pub(crate) backlog: IntGauge,
    pub(crate) backlog_age: IntGauge,
}

impl WebhookMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// A name is taken.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Self {
            attempts: IntCounterVec::new(
                Opts::new(
                    "colloquy_webhook_attempts_total",
                    "Attempts to deliver messages to webhooks",
                ),
                &["outcome"],
            )?,
            given_up: IntCounter::new(
                "colloquy_webhook_messages_given_up_total",
                "Messages to webhooks whose last attempt failed",
            )?,
            disabled: IntCounterVec::new(
                Opts::new("colloquy_webhooks_disabled_total", "Webhooks that this node disabled"),
                &["reason"],
            )?,
            duration: Histogram::with_opts(HistogramOpts::new(
                "colloquy_webhook_attempt_seconds",
                "Duration of attempts to deliver messages to webhooks",
            ))?,
            backlog: IntGauge::new(
                "colloquy_webhook_messages_pending",
                "Messages of all tenants that wait for an enabled webhook",
            )?,
            backlog_age: IntGauge::new(
                "colloquy_webhook_oldest_pending_seconds",
                "Age of the oldest of these messages",
            )?,
        };
        for outcome in ["delivered", "failed"] {
            metrics.attempts.with_label_values(&[outcome]);
        }
        for reason in [DisabledReason::Gone, DisabledReason::Failing] {
            metrics.disabled.with_label_values(&[reason.as_str()]);
        }
        registry.register(Box::new(metrics.attempts.clone()))?;
        registry.register(Box::new(metrics.given_up.clone()))?;
        registry.register(Box::new(metrics.disabled.clone()))?;
        registry.register(Box::new(metrics.duration.clone()))?;
        registry.register(Box::new(metrics.backlog.clone()))?;
        registry.register(Box::new(metrics.backlog_age.clone()))?;
        Ok(metrics)
    }
}
