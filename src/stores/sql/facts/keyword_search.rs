//! The words of facts that a viewpoint may use, for recall without an index.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::{
    super::{
        Engine,
        rows::{Columns, to_json, to_micros},
        statements::fetch_all,
    },
    confirm,
};
use colloquy_core::ids::{FactId, TenantId};
use colloquy_memory::fact::{Importance, Viewpoint};
use colloquy_ports::{StoreError, StoreResult, ledger::facts::KeywordFact};

macro_rules! keyword_facts {
    ($privacy:expr) => {
        facts_of_each!(
            "f.id, f.version, f.view_importance, f.valid_at, f.view_content, f.view_keywords",
            json_arrays_table!("$3"),
            concat!(
                "SELECT k.fact FROM fact_knowers k
                 WHERE k.tenant = $1 AND k.world = $2 AND k.knower = ",
                row_key!("p", 0),
                $privacy,
                " AND k.valid_at <= $4 AND (k.ends_at IS NULL OR k.ends_at > $4)
                 ORDER BY k.valid_at DESC, k.fact DESC LIMIT $5"
            )
        )
    };
}
/// Selects the newest facts of each partition (a knower and a privacy) straight from an index. `$3` lists the
/// partitions.
const KEYWORD_FACTS: &str = keyword_facts!(concat!(" AND k.private_to = ", row_key!("p", 1)));
/// The same for a designer, who sees every privacy.
const KEYWORD_FACTS_FOR_DESIGNER: &str = keyword_facts!("");

pub(super) async fn load_keyword_facts(
    engine: &Engine,
    tenant: &TenantId,
    viewpoint: &Viewpoint,
    at: DateTime<Utc>,
    limit: u32,
) -> StoreResult<Vec<KeywordFact>> {
    let mut connection = engine.acquire_reader(tenant).await?;
    let rows = fetch_all!(
        connection, if viewpoint.sees_all_players { KEYWORD_FACTS_FOR_DESIGNER } else { KEYWORD_FACTS };
        tenant, viewpoint.world, to_json(&confirm::readable_partitions(viewpoint))?, to_micros(at), i64::from(limit)
    )
    .await?;
    drop(connection);
    // A fact with several of the knowers comes once for each knower.
    let mut worded: HashMap<FactId, KeywordFact> = HashMap::with_capacity(rows.len());
    for row in &rows {
        let columns = &mut Columns::new(row);
        let fact = columns.id()?;
        let version = columns.number()?;
        let importance = columns.number()?;
        let read = KeywordFact {
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

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn newest_worded_facts_are_sorted_by_an_index() {
            let own = "knowers_by_reader (tenant=? AND world=? AND knower=? AND private_to=? AND valid_at<?)";
            assert_searches(KEYWORD_FACTS, &[own, "SEARCH f USING INDEX"]).await;
            assert_searches(KEYWORD_FACTS_FOR_DESIGNER, &["knowers_newest", "SEARCH f USING INDEX"]).await;
            for statement in [KEYWORD_FACTS, KEYWORD_FACTS_FOR_DESIGNER] {
                assert!(!plan(statement).await.contains("FOR ORDER BY"), "{statement}");
            }
        }
    }
}
