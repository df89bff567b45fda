//! Replies said anew, and those that were cut and are taken up again.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{Caller, Phase, Request, Session};
use crate::{
    actors::{Accepted, Interrupted, Line, OnBusy, SessionError, TakeUp, handle::Ask, rewinding},
    dialogue::rewind::Target,
    ids::TurnId,
    tenancy::Principal,
};

impl Session {
    pub(in crate::actors::session) fn regenerate(
        &mut self,
        key: Option<String>,
        if_head: Option<u32>,
        re: Option<Arc<str>>,
        who: Principal,
        ask: Ask<Accepted>,
        ctx: &mut Context<Self>,
    ) {
        let Some(known) = key.clone() else {
            return self.anew(None, if_head, re, who, ask, ctx);
        };
        let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
        let look = async move { ports.ledger.dialogues.turn_by_key(&scope, id, &known).await };
        ctx.spawn(look.into_actor(self).map(move |found, session, ctx| match found {
            Ok(Some(found)) if found.stands => ask.answer(Ok(Accepted::Repeated(Arc::new(found.turn)))),
            // Unless its reply was cut and is being gone on with.
            Ok(Some(_)) => {
                if let Some(ask) = session.join_turn_of(key.as_deref(), ask) {
                    ask.answer(Err(SessionError::TurnUnsaid));
                }
            }
            Ok(None) if key.as_deref().is_some_and(|key| session.keys.is_unsaid(key)) => {
                ask.answer(Err(SessionError::TurnUnsaid));
            }
            Ok(None) if matches!(session.phase, Phase::Loading) => {
                let again = Request::Regenerate {
                    key,
                    if_head,
                    re,
                    who,
                    ask,
                };
                session.early.push_back(again);
            }
            Ok(None) => session.anew(key, if_head, re, who, ask, ctx),
            Err(error) => ask.answer(Err(error.into())),
        }));
    }

    fn anew(
        &mut self,
        key: Option<String>,
        if_head: Option<u32>,
        re: Option<Arc<str>>,
        who: Principal,
        ask: Ask<Accepted>,
        ctx: &mut Context<Self>,
    ) {
        let Some(ask) = self.join_turn_of(key.as_deref(), ask) else {
            return;
        };
        if self.drained.is_some() || self.node.is_draining() {
            return ask.answer(Err(SessionError::Draining));
        }
        let head_turn = match self.may_move(if_head) {
            Ok(head_turn) => head_turn,
            Err(error) => return ask.answer(Err(error)),
        };
        // Whoever asks with the same key at the same time is told of the same turn.
        let other = self.moving.is_busy() && !self.moving.says_anew(key.as_deref());
        if self.running.is_some() || !self.queue.is_empty() || other {
            return ask.answer(Err(SessionError::TurnInProgress {
                retry_after: self.last_turn,
            }));
        }
        // Before the turn is taken back: it would only be put back.
        if let Err(over) = self.node.ports.budgets.check_turn(self.key.0.tenant()) {
            return ask.answer(Err(over.into()));
        }
        let Phase::Ready(loaded) = &self.phase else { return };
        let Some(last) = loaded.history.last().filter(|turn| turn.number == head_turn) else {
            return ask.answer(Err(SessionError::NothingToRegenerate));
        };
        let line = Line {
            text: last.player_text.clone(),
            to: Some(last.npc.clone()),
            key,
            on_busy: OnBusy::Queue,
            re,
            who: None,
        };
        let before = head_turn - 1;
        // The key is the new turn's alone: if there will be none, the next try is not a repetition.
        let target = Target::Anew { number: before };
        let caller = Caller::Anew { before, line, ask };
        self.want(target, None, who, "session.regenerate", caller, ctx);
    }

    /// The turn that was to be said anew stands again, since nothing took its place. `false`: that was tried just
    /// now and the ledger did not answer.
    pub(in crate::actors::session) fn put_back(&mut self, turn: TurnId, ctx: &mut Context<Self>) -> bool {
        if self.moving.put_back.replace(turn) == Some(turn) {
            tracing::error!(dialogue = %self.key.1, %turn, "a turn that was to be said anew could not be put back");
            return false;
        }
        let who = rewinding::by_itself(&self.key.0);
        let target = Target::Again { turn };
        self.want(target, None, who, "session.put_back", Caller::Nobody, ctx);
        true
    }

    /// A turn went to be said anew, and nothing has taken its place yet.
    pub(in crate::actors::session) fn owes_a_turn(&self) -> bool {
        matches!(&self.phase, Phase::Ready(loaded) if loaded.replacing.is_some())
    }

    pub(in crate::actors::session) fn resume(&mut self, wish: TakeUp, ask: Ask<Interrupted>, ctx: &mut Context<Self>) {
        let Some(key) = wish.key.clone() else {
            return self.take_up(wish, ask, ctx);
        };
        let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
        let look = async move { ports.ledger.rewinds.by_key(&scope, id, &key).await };
        ctx.spawn(look.into_actor(self).map(move |known, session, ctx| {
            let Phase::Ready(loaded) = &session.phase else {
                return session.early.push_back(Request::Resume { wish, ask });
            };
            match known {
                // It did not come after all, and the turn that was cut stands again: this is another try.
                Ok(Some(known)) if known.replacing.is_some() && known.replacing == loaded.head => {
                    session.take_up(TakeUp { key: None, ..wish }, ask, ctx);
                }
                Ok(Some(known)) => ask.answer(Ok(rewinding::repeated(known))),
                Ok(None) => session.take_up(wish, ask, ctx),
                Err(error) => ask.answer(Err(error.into())),
            }
        }));
    }

    fn take_up(&mut self, wish: TakeUp, ask: Ask<Interrupted>, ctx: &mut Context<Self>) {
        if let Err(error) = self.may_move(None) {
            return ask.answer(Err(error));
        }
        if self.drained.is_some() || self.node.is_draining() {
            return ask.answer(Err(SessionError::Draining));
        }
        // Whoever asks for the same at the same time is told the same.
        let other = self.moving.is_busy() && !self.moving.taking_up;
        if self.running.is_some() || !self.queue.is_empty() || other {
            return ask.answer(Err(SessionError::NothingToResume));
        }
        self.moving.taking_up = true;
        let TakeUp { key, re, who } = wish;
        let caller = Caller::Up { re, ask };
        self.want(Target::Uncut, key, who, "session.resume", caller, ctx);
    }
}
