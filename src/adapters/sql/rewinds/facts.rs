//! What unsaying turns, or saying them again, does to facts.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use ulid::Ulid;

use super::super::{
    Connection,
    facts::{
        fold,
        write::{EVERYBODY, RAISE_MEMORY, npcs_of},
    },
    rows::{Columns, json_list, micros, store_error},
};
use crate::{
    ids::{FactId, RewindId, TenantId, TurnId, WorldId},
    memory::fact::Knower,
    ports::StoreResult,
};

/// Facts whose cached results may no longer be right.
#[derive(Default)]
pub(super) struct Touched {
    /// Facts that unsaid turns caused.
    pub unsaid: BTreeSet<FactId>,
    /// Facts of turns that stand again.
    pub again: BTreeSet<FactId>,
    /// Every fact that a row which fell or came back names.
    pub all: BTreeSet<FactId>,
    /// Turns that asked to forget something: they may end facts that name them nowhere yet.
    pub asked: BTreeSet<TurnId>,
}

/// How many facts a move took out and gave back.
#[derive(Default)]
pub(super) struct Counted {
    pub unsaid: u32,
    pub restored: u32,
}

/// And what they are folded into; and which of the turns asked to forget something.
const CAUSED: &str = concat!(
    "SELECT f.id, i.by_fact, NULL FROM facts f LEFT JOIN invalidations i",
    by_index!("invalidations_of_fact"),
    " ON i.tenant = f.tenant AND i.fact = f.id AND i.by_fact IS NOT NULL
     WHERE f.tenant = $1 AND f.cause_id ",
    among!("$2"),
    " AND f.cause_kind = 'turn'
     UNION ALL SELECT NULL, NULL, e.turn FROM extractions e WHERE e.tenant = $1 AND e.turn ",
    among!("$2"),
    " AND e.forget <> '[]'"
);
/// From the moment they began: whatever moment is asked about, they were never valid.
const UNSAY: &str = concat!(
    "INSERT INTO invalidations (tenant, id, fact, reason, cause_kind, cause_id, at)
     SELECT $1, v.value ->> 0, f.id, 'unsaid', 'rewind', $3, f.valid_at
     FROM ",
    rows!("$2"),
    " v CROSS JOIN facts f WHERE f.tenant = $1 AND f.id = ",
    key_of!("v", 1)
);
const LIFT_CAUSED: &str = concat!(
    "UPDATE invalidations SET lifted_at = $3, lifted_by_kind = 'rewind', lifted_by_id = $4
     WHERE tenant = $1 AND cause_id ",
    among!("$2"),
    " AND cause_kind = 'turn' AND lifted_at IS NULL RETURNING fact, by_fact"
);
const PUT_BACK_CAUSED: &str = concat!(
    "UPDATE invalidations SET lifted_at = NULL, lifted_by_kind = NULL, lifted_by_id = NULL
     WHERE tenant = $1 AND cause_id ",
    among!("$2"),
    " AND cause_kind = 'turn' AND lifted_by_kind = 'rewind' RETURNING fact, by_fact"
);
const LIFT_UNSAID: &str = concat!(
    "UPDATE invalidations SET lifted_at = $3, lifted_by_kind = 'rewind', lifted_by_id = $4
     WHERE tenant = $1 AND fact ",
    among!("$2"),
    " AND reason = 'unsaid' AND lifted_at IS NULL"
);
const VALID: &str = concat!(
    "SELECT id FROM facts WHERE tenant = $1 AND id ",
    among!("$2"),
    " AND invalid_at IS NULL"
);
const BEFORE: &str = concat!(
    "SELECT id, invalid_at IS NULL, world, knowers FROM facts WHERE tenant = $1 AND id ",
    among!("$2")
);
const ASKED_IN: &str = concat!(
    "SELECT world, knowers FROM extractions WHERE tenant = $1 AND turn ",
    among!("$2")
);
/// Marks that are there already are renewed, from the earlier moment on.
macro_rules! or_renew {
    () => {
        concat!(
            " ON CONFLICT (tenant, world, audience) DO UPDATE SET since = ",
            lesser!("unsettled.since", "excluded.since"),
            ", mark = unsettled.mark + 1"
        )
    };
}
const UNSETTLE: &str = concat!(
    "INSERT INTO unsettled (tenant, world, audience, knowers, private_to, since, mark)
     SELECT DISTINCT $1, world, audience, knowers, private_to, $3, 1 FROM facts
     WHERE tenant = $1 AND id ",
    among!("$2"),
    or_renew!()
);
const UNSETTLE_ASKED: &str = concat!(
    "INSERT INTO unsettled (tenant, world, audience, knowers, private_to, since, mark)
     SELECT DISTINCT $1, world, audience, knowers, private_to, $3, 1 FROM extractions
     WHERE tenant = $1 AND turn ",
    among!("$2"),
    or_renew!()
);
/// What elsewhere was no news only because one of these facts had been in the prompt.
const UNSETTLE_ECHOES: &str = concat!(
    "INSERT INTO unsettled (tenant, world, audience, knowers, private_to, since, mark)
     SELECT $1, f.world, f.audience, f.knowers, f.private_to, MIN(f.valid_at), 1
     FROM ",
    texts!("$2"),
    " v CROSS JOIN invalidations i CROSS JOIN facts f
     WHERE i.tenant = $1 AND i.by_fact = v.value AND i.reason = 'echo' AND f.tenant = $1 AND f.id = i.fact
     GROUP BY f.world, f.audience, f.knowers, f.private_to",
    or_renew!()
);

/// What was taken for news elsewhere, while these facts that had been in the prompt did not stand.
const UNSETTLE_REPEATED: &str = concat!(
    "INSERT INTO unsettled (tenant, world, audience, knowers, private_to, since, mark)
     SELECT DISTINCT $1, e.world, e.audience, e.knowers, e.private_to, $3, 1 FROM extractions e
     WHERE e.tenant = $1 AND e.world = $4 AND e.said_at >= $3 AND EXISTS (SELECT 1 FROM ",
    texts!("e.injected"),
    " i WHERE i.value ",
    among!("$2"),
    ")",
    or_renew!()
);

/// Takes back what turns taught and what they ended.
pub(super) async fn unsay(
    connection: &mut Connection,
    tenant: &TenantId,
    turns: &str,
    by: RewindId,
    at: DateTime<Utc>,
    touched: &mut Touched,
) -> StoreResult<()> {
    let Caused {
        facts: caused,
        folded_into,
        asked,
    } = caused_by(connection, tenant, turns).await?;
    let lifted = lift(connection, LIFT_CAUSED, tenant, turns, Some((by, at))).await?;
    let rows: serde_json::Value = caused
        .iter()
        .enumerate()
        .map(|(nth, fact)| serde_json::json!([row_id(by, *fact, nth), fact]))
        .collect();
    sqlx::query(UNSAY)
        .bind(tenant.as_str())
        .bind(rows.to_string())
        .bind(by.to_string())
        .execute(&mut *connection)
        .await
        .map_err(store_error)?;
    touched
        .all
        .extend(caused.iter().copied().chain(lifted).chain(folded_into));
    touched.unsaid.extend(caused);
    touched.asked.extend(asked);
    Ok(())
}

/// A name for the row that ends `fact` with this move: unlike any other, and the same again should the
/// transaction be run again.
fn row_id(by: RewindId, fact: FactId, nth: usize) -> String {
    let bits = by.as_u128() ^ fact.as_u128().rotate_left(64) ^ (nth as u128);
    format!("inv_{}", Ulid(bits))
}

/// Puts back what turns that stand again had taught and ended.
pub(super) async fn say_again(
    connection: &mut Connection,
    tenant: &TenantId,
    turns: &str,
    by: RewindId,
    at: DateTime<Utc>,
    touched: &mut Touched,
) -> StoreResult<()> {
    let Caused {
        facts: caused,
        folded_into,
        asked,
    } = caused_by(connection, tenant, turns).await?;
    sqlx::query(LIFT_UNSAID)
        .bind(tenant.as_str())
        .bind(json_list(&caused))
        .bind(micros(at))
        .bind(by.to_string())
        .execute(&mut *connection)
        .await
        .map_err(store_error)?;
    let ended = lift(connection, PUT_BACK_CAUSED, tenant, turns, None).await?;
    touched
        .all
        .extend(caused.iter().copied().chain(ended).chain(folded_into));
    touched.again.extend(caused);
    touched.asked.extend(asked);
    Ok(())
}

/// Fresh cached results, the rise of every memory concerned, and the mark that it is to be settled.
pub(super) async fn settle_caches(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
    touched: Touched,
    since: Option<i64>,
) -> StoreResult<Counted> {
    let (Some(since), false) = (since, touched.all.is_empty() && touched.asked.is_empty()) else {
        return Ok(Counted::default());
    };
    let all = json_list(&touched.all);
    let mut before = before(connection, tenant, &all).await?;
    let asked = json_list(&touched.asked);
    if !touched.asked.is_empty() {
        before.are_asked(connection, tenant, &asked).await?;
    }
    for (world, npcs) in &before.memories {
        sqlx::query(RAISE_MEMORY)
            .bind(tenant.as_str())
            .bind(world)
            .bind(json_list(npcs))
            .execute(&mut *connection)
            .await
            .map_err(store_error)?;
    }
    unsettle(connection, UNSETTLE, tenant, &all, since).await?;
    sqlx::query(UNSETTLE_ECHOES)
        .bind(tenant.as_str())
        .bind(&all)
        .execute(&mut *connection)
        .await
        .map_err(store_error)?;
    if !touched.asked.is_empty() {
        unsettle(connection, UNSETTLE_ASKED, tenant, &asked, since).await?;
    }
    if !touched.again.is_empty() {
        sqlx::query(UNSETTLE_REPEATED)
            .bind(tenant.as_str())
            .bind(json_list(&touched.again))
            .bind(since)
            .bind(world.as_str())
            .execute(&mut *connection)
            .await
            .map_err(store_error)?;
    }
    fold::refresh(connection, tenant, touched.all).await?;
    let after = ids(connection, VALID, tenant, &all).await?;
    let count = |facts: usize| u32::try_from(facts).unwrap_or(u32::MAX);
    Ok(Counted {
        unsaid: count(before.valid.intersection(&touched.unsaid).count()),
        restored: count(after.difference(&before.valid).count()),
    })
}

/// Marks the memories of what a list names: they are to be settled from a moment on.
async fn unsettle(
    connection: &mut Connection,
    statement: &'static str,
    tenant: &TenantId,
    list: &str,
    since: i64,
) -> StoreResult<()> {
    sqlx::query(statement)
        .bind(tenant.as_str())
        .bind(list)
        .bind(since)
        .execute(connection)
        .await
        .map(drop)
        .map_err(store_error)
}

/// Facts as they were before the move.
#[derive(Default)]
struct Before {
    valid: BTreeSet<FactId>,
    /// The NPCs who know any of them, by world.
    memories: BTreeMap<String, BTreeSet<String>>,
}

impl Before {
    /// Also the memories in which these turns asked to forget something.
    async fn are_asked(&mut self, connection: &mut Connection, tenant: &TenantId, turns: &str) -> StoreResult<()> {
        let rows = sqlx::query(ASKED_IN)
            .bind(tenant.as_str())
            .bind(turns)
            .fetch_all(connection)
            .await
            .map_err(store_error)?;
        rows.iter().try_for_each(|row| self.known_by(&mut Columns::of(row)))
    }

    /// Reads a world and knowers.
    fn known_by(&mut self, columns: &mut Columns<'_>) -> StoreResult<()> {
        let world: String = columns.next()?;
        let knowers: BTreeSet<Knower> = columns.json()?;
        let npcs = self.memories.entry(world).or_default();
        npcs.extend(npcs_of(&knowers));
        if knowers.iter().any(|knower| !matches!(knower, Knower::Npc(_))) {
            npcs.insert(EVERYBODY.to_owned());
        }
        Ok(())
    }
}

async fn before(connection: &mut Connection, tenant: &TenantId, facts: &str) -> StoreResult<Before> {
    let rows = sqlx::query(BEFORE)
        .bind(tenant.as_str())
        .bind(facts)
        .fetch_all(connection)
        .await
        .map_err(store_error)?;
    let mut before = Before::default();
    for row in &rows {
        let mut columns = Columns::of(row);
        let fact: FactId = columns.id()?;
        if columns.next()? {
            before.valid.insert(fact);
        }
        before.known_by(&mut columns)?;
    }
    Ok(before)
}

/// What turns caused.
#[derive(Default)]
struct Caused {
    facts: BTreeSet<FactId>,
    /// What any of them is folded into.
    folded_into: BTreeSet<FactId>,
    /// Which of the turns asked to forget something.
    asked: BTreeSet<TurnId>,
}

async fn caused_by(connection: &mut Connection, tenant: &TenantId, turns: &str) -> StoreResult<Caused> {
    let rows = sqlx::query(CAUSED)
        .bind(tenant.as_str())
        .bind(turns)
        .fetch_all(connection)
        .await
        .map_err(store_error)?;
    let mut caused = Caused::default();
    for row in &rows {
        let mut columns = Columns::of(row);
        caused.facts.extend(columns.maybe_id::<FactId>()?);
        caused.folded_into.extend(columns.maybe_id::<FactId>()?);
        caused.asked.extend(columns.maybe_id::<TurnId>()?);
    }
    Ok(caused)
}

async fn ids(
    connection: &mut Connection,
    statement: &'static str,
    tenant: &TenantId,
    list: &str,
) -> StoreResult<BTreeSet<FactId>> {
    let rows = sqlx::query(statement)
        .bind(tenant.as_str())
        .bind(list)
        .fetch_all(connection)
        .await
        .map_err(store_error)?;
    rows.iter().map(|row| Columns::of(row).id()).collect()
}

async fn lift(
    connection: &mut Connection,
    statement: &'static str,
    tenant: &TenantId,
    turns: &str,
    by: Option<(RewindId, DateTime<Utc>)>,
) -> StoreResult<BTreeSet<FactId>> {
    let mut query = sqlx::query(statement).bind(tenant.as_str()).bind(turns);
    if let Some((by, at)) = by {
        query = query.bind(micros(at)).bind(by.to_string());
    }
    let rows = query.fetch_all(connection).await.map_err(store_error)?;
    let mut facts = BTreeSet::new();
    for row in &rows {
        let mut columns = Columns::of(row);
        facts.insert(columns.id()?);
        facts.extend(columns.maybe_id::<FactId>()?);
    }
    Ok(facts)
}

plans_of_sqlite! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::adapters::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn facts_are_found_by_their_cause() {
            assert_searches(CAUSED, &["facts_by_cause", "invalidations_of_fact"]).await;
            assert_searches(LIFT_CAUSED, &["invalidations_by_cause"]).await;
            assert_searches(PUT_BACK_CAUSED, &["invalidations_by_cause"]).await;
            assert_searches(UNSETTLE_ECHOES, &["invalidations_by_fact"]).await;
            assert_searches(LIFT_UNSAID, &["invalidations_of_fact"]).await;
            assert_searches(UNSETTLE_REPEATED, &["extractions_of_world (tenant=? AND world=? AND said_at>?)"]).await;
            for statement in [UNSAY, VALID, BEFORE, UNSETTLE, ASKED_IN, UNSETTLE_ASKED] {
                assert_searches(statement, &[]).await;
            }
        }
    }
}
