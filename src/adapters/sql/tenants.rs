//! Tenants.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    Connection, Engine, Reach, Row,
    rows::{Columns, micros, store_error},
};
use crate::{
    ids::TenantId,
    ports::{
        StoreResult,
        ledger::tenants::{Tenant, TenantStore},
    },
};

pub(super) struct SqlTenantStore(pub(super) Arc<Engine>);

const ENSURE: &str = "INSERT INTO tenants (id, name, enabled, created_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (id) DO NOTHING";
const GET: &str = "SELECT id, name, enabled, created_at FROM tenants WHERE id = $1";
const ALL: &str = "SELECT id, name, enabled, created_at FROM tenants ORDER BY id";

/// Whether there is this tenant.
pub(super) async fn exists(connection: &mut Connection, tenant: &TenantId) -> StoreResult<bool> {
    sqlx::query(GET)
        .bind(tenant.as_str())
        .fetch_optional(connection)
        .await
        .map(|row| row.is_some())
        .map_err(store_error)
}

fn read(row: &Row) -> StoreResult<Tenant> {
    let mut columns = Columns::of(row);
    Ok(Tenant {
        id: columns.id()?,
        name: columns.next()?,
        enabled: columns.next()?,
        created_at: columns.time()?,
    })
}

#[async_trait]
impl TenantStore for SqlTenantStore {
    async fn ensure(&self, tenant: &Tenant) -> StoreResult<bool> {
        let tenant = tenant.clone();
        self.0
            .write(Reach::All, move |connection| {
                Box::pin(async move {
                    let done = sqlx::query(ENSURE)
                        .bind(tenant.id.as_str())
                        .bind(&tenant.name)
                        .bind(tenant.enabled)
                        .bind(micros(tenant.created_at))
                        .execute(connection)
                        .await
                        .map_err(store_error)?;
                    Ok(done.rows_affected() == 1)
                })
            })
            .await
    }
    async fn get(&self, id: &TenantId) -> StoreResult<Option<Tenant>> {
        let mut connection = self.0.read(id).await?;
        let row = sqlx::query(GET)
            .bind(id.as_str())
            .fetch_optional(&mut *connection)
            .await
            .map_err(store_error)?;
        row.as_ref().map(read).transpose()
    }
    async fn all(&self) -> StoreResult<Vec<Tenant>> {
        let mut connection = self.0.read(Reach::All).await?;
        let rows = sqlx::query(ALL)
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        rows.iter().map(read).collect()
    }
}
