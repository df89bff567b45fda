//! Webhooks: messages about events of a tenant to the addresses that the tenant named.
//!
//! Owns keys and signatures of the Standard Webhooks specification (`keys`), the permitted addresses (`addresses`), the
//! times of retries (`retries`), the HTTP client (`http_sender`), and the loop that delivers messages (`delivery`). The
//! ledger writes the messages, in the transactions of what they tell.

pub mod addresses;
mod body;
pub mod delivery;
pub mod http_sender;
pub mod keys;
mod metrics;
mod retries;
mod settings;

use std::sync::Arc;

pub use self::{
    addresses::AddressPolicy, delivery::Deliveries, http_sender::HttpWebhookSender, metrics::WebhookMetrics,
    settings::WebhookSettings,
};

/// The settings of webhooks, and the addresses that they permit.
#[derive(Debug, Clone)]
pub struct Webhooks {
    pub settings: Arc<WebhookSettings>,
    pub addresses: AddressPolicy,
}

impl Webhooks {
    #[must_use]
    pub fn new(settings: WebhookSettings) -> Self {
        Self {
            addresses: AddressPolicy::new(&settings),
            settings: Arc::new(settings),
        }
    }
}
