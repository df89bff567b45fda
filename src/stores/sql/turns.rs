//! How turns are committed and read. The commit is the hot write, so a plain commit takes one trip to the engine. Its
//! text has several statements, and the first takes the head. Extra changes of a turn have trips of their own.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;

use super::{
    actions,
    context::{Connection, Engine},
    episodes, rewinds,
    rows::{Columns, to_json, to_micros, to_signed, without_nul},
    state,
    statements::{BoundQuery, execute, fetch_all, fetch_optional},
    webhooks::events::{event_rows_json, events_of_commit, insert_messages},
};
use colloquy_core::{ids::TenantId, scope::TenantScope};
use colloquy_memory::turn::{Turn, TurnSeqs, TurnStatus, Usage};
use colloquy_ports::{
    StoreResult,
    ledger::{
        dialogues::{CommitOutcome, KeyedTurn, TurnCommit, TurnStore},
        episodes::{EmbeddedEpisode, EpisodeVector},
    },
};

macro_rules! turn_columns {
    () => {
        "t.id, t.dialogue, t.number, t.status, t.player, t.player_text, t.npc, t.reply_text, t.text_version, t.cues,
         t.prompt_tokens, t.cached_tokens, t.completion_tokens, t.started_at, t.committed_at,
         t.seq_started, t.seq_done, t.seq_committed, t.stands"
    };
}

pub(super) use turn_columns;

pub(super) const STANDING_TURNS: &str = concat!(
    "SELECT ",
    turn_columns!(),
    " FROM turns t WHERE t.tenant = $1 AND t.dialogue = $2 AND t.stands = TRUE AND t.number BETWEEN $3 AND $4
      ORDER BY t.number"
);
/// A shell without its texts has no `unsaid_at`.
pub(super) const UNSAID_TURNS: &str = concat!(
    "SELECT ",
    turn_columns!(),
    " FROM turns t WHERE t.tenant = $1 AND t.dialogue = $2 AND t.stands = FALSE AND ",
    unindexed!("t.unsaid_at"),
    " IS NOT NULL ORDER BY ",
    unindexed!("t.unsaid_at"),
    " DESC, t.id DESC LIMIT $3"
);
pub(super) const TURN_BY_ID: &str = concat!(
    "SELECT ",
    turn_columns!(),
    " FROM turns t WHERE t.tenant = $1 AND t.id = $2"
);
pub(super) const TURN_BY_KEY: &str = concat!(
    "SELECT ",
    turn_columns!(),
    " FROM turns t WHERE t.tenant = $1 AND t.dialogue = $2 AND t.key = $3
      ORDER BY t.stands DESC, t.committed_at DESC LIMIT 1"
);
pub(super) const KEYS_OF_DIALOGUE: &str =
    "SELECT key FROM turns WHERE tenant = $1 AND dialogue = $2 AND key IS NOT NULL LIMIT $3";
pub(super) const TRACE_OF_TURN: &str =
    "SELECT c.body FROM turns t JOIN traces c ON c.tenant = t.tenant AND c.turn = t.id
    WHERE t.tenant = $1 AND t.dialogue = $2 AND t.number = $3 AND t.stands = TRUE";

/// The fence: the dialogue is open with the same owner epoch and head, and the key is unused.
macro_rules! take_head {
    () => {
        "UPDATE dialogues SET head_turn = $4, head_turn_id = $2, next_seq = $29, updated_at = $17, replacing = NULL,
            silence_check_from = COALESCE(silence_check_from, $17)
         WHERE tenant = $1 AND id = $3 AND status = 'open' AND owner_epoch = $30
           AND head_turn_id IS NOT DISTINCT FROM $25
           AND NOT EXISTS (SELECT 1 FROM turns WHERE tenant = $1 AND dialogue = $3 AND key = $6)
         RETURNING 1"
    };
}
/// Selects the reason why the head was not taken.
const WHY_NOT_COMMITTED: &str = "SELECT owner_epoch, status = 'open', EXISTS (SELECT 1 FROM turns t
        WHERE t.tenant = $1 AND t.dialogue = $2 AND t.key = $3 AND t.id <> $4),
        head_turn_id IS NOT DISTINCT FROM $4
    FROM dialogues WHERE tenant = $1 AND id = $2";
/// Inserts the row of a turn; `$when` is empty or a condition.
macro_rules! insert_turn {
    ($when:expr) => {
        concat!(
            "INSERT INTO turns (tenant, id, dialogue, number, text_version, key, status, player, player_text, npc,
                reply_text, cues, prompt_tokens, cached_tokens, completion_tokens, started_at, committed_at,
                seq_started, seq_done, seq_committed, previous, uncut_reply_text, uncut_until)
             SELECT $1, $2, $3, $4, $5, COALESCE($6, (SELECT key FROM turns WHERE tenant = $1 AND id = $28)), $7, $8, $9,
                $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $25, $26, $27",
            $when
        )
    };
}
macro_rules! insert_checkpoint {
    ($when:expr) => {
        concat!("INSERT INTO checkpoints (tenant, turn, body) SELECT $1, $2, $21", $when)
    };
}
macro_rules! insert_trace {
    ($when:expr) => {
        concat!("INSERT INTO traces (tenant, turn, body) SELECT $1, $2, $22", $when)
    };
}
macro_rules! insert_jobs {
    ($when:expr) => {
        concat!(
            "INSERT INTO jobs (tenant, id, kind, dialogue, turn, text_version, status, due_at, leased_to, leased_until,
                created_at)
             SELECT $1, value ->> 0, value ->> 1, value ->> 2, value ->> 3, CAST(value ->> 4 AS BIGINT), 'pending',
                CAST(value ->> 8 AS BIGINT), value ->> 6, CAST(value ->> 7 AS BIGINT), CAST(value ->> 5 AS BIGINT)
             FROM ",
            json_arrays_table!("$23"),
            " v",
            $when
        )
    };
}
macro_rules! when_changed {
    () => {
        concat!(" WHERE ", was_changed!())
    };
}
/// Each statement writes only if its predecessor did. If no row comes back, no statement wrote.
const COMMIT_TURN: &str = batch_with_rows!(
    [take_head!(), insert_turn!(when_changed!()), insert_checkpoint!(when_changed!())]
    [
        concat!(insert_trace!(when_changed!()), " RETURNING 1"),
        concat!(insert_jobs!(when_changed!()), " RETURNING 1"),
        // Last, because the jobs look at the statement before them, and most tenants have no webhook.
        concat!(insert_messages!("$32", concat!(" AND ", turn_was_inserted!())), " RETURNING 1"),
    ]
);
/// Like [`COMMIT_TURN`], in two trips for a turn with extra changes. State changes and actions are
/// numbered under [`state::lock_state_order`]: no other transaction numbers them meanwhile.
const TAKE_HEAD: &str = take_head!();
const WRITE_TURN: &str = batch!(
    insert_turn!(""),
    insert_checkpoint!(""),
    insert_trace!(""),
    insert_jobs!(""),
    state::insert_state_events!("$24"),
    actions::insert_actions!("$31"),
    insert_messages!("$32")
);

pub(super) struct SqlTurnStore(pub(super) Arc<Engine>);

#[async_trait]
impl TurnStore for SqlTurnStore {
    async fn commit_turn(&self, scope: &TenantScope, commit: &TurnCommit) -> StoreResult<CommitOutcome> {
        let prepared = PreparedCommit::new(scope.tenant(), commit)?;
        if prepared.is_plain() {
            return write_statement!(self.0, scope, |connection| prepared.write_commit(connection).await).await;
        }
        write_transaction!(self.0, scope, |connection| prepared.write_commit(connection).await).await
    }
}

/// A commit with serialized JSON, which leaves only SQL to the writer.
#[derive(Clone)]
struct PreparedCommit {
    tenant: TenantId,
    commit: TurnCommit,
    cues: String,
    checkpoint: String,
    trace: String,
    jobs: String,
    state: String,
    actions: String,
    events: String,
}

impl PreparedCommit {
    fn new(tenant: &TenantId, commit: &TurnCommit) -> StoreResult<Self> {
        let jobs: serde_json::Value = commit
            .jobs
            .iter()
            .map(|job| {
                json!([
                    job.id,
                    job.kind.as_str(),
                    job.dialogue,
                    job.turn,
                    job.text_version,
                    to_micros(job.created_at),
                    job.held_until.is_none().then_some(job.leased_to),
                    job.held_until.is_none().then(|| to_micros(job.leased_until)),
                    to_micros(job.held_until.unwrap_or(job.created_at)),
                ])
            })
            .collect();
        Ok(Self {
            tenant: tenant.clone(),
            cues: to_json(&commit.turn.cues)?,
            checkpoint: to_json(&commit.checkpoint)?,
            trace: to_json(&commit.trace)?,
            jobs: jobs.to_string(),
            state: state::state_rows_json(&commit.state)?,
            actions: actions::action_rows_json(&commit.actions)?,
            events: event_rows_json(&events_of_commit(commit))?,
            commit: commit.clone(),
        })
    }

    /// Returns whether the turn has no extra changes; [`COMMIT_TURN`] then commits the turn in a single trip.
    fn is_plain(&self) -> bool {
        let TurnCommit {
            state,
            actions,
            episode,
            cuts,
            replacing,
            ..
        } = &self.commit;
        let writes_nothing_else = state.is_empty() && actions.is_empty() && episode.is_none();
        writes_nothing_else && cuts.is_empty() && replacing.is_none()
    }

    async fn write_commit(self, connection: &mut Connection) -> StoreResult<CommitOutcome> {
        let tenant = self.tenant.as_str();
        let commit = &self.commit;
        if self.is_plain() {
            let written_rows = fetch_all(connection, self.bind_commit(COMMIT_TURN)).await?;
            if written_rows.is_empty() {
                return commit_rejection(connection, tenant, commit).await;
            }
            return Ok(CommitOutcome::Committed);
        }
        let head_row = fetch_optional(connection, self.bind_commit(TAKE_HEAD)).await?;
        if head_row.is_none() {
            return commit_rejection(connection, tenant, commit).await;
        }
        failpoint!("turn.head");
        let mut worlds = state::worlds_of(&commit.state);
        worlds.extend(commit.actions.iter().map(|action| action.world.clone()));
        state::lock_state_order(connection, &self.tenant, &worlds).await?;
        execute(connection, self.bind_commit(WRITE_TURN)).await?;
        if let Some(replaced) = commit.replacing {
            rewinds::drop_checkpoints(connection, &self.tenant, commit.turn.dialogue, [replaced]).await?;
        }
        if let Some(episode) = &commit.episode {
            let episode = episode.clone();
            let vector = EpisodeVector::NotCompared;
            episodes::insert_episode(connection, &self.tenant, &EmbeddedEpisode { episode, vector }).await?;
        }
        for live_cut in &commit.cuts {
            rewinds::record_cut(connection, &self.tenant, &commit.turn, live_cut).await?;
        }
        failpoint!("turn.written");
        Ok(CommitOutcome::Committed)
    }

    /// Binds all parameters of a commit to a statement, in the order of [`insert_turn!`].
    fn bind_commit(&self, statement: &'static str) -> BoundQuery<'_> {
        let commit = &self.commit;
        let turn = &self.commit.turn;
        let (uncut, until) = commit.sealed_reply.clone().unzip();
        bind!(
            statement;
            self.tenant, turn.id, turn.dialogue, i64::from(turn.number), i64::from(turn.text_version), commit.key,
            turn.status.as_str(), turn.player, without_nul(&turn.player_text), turn.npc, without_nul(&turn.reply_text),
            self.cues, i64::from(turn.usage.prompt_tokens), i64::from(turn.usage.cached_tokens),
            i64::from(turn.usage.completion_tokens), to_micros(turn.started_at), to_micros(turn.committed_at),
            to_signed(turn.seqs.started), to_signed(turn.seqs.done), to_signed(turn.seqs.committed), self.checkpoint,
            self.trace, self.jobs, self.state, commit.expected_head, uncut, until.map(to_micros), commit.key_of,
            to_signed(commit.next_seq), to_signed(commit.epoch), self.actions, self.events
        )
    }
}

/// Returns why a commit failed. The new owner may have written the same turn, so a different epoch always means
/// `Fenced`.
async fn commit_rejection(
    connection: &mut Connection,
    tenant: &str,
    commit: &TurnCommit,
) -> StoreResult<CommitOutcome> {
    let row = fetch_optional!(connection, WHY_NOT_COMMITTED; tenant, commit.turn.dialogue, commit.key, commit.turn.id)
        .await?;
    let Some(row) = row else {
        return Ok(CommitOutcome::Fenced);
    };
    let mut columns = Columns::new(&row);
    let epoch: u64 = columns.number()?;
    let open: bool = columns.next()?;
    let key_is_taken: bool = columns.next()?;
    let is_head: bool = columns.next()?;
    Ok(if epoch != commit.epoch {
        CommitOutcome::Fenced
    } else if is_head {
        // An earlier attempt had committed the turn, and its answer was lost.
        CommitOutcome::Committed
    } else if !open {
        CommitOutcome::Closed
    } else if key_is_taken {
        CommitOutcome::KeyTaken
    } else {
        CommitOutcome::Fenced
    })
}

/// Reads the columns of `turn_columns!`.
pub(super) fn read_turn(columns: &mut Columns<'_>) -> StoreResult<KeyedTurn> {
    let turn = Turn {
        id: columns.id()?,
        dialogue: columns.id()?,
        number: columns.number()?,
        status: columns.parse_with(TurnStatus::parse)?,
        player: columns.maybe_id()?,
        player_text: columns.next()?,
        npc: columns.id()?,
        reply_text: columns.next()?,
        text_version: columns.number()?,
        cues: columns.json()?,
        usage: Usage {
            prompt_tokens: columns.number()?,
            cached_tokens: columns.number()?,
            completion_tokens: columns.number()?,
        },
        started_at: columns.time()?,
        committed_at: columns.time()?,
        seqs: TurnSeqs {
            started: columns.number()?,
            done: columns.number()?,
            committed: columns.number()?,
        },
    };
    Ok(KeyedTurn {
        turn,
        stands: columns.next()?,
    })
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn turns_are_found_by_index() {
            assert_searches(STANDING_TURNS, &["turns_standing"]).await;
            assert_searches(UNSAID_TURNS, &["turns_unsaid_of_dialogue (tenant=? AND dialogue=?)"]).await;
            assert_searches(TURN_BY_KEY, &["turns_by_key"]).await;
            assert_searches(KEYS_OF_DIALOGUE, &["turns_by_key"]).await;
            assert_searches(TRACE_OF_TURN, &["turns_standing"]).await;
            assert_searches(TAKE_HEAD, &["turns_by_key"]).await;
            assert_searches(WHY_NOT_COMMITTED, &["turns_by_key"]).await;
        }
    }
}
