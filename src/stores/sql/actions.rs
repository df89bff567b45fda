//! Actions of NPCs. The commit of a turn inserts them; `rewinds::derived_rows` takes them back and reinstates them.

use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde_json::json;

use super::{
    audit,
    context::Engine,
    pages::{fetch_page, page_cursor, page_row_limit},
    rows::{self, Columns, json_list, to_micros, without_nul},
    state,
    statements::{execute, fetch_optional},
    webhooks::events,
};
use colloquy_core::{
    ids::{ActionId, DialogueId, NpcId, PlayerId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::fact::Cause;
use colloquy_ports::{
    Page, PageRequest, StoreError, StoreResult,
    ledger::{
        actions::{
            Action, ActionAnswer, ActionFilter, ActionStatus, ActionStore, AnswerKind, AnswerOutcome, NewAction,
        },
        audit::Edit,
        state::NewStateChange,
    },
};

pub(super) struct SqlActionStore(pub(super) Arc<Engine>);

/// Inserts the rows of [`action_rows_json`], bound as `$rows`, in their order.
macro_rules! insert_actions {
    ($rows:literal) => {
        concat!(
            "INSERT INTO actions (tenant, id, world, dialogue, number, npc, player, name, arguments, cause_kind, cause_id,
                at, expires_at)
             SELECT $1, value ->> 0, value ->> 1, value ->> 2, CAST(value ->> 3 AS BIGINT), value ->> 4, value ->> 5,
                value ->> 6, value ->> 7, 'turn', value ->> 8, CAST(value ->> 9 AS BIGINT), CAST(value ->> 10 AS BIGINT)
             FROM ",
            json_arrays_table!($rows),
            " v ORDER BY key"
        )
    };
}
pub(super) use insert_actions;

macro_rules! select_actions {
    ($($rest:expr),+) => {
        concat!(
            "SELECT a.seq, a.id, a.world, a.dialogue, a.cause_kind, a.cause_id, a.number, a.npc, a.player, a.name,
                a.arguments, a.at, a.expires_at, a.answer, a.answer_text, a.answered_at, a.lifted_at IS NULL FROM ",
            $($rest),+
        )
    };
}

pub(super) const ACTION_BY_ID: &str = select_actions!("actions a WHERE a.tenant = $1 AND a.id = $2");
const ACTIONS_BY_ID: &str = select_actions!(
    "actions a WHERE a.tenant = $1 AND a.id ",
    in_json_list!("$2"),
    " ORDER BY a.seq"
);
const ACTIONS_OF_TURN: &str =
    select_actions!("actions a WHERE a.tenant = $1 AND a.cause_id = $2 AND a.cause_kind = 'turn' ORDER BY a.seq");
const ACTIONS_SINCE: &str =
    select_actions!("actions a WHERE a.tenant = $1 AND a.world = $2 AND a.seq > $3 ORDER BY a.seq");
const STANDING_ACTIONS: &str = "SELECT seq, id FROM actions
    WHERE tenant = $1 AND world = $2 AND lifted_at IS NULL ORDER BY seq";
/// The actions of the status `requested`, from the index of open actions.
const OPEN_ACTIONS: &str = select_actions!(
    "actions a WHERE a.tenant = $1 AND a.world = $2 AND a.answer IS NULL AND a.lifted_at IS NULL
        AND a.seq > COALESCE((SELECT c.seq FROM actions c WHERE c.tenant = $1 AND c.id = $3), 0)
        AND a.dialogue = COALESCE($4, a.dialogue) AND a.expires_at >= $5
     ORDER BY a.seq LIMIT $6"
);
/// The status as `Action::status` has it.
const LIST_ACTIONS: &str = select_actions!(
    "actions a WHERE a.tenant = $1 AND a.world = $2
        AND a.seq > COALESCE((SELECT c.seq FROM actions c WHERE c.tenant = $1 AND c.id = $3), 0)
        AND a.dialogue = COALESCE($4, a.dialogue)
        AND COALESCE($5, '') IN ('', CASE WHEN a.lifted_at IS NOT NULL THEN 'undone'
            WHEN a.answer IS NOT NULL THEN a.answer WHEN a.expires_at < $6 THEN 'expired' ELSE 'requested' END)
     ORDER BY a.seq LIMIT $7"
);
/// The latest settled actions, and the latest that wait.
const LATEST_ACTIONS: &str = concat!(
    "SELECT * FROM (",
    select_actions!(
        "actions a WHERE a.tenant = $1 AND a.dialogue = $2 AND a.npc = $3 AND a.lifted_at IS NULL
            AND CASE WHEN a.answer IS NULL THEN a.expires_at < $4 ELSE a.answered_at <= $4 END
         ORDER BY CASE WHEN a.answer IS NULL THEN a.expires_at ELSE a.answered_at END DESC, a.seq DESC LIMIT 8"
    ),
    ") s UNION ALL SELECT * FROM (",
    select_actions!(
        "actions a WHERE a.tenant = $1 AND a.dialogue = $2 AND a.npc = $3 AND a.lifted_at IS NULL
            AND a.answer IS NULL AND a.expires_at >= $4
         ORDER BY a.seq DESC LIMIT 8"
    ),
    ") w"
);
/// A retaken action has a later `seq` than its turn, so the times decide.
const ACTIONS_WAITING_ELSEWHERE: &str = select_actions!(
    "actions a WHERE a.tenant = $1 AND a.world = $2 AND a.npc = $3 AND COALESCE(a.player, '') = $4 AND a.dialogue <> $5
        AND a.answer IS NULL AND a.lifted_at IS NULL AND a.expires_at >= $6
     ORDER BY a.at DESC, a.name DESC LIMIT 8"
);
/// Reads at most one done action of each name, from an index. Postgres would join an EXISTS, and read all of them.
const DONE_ACTION_NAMES: &str = concat!(
    "SELECT n.value FROM ",
    json_texts_table!("$5"),
    " n WHERE (SELECT a.name FROM actions a
        WHERE a.tenant = $1 AND a.world = $2 AND a.npc = $3 AND COALESCE(a.player, '') = $4 AND a.name = n.value
            AND a.answer = 'done' AND a.lifted_at IS NULL AND a.answered_at <= $6
        LIMIT 1) IS NOT NULL"
);
/// Takes effect once: only an open action has no answer.
const ANSWER_ACTION: &str = "UPDATE actions SET answer = $3, answer_text = $4, answered_at = $5
    WHERE tenant = $1 AND id = $2 AND lifted_at IS NULL AND answer IS NULL AND expires_at >= $5";

/// Returns actions as a single JSON bind.
pub(super) fn action_rows_json(actions: &[NewAction]) -> StoreResult<String> {
    let mut list = Vec::with_capacity(actions.len());
    for action in actions {
        list.push(json!([
            action.id,
            action.world,
            action.dialogue,
            action.number,
            action.npc,
            action.player,
            action.name,
            rows::to_json(&action.arguments)?,
            action.turn,
            to_micros(action.requested_at),
            to_micros(action.expires_at),
        ]));
    }
    serde_json::to_string(&list).map_err(|error| StoreError::Rejected(error.to_string()))
}

pub(super) fn read_action(columns: &mut Columns<'_>) -> StoreResult<Action> {
    let seq = columns.next()?;
    let request = NewAction {
        id: columns.id()?,
        world: columns.id()?,
        dialogue: columns.id()?,
        turn: read_turn(columns)?,
        number: columns.number()?,
        npc: columns.id()?,
        player: columns.maybe_id()?,
        name: columns.next()?,
        arguments: columns.json()?,
        requested_at: columns.time()?,
        expires_at: columns.time()?,
    };
    let kind: Option<&str> = columns.next()?;
    let text: Option<String> = columns.next()?;
    let answered_at = columns.maybe_time()?;
    let kind = kind.and_then(|name| AnswerKind::ALL.into_iter().find(|kind| kind.as_str() == name));
    Ok(Action {
        seq,
        request,
        answer: kind.zip(answered_at).map(|(kind, answered_at)| ActionAnswer {
            kind,
            text: text.unwrap_or_default(),
            answered_at,
        }),
        stands: columns.next()?,
    })
}

fn read_turn(columns: &mut Columns<'_>) -> StoreResult<TurnId> {
    match columns.cause()? {
        Cause::Turn(turn) => Ok(turn),
        other => Err(StoreError::Corrupt(format!("an action has the cause {other:?}"))),
    }
}

#[async_trait]
impl ActionStore for SqlActionStore {
    async fn load_action(&self, scope: &TenantScope, id: ActionId) -> StoreResult<Option<Action>> {
        let query = bind!(ACTION_BY_ID; scope.tenant(), id);
        self.0.fetch_optional(scope, query, read_action).await
    }
    async fn load_actions(&self, scope: &TenantScope, ids: &[ActionId]) -> StoreResult<Vec<Action>> {
        let query = bind!(ACTIONS_BY_ID; scope.tenant(), json_list(ids));
        self.0.fetch_all(scope, query, read_action).await
    }
    async fn load_actions_of_turn(&self, scope: &TenantScope, turn: TurnId) -> StoreResult<Vec<Action>> {
        let query = bind!(ACTIONS_OF_TURN; scope.tenant(), turn);
        self.0.fetch_all(scope, query, read_action).await
    }
    async fn list_actions(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        filter: ActionFilter,
        page: &PageRequest,
        now: DateTime<Utc>,
    ) -> StoreResult<Page<Action>> {
        let tenant = scope.tenant();
        let after = page_cursor(page);
        let now = to_micros(now);
        let limit = page_row_limit(page);
        let query = match filter.status {
            Some(ActionStatus::Requested) => bind!(OPEN_ACTIONS; tenant, world, after, filter.dialogue, now, limit),
            status => bind!(
                LIST_ACTIONS;
                tenant, world, after, filter.dialogue, status.map(ActionStatus::as_str), now, limit
            ),
        };
        fetch_page(&self.0, scope, query, page, read_action, |action| {
            action.request.id.to_string()
        })
        .await
    }
    async fn load_actions_since(&self, scope: &TenantScope, world: &WorldId, after: i64) -> StoreResult<Vec<Action>> {
        let query = bind!(ACTIONS_SINCE; scope.tenant(), world, after);
        self.0.fetch_all(scope, query, read_action).await
    }
    async fn list_standing_actions(&self, scope: &TenantScope, world: &WorldId) -> StoreResult<Vec<(i64, ActionId)>> {
        let query = bind!(STANDING_ACTIONS; scope.tenant(), world);
        let read_row = |columns: &mut Columns<'_>| Ok((columns.next()?, columns.id()?));
        self.0.fetch_all(scope, query, read_row).await
    }
    async fn load_open_actions(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        now: DateTime<Utc>,
    ) -> StoreResult<Vec<Action>> {
        let unset: Option<String> = None;
        let query = bind!(OPEN_ACTIONS; scope.tenant(), world, unset, unset, to_micros(now), i64::MAX);
        self.0.fetch_all(scope, query, read_action).await
    }
    async fn load_latest_actions(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        npc: &NpcId,
        until: DateTime<Utc>,
    ) -> StoreResult<Vec<Action>> {
        let query = bind!(LATEST_ACTIONS; scope.tenant(), dialogue, npc, to_micros(until));
        let mut actions = self.0.fetch_all(scope, query, read_action).await?;
        let settled_at = |action: &Action| match &action.answer {
            Some(answer) => Some(answer.answered_at),
            None => Some(action.request.expires_at).filter(|expires_at| *expires_at < until),
        };
        actions.sort_by_key(|action| Reverse((settled_at(action), action.seq)));
        Ok(actions)
    }
    async fn load_actions_waiting_elsewhere(
        &self,
        scope: &TenantScope,
        (world, dialogue): (&WorldId, DialogueId),
        npc: &NpcId,
        player: Option<&PlayerId>,
        now: DateTime<Utc>,
    ) -> StoreResult<Vec<Action>> {
        let player = player.map_or("", PlayerId::as_str);
        let query = bind!(ACTIONS_WAITING_ELSEWHERE; scope.tenant(), world, npc, player, dialogue, to_micros(now));
        self.0.fetch_all(scope, query, read_action).await
    }
    async fn list_done_action_names(
        &self,
        scope: &TenantScope,
        world: &WorldId,
        npc: &NpcId,
        player: Option<&PlayerId>,
        names: &[&str],
        until: DateTime<Utc>,
    ) -> StoreResult<BTreeSet<String>> {
        let player = player.map_or("", PlayerId::as_str);
        let names = json_list(names);
        let query = bind!(DONE_ACTION_NAMES; scope.tenant(), world, npc, player, names, to_micros(until));
        let read_row = |columns: &mut Columns<'_>| columns.next();
        let names: Vec<String> = self.0.fetch_all(scope, query, read_row).await?;
        Ok(names.into_iter().collect())
    }
    async fn answer_action(
        &self,
        scope: &TenantScope,
        id: ActionId,
        answer: &ActionAnswer,
        event: &NewStateChange,
        edit: &Edit,
    ) -> StoreResult<AnswerOutcome> {
        let tenant = scope.tenant().clone();
        let answer = answer.clone();
        let edit = edit.clone();
        let worlds = BTreeSet::from([event.world.clone()]);
        let row = state::state_rows_json(std::slice::from_ref(event))?;
        let events: Vec<events::Event> = events::events_of_changes(std::slice::from_ref(event)).collect();
        write_memory!(self.0, scope.tenant(), &event.world, |connection| {
            state::lock_state_order(connection, &tenant, &worlds).await?;
            let updated_rows = execute!(
                connection, ANSWER_ACTION;
                tenant, id, answer.kind.as_str(), without_nul(&answer.text), to_micros(answer.answered_at)
            )
            .await?;
            let Some(action_row) = fetch_optional!(connection, ACTION_BY_ID; tenant, id).await? else {
                return Ok(AnswerOutcome::NotFound);
            };
            let action = read_action(&mut Columns::new(&action_row))?;
            if updated_rows == 0 {
                return Ok(AnswerOutcome::NotOpen(action));
            }
            execute!(connection, state::INSERT_STATE_EVENTS; tenant, row).await?;
            events::write_events(connection, &tenant, &events).await?;
            audit::record_audit(connection, &tenant, &edit).await?;
            Ok(AnswerOutcome::Stored(action))
        })
        .await
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn actions_are_found_by_index() {
            assert_searches(ACTION_BY_ID, &["actions_by_id"]).await;
            assert_searches(ACTIONS_BY_ID, &["actions_by_id"]).await;
            assert_searches(ACTIONS_OF_TURN, &["actions_by_cause"]).await;
            assert_searches(ACTIONS_SINCE, &["actions_of_world"]).await;
            assert_searches(LIST_ACTIONS, &["actions_of_world"]).await;
            assert_searches(STANDING_ACTIONS, &["actions_of_world"]).await;
            assert_searches(OPEN_ACTIONS, &["actions_open"]).await;
            assert_searches(ANSWER_ACTION, &["actions_by_id"]).await;
            assert_searches(LATEST_ACTIONS, &["actions_of_dialogue"]).await;
            assert_searches(ACTIONS_WAITING_ELSEWHERE, &["actions_waiting"]).await;
            let by_name = "actions_done (tenant=? AND world=? AND npc=? AND <expr>=? AND name=?)";
            assert_searches(DONE_ACTION_NAMES, &[by_name]).await;
        }
    }
}
