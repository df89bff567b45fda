//! Rewinds of a dialogue (docs/internals/rewinds.md). One operation serves a rewind, a late interrupt, a
//! regenerated reply and a resumed reply, in sessions and in NPC conversations.
//!
//! The ledger moves the head and all dependent rows in one transaction. This module then updates the copies. The
//! reconciliation of affected memories happens later, without a waiting caller: [`reconcile_after_rewinds`].

mod continuation;
mod plan;
mod request;

use chrono::TimeDelta;

pub use self::request::{
    AppliedRewind, DialogueTiers, OwnedDialogue, RewindError, RewindRequest, RewindResponse, RewindTarget,
};
use self::{continuation::plan_continuation, plan::RewindPlan};
use super::{
    Services,
    heard::HeardLength,
    intent::classified_intent,
    jobs::{JobError, new_jobs, outbox::relay_or_log},
    remember::reconcile_dirty_memories,
    turn::grapheme_prefix,
};
use colloquy_core::{ids::NodeId, scope::TenantScope};
use colloquy_memory::turn::{Turn, TurnStatus, has_whole_sentence};
use colloquy_ports::{
    StoreError, StoreResult,
    buffer::{BufferHead, BufferedTurn},
    ledger::{
        jobs::JobKind,
        rewinds::{InterruptOutcome, OnKeyConflict, Replacement, RewindAcks, RewindCommitResult, RewindRecord},
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
pub async fn rewind_dialogue(services: &Services, request: RewindRequest) -> Result<RewindResponse, RewindError> {
    let now = services.clock.now();
    let plan = match request.target {
        RewindTarget::Turn { number, heard } => plan_rewind_to(services, &request, number, heard).await?,
        RewindTarget::Regenerate { number } => plan_regenerate(services, &request, number).await?,
        RewindTarget::GoOn { .. } => Some(plan_continuation(services, &request, None).await?),
        RewindTarget::Reinstate { turn } => Some(RewindPlan::with_head(request.dialogue.head_turn + 1, Some(turn))),
        RewindTarget::Resume { may_continue } => plan_resume(services, &request, may_continue).await?,
    };
    let Some(plan) = plan else {
        record_unchanged_keys(services, &request).await?;
        return Ok(RewindResponse::Unchanged);
    };
    let number = plan.number;
    let unfinished = plan.unfinished;
    let rewind = request.commit_to(
        &services.ids,
        now,
        plan.hold,
        plan.to,
        plan.replacement,
        unfinished.is_some(),
    );
    failpoint!("rewind.planned");
    let scope = &request.dialogue.scope;
    let rewound = match services.ledger.rewinds.commit_rewind(scope, &rewind).await? {
        RewindCommitResult::Done(rewound) => rewound,
        RewindCommitResult::Repeated(outcome) => return Ok(RewindResponse::Repeated(outcome)),
        RewindCommitResult::Fenced => return Err(RewindError::Fenced),
        RewindCommitResult::Closed => return Err(RewindError::Closed),
        RewindCommitResult::Joined => return Err(RewindError::NothingToResume),
        RewindCommitResult::NoSuchTurn => {
            return Err(RewindError::NoSuchTurn {
                turn: number,
                head_turn: request.dialogue.head_turn,
            });
        }
    };
    let replacement = rewind.replacement.map(|replacement| replacement.turn);
    failpoint!("rewind.durable");
    update_buffer(services, &request.dialogue, &rewound, replacement.as_ref()).await;
    failpoint!("rewind.followed");
    Ok(RewindResponse::Done(Box::new(AppliedRewind {
        rewound,
        replacement,
        intent: plan.intent,
        unfinished,
    })))
}

/// Stores the keys of a request that moved nothing. A repeated key gets the same answer, even after later turns.
async fn record_unchanged_keys(services: &Services, request: &RewindRequest) -> Result<(), StoreError> {
    let keys = request.requesters.keys();
    let acks = RewindAcks {
        recorded_at: services.clock.now(),
        keys: keys.map(|key| (services.ids.next_id(), key.clone())).collect(),
        edits: Vec::new(),
    };
    if acks.keys.is_empty() {
        return Ok(());
    }
    let OwnedDialogue {
        scope, id, head_turn, ..
    } = &request.dialogue;
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

/// As [`plan_rewind_to`], with the intent of the line that is answered again.
async fn plan_regenerate(
    services: &Services,
    request: &RewindRequest,
    number: u32,
) -> Result<Option<RewindPlan>, RewindError> {
    let OwnedDialogue { scope, id, .. } = &request.dialogue;
    let dialogues = &services.ledger.dialogues;
    let trace = async { Ok(dialogues.load_trace(scope, *id, number + 1).await?) };
    let (plan, trace) = tokio::try_join!(plan_rewind_to(services, request, number, None), trace)?;
    Ok(plan.map(|plan| RewindPlan {
        intent: trace.as_ref().and_then(classified_intent),
        ..plan
    }))
}

async fn plan_rewind_to(
    services: &Services,
    request: &RewindRequest,
    number: u32,
    heard_length: Option<HeardLength>,
) -> Result<Option<RewindPlan>, RewindError> {
    let OwnedDialogue { scope, id, head, .. } = &request.dialogue;
    let dialogues = &services.ledger.dialogues;
    if number == 0 {
        let is_unchanged = head.is_none() && !request.fence;
        return Ok((!is_unchanged).then_some(RewindPlan::with_head(number, None)));
    }
    // Loads the predecessor too. The predecessor becomes the head if no text was heard.
    let turns = dialogues
        .load_turns(scope, *id, number.saturating_sub(1).max(1), number)
        .await?;
    let mut turns = turns.into_iter().rev();
    let Some(turn) = turns.next().filter(|turn| turn.number == number) else {
        return Err(RewindError::NoSuchTurn {
            turn: number,
            head_turn: request.dialogue.head_turn,
        });
    };
    let predecessor = turns.next().map(|turn| turn.id);
    let heard_prefix = heard_length
        .map(|length| grapheme_prefix(&turn.reply_text, length.to_scalar_count(&turn.reply_text)))
        .filter(|text| text.len() < turn.reply_text.len());
    match heard_prefix {
        None => {
            let is_unchanged = *head == Some(turn.id) && !request.fence;
            Ok((!is_unchanged).then_some(RewindPlan::with_head(number, Some(turn.id))))
        }
        Some(text) if text.trim().is_empty() => Ok(Some(RewindPlan::with_head(number - 1, predecessor))),
        Some(text) => {
            let trace = dialogues.load_trace(scope, *id, number).await?;
            // The same rule as for a reply cut mid-stream: without a state block, the turn changes no state.
            let had_block = trace.is_some_and(|trace| trace.state_block);
            let OwnedDialogue { node, world, .. } = &request.dialogue;
            let hold = hold_of_cut(services, &request.dialogue, number).await?;
            let services = request.tiers.tune(services, scope, world, &turn.npc).await?;
            let heard_text = text.trim_end().to_owned();
            let replacement = cut_replacement(&services, *node, hold, &turn, heard_text, had_block);
            Ok(Some(RewindPlan {
                replacement: Some(replacement),
                ..RewindPlan::with_head(number, predecessor)
            }))
        }
    }
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
    request: &RewindRequest,
    may_continue: bool,
) -> Result<Option<RewindPlan>, RewindError> {
    let OwnedDialogue { scope, head_turn, .. } = &request.dialogue;
    let head = request.dialogue.head.ok_or(RewindError::NothingToResume)?;
    let rewinds = &services.ledger.rewinds;
    let now = services.clock.now();
    let sealed = rewinds.load_sealed_reply(scope, head, now).await?;
    let sealed = sealed.ok_or(RewindError::NothingToResume)?;
    if let Some(whole_turn) = sealed.whole {
        return Ok(Some(RewindPlan {
            hold: hold_of_cut(services, &request.dialogue, *head_turn).await?,
            ..RewindPlan::with_head(*head_turn, Some(whole_turn))
        }));
    }
    // A reply cut mid-stream has no stored end. The model continues the reply.
    if !may_continue {
        return Err(RewindError::NothingToResume);
    }
    plan_continuation(services, request, Some(sealed)).await.map(Some)
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
