//! The run of a rewind in the ledger: the dialogue's state before, and the errors after.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures_util::FutureExt;

use super::load::LoadedDialogue;
use crate::{DialogueError, messages::DialogueKey, metrics::FencedWrite, node::Node};
use colloquy_core::scope::{Principal, Role, TenantScope};
use colloquy_dialogue::{
    requester::Requesters,
    rewind::{DialogueTiers, OwnedDialogue, RewindError, RewindResponse, RewindTarget},
};
use colloquy_ports::StoreError;

/// Retry delay for a caller whose dialogue is on another node or has changed meanwhile.
pub(crate) const REWIND_RETRY_AFTER: Duration = Duration::from_millis(200);

impl LoadedDialogue {
    /// Returns the dialogue before a rewind. `fence`: a running turn must not commit; `seq`: the number of the rewind's
    /// event.
    pub(super) fn to_owned_dialogue(
        &self,
        node: &Node,
        (scope, id): &DialogueKey,
        fence: bool,
        seq: u64,
    ) -> OwnedDialogue {
        OwnedDialogue {
            scope: scope.clone(),
            node: node.id,
            id: *id,
            world: self.dialogue.world.clone(),
            epoch: self.epoch,
            head: self.head,
            head_turn: self.dialogue.head_turn,
            fence,
            seq,
            tiers: DialogueTiers {
                worlds: self.participants.held_worlds(),
                session: self.dialogue.options.settings.clone(),
            },
        }
    }
}

/// Returns the principal for actions that the server starts itself.
pub(crate) fn server_principal(scope: &TenantScope) -> Principal {
    Principal {
        subject: "server".to_owned(),
        tenant: scope.tenant().clone(),
        role: Role::Backend,
        player: None,
        world: None,
        issued: colloquy_core::scope::TokenIdentity::default(),
        expires_at: DateTime::<Utc>::MAX_UTC,
    }
}

/// Runs a rewind. A panic counts as a store failure: only the ledger knows the written rows.
pub(super) async fn run_rewind(
    node: Arc<Node>,
    dialogue: OwnedDialogue,
    target: RewindTarget,
    requesters: Requesters,
) -> Result<RewindResponse, RewindError> {
    let moving = AssertUnwindSafe(node.use_cases.rewind_dialogue(dialogue, target, requesters)).catch_unwind();
    let result = moving
        .await
        .unwrap_or_else(|_panic| Err(StoreError::Rejected("the rewind panicked".into()).into()));
    if matches!(result, Err(RewindError::Fenced)) {
        node.metrics.count_fenced_write(FencedWrite::Rewind);
    }
    result
}

/// Returns the caller's error for a rewind that did not happen.
pub(super) fn rewind_error(error: &RewindError) -> DialogueError {
    match error {
        RewindError::Store(error) => error.clone().into(),
        RewindError::Fenced => DialogueError::Overloaded {
            retry_after: REWIND_RETRY_AFTER,
        },
        RewindError::Closed => DialogueError::Closed,
        RewindError::NoSuchTurn { turn, head_turn } => DialogueError::NoSuchTurn {
            turn: *turn,
            head_turn: *head_turn,
        },
        RewindError::NothingToResume => DialogueError::NothingToResume,
    }
}

/// True if only the ledger knows the written rows and the present owner.
pub(super) fn is_outcome_unknown(error: &RewindError) -> bool {
    matches!(error, RewindError::Store(_) | RewindError::Fenced | RewindError::Closed)
}
