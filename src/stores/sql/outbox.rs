//! The sources of the search index: the outbox, and points with the embeddings stored in the ledger.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    context::Engine,
    facts::{SqlFactStore, read_importance},
    rows::{Columns, ReadRow, json_list, to_micros},
    scope::RowScope,
};
use colloquy_core::{
    ids::{FactId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    disclosure::audience::{Audience, Knower},
    keywords::{self, FactTexts},
    party,
};
use colloquy_ports::{
    StoreResult,
    ledger::facts::{OutboxRow, OutboxStore},
    vectors::{IndexPoint, PointSource},
};

pub(super) struct SqlPointSource(pub(super) Arc<Engine>);

/// The name of no embedder: no fact has a vector of this model.
const NO_MODEL: &str = "";

/// The number of points per read; between pages, other readers get a turn.
const POINTS_PER_READ: i64 = 1_000;

/// Vectors of different models cannot be compared. A fact with a vector of another model only becomes a point without a
/// vector. A fact whose turn was taken back is no point at once, even if the clock was set back meanwhile: the rarity of
/// words counts points.
macro_rules! select_points {
    ($from:literal, $model:literal) => {
        concat!(
            "SELECT f.id, f.version, f.world, f.knowers, f.private_to, f.subject, f.view_importance, f.valid_at, f.locked_by <> '',
                e.vector, f.predicate, f.object, f.view_content, f.view_keywords
             FROM ",
            $from,
            " LEFT JOIN fact_embeddings e ON e.tenant = f.tenant AND e.fact = f.id AND e.model = ",
            $model,
            "
             WHERE f.tenant = $1 AND (f.invalid_at IS NULL OR f.invalid_at > $2 AND f.invalid_reason <> 'unsaid')
               AND (f.expires_at IS NULL OR f.expires_at > $2 OR f.view_pinned = TRUE)"
        )
    };
}
// A fact with a future start is already a point, because no later event would add the fact to the index. The confirming
// query checks the moment.
const POINTS_BY_ID: &str = concat!(select_points!("facts f", "$4"), " AND f.id ", in_json_list!("$3"));
const ALL_POINTS: &str = concat!(select_points!("facts f", "$5"), " AND f.id > $3 ORDER BY f.id LIMIT $4");
const POINTS_OF_KNOWER: &str = concat!(
    select_points!("fact_knowers k CROSS JOIN facts f", "$8"),
    " AND k.tenant = $1 AND k.world = $3 AND k.knower = $4 AND f.id = k.fact AND (k.valid_at, k.fact) > ($5, $6)
      ORDER BY k.valid_at, k.fact LIMIT $7"
);
const OUTBOX_ROWS: &str = "SELECT seq, tenant, fact FROM outbox ORDER BY seq LIMIT $1";
const DELETE_OUTBOX_ROWS: &str = concat!(
    "DELETE FROM outbox WHERE seq ",
    in_subquery!(concat!(
        "SELECT CAST(v.value AS BIGINT) FROM ",
        json_texts_table!("$1"),
        " v"
    ))
);

fn read_point(columns: &mut Columns<'_>) -> StoreResult<IndexPoint> {
    let fact = columns.id()?;
    let version = columns.number()?;
    let world = columns.id()?;
    let audience = Audience {
        knowers: columns.json()?,
        private_to: columns.maybe_id()?,
    };
    let subject: &str = columns.next()?;
    Ok(IndexPoint {
        fact,
        version,
        world,
        audience,
        subject: party::subject_key(subject),
        importance: read_importance(columns)?,
        valid_at: columns.time()?,
        is_locked: columns.next()?,
        embedding: columns.maybe_vector()?,
        terms: {
            let predicate = columns.next()?;
            let object = columns.next()?;
            let content = columns.next()?;
            keywords::fact_terms(FactTexts {
                content,
                keywords: &columns.json::<Vec<String>>()?,
                subject,
                predicate,
                object,
            })
        },
    })
}

#[async_trait]
impl OutboxStore for SqlFactStore {
    async fn load_outbox(&self, limit: u32) -> StoreResult<Vec<OutboxRow>> {
        let query = bind!(OUTBOX_ROWS; i64::from(limit));
        let read_row: ReadRow<OutboxRow> = |columns| {
            Ok(OutboxRow {
                seq: columns.next()?,
                tenant: columns.id()?,
                fact: columns.id()?,
            })
        };
        self.0.fetch_all(RowScope::All, query, read_row).await
    }
    async fn load_points(&self, scope: &TenantScope, ids: &[FactId]) -> StoreResult<Vec<IndexPoint>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let now = to_micros(self.0.clock.now());
        let query = bind!(POINTS_BY_ID; scope.tenant(), now, json_list(ids), self.0.embedding_model);
        self.0.fetch_all(scope, query, read_point).await
    }
    async fn mark_outbox_done(&self, seqs: &[i64]) -> StoreResult<()> {
        if seqs.is_empty() {
            return Ok(());
        }
        let query = bind!(DELETE_OUTBOX_ROWS; serde_json::Value::from(seqs).to_string());
        self.0.execute(RowScope::All, query).await.map(drop)
    }
    async fn list_all_points(
        &self,
        scope: &TenantScope,
        after: Option<FactId>,
        limit: u32,
    ) -> StoreResult<Vec<IndexPoint>> {
        let query = bind!(
            ALL_POINTS;
            scope.tenant(), to_micros(self.0.clock.now()), after.map(|fact| fact.to_string()).unwrap_or_default(),
            i64::from(limit), self.0.embedding_model
        );
        self.0.fetch_all(scope, query, read_point).await
    }
}

#[async_trait]
impl PointSource for SqlPointSource {
    async fn points_of(&self, scope: &TenantScope, world: &WorldId, knower: &Knower) -> StoreResult<Vec<IndexPoint>> {
        load_points_of_knower(&self.0, scope, world, knower, &self.0.embedding_model).await
    }

    async fn bare_points_of(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        knower: &Knower,
    ) -> StoreResult<Vec<IndexPoint>> {
        load_points_of_knower(&self.0, scope, world, knower, NO_MODEL).await
    }
}

async fn load_points_of_knower(
    engine: &Engine,
    scope: &TenantScope,
    world: &WorldId,
    knower: &Knower,
    model: &str,
) -> StoreResult<Vec<IndexPoint>> {
    let now = to_micros(engine.clock.now());
    let mut points: Vec<IndexPoint> = Vec::new();
    loop {
        let last = points.last();
        let query = bind!(
            POINTS_OF_KNOWER;
            scope.tenant(), now, world, knower.store_key(), last.map_or(i64::MIN, |point| to_micros(point.valid_at)),
            last.map(|point| point.fact.to_string()).unwrap_or_default(), POINTS_PER_READ, model
        );
        let page = engine.fetch_all(scope, query, read_point).await?;
        let is_last = page.len() < usize::try_from(POINTS_PER_READ).unwrap_or(usize::MAX);
        points.extend(page);
        if is_last {
            return Ok(points);
        }
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn outbox_partition_is_read_in_index_order() {
            assert_searches(POINTS_OF_KNOWER, &["knowers_newest"]).await;
            assert!(!plan(POINTS_OF_KNOWER).await.contains("TEMP B-TREE"));
            assert_searches(POINTS_BY_ID, &["SEARCH f USING INDEX"]).await;
            assert_searches(ALL_POINTS, &["SEARCH f USING INDEX"]).await;
        }
    }
}
