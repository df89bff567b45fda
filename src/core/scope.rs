//! The tenant scope that every store call takes, and the authenticated caller of a scope.

use serde::{Deserialize, Serialize};

use crate::ids::{PlayerId, TenantId, WorldId};

/// Proof that the caller may access one tenant's rows. Every store method takes a scope. Authentication, a job of the
/// tenant, or the operator's own commands create scopes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TenantScope {
    tenant: TenantId,
}

impl TenantScope {
    /// Creates a scope for `tenant`. The caller vouches for the scope.
    #[must_use]
    pub fn new(tenant: TenantId) -> Self {
        Self { tenant }
    }
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }
}

/// The role of a token (docs/protocol.md#roles).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Manages tenants; no access to their content.
    Operator,
    /// Full access to its tenant.
    Admin,
    /// Full access to the tenant's worlds, except settings, erasure, audit and export.
    Backend,
    /// Reads all that a backend may read, and changes nothing.
    Viewer,
    /// Speaks in, interrupts and reads its own sessions; no other access.
    Player,
}

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// `sub` of the token; goes to the audit log.
    pub subject: String,
    /// The token's tenant.
    pub tenant: TenantId,
    /// The token's role.
    pub role: Role,
    /// `pid`: set for players, and for no other role.
    pub player: Option<PlayerId>,
    /// `wid`: the only world of the token, if bound to a world. Only for a backend, a viewer or a player.
    pub world: Option<WorldId>,
    /// When the token expires; a long-lived socket must refresh the token before this time.
    pub expires_at: chrono::DateTime<chrono::Utc>,
    /// The identity by which the token can be revoked.
    #[serde(default)]
    pub issued: TokenIdentity,
}

/// The identity of a token, as far as the token states it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenIdentity {
    /// `jti`.
    pub id: Option<String>,
    /// `iat`. A token without `iat` counts as older than all other tokens.
    #[serde(rename = "at")]
    pub issued_at: Option<chrono::DateTime<chrono::Utc>>,
}

impl Principal {
    /// The scope of this caller's tenant.
    #[must_use]
    pub fn scope(&self) -> TenantScope {
        TenantScope::new(self.tenant.clone())
    }
    /// True if the token allows access to `world`.
    #[must_use]
    pub fn can_access_world(&self, world: &WorldId) -> bool {
        self.world.as_ref().is_none_or(|allowed| allowed == world)
    }
}
