//! The facts from which a viewpoint knows names.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::{
    super::{
        Engine,
        rows::{Columns, to_json, to_micros},
        statements::fetch_all,
    },
    confirm, newest_names, parse_replaced_by,
};
use colloquy_core::ids::{FactId, TenantId};
use colloquy_memory::fact::Viewpoint;
use colloquy_ports::{StoreResult, ledger::facts::NamingFact};

macro_rules! naming_facts {
    ($privacy:expr) => {
        facts_of_each!(
            "f.id, f.subject, f.object, f.speaker, f.authored, f.locked_by, f.replaced_by",
            json_arrays_table!("$3"),
            newest_names!($privacy)
        )
    };
}
/// Selects the newest facts of each partition (a knower and a privacy) straight from an index. `$3` lists the
/// partitions.
const NAMING_FACTS: &str = naming_facts!(concat!(" AND k.private_to = ", row_key!("p", 1)));
/// The same for a designer, who sees every privacy. The query has to sort.
const NAMING_FACTS_FOR_DESIGNER: &str = naming_facts!("");

pub(super) async fn load_naming_facts(
    engine: &Engine,
    tenant: &TenantId,
    viewpoint: &Viewpoint,
    at: DateTime<Utc>,
    limit: u32,
) -> StoreResult<Vec<NamingFact>> {
    let mut connection = engine.acquire_reader(tenant).await?;
    let rows = fetch_all!(
        connection, if viewpoint.sees_all_players { NAMING_FACTS_FOR_DESIGNER } else { NAMING_FACTS };
        tenant, viewpoint.world, to_json(&confirm::readable_partitions(viewpoint))?, to_micros(at), i64::from(limit)
    )
    .await?;
    drop(connection);
    // A fact with several of the knowers comes once for each knower.
    let mut names: BTreeMap<FactId, (NamingFact, Vec<FactId>)> = BTreeMap::new();
    for row in &rows {
        let columns = &mut Columns::new(row);
        let fact = columns.id()?;
        let read = NamingFact {
            fact,
            subject: columns.next()?,
            name: columns.next()?,
            speaker: columns.next()?,
            authored: columns.next()?,
            locks: columns.id()?,
        };
        names.insert(fact, (read, parse_replaced_by(columns.next()?)?));
    }
    let newer = names.values().flat_map(|(_, replaced_by)| replaced_by).copied();
    let newer = confirm::find_usable(engine, tenant, viewpoint, newer.collect(), at).await?;
    names.retain(|_, (_, replaced_by)| !replaced_by.iter().any(|by| newer.contains(by)));
    Ok(names.into_values().map(|(name, _)| name).collect())
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn names_are_found_by_their_own_index() {
            let own = "knowers_of_names (tenant=? AND world=? AND knower=? AND private_to=? AND valid_at<?)";
            assert_searches(NAMING_FACTS, &[own, "SEARCH f USING INDEX"]).await;
            assert!(!plan(NAMING_FACTS).await.contains("FOR ORDER BY"));
            assert_searches(NAMING_FACTS_FOR_DESIGNER, &["knowers_of_names (tenant=? AND world=? AND knower=?)", "SEARCH f USING INDEX"]).await;
        }
    }
}
