//! The facts that a curation pass compares with its turns.

use super::{
    super::{
        context::Engine,
        joint_read::JointRead,
        rows::{json_list, to_micros},
    },
    fact_columns, read_fact,
};
use colloquy_core::ids::TenantId;
use colloquy_memory::disclosure::audience::Knower;
use colloquy_ports::{
    StoreResult,
    ledger::curation::{PassFactQuery, PassFacts},
};

/// A condition for facts `f` that have not expired at `$6`.
macro_rules! is_unexpired {
    () => {
        "(f.expires_at IS NULL OR f.expires_at > $6 OR f.view_pinned = TRUE)"
    };
}
/// The turns of the dialogue come first, then the facts of each.
const LEARNED_FACTS: &str = concat!(
    "SELECT ",
    fact_columns!(),
    " FROM turns t CROSS JOIN facts f
      WHERE t.tenant = $1 AND t.dialogue = $2 AND t.stands = TRUE AND t.number <= $4
        AND f.tenant = $1 AND f.cause_id = t.id AND f.cause_kind = 'turn'
        AND (f.private_to IS NULL OR f.private_to = $5) AND ",
    is_unexpired!(),
    " AND NOT EXISTS (
            SELECT 1 FROM invalidations i",
    by_index!("invalidations_of_fact"),
    " WHERE i.tenant = $1 AND i.fact = f.id AND i.lifted_at IS NULL AND i.at <= $6
              AND (i.cause_kind <> 'turn' OR i.reason = 'forgotten'
                   OR EXISTS (SELECT 1 FROM turns c WHERE c.tenant = $1 AND c.id = i.cause_id
                              AND c.dialogue = $2 AND c.number <= $4)))
      ORDER BY CASE WHEN t.number < $3 THEN 0 ELSE 1 END, f.importance DESC, t.number DESC, f.id LIMIT $7"
);
/// Ids begin with their kind. The range has all facts of the tenant that people wrote.
const AUTHORED_FACTS: &str = concat!(
    "SELECT ",
    fact_columns!(),
    " FROM facts f",
    by_index!("facts_by_cause"),
    " WHERE f.tenant = $1 AND f.cause_id >= 'edit_' AND f.cause_id < 'edit`' AND f.cause_kind = 'edit'
        AND f.authored = TRUE AND f.world = $2 AND f.locked_by = '' AND f.valid_at <= $3
        AND (f.invalid_at IS NULL OR f.invalid_at > $6)
        AND (f.private_to IS NULL OR f.private_to = $5) AND ",
    is_unexpired!(),
    " AND ",
    has_one_of!("f.knowers", "$4"),
    " ORDER BY f.view_importance DESC, f.cause_id DESC LIMIT $7"
);

/// Reads the facts for a pass.
pub(in super::super) async fn load_pass_facts(
    engine: &Engine,
    tenant: &TenantId,
    query: &PassFactQuery,
) -> StoreResult<PassFacts> {
    let now = to_micros(query.now);
    let limit = i64::from(query.limit);
    let mut read = JointRead::new();
    let learned = read.add(LEARNED_FACTS, |bound| {
        let (from, to) = query.turns;
        Ok(bind_to!(bound; tenant, query.dialogue, i64::from(from), i64::from(to), query.player, now, limit))
    });
    let authored = read.add(AUTHORED_FACTS, |bound| {
        let knowers = json_list(query.knowers.iter().map(Knower::store_key));
        let said_at = to_micros(query.said_at);
        Ok(bind_to!(bound; tenant, query.world, said_at, knowers, query.player, now, limit))
    });
    let found = read.fetch(engine, tenant).await?;
    Ok(PassFacts {
        learned: found.read_rows(learned, read_fact)?,
        authored: found.read_rows(authored, read_fact)?,
    })
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn facts_of_a_pass_are_found_by_their_causes() {
            let by_turn = "facts_by_cause (tenant=? AND cause_id=?)";
            assert_searches(LEARNED_FACTS, &["turns_standing (tenant=? AND dialogue=? AND number<?)", by_turn]).await;
            let of_people = "facts_by_cause (tenant=? AND cause_id>? AND cause_id<?)";
            assert_searches(AUTHORED_FACTS, &[of_people]).await;
        }
    }
}
