//! Pauses of a conversation, and players who join.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{ConversationWaiter, NpcConversation};
use crate::{
    DialogueError, InterruptOutcome,
    dialogue::{actor::State, kind::TurnEndWaiter, rewind_run::REWIND_RETRY_AFTER},
    messages::{ConversationSnapshot, JoinPoint, ReplyHandle},
    metrics::FencedWrite,
};
use colloquy_dialogue::events::EventBody;
use colloquy_ports::ledger::dialogues::OwnerWriteOutcome;

/// Continues a request after a pause, or its end, was written or refused.
type AfterPause =
    Box<dyn FnOnce(&mut NpcConversation, Result<(), DialogueError>, &mut Context<NpcConversation>) + Send>;

/// A pause, or the end of a pause, to be written to the ledger.
pub(super) struct PauseWrite {
    paused: bool,
    reason: &'static str,
    /// True if the pause is a part of the running rewind, which counts as running until `on_written`.
    is_part_of_rewind: bool,
    pub(super) on_written: AfterPause,
}

impl NpcConversation {
    /// Writes a pause with `reason`, or its end, publishes the change and calls `on_written`. A pause is written before
    /// the running line is cut, so that no restart continues behind an interrupt.
    pub(super) fn set_paused(
        &mut self,
        paused: bool,
        reason: &'static str,
        ctx: &mut Context<Self>,
        on_written: impl FnOnce(&mut Self, Result<(), DialogueError>, &mut Context<Self>) + Send + 'static,
    ) {
        let write = PauseWrite {
            paused,
            reason,
            is_part_of_rewind: false,
            on_written: Box::new(on_written),
        };
        self.write_pause(write, ctx);
    }

    /// Pauses after a rewind with a pause found no turn to take back, and then answers the callers of the rewind.
    pub(super) fn pause_without_rewind(&mut self, ctx: &mut Context<Self>) {
        let write = PauseWrite {
            paused: true,
            reason: "interrupted",
            is_part_of_rewind: true,
            on_written: Box::new(|talk, paused, ctx| {
                let answer = |head_turn| paused.clone().map(|()| InterruptOutcome::Idle { head_turn });
                talk.on_rewind_rejected(&answer, false, ctx);
            }),
        };
        self.write_pause(write, ctx);
    }

    pub(super) fn write_pause(&mut self, write: PauseWrite, ctx: &mut Context<Self>) {
        let Some(loaded) = self.state.loaded() else {
            let error = self.overloaded_error();
            return (write.on_written)(self, Err(error), ctx);
        };
        if loaded.dialogue.options.paused == write.paused {
            return (write.on_written)(self, Ok(()), ctx);
        }
        let epoch = loaded.epoch;
        let paused = write.paused;
        let ports = self.node.ports.clone();
        let (scope, id) = self.key.clone();
        let writing = async move { ports.ledger.dialogues.set_paused(&scope, id, epoch, paused).await };
        ctx.spawn(writing.into_actor(self).map(move |result, talk, ctx| {
            let outcome = match result {
                Ok(OwnerWriteOutcome::Done) => {
                    failpoint!("conversation.paused");
                    talk.apply_paused(paused, write.reason);
                    Ok(())
                }
                Ok(OwnerWriteOutcome::NotOpen) => Err(DialogueError::Ended),
                Ok(OwnerWriteOutcome::Fenced) if !write.is_part_of_rewind && talk.is_own_rewind(epoch) => {
                    return talk.write_pause_after_rewind(write, ctx);
                }
                Ok(OwnerWriteOutcome::Fenced) => {
                    talk.node.metrics.count_fenced_write(FencedWrite::Pause);
                    // The reload follows once no rewind is running.
                    talk.rewinds.in_doubt |= write.is_part_of_rewind;
                    talk.on_ownership_lost(epoch, ctx);
                    Err(DialogueError::Overloaded {
                        retry_after: REWIND_RETRY_AFTER,
                    })
                }
                Err(error) => Err(error.into()),
            };
            (write.on_written)(talk, outcome, ctx);
        }));
    }

    /// True if the actor's own rewind may have changed the epoch, and not another owner.
    fn is_own_rewind(&self, epoch: u64) -> bool {
        match &self.state {
            State::Ready(loaded) => loaded.epoch != epoch,
            _ => true,
        }
    }

    /// Writes a pause with the new epoch, at once or after the rewind and its reads.
    fn write_pause_after_rewind(&mut self, write: PauseWrite, ctx: &mut Context<Self>) {
        if matches!(self.state, State::Ready(_)) {
            self.write_pause(write, ctx);
        } else {
            self.kind.deferred_pauses.push(write);
        }
    }

    pub(super) fn apply_paused(&mut self, paused: bool, reason: &'static str) {
        let Some(loaded) = self.state.loaded_mut() else {
            return;
        };
        let options = &mut Arc::make_mut(&mut loaded.dialogue).options;
        // A simultaneous request has published the change already.
        if std::mem::replace(&mut options.paused, paused) != paused {
            let turn = loaded.dialogue.head_turn;
            let body = if paused {
                self.kind.resumed_by = None;
                EventBody::ConversationPaused { turn, reason }
            } else {
                EventBody::ConversationResumed { turn }
            };
            self.log.publish_event(body, None);
        }
    }

    pub(super) fn on_join(&mut self, reply: ReplyHandle<JoinPoint>, ctx: &mut Context<Self>) {
        self.set_paused(true, "joined", ctx, move |talk, paused, ctx| {
            if let Err(error) = paused {
                return reply.answer(Err(error));
            }
            // A joining player continues from the heard part.
            talk.kind.unfinished = None;
            talk.cut_running_turn(None, None);
            let join = ConversationWaiter::Join(reply);
            talk.turn_end_waiters.push(TurnEndWaiter::Other(join));
            talk.run_next_steps(ctx);
        });
    }

    /// Continues to say lines without requests.
    pub(super) fn resume_pacing(&mut self, reply: ReplyHandle<ConversationSnapshot>, ctx: &mut Context<Self>) {
        self.set_paused(false, "", ctx, move |talk, result, ctx| {
            talk.kind.failures = 0;
            talk.run_next_steps(ctx);
            reply.answer(result.and_then(|()| talk.snapshot()));
        });
    }
}
