//! Tokens that are believed no longer.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::audit::Edit;
use crate::{
    ids::{PlayerId, TenantId},
    ports::StoreResult,
    tenancy::TenantScope,
};

/// Which tokens of a tenant are meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Revoked {
    /// The one with this `jti`.
    Token(String),
    /// All of this `sub` that were issued at this moment or before.
    Subject(String, DateTime<Utc>),
    /// All of this player that were issued at this moment or before.
    Player(PlayerId, DateTime<Utc>),
}

/// Tokens that somebody revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    pub tenant: TenantId,
    pub revoked: Revoked,
    /// From then on no such token is valid anyway.
    pub matters_until: DateTime<Utc>,
    /// When it was last written, by the ledger's clock. Of one that is passed to be stored it is ignored.
    pub at: DateTime<Utc>,
}

/// Revocations. One of a subject or a player stands for all before it: the latest moments count.
#[async_trait]
pub trait RevocationStore: Send + Sync {
    /// Adds one, with its audit row. The tenant is the scope's.
    async fn add_revocation(&self, scope: &TenantScope, revocation: &Revocation, edit: &Edit) -> StoreResult<()>;
    /// Those of all tenants that were written at `at` or later.
    async fn list_revocations_since(&self, at: DateTime<Utc>) -> StoreResult<Vec<Revocation>>;
}
