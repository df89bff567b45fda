//! Taking a dialogue back to a turn, or a cut turn up again (docs/design.md#interrupt-and-rewind). Serves an interrupt of what
//! was said already, a rewind, a regenerated reply and a resumed one, in sessions and between NPCs.
//!
//! The ledger moves the head and everything with it in one transaction; the rest here brings the
//! copies along. What settling the memories concerned takes is [`reconcile_after_rewinds`], which nobody waits for.

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

/// Where the head is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewindTarget {
    /// This turn is the last one that stands; 0: nothing was said. With `heard_chars` of its reply,
    /// in Unicode scalar values, the reply ends there too; with nothing heard, the turn goes as well.
    Turn { number: u32, heard_chars: Option<usize> },
    /// As turn `number` with all of it heard; the one after it goes only to be said anew.
    Regenerate { number: u32 },
    /// The turn that went to be said anew, since none took its place.
    Reinstate { turn: TurnId },
    /// The last turn as it would have been, had nobody cut it a moment ago. One that was cut while it was
    /// being said goes, so that its speaker goes on with it ([`AppliedRewind::unfinished`]).
    Resume,
}

impl RewindTarget {
    /// Whether a conversation of NPCs is paused where its head goes there: by whoever cuts in, until somebody
    /// has it go on. `None`: it stays as it is.
    #[must_use]
    pub fn paused_after(self) -> Option<bool> {
        match self {
            Self::Turn { .. } => Some(true),
            Self::Resume => Some(false),
            Self::Regenerate { .. } | Self::Reinstate { .. } => None,
        }
    }
}

/// What is asked, and of which state of the dialogue.
#[derive(Debug, Clone)]
pub struct RewindRequest {
    pub scope: TenantScope,
    pub node: NodeId,
    pub dialogue: DialogueId,
    pub world: WorldId,
    /// The owner's epoch; it rises with the move.
    pub epoch: u64,
    /// The last turn that stands, as the owner knows it.
    pub head_turn: u32,
    pub head: Option<TurnId>,
    /// A turn is under way that must not commit: the epoch rises even if every turn stays.
    pub fence: bool,
    pub target: RewindTarget,
    /// Whether a conversation is paused once it is moved; `None`: as it was.
    pub paused: Option<bool>,
    /// Makes a retry safe; unique in a dialogue.
    pub key: Option<String>,
    /// Keys of others who are told of the same move.
    pub also: Vec<String>,
    /// `seq` of the event that will tell of it.
    pub seq: u64,
    pub who: Principal,
    /// Dotted verb for the audit log: `session.rewind`, `conversation.interrupt`, …
    pub action: &'static str,
    /// Who else asked at the same time, and for less: the audit log has them too.
    pub others: Vec<(Principal, &'static str)>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum RewindResponse {
    /// The head was moved.
    Done(Box<AppliedRewind>),
    /// The key belongs to this earlier move; nothing was written.
    Repeated(Box<RewindRecord>),
    /// It stands there already; nothing was written.
    Unchanged,
}

/// A move that was made.
#[derive(Debug, Clone, PartialEq)]
pub struct AppliedRewind {
    pub rewound: RewindRecord,
    /// The turn that took the place of the one that was cut.
    pub replacement: Option<Turn>,
    /// The reply that is to be taken up again, as the next turn. It stands again as it was cut if that turn does
    /// not come ([`RewindRecord::replacing`]).
    pub unfinished: Option<PartialReply>,
}

/// Why a head was not moved. Nothing was written.
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
    /// The last turn was not cut, was cut too long ago, or something was said since.
    #[error("there is no cut reply to take up again")]
    NothingToResume,
}

/// Moves the head. Durable when this returns; the buffer and the caches have followed.
///
/// What is left can wait and is [`reconcile_after_rewinds`]: the index, and the memories from which something was unsaid.
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
        // What was to be said anew stands, whoever closed the dialogue meanwhile.
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
        // Whoever joined at a turn that was cut has gone on from it.
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

/// Nothing is to be moved: whoever repeats a key is told so again, whatever is said later.
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

/// Whether the head goes only for its line to be said anew, or on.
fn has_pending_replacement(request: &RewindRequest, unfinished: Option<&PartialReply>) -> bool {
    matches!(request.target, RewindTarget::Regenerate { .. }) || unfinished.is_some()
}

/// What moves leave to be done for a tenant: the index learns what is no longer valid, and memories
/// from which something was unsaid are reconciled again; how many there were. Both are durable and come
/// again if they fail.
pub async fn reconcile_after_rewinds(services: &Services, scope: &TenantScope) -> Result<usize, JobError> {
    // First, since a judge may keep the rest waiting.
    relay_or_log(services).await;
    reconcile_dirty_memories(services, scope).await
}

/// Which turn is to be the head, and what takes its place on top.
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
    // With its predecessor, which is the head when nothing of it was heard.
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
            // As for a reply that is cut while it is said: without a block it changes nothing.
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

/// The same turn, of which only `heard` was heard. It stands where the other one stood, at the same
/// moment, and is learned from anew.
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
        // Where they were in the text is not kept, and one that came later was never seen.
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
            // A greeting teaches nothing, heard in part or whole.
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
    // What was cut while it was being said has no end to be put back: the model goes on from there.
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

/// Brings the copy along: the buffer ends where the ledger does, or is gone.
async fn update_buffer(
    services: &Services,
    request: &RewindRequest,
    rewound: &RewindRecord,
    replacement: Option<&Turn>,
) {
    if let Err(error) = truncate_buffer(services, request, rewound, replacement).await {
        // It carries a head that the ledger left behind, so nobody believes it, or moves it along.
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
        // Turns came back that the buffer does not have.
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
            // No turn has this head yet, so whoever reads in between does not believe the buffer.
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
