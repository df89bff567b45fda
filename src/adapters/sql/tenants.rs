//! Tenants.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    Connection, Engine, Reach, Row, audit,
    rows::{Columns, json, micros, page_of, rows_of, store_error, text},
};
use crate::{
    ids::TenantId,
    ports::{
        Page, PageRequest, StoreResult,
        ledger::{
            audit::Edit,
            tenants::{Tenant, TenantChange, TenantEdit, TenantStore},
            usage::TenantBudget,
        },
    },
};

pub(super) struct SqlTenantStore(pub(super) Arc<Engine>);

const ENSURE: &str = "INSERT INTO tenants (id, name, enabled, created_at, budget) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (id) DO NOTHING";
const GET: &str = "SELECT id, name, enabled, created_at, version, budget FROM tenants WHERE id = $1";
const ALL: &str = "SELECT id, name, enabled, created_at, version, budget FROM tenants ORDER BY id";
const LIST: &str = "SELECT id, name, enabled, created_at, version, budget FROM tenants
    WHERE ($1 IS NULL OR id > $1) ORDER BY id LIMIT $2";
const CHANGE: &str =
    "UPDATE tenants SET name = COALESCE($2, name), enabled = COALESCE($3, enabled), version = version + 1,
        budget = CASE WHEN $5 THEN $6 ELSE budget END
    WHERE id = $1 AND ($4 IS NULL OR version = $4) RETURNING id, name, enabled, created_at, version, budget";
const DISABLED: &str = "SELECT id FROM tenants WHERE enabled = FALSE";
const WITH_BUDGETS: &str = "SELECT id, budget FROM tenants WHERE budget IS NOT NULL";

/// Whether there is this tenant.
pub(super) async fn exists(connection: &mut Connection, tenant: &TenantId) -> StoreResult<bool> {
    Ok(stored(connection, tenant).await?.is_some())
}

async fn stored(connection: &mut Connection, tenant: &TenantId) -> StoreResult<Option<Tenant>> {
    let row = sqlx::query(GET)
        .bind(tenant.as_str())
        .fetch_optional(connection)
        .await
        .map_err(store_error)?;
    row.as_ref().map(read).transpose()
}

async fn insert(connection: &mut Connection, tenant: &Tenant) -> StoreResult<bool> {
    let done = sqlx::query(ENSURE)
        .bind(tenant.id.as_str())
        .bind(text(&tenant.name))
        .bind(tenant.enabled)
        .bind(micros(tenant.created_at))
        .bind(budget_json(tenant.budget.as_ref())?)
        .execute(connection)
        .await
        .map_err(store_error)?;
    Ok(done.rows_affected() == 1)
}

fn budget_json(budget: Option<&TenantBudget>) -> StoreResult<Option<String>> {
    let says_something = budget.filter(|budget| **budget != TenantBudget::default());
    says_something.map(json).transpose()
}

fn read(row: &Row) -> StoreResult<Tenant> {
    let mut columns = Columns::of(row);
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
    async fn ensure(&self, tenant: &Tenant) -> StoreResult<bool> {
        let tenant = tenant.clone();
        self.0
            .write(Reach::All, move |connection| {
                Box::pin(async move { insert(connection, &tenant).await })
            })
            .await
    }
    async fn create(&self, tenant: &Tenant, edit: &Edit) -> StoreResult<bool> {
        let (tenant, edit) = (tenant.clone(), edit.clone());
        let reach = tenant.id.clone();
        self.0
            .write(&reach, move |connection| {
                Box::pin(async move {
                    let created = insert(connection, &tenant).await?;
                    if created {
                        audit::record(connection, &tenant.id, &edit).await?;
                    }
                    Ok(created)
                })
            })
            .await
    }
    async fn change(
        &self,
        id: &TenantId,
        change: &TenantChange,
        if_version: Option<u32>,
        edit: &Edit,
    ) -> StoreResult<TenantEdit> {
        let (tenant, change, edit) = (id.clone(), change.clone(), edit.clone());
        self.0
            .write(id, move |connection| {
                Box::pin(async move {
                    let budget = budget_json(change.budget.as_ref())?;
                    let row = sqlx::query(CHANGE)
                        .bind(tenant.as_str())
                        .bind(change.name.as_deref().map(text))
                        .bind(change.enabled)
                        .bind(if_version.map(i64::from))
                        .bind(change.budget.is_some())
                        .bind(budget)
                        .fetch_optional(&mut *connection)
                        .await
                        .map_err(store_error)?;
                    if let Some(row) = row {
                        audit::record(connection, &tenant, &edit).await?;
                        return Ok(TenantEdit::Done(read(&row)?));
                    }
                    let stored = stored(connection, &tenant).await?;
                    Ok(
                        stored.map_or(TenantEdit::NotFound, |stored| TenantEdit::VersionMismatch {
                            stored: stored.version,
                        }),
                    )
                })
            })
            .await
    }
    async fn get(&self, id: &TenantId) -> StoreResult<Option<Tenant>> {
        let mut connection = self.0.read(id).await?;
        stored(&mut connection, id).await
    }
    async fn list(&self, page: &PageRequest) -> StoreResult<Page<Tenant>> {
        let mut connection = self.0.read(Reach::All).await?;
        let rows = sqlx::query(LIST)
            .bind(page.after.as_deref().map(text))
            .bind(rows_of(page))
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        let tenants = rows.iter().map(read).collect::<StoreResult<Vec<_>>>()?;
        Ok(page_of(tenants, page, |tenant| tenant.id.to_string()))
    }
    async fn all(&self) -> StoreResult<Vec<Tenant>> {
        let mut connection = self.0.read(Reach::All).await?;
        let rows = sqlx::query(ALL)
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        rows.iter().map(read).collect()
    }
    async fn disabled(&self) -> StoreResult<Vec<TenantId>> {
        let mut connection = self.0.read(Reach::All).await?;
        let rows = sqlx::query(DISABLED)
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        rows.iter().map(|row| Columns::of(row).id()).collect()
    }
    async fn with_budgets(&self) -> StoreResult<Vec<(TenantId, TenantBudget)>> {
        let mut connection = self.0.read(Reach::All).await?;
        let rows = sqlx::query(WITH_BUDGETS)
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        let read = |row| {
            let mut columns = Columns::of(row);
            Ok((columns.id()?, columns.json()?))
        };
        rows.iter().map(read).collect()
    }
}
