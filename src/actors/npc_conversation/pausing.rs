//! Pauses: nobody speaks until somebody says so. And who waits until nothing is being said.

use std::{sync::Arc, time::Duration};

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{
    NpcConversation, Phase,
    handle::{ConversationView, JoinPoint},
};
use crate::{
    actors::{
        SessionError,
        handle::Ask,
        rewinding::{MOMENT, PendingCut},
    },
    dialogue::events::EventBody,
    ports::ledger::dialogues::OwnerWrite,
    tenancy::Principal,
};

/// A move takes a few of these.
const MOVING: Duration = Duration::from_millis(5);

/// Who waits until nothing is being said.
pub(super) enum Cutting {
    Line(PendingCut),
    Join(Ask<JoinPoint>),
    /// Goes on, with the line that is being cut if it may.
    Resume {
        who: Principal,
        ask: Ask<ConversationView>,
    },
}

impl Cutting {
    pub(super) fn refuse(self, error: SessionError) {
        match self {
            Self::Line(cut) => cut.ask.answer(Err(error)),
            Self::Join(ask) => ask.answer(Err(error)),
            Self::Resume { ask, .. } => ask.answer(Err(error)),
        }
    }
}

impl NpcConversation {
    /// Writes that it is paused for `reason`, or goes on, tells of it, and does what follows. A pause is
    /// written before the running line is cut, so that no restart goes on where somebody cut in.
    pub(super) fn set_paused(
        &mut self,
        paused: bool,
        reason: &'static str,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, Result<(), SessionError>, &mut Context<Self>) + 'static,
    ) {
        self.write_paused((paused, reason), false, ctx, then);
    }

    /// As [`Self::set_paused`], when the move that was to pause it has found that nothing is to be moved, and is under
    /// way until `then`.
    pub(super) fn pause_unmoved(
        &mut self,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, Result<(), SessionError>, &mut Context<Self>) + 'static,
    ) {
        self.write_paused((true, "interrupted"), true, ctx, then);
    }

    fn write_paused(
        &mut self,
        (paused, reason): (bool, &'static str),
        unmoved: bool,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, Result<(), SessionError>, &mut Context<Self>) + 'static,
    ) {
        let Phase::Ready(loaded) = &self.phase else {
            let busy = self.busy();
            return then(self, Err(busy), ctx);
        };
        if loaded.dialogue.options.paused == paused {
            return then(self, Ok(()), ctx);
        }
        let epoch = loaded.epoch;
        let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
        let write = async move { ports.ledger.dialogues.set_paused(&scope, id, epoch, paused).await };
        ctx.spawn(write.into_actor(self).map(move |written, talk, ctx| {
            let outcome = match written {
                Ok(OwnerWrite::Done) => {
                    failpoint!("conversation.paused");
                    talk.now_paused(paused, reason);
                    Ok(())
                }
                Ok(OwnerWrite::NotOpen) => Err(SessionError::Ended),
                Ok(OwnerWrite::Fenced) if !unmoved && talk.moved_itself(epoch) => {
                    return talk.set_paused_after_move(paused, reason, ctx, then);
                }
                Ok(OwnerWrite::Fenced) => {
                    // Once nothing is under way any more.
                    talk.moving.in_doubt |= unmoved;
                    talk.lost(epoch, ctx);
                    Err(SessionError::Overloaded { retry_after: MOMENT })
                }
                Err(error) => Err(error.into()),
            };
            then(talk, outcome, ctx);
        }));
    }

    /// Whether the epoch may be another since a move of its own came first, and not since somebody else has it.
    fn moved_itself(&self, epoch: u64) -> bool {
        match &self.phase {
            Phase::Ready(loaded) => loaded.epoch != epoch || self.moving.is_under_way(),
            Phase::Loading => true,
        }
    }

    /// As [`Self::set_paused`], with the epoch that is known once the move has ended and what it changed is read.
    fn set_paused_after_move(
        &mut self,
        paused: bool,
        reason: &'static str,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, Result<(), SessionError>, &mut Context<Self>) + 'static,
    ) {
        if matches!(self.phase, Phase::Ready(_)) && !self.moving.is_under_way() {
            return self.set_paused(paused, reason, ctx, then);
        }
        ctx.run_later(MOVING, move |talk, ctx| {
            talk.set_paused_after_move(paused, reason, ctx, then);
        });
    }

    pub(super) fn now_paused(&mut self, paused: bool, reason: &'static str) {
        let Phase::Ready(loaded) = &mut self.phase else { return };
        let options = &mut Arc::make_mut(&mut loaded.dialogue).options;
        // Whoever asked at the same time has told of it.
        if std::mem::replace(&mut options.paused, paused) != paused {
            let turn = loaded.dialogue.head_turn;
            let body = if paused {
                EventBody::ConversationPaused { turn, reason }
            } else {
                EventBody::ConversationResumed { turn }
            };
            self.log.publish(body, None);
        }
    }

    pub(super) fn join(&mut self, ask: Ask<JoinPoint>, ctx: &mut Context<Self>) {
        self.set_paused(true, "joined", ctx, move |talk, paused, ctx| {
            if let Err(error) = paused {
                return ask.answer(Err(error));
            }
            // Whoever comes in goes on from what was heard.
            talk.unfinished = None;
            talk.cut(None, None);
            talk.cutting.push(Cutting::Join(ask));
            talk.advance(ctx);
        });
    }

    /// Says lines by itself again.
    pub(super) fn go_on(&mut self, ask: Ask<ConversationView>, ctx: &mut Context<Self>) {
        self.set_paused(false, "", ctx, move |talk, written, ctx| {
            talk.failures = 0;
            talk.advance(ctx);
            ask.answer(written.and_then(|()| talk.view()));
        });
    }

    /// Nothing is being said: tells those who waited for that.
    pub(super) fn settle(&mut self, ctx: &mut Context<Self>) {
        for cutting in std::mem::take(&mut self.cutting) {
            match (cutting, &self.phase) {
                (Cutting::Line(cut), _) => self.line_was_cut(cut, ctx),
                (Cutting::Resume { who, ask }, _) => self.resume(who, ask, ctx),
                (Cutting::Join(ask), Phase::Ready(loaded)) => ask.answer(Ok(JoinPoint {
                    dialogue: Arc::clone(&loaded.dialogue),
                    head: loaded.head,
                })),
                (join @ Cutting::Join(_), Phase::Loading) => self.cutting.push(join),
            }
        }
    }
}
