//! The audit log. Triggers reject changes of its rows, and deletions of rows of the last 30 days.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;

use super::{
    context::{Connection, Engine},
    pages::{fetch_page, page_cursor, page_row_limit},
    rows::{Columns, to_micros, without_nul},
    statements::execute,
};
use colloquy_core::{
    ids::{PlayerId, TenantId},
    scope::{Role, TenantScope},
};
use colloquy_ports::{
    Page, PageRequest, StoreResult,
    ledger::audit::{AuditRow, AuditStore, Edit},
};

pub(super) struct SqlAuditStore(pub(super) Arc<Engine>);

/// Inserts the rows of [`audit_rows_json`], bound as `$rows`, in their order.
macro_rules! insert_audit {
    ($rows:literal) => {
        concat!(
            "INSERT INTO audit (tenant, id, edit, at, subject, role, player, action, object)
             SELECT $1, value ->> 0, value ->> 1, CAST(value ->> 2 AS BIGINT), value ->> 3, value ->> 4, value ->> 5,
                value ->> 6, value ->> 7
             FROM ",
            json_arrays_table!($rows),
            " v ORDER BY key"
        )
    };
}
pub(super) use insert_audit;
const APPEND_AUDIT: &str = insert_audit!("$2");
const LIST: &str = "SELECT id, at, subject, role, player, action, object FROM audit
    WHERE tenant = $1 AND seq < CASE WHEN $2 IS NULL THEN 9223372036854775807
        ELSE (SELECT seq FROM audit WHERE tenant = $1 AND id = $2) END
    ORDER BY seq DESC LIMIT $3";

const ROLES: [Role; 5] = [Role::Operator, Role::Admin, Role::Backend, Role::Viewer, Role::Player];

pub(super) fn read_role(columns: &mut Columns<'_>) -> StoreResult<Role> {
    columns.named(ROLES, role_name)
}

pub(super) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Operator => "operator",
        Role::Admin => "admin",
        Role::Backend => "backend",
        Role::Viewer => "viewer",
        Role::Player => "player",
    }
}

/// Returns the audit rows of edits as a single JSON bind.
pub(super) fn audit_rows_json<'e>(edits: impl IntoIterator<Item = &'e Edit>) -> String {
    let rows = edits.into_iter().map(|edit| {
        json!([
            edit.audit_id,
            edit.id,
            to_micros(edit.made_at),
            without_nul(&edit.subject),
            role_name(edit.role),
            edit.player.as_ref().map(PlayerId::as_str),
            edit.action,
            without_nul(&edit.object),
        ])
    });
    rows.collect::<serde_json::Value>().to_string()
}

/// Writes the audit row of an edit, in the same transaction as the edit.
pub(super) async fn record_audit(connection: &mut Connection, tenant: &TenantId, edit: &Edit) -> StoreResult<()> {
    execute!(connection, APPEND_AUDIT; tenant, audit_rows_json([edit]))
        .await
        .map(drop)
}

fn read_audit_row(columns: &mut Columns<'_>) -> StoreResult<AuditRow> {
    Ok(AuditRow {
        id: columns.id()?,
        made_at: columns.time()?,
        subject: columns.next()?,
        role: read_role(columns)?,
        player: columns.maybe_id()?,
        action: columns.next()?,
        object: columns.next()?,
    })
}

#[async_trait]
impl AuditStore for SqlAuditStore {
    async fn append_audit_row(&self, scope: &TenantScope, edit: &Edit) -> StoreResult<()> {
        let tenant = scope.tenant().clone();
        let edit = edit.clone();
        write_transaction!(self.0, scope, |connection| record_audit(connection, &tenant, &edit)
            .await)
        .await
    }
    async fn list_audit_rows(&self, scope: &TenantScope, page: &PageRequest) -> StoreResult<Page<AuditRow>> {
        let query = bind!(LIST; scope.tenant(), page_cursor(page), page_row_limit(page));
        fetch_page(&self.0, scope, query, page, read_audit_row, |row| row.id.to_string()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_names_read_back() {
        assert_eq!(
            ROLES.map(role_name),
            ["operator", "admin", "backend", "viewer", "player"]
        );
    }
}
