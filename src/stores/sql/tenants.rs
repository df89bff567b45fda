//! Tenants.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    audit,
    context::{Connection, Engine},
    pages::{into_page, page_cursor, page_row_limit},
    rows::{Columns, to_json, to_micros, without_nul},
    scope::RowScope,
    statements::{execute, fetch_optional},
};
use colloquy_core::ids::TenantId;
use colloquy_ports::{
    Page, PageRequest, StoreResult,
    ledger::{
        audit::Edit,
        tenants::{Tenant, TenantChange, TenantEditOutcome, TenantStore},
        usage::TenantBudget,
    },
};

pub(super) struct SqlTenantStore(pub(super) Arc<Engine>);

const INSERT_TENANT: &str = "INSERT INTO tenants (id, name, enabled, created_at, budget) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (id) DO NOTHING";
const TENANT_BY_ID: &str = "SELECT id, name, enabled, created_at, version, budget FROM tenants WHERE id = $1";
const ALL_TENANTS: &str = "SELECT id, name, enabled, created_at, version, budget FROM tenants ORDER BY id";
const LIST: &str = "SELECT id, name, enabled, created_at, version, budget FROM tenants
    WHERE ($1 IS NULL OR id > $1) ORDER BY id LIMIT $2";
const UPDATE_TENANT: &str =
    "UPDATE tenants SET name = COALESCE($2, name), enabled = COALESCE($3, enabled), version = version + 1,
        budget = CASE WHEN $5 THEN $6 ELSE budget END
    WHERE id = $1 AND ($4 IS NULL OR version = $4) RETURNING id, name, enabled, created_at, version, budget";
const DISABLED_TENANTS: &str = "SELECT id FROM tenants WHERE enabled = FALSE";
const TENANTS_WITH_BUDGETS: &str = "SELECT id, budget FROM tenants WHERE budget IS NOT NULL";

/// Returns whether the tenant exists.
pub(in super::super) async fn has_tenant(connection: &mut Connection, tenant: &TenantId) -> StoreResult<bool> {
    Ok(load_tenant(connection, tenant).await?.is_some())
}

async fn load_tenant(connection: &mut Connection, tenant: &TenantId) -> StoreResult<Option<Tenant>> {
    let row = fetch_optional!(connection, TENANT_BY_ID; tenant).await?;
    row.map(|row| read_tenant(&mut Columns::new(&row))).transpose()
}

async fn insert_tenant(connection: &mut Connection, tenant: &Tenant) -> StoreResult<bool> {
    let inserted_rows = execute!(
        connection, INSERT_TENANT;
        tenant.id, without_nul(&tenant.name), tenant.enabled, to_micros(tenant.created_at),
        budget_json(tenant.budget.as_ref())?
    )
    .await?;
    Ok(inserted_rows == 1)
}

fn budget_json(budget: Option<&TenantBudget>) -> StoreResult<Option<String>> {
    let says_something = budget.filter(|budget| **budget != TenantBudget::default());
    says_something.map(to_json).transpose()
}

fn read_tenant(columns: &mut Columns<'_>) -> StoreResult<Tenant> {
    Ok(Tenant {
        id: columns.id()?,
        name: columns.next()?,
        enabled: columns.next()?,
        created_at: columns.time()?,
        version: columns.number()?,
        budget: columns.maybe_json()?,
    })
}

#[async_trait]
impl TenantStore for SqlTenantStore {
    async fn ensure_tenant(&self, tenant: &Tenant) -> StoreResult<bool> {
        let tenant = tenant.clone();
        write_transaction!(self.0, RowScope::All, |connection| insert_tenant(connection, &tenant)
            .await)
        .await
    }
    async fn create_tenant(&self, tenant: &Tenant, edit: &Edit) -> StoreResult<bool> {
        let id = &tenant.id;
        let tenant = tenant.clone();
        let edit = edit.clone();
        write_transaction!(self.0, id, |connection| {
            let created = insert_tenant(connection, &tenant).await?;
            if created {
                audit::record_audit(connection, &tenant.id, &edit).await?;
            }
            Ok(created)
        })
        .await
    }
    async fn change_tenant(
        &self,
        id: &TenantId,
        change: &TenantChange,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<TenantEditOutcome> {
        let tenant = id.clone();
        let change = change.clone();
        let edit = edit.clone();
        write_transaction!(self.0, id, |connection| {
            let row = fetch_optional!(
                connection, UPDATE_TENANT;
                tenant, change.name.as_deref().map(without_nul), change.enabled, if_version.map(i64::from),
                change.budget.is_some(), budget_json(change.budget.as_ref())?
            )
            .await?;
            if let Some(row) = row {
                audit::record_audit(connection, &tenant, &edit).await?;
                return Ok(TenantEditOutcome::Done(read_tenant(&mut Columns::new(&row))?));
            }
            let stored = load_tenant(connection, &tenant).await?;
            Ok(stored.map_or(TenantEditOutcome::NotFound, |stored| {
                TenantEditOutcome::VersionMismatch { stored: stored.version }
            }))
        })
        .await
    }
    async fn load_tenant(&self, id: &TenantId) -> StoreResult<Option<Tenant>> {
        let query = bind!(TENANT_BY_ID; id);
        self.0.fetch_optional(id, query, read_tenant).await
    }
    async fn list_tenants(&self, page: &PageRequest) -> StoreResult<Page<Tenant>> {
        let query = bind!(LIST; page_cursor(page), page_row_limit(page));
        let tenants = self.0.fetch_all(RowScope::All, query, read_tenant).await?;
        Ok(into_page(tenants, page, |tenant| tenant.id.to_string()))
    }
    async fn list_all(&self) -> StoreResult<Vec<Tenant>> {
        let query = bind!(ALL_TENANTS);
        self.0.fetch_all(RowScope::All, query, read_tenant).await
    }
    async fn list_disabled(&self) -> StoreResult<Vec<TenantId>> {
        let query = bind!(DISABLED_TENANTS);
        self.0.fetch_all(RowScope::All, query, |columns| columns.id()).await
    }
    async fn list_tenant_budgets(&self) -> StoreResult<Vec<(TenantId, TenantBudget)>> {
        let query = bind!(TENANTS_WITH_BUDGETS);
        self.0
            .fetch_all(RowScope::All, query, |columns| Ok((columns.id()?, columns.json()?)))
            .await
    }
}
