//! The size of what people wrote of a tenant. Triggers keep the sums, so that no writer can forget them.

use super::{context::Connection, rows::Columns, statements::fetch_one};
use colloquy_core::ids::TenantId;
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::usage::{AuthoredLimits, AuthoredSize},
};

pub(super) const AUTHORED_SIZE: &str = "SELECT COALESCE(MAX(worlds), 0), COALESCE(MAX(bytes), 0)
    FROM authored_sizes WHERE tenant = $1";
/// Writes the row even without a change, and so locks it.
const LOCK_AUTHORED_SIZE: &str = "INSERT INTO authored_sizes (tenant, worlds, bytes) VALUES ($1, 0, 0)
    ON CONFLICT (tenant) DO UPDATE SET worlds = authored_sizes.worlds RETURNING worlds, bytes";

/// The size before the writes of a transaction, and the limits.
pub(super) struct Growth {
    limits: AuthoredLimits,
    before: AuthoredSize,
}

pub(super) fn read_size(columns: &mut Columns<'_>) -> StoreResult<AuthoredSize> {
    Ok(AuthoredSize {
        worlds: columns.number()?,
        bytes: columns.number()?,
    })
}

impl Growth {
    /// Locks the tenant's size until the end of the transaction: other writers wait, and so the limits hold exactly.
    /// Called after all named locks of the transaction, and before its writes to authored tables. `None`: no limits.
    pub(super) async fn begin(
        connection: &mut Connection,
        tenant: &TenantId,
        limits: AuthoredLimits,
    ) -> StoreResult<Option<Self>> {
        if limits == AuthoredLimits::default() {
            return Ok(None);
        }
        let row = fetch_one!(connection, LOCK_AUTHORED_SIZE; tenant).await?;
        let before = read_size(&mut Columns::new(&row))?;
        Ok(Some(Self { limits, before }))
    }

    /// Checks the size after the writes.
    ///
    /// # Errors
    /// [`StoreError::OverBudget`] if the tenant grew over a limit; the caller rolls back.
    pub(super) async fn check(this: Option<Self>, connection: &mut Connection, tenant: &TenantId) -> StoreResult<()> {
        let Some(Self { limits, before }) = this else {
            return Ok(());
        };
        let row = fetch_one!(connection, AUTHORED_SIZE; tenant).await?;
        let after = read_size(&mut Columns::new(&row))?;
        match limits.exceeded_by(before, after) {
            Some(budget) => Err(StoreError::OverBudget(budget)),
            None => Ok(()),
        }
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn size_of_a_tenant_is_one_row() {
            assert_searches(AUTHORED_SIZE, &["sqlite_autoindex_authored_sizes_1 (tenant=?)"]).await;
        }
    }
}
