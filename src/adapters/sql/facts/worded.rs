//! The words of what a viewpoint may use, for recall without an index.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::{
    super::{
        Engine,
        rows::{Columns, json, micros, store_error},
    },
    confirm,
};
use crate::{
    ids::{FactId, TenantId},
    memory::fact::{Importance, Viewpoint},
    ports::{StoreError, StoreResult, ledger::facts::Worded},
};

macro_rules! worded {
    ($privacy:expr) => {
        facts_of_each!(
            "f.id, f.version, f.view_importance, f.valid_at, f.view_content, f.view_keywords",
            rows!("$3"),
            concat!(
                "SELECT k.fact FROM fact_knowers k
                 WHERE k.tenant = $1 AND k.world = $2 AND k.knower = ",
                key_of!("p", 0),
                $privacy,
                " AND k.valid_at <= $4 AND (k.ends_at IS NULL OR k.ends_at > $4)
                 ORDER BY k.valid_at DESC, k.fact DESC LIMIT $5"
            )
        )
    };
}
/// The newest of each partition (a knower and a privacy) come straight off an index. `$3` lists the partitions.
const WORDED: &str = worded!(concat!(" AND k.private_to = ", key_of!("p", 1)));
/// The same for a designer, who sees every privacy.
const WORDED_FOR_ALL: &str = worded!("");

pub(super) async fn worded(
    engine: &Engine,
    tenant: &TenantId,
    viewpoint: &Viewpoint,
    at: DateTime<Utc>,
    limit: u32,
) -> StoreResult<Vec<Worded>> {
    let mut connection = engine.read(tenant).await?;
    let rows = sqlx::query(if viewpoint.sees_all_players {
        WORDED_FOR_ALL
    } else {
        WORDED
    })
    .bind(tenant.as_str())
    .bind(viewpoint.world.as_str())
    .bind(json(&confirm::partitions(viewpoint))?)
    .bind(micros(at))
    .bind(i64::from(limit))
    .fetch_all(&mut *connection)
    .await
    .map_err(store_error)?;
    drop(connection);
    // A fact that several of them know comes once for each.
    let mut worded: HashMap<FactId, Worded> = HashMap::with_capacity(rows.len());
    for row in &rows {
        let columns = &mut Columns::of(row);
        let fact = columns.id()?;
        let version = columns.number()?;
        let importance = columns.number()?;
        let read = Worded {
            fact,
            version,
            importance: Importance::new(importance)
                .ok_or_else(|| StoreError::Corrupt(format!("{importance} is no importance")))?,
            valid_at: columns.time()?,
            content: columns.next()?,
            keywords: columns.json()?,
        };
        worded.insert(fact, read);
    }
    Ok(worded.into_values().collect())
}

plans_of_sqlite! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::adapters::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn the_newest_come_sorted_off_an_index() {
            let own = "knowers_by_reader (tenant=? AND world=? AND knower=? AND private_to=? AND valid_at<?)";
            assert_searches(WORDED, &[own, "SEARCH f USING INDEX"]).await;
            assert_searches(WORDED_FOR_ALL, &["knowers_newest", "SEARCH f USING INDEX"]).await;
            for statement in [WORDED, WORDED_FOR_ALL] {
                assert!(!plan(statement).await.contains("FOR ORDER BY"), "{statement}");
            }
        }
    }
}
