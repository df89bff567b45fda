//! Rewinds of heads. `head` does the rewind; this file has the surrounding reads and writes.

/// The turn that a turn replaces. A scalar subquery makes the engine look up each turn; in a join, Postgres would read
/// all turns.
macro_rules! replaced_by {
    ($turn:literal) => {
        concat!(
            "(SELECT t.replaces FROM turns t WHERE t.tenant = $1 AND t.id = ",
            $turn,
            ")"
        )
    };
}
/// A list of turns as a named table expression, with the turns that they replace.
macro_rules! and_replaced {
    ($name:literal, $turns:literal) => {
        concat!(
            $name,
            " (id) AS (SELECT v.value FROM ",
            json_texts_table!($turns),
            " v UNION SELECT ",
            replaced_by!("g.id"),
            " FROM ",
            $name,
            " g WHERE ",
            replaced_by!("g.id"),
            " IS NOT NULL)"
        )
    };
}

mod derived_rows;
mod head;
mod memories;
mod replacement;

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

pub(super) use self::head::{drop_checkpoints, rewind_head};
use super::{
    audit,
    context::{Connection, Engine, acquire_lock},
    rows::{Columns, json_list, to_json, to_micros, to_signed},
    scope::LedgerLock,
    statements::{execute, fetch_optional, fetch_scalar},
};
use colloquy_core::{
    ids::{DialogueId, RewindId, TenantId, TurnId},
    scope::TenantScope,
};
use colloquy_memory::{disclosure::audience::Audience, turn::Turn};
use colloquy_ports::{
    StoreResult,
    ledger::rewinds::{
        DirtyMemory, InterruptOutcome, LiveCut, OnKeyConflict, RewindAcks, RewindCommit, RewindCommitResult,
        RewindOrigin, RewindRecord, RewindStore, SealedReply,
    },
};

pub(super) struct SqlRewindStore(pub(super) Arc<Engine>);

const OUTCOME_BY_KEY: &str = "SELECT outcome FROM rewinds WHERE tenant = $1 AND dialogue = $2 AND key = $3";
/// Selects whether the caller is the owner, whether the dialogue is open, and the rewind with the same key. The row
/// stays locked until the head has been rewound: no turn is committed meanwhile.
const LOCK_DIALOGUE_FOR_REWIND: &str = concat!(
    "SELECT owner_epoch = $3, status = 'open',
        (SELECT r.outcome FROM rewinds r WHERE r.tenant = $1 AND r.dialogue = $2 AND r.key = $5)
     FROM dialogues WHERE tenant = $1 AND id = $2 AND world = $4",
    for_update!()
);
const RECORD_KEY_OUTCOME: &str = "INSERT INTO rewinds (tenant, id, dialogue, key, seq, outcome, at)
    VALUES ($1, $2, $3, $4, 0, $5, $6) ON CONFLICT (tenant, dialogue, key) WHERE key IS NOT NULL DO NOTHING";
/// Frees a key. The rewind itself stays, for its event.
const FREE_KEY: &str = "UPDATE rewinds SET key = NULL WHERE tenant = $1 AND dialogue = $2 AND key = $3";
const REWINDS_SINCE: &str = "SELECT outcome FROM rewinds WHERE tenant = $1 AND dialogue = $2 AND seq > $3
    ORDER BY seq LIMIT $4";
/// Finds the sealed reply of a turn. A reply may be cut again, shorter, so the original is at the end of the chain. If
/// the original itself was cut while it streamed, the reply has to be continued.
const SEALED_REPLY: &str = "WITH RECURSIVE line (id, replaces) AS (
        SELECT id, replaces FROM turns WHERE tenant = $1 AND id = $2 AND uncut_until > $3
        UNION ALL
        SELECT o.id, o.replaces FROM line CROSS JOIN turns o WHERE o.tenant = $1 AND o.id = line.replaces)
    SELECT CASE WHEN w.id <> t.id AND w.uncut_reply_text IS NULL THEN w.id END, t.key,
        COALESCE(w.uncut_reply_text, t.uncut_reply_text), t.uncut_until
    FROM line CROSS JOIN turns t CROSS JOIN turns w
    WHERE line.replaces IS NULL AND t.tenant = $1 AND t.id = $2 AND w.tenant = $1 AND w.id = line.id";
/// Counts apart the turn that stands and the turns that were unsaid, for their indexes.
const COUNT_CUTS: &str = "SELECT COUNT(*) FROM (
        SELECT 1 FROM turns WHERE tenant = $1 AND dialogue = $2 AND stands = TRUE AND number = $3
            AND replaces IS NOT NULL
        UNION ALL
        SELECT 1 FROM turns WHERE tenant = $1 AND dialogue = $2 AND stands = FALSE AND number = $3
            AND replaces IS NOT NULL) c";
/// Reads standing and unsaid turns apart, for their indexes.
const HIGHEST_TURN: &str = "SELECT COALESCE(MAX(number), 0) FROM (
        SELECT number FROM turns WHERE tenant = $1 AND dialogue = $2 AND stands = TRUE
        UNION ALL
        SELECT number FROM turns WHERE tenant = $1 AND dialogue = $2 AND stands = FALSE) n";
const DELETE_EXPIRED_SEALS: &str = "UPDATE turns SET uncut_reply_text = NULL, uncut_until = NULL
    WHERE tenant = $1 AND uncut_until <= $2";
/// Selects whether a player joined at the turn. An open dialogue counts if it began at the turn or at a replaced turn.
/// A closed dialogue counts if it began at the turn itself and has a turn.
const IS_JOINED_AT: &str = concat!(
    "WITH RECURSIVE ",
    and_replaced!("line", "$2"),
    " SELECT EXISTS (SELECT 1 FROM dialogues d",
    by_index!("dialogues_by_cause"),
    " WHERE d.tenant = $1 AND d.cause_id ",
    in_subquery!("SELECT id FROM line"),
    " AND d.cause_kind = 'turn' AND (d.status = 'open' OR (d.head_turn_id IS NOT NULL AND d.cause_id ",
    in_json_list!("$2"),
    ")))"
);
const DIALOGUES_REPLACING: &str = "SELECT id FROM dialogues
    WHERE tenant = $1 AND replacing IS NOT NULL LIMIT $2";
const DIRTY_MEMORIES: &str = "SELECT world, knowers, private_to, since, mark FROM unsettled
    WHERE tenant = $1 ORDER BY since LIMIT $2";

async fn rewind_dialogue(
    connection: &mut Connection,
    tenant: &TenantId,
    rewind: &RewindCommit,
) -> StoreResult<RewindCommitResult> {
    let dialogue = rewind.dialogue.to_string();
    acquire_lock(connection, tenant, LedgerLock::MemoryIn(&rewind.world, rewind.dialogue)).await?;
    let row = fetch_optional!(
        connection, LOCK_DIALOGUE_FOR_REWIND;
        tenant, dialogue, to_signed(rewind.epoch), rewind.world, rewind.key
    )
    .await?;
    let Some(row) = row else {
        return Ok(RewindCommitResult::Fenced);
    };
    let mut columns = Columns::new(&row);
    let is_owners: bool = columns.next()?;
    let is_open: bool = columns.next()?;
    if let Some(outcome) = columns.maybe_json()? {
        return Ok(RewindCommitResult::Repeated(outcome));
    }
    if !is_owners {
        return Ok(RewindCommitResult::Fenced);
    }
    match rewind.origin {
        RewindOrigin::Request | RewindOrigin::Resume { .. } if !is_open => return Ok(RewindCommitResult::Closed),
        RewindOrigin::Resume { cut: cut_turn } if is_joined_at(connection, tenant, cut_turn).await? => {
            return Ok(RewindCommitResult::Joined);
        }
        _ => {}
    }
    let Some(rewound) = rewind_head(connection, tenant, rewind).await? else {
        return Ok(RewindCommitResult::NoSuchTurn);
    };
    // Callers served by this rewind instead of an earlier rewind get the same answer for a repeated request.
    let outcome = InterruptOutcome::Rewound(Arc::clone(&rewound));
    record_key_outcomes(
        connection,
        tenant,
        rewind.dialogue,
        &rewind.other_keys,
        OnKeyConflict::Replace,
        &outcome,
        rewind.rewound_at,
    )
    .await?;
    failpoint!("rewind.audited");
    Ok(RewindCommitResult::Done(rewound))
}

/// Returns whether a player joined at the turn. A concurrent join comes before the check, or no longer finds the turn.
async fn is_joined_at(connection: &mut Connection, tenant: &TenantId, turn: TurnId) -> StoreResult<bool> {
    acquire_lock(connection, tenant, LedgerLock::Turn(turn)).await?;
    fetch_scalar!(connection, IS_JOINED_AT; tenant, json_list([turn])).await
}

/// Records a cut of a reply that was still streaming. A known key keeps its outcome.
pub(super) async fn record_cut(
    connection: &mut Connection,
    tenant: &TenantId,
    turn: &Turn,
    live_cut: &LiveCut,
) -> StoreResult<()> {
    let outcome = to_json(&InterruptOutcome::Cut { turn: turn.number })?;
    execute!(
        connection, RECORD_KEY_OUTCOME;
        tenant, live_cut.id, turn.dialogue, live_cut.key, outcome, to_micros(live_cut.edit.made_at)
    )
    .await?;
    audit::record_audit(connection, tenant, &live_cut.edit).await
}

/// Stores the outcome for the keys of all callers that asked for the same rewind. No event reports these rows.
async fn record_key_outcomes(
    connection: &mut Connection,
    tenant: &TenantId,
    dialogue: DialogueId,
    keys: &[(RewindId, String)],
    on_conflict: OnKeyConflict,
    outcome: &InterruptOutcome,
    now: DateTime<Utc>,
) -> StoreResult<()> {
    let outcome = to_json(outcome)?;
    let now = to_micros(now);
    for (id, key) in keys {
        if on_conflict == OnKeyConflict::Replace {
            execute!(connection, FREE_KEY; tenant, dialogue, key).await?;
        }
        execute!(connection, RECORD_KEY_OUTCOME; tenant, *id, dialogue, key, outcome, now).await?;
    }
    Ok(())
}

fn read_sealed_reply(columns: &mut Columns<'_>) -> StoreResult<SealedReply> {
    Ok(SealedReply {
        whole: columns.maybe_id()?,
        key: columns.next()?,
        text: columns.next::<Option<String>>()?.unwrap_or_default(),
        until: columns.time()?,
    })
}

fn read_dirty_memory(columns: &mut Columns<'_>) -> StoreResult<DirtyMemory> {
    Ok(DirtyMemory {
        world: columns.id()?,
        audience: Audience {
            knowers: columns.json()?,
            private_to: columns.maybe_id()?,
        },
        since: columns.time()?,
        mark: columns.number()?,
    })
}

#[async_trait]
impl RewindStore for SqlRewindStore {
    async fn commit_rewind(&self, scope: &TenantScope, commit: &RewindCommit) -> StoreResult<RewindCommitResult> {
        let world = &commit.world;
        let tenant = scope.tenant().clone();
        let commit = commit.clone();
        write_memory!(self.0, scope.tenant(), world, |connection| {
            rewind_dialogue(connection, &tenant, &commit).await
        })
        .await
    }
    async fn record_outcome(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        acks: &RewindAcks,
        outcome: &InterruptOutcome,
        on_conflict: OnKeyConflict,
    ) -> StoreResult<()> {
        let tenant = scope.tenant().clone();
        let acks = acks.clone();
        let outcome = outcome.clone();
        write_transaction!(self.0, scope, |connection| {
            record_key_outcomes(
                connection,
                &tenant,
                dialogue,
                &acks.keys,
                on_conflict,
                &outcome,
                acks.recorded_at,
            )
            .await?;
            for edit in &acks.edits {
                audit::record_audit(connection, &tenant, edit).await?;
            }
            Ok(())
        })
        .await
    }
    async fn load_outcome_by_key(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        key: &str,
    ) -> StoreResult<Option<InterruptOutcome>> {
        let query = bind!(OUTCOME_BY_KEY; scope.tenant(), dialogue, key);
        self.0.fetch_optional(scope, query, |columns| columns.json()).await
    }
    async fn list_rewinds_since(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        after: u64,
        limit: u32,
    ) -> StoreResult<Vec<RewindRecord>> {
        let query = bind!(REWINDS_SINCE; scope.tenant(), dialogue, to_signed(after), i64::from(limit));
        self.0.fetch_all(scope, query, |columns| columns.json()).await
    }
    async fn load_sealed_reply(
        &self,
        scope: &TenantScope,
        turn: TurnId,
        now: DateTime<Utc>,
    ) -> StoreResult<Option<SealedReply>> {
        let query = bind!(SEALED_REPLY; scope.tenant(), turn, to_micros(now));
        self.0.fetch_optional(scope, query, read_sealed_reply).await
    }
    async fn count_cuts(&self, scope: &TenantScope, dialogue: DialogueId, number: u32) -> StoreResult<u64> {
        let query = bind!(COUNT_CUTS; scope.tenant(), dialogue, i64::from(number));
        self.0.fetch_one(scope, query, |columns| columns.number()).await
    }
    async fn load_highest_turn(&self, scope: &TenantScope, dialogue: DialogueId) -> StoreResult<u32> {
        let query = bind!(HIGHEST_TURN; scope.tenant(), dialogue);
        self.0.fetch_one(scope, query, |columns| columns.number()).await
    }
    async fn delete_expired_seals(&self, scope: &TenantScope, now: DateTime<Utc>) -> StoreResult<u64> {
        let query = bind!(DELETE_EXPIRED_SEALS; scope.tenant(), to_micros(now));
        self.0.execute(scope, query).await
    }
    async fn list_pending_replacements(&self, scope: &TenantScope, limit: u32) -> StoreResult<Vec<DialogueId>> {
        let query = bind!(DIALOGUES_REPLACING; scope.tenant(), i64::from(limit));
        self.0.fetch_all(scope, query, |columns| columns.id()).await
    }
    async fn list_dirty_memories(&self, scope: &TenantScope, limit: u32) -> StoreResult<Vec<DirtyMemory>> {
        let query = bind!(DIRTY_MEMORIES; scope.tenant(), i64::from(limit));
        self.0.fetch_all(scope, query, read_dirty_memory).await
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn rewinds_are_found_by_dialogue() {
            assert_searches(OUTCOME_BY_KEY, &["rewinds_by_key"]).await;
            assert_searches(DIALOGUES_REPLACING, &["dialogues_replacing"]).await;
            assert_searches(REWINDS_SINCE, &["rewinds_of_dialogue"]).await;
            assert_searches(SEALED_REPLY, &["sqlite_autoindex_turns_1 (tenant=? AND id=?)"]).await;
            assert_searches(DELETE_EXPIRED_SEALS, &["turns_sealed"]).await;
            let cuts = plan(COUNT_CUTS).await;
            assert!(
                cuts.contains("turns_standing (tenant=? AND dialogue=? AND number=?)")
                    && cuts.contains("turns_unsaid_of_dialogue (tenant=? AND dialogue=?)"),
                "{cuts}"
            );
            let highest = plan(HIGHEST_TURN).await;
            assert!(
                highest.contains("turns_standing (tenant=? AND dialogue=?)")
                    && highest.contains("turns_unsaid_of_dialogue (tenant=? AND dialogue=?)"),
                "{highest}"
            );
            let joined = plan(IS_JOINED_AT).await;
            assert!(
                joined.contains("dialogues_by_cause (tenant=? AND cause_id=?)") && joined.contains("SEARCH t USING"),
                "{joined}"
            );
            assert_searches(LOCK_DIALOGUE_FOR_REWIND, &["sqlite_autoindex_dialogues_1 (tenant=? AND id=?)", "rewinds_by_key"]).await;
        }
    }
}
