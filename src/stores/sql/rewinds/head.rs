//! The rewind of a dialogue's head, inside the writer's transaction: which turns stand, and with them all rows that the
//! turns caused.

use std::{mem::take, sync::Arc};

use super::super::{
    audit,
    context::Connection,
    rows::{Columns, bool_json, json_list, to_json, to_micros, to_signed},
    state,
    statements::{execute, fetch_all},
    webhooks::events::{self, RewoundObjects, insert_messages},
};
use super::{
    derived_rows::{self, RewindImpact},
    memories::{self, RewoundDialogue},
    replacement,
};
use colloquy_core::ids::{DialogueId, TenantId, TurnId};
use colloquy_ports::{
    StoreResult,
    ledger::rewinds::{InterruptOutcome, QuotedIn, RewindCommit, RewindOrigin, RewindRecord, RolledBack},
};

/// A turn that the rewind removes or reinstates.
struct ChainTurn {
    id: TurnId,
    number: u32,
    said_at: i64,
}

/// Selects the chain of a turn, back to the last standing turn, and then the standing turns after the branch point.
/// Turns before the branch point belong to the chain too, because all standing turns form a single chain.
const SELECT_TURN_CHAIN: &str = "WITH RECURSIVE chain (id, number, said_at, stands, previous) AS (
        SELECT id, number, committed_at, stands, previous FROM turns WHERE tenant = $1 AND id = $2 AND dialogue = $3
        UNION ALL
        SELECT t.id, t.number, t.committed_at, t.stands, t.previous FROM chain c CROSS JOIN turns t
        WHERE c.stands = FALSE AND t.tenant = $1 AND t.id = c.previous)
    SELECT CASE WHEN stands = TRUE THEN 'kept' ELSE 'branch' END, id, number, said_at FROM chain
    UNION ALL SELECT 'after', id, number, committed_at FROM turns WHERE tenant = $1 AND dialogue = $3 AND stands = TRUE
        AND number > (SELECT COALESCE(MAX(number), 0) FROM chain WHERE stands = TRUE)";
/// Deletes the checkpoints of the turns, of the turns they replaced, and of a turn awaiting regeneration. Checkpoints
/// of turns that stand or may stand again ($4), or that a save needs, stay.
macro_rules! drop_checkpoints {
    () => {
        concat!(
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
            in_subquery!("SELECT id FROM gone UNION SELECT id FROM owed"),
            " AND turn NOT IN (SELECT id FROM kept) AND turn NOT IN (SELECT id FROM whole)"
        )
    };
}
const DROP_CHECKPOINTS: &str = drop_checkpoints!();
/// Deletes checkpoints and closes the sessions that joined at the removed turns. A cut turn replaces another, and
/// joining at either is joining at both. Turns that stand again or remain ($6) close no session.
const REMOVE_DEPENDENTS: &str = batch_with_rows!(
    [drop_checkpoints!()][concat!(
        "WITH RECURSIVE ",
        and_replaced!("gone", "$2"),
        ", ",
        and_replaced!("there", "$6"),
        " UPDATE dialogues SET status = 'closed', updated_at = $5
         WHERE tenant = $1 AND cause_id ",
        in_subquery!("SELECT id FROM gone"),
        " AND cause_id NOT IN (SELECT id FROM there) AND cause_kind = 'turn' AND status = 'open' RETURNING id"
    )]
);
/// Ends the jobs of removed turns. `unsaid` marks the ended jobs, which run after all if the turn stands again. They then
/// have the model's answer to an earlier attempt.
const END_JOBS: &str = concat!(
    "UPDATE jobs SET status = 'done', last_error = 'unsaid', finished_at = $4,
        leased_to = NULL, leased_until = NULL
    WHERE tenant = $1 AND dialogue = $3 AND status = 'pending' AND turn ",
    in_json_list!("$2")
);
/// Reopens the jobs of reinstated turns. A job held at its end is held again for the same time, because the player has
/// yet to hear the turn. The job gets its full time, however old a loaded save is. Other jobs are held until $5, if given.
const REVIVE_JOBS: &str = concat!(
    "UPDATE jobs SET status = 'pending', last_error = NULL, attempts = 0, useless = 0, retried_at = $4, finished_at = NULL,
        due_at = CASE WHEN attempts = 0 AND due_at > finished_at THEN $4 + (due_at - COALESCE(retried_at, created_at))
            ELSE COALESCE($5, $4) END
    WHERE tenant = $1 AND dialogue = $3 AND status = 'done' AND last_error = 'unsaid'
      AND turn ",
    in_json_list!("$2")
);
/// Stores the new head and the event for listeners that repeat the request or were away, with the audit rows of the
/// callers and the messages for webhooks.
const STORE_NEW_HEAD: &str = batch!(
    concat!(
        "UPDATE dialogues SET head_turn = $3, head_turn_id = $4, next_seq = ",
        sql_greatest!("next_seq", "$5"),
        ", updated_at = $6, owner_epoch = owner_epoch + 1, replacing = $8,
            silence_check_from = COALESCE(silence_check_from, $6),
            status = CASE WHEN $7 THEN 'open' ELSE status END,
            options = CASE WHEN $9 IS NULL THEN options ELSE ",
        with_member!("options", "paused", "$9"),
        " END
         WHERE tenant = $1 AND id = $2"
    ),
    "INSERT INTO rewinds (tenant, id, dialogue, key, seq, outcome, at) VALUES ($1, $10, $2, $11, $12, $13, $6)",
    audit::insert_audit!("$14"),
    insert_messages!("$15")
);

/// Rewinds the head. The caller has checked that the rewind is allowed. `None` means that the dialogue has no such turn.
pub(in super::super) async fn rewind_head(
    connection: &mut Connection,
    tenant: &TenantId,
    commit: &RewindCommit,
) -> StoreResult<Option<Arc<RewindRecord>>> {
    let dialogue = commit.dialogue.to_string();
    let Some(chain) = load_turn_chain(connection, tenant, &dialogue, commit.to).await? else {
        return Ok(None);
    };
    if let Some(replacement) = &commit.replacement {
        replacement::copy_checkpoint(connection, tenant, replacement).await?;
    }
    failpoint!("rewind.begun");
    let mut rolled_back = RolledBack::default();
    let mut impact = RewindImpact::default();
    let turns = json_list(chain.after.iter().map(|turn| turn.id));
    if !chain.after.is_empty() {
        rolled_back = unsay_removed_turns(connection, tenant, commit, &turns, &mut impact).await?;
    }
    let closed = remove_dependents(connection, tenant, commit, &turns, &chain.branch).await?;
    failpoint!("rewind.unchecked");
    if !chain.branch.is_empty() {
        reinstate_branch(connection, tenant, commit, &chain.branch, &mut impact).await?;
    }
    let undone = take(&mut impact.undone);
    let reinstated = take(&mut impact.reinstated);
    if impact.folds_anew {
        state::bump_state_generation(connection, tenant, &commit.world).await?;
    }
    let quoted_in = mark_memories(connection, tenant, commit, &chain, impact, &mut rolled_back).await?;
    failpoint!("rewind.cached");

    if let Some(replacement) = &commit.replacement {
        replacement::insert_replacement(connection, tenant, commit.to, replacement).await?;
        failpoint!("rewind.replaced");
    }
    let rewound = Arc::new(RewindRecord {
        rolled_back,
        quoted_in,
        // The save itself decides which dialogues are open.
        closed: match commit.origin {
            RewindOrigin::Restore { .. } => Vec::new(),
            _ => closed,
        },
        ..chain.record_of(commit)
    });
    let changed = RewoundObjects {
        removed: numbered_ids(&chain.after),
        reinstated: numbered_ids(&chain.branch),
        undone_actions: undone.actions,
        undone_changes: undone.changes,
        again_actions: reinstated.actions,
        again_changes: reinstated.changes,
        closed: rewound.closed.clone(),
    };
    let events = events::events_of_rewind(commit, changed);
    store_new_head(connection, tenant, commit, &rewound, &events).await?;
    failpoint!("rewind.head");
    Ok(Some(rewound))
}

fn numbered_ids(turns: &[ChainTurn]) -> Vec<(TurnId, u32)> {
    turns.iter().map(|turn| (turn.id, turn.number)).collect()
}

fn turn_numbers(turns: &[ChainTurn], but: Option<u32>) -> Vec<u32> {
    let mut numbers: Vec<u32> = turns
        .iter()
        .map(|turn| turn.number)
        .filter(|number| Some(*number) != but)
        .collect();
    numbers.sort_unstable();
    numbers
}

/// A chain of turns, and the standing turns outside it.
#[derive(Default)]
struct TurnChain {
    /// The number of the chain's last standing turn.
    kept_number: u32,
    /// The chain's turns that do not stand.
    branch: Vec<ChainTurn>,
    /// The standing turns after the branch point.
    after: Vec<ChainTurn>,
}

impl TurnChain {
    /// The record of a rewind to the end of the chain, without the facts and dialogues that the rewind changes.
    fn record_of(&self, commit: &RewindCommit) -> RewindRecord {
        let cut_turn = commit.replacement.as_ref().map(|replacement| &replacement.turn);
        let last_number = self.branch.iter().map(|turn| turn.number).max();
        RewindRecord {
            id: commit.id,
            world: commit.world.clone(),
            epoch: commit.epoch + 1,
            head: cut_turn.map(|turn| turn.id).or(commit.to),
            head_turn: cut_turn.map_or(last_number.unwrap_or(self.kept_number), |turn| turn.number),
            heard_chars: cut_turn.map(|turn| turn.reply_text.chars().count()),
            removed: turn_numbers(&self.after, cut_turn.map(|turn| turn.number)),
            reinstated: turn_numbers(&self.branch, None),
            rolled_back: RolledBack::default(),
            quoted_in: Vec::new(),
            closed: Vec::new(),
            replacing: commit.replacing,
            seq: commit.seq,
            rewound_at: commit.rewound_at,
        }
    }
}

async fn load_turn_chain(
    connection: &mut Connection,
    tenant: &TenantId,
    dialogue: &str,
    to: Option<TurnId>,
) -> StoreResult<Option<TurnChain>> {
    let rows = fetch_all!(connection, SELECT_TURN_CHAIN; tenant, to, dialogue).await?;
    let mut chain = TurnChain::default();
    let mut is_known = to.is_none();
    for row in &rows {
        let mut columns = Columns::new(row);
        let place = columns.next::<&str>()?;
        let turn = ChainTurn {
            id: columns.id()?,
            number: columns.number()?,
            said_at: columns.next()?,
        };
        is_known |= Some(turn.id) == to;
        match place {
            "kept" => chain.kept_number = turn.number,
            "branch" => chain.branch.push(turn),
            _ => chain.after.push(turn),
        }
    }
    debug_assert!(
        chain
            .after
            .iter()
            .chain(&chain.branch)
            .all(|turn| turn.number > chain.kept_number),
        "a rewind changes only turns after those that it keeps"
    );
    Ok(is_known.then_some(chain))
}

/// Deletes the checkpoints of turns that neither stand nor come back, unless a save has the turns.
pub(in super::super) async fn drop_checkpoints(
    connection: &mut Connection,
    tenant: &TenantId,
    dialogue: DialogueId,
    turns: impl IntoIterator<Item = TurnId>,
) -> StoreResult<()> {
    execute!(connection, DROP_CHECKPOINTS; tenant, json_list(turns), dialogue, "[]")
        .await
        .map(drop)
}

/// Deletes the checkpoints of the removed turns, except the uncut reply of a cut turn and the turns of the branch, and
/// closes the dialogues that joined at removed turns, except at the cut turn and at turns of the branch. Returns the
/// closed dialogues.
async fn remove_dependents(
    connection: &mut Connection,
    tenant: &TenantId,
    commit: &RewindCommit,
    turns: &str,
    branch: &[ChainTurn],
) -> StoreResult<Vec<DialogueId>> {
    let cut_turn = commit.replacement.as_ref().map(|replacement| replacement.replaced_turn);
    let branch_ids = || branch.iter().map(|turn| turn.id);
    let uncut_ids = json_list(cut_turn.or(commit.replacing).into_iter().chain(branch_ids()));
    let present_ids = json_list(cut_turn.into_iter().chain(branch_ids()));
    let rows = fetch_all!(
        connection, REMOVE_DEPENDENTS;
        tenant, turns, commit.dialogue, uncut_ids, to_micros(commit.rewound_at), present_ids
    )
    .await?;
    Columns::read_rows(&rows, |columns| columns.id())
}

/// Ends the jobs of removed turns, and takes back the rows that the turns caused.
async fn unsay_removed_turns(
    connection: &mut Connection,
    tenant: &TenantId,
    commit: &RewindCommit,
    turns: &str,
    impact: &mut RewindImpact,
) -> StoreResult<RolledBack> {
    // Ending jobs comes first. Rows of a job in progress are visible once this statement has its locks, and are
    // unsaid below.
    execute!(connection, END_JOBS; tenant, turns, commit.dialogue, to_micros(commit.rewound_at)).await?;
    failpoint!("rewind.jobs");
    let rolled_back =
        derived_rows::unsay_turns(connection, tenant, turns, commit.id, commit.rewound_at, impact).await?;
    failpoint!("rewind.unsaid");
    Ok(rolled_back)
}

/// Marks the memories that the rewind changes, and counts their facts in `rolled_back`. Returns where the facts are
/// quoted.
async fn mark_memories(
    connection: &mut Connection,
    tenant: &TenantId,
    commit: &RewindCommit,
    chain: &TurnChain,
    impact: RewindImpact,
    rolled_back: &mut RolledBack,
) -> StoreResult<Vec<QuotedIn>> {
    let turn_times = chain.after.iter().chain(&chain.branch).map(|turn| turn.said_at);
    let Some(since) = turn_times.min().filter(|_| !impact.is_empty()) else {
        return Ok(Vec::new());
    };
    let memory = RewoundDialogue {
        world: &commit.world,
        dialogue: &commit.dialogue.to_string(),
        since,
    };
    let mark_outcome = memories::mark_memories_dirty(connection, tenant, &memory, impact).await?;
    rolled_back.facts = mark_outcome.unsaid;
    rolled_back.restored = mark_outcome.restored;
    Ok(mark_outcome.quoted_in)
}

/// Puts the turns of the branch back, with what they caused, and reopens their jobs.
async fn reinstate_branch(
    connection: &mut Connection,
    tenant: &TenantId,
    commit: &RewindCommit,
    branch: &[ChainTurn],
    impact: &mut RewindImpact,
) -> StoreResult<()> {
    let turns = json_list(branch.iter().map(|turn| turn.id));
    derived_rows::reinstate_turns(connection, tenant, &turns, commit.id, commit.rewound_at, impact).await?;
    failpoint!("rewind.said_again");
    let held_until = commit.held_until.map(to_micros);
    execute!(connection, REVIVE_JOBS; tenant, &turns, commit.dialogue, to_micros(commit.rewound_at), held_until)
        .await?;
    failpoint!("rewind.put_back");
    Ok(())
}

async fn store_new_head(
    connection: &mut Connection,
    tenant: &TenantId,
    commit: &RewindCommit,
    rewound: &Arc<RewindRecord>,
    events: &[events::Event],
) -> StoreResult<()> {
    let reopen = matches!(commit.origin, RewindOrigin::Restore { open: true });
    let outcome = InterruptOutcome::Rewound(Arc::clone(rewound));
    execute!(
        connection, STORE_NEW_HEAD;
        tenant, commit.dialogue, i64::from(rewound.head_turn), rewound.head, to_signed(commit.seq.saturating_add(1)),
        to_micros(commit.rewound_at), reopen, commit.replacing, commit.paused.map(bool_json), commit.id,
        commit.key, to_signed(commit.seq), to_json(&outcome)?, audit::audit_rows_json(&commit.edits),
        events::event_rows_json(events)?
    )
    .await?;
    Ok(())
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::{assert_searches, plan};

        #[tokio::test]
        async fn rewind_touches_only_the_rows_it_names() {
            let chain = plan(SELECT_TURN_CHAIN).await;
            let reads = |table: &str| chain.lines().any(|step| step.starts_with(&format!("SCAN {table}")));
            assert!(chain.contains("turns_standing (tenant=? AND dialogue=? AND number>?)"), "{chain}");
            assert!(!reads("turns") && !reads("t "), "{chain}");
            let close = REMOVE_DEPENDENTS.split(";\n").last().unwrap_or_default();
            let close = plan(close).await;
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
            for statement in [END_JOBS, REVIVE_JOBS] {
                assert_searches(statement, &[]).await;
            }
        }
    }
}
