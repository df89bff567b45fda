//! A line that is not a turn yet, with its callers and its key.

use std::{sync::Arc, time::Instant};

use tokio::sync::oneshot;
use tracing::Span;

use crate::{
    AcceptedLine, DialogueError, OnBusy, PlayerLine, dialogue::turn_input::ListeningNpcs, messages::ReplyHandle,
    running_turn::TurnOutcome,
};
use colloquy_core::ids::{NpcId, TurnId};
use colloquy_dialogue::{
    requester::Requester,
    turn::{PartialReply, TurnError},
};
use colloquy_memory::turn::{Intent, Turn};
use colloquy_ports::ledger::metrics::GaugeGuard;

/// The head that a line shall follow; `None`: the line shall be the first turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplacedHead(pub Option<TurnId>);

/// The living NPCs of a session, one of whom answers a line.
pub(super) enum LivingNpcs {
    Unread,
    Reading,
    /// Read in this epoch of the dialogue: a rewind may bring somebody back to life.
    Read(u64, ListeningNpcs),
}

/// A line that is not a turn yet.
pub(super) struct WaitingLine {
    pub(super) id: u64,
    pub(super) line: PlayerLine,
    /// The cut reply that the line continues.
    pub(super) continuation: Option<Arc<PartialReply>>,
    /// The intent of the line, if the replaced turn had the same line and its intent is known.
    pub(super) intent: Option<Intent>,
    /// For a replacement line: the only head that the line may follow.
    pub(super) replaces_after: Option<ReplacedHead>,
    pub(super) accepted_at: Instant,
    /// When only memory, rows, the state of the world or a look-up of the key delayed the turn.
    pub(super) ready_at: Option<Instant>,
    /// True if the key is known not to belong to an earlier turn.
    pub(super) checked: bool,
    pub(super) living: LivingNpcs,
    /// Callers without an answer so far.
    pub(super) unanswered: Vec<ReplyHandle<AcceptedLine>>,
    pub(super) waiters: Vec<oneshot::Sender<TurnOutcome>>,
    /// The parent span of the turn: the first caller's request.
    pub(super) span: Span,
    /// True if the line was said while the outcome of a rewind was unknown: the rewind does not take the line back.
    pub(super) said_in_doubt: bool,
    _counted: GaugeGuard,
}

impl WaitingLine {
    /// True if a caller was told that the line is, or will be, a turn.
    pub(super) fn is_accepted(&self) -> bool {
        self.checked
    }

    pub(super) fn re(&self) -> Option<Arc<str>> {
        self.line.re.clone()
    }

    /// Makes the line a replacement of the turn that followed `head`.
    pub(super) fn replacing_after(self, head: Option<TurnId>) -> Self {
        Self {
            replaces_after: Some(ReplacedHead(head)),
            ..self
        }
    }

    /// Cancels a replacement line whose turn is no longer next.
    pub(super) fn cancel_unsaid(self) {
        self.cancel_with(&DialogueError::TurnUnsaid, &Arc::new(TurnError::Unsaid));
    }

    /// Cancels the line: `refused` for unanswered callers, `turn_error` for waiters.
    pub(super) fn cancel_with(self, refused: &DialogueError, turn_error: &Arc<TurnError>) {
        for reply in self.unanswered {
            reply.answer(Err(refused.clone()));
        }
        for waiter in self.waiters {
            // The waiter may have gone away.
            let _ = waiter.send(Err(Arc::clone(turn_error)));
        }
    }

    /// Makes the line the continuation of a cut reply.
    pub(super) fn continuing(self, unfinished: PartialReply) -> Self {
        Self {
            intent: unfinished.intent,
            continuation: Some(Arc::new(unfinished)),
            ..self
        }
    }

    pub(super) fn new(id: u64, line: PlayerLine, accepted_at: Instant, checked: bool, counted: GaugeGuard) -> Self {
        Self {
            id,
            line,
            continuation: None,
            intent: None,
            replaces_after: None,
            accepted_at,
            ready_at: None,
            checked,
            living: LivingNpcs::Unread,
            unanswered: Vec::new(),
            waiters: Vec::new(),
            span: Span::none(),
            said_in_doubt: false,
            _counted: counted,
        }
    }

    /// True if the line cuts the running reply now.
    pub(super) fn is_cutting(&self) -> bool {
        self.checked && self.line.on_busy == OnBusy::Interrupt
    }

    /// Returns the cut request of the line's speaker.
    pub(super) fn cut_request(&self) -> Option<Requester> {
        self.line.who.clone().map(|who| Requester {
            who,
            key: None,
            action: "session.interrupt",
        })
    }

    /// Adds a caller with the same key. Another text or addressee is refused as [`DialogueError::KeyReused`].
    pub(super) fn join_repeat(&mut self, line: &PlayerLine, reply: ReplyHandle<AcceptedLine>) {
        let addressed = self.line.to.as_ref().is_none_or(|npc| is_addressed_to(line, npc));
        if self.line.text == line.text && addressed {
            self.add_asker(reply);
        } else {
            reply.answer(Err(DialogueError::KeyReused));
        }
    }

    pub(super) fn add_asker(&mut self, reply: ReplyHandle<AcceptedLine>) {
        if self.span.is_none() {
            self.span = reply.span().clone();
        }
        if self.checked {
            accept_line(&mut self.waiters, reply);
        } else {
            self.unanswered.push(reply);
        }
    }
}

/// Returns a committed turn for a repeat of its own line; other lines are refused.
pub(super) fn repeated_turn(turn: &Arc<Turn>, line: &PlayerLine) -> Result<AcceptedLine, DialogueError> {
    if turn.player_text == line.text && is_addressed_to(line, &turn.npc) {
        Ok(AcceptedLine::Repeated(Arc::clone(turn)))
    } else {
        Err(DialogueError::KeyReused)
    }
}

/// True if the line is addressed to `npc` or to no NPC.
pub(super) fn is_addressed_to(line: &PlayerLine, npc: &NpcId) -> bool {
    line.to.as_ref().is_none_or(|to| to == npc)
}

pub(super) fn accept_line(waiters: &mut Vec<oneshot::Sender<TurnOutcome>>, reply: ReplyHandle<AcceptedLine>) {
    let (sender, receiver) = oneshot::channel();
    waiters.push(sender);
    reply.answer(Ok(AcceptedLine::Turn { done: receiver }));
}
