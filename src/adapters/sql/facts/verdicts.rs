//! Keeping what a judge said of pairs of statements.

use chrono::{DateTime, Utc};
use serde_json::json;

use super::super::{
    Connection, Engine, Reach,
    rows::{micros, store_error},
};
use crate::{
    ids::TenantId,
    memory::text::hexadecimal,
    ports::{StoreResult, ledger::facts::JudgedPair},
};

const KEEP_VERDICTS: &str = concat!(
    "INSERT INTO verdicts (tenant, pair, verdict, model, at)
     SELECT $1, v.value ->> 0, v.value ->> 1, v.value ->> 2, $2 FROM ",
    rows!("$3"),
    " v WHERE TRUE
     ON CONFLICT (tenant, pair) DO UPDATE SET verdict = excluded.verdict, model = excluded.model, at = excluded.at"
);

pub(super) async fn keep_verdicts(engine: &Engine, tenant: &TenantId, judged: &[JudgedPair]) -> StoreResult<()> {
    let (of, judged, now) = (tenant.clone(), judged.to_vec(), engine.clock.now());
    engine
        .write_once(Reach::from(tenant), move |connection| {
            let (tenant, judged) = (of.clone(), judged.clone());
            Box::pin(async move { write(connection, &tenant, &judged, now).await })
        })
        .await
}

pub(super) async fn write(
    connection: &mut Connection,
    tenant: &TenantId,
    judged: &[JudgedPair],
    now: DateTime<Utc>,
) -> StoreResult<()> {
    if judged.is_empty() {
        return Ok(());
    }
    let mut judged: Vec<&JudgedPair> = judged.iter().collect();
    // In one order, so that two who keep the same verdicts do not wait for each other.
    judged.sort_by_key(|judged| judged.pair);
    let rows: serde_json::Value = judged
        .iter()
        .map(|judged| json!([hexadecimal(&judged.pair), judged.verdict.as_str(), judged.model]))
        .collect();
    sqlx::query(KEEP_VERDICTS)
        .bind(tenant.as_str())
        .bind(micros(now))
        .bind(rows.to_string())
        .execute(connection)
        .await
        .map(drop)
        .map_err(store_error)
}
