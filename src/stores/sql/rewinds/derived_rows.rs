//! The rows caused by turns. A rewind lifts or reinstates the rows with their turns, in one trip for each direction. The
//! tables are those of the registry ([`derived_tables!`]), and those of facts and their ends.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};

use super::super::{
    context::{Connection, Row},
    facts::invalidation_id_prefix,
    rows::{Columns, json_list, to_micros},
    statements::fetch_all,
};
use colloquy_core::ids::{ActionId, FactId, RewindId, StateEventId, TenantId, TurnId};
use colloquy_memory::disclosure::audience::Knower;
use colloquy_ports::{StoreResult, ledger::rewinds::RolledBack};

/// The facts and turns that the changed rows name.
#[derive(Default)]
pub(super) struct RewindImpact {
    /// Facts that unsaid turns caused.
    pub unsaid_facts: BTreeSet<FactId>,
    /// Facts of turns that stand again.
    pub reinstated_facts: BTreeSet<FactId>,
    /// All facts that a removed or reinstated row names: their cached results may be outdated.
    pub affected_facts: BTreeSet<FactId>,
    /// Turns that asked to forget, or ended a promise. They may end facts that no row of the turns names yet.
    pub requesting_turns: BTreeSet<TurnId>,
    /// The hearers of those turns.
    pub hearers: BTreeSet<Knower>,
    /// World state or actions changed: readers of the world read all of them again.
    pub folds_anew: bool,
    /// Actions of the turns, and changes of state with their causes, for webhooks.
    pub undone: ChangedObjects,
    pub reinstated: ChangedObjects,
}

/// Actions and changes of state that a rewind took back or reinstated.
#[derive(Default)]
pub(super) struct ChangedObjects {
    pub actions: Vec<ActionId>,
    pub changes: Vec<(StateEventId, String)>,
}

/// Lifts the rows that turns (or other causes of the kind) caused; `reinstate_rows_of_turns!` is the reverse.
macro_rules! lift_rows_of_turns {
    ($table:literal) => {
        lift_rows_of_turns!($table, "turn")
    };
    ($table:literal, $kind:literal) => {
        concat!(
            "UPDATE ",
            $table,
            by_index!($table, "_by_cause"),
            " SET lifted_at = $3, lifted_by = $4
            WHERE tenant = $1 AND cause_id ",
            in_json_list!("$2"),
            " AND cause_kind = '",
            $kind,
            "' AND lifted_at IS NULL"
        )
    };
}
macro_rules! reinstate_rows_of_turns {
    ($table:literal) => {
        reinstate_rows_of_turns!($table, "turn")
    };
    ($table:literal, $kind:literal) => {
        concat!(
            "UPDATE ",
            $table,
            by_index!($table, "_by_cause"),
            " SET lifted_at = NULL, lifted_by = NULL
            WHERE tenant = $1 AND cause_id ",
            in_json_list!("$2"),
            " AND cause_kind = '",
            $kind,
            "' AND lifted_by LIKE 'rew!_%' ESCAPE '!'"
        )
    };
}
/// Membership in the facts of the turns.
macro_rules! facts_of_turns {
    () => {
        in_subquery!(concat!(
            "SELECT f.id FROM facts f WHERE f.tenant = $1 AND f.cause_id ",
            in_json_list!("$2"),
            " AND f.cause_kind = 'turn'"
        ))
    };
}
/// Selects the facts that absorbed the turns' facts, their conclusions, and the turns that asked to forget or ended a promise, with the
/// hearers.
macro_rules! affected_rows {
    () => {
        concat!(
            "SELECT 'folded_into', i.by_fact, NULL FROM facts f CROSS JOIN invalidations i",
            by_index!("invalidations_of_fact"),
            " WHERE f.tenant = $1 AND f.cause_id ",
            in_json_list!("$2"),
            " AND f.cause_kind = 'turn' AND i.tenant = $1 AND i.fact = f.id AND i.by_fact IS NOT NULL
             UNION ALL SELECT 'folded_into', l.conclusion, NULL FROM fact_premises l",
            by_index!("fact_premises_of_fact"),
            " WHERE l.tenant = $1 AND l.premise ",
            facts_of_turns!(),
            "
             UNION ALL SELECT 'asked', e.turn, e.knowers FROM extractions e WHERE e.tenant = $1 AND e.turn ",
            in_json_list!("$2"),
            " AND (e.forget <> '[]' OR e.ends <> '[]')"
        )
    };
}

/// Unsays turns. A fact of an unsaid turn was never valid at any moment, so the fact ends at its start. The id of the
/// invalidation consists of the rewind ($5) and the random part of the fact's id. The id is unique, and stays the same
/// if the transaction runs again.
macro_rules! unsay_turns {
    ([$($table:literal $dependents:tt,)*] [$($reported_table:literal $columns:literal $more_dependents:tt,)*]) => {
        batch_with_rows!(
            [
                concat!(
                    "UPDATE turns SET stands = FALSE, unsaid_at = $3, unsaid_by = $4 WHERE tenant = $1 AND id ",
                    in_json_list!("$2")
                ),
                $(lift_rows_of_turns!($table),)*
            ]
            [
                $(concat!(lift_rows_of_turns!($reported_table), " RETURNING ", $columns),)*
                concat!(
                    "UPDATE invalidations SET lifted_at = $3, lifted_by_kind = 'rewind', lifted_by_id = $4
                     WHERE tenant = $1 AND cause_id ",
                    in_json_list!("$2"),
                    " AND cause_kind = 'turn' AND lifted_at IS NULL RETURNING 'end', fact, by_fact"
                ),
                // A person decided for a statement of the turns.
                concat!(
                    "UPDATE invalidations",
                    by_index!("invalidations_by_fact"),
                    " SET lifted_at = $3, lifted_by_kind = 'rewind', lifted_by_id = $4
                     WHERE tenant = $1 AND by_fact ",
                    facts_of_turns!(),
                    " AND cause_kind || '' = 'edit' AND lifted_at IS NULL RETURNING 'end', fact, by_fact"
                ),
                concat!(
                    "INSERT INTO invalidations (tenant, id, fact, reason, cause_kind, cause_id, at)
                     SELECT $1, $5 || substr(f.id, 16), f.id, 'unsaid', 'rewind', $4, f.valid_at
                     FROM facts f WHERE f.tenant = $1 AND f.cause_id ",
                    in_json_list!("$2"),
                    " AND f.cause_kind = 'turn' RETURNING 'fact', fact, NULL"
                ),
                affected_rows!(),
            ]
        )
    };
}
const UNSAY_TURNS: &str = derived_tables!(unsay_turns);

macro_rules! reinstate_turns {
    ([$($table:literal $dependents:tt,)*] [$($reported_table:literal $columns:literal $more_dependents:tt,)*]) => {
        batch_with_rows!(
            [
                concat!(
                    "UPDATE turns SET stands = TRUE, unsaid_at = NULL, unsaid_by = NULL WHERE tenant = $1 AND id ",
                    in_json_list!("$2")
                ),
                $(reinstate_rows_of_turns!($table),)*
                concat!(
                    "UPDATE invalidations SET lifted_at = $3, lifted_by_kind = 'rewind', lifted_by_id = $4
                     WHERE tenant = $1 AND fact ",
                    facts_of_turns!(),
                    " AND reason = 'unsaid' AND lifted_at IS NULL"
                ),
            ]
            [
                $(concat!(reinstate_rows_of_turns!($reported_table), " RETURNING ", $columns),)*
                concat!(
                    "UPDATE invalidations SET lifted_at = NULL, lifted_by_kind = NULL, lifted_by_id = NULL
                     WHERE tenant = $1 AND cause_id ",
                    in_json_list!("$2"),
                    " AND cause_kind = 'turn' AND lifted_by_kind = 'rewind' RETURNING 'end', fact, by_fact"
                ),
                concat!(
                    "UPDATE invalidations",
                    by_index!("invalidations_by_fact"),
                    " SET lifted_at = NULL, lifted_by_kind = NULL, lifted_by_id = NULL
                     WHERE tenant = $1 AND by_fact ",
                    facts_of_turns!(),
                    " AND cause_kind || '' = 'edit' AND lifted_by_kind = 'rewind' RETURNING 'end', fact, by_fact"
                ),
                concat!(
                    "SELECT 'fact', f.id, NULL FROM facts f WHERE f.tenant = $1 AND f.cause_id ",
                    in_json_list!("$2"),
                    " AND f.cause_kind = 'turn'"
                ),
                affected_rows!(),
            ]
        )
    };
}
const REINSTATE_TURNS: &str = derived_tables!(reinstate_turns);

/// The events of answers go with their actions. A statement of its own, after the rows of the actions are locked: an
/// answer that was being written is visible by then.
const LIFT_ANSWERS: &str = concat!(lift_rows_of_turns!("state_events", "action"), " RETURNING id, cause_id");
const REINSTATE_ANSWERS: &str = concat!(
    reinstate_rows_of_turns!("state_events", "action"),
    " RETURNING id, cause_id"
);

/// Unsays turns, with the rows that they caused.
pub(super) async fn unsay_turns(
    connection: &mut Connection,
    tenant: &TenantId,
    turns: &str,
    rewind: RewindId,
    now: DateTime<Utc>,
    impact: &mut RewindImpact,
) -> StoreResult<RolledBack> {
    let prefix = invalidation_id_prefix(&rewind.to_string());
    let rows = fetch_all!(connection, UNSAY_TURNS; tenant, turns, to_micros(now), rewind, prefix).await?;
    let ChangedRows {
        facts,
        mut objects,
        mut rolled_back,
    } = impact.read_rows(&rows)?;
    impact.unsaid_facts.extend(facts);
    impact.folds_anew |= !objects.changes.is_empty() || !objects.actions.is_empty();
    if !objects.actions.is_empty() {
        let actions = json_list(&objects.actions);
        let lifted = fetch_all!(connection, LIFT_ANSWERS; tenant, actions, to_micros(now), rewind).await?;
        objects.changes.extend(Columns::read_rows(&lifted, read_changed_state)?);
    }
    rolled_back.state = u32::try_from(objects.changes.len()).unwrap_or(u32::MAX);
    impact.undone = objects;
    Ok(rolled_back)
}

/// Reinstates turns, with the rows that they had caused.
pub(super) async fn reinstate_turns(
    connection: &mut Connection,
    tenant: &TenantId,
    turns: &str,
    rewind: RewindId,
    now: DateTime<Utc>,
    impact: &mut RewindImpact,
) -> StoreResult<()> {
    let rows = fetch_all!(connection, REINSTATE_TURNS; tenant, turns, to_micros(now), rewind).await?;
    let ChangedRows { facts, mut objects, .. } = impact.read_rows(&rows)?;
    impact.reinstated_facts.extend(facts);
    impact.folds_anew |= !objects.changes.is_empty() || !objects.actions.is_empty();
    if !objects.actions.is_empty() {
        let answer_rows = fetch_all!(connection, REINSTATE_ANSWERS; tenant, json_list(&objects.actions)).await?;
        objects
            .changes
            .extend(Columns::read_rows(&answer_rows, read_changed_state)?);
    }
    impact.reinstated = objects;
    Ok(())
}

fn read_changed_state(columns: &mut Columns<'_>) -> StoreResult<(StateEventId, String)> {
    Ok((columns.id()?, columns.next()?))
}

/// The rows that a statement changed.
#[derive(Default)]
struct ChangedRows {
    facts: BTreeSet<FactId>,
    objects: ChangedObjects,
    /// The counts of other rows.
    rolled_back: RolledBack,
}

impl RewindImpact {
    /// Returns whether no memory is affected.
    pub(super) fn is_empty(&self) -> bool {
        self.affected_facts.is_empty() && self.requesting_turns.is_empty()
    }

    /// Adds the changed rows to the impact.
    fn read_rows(&mut self, rows: &[Row]) -> StoreResult<ChangedRows> {
        let mut changed = ChangedRows::default();
        for row in rows {
            let mut columns = Columns::new(row);
            match columns.next::<&str>()? {
                "summary" => changed.rolled_back.summaries += 1,
                "state" => changed.objects.changes.push(read_changed_state(&mut columns)?),
                "action" => changed.objects.actions.push(columns.id()?),
                "asked" => {
                    self.requesting_turns.insert(columns.id()?);
                    self.hearers.extend(columns.json::<BTreeSet<Knower>>()?);
                }
                what => {
                    let fact = columns.id()?;
                    changed.facts.extend((what == "fact").then_some(fact));
                    self.affected_facts.insert(fact);
                    self.affected_facts.extend(columns.maybe_id::<FactId>()?);
                }
            }
        }
        Ok(changed)
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use colloquy_core::ids::InvalidationId;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn derived_rows_are_found_by_their_cause() {
            for statement in UNSAY_TURNS.split(';').chain(REINSTATE_TURNS.split(';')) {
                let by_cause: &[&str] = if statement.contains("cause_id ") && statement.contains("UPDATE") {
                    &["_by_cause"]
                } else if statement.contains("FROM facts f") {
                    &["facts_by_cause"]
                } else {
                    &[]
                };
                assert_searches(statement, by_cause).await;
            }
            let concerned = affected_rows!();
            assert_searches(concerned, &["facts_by_cause", "invalidations_of_fact"]).await;
        }

        #[test]
        fn rows_that_end_facts_have_ids() {
            let (by, fact) = (RewindId::from_u128(u128::MAX >> 1), FactId::from_u128(u128::MAX >> 2));
            let row = format!("{}{}", invalidation_id_prefix(&by.to_string()), &fact.to_string()[15..]);
            assert!(row.parse::<InvalidationId>().is_ok(), "{row}");
        }
    }
}
