//! Regenerated replies, and resumed replies that were cut.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{Session, SessionCaller, SessionRequest};
use crate::{
    AcceptedLine, DialogueError, InterruptOutcome, OnBusy, PlayerLine, RegenerateCommand, ResumeCommand,
    messages::ReplyHandle,
};
use colloquy_dialogue::{requester::Requester, rewind::RewindTarget};

impl Session {
    pub(super) fn on_regenerate(
        &mut self,
        command: RegenerateCommand,
        reply: ReplyHandle<AcceptedLine>,
        ctx: &mut Context<Self>,
    ) {
        let Some(key) = command.key.clone() else {
            return self.regenerate_last_turn(command, reply, ctx);
        };
        let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
        let lookup_key = key.clone();
        let look = async move { ports.ledger.dialogues.load_turn_by_key(&scope, id, &lookup_key).await };
        ctx.spawn(
            look.into_actor(self)
                .map(move |keyed_turn, session, ctx| match keyed_turn {
                    Ok(Some(keyed_turn)) if keyed_turn.stands => {
                        reply.answer(Ok(AcceptedLine::Repeated(Arc::new(keyed_turn.turn))));
                    }
                    // The key may belong to a cut reply that is being continued.
                    Ok(Some(_)) => {
                        if let Some(reply) = session.join_turn_with_key(Some(&key), reply) {
                            reply.answer(Err(DialogueError::TurnUnsaid));
                        }
                    }
                    Ok(None) if session.kind.keys.is_unsaid(&key) => reply.answer(Err(DialogueError::TurnUnsaid)),
                    Ok(None) if session.state.loaded().is_none() => {
                        let retry = SessionRequest::Regenerate { command, reply };
                        session.deferred.requests.push_back(retry);
                    }
                    Ok(None) => session.regenerate_last_turn(command, reply, ctx),
                    Err(error) => reply.answer(Err(error.into())),
                }),
        );
    }

    fn regenerate_last_turn(
        &mut self,
        command: RegenerateCommand,
        reply: ReplyHandle<AcceptedLine>,
        ctx: &mut Context<Self>,
    ) {
        let RegenerateCommand {
            key,
            if_head,
            re,
            who,
            goes_on,
            chat,
        } = command;
        let Some(reply) = self.join_turn_with_key(key.as_deref(), reply) else {
            return;
        };
        let head_turn = match self.check_regeneration_allowed(if_head, key.as_deref()) {
            Ok(head_turn) => head_turn,
            Err(error) => return reply.answer(Err(error)),
        };
        let history = self.state.loaded().map(|loaded| &loaded.history);
        let last = history.and_then(|history| history.last().filter(|turn| turn.number == head_turn));
        let Some(last) = last else {
            return reply.answer(Err(DialogueError::NothingToRegenerate));
        };
        let line = PlayerLine {
            text: last.player_text.clone(),
            to: Some(last.npc.clone()),
            key,
            on_busy: OnBusy::Queue,
            re,
            who: None,
            chat,
        };
        let before = head_turn - 1;
        let requester = Requester {
            who,
            // Only the new turn gets the key: if the new turn fails, the next try is not a repeat.
            key: None,
            action: "session.regenerate",
        };
        let target = if goes_on {
            RewindTarget::GoOn { number: before }
        } else {
            RewindTarget::Regenerate { number: before }
        };
        let caller = SessionCaller::Regenerate { before, line, reply };
        self.enqueue_rewind(target, requester, caller, ctx);
    }

    /// Returns the number of the last turn, if a new turn may take its place now.
    fn check_regeneration_allowed(&self, if_head: Option<u32>, key: Option<&str>) -> Result<u32, DialogueError> {
        if self.is_draining() {
            return Err(DialogueError::Draining);
        }
        let head_turn = self.check_rewind_allowed(if_head)?;
        // Simultaneous callers with the same key get the same turn.
        let has_other_rewind = self.rewinds.is_busy() && !self.is_regenerating(key);
        if self.running.is_some() || !self.kind.queue.is_empty() || has_other_rewind {
            return Err(DialogueError::TurnInProgress {
                retry_after: self.last_turn_took,
            });
        }
        // Checked before the rewind: without a budget the turn would only be reinstated.
        let player = self.state.loaded().and_then(|loaded| loaded.player.as_ref());
        self.node.ports.budgets.check_turn(self.key.0.tenant(), player)?;
        Ok(head_turn)
    }

    /// True if a regeneration with the given key is queued.
    fn is_regenerating(&self, key: Option<&str>) -> bool {
        let has_key = |caller: &SessionCaller| matches!(caller, SessionCaller::Regenerate { line, .. } if line.key.as_deref() == key);
        key.is_some() && self.rewinds.queue.callers().any(has_key)
    }

    pub(super) fn on_resume(
        &mut self,
        command: ResumeCommand,
        reply: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        let Some(key) = command.key.clone() else {
            return self.resume_cut_reply(command, reply, ctx);
        };
        let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
        let look = async move { ports.ledger.rewinds.load_outcome_by_key(&scope, id, &key).await };
        ctx.spawn(look.into_actor(self).map(move |outcome, session, ctx| {
            let Some(loaded) = session.state.loaded() else {
                let retry = SessionRequest::Resume { command, reply };
                return session.deferred.requests.push_back(retry);
            };
            match outcome {
                // The continuation failed and the cut turn stands again: the request is a new try.
                Ok(Some(InterruptOutcome::Rewound(outcome)))
                    if outcome.replacing.is_some() && outcome.replacing == loaded.head =>
                {
                    session.resume_cut_reply(ResumeCommand { key: None, ..command }, reply, ctx);
                }
                Ok(Some(outcome)) => reply.answer(Ok(outcome)),
                Ok(None) => session.resume_cut_reply(command, reply, ctx),
                Err(error) => reply.answer(Err(error.into())),
            }
        }));
    }

    fn resume_cut_reply(
        &mut self,
        command: ResumeCommand,
        reply: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        if let Err(error) = self.check_rewind_allowed(None) {
            return reply.answer(Err(error));
        }
        if self.is_draining() {
            return reply.answer(Err(DialogueError::Draining));
        }
        // Simultaneous callers get the same answer.
        let is_resuming = |caller: &SessionCaller| matches!(caller, SessionCaller::Resume { .. });
        let has_other_rewind = self.rewinds.is_busy() && !self.rewinds.queue.callers().any(is_resuming);
        if self.running.is_some() || !self.kind.queue.is_empty() || has_other_rewind {
            return reply.answer(Err(DialogueError::NothingToResume));
        }
        let ResumeCommand {
            key,
            re,
            who,
            may_continue,
        } = command;
        let requester = Requester {
            who,
            key,
            action: "session.resume",
        };
        self.enqueue_rewind(
            RewindTarget::Resume { may_continue },
            requester,
            SessionCaller::Resume { re, reply },
            ctx,
        );
    }
}
