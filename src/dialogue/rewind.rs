//! Rewinds of a dialogue (docs/internals/rewinds.md). One operation serves a rewind, a late interrupt, a
//! regenerated reply and a resumed reply, in sessions and in NPC conversations.
//!
//! The ledger moves the head and all dependent rows in one transaction. This module then updates the copies. The
//! reconciliation of affected memories happens later, without a waiting caller: [`reconcile_after_rewinds`].

mod continuation;
mod request;

use chrono::TimeDelta;

use self::continuation::plan_continuation;
pub use self::request::{AppliedRewind, DialogueTiers, OwnedDialogue, RewindError, RewindResponse, RewindTarget};
use super::{
    Services,
    heard::HeardLength,
    intent::classified_intent,
    jobs::{JobError, new_jobs, outbox::relay_or_log},
    remember::reconcile_dirty_memories,
    requester::Requesters,
    turn::{PartialReply, grapheme_prefix},
};
use colloquy_core::{ids::NodeId, scope::TenantScope};
use colloquy_memory::turn::{Intent, Turn, TurnStatus, has_whole_sentence};
use colloquy_ports::{
    StoreError, StoreResult,
    buffer::{BufferHead, BufferedTurn},
    ledger::{
        jobs::JobKind,
        rewinds::{
            InterruptOutcome, OnKeyConflict, Replacement, RewindAcks, RewindCommit, RewindCommitResult, RewindRecord,
        },
    },
};

/// The number of cuts of a turn whose jobs become due after `turn.cut_hold_s`. The jobs of further cuts wait for the next
/// line or the end of the dialogue, so that a line costs a bounded number of model calls.
const MAX_TIMED_CUTS: u64 = 3;
/// How long jobs wait that wait for the next line or the end of the dialogue, if neither comes.
const LONGEST_CUT_HOLD: TimeDelta = TimeDelta::days(1);

/// Moves the head. The rewind is durable when this function returns, and the buffer is up to date.
///
/// The index and the affected memories can wait: [`reconcile_after_rewinds`].
pub async fn rewind_dialogue(
    services: &Services,
    dialogue: OwnedDialogue,
    target: RewindTarget,
    requesters: Requesters,
) -> Result<RewindResponse, RewindError> {
    let mut rewind = dialogue.draft_rewind(&services.ids, services.clock.now(), target, &requesters);
    let planning = plan_rewind(services, &dialogue, &mut rewind, target);
    let (unfinished, intent) = tokio::try_join!(planning, load_replaced_intent(services, &dialogue, target))?;
    if rewind.to == dialogue.head && !dialogue.fence {
        record_unchanged_keys(services, &dialogue, rewind).await?;
        return Ok(RewindResponse::Unchanged);
    }
    failpoint!("rewind.planned");
    let rewound = match services.ledger.rewinds.commit_rewind(&dialogue.scope, &rewind).await? {
        RewindCommitResult::Done(rewound) => rewound,
        RewindCommitResult::Repeated(outcome) => return Ok(RewindResponse::Repeated(outcome)),
        RewindCommitResult::Fenced => return Err(RewindError::Fenced),
        RewindCommitResult::Closed => return Err(RewindError::Closed),
        RewindCommitResult::Joined => return Err(RewindError::NothingToResume),
        RewindCommitResult::NoSuchTurn => {
            return Err(RewindError::NoSuchTurn {
                turn: target.head_turn_after(dialogue.head_turn),
                head_turn: dialogue.head_turn,
            });
        }
    };
    let replacement = rewind.replacement.map(|replacement| replacement.turn);
    debug_assert!(rewound.epoch > dialogue.epoch, "a rewind raises the epoch");
    debug_assert!(
        rewound.head_turn <= target.head_turn_after(dialogue.head_turn),
        "a rewind ends at its target or before"
    );
    debug_assert!(
        replacement
            .as_ref()
            .is_none_or(|turn| (Some(turn.id), turn.number) == (rewound.head, rewound.head_turn)),
        "the turn in place of a cut turn is the head"
    );
    failpoint!("rewind.durable");
    update_buffer(services, &dialogue, &rewound, replacement.as_ref()).await;
    failpoint!("rewind.followed");
    Ok(RewindResponse::Done(Box::new(AppliedRewind {
        rewound,
        replacement,
        intent,
        unfinished,
    })))
}

/// Completes the commit of a rewind: the new head, and what depends on it. Returns the reply that the next turn
/// continues.
async fn plan_rewind(
    services: &Services,
    dialogue: &OwnedDialogue,
    rewind: &mut RewindCommit,
    target: RewindTarget,
) -> Result<Option<PartialReply>, RewindError> {
    match target {
        RewindTarget::Turn { number, heard } => plan_rewind_to(services, dialogue, rewind, number, heard).await?,
        RewindTarget::Regenerate { number } => plan_rewind_to(services, dialogue, rewind, number, None).await?,
        RewindTarget::GoOn { .. } => return plan_continuation(services, dialogue, rewind, None).await.map(Some),
        RewindTarget::Reinstate { turn } => rewind.to = Some(turn),
        RewindTarget::Resume { may_continue } => return plan_resume(services, dialogue, rewind, may_continue).await,
    }
    Ok(None)
}

/// Stores the keys of a rewind that moved nothing. A repeated key gets the same answer, even after later turns.
async fn record_unchanged_keys(
    services: &Services,
    dialogue: &OwnedDialogue,
    rewind: RewindCommit,
) -> Result<(), StoreError> {
    let own_key = rewind.key.map(|key| (rewind.id, key));
    let acks = RewindAcks {
        recorded_at: rewind.rewound_at,
        keys: own_key.into_iter().chain(rewind.other_keys).collect(),
        edits: Vec::new(),
    };
    if acks.keys.is_empty() {
        return Ok(());
    }
    let OwnedDialogue {
        scope, id, head_turn, ..
    } = dialogue;
    let idle = InterruptOutcome::Idle { head_turn: *head_turn };
    let rewinds = &services.ledger.rewinds;
    rewinds
        .record_outcome(scope, *id, &acks, &idle, OnKeyConflict::Keep)
        .await?;
    failpoint!("rewind.noted");
    Ok(())
}

/// Does the work that rewinds leave for a tenant. The index drops invalid facts, and memories with an unsaid part are
/// reconciled again. Returns the number of these memories. The two tasks are durable and are retried after a failure.
pub async fn reconcile_after_rewinds(services: &Services, scope: &TenantScope) -> Result<usize, JobError> {
    // The index comes first, because a judge may delay the rest.
    relay_or_log(services).await;
    reconcile_dirty_memories(services, scope).await
}

/// Returns how long nothing is learned from turn `number`, which is cut or resumed.
async fn hold_of_cut(services: &Services, dialogue: &OwnedDialogue, number: u32) -> StoreResult<TimeDelta> {
    let OwnedDialogue { scope, id, .. } = dialogue;
    let cuts = services.ledger.rewinds.count_cuts(scope, *id, number).await?;
    Ok(if cuts < MAX_TIMED_CUTS {
        services.settings.turn.cut_hold()
    } else {
        LONGEST_CUT_HOLD
    })
}

/// Returns the intent of the line that a regeneration answers again.
async fn load_replaced_intent(
    services: &Services,
    dialogue: &OwnedDialogue,
    target: RewindTarget,
) -> Result<Option<Intent>, RewindError> {
    let RewindTarget::Regenerate { number } = target else {
        return Ok(None);
    };
    let OwnedDialogue { scope, id, .. } = dialogue;
    let trace = services.ledger.dialogues.load_trace(scope, *id, number + 1).await?;
    Ok(trace.as_ref().and_then(classified_intent))
}

async fn plan_rewind_to(
    services: &Services,
    dialogue: &OwnedDialogue,
    rewind: &mut RewindCommit,
    number: u32,
    heard_length: Option<HeardLength>,
) -> Result<(), RewindError> {
    let OwnedDialogue { scope, id, .. } = dialogue;
    let dialogues = &services.ledger.dialogues;
    if number == 0 {
        return Ok(());
    }
    // Loads the predecessor too. The predecessor becomes the head if no text was heard.
    let turns = dialogues
        .load_turns(scope, *id, number.saturating_sub(1).max(1), number)
        .await?;
    let mut turns = turns.into_iter().rev();
    let Some(turn) = turns.next().filter(|turn| turn.number == number) else {
        return Err(RewindError::NoSuchTurn {
            turn: number,
            head_turn: dialogue.head_turn,
        });
    };
    let heard_prefix = heard_length
        .map(|length| grapheme_prefix(&turn.reply_text, length.to_scalar_count(&turn.reply_text)))
        .filter(|text| text.len() < turn.reply_text.len());
    let Some(heard_prefix) = heard_prefix else {
        rewind.to = Some(turn.id);
        return Ok(());
    };
    rewind.to = turns.next().map(|predecessor| predecessor.id);
    if !heard_prefix.trim().is_empty() {
        let trace = dialogues.load_trace(scope, *id, number).await?;
        // The same rule as for a reply cut mid-stream: without a state block, the turn changes no state.
        let had_block = trace.is_some_and(|trace| trace.state_block);
        let hold = hold_of_cut(services, dialogue, number).await?;
        let services = dialogue.tiers.tune(services, scope, &dialogue.world, &turn.npc).await?;
        let heard_text = heard_prefix.trim_end().to_owned();
        let replacement = cut_replacement(&services, dialogue.node, hold, &turn, heard_text, had_block);
        rewind.replacement = Some(replacement);
    }
    Ok(())
}

/// Returns the same turn with only the heard text, at the old turn's place and time. Its facts are extracted again.
/// `services` has the settings of the dialogue's tiers. `hold`: how long nothing is learned from the turn.
fn cut_replacement(
    services: &Services,
    node: NodeId,
    hold: TimeDelta,
    cut_turn: &Turn,
    heard_text: String,
    had_block: bool,
) -> Replacement {
    let now = services.clock.now();
    let turn = Turn {
        id: services.ids.next_id(),
        status: TurnStatus::Interrupted,
        reply_text: heard_text,
        // The positions of the cues are unknown, and the player never saw a cue after the cut.
        cues: Vec::new(),
        ..cut_turn.clone()
    };
    let kinds = [
        // A greeting teaches nothing, heard in part or in full. Silence in the middle of a talk is no greeting.
        (!cut_turn.is_greeting() || cut_turn.number > 1).then_some(JobKind::ExtractFacts),
        (had_block && services.settings.prompt.ask_for_state && has_whole_sentence(&turn.reply_text))
            .then_some(JobKind::ExtractState),
        Some(JobKind::Summarise),
        services
            .settings
            .curation
            .is_due_after(cut_turn.number)
            .then_some(JobKind::Curate),
    ];
    let seal = services.settings.turn.seal_time();
    Replacement {
        replaced_turn: cut_turn.id,
        jobs: new_jobs(
            services,
            &turn,
            now,
            node,
            now,
            // Meanwhile the turn may stand again, or be cut again. The next line ends the wait.
            Some(now + hold),
            kinds.into_iter().flatten(),
        ),
        sealed_reply: Some((cut_turn.reply_text.clone(), now + seal)),
        turn,
    }
}

async fn plan_resume(
    services: &Services,
    dialogue: &OwnedDialogue,
    rewind: &mut RewindCommit,
    may_continue: bool,
) -> Result<Option<PartialReply>, RewindError> {
    let head = dialogue.head.ok_or(RewindError::NothingToResume)?;
    let rewinds = &services.ledger.rewinds;
    let now = services.clock.now();
    let sealed = rewinds.load_sealed_reply(&dialogue.scope, head, now).await?;
    let sealed = sealed.ok_or(RewindError::NothingToResume)?;
    if let Some(whole_turn) = sealed.whole {
        // The resumed reply may be cut again at once.
        rewind.held_until = Some(rewind.rewound_at + hold_of_cut(services, dialogue, dialogue.head_turn).await?);
        rewind.to = Some(whole_turn);
        return Ok(None);
    }
    // A reply cut mid-stream has no stored end. The model continues the reply.
    if !may_continue {
        return Err(RewindError::NothingToResume);
    }
    plan_continuation(services, dialogue, rewind, Some(sealed))
        .await
        .map(Some)
}

/// Updates the buffer. Afterwards the buffer ends at the ledger's head, or is removed.
async fn update_buffer(services: &Services, owned: &OwnedDialogue, rewound: &RewindRecord, replacement: Option<&Turn>) {
    if let Err(error) = truncate_buffer(services, owned, rewound, replacement).await {
        // The buffer carries an old head, so no reader trusts it or appends to it.
        tracing::warn!(dialogue = %owned.id, %error, "the buffer could not follow a rewind; it is built anew");
    }
}

async fn truncate_buffer(
    services: &Services,
    owned: &OwnedDialogue,
    rewound: &RewindRecord,
    replacement: Option<&Turn>,
) -> Result<(), StoreError> {
    let buffers = &services.buffers;
    let scope = &owned.scope;
    let dialogue = owned.id;
    if !rewound.reinstated.is_empty() {
        // The buffer lacks the reinstated turns.
        return buffers.remove_buffer(scope, dialogue).await;
    }
    let last = match replacement {
        Some(turn) => turn.number - 1,
        None => rewound.head_turn,
    };
    let expected_head = BufferHead {
        epoch: owned.epoch,
        turn: owned.head,
    };
    let head = |turn| BufferHead {
        epoch: rewound.epoch,
        turn,
    };
    let truncate = async |head| {
        buffers
            .truncate_buffer(scope, dialogue, expected_head, last, head)
            .await
    };
    let is_kept = match replacement {
        None => truncate(head(rewound.head)).await?,
        Some(turn) => {
            // No turn has this head yet, so a reader in between does not trust the buffer.
            let truncated = truncate(head(None)).await?;
            failpoint!("rewind.truncated");
            truncated
                && buffers
                    .append_turn(scope, dialogue, head(None), &BufferedTurn::from(turn), 1)
                    .await?
        }
    };
    if is_kept {
        return Ok(());
    }
    buffers.remove_buffer(scope, dialogue).await
}
