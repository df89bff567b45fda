//! Regenerated replies, and resumed replies that were cut.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{RewindCaller, Session, SessionPhase, SessionRequest};
use crate::{
    actors::{
        AcceptedLine, DialogueError, InterruptOutcome, OnBusy, PlayerLine, ResumeCommand, messages::ReplyHandle,
        rewinding,
    },
    dialogue::rewind::RewindTarget,
    ids::TurnId,
    tenancy::Principal,
};

impl Session {
    pub(in crate::actors::session) fn on_regenerate(
        &mut self,
        key: Option<String>,
        if_head: Option<u32>,
        re: Option<Arc<str>>,
        who: Principal,
        ask: ReplyHandle<AcceptedLine>,
        ctx: &mut Context<Self>,
    ) {
        let Some(known) = key.clone() else {
            return self.regenerate_last_turn(None, if_head, re, who, ask, ctx);
        };
        let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
        let look = async move { ports.ledger.dialogues.load_turn_by_key(&scope, id, &known).await };
        ctx.spawn(look.into_actor(self).map(move |found, session, ctx| match found {
            Ok(Some(found)) if found.stands => ask.answer(Ok(AcceptedLine::Repeated(Arc::new(found.turn)))),
            // The key may belong to a cut reply that is being continued.
            Ok(Some(_)) => {
                if let Some(ask) = session.join_turn_with_key(key.as_deref(), ask) {
                    ask.answer(Err(DialogueError::TurnUnsaid));
                }
            }
            Ok(None) if key.as_deref().is_some_and(|key| session.keys.is_unsaid(key)) => {
                ask.answer(Err(DialogueError::TurnUnsaid));
            }
            Ok(None) if matches!(session.phase, SessionPhase::Loading) => {
                let again = SessionRequest::Regenerate {
                    key,
                    if_head,
                    re,
                    who,
                    ask,
                };
                session.early.push_back(again);
            }
            Ok(None) => session.regenerate_last_turn(key, if_head, re, who, ask, ctx),
            Err(error) => ask.answer(Err(error.into())),
        }));
    }

    fn regenerate_last_turn(
        &mut self,
        key: Option<String>,
        if_head: Option<u32>,
        re: Option<Arc<str>>,
        who: Principal,
        ask: ReplyHandle<AcceptedLine>,
        ctx: &mut Context<Self>,
    ) {
        let Some(ask) = self.join_turn_with_key(key.as_deref(), ask) else {
            return;
        };
        if self.drained.is_some() || self.node.is_draining() {
            return ask.answer(Err(DialogueError::Draining));
        }
        let head_turn = match self.check_rewind_allowed(if_head) {
            Ok(head_turn) => head_turn,
            Err(error) => return ask.answer(Err(error)),
        };
        // Simultaneous callers with the same key get the same turn.
        let other = self.rewinds.is_busy() && !self.rewinds.is_regenerating(key.as_deref());
        if self.running.is_some() || !self.queue.is_empty() || other {
            return ask.answer(Err(DialogueError::TurnInProgress {
                retry_after: self.last_turn_took,
            }));
        }
        // Checked before the rewind: without a budget the turn would only be reinstated.
        if let Err(over) = self.node.ports.budgets.check_turn(self.key.0.tenant()) {
            return ask.answer(Err(over.into()));
        }
        let SessionPhase::Ready(loaded) = &self.phase else {
            return;
        };
        let Some(last) = loaded.history.last().filter(|turn| turn.number == head_turn) else {
            return ask.answer(Err(DialogueError::NothingToRegenerate));
        };
        let line = PlayerLine {
            text: last.player_text.clone(),
            to: Some(last.npc.clone()),
            key,
            on_busy: OnBusy::Queue,
            re,
            who: None,
        };
        let before = head_turn - 1;
        // Only the new turn gets the key: if the new turn fails, the next try is not a repeat.
        let target = RewindTarget::Regenerate { number: before };
        let caller = RewindCaller::Regenerate { before, line, ask };
        self.enqueue_rewind(target, None, who, "session.regenerate", caller, ctx);
    }

    /// Reinstates a turn whose replacement failed. `false`: the reinstatement was just tried and the ledger did not
    /// answer.
    pub(in crate::actors::session) fn reinstate_turn(&mut self, turn: TurnId, ctx: &mut Context<Self>) -> bool {
        if self.rewinds.reinstating.replace(turn) == Some(turn) {
            tracing::error!(dialogue = %self.key.1, %turn, "a turn that was to be said anew could not be put back");
            return false;
        }
        let who = rewinding::server_principal(&self.key.0);
        let target = RewindTarget::Reinstate { turn };
        self.enqueue_rewind(target, None, who, "session.put_back", RewindCaller::Reinstate, ctx);
        true
    }

    /// True if a turn was rewound for a replacement that is not committed yet.
    pub(in crate::actors::session) fn has_pending_replacement(&self) -> bool {
        matches!(&self.phase, SessionPhase::Ready(loaded) if loaded.replacing.is_some())
    }

    pub(in crate::actors::session) fn on_resume(
        &mut self,
        wish: ResumeCommand,
        ask: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        let Some(key) = wish.key.clone() else {
            return self.resume_cut_reply(wish, ask, ctx);
        };
        let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
        let look = async move { ports.ledger.rewinds.load_rewind_by_key(&scope, id, &key).await };
        ctx.spawn(look.into_actor(self).map(move |known, session, ctx| {
            let SessionPhase::Ready(loaded) = &session.phase else {
                return session.early.push_back(SessionRequest::Resume { wish, ask });
            };
            match known {
                // The continuation failed and the cut turn stands again: the request is a new try.
                Ok(Some(known)) if known.replacing.is_some() && known.replacing == loaded.head => {
                    session.resume_cut_reply(ResumeCommand { key: None, ..wish }, ask, ctx);
                }
                Ok(Some(known)) => ask.answer(Ok(rewinding::repeated_outcome(known))),
                Ok(None) => session.resume_cut_reply(wish, ask, ctx),
                Err(error) => ask.answer(Err(error.into())),
            }
        }));
    }

    fn resume_cut_reply(&mut self, wish: ResumeCommand, ask: ReplyHandle<InterruptOutcome>, ctx: &mut Context<Self>) {
        if let Err(error) = self.check_rewind_allowed(None) {
            return ask.answer(Err(error));
        }
        if self.drained.is_some() || self.node.is_draining() {
            return ask.answer(Err(DialogueError::Draining));
        }
        // Simultaneous callers get the same answer.
        let other = self.rewinds.is_busy() && !self.rewinds.resuming;
        if self.running.is_some() || !self.queue.is_empty() || other {
            return ask.answer(Err(DialogueError::NothingToResume));
        }
        self.rewinds.resuming = true;
        let ResumeCommand { key, re, who } = wish;
        let caller = RewindCaller::Resume { re, ask };
        self.enqueue_rewind(RewindTarget::Resume, key, who, "session.resume", caller, ctx);
    }
}
