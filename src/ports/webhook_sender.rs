//! The sender of webhook messages.

use async_trait::async_trait;

/// A signed message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRequest {
    pub url: String,
    /// The headers of the message and of its signatures.
    pub headers: Vec<(&'static str, String)>,
    /// JSON.
    pub body: String,
}

/// The answer of a receiver, without its body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebhookAnswer {
    pub status: u16,
    /// The header `Retry-After`, as sent.
    pub retry_after: Option<String>,
}

/// The reason why there was no answer. The text is for the administrator of the tenant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SendError(pub String);

/// Sends messages to addresses that the server may connect to.
#[async_trait]
pub trait WebhookSender: Send + Sync {
    /// Sends a request once, without following redirects.
    ///
    /// # Errors
    /// The address is not permitted, or there was no answer in time.
    async fn send_webhook(&self, request: &WebhookRequest) -> Result<WebhookAnswer, SendError>;
}
