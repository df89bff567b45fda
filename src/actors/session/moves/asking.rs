//! What can be asked: to cut the running reply, to cut or to take back what was said. And keys, so that whoever
//! asks again takes nothing back that is said later.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{Caller, Phase, REMEMBERED, Request, Session};
use crate::{
    actors::{Heard, Interrupted, SessionError, TakeBack, handle::Ask, rewinding},
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
        if let Some(key) = &wish.key
            && let Some((_, turn)) = self.moving.cuts.iter().find(|(known, _)| known == key)
        {
            return ask.answer(Ok(Interrupted::Cut { turn: *turn }));
        }
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
        ctx.spawn(look.into_actor(self).map(move |known, session, ctx| match known {
            Ok(Some(rewound)) => ask.answer(Ok(rewinding::repeated(rewound))),
            Ok(None) if matches!(session.phase, Phase::Loading) => session.early.push_back(again(wish, ask)),
            Ok(None) => then(session, wish, ask, ctx),
            Err(error) => ask.answer(Err(error.into())),
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
        let running = self.running.as_ref().map(|running| running.number);
        let replying = self.log.replying().filter(|number| Some(*number) == running);
        if let Some(number) = replying.filter(|number| wish.turn.is_none_or(|turn| turn == *number)) {
            if self.moving.is_busy() {
                // The move ends it; it is told what that came to.
                return self.wish(Some(number), None, wish, "session.interrupt", ask, ctx);
            }
            if let Some(key) = wish.key.clone() {
                self.moving.cuts.truncate(REMEMBERED - 1);
                self.moving.cuts.push_front((key, number));
            }
            let by = CutBy {
                who: wish.who,
                key: wish.key,
                action: "session.interrupt",
            };
            self.cut(wish.heard.map(|heard| self.log.scalars(heard)), Some(by));
            return ask.answer(Ok(Interrupted::Cut { turn: number }));
        }
        match wish.turn {
            turn if running.is_some() && turn.or(running) == running && wish.heard.is_some() => {
                // All of it was said and it is being committed: it is cut when it has been.
                // What it knew the head for was looked at now.
                let wish = TakeBack {
                    turn: running,
                    if_head: None,
                    ..wish
                };
                self.moving.after_turn.push((wish, ask));
            }
            None => self.keep_idle(wish.key, ask, ctx),
            Some(turn) if Some(turn) == running => self.keep_idle(wish.key, ask, ctx),
            Some(turn) if turn > head_turn => match self.unsaid_with(turn) {
                Some(rewound) => self.keep(wish.key, Interrupted::Rewound(Arc::clone(&rewound)), rewound, ask, ctx),
                None => ask.answer(Err(SessionError::NotRunning { turn })),
            },
            Some(turn) => match self.heard_of(turn, wish.heard) {
                Ok(heard) => self.wish(Some(turn), heard, wish, "session.interrupt", ask, ctx),
                Err(error) => ask.answer(Err(error)),
            },
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
    pub(in crate::actors::session) fn keep_cuts(&self, keys: Vec<String>, ctx: &mut Context<Self>) {
        let Phase::Ready(loaded) = &self.phase else { return };
        if keys.is_empty() {
            return;
        }
        let outcome = Arc::new(loaded.nothing_moved(&self.node));
        let known = KnownKeys::Stay;
        let kept = rewinding::note(Arc::clone(&self.node), self.key.clone(), keys, outcome, known);
        ctx.spawn(kept.into_actor(self).map(|kept, session, _| {
            if let Err(error) = kept {
                tracing::warn!(dialogue = %session.key.1, %error, "keys of cuts could not be kept");
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
        match wish.turn {
            Some(turn) if turn > head_turn => match self.unsaid_with(turn) {
                Some(rewound) => self.keep(wish.key, Interrupted::Rewound(Arc::clone(&rewound)), rewound, ask, ctx),
                None => ask.answer(Err(SessionError::NoSuchTurn { turn, head_turn })),
            },
            turn => self.wish(turn, None, wish, "session.rewind", ask, ctx),
        }
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
