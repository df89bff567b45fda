//! Messages and answers of the actors, in a module below the actors themselves.

use std::sync::Arc;

use actix::Message;
use chrono::{DateTime, Utc};
use tokio::sync::oneshot;

use super::DialogueError;
use colloquy_core::{
    ids::{DialogueId, TenantId, TurnId},
    scope::TenantScope,
    shares::{Resident, ShareGuard},
};
use colloquy_dialogue::jobs::JobReport;
use colloquy_memory::{summary::Summary, turn::Checkpoint};
use colloquy_ports::{
    buffer::BufferedTurn,
    ledger::{
        dialogues::Dialogue,
        jobs::{Job, JobKind},
        saves::RestoredDialogue,
    },
};

/// A session that was just created.
#[derive(Debug, Clone)]
pub struct CreatedSession {
    pub dialogue: Dialogue,
    /// Shown once; the ledger stores only the hash.
    pub resume_token: String,
}

/// The result of attaching a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachedListener {
    pub head_seq: u64,
    pub head_turn: u32,
    /// Missed events that were delivered again, in order, before the call returned.
    pub replayed: usize,
    /// Pass to `detach_listener`.
    pub listener: u64,
}

/// A session's state as the context preview and the REST resource show it.
#[derive(Debug, Clone)]
pub struct SessionSnapshot {
    pub dialogue: Arc<Dialogue>,
    pub history: Arc<Vec<BufferedTurn>>,
    pub summaries: Arc<Vec<Summary>>,
    pub checkpoint: Checkpoint,
    pub head_seq: u64,
    pub running_turn: Option<u32>,
    pub queued: usize,
    pub read_at: DateTime<Utc>,
}

/// The state of a conversation.
#[derive(Debug, Clone)]
pub struct ConversationSnapshot {
    pub dialogue: Arc<Dialogue>,
    pub head_seq: u64,
    pub running_turn: Option<u32>,
}

/// The point at which a player joins.
#[derive(Debug, Clone)]
pub struct JoinPoint {
    pub dialogue: Arc<Dialogue>,
    /// The last line that was said.
    pub head: Option<TurnId>,
}

/// `seq` of `session.created`. The dialogue's own events come after this number.
pub const CREATED_SEQ: u64 = 1;

/// A request's reply channel and permit. The permit is released when the request is answered.
pub(super) struct ReplyHandle<T> {
    pub(super) reply: oneshot::Sender<Result<T, DialogueError>>,
    pub(super) permit: ShareGuard<TenantId>,
    /// The caller's tracing span.
    pub(super) span: tracing::Span,
}

impl<T> ReplyHandle<T> {
    pub(super) fn span(&self) -> &tracing::Span {
        &self.span
    }

    pub(super) fn answer(self, answer: Result<T, DialogueError>) {
        drop(self.permit);
        // The caller may have gone away.
        let _ = self.reply.send(answer);
    }
}

pub(super) type DialogueKey = (TenantScope, DialogueId);

/// The last sequence number of a dialogue's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastSeq {
    pub seq: u64,
    /// The owner's epoch when the number was assigned.
    pub epoch: u64,
}

/// Counts an actor for as long as the actor is in memory.
pub(super) type ResidencyPermit = Resident<TenantId, DialogueKey>;

/// Reports a finished job of the dialogue, or the scenarios that a turn unlocked, which is no job. A missing report
/// means a failed attempt, or a job that has to wait.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct JobEnded {
    pub turn_id: TurnId,
    pub kind: Option<JobKind>,
    pub report: Option<JobReport>,
}

/// Refuses new lines and cancels queued lines. The answer comes once no turn runs: true if a turn was running.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct DrainDialogue {
    pub reply: oneshot::Sender<bool>,
}

/// Cuts the running turn.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct CutRunningTurn;

/// Reports that another part of the system closed the dialogue in the ledger.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct ClosedInLedger(pub &'static str);

/// Reports that the node no longer owns the dialogue.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct OwnershipLost;

/// Reports a restored save of the world, with the new state of the dialogue.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct WorldRestored(pub Arc<RestoredDialogue>);

/// Stops the actor at once.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct StopDialogue;

/// Makes the actor panic, to test the recovery.
#[cfg(test)]
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct PanicForTest;

/// Asks an actor to leave memory and hand over its place. An actor with work or listeners stays and drops the message.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct LeaveIfIdle {
    pub reply: oneshot::Sender<ResidencyPermit>,
}

/// Asks for no new jobs. The answer comes when no job runs, with the number of jobs left.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct DrainCurator {
    pub reply: oneshot::Sender<usize>,
}

/// Stops at once. Running jobs are dropped and stay leased.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct StopCurator;

/// The requests of other actors to a curator.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) enum CuratorRequest {
    /// Hands over jobs of the tenant that are leased to the node.
    TakeJobs(Vec<Job>),
    /// Reports dialogues with turns that were unsaid or stand again. Jobs of unsaid turns are aborted, so that later
    /// jobs need not wait for a timeout. New jobs may be due, and affected memories are reconciled again.
    TurnsUnsaid(Vec<DialogueId>),
    /// Reports that waiting jobs may be due.
    JobsDue,
}
