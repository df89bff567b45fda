//! A line that is not a turn yet: who asked for it, and whose key it has.

use std::{sync::Arc, time::Instant};

use tokio::sync::oneshot;
use tracing::Span;

use crate::{
    actors::{Accepted, Line, OnBusy, SessionError, handle::Ask, running::Outcome},
    dialogue::turn::{CutBy, TurnError, Unfinished},
    ids::{NpcId, TurnId},
    memory::turn::Turn,
    ports::ledger::meters::Counted,
};

/// The head that a line is to follow; `None`: it is to be the first turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Follows(pub Option<TurnId>);

/// A line that is not a turn yet.
pub(super) struct Waiting {
    pub(super) id: u64,
    pub(super) line: Line,
    /// The reply it goes on with.
    pub(super) goes_on: Option<Arc<Unfinished>>,
    /// Of a line that takes the place of a turn: the head that it is to follow, and no other.
    pub(super) after: Option<Follows>,
    pub(super) accepted_at: Instant,
    /// When only memory, rows or its key's look-up kept it from being a turn.
    pub(super) ready_at: Option<Instant>,
    /// Its key is known not to belong to an earlier turn.
    pub(super) checked: bool,
    /// Who has not been answered yet, until then.
    pub(super) asking: Vec<Ask<Accepted>>,
    pub(super) waiters: Vec<oneshot::Sender<Outcome>>,
    /// What its turn is a part of: the request of whoever asked first.
    pub(super) span: Span,
    _counted: Counted,
}

impl Waiting {
    /// Somebody was told that this line is, or will be, a turn.
    pub(super) fn is_accepted(&self) -> bool {
        self.checked
    }

    pub(super) fn re(&self) -> Option<Arc<str>> {
        self.line.re.clone()
    }

    /// A line that is said anew.
    pub(super) fn anew(id: u64, line: Line, now: Instant, ask: Ask<Accepted>, counted: Counted) -> Self {
        let mut waiting = Self::new(id, line, now, true, counted);
        waiting.take_on(ask);
        waiting
    }

    /// That it takes the place of the turn that followed `head`.
    pub(super) fn following(self, head: Option<TurnId>) -> Self {
        Self {
            after: Some(Follows(head)),
            ..self
        }
    }

    /// What it was to take the place of is not what comes next any more.
    pub(super) fn unsay(self) {
        self.let_go(&SessionError::TurnUnsaid, &Arc::new(TurnError::Unsaid));
    }

    /// It is not said.
    pub(super) fn let_go(self, refused: &SessionError, ended: &Arc<TurnError>) {
        for ask in self.asking {
            ask.answer(Err(refused.clone()));
        }
        for waiter in self.waiters {
            // Whoever waited may have gone.
            let _ = waiter.send(Err(Arc::clone(ended)));
        }
    }

    /// A reply that was cut and is gone on with.
    pub(super) fn going_on(
        id: u64,
        unfinished: Unfinished,
        re: Option<Arc<str>>,
        now: Instant,
        counted: Counted,
    ) -> Self {
        let line = Line {
            text: unfinished.of.player_text.clone(),
            to: Some(unfinished.of.npc.clone()),
            // A retry of the line joins it.
            key: unfinished.key.clone(),
            on_busy: OnBusy::Queue,
            re,
            who: None,
        };
        Self {
            goes_on: Some(Arc::new(unfinished)),
            ..Self::new(id, line, now, true, counted)
        }
    }

    pub(super) fn new(id: u64, line: Line, accepted_at: Instant, checked: bool, counted: Counted) -> Self {
        Self {
            id,
            line,
            goes_on: None,
            after: None,
            accepted_at,
            ready_at: None,
            checked,
            asking: Vec::new(),
            waiters: Vec::new(),
            span: Span::none(),
            _counted: counted,
        }
    }

    /// Whether it cuts the running reply now.
    pub(super) fn cuts(&self) -> bool {
        self.checked && self.line.on_busy == OnBusy::Interrupt
    }

    /// For whom it does.
    pub(super) fn cut_by(&self) -> Option<CutBy> {
        self.line.who.clone().map(|who| CutBy {
            who,
            key: None,
            action: "session.interrupt",
        })
    }

    /// One more asks for this line, with the same key.
    pub(super) fn join(&mut self, line: &Line, ask: Ask<Accepted>) {
        let addressed = self.line.to.as_ref().is_none_or(|npc| may_be_for(line, npc));
        if self.line.text == line.text && addressed {
            self.take_on(ask);
        } else {
            ask.answer(Err(SessionError::KeyReused));
        }
    }

    pub(super) fn take_on(&mut self, ask: Ask<Accepted>) {
        if self.span.is_none() {
            self.span = ask.span().clone();
        }
        if self.checked {
            accept(&mut self.waiters, ask);
        } else {
            self.asking.push(ask);
        }
    }
}

/// A committed turn is the answer to its own line only.
pub(super) fn repeated(turn: &Arc<Turn>, line: &Line) -> Result<Accepted, SessionError> {
    if turn.player_text == line.text && may_be_for(line, &turn.npc) {
        Ok(Accepted::Repeated(Arc::clone(turn)))
    } else {
        Err(SessionError::KeyReused)
    }
}

/// Whether `npc` may answer a line: it is for nobody else.
pub(super) fn may_be_for(line: &Line, npc: &NpcId) -> bool {
    line.to.as_ref().is_none_or(|to| to == npc)
}

pub(super) fn accept(waiters: &mut Vec<oneshot::Sender<Outcome>>, ask: Ask<Accepted>) {
    let (outcome, done) = oneshot::channel();
    waiters.push(outcome);
    ask.answer(Ok(Accepted::Turn { done }));
}
