//! The tenant scope every store call takes, and the authenticated caller it comes from.

use serde::{Deserialize, Serialize};

use crate::ids::{PlayerId, TenantId, WorldId};

/// Proof that the caller may touch one tenant's rows. Every store method takes one; it is made by
/// authentication, by a job that belongs to the tenant, or by the operator's own commands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TenantScope {
    tenant: TenantId,
}

impl TenantScope {
    /// A scope on `tenant`. The caller vouches for it.
    #[must_use]
    pub fn new(tenant: TenantId) -> Self {
        Self { tenant }
    }
    /// The tenant.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }
}

/// What a token allows (docs/protocol.md#roles).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Tenants, never their content.
    Operator,
    /// Everything of its tenant.
    Admin,
    /// Everything inside the tenant's worlds but settings, erasure, audit and export.
    Backend,
    /// Reads what a backend may read, and changes nothing.
    Viewer,
    /// Speaks in, interrupts and reads its own sessions. Nothing else.
    Player,
}

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// `sub` of the token; goes to the audit log.
    pub subject: String,
    /// The tenant the token is for.
    pub tenant: TenantId,
    /// What it allows.
    pub role: Role,
    /// `pid`: set for, and only for, players.
    pub player: Option<PlayerId>,
    /// `wid`: the one world that the token is bound to, if any; of a backend, a viewer or a player.
    pub world: Option<WorldId>,
    /// When the token expires; a long socket must refresh before this.
    pub expires_at: chrono::DateTime<chrono::Utc>,
    /// By what the token can be revoked.
    #[serde(default)]
    pub issued: TokenIdentity,
}

/// Which token it is, as far as it says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenIdentity {
    /// `jti`.
    pub id: Option<String>,
    /// `iat`. A token without it counts as older than any other.
    pub at: Option<chrono::DateTime<chrono::Utc>>,
}

impl Principal {
    /// The scope of this caller's tenant.
    #[must_use]
    pub fn scope(&self) -> TenantScope {
        TenantScope::new(self.tenant.clone())
    }
    /// Whether the token is good for what is in `world`.
    #[must_use]
    pub fn can_access_world(&self, world: &WorldId) -> bool {
        self.world.as_ref().is_none_or(|own| own == world)
    }
}
