//! Keeping what a judge said of pairs of statements.

use super::super::{
    Engine, Reach,
    rows::{micros, store_error},
};
use super::read::hexadecimal;
use crate::{
    ids::TenantId,
    ports::{StoreResult, ledger::facts::JudgedPair},
};

/// Rows of one statement that keeps verdicts: a judge answers about fewer at a time.
const VERDICT_ROWS: usize = 32;

/// The statement that keeps so many verdicts.
fn keep_verdicts_of(rows: usize) -> String {
    let values: Vec<String> = (0..rows)
        .map(|row| {
            let first = 3 + 3 * row;
            format!("($1, ${first}, ${}, ${}, $2)", first + 1, first + 2)
        })
        .collect();
    format!(
        "INSERT INTO verdicts (tenant, pair, verdict, model, at) VALUES {}
     ON CONFLICT (tenant, pair) DO UPDATE SET verdict = excluded.verdict, model = excluded.model, at = excluded.at",
        values.join(", ")
    )
}

pub(super) async fn keep_verdicts(engine: &Engine, tenant: &TenantId, judged: &[JudgedPair]) -> StoreResult<()> {
    let mut judged = judged.to_vec();
    // In one order, so that two who keep the same verdicts do not wait for each other.
    judged.sort_by_key(|judged| judged.pair);
    let (tenant, now) = (tenant.clone(), engine.clock.now());
    for some in judged.chunks(VERDICT_ROWS) {
        let (of, some) = (tenant.clone(), some.to_vec());
        engine
            .write_once(Reach::from(&tenant), move |connection| {
                let (tenant, some) = (of.clone(), some.clone());
                Box::pin(async move {
                    // Made of numbers alone.
                    let statement = sqlx::AssertSqlSafe(keep_verdicts_of(some.len()));
                    let mut query = sqlx::query(statement).bind(tenant.as_str()).bind(micros(now));
                    for judged in &some {
                        query = query
                            .bind(hexadecimal(&judged.pair))
                            .bind(judged.verdict.as_str())
                            .bind(&judged.model);
                    }
                    query.execute(connection).await.map(drop).map_err(store_error)
                })
            })
            .await?;
    }
    Ok(())
}
