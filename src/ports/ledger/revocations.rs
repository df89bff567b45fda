//! Revoked tokens.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::audit::Edit;
use crate::StoreResult;
use colloquy_core::{
    ids::{PlayerId, TenantId},
    scope::TenantScope,
};

/// Selects tokens of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Revoked {
    /// The token with this `jti`.
    Token(String),
    /// All tokens of this `sub` issued at or before this time.
    Subject(String, DateTime<Utc>),
    /// All tokens of this player issued at or before this time.
    Player(PlayerId, DateTime<Utc>),
}

/// A revocation of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    pub tenant: TenantId,
    pub revoked: Revoked,
    /// After this time, every such token has expired anyway.
    pub matters_until: DateTime<Utc>,
    /// The time of the last write, by the ledger's clock. Ignored in a revocation passed to the store.
    #[serde(rename = "at")]
    pub revoked_at: DateTime<Utc>,
}

/// Stores revocations. Of several revocations of a subject or a player, the latest times count.
#[async_trait]
pub trait RevocationStore: Send + Sync {
    /// Adds a revocation, with its audit row. The tenant is the tenant of the scope.
    async fn add_revocation(&self, scope: &TenantScope, revocation: &Revocation, edit: &Edit) -> StoreResult<()>;
    /// Returns the revocations of all tenants written at `since` or later.
    async fn list_revocations_since(&self, since: DateTime<Utc>) -> StoreResult<Vec<Revocation>>;
}
