//! The registry of derived tables: tables of rows that turns cause, and that stand while their turns stand.
//!
//! A row names its cause (`cause_kind`, `cause_id`), and the rewind or edit that lifted the row (`lifted_at`,
//! `lifted_by`). The index `<table>_by_cause` has `tenant, cause_id`. All else follows from the table's entry:
//!
//! | event | rows of the turn |
//! | --- | --- |
//! | a rewind or a restore unsays the turn | lifted (`rewinds::derived_rows`) |
//! | a rewind or a restore makes the turn stand again | reinstated, if a rewind had lifted them |
//! | the turn was unsaid long ago, and no save needs the turn | deleted (`prune::unsaid`) |
//! | a save | unchanged: a save pins turns, and the rows of pinned turns stay |
//! | a deleted world or NPC | unchanged: the world or NPC is hidden, and may come back with its memory |
//!
//! Other rows with a cause are handled by hand:
//! - `facts`, `invalidations`: a fact ends by an invalidation, which has a cause of its own.
//! - `state_events` whose cause is an action: they follow the action.
//! - `dialogues`: a rewind closes the sessions that joined at a removed turn.
//! - `saves`: no turn causes a save.

/// Deletes the decisions of persons about findings of the turns.
macro_rules! delete_decisions {
    () => {
        concat!(
            "DELETE FROM curation_decisions WHERE tenant = $1 AND finding ",
            in_subquery!(concat!(
                "SELECT f.id FROM curation_findings f WHERE f.tenant = $1 AND f.cause_id ",
                in_json_list!("$2"),
                " AND f.cause_kind = 'turn' AND f.lifted_at IS NOT NULL"
            ))
        )
    };
}
/// Deletes the events of answers to actions of the turns.
macro_rules! delete_answers {
    () => {
        concat!(
            "DELETE FROM state_events WHERE tenant = $1 AND cause_id ",
            in_subquery!(concat!(
                "SELECT a.id FROM actions a WHERE a.tenant = $1 AND a.cause_id ",
                in_json_list!("$2"),
                " AND a.cause_kind = 'turn'"
            )),
            " AND cause_kind = 'action' AND lifted_at IS NOT NULL"
        )
    };
}

/// Calls a macro with the derived tables, in two groups: tables whose changed rows a rewind does not report, and tables
/// whose changed rows a rewind reports, with the reported columns. A label comes first (`RewindImpact::read_rows`).
///
/// In brackets: statements that run before the rows of the turns `$2` are deleted. They delete rows that depend on these
/// and have other causes.
macro_rules! derived_tables {
    ($callback:ident) => {
        $callback! {
            [
                "summary_changes" [],
                "fact_flags" [],
                "episodes" [],
                "curation_passes" [],
                "curation_findings" [delete_decisions!()],
                "curation_decisions" [],
                "insights" [],
            ]
            [
                "summaries" "'summary', NULL, NULL" [],
                "state_events" "'state', id, cause_id" [],
                "actions" "'action', id, NULL" [delete_answers!()],
            ]
        }
    };
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use std::collections::BTreeSet;

        use crate::{migrations, sqlite::plans::open_empty_database};

        macro_rules! table_names {
            ([$($table:literal $dependents:tt,)*] [$($reported_table:literal $columns:literal $more_dependents:tt,)*]) => {
                [$($table,)* $($reported_table,)*]
            };
        }
        /// Tables of rows with a cause that are handled by hand.
        const OTHER_TABLES: [&str; 4] = ["facts", "invalidations", "dialogues", "saves"];
        const TABLES_WITH_COLUMN: &str = "SELECT t.name FROM sqlite_schema t CROSS JOIN pragma_table_info(t.name) c
            WHERE t.type = 'table' AND c.name = $1";

        #[tokio::test]
        async fn tables_with_causes_are_registered() {
            let (_folder, mut connection) = open_empty_database().await;
            let derived_tables = BTreeSet::from(derived_tables!(table_names).map(str::to_owned));
            let other_tables = OTHER_TABLES.map(str::to_owned);
            for column in ["cause_kind", "cause_id", "lifted_at", "lifted_by"] {
                let names: Vec<String> = sqlx::query_scalar(TABLES_WITH_COLUMN)
                    .bind(column)
                    .fetch_all(&mut connection)
                    .await
                    .expect("names of tables");
                let mut tables = BTreeSet::from_iter(names);
                tables.retain(|table| !other_tables.contains(table));
                assert_eq!(tables, derived_tables, "the tables with the column {column}, and the registry");
            }
        }

        #[test]
        fn both_engines_have_indexes_by_cause() {
            for table in derived_tables!(table_names) {
                let index = format!("INDEX {table}_by_cause ON {table} (tenant, cause_id)");
                for history in [&migrations::SQLITE, &migrations::POSTGRES] {
                    let is_created = history.iter().any(|migration| migration.sql.as_str().contains(&index));
                    assert!(is_created, "{index}");
                }
            }
        }
    }
}
