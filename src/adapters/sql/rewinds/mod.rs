//! Moving heads. `head` does it; here is what is read and written around it.

/// The turn in whose place one stands. A value, so that it is looked up for each: joined, Postgres would read all turns.
macro_rules! replaced_by {
    ($turn:literal) => {
        concat!(
            "(SELECT t.replaces FROM turns t WHERE t.tenant = $1 AND t.id = ",
            $turn,
            ")"
        )
    };
}
/// A list of turns as a table expression of that name: with those in whose place they stand.
macro_rules! and_replaced {
    ($name:literal, $turns:literal) => {
        concat!(
            $name,
            " (id) AS (SELECT v.value FROM ",
            texts!($turns),
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

mod caused;
mod head;
mod memories;
mod replacement;

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

pub(super) use self::head::{Move, drop_checkpoints, move_head};
use super::{
    Connection, Engine, Lock, Row, audit, lock,
    rows::{Columns, json, json_list, micros, store_error},
    turns::signed,
};
use crate::{
    ids::{DialogueId, RewindId, TenantId, TurnId},
    memory::fact::Audience,
    ports::{
        StoreResult,
        ledger::rewinds::{KnownKeys, LiveCut, Rewind, RewindOutcome, RewindStore, Rewound, Sealed, Told, Unsettled},
    },
    tenancy::TenantScope,
};

pub(super) struct SqlRewindStore(pub(super) Arc<Engine>);

const BY_KEY: &str = "SELECT outcome FROM rewinds WHERE tenant = $1 AND dialogue = $2 AND key = $3";
/// Whether it is the owner who asks, whether the dialogue is open, and the move that the key belongs to. Held until the
/// head has been moved, so that no turn is committed meanwhile.
const HELD: &str = concat!(
    "SELECT owner_epoch = $3, status = 'open',
        (SELECT r.outcome FROM rewinds r WHERE r.tenant = $1 AND r.dialogue = $2 AND r.key = $5)
     FROM dialogues WHERE tenant = $1 AND id = $2 AND world = $4",
    for_update!()
);
const RECORD_TOLD: &str = "INSERT INTO rewinds (tenant, id, dialogue, key, seq, outcome, at)
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant, dialogue, key) WHERE key IS NOT NULL DO NOTHING";
/// The move itself stays, for its event.
const FREE_KEY: &str = "UPDATE rewinds SET key = NULL WHERE tenant = $1 AND dialogue = $2 AND key = $3";
const SINCE: &str = "SELECT outcome FROM rewinds WHERE tenant = $1 AND dialogue = $2 AND seq > $3
    ORDER BY seq LIMIT $4";
/// A reply may be cut again, shorter: what it was in the beginning is at the end of the line. If even that was cut
/// while it was being said, it is to be gone on with.
const SEALED: &str = "WITH RECURSIVE line (id, replaces) AS (
        SELECT id, replaces FROM turns WHERE tenant = $1 AND id = $2 AND uncut_until > $3
        UNION ALL
        SELECT o.id, o.replaces FROM line CROSS JOIN turns o WHERE o.tenant = $1 AND o.id = line.replaces)
    SELECT CASE WHEN w.id <> t.id AND w.uncut_reply_text IS NULL THEN w.id END, t.key,
        COALESCE(w.uncut_reply_text, t.uncut_reply_text), t.uncut_until
    FROM line CROSS JOIN turns t CROSS JOIN turns w
    WHERE line.replaces IS NULL AND t.tenant = $1 AND t.id = $2 AND w.tenant = $1 AND w.id = line.id";
const UNSEAL: &str = "UPDATE turns SET uncut_reply_text = NULL, uncut_until = NULL
    WHERE tenant = $1 AND uncut_until <= $2";
/// Whether a dialogue that is open began at a turn, or at one in whose place it stands, or one that is closed by now and
/// something was said in at the turn itself.
const JOINED_AT: &str = concat!(
    "WITH RECURSIVE ",
    and_replaced!("line", "$2"),
    " SELECT EXISTS (SELECT 1 FROM dialogues d",
    by_index!("dialogues_by_cause"),
    " WHERE d.tenant = $1 AND d.cause_id ",
    any_of!("SELECT id FROM line"),
    " AND d.cause_kind = 'turn' AND (d.status = 'open' OR (d.head_turn_id IS NOT NULL AND d.cause_id ",
    among!("$2"),
    ")))"
);
const REPLACING: &str = "SELECT id FROM dialogues
    WHERE tenant = $1 AND replacing IS NOT NULL LIMIT $2";
const UNSETTLED: &str = "SELECT world, knowers, private_to, since, mark FROM unsettled
    WHERE tenant = $1 ORDER BY since LIMIT $2";

async fn rewind(connection: &mut Connection, tenant: &TenantId, rewind: &Rewind) -> StoreResult<RewindOutcome> {
    let dialogue = rewind.dialogue.to_string();
    lock(connection, tenant, Lock::MemoryIn(&rewind.world, rewind.dialogue)).await?;
    let held = sqlx::query(HELD)
        .bind(tenant.as_str())
        .bind(&dialogue)
        .bind(signed(rewind.epoch))
        .bind(rewind.world.as_str())
        .bind(&rewind.key)
        .fetch_optional(&mut *connection)
        .await
        .map_err(store_error)?;
    let Some(held) = held else {
        return Ok(RewindOutcome::Fenced);
    };
    let mut columns = Columns::of(&held);
    let (is_owners, is_open): (bool, bool) = (columns.next()?, columns.next()?);
    if let Some(known) = columns.maybe_json()? {
        return Ok(RewindOutcome::Repeated(Box::new(known)));
    }
    if !is_owners {
        return Ok(RewindOutcome::Fenced);
    }
    if !(is_open || rewind.closed_too) {
        return Ok(RewindOutcome::Closed);
    }
    if let Some(turn) = rewind.unless_joined
        && joined_at(connection, tenant, turn).await?
    {
        return Ok(RewindOutcome::Joined);
    }
    let asked = Move {
        id: rewind.id,
        dialogue: rewind.dialogue,
        world: &rewind.world,
        epoch: rewind.epoch,
        to: rewind.to,
        replacement: rewind.replacement.as_ref(),
        replacing: rewind.replacing,
        seq: rewind.seq,
        at: rewind.edit.at,
        reopen: false,
        restores: false,
        paused: rewind.paused,
        key: rewind.key.as_deref(),
        edits: std::iter::once(&rewind.edit).chain(&rewind.others).collect(),
    };
    let Some(rewound) = move_head(connection, tenant, asked).await? else {
        return Ok(RewindOutcome::NoSuchTurn);
    };
    // Those who are told of this move instead of an earlier one are told the same when they repeat.
    note_keys(
        connection,
        tenant,
        rewind.dialogue,
        &rewind.also,
        &rewound,
        KnownKeys::Follow,
    )
    .await?;
    failpoint!("rewind.audited");
    Ok(RewindOutcome::Done(Box::new(rewound)))
}

/// Whoever joins at this moment does so before, or finds the turn gone.
async fn joined_at(connection: &mut Connection, tenant: &TenantId, turn: TurnId) -> StoreResult<bool> {
    lock(connection, tenant, Lock::Turn(turn)).await?;
    sqlx::query_scalar(JOINED_AT)
        .bind(tenant.as_str())
        .bind(json_list([turn]))
        .fetch_one(connection)
        .await
        .map_err(store_error)
}

/// The move that a key belongs to.
async fn known(
    connection: &mut Connection,
    tenant: &TenantId,
    dialogue: &str,
    key: &str,
) -> StoreResult<Option<Rewound>> {
    let row = sqlx::query(BY_KEY)
        .bind(tenant.as_str())
        .bind(dialogue)
        .bind(key)
        .fetch_optional(connection)
        .await
        .map_err(store_error)?;
    row.map(|row| Columns::of(&row).json()).transpose()
}

/// Keeps who cut a reply while it was being said. A key that is known stays what it was.
pub(super) async fn record_cut(
    connection: &mut Connection,
    tenant: &TenantId,
    dialogue: DialogueId,
    cut: &LiveCut,
) -> StoreResult<()> {
    let (id, key) = (cut.rewound.id, cut.key.as_deref());
    write(connection, RECORD_TOLD, tenant, dialogue, (id, key), 0, &cut.rewound).await?;
    audit::record(connection, tenant, &cut.edit).await
}

/// Keeps what the keys of those are told who asked for the same. No event tells of these rows.
async fn note_keys(
    connection: &mut Connection,
    tenant: &TenantId,
    dialogue: DialogueId,
    keys: &[(RewindId, String)],
    outcome: &Rewound,
    known: KnownKeys,
) -> StoreResult<()> {
    for (id, key) in keys {
        if known == KnownKeys::Follow {
            sqlx::query(FREE_KEY)
                .bind(tenant.as_str())
                .bind(dialogue.to_string())
                .bind(key)
                .execute(&mut *connection)
                .await
                .map_err(store_error)?;
        }
        write(connection, RECORD_TOLD, tenant, dialogue, (*id, Some(key)), 0, outcome).await?;
    }
    Ok(())
}

async fn write(
    connection: &mut Connection,
    statement: &'static str,
    tenant: &TenantId,
    dialogue: DialogueId,
    (id, key): (RewindId, Option<&str>),
    seq: u64,
    rewound: &Rewound,
) -> StoreResult<()> {
    sqlx::query(statement)
        .bind(tenant.as_str())
        .bind(id.to_string())
        .bind(dialogue.to_string())
        .bind(key)
        .bind(signed(seq))
        .bind(json(rewound)?)
        .bind(micros(rewound.at))
        .execute(connection)
        .await
        .map(drop)
        .map_err(store_error)
}

async fn unseal(connection: &mut Connection, tenant: &TenantId, now: DateTime<Utc>) -> StoreResult<u64> {
    let unseal = sqlx::query(UNSEAL).bind(tenant.as_str()).bind(micros(now));
    let unsealed = unseal.execute(connection).await.map_err(store_error)?;
    Ok(unsealed.rows_affected())
}

fn read_unsettled(row: &Row) -> StoreResult<Unsettled> {
    let mut columns = Columns::of(row);
    Ok(Unsettled {
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
    async fn rewind(&self, scope: &TenantScope, asked: &Rewind) -> StoreResult<RewindOutcome> {
        let (tenant, world, asked) = (scope.tenant().clone(), asked.world.clone(), asked.clone());
        self.0
            .write_memory(scope.tenant(), &world, move |connection| {
                Box::pin(async move { rewind(connection, &tenant, &asked).await })
            })
            .await
    }
    async fn note(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        told: &Told,
        outcome: &Rewound,
        known: KnownKeys,
    ) -> StoreResult<()> {
        let (tenant, told, outcome) = (scope.tenant().clone(), told.clone(), outcome.clone());
        self.0
            .write(scope, move |connection| {
                Box::pin(async move {
                    note_keys(connection, &tenant, dialogue, &told.keys, &outcome, known).await?;
                    for edit in &told.edits {
                        audit::record(connection, &tenant, edit).await?;
                    }
                    Ok(())
                })
            })
            .await
    }
    async fn by_key(&self, scope: &TenantScope, dialogue: DialogueId, key: &str) -> StoreResult<Option<Rewound>> {
        let mut connection = self.0.read(scope).await?;
        known(&mut connection, scope.tenant(), &dialogue.to_string(), key).await
    }
    async fn since(
        &self,
        scope: &TenantScope,
        dialogue: DialogueId,
        after: u64,
        limit: u32,
    ) -> StoreResult<Vec<Rewound>> {
        let mut connection = self.0.read(scope).await?;
        let rows = sqlx::query(SINCE)
            .bind(scope.tenant().as_str())
            .bind(dialogue.to_string())
            .bind(signed(after))
            .bind(i64::from(limit))
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        rows.iter().map(|row| Columns::of(row).json()).collect()
    }
    async fn sealed(&self, scope: &TenantScope, turn: TurnId, now: DateTime<Utc>) -> StoreResult<Option<Sealed>> {
        let mut connection = self.0.read(scope).await?;
        let row = sqlx::query(SEALED)
            .bind(scope.tenant().as_str())
            .bind(turn.to_string())
            .bind(micros(now))
            .fetch_optional(&mut *connection)
            .await
            .map_err(store_error)?;
        row.map(|row| {
            let mut columns = Columns::of(&row);
            Ok(Sealed {
                whole: columns.maybe_id()?,
                key: columns.next()?,
                text: columns.next::<Option<String>>()?.unwrap_or_default(),
                until: columns.time()?,
            })
        })
        .transpose()
    }
    async fn unseal(&self, scope: &TenantScope, now: DateTime<Utc>) -> StoreResult<u64> {
        let tenant = scope.tenant().clone();
        self.0
            .write_once(scope, move |connection| {
                Box::pin(async move { unseal(connection, &tenant, now).await })
            })
            .await
    }
    async fn replacing(&self, scope: &TenantScope, limit: u32) -> StoreResult<Vec<DialogueId>> {
        let mut connection = self.0.read(scope).await?;
        let rows = sqlx::query(REPLACING)
            .bind(scope.tenant().as_str())
            .bind(i64::from(limit))
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        rows.iter().map(|row| Columns::of(row).id()).collect()
    }
    async fn unsettled(&self, scope: &TenantScope, limit: u32) -> StoreResult<Vec<Unsettled>> {
        let mut connection = self.0.read(scope).await?;
        let rows = sqlx::query(UNSETTLED)
            .bind(scope.tenant().as_str())
            .bind(i64::from(limit))
            .fetch_all(&mut *connection)
            .await
            .map_err(store_error)?;
        rows.iter().map(read_unsettled).collect()
    }
}

plans_of_sqlite! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::adapters::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn moves_are_found_by_dialogue() {
            assert_searches(BY_KEY, &["rewinds_by_key"]).await;
            assert_searches(REPLACING, &["dialogues_replacing"]).await;
            assert_searches(SINCE, &["rewinds_of_dialogue"]).await;
            assert_searches(SEALED, &["sqlite_autoindex_turns_1 (tenant=? AND id=?)"]).await;
            assert_searches(UNSEAL, &["turns_sealed"]).await;
            let joined = plan(JOINED_AT).await;
            assert!(
                joined.contains("dialogues_by_cause (tenant=? AND cause_id=?)") && joined.contains("SEARCH t USING"),
                "{joined}"
            );
            assert_searches(HELD, &["sqlite_autoindex_dialogues_1 (tenant=? AND id=?)", "rewinds_by_key"]).await;
        }
    }
}
