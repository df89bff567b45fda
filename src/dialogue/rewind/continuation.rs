//! The plan for a reply that goes on: its turn goes, and the next turn begins with its words.

use super::request::{OwnedDialogue, RewindError};
use crate::{
    Services,
    intent::classified_intent,
    turn::{PartialReply, ReplyEffects},
};
use colloquy_memory::{actions::RequestedAction, fact::Cause, turn::Turn};
use colloquy_ports::{
    StoreResult,
    ledger::{
        jobs::JobKind,
        rewinds::{RewindCommit, SealedReply},
    },
};

/// The last turn goes, and the next turn continues its reply: from the end of `sealed`, the text before a cut, or else from
/// the end of the stored reply. Returns the reply.
pub(super) async fn plan_continuation(
    services: &Services,
    dialogue: &OwnedDialogue,
    rewind: &mut RewindCommit,
    sealed: Option<SealedReply>,
) -> Result<PartialReply, RewindError> {
    let OwnedDialogue {
        scope, id, head_turn, ..
    } = dialogue;
    let head = dialogue.head.ok_or(RewindError::NothingToResume)?;
    let previous_number = head_turn.saturating_sub(1);
    let dialogues = &services.ledger.dialogues;
    let (turns, checkpoint, trace) = tokio::try_join!(
        dialogues.load_turns(scope, *id, previous_number.max(1), *head_turn),
        dialogues.load_checkpoint(scope, *id),
        dialogues.load_trace(scope, *id, *head_turn)
    )?;
    let checkpoint = checkpoint.ok_or(RewindError::NothingToResume)?;
    rewind.to = turns
        .iter()
        .find(|turn| turn.number == previous_number)
        .map(|turn| turn.id);
    rewind.replacing = Some(head);
    let cut_turn = turns.into_iter().find(|turn| turn.id == head);
    let cut_turn = cut_turn.ok_or(RewindError::NothingToResume)?;
    debug_assert!(cut_turn.number == *head_turn, "the head is the last turn");
    let is_whole = sealed.is_none();
    let (key, text, until) = match sealed {
        Some(sealed) => (sealed.key, sealed.text, sealed.until),
        None => (None, cut_turn.reply_text.clone(), services.clock.now()),
    };
    if text.trim().is_empty() {
        return Err(RewindError::NothingToResume);
    }
    let effects = if is_whole {
        load_effects_of_turn(services, dialogue, &cut_turn).await?
    } else {
        ReplyEffects::default()
    };
    Ok(PartialReply {
        turn: cut_turn,
        key,
        text,
        is_whole,
        until,
        intent: trace.as_ref().and_then(classified_intent),
        effects,
        locks: checkpoint.locks,
        told_locks: checkpoint.told_locks,
        confided: checkpoint.confided,
    })
}

/// Returns what a turn did in the world, in order.
async fn load_effects_of_turn(services: &Services, dialogue: &OwnedDialogue, turn: &Turn) -> StoreResult<ReplyEffects> {
    let OwnedDialogue { scope, id, world, .. } = dialogue;
    let ledger = &services.ledger;
    let actions = ledger.actions.load_actions_of_turn(scope, turn.id).await?.into_iter();
    let actions = actions.filter(|action| action.stands).map(|action| RequestedAction {
        name: action.request.name,
        arguments: action.request.arguments,
    });
    let actions = actions.collect();
    // The changes of a job that ends after this read are read by another job.
    let kind = JobKind::ExtractState;
    if ledger.jobs.has_unfinished_job(scope, *id, turn.id, kind).await? {
        return Ok(ReplyEffects { changes: None, actions });
    }
    let changes = ledger
        .state
        .load_changes_of_dialogue(scope, world, *id, turn.committed_at)
        .await?;
    let of_turn = changes
        .into_iter()
        .filter(|stored| stored.cause == Cause::Turn(turn.id));
    Ok(ReplyEffects {
        changes: Some(of_turn.map(|stored| stored.change).collect()),
        actions,
    })
}
