//! Facts without a vector of this ledger's embedder, and storing their new vectors.

use chrono::{DateTime, Utc};

use super::super::{
    Engine, RowScope,
    rows::{Columns, to_micros, vector_to_bytes},
    statements::{execute, fetch_all},
};
use super::{fold, read_view};
use colloquy_core::ids::{FactId, TenantId};
use colloquy_memory::fact::embedded_text;
use colloquy_ports::{StoreResult, ledger::facts::EmbeddingModelCount};

/// Selects facts to embed, with people's edits. Invalid facts are included: they may be restored, and a search in the
/// past compares them.
const UNEMBEDDED: &str = concat!(
    "SELECT f.id, f.content, f.keywords, f.importance, f.pinned,
        (SELECT ",
    json_rows!(concat!("'at', c.at, 'id', c.edit, 'patch', ", json_of!("c.patch"))),
    "
           FROM fact_edits c WHERE c.tenant = f.tenant AND c.fact = f.id)
     FROM facts f
     WHERE f.tenant = $1 AND f.id > $2
       AND NOT EXISTS (SELECT 1 FROM fact_embeddings e WHERE e.tenant = f.tenant AND e.fact = f.id AND e.model = $3)
     ORDER BY f.id LIMIT $4"
);
/// An embedding of this model that was written meanwhile belongs to a newer text, and stays.
const UPSERT_EMBEDDING: &str = batch!(
    "INSERT INTO fact_embeddings (tenant, fact, model, vector)
     SELECT f.tenant, f.id, $3, $4 FROM facts f WHERE f.tenant = $1 AND f.id = $2
     ON CONFLICT (tenant, fact) DO UPDATE SET model = excluded.model, vector = excluded.vector
     WHERE fact_embeddings.model <> excluded.model",
    "INSERT INTO outbox (tenant, fact) SELECT f.tenant, f.id FROM facts f WHERE f.tenant = $1 AND f.id = $2"
);
const COUNT_BY_MODEL: &str = "SELECT e.model, COUNT(*)
    FROM facts f LEFT JOIN fact_embeddings e ON e.tenant = f.tenant AND e.fact = f.id
    WHERE f.tenant = $1 AND (f.invalid_at IS NULL OR f.invalid_at > $2) AND (f.expires_at IS NULL OR f.expires_at > $2)
    GROUP BY e.model ORDER BY e.model";

/// Returns facts in their own words, as said or as corrected. Words of folded duplicates are left out, because the
/// duplicates may become unsaid.
pub(super) async fn load_unembedded(
    engine: &Engine,
    tenant: &TenantId,
    after: Option<FactId>,
    limit: u32,
) -> StoreResult<Vec<(FactId, String)>> {
    let mut connection = engine.acquire_reader(tenant).await?;
    let rows = fetch_all!(
        connection, UNEMBEDDED;
        tenant, after.map(|fact| fact.to_string()).unwrap_or_default(), engine.embedding_model, i64::from(limit)
    )
    .await?;
    drop(connection);
    rows.iter()
        .map(|row| {
            let mut columns = Columns::new(row);
            let fact = columns.id()?;
            let own = fold::apply_edits(read_view(&mut columns)?, columns.json()?);
            Ok((fact, embedded_text(&own.content, &own.keywords)))
        })
        .collect()
}

pub(super) async fn store_embeddings(
    engine: &Engine,
    tenant: &TenantId,
    embeddings: &[(FactId, Vec<f32>)],
) -> StoreResult<()> {
    let reach = RowScope::from(tenant);
    let (tenant, embeddings, model) = (tenant.clone(), embeddings.to_vec(), engine.embedding_model.clone());
    engine
        .write_transaction(reach, move |connection| {
            Box::pin(async move {
                for (fact, vector) in &embeddings {
                    execute!(connection, UPSERT_EMBEDDING; tenant, fact, model, vector_to_bytes(vector)).await?;
                }
                Ok(())
            })
        })
        .await
}

pub(super) async fn count_by_model(
    engine: &Engine,
    tenant: &TenantId,
    at: DateTime<Utc>,
) -> StoreResult<Vec<EmbeddingModelCount>> {
    let mut connection = engine.acquire_reader(tenant).await?;
    let rows = fetch_all!(connection, COUNT_BY_MODEL; tenant, to_micros(at)).await?;
    drop(connection);
    rows.iter()
        .map(|row| {
            let mut columns = Columns::new(row);
            let model: Option<String> = columns.next()?;
            Ok(EmbeddingModelCount {
                current: model.as_deref() == Some(&*engine.embedding_model),
                model,
                facts: columns.number()?,
            })
        })
        .collect()
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn facts_without_a_vector_are_found_in_index_order() {
            assert_searches(UNEMBEDDED, &["SEARCH f USING INDEX", "SEARCH e USING INDEX"]).await;
            assert!(!plan(UNEMBEDDED).await.contains("TEMP B-TREE"));
            for statement in UPSERT_EMBEDDING.split(';') {
                assert_searches(statement, &[]).await;
            }
        }
    }
}
