//! One move of one head, inside the writer's transaction: which turns stand, and with them
//! everything they caused.

use chrono::{DateTime, Utc};

use super::super::{
    Connection, Row,
    rows::{Columns, json_list, micros, store_error},
    state,
    turns::signed,
};
use super::{facts, replacement};
use crate::{
    ids::{DialogueId, RewindId, TenantId, TurnId, WorldId},
    ports::{
        StoreResult,
        ledger::rewinds::{MAX_QUOTED, QuotedIn, Replacement, Rewound, RolledBack},
    },
};

/// What is asked of a dialogue. Whether it may be asked is the caller's to know.
pub(in super::super) struct Move<'a> {
    pub id: RewindId,
    pub dialogue: DialogueId,
    pub world: &'a WorldId,
    /// The owner's epoch, which rises.
    pub epoch: u64,
    pub to: Option<TurnId>,
    pub replacement: Option<&'a Replacement>,
    /// A turn that goes only to be said anew, and keeps what it needs to stand again.
    pub replacing: Option<TurnId>,
    pub seq: u64,
    pub at: DateTime<Utc>,
    /// Opens a closed dialogue again.
    pub reopen: bool,
}

/// A turn on its way out or back.
struct Moving {
    id: TurnId,
    number: u32,
    said_at: i64,
}

/// The chain that ends in a turn, as far as it does not stand, and the turn that it branches off from.
/// What stands before that one is in the chain too: whatever stands is one chain.
const CHAIN: &str = "WITH RECURSIVE chain (id, number, said_at, stands, previous) AS (
        SELECT id, number, committed_at, stands, previous FROM turns WHERE tenant = $1 AND id = $2 AND dialogue = $3
        UNION ALL
        SELECT t.id, t.number, t.committed_at, t.stands, t.previous FROM chain c CROSS JOIN turns t
        WHERE c.stands = FALSE AND t.tenant = $1 AND t.id = c.previous)
    SELECT id, number, said_at, stands FROM chain";
const STANDING_AFTER: &str = "SELECT id, number, committed_at, stands FROM turns
    WHERE tenant = $1 AND dialogue = $2 AND stands = TRUE AND number > $3";
/// How rows that a turn caused are taken back, and put back.
macro_rules! lift {
    ($table:literal) => {
        concat!(
            "UPDATE ",
            $table,
            by_index!($table, "_by_cause"),
            " SET lifted_at = $3, lifted_by = $4
            WHERE tenant = $1 AND cause_id ",
            among!("$2"),
            " AND cause_kind = 'turn' AND lifted_at IS NULL"
        )
    };
}
macro_rules! put_back {
    ($table:literal) => {
        concat!(
            "UPDATE ",
            $table,
            by_index!($table, "_by_cause"),
            " SET lifted_at = NULL, lifted_by = NULL
            WHERE tenant = $1 AND cause_id ",
            among!("$2"),
            " AND cause_kind = 'turn'
              AND lifted_by LIKE 'rew!_%' ESCAPE '!'"
        )
    };
}
/// Rows that are counted have a trip of their own.
const LIFT_SUMMARIES: &str = lift!("summaries");
const LIFT_STATE: &str = lift!("state_events");
const PUT_BACK_SUMMARIES: &str = put_back!("summaries");
const PUT_BACK_STATE: &str = put_back!("state_events");
const UNSAY: &str = batch!(
    concat!(
        "UPDATE turns SET stands = FALSE, unsaid_at = $3, unsaid_by = $4 WHERE tenant = $1 AND id ",
        among!("$2")
    ),
    lift!("summary_changes"),
    lift!("fact_flags"),
    lift!("narrative_memory"),
    lift!("curation_findings"),
);
const SAY_AGAIN: &str = batch!(
    concat!(
        "UPDATE turns SET stands = TRUE, unsaid_at = NULL, unsaid_by = NULL WHERE tenant = $1 AND id ",
        among!("$2")
    ),
    put_back!("summary_changes"),
    put_back!("fact_flags"),
    put_back!("narrative_memory"),
    put_back!("curation_findings"),
);
/// Checkpoints go with their turns and those in whose place they stand, and so does that of a turn that was out to be said
/// anew; but not those of what stands again or may ($4), and those that a save goes on from.
const DROP_CHECKPOINTS: &str = concat!(
    "WITH RECURSIVE ",
    and_replaced!("gone", "$2"),
    ", ",
    and_replaced!("whole", "$4"),
    ", owed (id) AS (
        SELECT replacing FROM dialogues WHERE tenant = $1 AND id = $3 AND replacing IS NOT NULL
        UNION SELECT t.replaces FROM owed o CROSS JOIN turns t
            WHERE t.tenant = $1 AND t.id = o.id AND t.replaces IS NOT NULL),
    kept (id, previous, replaces) AS (
        SELECT t.id, t.previous, t.replaces FROM save_items i CROSS JOIN turns t
            WHERE i.tenant = $1 AND i.dialogue = $3 AND t.tenant = $1 AND t.id = i.turn AND t.stands = FALSE
        UNION
        SELECT t.id, t.previous, t.replaces FROM kept k CROSS JOIN turns t
            WHERE t.tenant = $1 AND t.id IN (k.previous, k.replaces) AND t.stands = FALSE)
     DELETE FROM checkpoints WHERE tenant = $1 AND turn ",
    any_of!("SELECT id FROM gone UNION SELECT id FROM owed"),
    " AND turn NOT IN (SELECT id FROM kept) AND turn NOT IN (SELECT id FROM whole)"
);
/// `unsaid` marks what was given up with its turn, so that it is done after all should the turn stand again.
const END_JOBS: &str = concat!(
    "UPDATE jobs SET status = 'done', last_error = 'unsaid', finished_at = $4,
        leased_to = NULL, leased_until = NULL, answer = NULL
    WHERE tenant = $1 AND dialogue = $3 AND status = 'pending' AND turn ",
    among!("$2")
);
/// What was still held when it was given up is held anew, for as long: its turn has yet to be heard. It has all its
/// time once more, however old a save that is loaded.
const REVIVE_JOBS: &str = concat!(
    "UPDATE jobs SET status = 'pending', last_error = NULL, attempts = 0, useless = 0, retried_at = $4, finished_at = NULL,
        due_at = CASE WHEN attempts = 0 AND due_at > finished_at THEN $4 + (due_at - COALESCE(retried_at, created_at)) ELSE $4 END
    WHERE tenant = $1 AND dialogue = $3 AND status = 'done' AND last_error = 'unsaid'
      AND turn ",
    among!("$2")
);
/// A turn that was cut stands in another's place, and whoever joined at either joined there. What stands again
/// or goes on being there ($4) closes nothing.
const CLOSE_JOINED: &str = concat!(
    "WITH RECURSIVE ",
    and_replaced!("gone", "$2"),
    ", ",
    and_replaced!("there", "$4"),
    " UPDATE dialogues SET status = 'closed', updated_at = $3
     WHERE tenant = $1 AND cause_id ",
    any_of!("SELECT id FROM gone"),
    " AND cause_id NOT IN (SELECT id FROM there) AND cause_kind = 'turn' AND status = 'open' RETURNING id"
);
const TAKE_HEAD: &str = concat!(
    "UPDATE dialogues SET head_turn = $3, head_turn_id = $4, next_seq = ",
    greater!("next_seq", "$5"),
    ", updated_at = $6, owner_epoch = owner_epoch + 1, replacing = $8,
        status = CASE WHEN $7 THEN 'open' ELSE status END
     WHERE tenant = $1 AND id = $2"
);
/// Turns of other dialogues whose prompt had one of the facts. Looks at the latest ones only: it is a
/// courtesy to whoever rewinds, and must not hold up the rewind.
const QUOTED_IN: &str = concat!(
    "SELECT e.dialogue, e.number FROM (
        SELECT turn, dialogue, number, quoted, said_at FROM extractions
        WHERE tenant = $1 AND world = $2 AND said_at >= $4 ORDER BY said_at DESC LIMIT 2000) e
    CROSS JOIN turns t
    WHERE t.tenant = $1 AND t.id = e.turn AND t.stands = TRUE AND e.dialogue <> $5 AND EXISTS (SELECT 1 FROM ",
    texts!("e.quoted"),
    " i WHERE i.value ",
    among!("$3"),
    ")
    ORDER BY e.said_at DESC LIMIT $6"
);

/// Moves the head. `None`: the dialogue has no such turn.
pub(in super::super) async fn move_head(
    connection: &mut Connection,
    tenant: &TenantId,
    asked: Move<'_>,
) -> StoreResult<Option<Rewound>> {
    let dialogue = asked.dialogue.to_string();
    let Some((branch, kept)) = chain(connection, tenant, &dialogue, asked.to).await? else {
        return Ok(None);
    };
    let removed = moving(connection, STANDING_AFTER, tenant, &dialogue, kept).await?;

    if let Some(replacement) = asked.replacement {
        replacement::keep_checkpoint(connection, tenant, replacement).await?;
    }
    failpoint!("rewind.begun");
    let mut back = RolledBack::default();
    let mut touched = facts::Touched::default();
    let turns = json_list(removed.iter().map(|turn| turn.id));
    if !removed.is_empty() {
        let by = asked.id.to_string();
        // First of all: what a job of theirs is writing is there once this has been let through, and is lifted below.
        change_jobs(connection, END_JOBS, tenant, &turns, &dialogue, asked.at).await?;
        failpoint!("rewind.jobs");
        execute(connection, UNSAY, tenant, &turns, asked.at, &by).await?;
        failpoint!("rewind.unsaid");
        back.summaries = execute(connection, LIFT_SUMMARIES, tenant, &turns, asked.at, &by).await?;
        back.state = execute(connection, LIFT_STATE, tenant, &turns, asked.at, &by).await?;
        failpoint!("rewind.caused");
        facts::unsay(connection, tenant, &turns, asked.id, asked.at, &mut touched).await?;
        failpoint!("rewind.facts");
    }
    let cut = asked.replacement.map(|replacement| replacement.of);
    let whole = cut.or(asked.replacing).into_iter();
    let whole = json_list(whole.chain(branch.iter().map(|turn| turn.id)));
    drop_checkpoints_but(connection, tenant, &turns, &dialogue, &whole).await?;
    failpoint!("rewind.unchecked");
    let mut folds_anew = back.state > 0;
    if !branch.is_empty() {
        let turns = json_list(branch.iter().map(|turn| turn.id));
        set(connection, SAY_AGAIN, tenant, &turns).await?;
        failpoint!("rewind.said_again");
        change_jobs(connection, REVIVE_JOBS, tenant, &turns, &dialogue, asked.at).await?;
        set(connection, PUT_BACK_SUMMARIES, tenant, &turns).await?;
        folds_anew |= set(connection, PUT_BACK_STATE, tenant, &turns).await? > 0;
        failpoint!("rewind.put_back");
        facts::say_again(connection, tenant, &turns, asked.id, asked.at, &mut touched).await?;
        failpoint!("rewind.facts_again");
    }
    if folds_anew {
        state::fold_anew(connection, tenant, asked.world).await?;
    }
    let there = cut.into_iter().chain(branch.iter().map(|turn| turn.id));
    let closed = close_joined(connection, tenant, &removed, json_list(there), asked.at).await?;
    let since = removed.iter().chain(&branch).map(|turn| turn.said_at).min();
    let unsaid = json_list(&touched.unsaid);
    let counted = facts::settle_caches(connection, tenant, asked.world, touched, since).await?;
    (back.facts, back.restored) = (counted.unsaid, counted.restored);
    failpoint!("rewind.cached");

    let mut head = (asked.to, branch.iter().map(|turn| turn.number).max().unwrap_or(kept));
    if let Some(replacement) = asked.replacement {
        replacement::write(connection, tenant, asked.to, replacement).await?;
        failpoint!("rewind.replaced");
        head = (Some(replacement.turn.id), replacement.turn.number);
    }
    take_head(connection, tenant, &asked, &dialogue, head).await?;
    failpoint!("rewind.head");
    let quoted_in = match since {
        Some(since) if unsaid != "[]" => quoted_in(connection, tenant, asked.world, &unsaid, since, &dialogue).await?,
        _ => Vec::new(),
    };
    let replaced = asked.replacement.map(|replacement| replacement.turn.number);
    Ok(Some(Rewound {
        id: asked.id,
        world: asked.world.clone(),
        epoch: asked.epoch + 1,
        head: head.0,
        head_turn: head.1,
        heard_chars: asked
            .replacement
            .map(|replacement| replacement.turn.reply_text.chars().count()),
        removed: numbers(&removed, replaced),
        reinstated: numbers(&branch, None),
        rolled_back: back,
        quoted_in,
        closed,
        replacing: asked.replacing,
        seq: asked.seq,
        at: asked.at,
    }))
}

fn numbers(turns: &[Moving], but: Option<u32>) -> Vec<u32> {
    let mut numbers: Vec<u32> = turns
        .iter()
        .map(|turn| turn.number)
        .filter(|number| Some(*number) != but)
        .collect();
    numbers.sort_unstable();
    numbers
}

/// The turns before and with `to` that do not stand, and the number of the last one that does.
async fn chain(
    connection: &mut Connection,
    tenant: &TenantId,
    dialogue: &str,
    to: Option<TurnId>,
) -> StoreResult<Option<(Vec<Moving>, u32)>> {
    let Some(to) = to else {
        return Ok(Some((Vec::new(), 0)));
    };
    let rows = sqlx::query(CHAIN)
        .bind(tenant.as_str())
        .bind(to.to_string())
        .bind(dialogue)
        .fetch_all(connection)
        .await
        .map_err(store_error)?;
    let (mut branch, mut kept) = (Vec::new(), 0);
    for row in &rows {
        let (turn, stands) = read_moving(row)?;
        if stands {
            kept = turn.number;
        } else {
            branch.push(turn);
        }
    }
    Ok((!rows.is_empty()).then_some((branch, kept)))
}

fn read_moving(row: &Row) -> StoreResult<(Moving, bool)> {
    let mut columns = Columns::of(row);
    let turn = Moving {
        id: columns.id()?,
        number: columns.number()?,
        said_at: columns.next()?,
    };
    Ok((turn, columns.next()?))
}

async fn moving(
    connection: &mut Connection,
    statement: &'static str,
    tenant: &TenantId,
    dialogue: &str,
    after: u32,
) -> StoreResult<Vec<Moving>> {
    let rows = sqlx::query(statement)
        .bind(tenant.as_str())
        .bind(dialogue)
        .bind(i64::from(after))
        .fetch_all(connection)
        .await
        .map_err(store_error)?;
    rows.iter().map(|row| Ok(read_moving(row)?.0)).collect()
}

/// Runs a statement over turns that also takes the moment and the move; how many rows it changed.
async fn execute(
    connection: &mut Connection,
    statement: &'static str,
    tenant: &TenantId,
    turns: &str,
    at: DateTime<Utc>,
    by: &str,
) -> StoreResult<u32> {
    let done = sqlx::query(statement)
        .bind(tenant.as_str())
        .bind(turns)
        .bind(micros(at))
        .bind(by)
        .execute(connection)
        .await
        .map_err(store_error)?;
    Ok(u32::try_from(done.rows_affected()).unwrap_or(u32::MAX))
}

/// Runs a statement over turns; how many rows it changed.
async fn set(connection: &mut Connection, statement: &'static str, tenant: &TenantId, turns: &str) -> StoreResult<u64> {
    sqlx::query(statement)
        .bind(tenant.as_str())
        .bind(turns)
        .execute(connection)
        .await
        .map(|done| done.rows_affected())
        .map_err(store_error)
}

async fn change_jobs(
    connection: &mut Connection,
    statement: &'static str,
    tenant: &TenantId,
    turns: &str,
    dialogue: &str,
    at: DateTime<Utc>,
) -> StoreResult<()> {
    sqlx::query(statement)
        .bind(tenant.as_str())
        .bind(turns)
        .bind(dialogue)
        .bind(micros(at))
        .execute(connection)
        .await
        .map(drop)
        .map_err(store_error)
}

/// Those of turns that do not stand and do not come back, unless a save has them.
pub(in super::super) async fn drop_checkpoints(
    connection: &mut Connection,
    tenant: &TenantId,
    dialogue: DialogueId,
    turns: impl IntoIterator<Item = TurnId>,
) -> StoreResult<()> {
    drop_checkpoints_but(connection, tenant, &json_list(turns), &dialogue.to_string(), "[]").await
}

async fn drop_checkpoints_but(
    connection: &mut Connection,
    tenant: &TenantId,
    turns: &str,
    dialogue: &str,
    whole: &str,
) -> StoreResult<()> {
    sqlx::query(DROP_CHECKPOINTS)
        .bind(tenant.as_str())
        .bind(turns)
        .bind(dialogue)
        .bind(whole)
        .execute(connection)
        .await
        .map(drop)
        .map_err(store_error)
}

async fn close_joined(
    connection: &mut Connection,
    tenant: &TenantId,
    removed: &[Moving],
    there: String,
    at: DateTime<Utc>,
) -> StoreResult<Vec<DialogueId>> {
    let rows = sqlx::query(CLOSE_JOINED)
        .bind(tenant.as_str())
        .bind(json_list(removed.iter().map(|turn| turn.id)))
        .bind(micros(at))
        .bind(there)
        .fetch_all(connection)
        .await
        .map_err(store_error)?;
    rows.iter().map(|row| Columns::of(row).id()).collect()
}

async fn take_head(
    connection: &mut Connection,
    tenant: &TenantId,
    asked: &Move<'_>,
    dialogue: &str,
    (head, number): (Option<TurnId>, u32),
) -> StoreResult<()> {
    sqlx::query(TAKE_HEAD)
        .bind(tenant.as_str())
        .bind(dialogue)
        .bind(i64::from(number))
        .bind(head.map(|turn| turn.to_string()))
        .bind(signed(asked.seq.saturating_add(1)))
        .bind(micros(asked.at))
        .bind(asked.reopen)
        .bind(asked.replacing.map(|turn| turn.to_string()))
        .execute(connection)
        .await
        .map(drop)
        .map_err(store_error)
}

async fn quoted_in(
    connection: &mut Connection,
    tenant: &TenantId,
    world: &WorldId,
    unsaid: &str,
    since: i64,
    dialogue: &str,
) -> StoreResult<Vec<QuotedIn>> {
    let rows = sqlx::query(QUOTED_IN)
        .bind(tenant.as_str())
        .bind(world.as_str())
        .bind(unsaid)
        .bind(since)
        .bind(dialogue)
        .bind(i64::try_from(MAX_QUOTED).unwrap_or(i64::MAX))
        .fetch_all(connection)
        .await
        .map_err(store_error)?;
    rows.iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok(QuotedIn {
                dialogue_id: columns.id()?,
                turn: columns.number()?,
            })
        })
        .collect()
}

plans_of_sqlite! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::adapters::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn a_move_touches_what_it_names_and_nothing_else() {
            assert_searches(STANDING_AFTER, &["turns_standing"]).await;
            assert!(
                plan(QUOTED_IN)
                    .await
                    .contains("extractions_of_world (tenant=? AND world=? AND said_at>?)")
            );
            let close = plan(CLOSE_JOINED).await;
            assert!(
                close.contains("dialogues_by_cause (tenant=? AND cause_id=?)") && !close.contains("SCAN dialogues"),
                "{close}"
            );
            assert!(close.contains("SEARCH t USING INDEX sqlite_autoindex_turns_1"), "{close}");
            let drop = plan(DROP_CHECKPOINTS).await;
            assert!(
                drop.contains("save_items_of_dialogue (tenant=? AND dialogue=?)"),
                "{drop}"
            );
            for caused in [LIFT_SUMMARIES, LIFT_STATE, PUT_BACK_SUMMARIES, PUT_BACK_STATE] {
                assert_searches(caused, &["_by_cause"]).await;
            }
            for caused in UNSAY.split(';').chain(SAY_AGAIN.split(';')).filter(|each| each.contains("cause_id")) {
                assert_searches(caused, &["_by_cause"]).await;
            }
            for statement in [END_JOBS, REVIVE_JOBS, UNSAY, SAY_AGAIN] {
                assert_searches(statement, &[]).await;
            }
        }
    }
}
