//! Turns that replace a turn whose reply was cut.

use serde_json::json;

use super::super::{
    context::Connection,
    episodes,
    rows::{self, Columns, to_micros, to_signed, without_nul},
    statements::{execute, fetch_optional},
};
use colloquy_core::ids::{TenantId, TurnId};
use colloquy_memory::turn::Checkpoint;
use colloquy_ports::{
    StoreResult,
    ledger::{jobs::JobKind, rewinds::Replacement},
};

const CHECKPOINT_OF_TURN: &str = "SELECT body FROM checkpoints WHERE tenant = $1 AND turn = $2";
const INSERT_CHECKPOINT: &str = "INSERT INTO checkpoints (tenant, turn, body) VALUES ($1, $2, $3)";
/// The key stays on both turns: a repeated line gets the turn that stands.
const INSERT_REPLACEMENT: &str = batch!(
    "INSERT INTO turns (tenant, id, dialogue, number, previous, replaces, text_version, key, status,
        player, player_text, npc, reply_text, cues, prompt_tokens, cached_tokens, completion_tokens, started_at,
        committed_at, seq_started, seq_done, seq_committed, uncut_reply_text, uncut_until)
     SELECT $1, $2, $4, $5, $6, $3, $7, key, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
        $22, $23 FROM turns WHERE tenant = $1 AND id = $3",
    "INSERT INTO traces (tenant, turn, body) SELECT tenant, $2, body FROM traces WHERE tenant = $1 AND turn = $3",
    concat!(
        "INSERT INTO jobs (tenant, id, kind, dialogue, turn, text_version, status, due_at, created_at)
         SELECT $1, v.value ->> 0, v.value ->> 1, $4, $2, CAST(v.value ->> 2 AS BIGINT), 'pending',
            CAST(v.value ->> 3 AS BIGINT), CAST(v.value ->> 4 AS BIGINT)
         FROM ",
        json_arrays_table!("$24"),
        " v"
    )
);

/// Writes the replacement's checkpoint before the replaced turn's checkpoint is deleted. A cut reply has not ended the
/// conversation.
pub(super) async fn copy_checkpoint(
    connection: &mut Connection,
    tenant: &TenantId,
    replacement: &Replacement,
) -> StoreResult<()> {
    let row = fetch_optional!(connection, CHECKPOINT_OF_TURN; tenant, replacement.replaced_turn).await?;
    let Some(row) = row else { return Ok(()) };
    let mut checkpoint: Checkpoint = Columns::new(&row).json()?;
    checkpoint.has_ended = false;
    checkpoint.forget_told_by_last_turn();
    execute!(connection, INSERT_CHECKPOINT; tenant, replacement.turn.id, rows::to_json(&checkpoint)?).await?;
    Ok(())
}

/// Inserts the turn after `previous`, with its jobs.
pub(super) async fn insert_replacement(
    connection: &mut Connection,
    tenant: &TenantId,
    previous: Option<TurnId>,
    replacement: &Replacement,
) -> StoreResult<()> {
    let turn = &replacement.turn;
    debug_assert!(
        replacement.jobs.iter().all(|job| job.turn == turn.id),
        "a turn in place of another has jobs of its own"
    );
    debug_assert!(replacement.replaced_turn != turn.id, "no turn is in its own place");
    let jobs: serde_json::Value = replacement
        .jobs
        .iter()
        .map(|job| {
            let created_at = to_micros(job.created_at);
            let due_at = job.held_until.map_or(created_at, to_micros);
            json!([job.id, job.kind.as_str(), job.text_version, due_at, created_at])
        })
        .collect();
    let (uncut, until) = replacement.sealed_reply.clone().unzip();
    execute!(
        connection, INSERT_REPLACEMENT;
        tenant, turn.id, replacement.replaced_turn, turn.dialogue, i64::from(turn.number), previous,
        i64::from(turn.text_version), turn.status.as_str(), turn.player, without_nul(&turn.player_text), turn.npc,
        without_nul(&turn.reply_text),
        rows::to_json(&turn.cues)?, i64::from(turn.usage.prompt_tokens), i64::from(turn.usage.cached_tokens),
        i64::from(turn.usage.completion_tokens), to_micros(turn.started_at), to_micros(turn.committed_at),
        to_signed(turn.seqs.started), to_signed(turn.seqs.done), to_signed(turn.seqs.committed), uncut,
        until.map(to_micros), jobs.to_string()
    )
    .await?;
    // An extraction writes an episode of its own.
    if !replacement.jobs.iter().any(|job| job.kind == JobKind::ExtractFacts) {
        episodes::copy_episode(connection, tenant, replacement.replaced_turn, turn.id).await?;
    }
    Ok(())
}
