//! The audit log: who changed which object, when and why. Append-only; stores ids, never texts.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::Serialize;

use super::usage::AuthoredLimits;
use crate::{Page, PageRequest, StoreResult};
use colloquy_core::{
    ids::{AuditId, EditId, PlayerId},
    scope::{Principal, Role, TenantScope},
};

/// A change made by a person or a backend over REST. The edit's id is the cause of the rows it writes. The audit row is
/// written in the same transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    pub id: EditId,
    pub audit_id: AuditId,
    /// The `sub` of the token.
    pub subject: String,
    pub role: Role,
    /// The player of the token, or the player for whom a backend asked.
    pub player: Option<PlayerId>,
    pub made_at: DateTime<Utc>,
    /// Dotted verb: `fact.create`, `world.put`, …
    pub action: &'static str,
    /// The id of the changed object.
    pub object: String,
    /// How far the tenant's authored data may grow by this edit.
    pub limits: AuthoredLimits,
}

impl Edit {
    /// Returns an edit by `principal`.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "callers pass ids and texts alike")]
    pub fn made_by(
        principal: &Principal,
        ids: &crate::clock::IdSource,
        now: DateTime<Utc>,
        action: &'static str,
        object: impl ToString,
    ) -> Self {
        Self {
            id: ids.next_id(),
            audit_id: ids.next_id(),
            subject: principal.subject.clone(),
            role: principal.role,
            player: principal.player.clone(),
            made_at: now,
            action,
            object: object.to_string(),
            limits: AuthoredLimits::default(),
        }
    }

    /// The same edit within limits.
    #[must_use]
    pub const fn within(mut self, limits: AuthoredLimits) -> Self {
        self.limits = limits;
        self
    }
}

/// A line of the audit log. Objects are named by their ids; a line contains no texts.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = AuditView)]
pub struct AuditRow {
    #[schema(value_type = String)]
    pub id: AuditId,
    #[serde(rename = "at")]
    pub made_at: DateTime<Utc>,
    pub subject: String,
    pub role: Role,
    /// The player of the token, or the player named by a backend.
    #[serde(rename = "player_id", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    pub player: Option<PlayerId>,
    pub action: String,
    pub object: String,
}

/// The audit log.
#[async_trait]
pub trait AuditStore: Send + Sync {
    /// Appends a row for an action that changed no other row.
    async fn append_audit_row(&self, scope: &TenantScope, edit: &Edit) -> StoreResult<()>;
    /// Returns rows, newest first.
    async fn list_audit_rows(&self, scope: &TenantScope, page: &PageRequest) -> StoreResult<Page<AuditRow>>;
}
