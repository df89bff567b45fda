//! `Idempotency-Key`: a repeated POST gets the first answer.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::StoreResult;
use colloquy_core::scope::TenantScope;

/// The state of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyState {
    /// New, and now reserved for this request.
    Reserved,
    /// The same request is still in progress.
    InFlight,
    /// The key was used for a different request.
    Mismatch,
    /// The first request's answer.
    Answered { status: u16, body: String },
}

/// Stores answers for 24 hours.
#[async_trait]
pub trait IdempotencyStore: Send + Sync {
    /// Reserves a key or returns its state. `key` includes the route and the caller; `fingerprint` is a hash of the
    /// body. A reservation without an answer is free again after 60 s, since its process died.
    async fn reserve_key(
        &self,
        scope: &TenantScope,
        key: &str,
        fingerprint: &[u8; 32],
        now: DateTime<Utc>,
    ) -> StoreResult<KeyState>;
    async fn record_answer(&self, scope: &TenantScope, key: &str, status: u16, body: &str) -> StoreResult<()>;
    /// Releases the reservation of a failed request.
    async fn release_key(&self, scope: &TenantScope, key: &str) -> StoreResult<()>;
    /// Deletes answers older than `before`, of every tenant.
    async fn forget_answers_before(&self, before: DateTime<Utc>) -> StoreResult<()>;
}
