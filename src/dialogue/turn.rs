//! One turn (docs/design.md#one-turn): a player's line and an NPC's reply, or one NPC's line to others. The file to
//! read first.
//!
//! [`run_turn`] says what a turn is; its steps are in `turn/`: what is gathered side by side, how the
//! reply is spoken, and what is committed.

mod commit;
mod continuation;
mod failure;
pub(super) mod gather;
mod speak;
mod stopwatch;

use std::{borrow::Cow, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use tokio::sync::watch;
use tracing::{Instrument as _, debug_span};

pub(super) use self::{
    commit::{StateBlockContext, parse_state_block, state_rules_of, summary_rules},
    speak::grapheme_prefix,
};
use self::{
    commit::{UncommittedTurn, commit_reply},
    gather::{GatheredContext, IntentSource},
    speak::{Reply, ReplyRequest, speak_reply, unless_cut},
    stopwatch::Stopwatch,
};
pub use self::{
    continuation::{PartialReply, ReplyBeginning},
    failure::event_error,
};
use super::{Services, events::ReplyDone, models::run_admitted, npc_conversation::Scene, scenarios::UnlockTrigger};
use crate::{
    ids::{NodeId, NpcId, PlayerId, TurnId},
    memory::{
        authored::{Npc, World},
        fact::Viewpoint,
        state::StateChange,
        summary::Summary,
        trace::Timings,
        turn::{Checkpoint, Turn, TurnStatus},
    },
    ports::{
        StoreError,
        buffer::BufferedTurn,
        ledger::{
            dialogues::Dialogue,
            jobs::Job,
            priority::{with_interactive_priority, with_urgent_priority},
            usage::OverBudget,
        },
        llm::LlmError,
    },
    tenancy::{Principal, TenantScope},
};

/// Everything a turn starts from. Owned by the session; the turn borrows nothing of the actor.
#[derive(Debug, Clone)]
pub struct TurnInput {
    pub scope: TenantScope,
    pub node: NodeId,
    pub world: Arc<World>,
    pub npc: Arc<Npc>,
    pub dialogue: Arc<Dialogue>,
    /// Who speaks with the NPC; `None` in an NPC conversation.
    pub player: Option<PlayerId>,
    /// Who else takes part. `None`: it is one NPC with a player.
    pub scene: Option<Arc<Scene>>,
    pub epoch: u64,
    pub id: TurnId,
    pub number: u32,
    /// The head this turn follows.
    pub previous: Option<TurnId>,
    /// The turn in whose place this one comes, which went to be said anew or on.
    pub replacing: Option<TurnId>,
    /// What the player said; empty in an NPC conversation, and where the NPC is to speak first.
    pub line: String,
    pub key: Option<String>,
    /// The reply that is taken up again, with its own line; `None`: the NPC says a new one.
    pub continuation: Option<Arc<PartialReply>>,
    /// The buffer: raw turns from `checkpoint.buffer_from` to `number - 1`.
    pub history: Arc<Vec<BufferedTurn>>,
    pub summaries: Arc<Vec<Summary>>,
    pub checkpoint: Checkpoint,
    /// When `player.say` was accepted.
    pub accepted_at: std::time::Instant,
    pub started_at: DateTime<Utc>,
    /// Ms spent queued, and waiting for the previous turn's extraction.
    pub queue_ms: f64,
    pub memory_wait_ms: f64,
    /// `seq` of the `turn.started` event already sent.
    pub started_seq: u64,
}

impl TurnInput {
    /// What the NPC answers: the player's line, or what was said last and what it is all about.
    #[must_use]
    pub fn heard_text(&self) -> Cow<'_, str> {
        match &self.scene {
            Some(scene) if self.player.is_none() => Cow::Owned(scene.heard_by(&self.npc.id, &self.history)),
            _ => Cow::Borrowed(&self.line),
        }
    }
    /// Whether the player has come up and said nothing: the NPC speaks first.
    #[must_use]
    pub fn is_greeting(&self) -> bool {
        self.player.is_some() && self.line.is_empty()
    }
    /// The words that the persona greets a stranger with, where it has any.
    #[must_use]
    pub fn greeting_words(&self) -> Option<&str> {
        let words = self.npc.persona.greeting.trim();
        (self.is_greeting() && self.continuation.is_none() && !words.is_empty()).then_some(words)
    }
    /// Whose eyes this turn's searches look through.
    #[must_use]
    pub fn viewpoint(&self) -> Viewpoint {
        self.dialogue.viewpoint_for(&self.npc, self.player.clone())
    }
}

/// A request to cut the running reply. Watched by the turn while it streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cut {
    /// How much the player heard, in Unicode scalar values; `None`: everything sent so far.
    pub heard_chars: Option<usize>,
    /// Who asked for it before it was committed. Whoever had heard least decided where it is.
    pub by: Vec<CutRequester>,
}

/// Of those who cut one turn, so many are written down.
const MAX_RECORDED_CUTS: usize = 32;

impl Cut {
    /// Somebody else asks for it, or the same one again.
    pub fn add_requester(&mut self, heard_chars: Option<usize>, by: Option<CutRequester>) {
        self.heard_chars = match (self.heard_chars, heard_chars) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        // A repeated request is one request.
        let news = by.filter(|by| by.key.is_none() || self.by.iter().all(|known| known.key != by.key));
        if self.by.len() < MAX_RECORDED_CUTS {
            self.by.extend(news);
        }
    }
}

/// Who cut a reply, for the audit log and for whoever asks again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutRequester {
    pub who: Principal,
    /// Makes a retry safe; unique in a dialogue.
    pub key: Option<String>,
    /// Dotted verb: `session.interrupt`, …
    pub action: &'static str,
}

/// Where a running turn sends what happens. Implemented by the session's event log.
pub trait TurnFeed: Send + Sync {
    /// A piece of the reply. `offset` counts Unicode scalar values.
    fn send_delta(&self, turn: u32, offset: usize, npc: &NpcId, text: &str);
    /// The reply's end; returns the event's `seq`.
    fn send_done(&self, done: ReplyDone) -> u64;
    /// Reserves the `seq` of `turn.committed` and holds later durable events back until the
    /// session publishes it (or drops it).
    fn reserve_committed(&self) -> u64;
}

/// A committed turn, and what the session goes on from.
#[derive(Debug, Clone)]
pub struct CommittedTurn {
    pub turn: Turn,
    pub checkpoint: Checkpoint,
    /// State changes that were applied with it.
    pub state: Vec<StateChange>,
    /// What may have been unlocked by them: it is read once the turn was told of.
    pub unlocking: Option<UnlockTrigger>,
    /// Jobs it left, leased to this node.
    pub jobs: Vec<Job>,
    /// Keys of the cuts that were committed with it.
    pub cut_keys: Vec<String>,
}

/// Why a turn was not committed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TurnError {
    /// The tenant may say, or store, no more for now.
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
    /// Closed meanwhile.
    #[error("the dialogue is closed")]
    Closed,
    /// The key belongs to another turn.
    #[error("the key belongs to another turn")]
    KeyTaken,
    /// Cut before the first character: there is nothing to commit.
    #[error("the turn was cut before the reply began")]
    CutBeforeReply,
    #[error("the turn took longer than it may")]
    TimedOut,
    /// The dialogue was taken back to an earlier turn meanwhile.
    #[error("the dialogue was taken back to an earlier turn")]
    Unsaid,
    /// The prompt's fixed sections alone exceed the budget.
    #[error("the persona and rules alone exceed the prompt budget by {over} tokens")]
    PromptTooLarge { over: u32 },
    /// A prompt template cannot be rendered. A defect of the template, not of the request.
    #[error(transparent)]
    Template(#[from] super::prompt::TemplateError),
}

impl TurnError {
    /// The budget that was used up, if that is why.
    #[must_use]
    pub fn over_budget(&self) -> Option<OverBudget> {
        match self {
            Self::OverBudget(over) | Self::Model(LlmError::OverBudget(over)) => Some(*over),
            _ => None,
        }
    }
    /// Whether only the ledger knows what became of the turn, or what the dialogue is now.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        matches!(
            self,
            Self::Store(_) | Self::Fenced | Self::Closed | Self::KeyTaken | Self::TimedOut
        )
    }
}

/// Runs a turn to its commit. `cut` turns to `Some` when the player interrupts.
///
/// Always calls `feed.done` exactly once before it returns, whatever happens (docs/design.md#one-turn,
/// docs/protocol.md#events-of-the-server).
/// A turn that fails leaves nothing behind; one whose commit fails has told its reply already, and
/// the error says that it does not stand.
pub async fn run_turn(
    services: &Services,
    input: TurnInput,
    feed: &dyn TurnFeed,
    mut cut: watch::Receiver<Option<Cut>>,
) -> Result<CommittedTurn, TurnError> {
    let stopwatch = Stopwatch::start_at(input.accepted_at, services.clock.as_ref());
    let limit = Duration::from_millis(services.settings.turn.timeout_ms);
    let budgets = services.models.budgets();
    let speaking = async {
        // Each step in a box of its own: the future of a turn would be as large as all it ever holds.
        let gathering = Box::pin(gather::gather_timed(
            services,
            &input,
            IntentSource::for_turn(&input),
            &stopwatch,
        ));
        let gathering = gathering.instrument(debug_span!("turn.gather"));
        let gathered = unless_cut(&mut cut, gathering).await??;
        let assembling = async { gathered.assemble_prompt(services, &input) }.instrument(debug_span!("turn.assemble"));
        let (prompt, assemble_ms) = stopwatch.time_work(assembling).await;
        let prompt = prompt?;
        let question = ReplyRequest::from_prompt(&prompt, gathered.counter, gathered.greeting_words(&input));
        let speaking = Box::pin(speak_reply(services, &input, question, feed, &mut cut, &stopwatch));
        let reply = speaking.instrument(debug_span!("turn.reply")).await?;
        Ok((gathered, prompt, assemble_ms, reply))
    };
    let spoken = tokio::time::timeout(limit, async {
        let place = budgets.reserve_turn(&services.ledger, &input.scope).await?;
        run_admitted(speaking).await.map(|spoken| (place, spoken))
    });
    match spoken.await.unwrap_or(Err(TurnError::TimedOut)) {
        Ok((place, (gathered, prompt, assemble_ms, reply))) => {
            let done_seq = feed.send_done(reply.to_reply_done(&input));
            let timings = build_timings(&input, &stopwatch, &gathered, assemble_ms, &reply);
            let is_cut = reply.status == TurnStatus::Interrupted;
            let cuts = match &*cut.borrow() {
                Some(cut) if is_cut => cut.by.clone(),
                _ => Vec::new(),
            };
            let spoken = UncommittedTurn {
                cuts,
                gathered,
                prompt,
                reply,
                done_seq,
                timings,
            };
            let committing = Box::pin(commit_reply(services, &input, feed, spoken));
            let committing = committing.instrument(debug_span!("turn.commit"));
            // Somebody may cut in while it is committed, and then waits for that.
            let committed = if is_cut {
                with_urgent_priority(committing).await
            } else {
                with_interactive_priority(committing).await
            }?;
            place.mark_stored();
            Ok(committed)
        }
        Err(error) => {
            feed.send_done(failure::failed_reply_done(&input, &error));
            Err(error)
        }
    }
}

fn build_timings(
    input: &TurnInput,
    stopwatch: &Stopwatch<'_>,
    gathered: &GatheredContext,
    assemble_ms: f64,
    reply: &Reply,
) -> Timings {
    Timings {
        queue: input.queue_ms,
        memory_wait: input.memory_wait_ms,
        assemble: assemble_ms,
        first_token: reply.first_token_ms,
        reply: reply.whole_ms,
        added: (stopwatch.own_ms() - input.memory_wait_ms).max(0.0),
        ..gathered.timings.clone()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::tenancy::Role;

    #[test]
    fn interrupter_that_heard_least_decides_the_cut_and_each_is_named_once() {
        let by = |key: &str| CutRequester {
            who: Principal {
                subject: "s".into(),
                tenant: "t".parse().unwrap(),
                role: Role::Backend,
                player: None,
                world: None,
                issued: crate::tenancy::TokenIdentity::default(),
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
        let keys: Vec<_> = cut.by.iter().filter_map(|by| by.key.as_deref()).collect();
        assert_eq!(keys, ["a", "b", "c", "d"]);
        for n in 0..2 * MAX_RECORDED_CUTS {
            cut.add_requester(None, Some(by(&n.to_string())));
        }
        assert_eq!(cut.by.len(), MAX_RECORDED_CUTS);
    }
}
