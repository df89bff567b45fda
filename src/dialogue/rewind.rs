//! Rewinds of a dialogue (docs/design.md#interrupt-and-rewind). One operation serves a rewind, a late interrupt, a
//! regenerated reply and a resumed reply, in sessions and in NPC conversations.
//!
//! The ledger moves the head and all dependent rows in one transaction. This module then updates the copies. The
//! reconciliation of affected memories happens later, without a waiting caller: [`reconcile_after_rewinds`].

use chrono::TimeDelta;

use super::{
    Services,
    jobs::{JobError, outbox::relay_or_log},
    remember::reconcile_dirty_memories,
    turn::{PartialReply, grapheme_prefix},
};
use crate::{
    ids::{DialogueId, NodeId, TurnId, WorldId},
    memory::turn::{Turn, TurnStatus},
    ports::{
        StoreError,
        buffer::{BufferHead, BufferedTurn},
        ledger::{
            audit::Edit,
            jobs::{JobKind, NewJob},
            rewinds::{OnKeyConflict, Replacement, RewindAcks, RewindCommit, RewindOutcome, RewindRecord},
        },
    },
    tenancy::{Principal, TenantScope},
};

/// The target of a rewind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewindTarget {
    /// This turn becomes the head; 0 means no turn. With `heard_chars` (Unicode scalar values), its reply ends there
    /// too. If no text was heard, the turn goes as well.
    Turn { number: u32, heard_chars: Option<usize> },
    /// Turn `number` becomes the head with its full reply. The next turn goes, to be generated again.
    Regenerate { number: u32 },
    /// The turn that went for a regenerate stands again, because no new turn came.
    Reinstate { turn: TurnId },
    /// The last turn without its recent cut. A turn cut mid-stream goes, and its speaker continues it
    /// ([`AppliedRewind::unfinished`]).
    Resume,
}

impl RewindTarget {
    /// Returns whether an NPC conversation is paused after the rewind. An interrupt pauses the conversation until a
    /// caller resumes the conversation. `None`: no change.
    #[must_use]
    pub fn paused_after(self) -> Option<bool> {
        match self {
            Self::Turn { .. } => Some(true),
            Self::Resume => Some(false),
            Self::Regenerate { .. } | Self::Reinstate { .. } => None,
        }
    }
}

/// A request for a rewind, with the expected state of the dialogue.
#[derive(Debug, Clone)]
pub struct RewindRequest {
    pub scope: TenantScope,
    pub node: NodeId,
    pub dialogue: DialogueId,
    pub world: WorldId,
    /// The owner's epoch. The rewind increments the epoch.
    pub epoch: u64,
    /// The number of the head, as the owner knows it.
    pub head_turn: u32,
    pub head: Option<TurnId>,
    /// True if a running turn must not commit. The epoch then rises even if every turn stays.
    pub fence: bool,
    pub target: RewindTarget,
    /// Whether a conversation is paused after the rewind. `None`: no change.
    pub paused: Option<bool>,
    /// The idempotency key, unique in a dialogue. Makes a retry safe.
    pub key: Option<String>,
    /// The keys of other callers that get an answer from this rewind.
    pub also: Vec<String>,
    /// The `seq` of the event that reports the rewind.
    pub seq: u64,
    pub who: Principal,
    /// A dotted verb for the audit log: `session.rewind`, `conversation.interrupt`, …
    pub action: &'static str,
    /// Callers with weaker requests at the same time. The audit log names them too.
    pub others: Vec<(Principal, &'static str)>,
}

/// The response to a rewind request.
#[derive(Debug, Clone, PartialEq)]
pub enum RewindResponse {
    /// The head was moved.
    Done(Box<AppliedRewind>),
    /// The key belongs to this earlier rewind; nothing was written.
    Repeated(Box<RewindRecord>),
    /// The head is there already; only the keys were written.
    Unchanged,
}

/// A rewind that was applied.
#[derive(Debug, Clone, PartialEq)]
pub struct AppliedRewind {
    pub rewound: RewindRecord,
    /// The turn that replaced the cut turn.
    pub replacement: Option<Turn>,
    /// The reply that the next turn continues. If that turn does not come, the reply stands again as it was cut
    /// ([`RewindRecord::replacing`]).
    pub unfinished: Option<PartialReply>,
}

/// The reason why a head was not moved. Nothing was written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RewindError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another node owns the dialogue now.
    #[error("this dialogue moved to another node")]
    Fenced,
    #[error("the dialogue is closed")]
    Closed,
    #[error("there is no turn {turn}; the last one is {head_turn}")]
    NoSuchTurn { turn: u32, head_turn: u32 },
    /// The last turn was not cut, was cut too long ago, or another line followed.
    #[error("there is no cut reply to take up again")]
    NothingToResume,
}

/// Moves the head. The rewind is durable when this function returns, and the buffer is up to date.
///
/// The index and the affected memories can wait: [`reconcile_after_rewinds`].
pub async fn rewind_dialogue(services: &Services, request: RewindRequest) -> Result<RewindResponse, RewindError> {
    let now = services.clock.now();
    let plan = match request.target {
        RewindTarget::Turn { number, heard_chars } => plan_rewind_to(services, &request, number, heard_chars).await?,
        RewindTarget::Regenerate { number } => plan_rewind_to(services, &request, number, None).await?,
        RewindTarget::Reinstate { turn } => Some(RewindPlan {
            number: request.head_turn + 1,
            to: Some(turn),
            replacement: None,
            unfinished: None,
        }),
        RewindTarget::Resume => plan_resume(services, &request).await?,
    };
    let Some(plan) = plan else {
        record_unchanged_keys(services, &request).await?;
        return Ok(RewindResponse::Unchanged);
    };
    let edit_by = |who, action| Edit::made_by(who, &services.ids, now, action, request.dialogue);
    let rewind = RewindCommit {
        id: services.ids.next_id(),
        dialogue: request.dialogue,
        world: request.world.clone(),
        epoch: request.epoch,
        // A reinstated turn must stand even if the dialogue was closed meanwhile.
        include_closed: matches!(request.target, RewindTarget::Reinstate { .. }),
        to: plan.to,
        replacement: plan.replacement,
        replacing: request
            .head
            .filter(|_| has_pending_replacement(&request, plan.unfinished.as_ref())),
        paused: request.paused,
        key: request.key.clone(),
        other_keys: request
            .also
            .iter()
            .map(|key| (services.ids.next_id(), key.clone()))
            .collect(),
        // A player who joined at the cut turn has continued from the cut.
        unless_joined: request.head.filter(|_| request.target == RewindTarget::Resume),
        seq: request.seq,
        edit: edit_by(&request.who, request.action),
        other_edits: request
            .others
            .iter()
            .map(|(who, action)| edit_by(who, action))
            .collect(),
    };
    failpoint!("rewind.planned");
    let rewound = match services.ledger.rewinds.commit_rewind(&request.scope, &rewind).await? {
        RewindOutcome::Done(rewound) => *rewound,
        RewindOutcome::Repeated(rewound) => return Ok(RewindResponse::Repeated(rewound)),
        RewindOutcome::Fenced => return Err(RewindError::Fenced),
        RewindOutcome::Closed => return Err(RewindError::Closed),
        RewindOutcome::Joined => return Err(RewindError::NothingToResume),
        RewindOutcome::NoSuchTurn => {
            return Err(RewindError::NoSuchTurn {
                turn: plan.number,
                head_turn: request.head_turn,
            });
        }
    };
    let replacement = rewind.replacement.map(|replacement| replacement.turn);
    failpoint!("rewind.durable");
    update_buffer(services, &request, &rewound, replacement.as_ref()).await;
    failpoint!("rewind.followed");
    Ok(RewindResponse::Done(Box::new(AppliedRewind {
        rewound,
        replacement,
        unfinished: plan.unfinished,
    })))
}

/// Stores the keys of a request that moved nothing. A repeated key gets the same answer, even after later turns.
async fn record_unchanged_keys(services: &Services, request: &RewindRequest) -> Result<(), StoreError> {
    let keys = request.key.iter().chain(&request.also);
    let told = RewindAcks {
        keys: keys.map(|key| (services.ids.next_id(), key.clone())).collect(),
        edits: Vec::new(),
    };
    if told.keys.is_empty() {
        return Ok(());
    }
    let head = (request.head, request.head_turn);
    let (id, now) = (services.ids.next_id(), services.clock.now());
    let nothing = RewindRecord::for_no_change(id, request.world.clone(), request.epoch, head, now);
    services
        .ledger
        .rewinds
        .record_outcome(&request.scope, request.dialogue, &told, &nothing, OnKeyConflict::Keep)
        .await?;
    failpoint!("rewind.noted");
    Ok(())
}

/// True if the head goes only to be regenerated or continued.
fn has_pending_replacement(request: &RewindRequest, unfinished: Option<&PartialReply>) -> bool {
    matches!(request.target, RewindTarget::Regenerate { .. }) || unfinished.is_some()
}

/// Does the work that rewinds leave for a tenant. The index drops invalid facts, and memories with an unsaid part are
/// reconciled again. Returns the number of these memories. The two tasks are durable and are retried after a failure.
pub async fn reconcile_after_rewinds(services: &Services, scope: &TenantScope) -> Result<usize, JobError> {
    // The index comes first, because a judge may delay the rest.
    relay_or_log(services).await;
    reconcile_dirty_memories(services, scope).await
}

/// The new head, and the turn that replaces the old turn on top.
struct RewindPlan {
    number: u32,
    to: Option<TurnId>,
    replacement: Option<Replacement>,
    unfinished: Option<PartialReply>,
}

async fn plan_rewind_to(
    services: &Services,
    request: &RewindRequest,
    number: u32,
    heard: Option<usize>,
) -> Result<Option<RewindPlan>, RewindError> {
    if number == 0 {
        let plan = RewindPlan {
            number,
            to: None,
            replacement: None,
            unfinished: None,
        };
        let already = request.head.is_none() && !request.fence;
        return Ok((!already).then_some(plan));
    }
    // Loads the predecessor too. The predecessor becomes the head if no text was heard.
    let turns = services
        .ledger
        .dialogues
        .load_turns(
            &request.scope,
            request.dialogue,
            number.saturating_sub(1).max(1),
            number,
        )
        .await?;
    let mut turns = turns.into_iter().rev();
    let Some(turn) = turns.next().filter(|turn| turn.number == number) else {
        return Err(RewindError::NoSuchTurn {
            turn: number,
            head_turn: request.head_turn,
        });
    };
    let before = turns.next().map(|turn| turn.id);
    let cut = heard
        .map(|heard| grapheme_prefix(&turn.reply_text, heard))
        .filter(|text| text.len() < turn.reply_text.len());
    match cut {
        None => {
            let already = request.head == Some(turn.id) && !request.fence;
            let plan = RewindPlan {
                number,
                to: Some(turn.id),
                replacement: None,
                unfinished: None,
            };
            Ok((!already).then_some(plan))
        }
        Some(text) if text.trim().is_empty() => Ok(Some(RewindPlan {
            number: number - 1,
            to: before,
            replacement: None,
            unfinished: None,
        })),
        Some(text) => {
            let trace = services
                .ledger
                .dialogues
                .load_trace(&request.scope, request.dialogue, number)
                .await?;
            // The same rule as for a reply cut mid-stream: without a state block, the turn changes no state.
            let had_block = trace.is_some_and(|trace| trace.state_block);
            let replacement = cut_replacement(services, request, &turn, text.trim_end().to_owned(), had_block);
            Ok(Some(RewindPlan {
                number,
                to: before,
                replacement: Some(replacement),
                unfinished: None,
            }))
        }
    }
}

/// Returns the same turn with only the `heard` text, at the old turn's place and time. Its facts are extracted again.
fn cut_replacement(
    services: &Services,
    request: &RewindRequest,
    of: &Turn,
    heard: String,
    had_block: bool,
) -> Replacement {
    let now = services.clock.now();
    let turn = Turn {
        id: services.ids.next_id(),
        status: TurnStatus::Interrupted,
        reply_text: heard,
        // The positions of the cues are unknown, and the player never saw a cue after the cut.
        cues: Vec::new(),
        ..of.clone()
    };
    let job = |kind| NewJob {
        id: services.ids.next_id(),
        kind,
        dialogue: turn.dialogue,
        turn: turn.id,
        text_version: turn.text_version,
        created_at: now,
        leased_to: request.node,
        leased_until: now,
        held_until: None,
    };
    let seal = TimeDelta::seconds(i64::from(services.settings.turn.seal_s));
    Replacement {
        of: of.id,
        jobs: [
            // A greeting teaches nothing, heard in part or in full.
            (JobKind::ExtractFacts, !of.is_greeting()),
            (
                JobKind::ExtractState,
                had_block && services.settings.prompt.ask_for_state,
            ),
            (JobKind::Summarise, true),
        ]
        .into_iter()
        .filter(|(_, wanted)| *wanted)
        .map(|(kind, _)| job(kind))
        .collect(),
        sealed_reply: Some((of.reply_text.clone(), now + seal)),
        turn,
    }
}

async fn plan_resume(services: &Services, request: &RewindRequest) -> Result<Option<RewindPlan>, RewindError> {
    let head = request.head.ok_or(RewindError::NothingToResume)?;
    let (scope, rewinds) = (&request.scope, &services.ledger.rewinds);
    let now = services.clock.now();
    let sealed = rewinds.load_sealed_reply(scope, head, now).await?;
    let sealed = sealed.ok_or(RewindError::NothingToResume)?;
    if let Some(whole) = sealed.whole {
        return Ok(Some(RewindPlan {
            number: request.head_turn,
            to: Some(whole),
            replacement: None,
            unfinished: None,
        }));
    }
    // A reply cut mid-stream has no stored end. The model continues the reply.
    let (before, number) = (request.head_turn.saturating_sub(1), request.head_turn);
    let dialogues = &services.ledger.dialogues;
    let (turns, checkpoint) = tokio::try_join!(
        dialogues.load_turns(scope, request.dialogue, before.max(1), number),
        dialogues.load_checkpoint(scope, request.dialogue)
    )?;
    let checkpoint = checkpoint.ok_or(RewindError::NothingToResume)?;
    let to = turns.iter().find(|turn| turn.number == before).map(|turn| turn.id);
    let of = turns.into_iter().find(|turn| turn.id == head);
    let of = of
        .filter(|_| !sealed.text.trim().is_empty())
        .ok_or(RewindError::NothingToResume)?;
    Ok(Some(RewindPlan {
        number: before,
        to,
        replacement: None,
        unfinished: Some(PartialReply {
            of,
            key: sealed.key,
            text: sealed.text,
            until: sealed.until,
            locks: checkpoint.locks,
            told_locks: checkpoint.told_locks,
            confided: checkpoint.confided,
        }),
    }))
}

/// Updates the buffer. Afterwards the buffer ends at the ledger's head, or is removed.
async fn update_buffer(
    services: &Services,
    request: &RewindRequest,
    rewound: &RewindRecord,
    replacement: Option<&Turn>,
) {
    if let Err(error) = truncate_buffer(services, request, rewound, replacement).await {
        // The buffer carries an old head, so no reader trusts it or appends to it.
        tracing::warn!(dialogue = %request.dialogue, %error, "the buffer could not follow a rewind; it is built anew");
    }
}

async fn truncate_buffer(
    services: &Services,
    request: &RewindRequest,
    rewound: &RewindRecord,
    replacement: Option<&Turn>,
) -> Result<(), StoreError> {
    let (buffers, scope, dialogue) = (&services.buffers, &request.scope, request.dialogue);
    if !rewound.reinstated.is_empty() {
        // The buffer lacks the reinstated turns.
        return buffers.remove_buffer(scope, dialogue).await;
    }
    let last = match replacement {
        Some(turn) => turn.number - 1,
        None => rewound.head_turn,
    };
    let before = BufferHead {
        epoch: request.epoch,
        turn: request.head,
    };
    let head = |turn| BufferHead {
        epoch: rewound.epoch,
        turn,
    };
    let truncate = async |head| buffers.truncate_buffer(scope, dialogue, before, last, head).await;
    let kept = match replacement {
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
    if kept {
        return Ok(());
    }
    buffers.remove_buffer(scope, dialogue).await
}
