//! What the actors are asked and answer with, below the actors that use it.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio::sync::oneshot;

use super::DialogueError;
use crate::{
    ids::TenantId,
    memory::{summary::Summary, turn::Checkpoint},
    ports::{buffer::BufferedTurn, ledger::dialogues::Dialogue},
    shares::ShareGuard,
};

/// A session that was just made.
#[derive(Debug, Clone)]
pub struct CreatedSession {
    pub dialogue: Dialogue,
    /// Shown once; only its hash is kept.
    pub resume_token: String,
}

/// What came of attaching a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachedListener {
    pub head_seq: u64,
    pub head_turn: u32,
    /// Missed events that were delivered again, in order, before this returned.
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
    pub at: DateTime<Utc>,
}

/// `seq` of `session.created`. The dialogue's own events come after it.
pub const CREATED_SEQ: u64 = 1;

/// A request's way back, and its permit, which is free again once it was answered.
pub(super) struct ReplyHandle<T> {
    pub(super) reply: oneshot::Sender<Result<T, DialogueError>>,
    pub(super) permit: ShareGuard<TenantId>,
    /// What whoever asks is doing.
    pub(super) span: tracing::Span,
}

impl<T> ReplyHandle<T> {
    pub(super) fn span(&self) -> &tracing::Span {
        &self.span
    }

    pub(super) fn answer(self, answer: Result<T, DialogueError>) {
        drop(self.permit);
        // Whoever asked may have gone away.
        let _ = self.reply.send(answer);
    }
}
