//! Messages and answers of the actors, in a module below the actors themselves.

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
    pub at: DateTime<Utc>,
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
