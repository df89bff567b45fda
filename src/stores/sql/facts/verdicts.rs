//! The judge's verdicts on pairs of statements.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde_json::json;

use super::super::{
    context::{Connection, Engine},
    rows::{ReadRow, json_list, to_micros},
    statements::execute,
};
use colloquy_core::ids::TenantId;
use colloquy_memory::{reconcile::JudgeVerdict, text::to_hexadecimal};
use colloquy_ports::{StoreResult, ledger::facts::JudgedPair};

const SELECT_VERDICTS: &str = concat!(
    "SELECT pair, verdict FROM verdicts WHERE tenant = $1 AND pair ",
    in_json_list!("$2")
);
const UPSERT_VERDICTS: &str = concat!(
    "INSERT INTO verdicts (tenant, pair, verdict, model, at)
     SELECT $1, v.value ->> 0, v.value ->> 1, v.value ->> 2, $2 FROM ",
    json_arrays_table!("$3"),
    " v WHERE TRUE
     ON CONFLICT (tenant, pair) DO UPDATE SET verdict = excluded.verdict, model = excluded.model, at = excluded.at"
);

pub(super) async fn load_verdicts(
    engine: &Engine,
    tenant: &TenantId,
    pairs: &[[u8; 32]],
) -> StoreResult<HashMap<[u8; 32], JudgeVerdict>> {
    if pairs.is_empty() {
        return Ok(HashMap::new());
    }
    let pairs_by_digits: HashMap<String, [u8; 32]> = pairs.iter().map(|pair| (to_hexadecimal(pair), *pair)).collect();
    let query = bind!(SELECT_VERDICTS; tenant, json_list(pairs_by_digits.keys()));
    let read_row: ReadRow<(String, _)> = |columns| Ok((columns.next()?, columns.parse_with(JudgeVerdict::parse)?));
    let verdicts = engine.fetch_all(tenant, query, read_row).await?.into_iter();
    Ok(verdicts
        .filter_map(|(pair, verdict)| Some((*pairs_by_digits.get(&pair)?, verdict)))
        .collect())
}

pub(super) async fn store_verdicts(engine: &Engine, tenant: &TenantId, judged: &[JudgedPair]) -> StoreResult<()> {
    let tenant_id = tenant.clone();
    let judged = judged.to_vec();
    let now = engine.clock.now();
    write_statement!(engine, tenant, |connection| {
        upsert_verdicts(connection, &tenant_id, &judged, now).await
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
    execute!(connection, UPSERT_VERDICTS; tenant, to_micros(now), rows.to_string())
        .await
        .map(drop)
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn verdicts_are_found_by_pair() {
            assert_searches(SELECT_VERDICTS, &[]).await;
        }
    }
}
