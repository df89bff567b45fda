//! The actix actors, and the handle the rest of the server talks to them through.
//!
//! An actor here is a thin state machine: it owns a queue, a buffer or a schedule, and runs plain
//! async functions of `dialogue`. Nothing outside this module (but `app` and `lifecycle`) imports
//! `actix`.

pub mod curator;
pub mod event_log;
pub mod handle;
pub mod npc;
pub mod player_socket;
pub mod registry;
pub mod session;

use std::{sync::Arc, time::Duration};

use crate::{
    dialogue::{events::DialogueEvent, turn::TurnError},
    ids::{NodeId, NpcId, PlayerId, WorldId},
    memory::turn::Turn,
    ports::StoreError,
};

/// Someone who listens to a dialogue: a socket, an SSE response, a waiting REST request.
/// Must not block: it is called from the session while others wait.
pub trait Listener: Send + Sync {
    /// Takes an event, or says that it can take no more (it is then dropped from the dialogue).
    fn deliver(&self, event: &Arc<DialogueEvent>) -> Result<(), ListenerGone>;
    /// Whether it asked for, and may see, memory and state events.
    fn sees_optional(&self) -> bool;
}

/// The listener is closed or does not keep up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerGone;

/// A new session (`POST /v1/sessions`, `session.create`).
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    pub world: WorldId,
    pub npc: NpcId,
    pub player: PlayerId,
    pub witnesses: Vec<NpcId>,
}

/// What a player's line does while a reply is running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnBusy {
    /// Waits its turn, up to `turn.max_queued`.
    #[default]
    Queue,
    /// Cuts the running reply where it is, then speaks.
    Interrupt,
    /// Is refused with `turn_in_progress`.
    Reject,
}

/// A player's line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub text: String,
    /// 1–128 characters; makes a retry safe.
    pub key: Option<String>,
    pub on_busy: OnBusy,
    /// `event_id` of the client's message, echoed as `re`.
    pub re: Option<Arc<str>>,
}

/// How a line was taken.
#[derive(Debug)]
pub enum Accepted {
    /// It is, or will be, a turn. The receiver gets the outcome; dropping it is fine.
    Turn {
        done: tokio::sync::oneshot::Receiver<Result<Arc<Turn>, Arc<TurnError>>>,
    },
    /// Its key belongs to a turn that is committed already: this one.
    Repeated(Arc<Turn>),
}

/// What an interrupt did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    /// Turn `turn` was cut and will be committed as interrupted (or, before its first character, dropped).
    Cut { turn: u32 },
    /// Nothing was running.
    Idle { head_turn: u32 },
}

/// Why a session did not do what it was asked. Each variant has one code on the wire
/// (`http::errors`).
#[derive(Debug, Clone, thiserror::Error)]
pub enum SessionError {
    #[error("there is no such session")]
    NotFound,
    #[error("there is no world {0}")]
    NoWorld(WorldId),
    #[error("there is no NPC {0} in this world")]
    NoNpc(NpcId),
    #[error("this session is closed")]
    Closed,
    #[error("the line is longer than {max} characters")]
    LineTooLong { max: usize },
    #[error("the line is empty")]
    LineEmpty,
    #[error("a reply is running")]
    TurnInProgress { retry_after: Duration },
    #[error("{queued} lines wait already")]
    QueueFull { queued: usize, retry_after: Duration },
    #[error("the server is at its limit")]
    Overloaded { retry_after: Duration },
    #[error("the server is shutting down")]
    Draining,
    #[error("this session lives on node {node}")]
    Elsewhere { node: NodeId },
    #[error("the key belongs to a turn that was unsaid")]
    TurnUnsaid,
    #[error("turn {turn} is not running")]
    NotRunning { turn: u32 },
    #[error("the resume token is wrong")]
    WrongResumeToken,
    #[error("the events since {last_seq} are no longer kept; read /turns")]
    ResumeExpired { last_seq: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}
