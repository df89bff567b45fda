//! The actix actors, and the handle the rest of the server talks to them through.
//!
//! An actor here is a thin state machine: it owns a queue, a buffer or a schedule, and runs plain
//! async functions of `dialogue`. Nothing outside this module (but `app` and `lifecycle`) imports
//! `actix`.

mod chores;
mod connection;
mod curator;
mod disabled_tenants;
mod event_log;
mod eviction;
pub mod handle;
mod heard;
mod mailbox;
pub mod membership;
mod memory_wait;
mod messages;
pub mod metrics;
mod npc;
pub mod npc_conversation;
mod participants;
pub mod player_socket;
mod registry;
mod restore_notices;
pub mod resume_token;
mod rewinding;
mod running_turn;
mod session;
#[cfg(test)]
mod tests;
mod use_cases;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

pub use event_log::{event_of_rewind, events_of_turn};
pub use heard::HeardLength;

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use crate::{
    dialogue::{events::DialogueEvent, turn::TurnError},
    ids::{FactionId, NodeId, NpcId, PlayerId, WorldId},
    memory::{fact::Cause, turn::Turn},
    ports::{
        StoreError,
        ledger::{
            dialogues::{Interrupters, NextSpeaker, Playback},
            rewinds::RewindRecord,
            usage::OverBudget,
        },
    },
    shares::NoCapacity,
    tenancy::Principal,
};

/// Someone who listens to a dialogue: a socket, an SSE response, a waiting REST request.
/// Must not block: it is called from the session while others wait.
pub trait Listener: Send + Sync {
    /// It hears from now on. Called under the same lock as `deliver`, before anything is delivered.
    fn on_attached(&self) {}
    /// Takes an event, or says that it can take no more (it is then dropped from the dialogue).
    fn deliver_event(&self, event: &Arc<PublishedEvent>) -> Result<(), ListenerGone>;
    /// Whether it asked for, and may see, memory and state events.
    fn sees_optional(&self) -> bool;
    /// Whether it will never take an event again. A session that only such listeners hold may be
    /// evicted; one that is told through `Sessions::detach_listener` need not say it here too.
    fn is_gone(&self) -> bool {
        false
    }
    /// Whether it is the session's own client, of which there is one at a time, and not somebody
    /// who only watches or waits.
    fn is_owner(&self) -> bool {
        false
    }
    /// A newer owner was seated and this one hears nothing more. Called without any lock.
    fn on_replaced(&self) {}
}

/// An event on its way to every listener, written as JSON once for all of them.
#[derive(Debug)]
pub struct PublishedEvent {
    event: DialogueEvent,
    text: OnceLock<ByteString>,
}

impl PublishedEvent {
    #[must_use]
    pub fn new(event: DialogueEvent) -> Arc<Self> {
        Arc::new(Self {
            event,
            text: OnceLock::new(),
        })
    }
    /// The wire form (docs/protocol.md#events-of-the-server), made on first use. Cloning it copies no text.
    #[must_use]
    pub fn text(&self) -> &ByteString {
        self.text.get_or_init(|| {
            // Events hold only strings, numbers and lists, so writing them cannot fail.
            serde_json::to_string(&self.event).unwrap_or_default().into()
        })
    }
}

impl std::ops::Deref for PublishedEvent {
    type Target = DialogueEvent;
    fn deref(&self) -> &DialogueEvent {
        &self.event
    }
}

/// Limits of the actors (docs/algorithms.md#limits). A section of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ActorSettings {
    /// Threads that actors live on; 0: one per core.
    pub arbiters: usize,
    /// An actor without listeners and without work stops after this many seconds; 600.
    pub idle_s: u64,
    /// Requests to sessions that may be under way at once on this node; 4,096.
    pub max_in_flight: usize,
    /// Dialogues that may be in memory at once on this node; 50,000.
    pub max_sessions: usize,
    /// Listeners of one dialogue; 16.
    pub max_listeners: usize,
    /// Events kept per dialogue for a resume; 256.
    pub replay_events: usize,
    /// How long they are kept, in seconds; 120.
    pub replay_s: u64,
    /// How long ownership of a dialogue is taken for, in seconds; renewed at half of it; 120.
    pub ownership_s: u64,
    /// How often every tenant is searched for jobs that another process left behind, in seconds; 60.
    pub sweep_s: u64,
    /// How often usage and the outbox's left-overs are written, in ms; 2,000.
    pub chores_ms: u64,
}

impl Default for ActorSettings {
    fn default() -> Self {
        Self {
            arbiters: 0,
            idle_s: 600,
            max_in_flight: 4_096,
            max_sessions: 50_000,
            max_listeners: 16,
            replay_events: 256,
            replay_s: 120,
            ownership_s: 120,
            sweep_s: 60,
            chores_ms: 2_000,
        }
    }
}

/// The listener is closed or does not keep up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerGone;

/// A new session (`POST /v1/sessions`, `session.create`).
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    pub world: WorldId,
    /// Who takes part; at least one.
    pub npcs: Vec<NpcId>,
    pub player: PlayerId,
    pub witnesses: Vec<NpcId>,
    /// Factions that overhear it: those that heard the conversation which the player joined.
    pub factions: Vec<FactionId>,
    /// When a turn counts as heard.
    pub playback: Playback,
    /// The turn of another dialogue at which the player joined.
    pub cause: Option<Cause>,
}

/// A new conversation of NPCs (`POST /v1/npc-conversations`).
#[derive(Debug, Clone, PartialEq)]
pub struct NewConversation {
    pub world: WorldId,
    /// Who takes part: 2 to 8, each once. The first one opens it.
    pub npcs: Vec<NpcId>,
    /// NPCs that overhear it and so learn its facts.
    pub witnesses: Vec<NpcId>,
    /// Factions that learn its facts.
    pub factions: Vec<FactionId>,
    pub topic: Option<String>,
    /// 1 to 100; unset: `conversation.max_turns`.
    pub max_turns: Option<u32>,
    /// Whether it paces itself, or is stepped.
    pub auto: bool,
    pub next_speaker: NextSpeaker,
    /// Players who may watch it.
    pub watchers: Vec<PlayerId>,
    /// Every player of the world may.
    pub open: bool,
    /// Players who may cut into it, join it and resume it.
    pub interrupters: Interrupters,
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
pub struct PlayerLine {
    pub text: String,
    /// Who is to answer, in a session with several NPCs; unset: whoever the line names, or else the
    /// one who spoke last.
    pub to: Option<NpcId>,
    /// 1–128 characters; makes a retry safe.
    pub key: Option<String>,
    pub on_busy: OnBusy,
    /// `event_id` of the client's message, echoed as `re`.
    pub re: Option<Arc<str>>,
    /// Who says it, for the audit log should it cut a reply.
    pub who: Option<Principal>,
}

/// How a line was taken.
#[derive(Debug)]
pub enum AcceptedLine {
    /// It is, or will be, a turn. The receiver gets the outcome; dropping it is fine. It fails
    /// (`RecvError`) when the line never became a turn because the session was closed or the server
    /// drained first: saying it again with the same key is safe.
    Turn {
        done: tokio::sync::oneshot::Receiver<Result<Arc<Turn>, Arc<TurnError>>>,
    },
    /// Its key belongs to a turn that is committed already: this one.
    Repeated(Arc<Turn>),
}

/// What an interrupt did.
#[derive(Debug, Clone, PartialEq)]
pub enum InterruptOutcome {
    /// Turn `turn` was cut and will be committed as interrupted (or, before its first character, dropped).
    Cut { turn: u32 },
    /// Nothing was running, and nothing is said after `head_turn`.
    Idle { head_turn: u32 },
    /// The dialogue was taken back, and what followed never happened.
    Rewound(Arc<RewindRecord>),
}

/// A wish to cut a reply or to take a dialogue back.
#[derive(Debug, Clone)]
pub struct InterruptCommand {
    /// The turn to cut, or the last one that is to stand. `None`: the running one.
    pub turn: Option<u32>,
    /// How much of that turn's reply was heard; `None`: all of it. In UTF-16 units only of a reply that
    /// runs or was the last to.
    pub heard: Option<HeardLength>,
    /// 1–128 characters; makes a retry safe.
    pub key: Option<String>,
    /// The last turn as the caller knows it.
    pub if_head: Option<u32>,
    pub who: Principal,
}

/// A wish to take a reply up again that was cut a moment ago.
#[derive(Debug, Clone)]
pub struct ResumeCommand {
    /// 1–128 characters; makes a retry safe.
    pub key: Option<String>,
    /// `event_id` of the client's message, echoed as `re` in the events of a reply that is gone on with.
    pub re: Option<Arc<str>>,
    pub who: Principal,
}

/// Why a session did not do what it was asked. Each variant has one code on the wire
/// (`http::errors`).
#[derive(Debug, Clone, thiserror::Error)]
pub enum DialogueError {
    #[error("there is no such session")]
    NotFound,
    #[error("there is no world {0}")]
    NoWorld(WorldId),
    #[error("there is no NPC {0} in this world")]
    NoNpc(NpcId),
    #[error("{0} takes no part in this session")]
    TakesNoPart(NpcId),
    #[error("this session is closed")]
    Closed,
    #[error("this conversation has ended")]
    Ended,
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
    #[error("{0}")]
    OverShare(NoCapacity),
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    #[error("the server is shutting down")]
    Draining,
    #[error("this session lives on node {node}")]
    NotOwner { node: NodeId },
    #[error("the key belongs to a turn that was unsaid")]
    TurnUnsaid,
    #[error("this key was used with another text, or for another NPC to answer")]
    KeyReused,
    #[error("turn {turn} is not running")]
    NotRunning { turn: u32 },
    #[error("there is no turn {turn}; the last one is {head_turn}")]
    NoSuchTurn { turn: u32, head_turn: u32 },
    #[error("the last turn is {head_turn}")]
    StaleHead { head_turn: u32 },
    #[error("no reply was cut a moment ago, or something was said since")]
    NothingToResume,
    #[error("there is no reply to say anew")]
    NothingToRegenerate,
    #[error("the events since {last_seq} are no longer kept; read /turns")]
    ResumeExpired { last_seq: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<NoCapacity> for DialogueError {
    fn from(none: NoCapacity) -> Self {
        match none {
            NoCapacity::TenantShare(_) => Self::OverShare(none),
            NoCapacity::Full(_) => Self::Overloaded {
                retry_after: Duration::from_secs(1),
            },
        }
    }
}
