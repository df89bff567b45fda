//! What replaces what for whoever may know both.

use std::collections::BTreeMap;

use super::super::{
    Connection,
    rows::{json, store_error},
};
use crate::{
    ids::{FactId, TenantId},
    memory::timeline::Replaced,
    ports::StoreResult,
};

macro_rules! replace {
    ($table:literal, $id:literal) => {
        concat!(
            "UPDATE ",
            $table,
            " SET replaced_by = replaced_by || (v.value ->> 1) FROM ",
            rows!("$2"),
            " v WHERE ",
            $table,
            ".tenant = $1 AND ",
            $table,
            ".",
            $id,
            " = ",
            key_of!("v", 0),
            " AND ",
            $table,
            ".",
            $id,
            " IN (SELECT ",
            key_of!("w", 0),
            " FROM ",
            rows!("$2"),
            " w)"
        )
    };
}
/// `+` leads each id. The `IN` says the same once more: without it SQLite's planner
/// walks the tenant's facts.
const REPLACE: &str = batch!(replace!("facts", "id"), replace!("fact_knowers", "fact"));

pub(super) async fn write(connection: &mut Connection, tenant: &TenantId, replaced: &[Replaced]) -> StoreResult<()> {
    if replaced.is_empty() {
        return Ok(());
    }
    let mut by: BTreeMap<FactId, String> = BTreeMap::new();
    for Replaced { fact, by: newer } in replaced {
        let ids = by.entry(*fact).or_default();
        ids.push('+');
        ids.push_str(&newer.to_string());
    }
    sqlx::query(REPLACE)
        .bind(tenant.as_str())
        .bind(json(&by.into_iter().collect::<Vec<_>>())?)
        .execute(connection)
        .await
        .map(drop)
        .map_err(store_error)
}
