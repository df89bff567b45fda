//! The one way in: get-or-spawn, admission, and a method per thing a session can be asked.
//!
//! The mailbox bound of actix protects nothing, so admission is a semaphore permit taken before a
//! message is sent and carried by it. Full means an error with a time to wait, never a queue.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};

use super::{Accepted, ActorSettings, Interrupted, Line, Listener, NewSession, SessionError};
use crate::{
    dialogue::Services,
    ids::{DialogueId, NodeId},
    memory::{summary::Summary, turn::Checkpoint},
    ports::{buffer::BufferedTurn, ledger::dialogues::Dialogue},
    tenancy::TenantScope,
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
pub struct Attached {
    pub head_seq: u64,
    pub head_turn: u32,
    /// Missed events that were delivered again, in order, before this returned.
    pub replayed: usize,
    /// Pass to `detach`.
    pub listener: u64,
}

/// A session's state as the context preview and the REST resource show it.
#[derive(Debug, Clone)]
pub struct SessionView {
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

/// What a drain came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    /// Turns that ended by themselves.
    pub finished: usize,
    /// Turns that were cut at the deadline (committed as interrupted).
    pub cut: usize,
    /// Turns that did not end even then; their lines were never acknowledged.
    pub abandoned: usize,
    /// Jobs that still ran; they stay leased to this node and run after the next start.
    pub jobs_left: usize,
}

/// The sessions of this node. Cheap to clone.
#[derive(Clone)]
pub struct Sessions {}

impl Sessions {
    /// Starts the actors' threads, the chores and the jobs an earlier process left behind.
    /// Must be called on a thread with a running actix `System`.
    pub fn start(services: Services, node: NodeId, settings: ActorSettings) -> Self {
        let _ = (services, node, settings);
        todo!()
    }
    /// Stops for good: refuses new lines at once (`SessionError::Draining`), lets running turns end
    /// by themselves, cuts those that have not at the deadline, stops the actors and writes what is
    /// buffered. Listeners stay attached until their turn has ended.
    pub async fn drain(&self, deadline: Duration) -> Drained {
        let _ = deadline;
        todo!()
    }
    /// Stops the actors' threads. After `drain`, once nothing sends any more.
    pub fn stop(&self) {
        todo!()
    }
    /// Makes a session (a ledger row; its actor starts with the first message).
    pub async fn create(&self, scope: &TenantScope, new: NewSession) -> Result<CreatedSession, SessionError> {
        let _ = (scope, new);
        todo!()
    }
    /// Speaks a line.
    pub async fn say(&self, scope: &TenantScope, id: DialogueId, line: Line) -> Result<Accepted, SessionError> {
        let _ = (scope, id, line);
        todo!()
    }
    /// Cuts the running reply. `turn`: only if that turn is the running one.
    pub async fn interrupt(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        turn: Option<u32>,
        heard_chars: Option<usize>,
    ) -> Result<Interrupted, SessionError> {
        let _ = (scope, id, turn, heard_chars);
        todo!()
    }
    /// Adds a listener. With `last_seq`, events after it are delivered again first, in order;
    /// `resume_token` is checked when given.
    pub async fn attach(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        listener: Arc<dyn Listener>,
        resume_token: Option<String>,
        last_seq: Option<u64>,
    ) -> Result<Attached, SessionError> {
        let _ = (scope, id, listener, resume_token, last_seq);
        todo!()
    }
    /// Takes a listener off. Unknown ones are fine. Never spawns an actor.
    pub fn detach(&self, scope: &TenantScope, id: DialogueId, listener: u64) {
        let _ = (scope, id, listener);
        todo!()
    }
    /// How the session stands.
    pub async fn view(&self, scope: &TenantScope, id: DialogueId) -> Result<SessionView, SessionError> {
        let _ = (scope, id);
        todo!()
    }
    /// Ends the session; listeners are told.
    pub async fn close(&self, scope: &TenantScope, id: DialogueId, reason: &'static str) -> Result<(), SessionError> {
        let _ = (scope, id, reason);
        todo!()
    }
    /// The prompt `text` would get, without calling the reply model.
    pub async fn preview(
        &self,
        scope: &TenantScope,
        id: DialogueId,
        text: String,
    ) -> Result<Result<crate::dialogue::prompt::Preview, crate::dialogue::turn::TurnError>, SessionError> {
        let _ = (scope, id, text);
        todo!()
    }
    /// Drops cached worlds and NPCs after an edit, so the next turn sees it.
    pub fn forget_authored(&self, scope: &TenantScope, world: &crate::ids::WorldId) {
        let _ = (scope, world);
        todo!()
    }
    /// How many session actors live, for metrics and tests.
    #[must_use]
    pub fn live(&self) -> usize {
        todo!()
    }
}
