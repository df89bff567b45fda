//! Records which facts replace a fact for viewers that may know both.

use std::collections::BTreeMap;

use super::super::{
    context::Connection,
    rows::{Columns, json_list, to_json},
    statements::{execute, fetch_all},
};
use colloquy_core::ids::{FactId, TenantId};
use colloquy_memory::timeline::FactReplacement;
use colloquy_ports::StoreResult;

macro_rules! append_replaced_by {
    ($table:literal, $id:literal) => {
        concat!(
            "UPDATE ",
            $table,
            " SET replaced_by = replaced_by || (v.value ->> 1) FROM ",
            json_arrays_table!("$2"),
            " v WHERE ",
            $table,
            ".tenant = $1 AND ",
            $table,
            ".",
            $id,
            " = ",
            row_key!("v", 0),
            " AND ",
            $table,
            ".",
            $id,
            " IN (SELECT ",
            row_key!("w", 0),
            " FROM ",
            json_arrays_table!("$2"),
            " w)"
        )
    };
}
/// Each id has a leading `+`. The `IN` repeats the join condition: without the repetition SQLite's planner walks the
/// tenant's facts.
const APPEND_REPLACED_BY: &str = batch!(
    append_replaced_by!("facts", "id"),
    append_replaced_by!("fact_knowers", "fact")
);

const CONCLUSIONS_OF: &str = concat!(
    "SELECT premise, conclusion FROM fact_premises",
    by_index!("fact_premises_of_fact"),
    " WHERE tenant = $1 AND beside = 0 AND premise ",
    in_json_list!("$2")
);

pub(super) async fn append_replaced_by(
    connection: &mut Connection,
    tenant: &TenantId,
    replaced: &[FactReplacement],
) -> StoreResult<()> {
    if replaced.is_empty() {
        return Ok(());
    }
    let mut successor_ids: BTreeMap<FactId, String> = BTreeMap::new();
    for FactReplacement { fact, successor: newer } in replaced {
        let ids = successor_ids.entry(*fact).or_default();
        ids.push('+');
        ids.push_str(&newer.to_string());
    }
    // A conclusion is replaced with any of its premises.
    let rows = fetch_all!(connection, CONCLUSIONS_OF; tenant, json_list(successor_ids.keys())).await?;
    let conclusions = Columns::read_rows(&rows, |columns| Ok((columns.id::<FactId>()?, columns.id::<FactId>()?)))?;
    for (premise, conclusion) in conclusions {
        let ids = successor_ids.get(&premise).cloned().unwrap_or_default();
        successor_ids.entry(conclusion).or_default().push_str(&ids);
    }
    execute!(connection, APPEND_REPLACED_BY; tenant, to_json(&successor_ids.into_iter().collect::<Vec<_>>())?)
        .await
        .map(drop)
}
