//! The deliveries of webhooks.

use std::sync::Arc;

use prometheus::Registry;

use colloquy_core::ids::NodeId;
use colloquy_dialogue::Services;
use colloquy_webhooks::{Deliveries, HttpWebhookSender, WebhookMetrics, Webhooks};

/// Returns the deliveries of this node; `None` if webhooks are turned off.
///
/// # Errors
/// The HTTP client cannot be made, or a metric is already registered.
pub(super) fn build_deliveries(
    webhooks: &Webhooks,
    services: &Services,
    node: NodeId,
    registry: &Registry,
) -> anyhow::Result<Option<Deliveries>> {
    if !webhooks.settings.enabled {
        return Ok(None);
    }
    let sender = HttpWebhookSender::new(&webhooks.settings, webhooks.addresses.clone())?;
    Ok(Some(Deliveries {
        store: services.ledger.webhooks.clone(),
        sender: Arc::new(sender),
        clock: services.clock.clone(),
        ids: services.ids.clone(),
        node,
        settings: webhooks.settings.clone(),
        metrics: WebhookMetrics::register(registry)?,
    }))
}
