//! World state as events.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde_json::json;

use super::{
    audit,
    context::{Connection, Engine, acquire_lock},
    job_fence::pass_fence,
    rows::{Columns, to_micros},
    scope::LedgerLock,
    statements::{execute, fetch_all},
    webhooks::events::{Event, events_of_changes, write_events},
};
use colloquy_core::{
    ids::{DialogueId, StateEventId, TenantId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    calendar::GameTime,
    fact::Cause,
    game_clock::{ClockSegments, ClockSettings},
    state::{StateChange, fold_changes},
    trace::TaskUsage,
};
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::{
        audit::Edit,
        jobs::JobFence,
        state::{NewStateChange, StateChanges, StateStore, StoredStateChange},
    },
};

pub(super) struct SqlStateStore(pub(super) Arc<Engine>);

/// Inserts the rows of [`state_rows_json`], bound as `$rows`, in their order. The commit of a turn uses the macro too.
macro_rules! insert_state_events {
    ($rows:literal) => {
        concat!(
            "INSERT INTO state_events (tenant, id, world, dialogue, change, cause_kind, cause_id, at)
             SELECT $1, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5,
                CAST(value ->> 6 AS BIGINT)
             FROM ",
            json_arrays_table!($rows),
            " v ORDER BY key"
        )
    };
}
pub(super) use insert_state_events;

pub(super) const INSERT_STATE_EVENTS: &str = insert_state_events!("$2");
/// Each row carries the generation and the last action; if no change exists, a single row has these alone.
const STATE_SINCE: &str = "SELECT w.generation, w.last_action,
        e.id, e.seq, e.dialogue, e.change, e.cause_kind, e.cause_id, e.at
    FROM (SELECT COALESCE((SELECT state_generation FROM worlds WHERE tenant = $1 AND id = $2), 0) AS generation,
        COALESCE((SELECT MAX(seq) FROM actions WHERE tenant = $1 AND world = $2), 0) AS last_action) w
    LEFT JOIN state_events e ON e.tenant = $1 AND e.world = $2 AND e.seq > $3 AND e.lifted_at IS NULL";
const STATE_UNTIL: &str = "SELECT e.id, e.seq, e.dialogue, e.change, e.cause_kind, e.cause_id, e.at
    FROM state_events e
    WHERE e.tenant = $1 AND e.world = $2 AND e.seq <= $3 AND e.lifted_at IS NULL";
/// No index has the changes that were taken back: this reads all changes of the tenant.
const STATE_LIFTED_AFTER: &str = "SELECT e.id, e.seq, e.dialogue, e.change, e.cause_kind, e.cause_id, e.at
    FROM state_events e
    WHERE e.tenant = $1 AND e.world = $2 AND e.seq <= $3 AND e.lifted_at > $4";
macro_rules! state_up_to {
    ($dialogue:literal) => {
        concat!(
            "SELECT e.id, e.seq, e.dialogue, e.change, e.cause_kind, e.cause_id, e.at FROM state_events e
             WHERE e.tenant = $1 AND e.world = $2 AND e.lifted_at IS NULL AND e.dialogue ",
            $dialogue,
            " AND e.at <= $4"
        )
    };
}
const STATE_OF_DIALOGUE: &str = concat!(
    "SELECT id, seq, dialogue, change, cause_kind, cause_id, at FROM (",
    state_up_to!("IS NULL"),
    " UNION ALL ",
    state_up_to!("= $3"),
    ") v ORDER BY at, seq"
);
/// Each `seq` is an array of its own in the bound list.
const STATE_BY_SEQ: &str = concat!(
    "SELECT e.id, e.seq, e.dialogue, e.change, e.cause_kind, e.cause_id, e.at FROM ",
    json_arrays_table!("$2"),
    " v CROSS JOIN state_events e WHERE e.seq = CAST(v.value ->> 0 AS BIGINT) AND e.tenant = $1 ORDER BY e.seq"
);
/// Changes of the clock begin with their tag. The last two conditions are those of the index `state_events_of_clock`.
const CLOCK_CHANGES: &str = r#"SELECT e.change, e.at FROM state_events e
    WHERE e.tenant = $1 AND e.world = $2 AND e.lifted_at IS NULL AND substr(e.change, 1, 15) = '{"change":"time'
    ORDER BY e.at, e.seq"#;
const BUMP_STATE_GENERATION: &str =
    "UPDATE worlds SET state_generation = state_generation + 1 WHERE tenant = $1 AND id = $2";

fn read_state_row(columns: &mut Columns<'_>) -> StoreResult<((i64, i64), Option<StoredStateChange>)> {
    let world = (columns.next()?, columns.next()?);
    let Some(id) = columns.maybe_id()? else {
        return Ok((world, None));
    };
    Ok((world, Some(read_change(id, columns)?)))
}

fn read_change(id: StateEventId, columns: &mut Columns<'_>) -> StoreResult<StoredStateChange> {
    Ok(StoredStateChange {
        id,
        seq: columns.next()?,
        dialogue: columns.maybe_id()?,
        change: columns.json()?,
        cause: columns.cause()?,
        changed_at: columns.time()?,
    })
}

/// Records a removal or return of state changes. Readers then fold from the start again.
pub(super) async fn bump_state_generation(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
) -> StoreResult<()> {
    execute!(connection, BUMP_STATE_GENERATION; tenant, world)
        .await
        .map(drop)
}

/// Returns state changes as a single JSON bind.
pub(super) fn state_rows_json(changes: &[NewStateChange]) -> StoreResult<String> {
    let mut rows = Vec::with_capacity(changes.len());
    for change in changes {
        let (cause_kind, cause_id) = change.cause.to_columns();
        rows.push(json!([
            change.id,
            change.world,
            change.dialogue,
            super::rows::to_json(&change.change)?,
            cause_kind,
            cause_id,
            to_micros(change.changed_at),
        ]));
    }
    serde_json::to_string(&rows).map_err(|error| StoreError::Rejected(error.to_string()))
}

/// Returns the worlds of the changes.
pub(super) fn worlds_of(changes: &[NewStateChange]) -> BTreeSet<WorldId> {
    changes.iter().map(|change| change.world.clone()).collect()
}

/// Locks the state order of the worlds before changes are numbered: a reader asks only for numbers above the last one
/// seen.
pub(super) async fn lock_state_order(
    connection: &mut Connection,
    tenant: &TenantId,
    worlds: &BTreeSet<WorldId>,
) -> StoreResult<()> {
    for world in worlds {
        acquire_lock(connection, tenant, LedgerLock::State(world)).await?;
    }
    Ok(())
}

async fn load_clock(connection: &mut Connection, tenant: &TenantId, world: &WorldId) -> StoreResult<ClockSegments> {
    let rows = fetch_all!(connection, CLOCK_CHANGES; tenant, world).await?;
    let read_row = |columns: &mut Columns<'_>| Ok((columns.json()?, columns.time()?));
    let changes: Vec<(StateChange, DateTime<Utc>)> = Columns::read_rows(&rows, read_row)?;
    Ok(fold_changes(changes.iter().map(|(change, moment)| (change, *moment))).clock)
}

/// Puts changes of the clock after all earlier changes, even after those of a node whose real clock is ahead. A clock that
/// is set keeps its ratio.
async fn order_clock_changes(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
    changes: &mut [NewStateChange],
) -> StoreResult<()> {
    let is_of_clock =
        |change: &StateChange| matches!(change, StateChange::Time { .. } | StateChange::TimePassed { .. });
    if !changes.iter().any(|new_change| is_of_clock(&new_change.change)) {
        return Ok(());
    }
    let clock = load_clock(connection, tenant, world).await?;
    let Some(last) = clock.last() else { return Ok(()) };
    for new_change in changes.iter_mut().filter(|new_change| is_of_clock(&new_change.change)) {
        new_change.changed_at = new_change.changed_at.max(last.from);
        if let StateChange::Time { ratio, .. } = &mut new_change.change {
            *ratio = last.ratio;
        }
    }
    Ok(())
}

/// Returns the real moment at which a save is taken: not before the last change of the clock.
pub(super) async fn moment_of_save(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
    edit: &Edit,
) -> StoreResult<DateTime<Utc>> {
    acquire_lock(connection, tenant, LedgerLock::State(world)).await?;
    let clock = load_clock(connection, tenant, world).await?;
    Ok(end_of(&clock, edit))
}

/// Starts the clock of a world, or gives it the ratio of its settings from the edit on. The time of the game does not
/// jump.
pub(super) async fn update_clock(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
    settings: &ClockSettings,
    edit: &Edit,
) -> StoreResult<()> {
    acquire_lock(connection, tenant, LedgerLock::State(world)).await?;
    let clock = load_clock(connection, tenant, world).await?;
    let moment = end_of(&clock, edit);
    match clock.last() {
        Some(last) if last.ratio.to_bits() == settings.ratio.to_bits() => Ok(()),
        _ => {
            let now = clock.time_at(moment).unwrap_or_else(|| settings.start_time());
            set_clock(connection, tenant, world, moment, now, settings.ratio, edit).await
        }
    }
}

/// Sets the clock of a world to its time at a real moment, or to its first time if it began later. Does nothing if the
/// clock was never set.
pub(super) async fn set_clock_back(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
    to: DateTime<Utc>,
    edit: &Edit,
) -> StoreResult<()> {
    acquire_lock(connection, tenant, LedgerLock::State(world)).await?;
    let clock = load_clock(connection, tenant, world).await?;
    let moment = end_of(&clock, edit);
    let to = clock.first().map_or(to, |first| first.from.max(to));
    match (clock.last(), clock.time_at(to)) {
        (Some(last), Some(target_time)) if clock.time_at(moment) != Some(target_time) => {
            set_clock(connection, tenant, world, moment, target_time, last.ratio, edit).await
        }
        _ => Ok(()),
    }
}

/// The moment of a change that comes after all others, even after those of a node whose real clock is ahead.
fn end_of(clock: &ClockSegments, edit: &Edit) -> DateTime<Utc> {
    clock.last().map_or(edit.made_at, |last| last.from.max(edit.made_at))
}

async fn set_clock(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
    moment: DateTime<Utc>,
    to: GameTime,
    ratio: f64,
    edit: &Edit,
) -> StoreResult<()> {
    let change = NewStateChange {
        // An edit sets the clock at most once.
        id: StateEventId::from_u128(edit.id.as_u128()),
        world: world.clone(),
        dialogue: None,
        change: StateChange::Time { to, ratio },
        cause: Cause::Edit(edit.id),
        changed_at: moment,
    };
    let events: Vec<Event> = events_of_changes(std::slice::from_ref(&change)).collect();
    execute!(connection, INSERT_STATE_EVENTS; tenant, state_rows_json(&[change])?).await?;
    write_events(connection, tenant, &events).await
}

#[async_trait]
impl StateStore for SqlStateStore {
    async fn load_changes_since(&self, scope: &TenantScope, world: &WorldId, after: i64) -> StoreResult<StateChanges> {
        let query = bind!(STATE_SINCE; scope.tenant(), world, after);
        let mut since = StateChanges::default();
        for (world, change) in self.0.fetch_all(scope, query, read_state_row).await? {
            (since.generation, since.last_action) = world;
            since.changes.extend(change);
        }
        since.changes.sort_by_key(|change| (change.changed_at, change.seq));
        Ok(since)
    }
    async fn load_changes_until(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        seq: i64,
        lifted_after: Option<DateTime<Utc>>,
    ) -> StoreResult<Vec<StoredStateChange>> {
        let read_row = |columns: &mut Columns<'_>| read_change(columns.id()?, columns);
        let query = bind!(STATE_UNTIL; scope.tenant(), world, seq);
        let mut changes = self.0.fetch_all(scope, query, read_row).await?;
        if let Some(moment) = lifted_after {
            let query = bind!(STATE_LIFTED_AFTER; scope.tenant(), world, seq, to_micros(moment));
            changes.extend(self.0.fetch_all(scope, query, read_row).await?);
        }
        changes.sort_by_key(|change| (change.changed_at, change.seq));
        Ok(changes)
    }
    async fn load_changes(&self, scope: &TenantScope, seqs: &[i64]) -> StoreResult<Vec<StoredStateChange>> {
        let list = json!(seqs.iter().map(|seq| [seq]).collect::<Vec<_>>()).to_string();
        let query = bind!(STATE_BY_SEQ; scope.tenant(), list);
        let read_row = |columns: &mut Columns<'_>| read_change(columns.id()?, columns);
        self.0.fetch_all(scope, query, read_row).await
    }
    async fn load_changes_of_dialogue(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        dialogue: DialogueId,
        until: DateTime<Utc>,
    ) -> StoreResult<Vec<StoredStateChange>> {
        let query = bind!(STATE_OF_DIALOGUE; scope.tenant(), world, dialogue, to_micros(until));
        let read_row = |columns: &mut Columns<'_>| read_change(columns.id()?, columns);
        self.0.fetch_all(scope, query, read_row).await
    }
    async fn commit_changes(
        &self,
        scope: &TenantScope,
        fence: &JobFence,
        changes: &[NewStateChange],
        calls: &[TaskUsage],
    ) -> StoreResult<bool> {
        let tenant = scope.tenant().clone();
        let fence = *fence;
        let now = self.0.clock.now();
        let calls = calls.to_vec();
        let rows = state_rows_json(changes)?;
        let worlds = worlds_of(changes);
        let events: Vec<Event> = events_of_changes(changes).collect();
        write_transaction!(self.0, scope, |connection| {
            if !pass_fence(connection, &tenant, &fence, &calls, now).await? {
                return Ok(false);
            }
            lock_state_order(connection, &tenant, &worlds).await?;
            execute!(connection, INSERT_STATE_EVENTS; tenant, rows).await?;
            write_events(connection, &tenant, &events).await?;
            Ok(true)
        })
        .await
    }
    async fn record_changes(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        changes: &[NewStateChange],
        edit: &Edit,
    ) -> StoreResult<()> {
        let tenant = scope.tenant().clone();
        let edit = edit.clone();
        let changes = changes.to_vec();
        let worlds = BTreeSet::from([world.clone()]);
        write_memory!(self.0, scope.tenant(), world, |connection| {
            lock_state_order(connection, &tenant, &worlds).await?;
            let mut changes = changes.clone();
            for world in &worlds {
                order_clock_changes(connection, &tenant, world, &mut changes).await?;
            }
            let rows = state_rows_json(&changes)?;
            execute!(connection, INSERT_STATE_EVENTS; tenant, rows).await?;
            let events: Vec<Event> = events_of_changes(&changes).collect();
            write_events(connection, &tenant, &events).await?;
            audit::record_audit(connection, &tenant, &edit).await
        })
        .await
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::plan;

        #[tokio::test]
        async fn state_is_read_by_its_index() {
            let since = "state_events_since (tenant=? AND world=? AND seq>?)";
            let plan = plan(STATE_SINCE).await;
            assert!(plan.contains("sqlite_autoindex_worlds_1") && plan.contains(since), "{plan}");
            let until = "state_events_since (tenant=? AND world=? AND seq<?)";
            let plan = crate::sqlite::plans::plan(STATE_UNTIL).await;
            assert!(plan.contains(until), "{plan}");
            let plan = crate::sqlite::plans::plan(CLOCK_CHANGES).await;
            assert!(plan.contains("state_events_of_clock (tenant=? AND world=?)"), "{plan}");
            let plan = crate::sqlite::plans::plan(STATE_BY_SEQ).await;
            assert!(plan.contains("INTEGER PRIMARY KEY (rowid=?)"), "{plan}");
            let plan = crate::sqlite::plans::plan(STATE_OF_DIALOGUE).await;
            let of_dialogue = "state_events_of_dialogue (tenant=? AND world=? AND dialogue=? AND at<?)";
            assert_eq!(plan.matches(of_dialogue).count(), 2, "{plan}");
        }
    }
}
