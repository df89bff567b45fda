//! What a player asked to forget, or a person removed.

use chrono::{DateTime, Utc};

use super::{
    super::{
        Engine,
        rows::{Columns, json_list, micros, store_error},
    },
    confirm::knower_keys,
};
use crate::{
    ids::{PlayerId, TenantId},
    memory::fact::Viewpoint,
    ports::StoreResult,
};

macro_rules! taken_out {
    ($privacy:literal) => {
        concat!(
            "SELECT f.view_content, f.invalid_at FROM facts f
             WHERE f.tenant = $1 AND f.world = $2 AND f.private_to ",
            $privacy,
            " AND f.invalid_at >= $4 AND f.invalid_reason IN ('forgotten', 'removed')
               AND EXISTS (SELECT 1 FROM fact_knowers k WHERE k.tenant = $1 AND k.fact = f.id AND k.knower ",
            among!("$5"),
            ")"
        )
    };
}
/// The latest, off the index.
const TAKEN_OUT: &str = concat!(
    taken_out!("= $3"),
    " UNION ALL ",
    taken_out!("IS NULL"),
    " ORDER BY 2 DESC LIMIT $6"
);

pub(super) async fn taken_out(
    engine: &Engine,
    tenant: &TenantId,
    viewpoint: &Viewpoint,
    since: DateTime<Utc>,
    limit: u32,
) -> StoreResult<Vec<String>> {
    let mut connection = engine.read(tenant).await?;
    let rows = sqlx::query(TAKEN_OUT)
        .bind(tenant.as_str())
        .bind(viewpoint.world.as_str())
        .bind(viewpoint.player.as_ref().map(PlayerId::as_str))
        .bind(micros(since))
        .bind(json_list(knower_keys(viewpoint)))
        .bind(i64::from(limit))
        .fetch_all(&mut *connection)
        .await
        .map_err(store_error)?;
    rows.iter().map(|row| Columns::of(row).next()).collect()
}

plans_of_sqlite! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::adapters::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn what_was_taken_out_is_found_by_index_and_in_order() {
            let index = "facts_taken_out (tenant=? AND world=? AND private_to=? AND invalid_at>?)";
            assert_searches(TAKEN_OUT, &[index]).await;
            assert!(!plan(TAKEN_OUT).await.contains("TEMP B-TREE"));
        }
    }
}
