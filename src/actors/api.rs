//! What the rest of the server asks of dialogues, and the answers: the types below all actors.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use colloquy_core::{
    ids::{FactionId, NodeId, NpcId, PlayerId, WorldId},
    scope::Principal,
    shares::NoCapacity,
};
use colloquy_dialogue::{
    disclosure::{EventVerdict, EventViewer},
    events::DialogueEvent,
    heard::HeardLength,
    requester::Requester,
    turn::{ChatRequest, TurnError},
};
use colloquy_memory::{authored::TierSettings, fact::Cause, turn::Turn};
use colloquy_ports::{
    StoreError,
    ledger::{
        dialogues::{Interrupters, NextSpeaker, Playback},
        usage::OverBudget,
    },
};

/// A receiver of a dialogue's events: a socket, an SSE response or a waiting REST request. The methods must not block,
/// because the session calls them while other requests wait.
pub trait Listener: Send + Sync {
    /// Called when the listener is added, before the first event and under the same lock as `deliver_event`.
    fn on_attached(&self) {}
    /// Returns which events the listener may see.
    fn viewer(&self) -> EventViewer;
    /// Takes an event. An error means that the listener can take no more events; the dialogue then drops the listener.
    fn deliver_event(&self, event: &VisibleEvent) -> Result<(), ListenerGone>;
    /// True if the listener will never take an event again. A session with only gone listeners may be evicted. A
    /// listener that is removed through `Dialogues::detach_listener` need not report here too.
    fn is_gone(&self) -> bool {
        false
    }
    /// True for the session's own client. A session has at most one owner at a time; other listeners only watch or
    /// wait.
    fn is_owner(&self) -> bool {
        false
    }
    /// Called without a lock when a newer owner replaces the listener. The listener gets no more events.
    fn on_replaced(&self) {}
}

/// An event on the way to every listener, serialized to JSON once for all listeners.
#[derive(Debug)]
pub struct PublishedEvent {
    event: DialogueEvent,
    text: OnceLock<ByteString>,
}

impl PublishedEvent {
    pub(crate) fn new(event: DialogueEvent) -> Arc<Self> {
        Arc::new(Self {
            event,
            text: OnceLock::new(),
        })
    }
    /// Returns the wire form (docs/protocol.md#events-of-the-server), made on first use. A clone copies no text.
    #[must_use]
    pub fn text(&self) -> &ByteString {
        self.text.get_or_init(|| {
            // Events hold only strings, numbers and lists, so serialization cannot fail.
            serde_json::to_string(&self.event).unwrap_or_default().into()
        })
    }
}

/// An event, or the part of an event, that its viewer may see. Listeners take nothing else.
#[derive(Debug, Clone)]
pub struct VisibleEvent(Arc<PublishedEvent>);

impl VisibleEvent {
    /// Returns what `viewer` may see of an event. `None`: nothing.
    #[must_use]
    pub fn of_published(event: &Arc<PublishedEvent>, viewer: &EventViewer) -> Option<Self> {
        match viewer.decide(&event.body) {
            EventVerdict::Whole => Some(Self(Arc::clone(event))),
            EventVerdict::Part(body) => Some(Self(PublishedEvent::new(DialogueEvent {
                dialogue_id: event.dialogue_id,
                seq: event.seq,
                re: event.re.clone(),
                body,
            }))),
            EventVerdict::Hidden => None,
        }
    }
    /// Returns what `viewer` may see of an event that no listener got.
    #[must_use]
    pub fn of_event(event: DialogueEvent, viewer: &EventViewer) -> Option<Self> {
        Self::of_published(&PublishedEvent::new(event), viewer)
    }
    /// Returns a piece of a reply joined with the pieces that follow.
    #[must_use]
    pub fn join_deltas(&self, next_deltas: &[Self]) -> Self {
        let mut event = self.0.event.clone();
        let texts = next_deltas.iter().filter_map(|next| next.body.as_delta());
        if let Some(delta_text) = event.body.delta_text_mut() {
            delta_text.extend(texts.map(|(.., text)| text));
        }
        Self(PublishedEvent::new(event))
    }
}

impl std::ops::Deref for VisibleEvent {
    type Target = PublishedEvent;
    fn deref(&self) -> &PublishedEvent {
        &self.0
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
    /// Threads of the actors; 0: one thread per core.
    pub arbiters: usize,
    /// Seconds after which an actor without listeners and without work stops; 600.
    pub idle_s: u64,
    /// Requests to sessions that may run at once on a node; 4,096.
    pub max_in_flight: usize,
    /// Dialogues that may be in memory at once on a node; 50,000.
    pub max_sessions: usize,
    /// Listeners of a dialogue; 16: a few screens of a player, and the tools of a studio.
    #[serde(skip)]
    pub max_listeners: usize,
    /// Events retained per dialogue for a resume; 256, half of the messages that may wait for a client by default.
    #[serde(skip)]
    pub replay_events: usize,
    /// Seconds for which events are retained; 120, as long as a node owns a dialogue by default.
    #[serde(skip)]
    pub replay_s: u64,
    /// Seconds for which a node owns a dialogue; renewed after half of the time; 120.
    pub ownership_s: u64,
    /// Seconds between two searches of every tenant for jobs that another process left behind; 60.
    pub sweep_s: u64,
    /// Milliseconds between two writes of usage and of the outbox's left-overs; 2,000.
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

/// The listener is closed or too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerGone;

/// A new session (`POST /v1/sessions`, `session.create`).
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    pub world: WorldId,
    /// The NPCs that take part; at least one.
    pub npcs: Vec<NpcId>,
    pub player: PlayerId,
    pub witnesses: Vec<NpcId>,
    /// Factions that overhear the session: those that heard the conversation which the player joined.
    pub factions: Vec<FactionId>,
    /// When a turn counts as heard.
    pub playback: Playback,
    /// Settings of the session, in place of those of its NPC, world and tenant.
    pub settings: Option<Box<TierSettings>>,
    /// The turn of another dialogue at which the player joined.
    pub cause: Option<Cause>,
    /// Set for the session of a chat program ([`colloquy_ports::ledger::dialogues::DialogueOptions::chat_key`]).
    pub chat_key: Option<String>,
}

/// A new conversation of NPCs (`POST /v1/npc-conversations`).
#[derive(Debug, Clone, PartialEq)]
pub struct NewConversation {
    pub world: WorldId,
    /// The NPCs that take part: 2 to 8, without repeats. The first NPC opens the conversation.
    pub npcs: Vec<NpcId>,
    /// NPCs that overhear the conversation and learn its facts.
    pub witnesses: Vec<NpcId>,
    /// Factions that learn the facts of the conversation.
    pub factions: Vec<FactionId>,
    pub topic: Option<String>,
    /// 1 to 100; unset: `conversation.max_turns`.
    pub max_turns: Option<u32>,
    /// True if the conversation paces itself; false if every line is requested.
    pub auto: bool,
    pub next_speaker: NextSpeaker,
    /// Players who may watch the conversation.
    pub watchers: Vec<PlayerId>,
    /// True if every player of the world may watch.
    pub open: bool,
    /// Players who may interrupt, join and resume the conversation.
    pub interrupters: Interrupters,
}

/// What happens to a player's line while a reply is running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnBusy {
    /// The line waits in the queue, up to `turn.max_queued` lines.
    #[default]
    Queue,
    /// The line cuts the running reply at its present text, and is then said.
    Interrupt,
    /// The line is refused with `turn_in_progress`.
    Reject,
}

/// A player's line.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayerLine {
    pub text: String,
    /// The NPC that shall answer, in a session with several NPCs. Unset: the NPC that the line names, or else the last
    /// speaker.
    pub to: Option<NpcId>,
    /// 1–128 characters; makes a retry safe.
    pub key: Option<String>,
    pub on_busy: OnBusy,
    /// `event_id` of the client's message, echoed as `re`.
    pub re: Option<Arc<str>>,
    /// The speaker, for the audit log if the line cuts a reply.
    pub who: Option<Principal>,
    /// What the request of a chat program adds to the line.
    pub chat: Option<Arc<ChatRequest>>,
}

impl PlayerLine {
    /// True if a chat program has shown the reply before, so that the turn is only stored.
    pub(super) fn has_given_reply(&self) -> bool {
        self.chat.as_ref().is_some_and(|chat| chat.given_reply.is_some())
    }

    /// True if the line was written for another last turn than `head_turn`.
    pub(super) fn is_for_another_head(&self, head_turn: u32) -> bool {
        let expected_head = self.chat.as_ref().and_then(|chat| chat.if_head);
        expected_head.is_some_and(|expected_head| expected_head != head_turn)
    }
}

/// How the session accepted a line.
#[derive(Debug)]
pub enum AcceptedLine {
    /// The line is, or will be, a turn. The receiver gets the outcome; a caller may drop the receiver. `RecvError`
    /// means that the line never became a turn, because the session was closed or the server drained first. A retry
    /// with the same key is then safe.
    Turn {
        done: tokio::sync::oneshot::Receiver<Result<Arc<Turn>, Arc<TurnError>>>,
    },
    /// The key belongs to the given turn, which is already committed.
    Repeated(Arc<Turn>),
}

/// A request to cut a reply or to rewind a dialogue.
#[derive(Debug, Clone)]
pub struct InterruptCommand {
    /// The turn to cut, or the last turn that shall stand. `None`: the running turn.
    pub turn: Option<u32>,
    /// How much of the turn's reply was heard; `None`: the whole reply.
    pub heard_length: Option<HeardLength>,
    /// 1–128 characters; makes a retry safe.
    pub key: Option<String>,
    /// The last turn that the caller knows.
    pub if_head: Option<u32>,
    pub who: Principal,
}

impl InterruptCommand {
    pub(super) fn into_requester(self, action: &'static str) -> Requester {
        Requester {
            who: self.who,
            key: self.key,
            action,
        }
    }
}

/// A request to rewind the last turn and say its line again.
#[derive(Debug, Clone)]
pub struct RegenerateCommand {
    /// 1–128 characters; makes a retry safe.
    pub key: Option<String>,
    /// The last turn that the caller knows.
    pub if_head: Option<u32>,
    /// `event_id` of the client's message, echoed as `re`.
    pub re: Option<Arc<str>>,
    pub who: Principal,
    /// True if the new reply begins with the words of the last reply, and goes on from there.
    pub goes_on: bool,
    /// What the request of a chat program adds to the line.
    pub chat: Option<Arc<ChatRequest>>,
}

/// A request to resume a reply that was cut a moment ago.
#[derive(Debug, Clone)]
pub struct ResumeCommand {
    /// 1–128 characters; makes a retry safe.
    pub key: Option<String>,
    /// `event_id` of the client's message, echoed as `re` in the events of a continued reply.
    pub re: Option<Arc<str>>,
    pub who: Principal,
    /// True if the request was counted as a line, so that a model may continue a reply that was cut mid-stream.
    pub may_continue: bool,
}

/// Why a session refused a request. Each variant has one code on the wire (`http::errors`).
#[derive(Debug, Clone, thiserror::Error)]
pub enum DialogueError {
    #[error("there is no such session")]
    NotFound,
    #[error("there is no world {0}")]
    NoWorld(WorldId),
    #[error("there is no NPC {0} in this world")]
    NoNpc(NpcId),
    #[error("the NPC {0} is dead, and does not answer in this world")]
    NpcDead(NpcId),
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
    fn from(refusal: NoCapacity) -> Self {
        match refusal {
            NoCapacity::TenantShare(_) => Self::OverShare(refusal),
            NoCapacity::Full(_) => Self::Overloaded {
                retry_after: Duration::from_secs(1),
            },
        }
    }
}
