//! Pauses of a conversation, and callers that wait until no line is running.

use std::{sync::Arc, time::Duration};

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{ConversationPhase, NpcConversation};
use crate::{
    actors::{
        DialogueError,
        messages::{ConversationSnapshot, JoinPoint, ReplyHandle},
        metrics::FencedWrite,
        rewinding::{PendingCut, REWIND_RETRY_AFTER},
    },
    dialogue::events::EventBody,
    ports::ledger::dialogues::OwnerWriteOutcome,
    tenancy::Principal,
};

/// Shorter than a rewind, which takes a few polls.
const REWIND_POLL_DELAY: Duration = Duration::from_millis(5);

/// A caller that waits until no line is running.
pub(super) enum CutWaiter {
    Cut(PendingCut),
    Join(ReplyHandle<JoinPoint>),
    /// Continues the conversation, with the line that is being cut if possible.
    Resume {
        who: Principal,
        ask: ReplyHandle<ConversationSnapshot>,
    },
}

impl CutWaiter {
    pub(super) fn reject_with(self, error: DialogueError) {
        match self {
            Self::Cut(cut) => cut.ask.answer(Err(error)),
            Self::Join(ask) => ask.answer(Err(error)),
            Self::Resume { ask, .. } => ask.answer(Err(error)),
        }
    }
}

impl NpcConversation {
    /// Writes a pause with `reason`, or its end, publishes the change and calls `then`. A pause is written before the
    /// running line is cut, so that no restart continues behind an interrupt.
    pub(super) fn set_paused(
        &mut self,
        paused: bool,
        reason: &'static str,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, Result<(), DialogueError>, &mut Context<Self>) + 'static,
    ) {
        self.write_paused((paused, reason), false, ctx, then);
    }

    /// As [`Self::set_paused`], after a rewind with a pause found no turn to move. The rewind counts as running until
    /// `then`.
    pub(super) fn pause_without_rewind(
        &mut self,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, Result<(), DialogueError>, &mut Context<Self>) + 'static,
    ) {
        self.write_paused((true, "interrupted"), true, ctx, then);
    }

    fn write_paused(
        &mut self,
        (paused, reason): (bool, &'static str),
        unmoved: bool,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, Result<(), DialogueError>, &mut Context<Self>) + 'static,
    ) {
        let ConversationPhase::Ready(loaded) = &self.phase else {
            let busy = self.overloaded_error();
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
                Ok(OwnerWriteOutcome::Done) => {
                    failpoint!("conversation.paused");
                    talk.apply_paused(paused, reason);
                    Ok(())
                }
                Ok(OwnerWriteOutcome::NotOpen) => Err(DialogueError::Ended),
                Ok(OwnerWriteOutcome::Fenced) if !unmoved && talk.is_own_rewind(epoch) => {
                    return talk.set_paused_after_rewind(paused, reason, ctx, then);
                }
                Ok(OwnerWriteOutcome::Fenced) => {
                    talk.node.metrics.count_fenced_write(FencedWrite::Pause);
                    // The reload follows once no rewind is running.
                    talk.rewinds.in_doubt |= unmoved;
                    talk.on_ownership_lost(epoch, ctx);
                    Err(DialogueError::Overloaded {
                        retry_after: REWIND_RETRY_AFTER,
                    })
                }
                Err(error) => Err(error.into()),
            };
            then(talk, outcome, ctx);
        }));
    }

    /// True if the actor's own rewind may have changed the epoch, and not another owner.
    fn is_own_rewind(&self, epoch: u64) -> bool {
        match &self.phase {
            ConversationPhase::Ready(loaded) => loaded.epoch != epoch || self.rewinds.is_under_way(),
            ConversationPhase::Loading => true,
        }
    }

    /// As [`Self::set_paused`], with the new epoch after the rewind and its reload.
    fn set_paused_after_rewind(
        &mut self,
        paused: bool,
        reason: &'static str,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, Result<(), DialogueError>, &mut Context<Self>) + 'static,
    ) {
        if matches!(self.phase, ConversationPhase::Ready(_)) && !self.rewinds.is_under_way() {
            return self.set_paused(paused, reason, ctx, then);
        }
        ctx.run_later(REWIND_POLL_DELAY, move |talk, ctx| {
            talk.set_paused_after_rewind(paused, reason, ctx, then);
        });
    }

    pub(super) fn apply_paused(&mut self, paused: bool, reason: &'static str) {
        let ConversationPhase::Ready(loaded) = &mut self.phase else {
            return;
        };
        let options = &mut Arc::make_mut(&mut loaded.dialogue).options;
        // A simultaneous request has published the change already.
        if std::mem::replace(&mut options.paused, paused) != paused {
            let turn = loaded.dialogue.head_turn;
            let body = if paused {
                EventBody::ConversationPaused { turn, reason }
            } else {
                EventBody::ConversationResumed { turn }
            };
            self.log.publish_event(body, None);
        }
    }

    pub(super) fn on_join(&mut self, ask: ReplyHandle<JoinPoint>, ctx: &mut Context<Self>) {
        self.set_paused(true, "joined", ctx, move |talk, paused, ctx| {
            if let Err(error) = paused {
                return ask.answer(Err(error));
            }
            // A joining player continues from the heard part.
            talk.unfinished = None;
            talk.cut_running_turn(None, None);
            talk.pending_cuts.push(CutWaiter::Join(ask));
            talk.start_next_if_idle(ctx);
        });
    }

    /// Continues to say lines without requests.
    pub(super) fn resume_pacing(&mut self, ask: ReplyHandle<ConversationSnapshot>, ctx: &mut Context<Self>) {
        self.set_paused(false, "", ctx, move |talk, written, ctx| {
            talk.failures = 0;
            talk.start_next_if_idle(ctx);
            ask.answer(written.and_then(|()| talk.snapshot()));
        });
    }

    /// Answers the callers that waited until no line is running.
    pub(super) fn resolve_pending_cuts(&mut self, ctx: &mut Context<Self>) {
        for cutting in std::mem::take(&mut self.pending_cuts) {
            match (cutting, &self.phase) {
                (CutWaiter::Cut(cut), _) => self.resolve_cut(cut, ctx),
                (CutWaiter::Resume { who, ask }, _) => self.on_resume(who, ask, ctx),
                (CutWaiter::Join(ask), ConversationPhase::Ready(loaded)) => ask.answer(Ok(JoinPoint {
                    dialogue: Arc::clone(&loaded.dialogue),
                    head: loaded.head,
                })),
                (join @ CutWaiter::Join(_), ConversationPhase::Loading) => self.pending_cuts.push(join),
            }
        }
    }
}
