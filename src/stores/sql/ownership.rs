//! Owners of dialogues, and the owner's writes other than turns. Every statement names the owner's epoch; with a
//! different epoch the statement writes nothing.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{
    context::{Connection, Row},
    dialogues::{self, SqlDialogueStore, dialogue_columns, parse_checkpoint},
    rows::{Columns, bool_json, to_micros, to_signed},
    scope::RowScope,
    statements::{execute, fetch_all, fetch_optional},
    webhooks::events::{end_event, event_rows_json, insert_messages},
};
use colloquy_core::{
    ids::{DialogueId, NodeId, TenantId},
    scope::TenantScope,
};
use colloquy_ports::{
    StoreResult,
    ledger::dialogues::{OpenDialogue, OwnerWriteOutcome, OwnershipClaim, OwnershipStore},
};

/// The next session may begin at once, so the curator looks for a due summary and a due curation pass without waiting for
/// an hour of silence. A look before the end may have left a few turns to a later one.
const CLOSE_DIALOGUE: &str = batch_with_rows!(
    []
    [
        "UPDATE dialogues SET status = 'closed', updated_at = $3,
            silence_check_from = CASE WHEN silence_check_from IS NULL AND head_turn_id IS NULL THEN NULL ELSE 0 END
         WHERE tenant = $1 AND id = $2 AND status = 'open' AND owner_epoch = $4 RETURNING 1",
        concat!(insert_messages!("$5", concat!(" AND ", was_changed!())), " RETURNING 1"),
    ]
);
const SET_PAUSED: &str = concat!(
    "UPDATE dialogues SET options = ",
    with_member!("options", "paused", "$3"),
    " WHERE tenant = $1 AND id = $2 AND status = 'open' AND owner_epoch = $4"
);
/// Runs in the transaction of a rewind, which holds the dialogue's row and has checked and raised the epoch.
const SET_PAUSED_UNFENCED: &str = concat!(
    "UPDATE dialogues SET options = ",
    with_member!("options", "paused", "$3"),
    " WHERE tenant = $1 AND id = $2"
);
const IS_OPEN: &str = "SELECT 1 FROM dialogues WHERE tenant = $1 AND id = $2 AND status = 'open'";
/// A live node keeps its dialogues, even if the ownership could not be renewed for a while.
const CLAIM_DIALOGUE: &str = concat!(
    "UPDATE dialogues SET owner_node = $3, owner_epoch = owner_epoch + 1, owner_until = $5
     WHERE tenant = $1 AND id = $2 AND (owner_node IS NULL OR owner_node = $3
        OR (owner_until <= $4 AND NOT EXISTS
            (SELECT 1 FROM nodes n WHERE n.id = dialogues.owner_node AND n.has_left = FALSE AND n.until > $4))
        OR EXISTS (SELECT 1 FROM nodes n WHERE n.id = dialogues.owner_node AND (n.has_left = TRUE OR n.until <= $4)))
     RETURNING ",
    dialogue_columns!(""),
    ", owner_epoch, head_turn_id, replacing, next_seq,
     (SELECT body FROM checkpoints WHERE checkpoints.tenant = dialogues.tenant
                                     AND checkpoints.turn = dialogues.head_turn_id)"
);
/// Locks the row, to see the result of a commit in progress.
const LOCK_OWNER: &str = concat!(
    "SELECT owner_node, owner_until FROM dialogues WHERE tenant = $1 AND id = $2",
    for_update!()
);
const RENEW_OWNERSHIP: &str = "UPDATE dialogues SET owner_until = $4
    WHERE tenant = $1 AND id = $2 AND owner_epoch = $3 AND owner_node IS NOT NULL";
const RELEASE_OWNERSHIP: &str = concat!(
    "UPDATE dialogues SET owner_node = NULL, owner_until = NULL, next_seq = ",
    sql_greatest!("next_seq", "$4"),
    " WHERE tenant = $1 AND id = $2 AND owner_epoch = $3"
);
const RELEASE_OWNERSHIP_OF_NODE: &str =
    "UPDATE dialogues SET owner_node = NULL, owner_until = NULL WHERE owner_node = $1";

fn read_open_dialogue(row: &Row, taken_from: Option<NodeId>) -> StoreResult<OpenDialogue> {
    let columns = &mut Columns::new(row);
    Ok(OpenDialogue {
        dialogue: dialogues::read_dialogue(columns)?,
        epoch: columns.number()?,
        head: columns.maybe_id()?,
        replacing: columns.maybe_id()?,
        next_seq: columns.number()?,
        checkpoint: parse_checkpoint(columns.next()?)?,
        taken_from,
    })
}

/// Pauses or resumes the dialogue in the transaction of a rewind.
pub(super) async fn set_paused_unfenced(
    connection: &mut Connection,
    tenant: &TenantId,
    dialogue: &str,
    paused: bool,
) -> StoreResult<()> {
    execute!(connection, SET_PAUSED_UNFENCED; tenant, dialogue, bool_json(paused))
        .await
        .map(drop)
}

/// Returns the outcome of an owner's write that changed `changed` rows.
async fn owner_write_outcome(
    connection: &mut Connection,
    tenant: &TenantId,
    id: DialogueId,
    changed: u64,
) -> StoreResult<OwnerWriteOutcome> {
    if changed > 0 {
        return Ok(OwnerWriteOutcome::Done);
    }
    let open = fetch_optional!(connection, IS_OPEN; tenant, id).await?;
    Ok(open.map_or(OwnerWriteOutcome::NotOpen, |_| OwnerWriteOutcome::Fenced))
}

#[async_trait]
impl OwnershipStore for SqlDialogueStore {
    async fn close_dialogue(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        now: DateTime<Utc>,
    ) -> StoreResult<OwnerWriteOutcome> {
        let tenant = scope.tenant().clone();
        let events = event_rows_json(&[end_event(id, "closed", now)])?;
        write_statement!(self.0, scope, |connection| {
            let closed =
                fetch_all!(connection, CLOSE_DIALOGUE; tenant, id, to_micros(now), to_signed(epoch), events).await?;
            owner_write_outcome(connection, &tenant, id, closed.len() as u64).await
        })
        .await
    }
    async fn set_paused(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        paused: bool,
    ) -> StoreResult<OwnerWriteOutcome> {
        let tenant = scope.tenant().clone();
        write_statement!(self.0, scope, |connection| {
            let updated_rows =
                execute!(connection, SET_PAUSED; tenant, id, bool_json(paused), to_signed(epoch)).await?;
            debug_assert!(updated_rows <= 1, "a pause is of one dialogue");
            owner_write_outcome(connection, &tenant, id, updated_rows).await
        })
        .await
    }
    async fn claim_ownership(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        node: NodeId,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> StoreResult<OwnershipClaim> {
        let tenant = scope.tenant().clone();
        write_transaction!(self.0, scope, |connection| {
            let Some(owner) = fetch_optional!(connection, LOCK_OWNER; tenant, id).await? else {
                return Ok(OwnershipClaim::NotFound);
            };
            let before: Option<NodeId> = Columns::new(&owner).maybe_id()?;
            let claimed =
                fetch_optional!(connection, CLAIM_DIALOGUE; tenant, id, node, to_micros(now), to_micros(until)).await?;
            if let Some(row) = claimed {
                let taken_from = before.filter(|before| *before != node);
                let open = read_open_dialogue(&row, taken_from)?;
                debug_assert!(open.epoch > 0, "a claim raises the epoch");
                debug_assert!(
                    open.head.is_none() == (open.dialogue.head_turn == 0),
                    "a dialogue has a head exactly if it has a turn"
                );
                return Ok(OwnershipClaim::Owned(Box::new(open)));
            }
            let mut columns = Columns::new(&owner);
            Ok(OwnershipClaim::OwnedBy {
                node: columns.id()?,
                until: columns.time()?,
            })
        })
        .await
    }
    async fn renew_ownership(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        until: DateTime<Utc>,
    ) -> StoreResult<bool> {
        let query = bind!(RENEW_OWNERSHIP; scope.tenant(), id, to_signed(epoch), to_micros(until));
        let renewed = self.0.execute(scope, query).await?;
        debug_assert!(renewed <= 1, "an ownership is of one dialogue");
        Ok(renewed == 1)
    }
    async fn release_ownership(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        epoch: u64,
        next_seq: u64,
    ) -> StoreResult<()> {
        let query = bind!(RELEASE_OWNERSHIP; scope.tenant(), id, to_signed(epoch), to_signed(next_seq));
        self.0.execute(scope, query).await.map(drop)
    }
    async fn release_all_ownership(&self, node: NodeId) -> StoreResult<()> {
        let query = bind!(RELEASE_OWNERSHIP_OF_NODE; node);
        self.0.execute(RowScope::All, query).await.map(drop)
    }
}

sqlite_plan_tests! {
    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sqlite::plans::assert_searches;

        #[tokio::test]
        async fn ownership_writes_go_by_key() {
            assert_searches(RELEASE_OWNERSHIP_OF_NODE, &["dialogues_owned"]).await;
            let close = CLOSE_DIALOGUE.split(";\n").next().unwrap_or_default();
            for statement in [LOCK_OWNER, CLAIM_DIALOGUE, close, SET_PAUSED, SET_PAUSED_UNFENCED, IS_OPEN, RENEW_OWNERSHIP, RELEASE_OWNERSHIP] {
                assert_searches(statement, &["sqlite_autoindex_dialogues_1 (tenant=? AND id=?)"]).await;
            }
        }
    }
}
