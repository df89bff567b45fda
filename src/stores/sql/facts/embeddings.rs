//! Facts without a vector of this ledger's embedder, and storing their new vectors.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::super::{
    rows::{Columns, ReadRow, to_micros, vector_to_bytes},
    statements::execute,
};
use super::{SqlFactStore, fold, read_view};
use colloquy_core::{ids::FactId, scope::TenantScope};
use colloquy_memory::embedded_text::embedded_fact_text;
use colloquy_ports::{
    StoreResult,
    ledger::facts::{EmbeddingModelCount, EmbeddingStore},
};

/// Selects facts to embed, with people's edits. Invalid facts are included: they may be restored, and a search in the
/// past compares them.
const UNEMBEDDED: &str = concat!(
    "SELECT f.id, f.subject, f.content, f.keywords, f.importance, f.pinned,
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
    WHERE f.tenant = $1 AND (f.invalid_at IS NULL OR f.invalid_at > $2) 
      AND (f.expires_at IS NULL OR f.expires_at > $2 OR f.view_pinned = TRUE)
    GROUP BY e.model ORDER BY e.model";

/// Reads a fact in its own words, as said or as corrected. Words of folded duplicates are left out, because the
/// duplicates may become unsaid.
fn read_unembedded(columns: &mut Columns<'_>) -> StoreResult<(FactId, String)> {
    let fact = columns.id()?;
    let subject: String = columns.next()?;
    let own_view = fold::apply_edits(read_view(columns)?, columns.json()?);
    Ok((
        fact,
        embedded_fact_text(&subject, &own_view.content, &own_view.keywords),
    ))
}

#[async_trait]
impl EmbeddingStore for SqlFactStore {
    async fn list_unembedded(
        &self,
        scope: &TenantScope,
        after: Option<FactId>,
        limit: u32,
    ) -> StoreResult<Vec<(FactId, String)>> {
        let after = after.map(|fact| fact.to_string()).unwrap_or_default();
        let query = bind!(UNEMBEDDED; scope.tenant(), after, self.0.embedding_model, i64::from(limit));
        self.0.fetch_all(scope, query, read_unembedded).await
    }
    async fn store_embeddings(&self, scope: &TenantScope, embeddings: &[(FactId, Vec<f32>)]) -> StoreResult<()> {
        let tenant = scope.tenant().clone();
        let embeddings = embeddings.to_vec();
        let model = self.0.embedding_model.clone();
        write_transaction!(self.0, scope, |connection| {
            for (fact, vector) in &embeddings {
                execute!(connection, UPSERT_EMBEDDING; tenant, fact, model, vector_to_bytes(vector)).await?;
            }
            Ok(())
        })
        .await
    }
    async fn count_by_embedding_model(
        &self,
        scope: &TenantScope,
        as_of: DateTime<Utc>,
    ) -> StoreResult<Vec<EmbeddingModelCount>> {
        let query = bind!(COUNT_BY_MODEL; scope.tenant(), to_micros(as_of));
        let read_row: ReadRow<(Option<String>, u64)> = |columns| Ok((columns.next()?, columns.number()?));
        let counts = self.0.fetch_all(scope, query, read_row).await?.into_iter();
        let current = &*self.0.embedding_model;
        let counts = counts.map(|(model, facts)| EmbeddingModelCount {
            current: model.as_deref() == Some(current),
            model,
            facts,
        });
        Ok(counts.collect())
    }
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
