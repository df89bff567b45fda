//! What can be asked: to cut the running reply, to cut or to take back what was said. And keys, so that whoever
//! asks again takes nothing back that is said later.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{BeginMove, Caller, Phase, Request, Session};
use crate::{
    actors::{
        Heard, Interrupted, SessionError, TakeBack,
        handle::Ask,
        rewinding::{self, CutCame, Late, PendingCut},
    },
    dialogue::{rewind::Target, turn::CutBy},
    ports::ledger::rewinds::{KnownKeys, Rewound},
};

impl Session {
    pub(in crate::actors::session) fn interrupt(
        &mut self,
        wish: TakeBack,
        ask: Ask<Interrupted>,
        ctx: &mut Context<Self>,
    ) {
        self.unless_known(
            wish,
            ask,
            ctx,
            |wish, ask| Request::Interrupt { wish, ask },
            Self::cut_at,
        );
    }

    pub(in crate::actors::session) fn rewind(
        &mut self,
        wish: TakeBack,
        ask: Ask<Interrupted>,
        ctx: &mut Context<Self>,
    ) {
        self.unless_known(wish, ask, ctx, |wish, ask| Request::Rewind { wish, ask }, Self::back_to);
    }

    /// Answers a repeated key with what it came to, else goes on with `then`.
    fn unless_known(
        &mut self,
        wish: TakeBack,
        ask: Ask<Interrupted>,
        ctx: &mut Context<Self>,
        again: fn(TakeBack, Ask<Interrupted>) -> Request,
        then: fn(&mut Self, TakeBack, Ask<Interrupted>, &mut Context<Self>),
    ) {
        let Some(key) = wish.key.clone() else {
            return then(self, wish, ask, ctx);
        };
        let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
        let look = async move { ports.ledger.rewinds.by_key(&scope, id, &key).await };
        self.moving.looking += 1;
        ctx.spawn(look.into_actor(self).map(move |known, session, ctx| {
            session.moving.looking -= 1;
            match known {
                Ok(Some(rewound)) => ask.answer(Ok(rewinding::repeated(rewound))),
                Ok(None) if matches!(session.phase, Phase::Loading) => session.early.push_back(again(wish, ask)),
                Ok(None) => then(session, wish, ask, ctx),
                Err(error) => ask.answer(Err(error.into())),
            }
            if session.moving.is_busy() {
                ctx.notify(BeginMove);
            }
            session.advance(ctx);
        }));
    }

    /// Whether the dialogue can be taken back at all, and is what the caller takes it for.
    pub(super) fn may_move(&self, if_head: Option<u32>) -> Result<u32, SessionError> {
        let Phase::Ready(loaded) = &self.phase else {
            return Err(self.overloaded());
        };
        if loaded.closed || self.closing.is_some() {
            return Err(SessionError::Closed);
        }
        let head_turn = loaded.dialogue.head_turn;
        let running = self.running.as_ref().map(|running| running.number);
        match if_head {
            Some(known) if known != head_turn && Some(known) != running => Err(SessionError::StaleHead { head_turn }),
            _ => Ok(head_turn),
        }
    }

    pub(super) fn overloaded(&self) -> SessionError {
        SessionError::Overloaded {
            retry_after: self.last_turn,
        }
    }

    pub(super) fn cut_at(&mut self, wish: TakeBack, ask: Ask<Interrupted>, ctx: &mut Context<Self>) {
        let head_turn = match self.may_move(wish.if_head) {
            Ok(head_turn) => head_turn,
            Err(error) => return ask.answer(Err(error)),
        };
        if self.is_about_to_stand(&wish, head_turn) {
            return self.once_it_stands(Request::Interrupt { wish, ask }, ctx);
        }
        if let Some(rewound) = self.moved_to(&wish) {
            return self.keep(wish.key, Interrupted::Rewound(Arc::clone(&rewound)), rewound, ask, ctx);
        }
        let running = self.running.as_ref().map(|running| running.number);
        let replying = self.log.replying().filter(|number| Some(*number) == running);
        if replying.is_some_and(|number| wish.turn.is_none_or(|turn| turn == number)) {
            // Counted in what was sent so far, as the client counted.
            let heard = wish.heard.map(|heard| self.log.scalars(heard));
            let by = CutBy {
                who: wish.who.clone(),
                key: wish.key.clone(),
                action: "session.interrupt",
            };
            let mut others = self.moving.cutting.iter();
            // One that is asked for again is told with the first.
            if wish.key.is_none() || others.all(|other| other.wish.key != wish.key) {
                self.cut(heard, Some(by));
            }
            return self.tell_once_ended(heard, true, wish, ask);
        }
        match (running, wish.turn) {
            (Some(number), turn) if turn.is_none_or(|turn| turn == number) && wish.heard.is_some() => {
                // All of it was said and it is being committed: it is cut when it has been.
                let heard = wish.heard.map(|heard| self.log.scalars(heard));
                self.tell_once_ended(heard, false, wish, ask);
            }
            (_, None) => self.keep_idle(wish.key, ask, ctx),
            (Some(number), Some(turn)) if turn == number => self.keep_idle(wish.key, ask, ctx),
            (_, Some(turn)) if turn > head_turn => match self.unsaid_with(turn) {
                Some(rewound) => self.keep(wish.key, Interrupted::Rewound(Arc::clone(&rewound)), rewound, ask, ctx),
                None => ask.answer(Err(SessionError::NotRunning { turn })),
            },
            (_, Some(turn)) => match self.heard_of(turn, wish.heard) {
                Ok(heard) => self.wish(Some(turn), heard, wish, "session.interrupt", ask, ctx),
                Err(error) => ask.answer(Err(error)),
            },
        }
    }

    fn tell_once_ended(&mut self, heard: Option<usize>, noted: bool, wish: TakeBack, ask: Ask<Interrupted>) {
        match &self.running {
            Some(running) => {
                let cut = PendingCut::of(running, heard, noted, wish, ask);
                self.moving.cutting.push(cut);
            }
            None => ask.answer(Err(self.overloaded())),
        }
    }

    /// The turn that was to be cut has ended. One that had been said to its end by then is cut where it was heard.
    pub(super) fn was_cut(&mut self, cut: PendingCut, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else {
            return cut.ask.answer(Err(self.overloaded()));
        };
        let came = cut.came(loaded, &self.node);
        let PendingCut { number, wish, ask, .. } = cut;
        match came {
            CutCame::TooLate(heard) => self.wish(Some(number), Some(heard), wish, "session.interrupt", ask, ctx),
            CutCame::Dropped(outcome) => {
                rewinding::keep_dropped(&self.node, &self.key, wish, "session.interrupt", outcome, ask, ctx);
            }
            CutCame::To(told, outcome) => self.keep(wish.key, told, outcome, ask, ctx),
        }
    }

    fn keep(
        &self,
        key: Option<String>,
        told: Interrupted,
        outcome: Arc<Rewound>,
        ask: Ask<Interrupted>,
        ctx: &mut Context<Self>,
    ) {
        rewinding::keep(&self.node, &self.key, key, (told, outcome), ask, ctx);
    }

    /// The keys of cuts that came to nothing, since the turn had been said to its end or not at all, are kept: to
    /// repeat one cuts nothing that is said later.
    pub(in crate::actors::session) fn keep_cuts(&self, mut keys: Vec<String>, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else { return };
        // Those who wait to be told have theirs kept then.
        keys.retain(|key| self.moving.cutting.iter().all(|cut| cut.wish.key.as_ref() != Some(key)));
        if keys.is_empty() {
            return;
        }
        self.note_cuts(keys.into(), loaded.nothing_moved(&self.node), ctx);
    }

    /// Keeps what cuts came to whom nobody waits to tell of.
    pub(super) fn note_cuts(&self, late: Late, outcome: Rewound, ctx: &mut Context<Self>) {
        if late.is_empty() {
            return;
        }
        let (node, key, known) = (Arc::clone(&self.node), self.key.clone(), KnownKeys::Stay);
        let kept = rewinding::note(node, key, late, Arc::new(outcome), known);
        ctx.spawn(kept.into_actor(self).map(|kept, session, _| {
            if let Err(error) = kept {
                tracing::warn!(dialogue = %session.key.1, %error, "what cuts came to could not be kept");
            }
        }));
    }

    fn keep_idle(&self, key: Option<String>, ask: Ask<Interrupted>, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else {
            return ask.answer(Err(self.overloaded()));
        };
        let outcome = loaded.nothing_moved(&self.node);
        let told = Interrupted::Idle {
            head_turn: outcome.head_turn,
        };
        self.keep(key, told, Arc::new(outcome), ask, ctx);
    }

    fn heard_of(&self, turn: u32, heard: Option<Heard>) -> Result<Option<usize>, SessionError> {
        let Phase::Ready(loaded) = &self.phase else {
            return Err(self.overloaded());
        };
        loaded.heard_of(turn, heard)
    }

    fn back_to(&mut self, wish: TakeBack, ask: Ask<Interrupted>, ctx: &mut Context<Self>) {
        let head_turn = match self.may_move(wish.if_head) {
            Ok(head_turn) => head_turn,
            Err(error) => return ask.answer(Err(error)),
        };
        if self.is_about_to_stand(&wish, head_turn) {
            return self.once_it_stands(Request::Rewind { wish, ask }, ctx);
        }
        if let Some(rewound) = self.moved_to(&wish) {
            return self.keep(wish.key, Interrupted::Rewound(Arc::clone(&rewound)), rewound, ask, ctx);
        }
        match wish.turn {
            Some(turn) if turn > head_turn => match self.unsaid_with(turn) {
                Some(rewound) => self.keep(wish.key, Interrupted::Rewound(Arc::clone(&rewound)), rewound, ask, ctx),
                None => ask.answer(Err(SessionError::NoSuchTurn { turn, head_turn })),
            },
            turn => self.wish(turn, None, wish, "session.rewind", ask, ctx),
        }
    }

    /// Whether the last turn is out only to be said anew, or gone on with, and is the one that is asked for; or which
    /// one is the last is about to be known.
    fn is_about_to_stand(&self, wish: &TakeBack, head_turn: u32) -> bool {
        let owed = self.running.is_none() && self.owes_a_turn() && wish.turn == Some(head_turn + 1);
        owed || self.moving.moves.replaces()
    }

    /// Whoever cuts in cuts in on the turn as it was: what was to take its place is not said, it stands again, and then
    /// `request` comes.
    fn once_it_stands(&mut self, request: Request, ctx: &mut Context<Self>) {
        self.early.push_back(request);
        if !self.moving.moves.replaces() {
            self.drop_replacements(|_| false);
            self.load(ctx);
        }
    }

    /// The last move, if it went just where this is to go.
    fn moved_to(&self, wish: &TakeBack) -> Option<Arc<Rewound>> {
        let Phase::Ready(loaded) = &self.phase else { return None };
        // A turn that is owed is not gone for good.
        let idle = self.running.is_none() && !self.moving.is_busy() && !self.owes_a_turn();
        self.moving.gone.to(wish, loaded.head).filter(|_| idle)
    }

    /// The last move, if `turn` is gone with it and nothing was said since.
    fn unsaid_with(&self, turn: u32) -> Option<Arc<Rewound>> {
        let Phase::Ready(loaded) = &self.phase else { return None };
        self.moving.gone.with(turn, loaded.head)
    }

    fn wish(
        &mut self,
        turn: Option<u32>,
        heard_chars: Option<usize>,
        wish: TakeBack,
        action: &'static str,
        ask: Ask<Interrupted>,
        ctx: &mut Context<Self>,
    ) {
        let target = Target::Turn {
            number: turn.unwrap_or_default(),
            heard_chars,
        };
        self.want(target, wish.key, wish.who, action, Caller::Back(ask), ctx);
    }
}
