//! The facts by which a viewpoint knows who is who.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::{
    super::{
        Engine,
        rows::{Columns, json, micros, store_error},
    },
    confirm, newest_names, replacing,
};
use crate::{
    ids::{FactId, TenantId},
    memory::fact::Viewpoint,
    ports::{StoreResult, ledger::facts::NamingFact},
};

macro_rules! names {
    ($privacy:expr) => {
        facts_of_each!(
            "f.id, f.subject, f.object, f.speaker, f.authored, f.locked_by, f.replaced_by",
            rows!("$3"),
            newest_names!($privacy)
        )
    };
}
/// The newest of each partition (a knower and a privacy) come straight off an index. `$3` lists the partitions.
const NAMES: &str = names!(concat!(" AND k.private_to = ", key_of!("p", 1)));
/// The same for a designer, who sees every privacy; sorts.
const NAMES_FOR_ALL: &str = names!("");

pub(super) async fn names(
    engine: &Engine,
    tenant: &TenantId,
    viewpoint: &Viewpoint,
    at: DateTime<Utc>,
    limit: u32,
) -> StoreResult<Vec<NamingFact>> {
    let mut connection = engine.read(tenant).await?;
    let rows = sqlx::query(if viewpoint.sees_all_players {
        NAMES_FOR_ALL
    } else {
        NAMES
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
    let mut names: BTreeMap<FactId, (NamingFact, Vec<FactId>)> = BTreeMap::new();
    for row in &rows {
        let columns = &mut Columns::of(row);
        let fact = columns.id()?;
        let read = NamingFact {
            fact,
            subject: columns.next()?,
            name: columns.next()?,
            speaker: columns.next()?,
            authored: columns.next()?,
            locks: columns.id()?,
        };
        names.insert(fact, (read, replacing(columns.next()?)?));
    }
    let newer = names.values().flat_map(|(_, replaced_by)| replaced_by).copied();
    let newer = confirm::usable(engine, tenant, viewpoint, newer.collect(), at).await?;
    names.retain(|_, (_, replaced_by)| !replaced_by.iter().any(|by| newer.contains(by)));
    Ok(names.into_values().map(|(name, _)| name).collect())
}

plans_of_sqlite! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::adapters::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn names_are_found_by_an_index_of_their_own() {
            let own = "knowers_of_names (tenant=? AND world=? AND knower=? AND private_to=? AND valid_at<?)";
            assert_searches(NAMES, &[own, "SEARCH f USING INDEX"]).await;
            assert!(!plan(NAMES).await.contains("FOR ORDER BY"));
            assert_searches(NAMES_FOR_ALL, &["knowers_of_names (tenant=? AND world=? AND knower=?)", "SEARCH f USING INDEX"]).await;
        }
    }
}
