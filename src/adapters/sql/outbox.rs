//! What the index is made from: the outbox, and points with the embeddings the ledger keeps.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    Engine, Reach, Row,
    rows::{Columns, json_list, micros, store_error, vector_from},
};
use crate::{
    ids::{FactId, TenantId, WorldId},
    memory::{
        fact::{Audience, Importance, Knower},
        keywords, party,
    },
    ports::{
        StoreError, StoreResult,
        ledger::facts::OutboxRow,
        vectors::{IndexPoint, PointSource},
    },
    tenancy::TenantScope,
};

pub(super) struct SqlPointSource(pub(super) Arc<Engine>);

/// No embedder is called so: a fact has no vector of it.
const NO_MODEL: &str = "";

/// Points read in one go; between pages other readers get their turn.
const PAGE: i64 = 1_000;

/// A vector of another model says nothing beside those of this one; a fact that has only such a one
/// is a point without a vector.
macro_rules! points {
    ($from:literal, $model:literal) => {
        concat!(
            "SELECT f.id, f.version, f.world, f.knowers, f.private_to, f.subject, f.view_importance, f.valid_at, e.vector,
                f.view_content, f.view_keywords
             FROM ",
            $from,
            " LEFT JOIN fact_embeddings e ON e.tenant = f.tenant AND e.fact = f.id AND e.model = ",
            $model,
            "
             WHERE f.tenant = $1 AND (f.invalid_at IS NULL OR f.invalid_at > $2)
               AND (f.expires_at IS NULL OR f.expires_at > $2)"
        )
    };
}
// A fact that begins later is a point already: nothing would bring it into the index then, and
// whoever confirms it checks the moment.
const POINTS: &str = concat!(points!("facts f", "$4"), " AND f.id ", among!("$3"));
const ALL_POINTS: &str = concat!(points!("facts f", "$5"), " AND f.id > $3 ORDER BY f.id LIMIT $4");
const POINTS_OF: &str = concat!(
    points!("fact_knowers k CROSS JOIN facts f", "$8"),
    " AND k.tenant = $1 AND k.world = $3 AND k.knower = $4 AND f.id = k.fact AND (k.valid_at, k.fact) > ($5, $6)
      ORDER BY k.valid_at, k.fact LIMIT $7"
);
const WAITING: &str = "SELECT seq, tenant, fact FROM outbox ORDER BY seq LIMIT $1";
const DONE: &str = concat!(
    "DELETE FROM outbox WHERE seq ",
    any_of!(concat!("SELECT CAST(v.value AS BIGINT) FROM ", texts!("$1"), " v"))
);

fn read(row: &Row) -> StoreResult<IndexPoint> {
    let mut columns = Columns::of(row);
    Ok(IndexPoint {
        fact: columns.id()?,
        version: columns.number()?,
        world: columns.id()?,
        audience: Audience {
            knowers: columns.json()?,
            private_to: columns.maybe_id()?,
        },
        subject: party::subject_key(columns.next()?),
        importance: {
            let value = columns.number()?;
            Importance::new(value).ok_or_else(|| StoreError::Corrupt(format!("{value} is no importance")))?
        },
        valid_at: columns.time()?,
        embedding: vector_from(columns.next::<Option<&[u8]>>()?.unwrap_or_default())?,
        terms: {
            let content: &str = columns.next()?;
            keywords::fact_terms(content, &columns.json::<Vec<String>>()?)
        },
    })
}

pub(super) async fn waiting(engine: &Engine, limit: u32) -> StoreResult<Vec<OutboxRow>> {
    let mut connection = engine.read(Reach::All).await?;
    let rows = sqlx::query(WAITING)
        .bind(i64::from(limit))
        .fetch_all(&mut *connection)
        .await
        .map_err(store_error)?;
    rows.iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok(OutboxRow {
                seq: columns.next()?,
                tenant: columns.id()?,
                fact: columns.id()?,
            })
        })
        .collect()
}

pub(super) async fn done(engine: &Engine, seqs: &[i64]) -> StoreResult<()> {
    if seqs.is_empty() {
        return Ok(());
    }
    let seqs = serde_json::Value::from(seqs).to_string();
    engine
        .write_once(Reach::All, move |connection| {
            Box::pin(async move {
                sqlx::query(DONE)
                    .bind(&seqs)
                    .execute(connection)
                    .await
                    .map(drop)
                    .map_err(store_error)
            })
        })
        .await
}

pub(super) async fn points(engine: &Engine, tenant: &TenantId, ids: &[FactId]) -> StoreResult<Vec<IndexPoint>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let now = engine.clock.now();
    let mut connection = engine.read(tenant).await?;
    let rows = sqlx::query(POINTS)
        .bind(tenant.as_str())
        .bind(micros(now))
        .bind(json_list(ids))
        .bind(&*engine.embedding_model)
        .fetch_all(&mut *connection)
        .await
        .map_err(store_error)?;
    drop(connection);
    rows.iter().map(read).collect()
}

pub(super) async fn all_points(
    engine: &Engine,
    tenant: &TenantId,
    after: Option<FactId>,
    limit: u32,
) -> StoreResult<Vec<IndexPoint>> {
    let now = engine.clock.now();
    let mut connection = engine.read(tenant).await?;
    let rows = sqlx::query(ALL_POINTS)
        .bind(tenant.as_str())
        .bind(micros(now))
        .bind(after.map(|fact| fact.to_string()).unwrap_or_default())
        .bind(i64::from(limit))
        .bind(&*engine.embedding_model)
        .fetch_all(&mut *connection)
        .await
        .map_err(store_error)?;
    drop(connection);
    rows.iter().map(read).collect()
}

#[async_trait]
impl PointSource for SqlPointSource {
    async fn points_of(&self, scope: &TenantScope, world: &WorldId, knower: &Knower) -> StoreResult<Vec<IndexPoint>> {
        points_of(&self.0, scope, world, knower, &self.0.embedding_model).await
    }

    async fn bare_points_of(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        knower: &Knower,
    ) -> StoreResult<Vec<IndexPoint>> {
        points_of(&self.0, scope, world, knower, NO_MODEL).await
    }
}

async fn points_of(
    engine: &Engine,
    scope: &TenantScope,
    world: &WorldId,
    knower: &Knower,
    model: &str,
) -> StoreResult<Vec<IndexPoint>> {
    let now = engine.clock.now();
    let mut points: Vec<IndexPoint> = Vec::new();
    loop {
        let last = points.last();
        let mut connection = engine.read(scope).await?;
        let rows = sqlx::query(POINTS_OF)
            .bind(scope.tenant().as_str())
            .bind(micros(now))
            .bind(world.as_str())
            .bind(knower.key())
            .bind(last.map_or(i64::MIN, |point| micros(point.valid_at)))
            .bind(last.map(|point| point.fact.to_string()).unwrap_or_default())
            .bind(PAGE)
            .bind(model)
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        drop(connection);
        for row in &rows {
            points.push(read(row)?);
        }
        if rows.len() < usize::try_from(PAGE).unwrap_or(usize::MAX) {
            return Ok(points);
        }
    }
}

plans_of_sqlite! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::adapters::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn a_partition_is_read_in_the_order_of_its_index() {
            assert_searches(POINTS_OF, &["knowers_newest"]).await;
            assert!(!plan(POINTS_OF).await.contains("TEMP B-TREE"));
            assert_searches(POINTS, &["SEARCH f USING INDEX"]).await;
            assert_searches(ALL_POINTS, &["SEARCH f USING INDEX"]).await;
        }
    }
}
