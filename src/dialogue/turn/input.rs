//! The values around a turn: its input, its cut, its events, and its outcome.

use std::{borrow::Cow, sync::Arc};

use chrono::{DateTime, Utc};

use super::{
    chat_request::{CalledTools, ChatRequest, GivenReply, OwnPrompt},
    continuation::PartialReply,
};
use crate::{
    events::ReplyDone, knowledge::scenarios::UnlockTrigger, prompt::TemplateError, requester::Requester, scene::Scene,
};
use colloquy_core::{
    ids::{NodeId, NpcId, PlayerId, TurnId},
    scope::TenantScope,
};
use colloquy_memory::{
    authored::{Npc, World},
    condition::ConditionContext,
    directive::{DialogueKey, Directive, SelectedDirectives},
    disclosure::audience::Viewpoint,
    state::{StateChange, WorldState},
    summary::Summary,
    trace::MemoryWaitTrace,
    turn::{Checkpoint, Intent, Turn},
};
use colloquy_ports::{
    StoreError,
    buffer::BufferedTurn,
    ledger::{dialogues::Dialogue, jobs::Job, usage::OverBudget},
    llm::LlmError,
};

/// The input of one turn. The session owns the values; the turn borrows nothing from the actor.
#[derive(Debug, Clone)]
pub struct TurnInput {
    pub scope: TenantScope,
    pub node: NodeId,
    pub world: Arc<World>,
    pub npc: Arc<Npc>,
    /// All directives of the world.
    pub directives: Arc<[Directive]>,
    pub dialogue: Arc<Dialogue>,
    /// The player who speaks with the NPC. `None` in an NPC conversation.
    pub player: Option<PlayerId>,
    /// The player who resumed an NPC conversation, in the first line after the resume and in lines that are said again.
    /// The line's calls count for the player's share.
    pub charged_player: Option<PlayerId>,
    /// The cast and the topic. `None` if the dialogue is one NPC with one player.
    pub scene: Option<Arc<Scene>>,
    /// The dialogue's epoch. If the epoch has changed since, the ledger refuses the commit.
    pub epoch: u64,
    pub id: TurnId,
    /// The turn's number in the dialogue, from 1.
    pub number: u32,
    /// The head before this turn, which the new turn follows.
    pub previous: Option<TurnId>,
    /// The turn to replace, after a regenerate or a resume.
    pub replacing: Option<TurnId>,
    /// The player's words. Empty in an NPC conversation, and when the NPC speaks first.
    pub line: String,
    /// The client's idempotency key for the line, unique in a dialogue.
    pub key: Option<String>,
    /// What the request of a chat program adds to the line.
    pub chat: Option<Arc<ChatRequest>>,
    /// The cut reply that this turn continues, with its line. `None`: the NPC begins a new reply.
    pub continuation: Option<Arc<PartialReply>>,
    /// The intent of the line, if the replaced turn had the same line and the classifier named its intent.
    pub known_intent: Option<Intent>,
    /// The buffer: raw turns from `checkpoint.buffer_from` to `number - 1`.
    pub history: Arc<Vec<BufferedTurn>>,
    pub summaries: Arc<Vec<Summary>>,
    pub checkpoint: Checkpoint,
    /// The time when the server accepted `player.say`.
    pub accepted_at: std::time::Instant,
    pub started_at: DateTime<Utc>,
    /// Milliseconds in the queue, and milliseconds of waiting for the previous turn's extraction.
    pub queue_ms: f64,
    pub memory_wait_ms: f64,
    /// The wait for the previous turn's extraction, if there was something to wait for.
    pub memory_wait: Option<MemoryWaitTrace>,
    /// The `seq` of the `turn.started` event, which is already sent.
    pub started_seq: u64,
}

impl TurnInput {
    /// Checks in debug builds that the turn follows its history.
    pub(super) fn assert_consistent(&self) {
        debug_assert!(self.number > 0, "turns are numbered from 1");
        debug_assert!(
            self.history
                .is_sorted_by(|earlier, later| earlier.number + 1 == later.number),
            "the turns of the history follow each other"
        );
        debug_assert!(
            self.history.last().is_none_or(|last| last.number < self.number),
            "the history ends before the turn"
        );
        debug_assert!(
            self.previous.is_none() == (self.number == 1),
            "only the first turn follows no other"
        );
    }
    /// Returns the text that the NPC answers: the player's line, or in an NPC conversation the topic and the last
    /// lines.
    #[must_use]
    pub fn heard_text(&self) -> Cow<'_, str> {
        match &self.scene {
            Some(scene) if self.player.is_none() => Cow::Owned(scene.heard_by(&self.npc.id, &self.history)),
            _ => Cow::Borrowed(&self.line),
        }
    }
    /// True if the player has approached without a word, and the NPC speaks first.
    #[must_use]
    pub fn is_greeting(&self) -> bool {
        self.player.is_some() && self.line.is_empty()
    }
    /// True if nothing is learned from the turn: the NPC greets, has heard nothing new, and already knew its own words. A
    /// character of a chat program makes its opening up, and in the middle of a talk silence may be an answer.
    #[must_use]
    pub fn teaches_nothing(&self) -> bool {
        self.is_greeting() && self.number == 1 && self.own_prompt().is_none()
    }
    /// Returns the reply that the chat program has shown before, if the turn only stores it.
    #[must_use]
    pub fn given_reply(&self) -> Option<&GivenReply> {
        self.chat.as_ref()?.given_reply.as_ref()
    }
    /// Returns the messages of the chat program that describes the character.
    #[must_use]
    pub fn own_prompt(&self) -> Option<&OwnPrompt> {
        self.chat.as_ref()?.own_prompt.as_deref()
    }
    /// Returns the persona's authored greeting for a stranger, if the persona has a greeting.
    #[must_use]
    pub fn greeting_words(&self) -> Option<&str> {
        let words = self.npc.persona.greeting.trim();
        (self.is_greeting() && self.continuation.is_none() && !words.is_empty()).then_some(words)
    }
    /// Returns what conditions of authored content depend on in this turn.
    #[must_use]
    pub fn condition_context<'a>(&'a self, state: &'a WorldState) -> ConditionContext<'a> {
        let settings = &self.world.settings;
        ConditionContext::new(state, settings, &self.npc, self.player.as_ref(), self.started_at)
    }
    /// Returns the key of the NPC in the dialogue.
    #[must_use]
    pub fn dialogue_key(&self) -> DialogueKey {
        DialogueKey {
            world: self.world.id.clone(),
            npc: self.npc.id.clone(),
            dialogue: self.dialogue.id,
        }
    }
    /// Returns the directives for the turn's prompt.
    #[must_use]
    pub fn selected_directives(&self) -> SelectedDirectives {
        SelectedDirectives::select_for(&self.directives, &self.dialogue_key())
    }
    /// Returns the viewpoint of this turn's searches: the NPC, and the player if the dialogue has a player.
    #[must_use]
    pub fn viewpoint(&self) -> Viewpoint {
        self.dialogue.viewpoint_for(&self.npc, self.player.clone())
    }
}

/// A request to cut the running reply. The turn watches for a cut while it streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cut {
    /// The part that the player heard, in Unicode scalar values. `None`: all the text sent up to now.
    pub heard_chars: Option<usize>,
    /// The requesters before the commit. The requester that heard least decides where the reply ends.
    pub requesters: Vec<Requester>,
}

/// The maximum number of cut requests recorded for one turn.
const MAX_RECORDED_CUTS: usize = 32;

impl Cut {
    /// Adds another cut request, or a repeat of an earlier request.
    pub fn add_requester(&mut self, heard_chars: Option<usize>, requester: Option<Requester>) {
        self.heard_chars = match (self.heard_chars, heard_chars) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        // A repeated request (same key) counts once.
        let news = requester.filter(|requester| {
            requester.key.is_none() || self.requesters.iter().all(|known| known.key != requester.key)
        });
        if self.requesters.len() < MAX_RECORDED_CUTS {
            self.requesters.extend(news);
        }
        debug_assert!(
            self.requesters.len() <= MAX_RECORDED_CUTS,
            "a turn records a bounded number of cuts"
        );
    }
}

/// The receiver of a running turn's events. The session's event log implements the trait.
pub trait TurnFeed: Send + Sync {
    /// Sends a piece of the reply. `offset` counts Unicode scalar values.
    fn send_delta(&self, turn: u32, offset: usize, npc: &NpcId, text: &str);
    /// Sends the reply's end. Returns the event's `seq`.
    fn send_done(&self, done: ReplyDone) -> u64;
    /// Reserves the `seq` of `turn.committed`, and holds later durable events back. The session releases these events
    /// when it publishes or drops `turn.committed`.
    fn reserve_committed(&self) -> u64;
}

/// A committed turn, with the data that the session continues from.
#[derive(Debug, Clone)]
pub struct CommittedTurn {
    pub turn: Turn,
    pub checkpoint: Checkpoint,
    /// The state changes committed with the turn.
    pub state: Vec<StateChange>,
    /// The unlocks to look for because of the state changes. The session looks after `turn.committed`.
    pub unlocking: Option<UnlockTrigger>,
    /// The jobs of the turn, leased to this node.
    pub jobs: Vec<Job>,
    /// True if the reply was cut on request. The turn's jobs then wait for the next line, or until the reply can no longer
    /// be resumed.
    pub was_cut: bool,
    /// The keys of the cuts committed with the turn.
    pub cut_keys: Vec<String>,
}

/// The reason why a turn was not committed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TurnError {
    /// The tenant has used up its budget for speech or storage for now.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// Every model of the reply route failed.
    #[error("the model failed: {0}")]
    Model(#[from] LlmError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another node owns the dialogue now.
    #[error("this dialogue moved to another node")]
    Fenced,
    /// The dialogue was closed during the turn.
    #[error("the dialogue is closed")]
    Closed,
    /// The key belongs to another turn.
    #[error("the key belongs to another turn")]
    KeyTaken,
    /// The model called tools of the client. The turn comes with the request that has the results.
    #[error("the model called tools of the client")]
    CalledTools(Arc<CalledTools>),
    /// The reply was cut before its first character, and leaves no text to commit.
    #[error("the turn was cut before the reply began")]
    CutBeforeReply,
    #[error("the turn took longer than it may")]
    TimedOut,
    /// The dialogue was rewound to an earlier turn during this turn.
    #[error("the dialogue was taken back to an earlier turn")]
    Unsaid,
    /// The line was for another head ([`super::ChatRequest::if_head`]).
    #[error("the dialogue has gone on, or back, since the request was read")]
    StaleHead,
    /// The NPC is dead, and the world has no ghosts.
    #[error("the NPC is dead")]
    NpcDead,
    /// The prompt's fixed sections alone exceed the budget.
    #[error("the persona and rules alone exceed the prompt budget by {over} tokens")]
    PromptTooLarge { over: u32 },
    /// A prompt template cannot be rendered. The defect is in the template, not in the request.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

impl TurnError {
    /// Returns the used-up budget, if a budget caused the error.
    #[must_use]
    pub fn over_budget(&self) -> Option<OverBudget> {
        match self {
            Self::OverBudget(over) | Self::Model(LlmError::OverBudget(over)) => Some(*over),
            _ => None,
        }
    }
    /// True if only the ledger knows the result of the turn, or the present state of the dialogue.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        matches!(
            self,
            Self::Store(_) | Self::Fenced | Self::Closed | Self::KeyTaken | Self::TimedOut
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use colloquy_core::scope::{Principal, Role};

    #[test]
    fn interrupter_that_heard_least_decides_the_cut_and_each_is_named_once() {
        let by = |key: &str| Requester {
            who: Principal {
                subject: "s".into(),
                tenant: "t".parse().unwrap(),
                role: Role::Backend,
                player: None,
                world: None,
                issued: colloquy_core::scope::TokenIdentity::default(),
                expires_at: chrono::DateTime::<chrono::Utc>::MAX_UTC,
            },
            key: Some(key.to_owned()),
            action: "session.interrupt",
        };
        let mut cut = Cut::default();
        for (heard, key, decided) in [
            (None, "a", None),
            (Some(20), "b", Some(20)),
            (Some(5), "c", Some(5)),
            (Some(30), "b", Some(5)),
            (None, "d", Some(5)),
        ] {
            cut.add_requester(heard, Some(by(key)));
            assert_eq!(cut.heard_chars, decided, "{key}");
        }
        let keys: Vec<_> = cut.requesters.iter().filter_map(|by| by.key.as_deref()).collect();
        assert_eq!(keys, ["a", "b", "c", "d"]);
        for n in 0..2 * MAX_RECORDED_CUTS {
            cut.add_requester(None, Some(by(&n.to_string())));
        }
        assert_eq!(cut.requesters.len(), MAX_RECORDED_CUTS);
    }
}
