//! A person's correction of a fact's statement or dates: a new fact, and the end of the corrected fact.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    super::{
        context::Connection,
        rows::to_micros,
        statements::{BoundQuery, execute},
    },
    reconciliation::insert_fact,
};
use chrono::{DateTime, Utc};
use colloquy_core::ids::{FactId, InvalidationId, TenantId};
use colloquy_memory::fact::{Cause, InvalidReason};
use colloquy_ports::{
    StoreResult,
    ledger::{audit::Edit, facts::ReplacementFact},
};

const MARK_CORRECTION: &str = "UPDATE facts SET corrects = $3 WHERE tenant = $1 AND id = $2";
const INSERT_END: &str = "INSERT INTO invalidations (tenant, id, fact, reason, by_fact, cause_kind, cause_id, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

/// Ends the fact `fact` by a person's edit, at the time of the edit, once for each fact of `successors`: the end counts
/// as long as one of them is said.
pub(super) async fn supersede_fact(
    connection: &mut Connection,
    tenant: &TenantId,
    fact: FactId,
    successors: &[FactId],
    edit: &Edit,
) -> StoreResult<()> {
    // The time of the edit, and the random bits of both ids.
    const RANDOM_BITS: u128 = (1 << 80) - 1;
    for successor in successors {
        let id = InvalidationId::from_u128(edit.id.as_u128() ^ (successor.as_u128() & RANDOM_BITS));
        let end = bind!(INSERT_END; tenant, id, fact, InvalidReason::Superseded.as_str(), Some(*successor));
        execute(connection, bind_cause(end, edit, edit.made_at)).await?;
    }
    Ok(())
}

fn bind_cause<'q>(query: BoundQuery<'q>, edit: &Edit, moment: DateTime<Utc>) -> BoundQuery<'q> {
    let (cause_kind, cause_id) = Cause::Edit(edit.id).to_columns();
    query.bind(cause_kind).bind(cause_id).bind(to_micros(moment))
}

/// A corrected conclusion falls with what the conclusion was read from.
const COPY_PREMISES: &str = "INSERT INTO fact_premises (tenant, conclusion, premise, sentence, beside)
    SELECT tenant, $2, premise, sentence, beside FROM fact_premises WHERE tenant = $1 AND conclusion = $3";

/// Writes the new fact and the end of the fact `corrected`. Returns the facts whose cached results are outdated.
pub(super) async fn insert_replacement(
    connection: &mut Connection,
    tenant: &TenantId,
    model: &Arc<str>,
    corrected: FactId,
    replacement: &ReplacementFact,
    edit: &Edit,
) -> StoreResult<BTreeSet<FactId>> {
    let new_fact = &replacement.fact;
    insert_fact(connection, tenant, model, new_fact, edit.made_at).await?;
    execute!(connection, MARK_CORRECTION; tenant, new_fact.id, corrected).await?;
    execute!(connection, COPY_PREMISES; tenant, new_fact.id, corrected).await?;
    supersede_fact(connection, tenant, corrected, &[new_fact.id], edit).await?;
    if let Some(invalid_at) = replacement.invalid_at {
        // A new fact ends once at first, so the row can take its id from the fact's bits.
        let id = InvalidationId::from_u128(new_fact.id.as_u128());
        let end = bind!(INSERT_END; tenant, id, new_fact.id, InvalidReason::Ended.as_str(), None::<FactId>);
        execute(connection, bind_cause(end, edit, invalid_at)).await?;
    }
    Ok(BTreeSet::from([corrected, new_fact.id]))
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn correction_is_marked_by_key() {
            assert_searches(MARK_CORRECTION, &[]).await;
            assert_searches(COPY_PREMISES, &["(tenant=? AND conclusion=?)"]).await;
        }
    }
}
