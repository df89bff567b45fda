//! A line that is not a turn yet: who asked for it, and whose key it has.

use std::{sync::Arc, time::Instant};

use tokio::sync::oneshot;
use tracing::Span;

use crate::{
    actors::{AcceptedLine, DialogueError, OnBusy, PlayerLine, messages::ReplyHandle, running_turn::TurnOutcome},
    dialogue::turn::{CutRequester, PartialReply, TurnError},
    ids::{NpcId, TurnId},
    memory::turn::Turn,
    ports::ledger::metrics::GaugeGuard,
};

/// The head that a line is to follow; `None`: it is to be the first turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplacedHead(pub Option<TurnId>);

/// A line that is not a turn yet.
pub(super) struct WaitingLine {
    pub(super) id: u64,
    pub(super) line: PlayerLine,
    /// The reply it goes on with.
    pub(super) continuation: Option<Arc<PartialReply>>,
    /// Of a line that takes the place of a turn: the head that it is to follow, and no other.
    pub(super) replaces_after: Option<ReplacedHead>,
    pub(super) accepted_at: Instant,
    /// When only memory, rows or its key's look-up kept it from being a turn.
    pub(super) ready_at: Option<Instant>,
    /// Its key is known not to belong to an earlier turn.
    pub(super) checked: bool,
    /// Who has not been answered yet, until then.
    pub(super) unanswered: Vec<ReplyHandle<AcceptedLine>>,
    pub(super) waiters: Vec<oneshot::Sender<TurnOutcome>>,
    /// What its turn is a part of: the request of whoever asked first.
    pub(super) span: Span,
    _counted: GaugeGuard,
}

impl WaitingLine {
    /// Somebody was told that this line is, or will be, a turn.
    pub(super) fn is_accepted(&self) -> bool {
        self.checked
    }

    pub(super) fn re(&self) -> Option<Arc<str>> {
        self.line.re.clone()
    }

    /// A line that is said anew.
    pub(super) fn for_regeneration(
        id: u64,
        line: PlayerLine,
        now: Instant,
        ask: ReplyHandle<AcceptedLine>,
        counted: GaugeGuard,
    ) -> Self {
        let mut waiting = Self::new(id, line, now, true, counted);
        waiting.add_asker(ask);
        waiting
    }

    /// That it takes the place of the turn that followed `head`.
    pub(super) fn replacing_after(self, head: Option<TurnId>) -> Self {
        Self {
            replaces_after: Some(ReplacedHead(head)),
            ..self
        }
    }

    /// What it was to take the place of is not what comes next any more.
    pub(super) fn cancel_unsaid(self) {
        self.cancel_with(&DialogueError::TurnUnsaid, &Arc::new(TurnError::Unsaid));
    }

    /// It is not said.
    pub(super) fn cancel_with(self, refused: &DialogueError, ended: &Arc<TurnError>) {
        for ask in self.unanswered {
            ask.answer(Err(refused.clone()));
        }
        for waiter in self.waiters {
            // Whoever waited may have gone.
            let _ = waiter.send(Err(Arc::clone(ended)));
        }
    }

    /// A reply that was cut and is gone on with.
    pub(super) fn for_continuation(
        id: u64,
        unfinished: PartialReply,
        re: Option<Arc<str>>,
        now: Instant,
        counted: GaugeGuard,
    ) -> Self {
        let line = PlayerLine {
            text: unfinished.of.player_text.clone(),
            to: Some(unfinished.of.npc.clone()),
            // A retry of the line joins it.
            key: unfinished.key.clone(),
            on_busy: OnBusy::Queue,
            re,
            who: None,
        };
        Self {
            continuation: Some(Arc::new(unfinished)),
            ..Self::new(id, line, now, true, counted)
        }
    }

    pub(super) fn new(id: u64, line: PlayerLine, accepted_at: Instant, checked: bool, counted: GaugeGuard) -> Self {
        Self {
            id,
            line,
            continuation: None,
            replaces_after: None,
            accepted_at,
            ready_at: None,
            checked,
            unanswered: Vec::new(),
            waiters: Vec::new(),
            span: Span::none(),
            _counted: counted,
        }
    }

    /// Whether it cuts the running reply now.
    pub(super) fn is_cutting(&self) -> bool {
        self.checked && self.line.on_busy == OnBusy::Interrupt
    }

    /// For whom it does.
    pub(super) fn cut_request(&self) -> Option<CutRequester> {
        self.line.who.clone().map(|who| CutRequester {
            who,
            key: None,
            action: "session.interrupt",
        })
    }

    /// One more asks for this line, with the same key.
    pub(super) fn join_repeat(&mut self, line: &PlayerLine, ask: ReplyHandle<AcceptedLine>) {
        let addressed = self.line.to.as_ref().is_none_or(|npc| is_addressed_to(line, npc));
        if self.line.text == line.text && addressed {
            self.add_asker(ask);
        } else {
            ask.answer(Err(DialogueError::KeyReused));
        }
    }

    pub(super) fn add_asker(&mut self, ask: ReplyHandle<AcceptedLine>) {
        if self.span.is_none() {
            self.span = ask.span().clone();
        }
        if self.checked {
            accept_line(&mut self.waiters, ask);
        } else {
            self.unanswered.push(ask);
        }
    }
}

/// A committed turn is the answer to its own line only.
pub(super) fn repeated_turn(turn: &Arc<Turn>, line: &PlayerLine) -> Result<AcceptedLine, DialogueError> {
    if turn.player_text == line.text && is_addressed_to(line, &turn.npc) {
        Ok(AcceptedLine::Repeated(Arc::clone(turn)))
    } else {
        Err(DialogueError::KeyReused)
    }
}

/// Whether `npc` may answer a line: it is for nobody else.
pub(super) fn is_addressed_to(line: &PlayerLine, npc: &NpcId) -> bool {
    line.to.as_ref().is_none_or(|to| to == npc)
}

pub(super) fn accept_line(waiters: &mut Vec<oneshot::Sender<TurnOutcome>>, ask: ReplyHandle<AcceptedLine>) {
    let (outcome, done) = oneshot::channel();
    waiters.push(outcome);
    ask.answer(Ok(AcceptedLine::Turn { done }));
}
