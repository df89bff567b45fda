//! The flags of given facts: open ones, and those with a decision.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::{DateTime, Utc};

use super::{
    super::{
        audit::read_role,
        context::Connection,
        rows::{Columns, json_list},
        statements::fetch_all,
    },
    lists::load_facts,
};
use colloquy_core::ids::{FactId, TenantId};
use colloquy_memory::{
    fact::{Fact, Statement},
    flags::{
        DecidedFlag, FlagDecision, FlagEntry, FlagKind, StatementDecision, is_over_merged, is_said, is_same_statement,
        pii_statement,
    },
};
use colloquy_ports::StoreResult;

const CONTRADICTING: &str = concat!(
    "SELECT fact, by_fact, at FROM fact_flags WHERE tenant = $1 AND lifted_at IS NULL AND fact ",
    in_json_list!("$2")
);
/// Each fact with the statements that were merged into it, at any depth, and itself.
const MERGED_INTO: &str = concat!(
    "WITH RECURSIVE merged (root, id) AS (
        SELECT v.value, v.value FROM ",
    json_texts_table!("$2"),
    " v
        UNION
        SELECT m.root, i.fact FROM merged m CROSS JOIN invalidations i",
    by_index!("invalidations_by_fact"),
    "
        WHERE i.tenant = $1 AND i.by_fact = m.id AND i.reason = 'duplicate' AND i.lifted_at IS NULL
          AND NOT EXISTS (SELECT 1 FROM invalidations u WHERE u.tenant = $1 AND u.fact = i.fact
                          AND u.reason = 'unsaid' AND u.lifted_at IS NULL))
     SELECT root, id FROM merged"
);
macro_rules! select_decisions {
    ($index:expr, $condition:expr) => {
        concat!(
            "SELECT fact, statement, decision, reason, decided_by, role, at FROM flag_decisions",
            $index,
            " WHERE tenant = $1 AND flag = $2 AND ",
            $condition
        )
    };
}
const DECISIONS: &str = concat!(
    select_decisions!("", concat!("fact ", in_json_list!("$3"))),
    " UNION ",
    select_decisions!(
        by_index!("flag_decisions_of_statement"),
        concat!("statement ", in_json_list!("$4"))
    )
);

/// Which flags to build.
#[derive(Clone, Copy)]
pub(super) struct FlagQuery {
    pub flag: FlagKind,
    /// True: flags with a decision. False: open flags.
    pub decided: bool,
    /// The present moment.
    pub as_of: DateTime<Utc>,
}

/// The rows behind the flags of some facts.
struct FlagRows {
    query: FlagQuery,
    facts: HashMap<FactId, Fact>,
    /// For each contradicted fact, its contradicting statements and when they were found.
    contradicting: BTreeMap<FactId, Vec<(FactId, DateTime<Utc>)>>,
    /// For each fact or contradicting statement, the statements merged into it, and itself.
    merged: BTreeMap<FactId, BTreeSet<FactId>>,
    decisions: Vec<StatementDecision>,
}

fn read_decision(columns: &mut Columns<'_>) -> StoreResult<StatementDecision> {
    Ok(StatementDecision {
        fact: columns.id()?,
        statement: columns.next()?,
        decided: DecidedFlag {
            decision: columns.named(FlagDecision::ALL, FlagDecision::as_str)?,
            reason: columns.next()?,
            decided_by: columns.next()?,
            role: read_role(columns)?,
            decided_at: columns.time()?,
        },
    })
}

/// Returns the flags of `ids`, in their order. Facts without such a flag are left out.
pub(super) async fn load_entries(
    connection: &mut Connection,
    tenant: &TenantId,
    query: FlagQuery,
    ids: &[FactId],
) -> StoreResult<Vec<FlagEntry>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut contradicting: BTreeMap<FactId, Vec<(FactId, DateTime<Utc>)>> = BTreeMap::new();
    if query.flag == FlagKind::Contradicted {
        let rows = fetch_all!(connection, CONTRADICTING; tenant, json_list(ids)).await?;
        for row in &rows {
            let mut columns = Columns::new(row);
            let fact = columns.id()?;
            let statement = columns.id()?;
            let flagged_at = columns.time()?;
            contradicting.entry(fact).or_default().push((statement, flagged_at));
        }
    }
    let statements = contradicting.values().flatten().map(|(statement, _)| *statement);
    let roots: BTreeSet<FactId> = match query.flag {
        FlagKind::Contradicted => statements.collect(),
        FlagKind::Pii | FlagKind::OverMerged => ids.iter().copied().collect(),
    };
    let mut merged: BTreeMap<FactId, BTreeSet<FactId>> = BTreeMap::new();
    let rows = fetch_all!(connection, MERGED_INTO; tenant, json_list(roots)).await?;
    for row in &rows {
        let mut columns = Columns::new(row);
        merged.entry(columns.id()?).or_default().insert(columns.id()?);
    }
    let mut of_facts: BTreeSet<FactId> = ids.iter().copied().collect();
    let mut of_statements: BTreeSet<FactId> = BTreeSet::new();
    match query.flag {
        FlagKind::Contradicted => {}
        FlagKind::Pii => of_facts.extend(merged.values().flatten()),
        FlagKind::OverMerged => of_statements.extend(merged.values().flatten()),
    }
    let rows = fetch_all!(
        connection, DECISIONS;
        tenant, query.flag.as_str(), json_list(of_facts), json_list(of_statements)
    )
    .await?;
    let decisions = Columns::read_rows(&rows, read_decision)?;
    let decided = decisions.iter().filter_map(|decided| decided.statement.parse().ok());
    let fact_ids: BTreeSet<FactId> = (ids.iter().copied())
        .chain(merged.values().flatten().copied())
        .chain(decided)
        .collect();
    let rows = FlagRows {
        query,
        facts: load_facts(connection, tenant, &fact_ids).await?,
        contradicting,
        merged,
        decisions,
    };
    Ok(ids.iter().filter_map(|id| rows.entry_of(*id)).collect())
}

impl FlagRows {
    fn entry_of(&self, id: FactId) -> Option<FlagEntry> {
        let fact = self.facts.get(&id).filter(|fact| is_said(fact))?;
        if !self.query.decided && !fact.is_valid_at(self.query.as_of) {
            return None;
        }
        match self.query.flag {
            FlagKind::Contradicted => self.contradiction_of(fact),
            FlagKind::Pii => self.personal_data_of(fact),
            FlagKind::OverMerged => self.merge_of(fact),
        }
    }

    fn contradiction_of(&self, fact: &Fact) -> Option<FlagEntry> {
        let mut statements = Vec::new();
        let mut decisions = Vec::new();
        for (statement_id, flagged_at) in self.contradicting.get(&fact.id).into_iter().flatten() {
            let Some(statement) = self.facts.get(statement_id) else {
                continue;
            };
            let decided = self.decision_about(fact, statement);
            if decided.is_some() == self.query.decided
                && (self.query.decided || statement.is_valid_at(self.query.as_of))
            {
                statements.push((statement.clone(), *flagged_at));
                decisions.extend(decided);
            }
        }
        let flagged_at = statements.iter().map(|(_, flagged_at)| *flagged_at).max()?;
        let statements = statements.into_iter().map(|(statement, _)| statement).collect();
        Some(self.entry(fact, flagged_at, statements, decisions))
    }

    /// The latest decision about a contradicting statement, or about a statement that it repeats.
    fn decision_about(&self, fact: &Fact, statement: &Fact) -> Option<&DecidedFlag> {
        let merged = self.merged.get(&statement.id);
        let decided = self.decisions.iter().filter(|decided| {
            let statement_id = decided.statement.parse().ok();
            let is_merged =
                statement_id.is_some_and(|statement_id| merged.is_some_and(|merged| merged.contains(&statement_id)));
            // A dismissed sentence is dismissed wherever else it is said.
            let is_repeated = || {
                decided.decided.decision == FlagDecision::Dismissed
                    && statement_id
                        .and_then(|id| self.said_statement(id))
                        .is_some_and(|said_statement| is_same_statement(said_statement, &statement.statement))
            };
            decided.fact == fact.id && (is_merged || is_repeated())
        });
        decided
            .map(|decided| &decided.decided)
            .max_by_key(|decided| decided.decided_at)
    }

    /// The statement of a fact whose turn was not taken back.
    fn said_statement(&self, id: FactId) -> Option<&Statement> {
        let fact = self.facts.get(&id).filter(|fact| is_said(fact))?;
        Some(&fact.statement)
    }

    fn personal_data_of(&self, fact: &Fact) -> Option<FlagEntry> {
        let kinds = pii_statement(fact);
        let of_merged = |decided: &&StatementDecision| {
            let merged = self.merged.get(&fact.id);
            decided.fact == fact.id || merged.is_some_and(|merged| merged.contains(&decided.fact))
        };
        let decided = self.decisions.iter().filter(of_merged);
        let flagged = if self.query.decided {
            decided.filter(|decided| decided.fact == fact.id).collect()
        } else if kinds.is_empty() || decided.clone().any(|decided| decided.statement == kinds) {
            return None;
        } else {
            Vec::new()
        };
        if self.query.decided && flagged.is_empty() {
            return None;
        }
        let decisions = flagged.into_iter().map(|decided| &decided.decided).collect();
        Some(self.entry(fact, fact.id.made_at(), Vec::new(), decisions))
    }

    fn merge_of(&self, fact: &Fact) -> Option<FlagEntry> {
        let own_decisions = self.decisions.iter().filter(|decided| decided.fact == fact.id);
        let ids: BTreeSet<FactId> = if self.query.decided {
            own_decisions
                .clone()
                .filter_map(|decided| decided.statement.parse().ok())
                .collect()
        } else {
            self.merged.get(&fact.id).cloned().unwrap_or_default()
        };
        let statements: Vec<Fact> = (ids.iter())
            .filter_map(|id| self.facts.get(id))
            .filter(|statement| is_said(statement))
            .cloned()
            .collect();
        if !is_over_merged(statements.iter().map(|statement| &statement.statement)) {
            return None;
        }
        let decided = |statement: &Fact| {
            self.decisions.iter().any(|decided| {
                let statement_id = decided.statement.parse().ok();
                statement_id == Some(statement.id)
                    || statement_id
                        .and_then(|id| self.said_statement(id))
                        .is_some_and(|said_statement| is_same_statement(said_statement, &statement.statement))
            })
        };
        if !self.query.decided && statements.iter().all(decided) {
            return None;
        }
        let flagged_at = statements.iter().map(|statement| statement.valid_at).max()?;
        let decisions = if self.query.decided {
            own_decisions.map(|decided| &decided.decided).collect()
        } else {
            Vec::new()
        };
        Some(self.entry(fact, flagged_at, statements, decisions))
    }

    fn entry(
        &self,
        fact: &Fact,
        flagged_at: DateTime<Utc>,
        mut statements: Vec<Fact>,
        decisions: Vec<&DecidedFlag>,
    ) -> FlagEntry {
        statements.sort_by_key(|statement| (statement.valid_at, statement.id));
        FlagEntry {
            fact: fact.clone(),
            flag: self.query.flag,
            flagged_at,
            statements,
            decided: decisions.into_iter().max_by_key(|decided| decided.decided_at).cloned(),
        }
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn flags_of_facts_are_found_by_key() {
            assert_searches(CONTRADICTING, &["PRIMARY KEY (tenant=? AND fact=?"]).await;
            assert_searches(DECISIONS, &["PRIMARY KEY (tenant=? AND fact=?", "flag_decisions_of_statement"]).await;
            let merged = plan(MERGED_INTO).await;
            for part in ["invalidations_by_fact (tenant=? AND by_fact=?)", "invalidations_of_fact (tenant=? AND fact=?)"] {
                assert!(merged.contains(part), "no `{part}` in\n{merged}");
            }
        }
    }
}
