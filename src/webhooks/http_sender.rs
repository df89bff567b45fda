//! The HTTP client of webhooks: no redirects, no proxies, permitted addresses alone, and little of the answer.

use std::{sync::Once, time::Duration};

use async_trait::async_trait;
use reqwest::{
    Client, Response,
    header::{CONTENT_TYPE, RETRY_AFTER},
    redirect::Policy,
};
use std::sync::Arc;

use super::{
    addresses::{AddressPolicy, PermittedResolver},
    settings::WebhookSettings,
};
use colloquy_ports::webhook_sender::{SendError, WebhookAnswer, WebhookRequest, WebhookSender};

/// The part of an answer that is read, in bytes, so that the connection can be used again. The text is dropped.
const READ_BYTES: usize = 16 * 1024;
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends messages over HTTP.
#[derive(Debug, Clone)]
pub struct HttpWebhookSender {
    client: Client,
    addresses: AddressPolicy,
}

impl HttpWebhookSender {
    /// Returns a client with connections of its own.
    ///
    /// # Errors
    /// The system's certificates cannot be read.
    pub fn new(settings: &WebhookSettings, addresses: AddressPolicy) -> Result<Self, SendError> {
        install_crypto();
        let client = Client::builder()
            .timeout(settings.timeout())
            .connect_timeout(settings.timeout())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .redirect(Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(PermittedResolver(addresses.clone())))
            .user_agent(concat!("colloquy/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| SendError(error.to_string()))?;
        Ok(Self { client, addresses })
    }
}

/// Installs the TLS implementation of the process, if none is installed yet. reqwest has none of its own.
fn install_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that another implementation is installed, which also serves.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

#[async_trait]
impl WebhookSender for HttpWebhookSender {
    async fn send_webhook(&self, request: &WebhookRequest) -> Result<WebhookAnswer, SendError> {
        // An address in the URL is no name, and passes no resolver. The settings may also have changed since.
        let url = self.addresses.check_url(&request.url);
        let url = url.map_err(|refused| SendError(format!("the URL {refused}")))?;
        let mut sending = self.client.post(url).header(CONTENT_TYPE, "application/json");
        for (name, value) in &request.headers {
            sending = sending.header(*name, value);
        }
        let response = sending.body(request.body.clone()).send().await;
        let response = response.map_err(|error| SendError(describe_failure(&error)))?;
        let answer = WebhookAnswer {
            status: response.status().as_u16(),
            retry_after: (response.headers().get(RETRY_AFTER))
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned),
        };
        discard_body(response).await;
        Ok(answer)
    }
}

/// Reads and drops a short body. A longer body closes the connection.
async fn discard_body(mut response: Response) {
    let mut byte_count = 0;
    while byte_count <= READ_BYTES
        && let Ok(Some(piece)) = response.chunk().await
    {
        byte_count += piece.len();
    }
}

/// Says why there was no answer, without the URL.
fn describe_failure(error: &reqwest::Error) -> String {
    let failure = if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "no connection"
    } else {
        "no answer"
    };
    let mut cause = std::error::Error::source(error);
    let mut root_cause = None;
    while let Some(inner) = cause {
        root_cause = Some(inner.to_string());
        cause = inner.source();
    }
    root_cause.map_or_else(|| failure.to_owned(), |root_cause| format!("{failure}: {root_cause}"))
}
