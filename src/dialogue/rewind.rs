//! Rewinds of a dialogue (docs/design.md#interrupt-and-rewind). One operation serves a rewind, a late interrupt, a
//! regenerated reply and a resumed reply, in sessions and in NPC conversations.
//!
//! The ledger moves the head and all dependent rows in one transaction. This module then updates the copies. The
//! reconciliation of affected memories happens later, without a waiting caller: [`reconcile_after_rewinds`].

mod continuation;

use std::{borrow::Cow, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};

use self::continuation::plan_continuation;
use super::{
    Services,
    heard::HeardLength,
    intent::classified_intent,
    jobs::{JobError, new_jobs, outbox::relay_or_log},
    remember::reconcile_dirty_memories,
    requester::Requesters,
    turn::{PartialReply, grapheme_prefix},
};
use colloquy_core::{
    ids::{DialogueId, NodeId, NpcId, TurnId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::{World, WorldSettings},
    turn::{Intent, Turn, TurnStatus, has_whole_sentence},
};
use colloquy_ports::{
    StoreError, StoreResult,
    buffer::{BufferHead, BufferedTurn},
    clock::IdSource,
    ledger::{
        jobs::JobKind,
        rewinds::{
            InterruptOutcome, OnKeyConflict, Replacement, RewindAcks, RewindCommit, RewindCommitResult, RewindOrigin,
            RewindRecord,
        },
    },
};

/// The number of cuts of a turn whose jobs become due after `turn.cut_hold_s`. The jobs of further cuts wait for the next
/// line or the end of the dialogue, so that a line costs a bounded number of model calls.
const MAX_TIMED_CUTS: u64 = 3;
/// How long jobs wait that wait for the next line or the end of the dialogue, if neither comes.
const LONGEST_CUT_HOLD: TimeDelta = TimeDelta::days(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewindTarget {
    /// This turn becomes the head; 0 means no turn. With `heard`, its reply ends there too. If no text was heard, the
    /// turn goes as well.
    Turn { number: u32, heard: Option<HeardLength> },
    /// Turn `number` becomes the head with its full reply. The next turn goes, to be generated again.
    Regenerate { number: u32 },
    /// As `Regenerate`, but the new reply begins with the words of the old reply ([`AppliedRewind::unfinished`]).
    GoOn { number: u32 },
    /// The turn that went for a regenerate stands again, because no new turn came.
    Reinstate { turn: TurnId },
    /// The last turn without its recent cut. A turn cut mid-stream goes, and its speaker continues it
    /// ([`AppliedRewind::unfinished`]). With `may_continue` false, the request was not counted as a line, and such a turn
    /// is not resumed.
    Resume { may_continue: bool },
}

impl RewindTarget {
    /// Returns whether an NPC conversation is paused after the rewind. An interrupt pauses the conversation until a
    /// caller resumes the conversation. `None`: no change.
    #[must_use]
    pub fn paused_after(self) -> Option<bool> {
        match self {
            Self::Turn { .. } => Some(true),
            Self::Resume { .. } => Some(false),
            Self::Regenerate { .. } | Self::GoOn { .. } | Self::Reinstate { .. } => None,
        }
    }

    /// Returns the rank of the target: a lower rank goes further back. For the same turn, counts in different units
    /// compare as if no character had two UTF-16 units.
    #[must_use]
    pub fn rank(self) -> impl Ord {
        match self {
            Self::Turn { number, heard } => (number, heard.map_or(usize::MAX, HeardLength::units), 0),
            // A permanent rewind of the turn wins.
            Self::Regenerate { number } | Self::GoOn { number } => (number, usize::MAX, 1),
            Self::Resume { .. } | Self::Reinstate { .. } => (u32::MAX, usize::MAX, 2),
        }
    }

    /// True if a head with number `head` satisfies the target already.
    #[must_use]
    pub fn is_reached_at(self, head: u32) -> bool {
        match self {
            Self::Turn { number, heard } => number > head || (number == head && heard.is_none()),
            Self::Regenerate { number } | Self::GoOn { number } => number >= head,
            // A turn was unsaid since, so no reply can be resumed.
            Self::Resume { .. } | Self::Reinstate { .. } => true,
        }
    }
}

/// A dialogue as its owner knows the dialogue.
#[derive(Debug, Clone)]
pub struct OwnedDialogue {
    pub scope: TenantScope,
    pub node: NodeId,
    pub id: DialogueId,
    pub world: WorldId,
    /// The owner's epoch. A rewind increments the epoch.
    pub epoch: u64,
    pub head: Option<TurnId>,
    /// The number of the head.
    pub head_turn: u32,
}

/// A request for a rewind, with the expected state of the dialogue.
#[derive(Debug, Clone)]
pub struct RewindRequest {
    pub dialogue: OwnedDialogue,
    pub target: RewindTarget,
    /// True if a running turn must not commit. The epoch then rises even if every turn stays.
    pub fence: bool,
    /// Whether a conversation is paused after the rewind. `None`: no change.
    pub paused: Option<bool>,
    /// The `seq` of the event that reports the rewind.
    pub seq: u64,
    pub requesters: Requesters,
    pub tiers: DialogueTiers,
}

/// The settings of a dialogue's tiers, as far as its owner has them in memory. They decide which jobs a shortened turn has.
#[derive(Debug, Clone, Default)]
pub struct DialogueTiers {
    /// The world as each NPC of the dialogue sees it ([`World::for_npc`]). The rows of other NPCs are read.
    pub worlds: Vec<(NpcId, Arc<World>)>,
    pub session: Option<Box<WorldSettings>>,
}

impl DialogueTiers {
    /// Returns the services with the merged settings for turns of `npc`. Without the rows of the NPC or its world, the
    /// configuration is left.
    async fn tune<'s>(
        &self,
        services: &'s Services,
        scope: &TenantScope,
        (world, npc): (&WorldId, &NpcId),
    ) -> StoreResult<Cow<'s, Services>> {
        let held = self.worlds.iter().find(|(id, _)| id == npc);
        let world = if let Some((_, world)) = held {
            Some(Arc::clone(world))
        } else {
            let authored = &services.ledger.authored;
            let (world, row) =
                tokio::try_join!(authored.load_world(scope, world), authored.load_npc(scope, world, npc))?;
            world.zip(row).map(|(world, npc)| Arc::new(world).for_npc(&npc))
        };
        Ok(world.map_or(Cow::Borrowed(services), |world| match &self.session {
            None => services.tuned_by(&world.settings),
            Some(session) => services.tuned_by(&world.settings.overridden_by(session)),
        }))
    }
}

impl RewindRequest {
    /// Returns the commit that moves the head to `to`, with `replacement` on top. `hold` is the time in which nothing is
    /// learned from a resumed reply. `is_continued`: the next turn continues the reply of the old head.
    #[must_use]
    pub fn commit_to(
        &self,
        ids: &IdSource,
        (at, hold): (DateTime<Utc>, TimeDelta),
        to: Option<TurnId>,
        replacement: Option<Replacement>,
        is_continued: bool,
    ) -> RewindCommit {
        let OwnedDialogue { id, head, .. } = self.dialogue;
        let is_replaced = is_continued || matches!(self.target, RewindTarget::Regenerate { .. });
        let other_keys = self.requesters.other_keys();
        RewindCommit {
            id: ids.next_id(),
            rewound_at: at,
            dialogue: id,
            world: self.dialogue.world.clone(),
            epoch: self.dialogue.epoch,
            origin: match (self.target, head) {
                // A reinstated turn must stand even if the dialogue was closed meanwhile.
                (RewindTarget::Reinstate { .. }, _) => RewindOrigin::Reinstatement,
                // A player who joined at the cut turn has continued from the cut.
                (RewindTarget::Resume { .. }, Some(cut)) => RewindOrigin::Resume { cut },
                _ => RewindOrigin::Request,
            },
            to,
            replacement,
            replacing: head.filter(|_| is_replaced),
            paused: self.paused,
            // The resumed reply may be cut again at once.
            held_until: matches!(self.target, RewindTarget::Resume { .. }).then_some(at + hold),
            key: self.requesters.own_key().cloned(),
            other_keys: other_keys.map(|key| (ids.next_id(), key.clone())).collect(),
            seq: self.seq,
            edits: self.requesters.audit_edits(ids, at, id),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum RewindResponse {
    /// The head was moved.
    Done(Box<AppliedRewind>),
    /// The key has this outcome already; nothing was written.
    Repeated(InterruptOutcome),
    /// The head is there already; only the keys were written.
    Unchanged,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AppliedRewind {
    pub rewound: Arc<RewindRecord>,
    /// The turn that replaced the cut turn.
    pub replacement: Option<Turn>,
    /// The intent of the line that is answered again, if the classifier named it.
    pub intent: Option<Intent>,
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
    let (number, unfinished) = (plan.number, plan.unfinished);
    let times = (now, plan.hold);
    let rewind = request.commit_to(&services.ids, times, plan.to, plan.replacement, unfinished.is_some());
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
    let told = RewindAcks {
        recorded_at: services.clock.now(),
        keys: keys.map(|key| (services.ids.next_id(), key.clone())).collect(),
        edits: Vec::new(),
    };
    if told.keys.is_empty() {
        return Ok(());
    }
    let OwnedDialogue {
        scope, id, head_turn, ..
    } = &request.dialogue;
    let idle = InterruptOutcome::Idle { head_turn: *head_turn };
    let rewinds = &services.ledger.rewinds;
    rewinds
        .record_outcome(scope, *id, &told, &idle, OnKeyConflict::Keep)
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

/// The new head, and the turn that replaces the old turn on top.
struct RewindPlan {
    number: u32,
    to: Option<TurnId>,
    replacement: Option<Replacement>,
    intent: Option<Intent>,
    unfinished: Option<PartialReply>,
    /// How long the jobs of turns that stand again after a resume are held.
    hold: TimeDelta,
}

impl RewindPlan {
    const fn with_head(number: u32, to: Option<TurnId>) -> Self {
        Self {
            number,
            to,
            replacement: None,
            intent: None,
            unfinished: None,
            hold: TimeDelta::zero(),
        }
    }
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
    heard: Option<HeardLength>,
) -> Result<Option<RewindPlan>, RewindError> {
    let OwnedDialogue { scope, id, head, .. } = &request.dialogue;
    let dialogues = &services.ledger.dialogues;
    if number == 0 {
        let already = head.is_none() && !request.fence;
        return Ok((!already).then_some(RewindPlan::with_head(number, None)));
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
    let before = turns.next().map(|turn| turn.id);
    let cut = heard
        .map(|heard| grapheme_prefix(&turn.reply_text, heard.to_scalar_count(&turn.reply_text)))
        .filter(|text| text.len() < turn.reply_text.len());
    match cut {
        None => {
            let already = *head == Some(turn.id) && !request.fence;
            Ok((!already).then_some(RewindPlan::with_head(number, Some(turn.id))))
        }
        Some(text) if text.trim().is_empty() => Ok(Some(RewindPlan::with_head(number - 1, before))),
        Some(text) => {
            let trace = dialogues.load_trace(scope, *id, number).await?;
            // The same rule as for a reply cut mid-stream: without a state block, the turn changes no state.
            let had_block = trace.is_some_and(|trace| trace.state_block);
            let OwnedDialogue { node, world, .. } = &request.dialogue;
            let hold = hold_of_cut(services, &request.dialogue, number).await?;
            let services = request.tiers.tune(services, scope, (world, &turn.npc)).await?;
            let heard = text.trim_end().to_owned();
            let replacement = cut_replacement(&services, (*node, hold), &turn, heard, had_block);
            Ok(Some(RewindPlan {
                replacement: Some(replacement),
                ..RewindPlan::with_head(number, before)
            }))
        }
    }
}

/// Returns the same turn with only the `heard` text, at the old turn's place and time. Its facts are extracted again.
/// `services` has the settings of the dialogue's tiers. `hold`: how long nothing is learned from the turn.
fn cut_replacement(
    services: &Services,
    (node, hold): (NodeId, TimeDelta),
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
    let kinds = [
        // A greeting teaches nothing, heard in part or in full. Silence in the middle of a talk is no greeting.
        (!of.is_greeting() || of.number > 1).then_some(JobKind::ExtractFacts),
        (had_block && services.settings.prompt.ask_for_state && has_whole_sentence(&turn.reply_text))
            .then_some(JobKind::ExtractState),
        Some(JobKind::Summarise),
        services
            .settings
            .curation
            .is_due_after(of.number)
            .then_some(JobKind::Curate),
    ];
    let seal = services.settings.turn.seal_time();
    Replacement {
        replaced_turn: of.id,
        jobs: new_jobs(
            services,
            &turn,
            now,
            (node, now),
            // Meanwhile the turn may stand again, or be cut again. The next line ends the wait.
            Some(now + hold),
            kinds.into_iter().flatten(),
        ),
        sealed_reply: Some((of.reply_text.clone(), now + seal)),
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
    let (rewinds, now) = (&services.ledger.rewinds, services.clock.now());
    let sealed = rewinds.load_sealed_reply(scope, head, now).await?;
    let sealed = sealed.ok_or(RewindError::NothingToResume)?;
    if let Some(whole) = sealed.whole {
        return Ok(Some(RewindPlan {
            hold: hold_of_cut(services, &request.dialogue, *head_turn).await?,
            ..RewindPlan::with_head(*head_turn, Some(whole))
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
    let (buffers, scope, dialogue) = (&services.buffers, &owned.scope, owned.id);
    if !rewound.reinstated.is_empty() {
        // The buffer lacks the reinstated turns.
        return buffers.remove_buffer(scope, dialogue).await;
    }
    let last = match replacement {
        Some(turn) => turn.number - 1,
        None => rewound.head_turn,
    };
    let before = BufferHead {
        epoch: owned.epoch,
        turn: owned.head,
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
