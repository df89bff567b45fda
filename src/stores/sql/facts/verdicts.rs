//! Storing the judge's verdicts on pairs of statements.

use chrono::{DateTime, Utc};
use serde_json::json;

use super::super::{Connection, Engine, RowScope, rows::to_micros, statements::execute};
use colloquy_core::ids::TenantId;
use colloquy_memory::text::to_hexadecimal;
use colloquy_ports::{StoreResult, ledger::facts::JudgedPair};

const UPSERT_VERDICTS: &str = concat!(
    "INSERT INTO verdicts (tenant, pair, verdict, model, at)
     SELECT $1, v.value ->> 0, v.value ->> 1, v.value ->> 2, $2 FROM ",
    json_arrays_table!("$3"),
    " v WHERE TRUE
     ON CONFLICT (tenant, pair) DO UPDATE SET verdict = excluded.verdict, model = excluded.model, at = excluded.at"
);

pub(super) async fn store_verdicts(engine: &Engine, tenant: &TenantId, judged: &[JudgedPair]) -> StoreResult<()> {
    let (of, judged, now) = (tenant.clone(), judged.to_vec(), engine.clock.now());
    engine
        .write_statement(RowScope::from(tenant), move |connection| {
            let (tenant, judged) = (of.clone(), judged.clone());
            Box::pin(async move { upsert_verdicts(connection, &tenant, &judged, now).await })
        })
        .await
}

pub(super) async fn upsert_verdicts(
    connection: &mut Connection,
    tenant: &TenantId,
    judged: &[JudgedPair],
    now: DateTime<Utc>,
) -> StoreResult<()> {
    if judged.is_empty() {
        return Ok(());
    }
    let mut judged: Vec<&JudgedPair> = judged.iter().collect();
    // A fixed order prevents deadlocks between writers of the same verdicts.
    judged.sort_by_key(|judged| judged.pair);
    let rows: serde_json::Value = judged
        .iter()
        .map(|judged| json!([to_hexadecimal(&judged.pair), judged.verdict.as_str(), judged.model]))
        .collect();
    execute!(connection, UPSERT_VERDICTS; tenant, to_micros(now), rows.to_string()).await?;
    Ok(())
}
