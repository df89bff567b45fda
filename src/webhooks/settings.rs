//! Settings of webhooks. Defaults are in `config/default.toml`.

use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de::Error as _};

/// Settings of webhooks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSettings {
    /// False: webhooks can be read, but not created, and this node delivers no messages.
    pub enabled: bool,
    /// Names and addresses that may be called in any network, also without TLS.
    pub allowed_hosts: Vec<String>,
    /// Networks that may be called although they are not public.
    pub allowed_networks: Vec<IpNet>,
    /// The most webhooks of a tenant; 20.
    pub max_per_tenant: u32,
    /// The time for an attempt, in ms; 15,000.
    pub timeout_ms: u64,
    /// The delays before the second attempt and the later ones, in ms. Each varies by a fifth.
    #[serde(deserialize_with = "numbers_or_texts")]
    pub retry_delays_ms: Vec<u64>,
    /// After so many hours of failures alone, a webhook is disabled; 120. 0: never.
    pub disable_after_h: u32,
    /// Messages that a node delivers at once; 64. A tenant has at most a quarter of these places.
    pub concurrency: u32,
    /// Messages of one webhook that a node delivers at once, each of another dialogue; 8.
    pub webhook_concurrency: u32,
    /// How often a node looks for due messages, in ms; 500.
    pub poll_ms: u64,
}

impl WebhookSettings {
    /// The time for an attempt.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// Messages of one tenant that a node delivers at once: a quarter of all, and at least one.
    #[must_use]
    pub const fn tenant_concurrency(&self) -> u32 {
        self.concurrency.div_ceil(4)
    }
}

/// Reads a list of numbers. In a list of the environment, each item is a text.
fn numbers_or_texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum NumberOrText {
        Number(u64),
        Text(String),
    }
    let items = Vec::<NumberOrText>::deserialize(deserializer)?;
    let numbers = items.into_iter().map(|item| match item {
        NumberOrText::Number(number) => Ok(number),
        NumberOrText::Text(text) => {
            let parsed = text.trim().parse();
            parsed.map_err(|_| D::Error::custom(format!("`{text}` is no whole number of milliseconds")))
        }
    });
    numbers.collect()
}

#[cfg(test)]
impl WebhookSettings {
    /// Settings for unit tests.
    pub(crate) fn for_tests() -> Self {
        Self {
            enabled: true,
            allowed_hosts: Vec::new(),
            allowed_networks: Vec::new(),
            max_per_tenant: 20,
            timeout_ms: 1_000,
            retry_delays_ms: vec![1_000, 60_000],
            disable_after_h: 120,
            concurrency: 4,
            webhook_concurrency: 2,
            poll_ms: 10,
        }
    }
}
