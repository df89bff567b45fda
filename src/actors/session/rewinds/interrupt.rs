//! Interrupt and rewind requests: cuts of the running reply, cuts and rewinds of earlier turns. Idempotency keys ensure
//! that a repeated request removes no later turn.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::{BeginRewind, RewindCaller, Session, SessionPhase, SessionRequest};
use crate::{
    actors::{
        DialogueError, HeardLength, InterruptCommand, InterruptOutcome,
        messages::ReplyHandle,
        rewinding::{self, CutOutcome, LateCallers, PendingCut},
    },
    dialogue::{rewind::RewindTarget, turn::CutRequester},
    ports::ledger::rewinds::{OnKeyConflict, RewindRecord},
};

impl Session {
    pub(in crate::actors::session) fn on_interrupt(
        &mut self,
        wish: InterruptCommand,
        ask: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        self.with_idempotency_check(
            wish,
            ask,
            ctx,
            |wish, ask| SessionRequest::Interrupt { wish, ask },
            Self::cut_or_rewind,
        );
    }

    pub(in crate::actors::session) fn on_rewind(
        &mut self,
        wish: InterruptCommand,
        ask: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        self.with_idempotency_check(
            wish,
            ask,
            ctx,
            |wish, ask| SessionRequest::Rewind { wish, ask },
            Self::rewind_to,
        );
    }

    /// Answers a repeated key with the stored outcome; otherwise continues with `then`.
    fn with_idempotency_check(
        &mut self,
        wish: InterruptCommand,
        ask: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
        again: fn(InterruptCommand, ReplyHandle<InterruptOutcome>) -> SessionRequest,
        then: fn(&mut Self, InterruptCommand, ReplyHandle<InterruptOutcome>, &mut Context<Self>),
    ) {
        let Some(key) = wish.key.clone() else {
            return then(self, wish, ask, ctx);
        };
        let (ports, (scope, id)) = (self.node.ports.clone(), self.key.clone());
        let look = async move { ports.ledger.rewinds.load_rewind_by_key(&scope, id, &key).await };
        self.rewinds.preparing += 1;
        ctx.spawn(look.into_actor(self).map(move |known, session, ctx| {
            session.rewinds.preparing -= 1;
            match known {
                Ok(Some(rewound)) => ask.answer(Ok(rewinding::repeated_outcome(rewound))),
                Ok(None) if matches!(session.phase, SessionPhase::Loading) => session.early.push_back(again(wish, ask)),
                Ok(None) => then(session, wish, ask, ctx),
                Err(error) => ask.answer(Err(error.into())),
            }
            if session.rewinds.is_busy() {
                ctx.notify(BeginRewind);
            }
            session.start_next_if_idle(ctx);
        }));
    }

    /// Checks that the dialogue can be rewound and that the caller knows its head. Returns the head.
    pub(super) fn check_rewind_allowed(&self, if_head: Option<u32>) -> Result<u32, DialogueError> {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return Err(self.overloaded_error());
        };
        if loaded.closed || self.closing.is_some() {
            return Err(DialogueError::Closed);
        }
        let head_turn = loaded.dialogue.head_turn;
        let running = self.running.as_ref().map(|running| running.number);
        match if_head {
            Some(known) if known != head_turn && Some(known) != running => Err(DialogueError::StaleHead { head_turn }),
            _ => Ok(head_turn),
        }
    }

    pub(super) fn overloaded_error(&self) -> DialogueError {
        DialogueError::Overloaded {
            retry_after: self.last_turn_took,
        }
    }

    pub(super) fn cut_or_rewind(
        &mut self,
        wish: InterruptCommand,
        ask: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        let head_turn = match self.check_rewind_allowed(wish.if_head) {
            Ok(head_turn) => head_turn,
            Err(error) => return ask.answer(Err(error)),
        };
        if self.needs_reinstated_turn(&wish, head_turn) {
            return self.defer_until_reinstated(SessionRequest::Interrupt { wish, ask }, ctx);
        }
        if let Some(rewound) = self.last_rewind_to(&wish) {
            return self.record_and_answer(
                wish.key,
                InterruptOutcome::Rewound(Arc::clone(&rewound)),
                rewound,
                ask,
                ctx,
            );
        }
        let running = self.running.as_ref().map(|running| running.number);
        let replying = self.log.replying_turn().filter(|number| Some(*number) == running);
        if replying.is_some_and(|number| wish.turn.is_none_or(|turn| turn == number)) {
            // Counted in the text sent so far, as the client counted.
            let heard = wish.heard.map(|heard| self.log.heard_scalar_count(heard));
            let by = CutRequester {
                who: wish.who.clone(),
                key: wish.key.clone(),
                action: "session.interrupt",
            };
            let mut others = self.rewinds.pending_cuts.iter();
            // A repeated cut is answered together with the first cut.
            if wish.key.is_none() || others.all(|other| other.wish.key != wish.key) {
                self.cut_running_turn(heard, Some(by));
            }
            return self.push_pending_cut(heard, true, wish, ask);
        }
        match (running, wish.turn) {
            (Some(number), turn) if turn.is_none_or(|turn| turn == number) && wish.heard.is_some() => {
                // The whole reply was sent and is being committed; the cut follows the commit.
                let heard = wish.heard.map(|heard| self.log.heard_scalar_count(heard));
                self.push_pending_cut(heard, false, wish, ask);
            }
            (_, None) => self.record_and_answer_idle(wish.key, ask, ctx),
            (Some(number), Some(turn)) if turn == number => self.record_and_answer_idle(wish.key, ask, ctx),
            (_, Some(turn)) if turn > head_turn => match self.last_rewind_removing(turn) {
                Some(rewound) => self.record_and_answer(
                    wish.key,
                    InterruptOutcome::Rewound(Arc::clone(&rewound)),
                    rewound,
                    ask,
                    ctx,
                ),
                None => ask.answer(Err(DialogueError::NotRunning { turn })),
            },
            (_, Some(turn)) => match self.heard_chars_of(turn, wish.heard) {
                Ok(heard) => self.enqueue_turn_rewind(Some(turn), heard, wish, "session.interrupt", ask, ctx),
                Err(error) => ask.answer(Err(error)),
            },
        }
    }

    fn push_pending_cut(
        &mut self,
        heard: Option<usize>,
        noted: bool,
        wish: InterruptCommand,
        ask: ReplyHandle<InterruptOutcome>,
    ) {
        match &self.running {
            Some(running) => {
                let cut = PendingCut::of_running_turn(running, heard, noted, wish, ask);
                self.rewinds.pending_cuts.push(cut);
            }
            None => ask.answer(Err(self.overloaded_error())),
        }
    }

    /// Resolves a cut after the end of its turn. A reply that had ended before the cut is cut at the heard length.
    pub(super) fn resolve_cut(&mut self, cut: PendingCut, ctx: &mut Context<Self>) {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return cut.ask.answer(Err(self.overloaded_error()));
        };
        let came = cut.outcome(loaded, &self.node);
        let PendingCut { number, wish, ask, .. } = cut;
        match came {
            CutOutcome::TooLate(heard) => {
                self.enqueue_turn_rewind(Some(number), Some(heard), wish, "session.interrupt", ask, ctx);
            }
            CutOutcome::Dropped(outcome) => {
                rewinding::record_dropped_cut(&self.node, &self.key, wish, "session.interrupt", outcome, ask, ctx);
            }
            CutOutcome::Answered(told, outcome) => self.record_and_answer(wish.key, told, outcome, ask, ctx),
        }
    }

    fn record_and_answer(
        &self,
        key: Option<String>,
        told: InterruptOutcome,
        outcome: Arc<RewindRecord>,
        ask: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        rewinding::record_and_answer(&self.node, &self.key, key, (told, outcome), ask, ctx);
    }

    /// Stores the keys of cuts without effect, because the reply had ended or never began. A repeated key then cuts no
    /// later turn.
    pub(in crate::actors::session) fn record_cut_keys(&self, mut keys: Vec<String>, ctx: &mut Context<Self>) {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return;
        };
        // Keys of waiting callers are stored with their answers.
        keys.retain(|key| {
            self.rewinds
                .pending_cuts
                .iter()
                .all(|cut| cut.wish.key.as_ref() != Some(key))
        });
        if keys.is_empty() {
            return;
        }
        self.record_late_cuts(keys.into(), loaded.unchanged_outcome(&self.node), ctx);
    }

    /// Records the outcome of cuts without waiting callers.
    pub(super) fn record_late_cuts(&self, late: LateCallers, outcome: RewindRecord, ctx: &mut Context<Self>) {
        if late.is_empty() {
            return;
        }
        let (node, key, known) = (Arc::clone(&self.node), self.key.clone(), OnKeyConflict::Keep);
        let kept = rewinding::record_outcome(node, key, late, Arc::new(outcome), known);
        ctx.spawn(kept.into_actor(self).map(|kept, session, _| {
            if let Err(error) = kept {
                tracing::warn!(dialogue = %session.key.1, %error, "what cuts came to could not be kept");
            }
        }));
    }

    fn record_and_answer_idle(&self, key: Option<String>, ask: ReplyHandle<InterruptOutcome>, ctx: &mut Context<Self>) {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return ask.answer(Err(self.overloaded_error()));
        };
        let outcome = loaded.unchanged_outcome(&self.node);
        let told = InterruptOutcome::Idle {
            head_turn: outcome.head_turn,
        };
        self.record_and_answer(key, told, Arc::new(outcome), ask, ctx);
    }

    fn heard_chars_of(&self, turn: u32, heard: Option<HeardLength>) -> Result<Option<usize>, DialogueError> {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return Err(self.overloaded_error());
        };
        loaded.heard_chars_of(turn, heard)
    }

    fn rewind_to(&mut self, wish: InterruptCommand, ask: ReplyHandle<InterruptOutcome>, ctx: &mut Context<Self>) {
        let head_turn = match self.check_rewind_allowed(wish.if_head) {
            Ok(head_turn) => head_turn,
            Err(error) => return ask.answer(Err(error)),
        };
        if self.needs_reinstated_turn(&wish, head_turn) {
            return self.defer_until_reinstated(SessionRequest::Rewind { wish, ask }, ctx);
        }
        if let Some(rewound) = self.last_rewind_to(&wish) {
            return self.record_and_answer(
                wish.key,
                InterruptOutcome::Rewound(Arc::clone(&rewound)),
                rewound,
                ask,
                ctx,
            );
        }
        match wish.turn {
            Some(turn) if turn > head_turn => match self.last_rewind_removing(turn) {
                Some(rewound) => self.record_and_answer(
                    wish.key,
                    InterruptOutcome::Rewound(Arc::clone(&rewound)),
                    rewound,
                    ask,
                    ctx,
                ),
                None => ask.answer(Err(DialogueError::NoSuchTurn { turn, head_turn })),
            },
            turn => self.enqueue_turn_rewind(turn, None, wish, "session.rewind", ask, ctx),
        }
    }

    /// True if the requested last turn was rewound only for a replacement, or if the last turn is about to change.
    fn needs_reinstated_turn(&self, wish: &InterruptCommand, head_turn: u32) -> bool {
        let owed = self.running.is_none() && self.has_pending_replacement() && wish.turn == Some(head_turn + 1);
        owed || self.rewinds.intents.is_replacing()
    }

    /// Reinstates the interrupted turn before `request` runs. The replacement line is cancelled, because the interrupt
    /// applies to the original turn.
    fn defer_until_reinstated(&mut self, request: SessionRequest, ctx: &mut Context<Self>) {
        self.early.push_back(request);
        if !self.rewinds.intents.is_replacing() {
            self.drop_replacements(|_| false);
            self.start_loading(ctx);
        }
    }

    /// Returns the last rewind, if its target equals the wish.
    fn last_rewind_to(&self, wish: &InterruptCommand) -> Option<Arc<RewindRecord>> {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return None;
        };
        // A turn with a pending replacement is not gone for good.
        let idle = self.running.is_none() && !self.rewinds.is_busy() && !self.has_pending_replacement();
        self.rewinds.recent.last_with_target(wish, loaded.head).filter(|_| idle)
    }

    /// Returns the last rewind, if it removed `turn` and no turn was said since.
    fn last_rewind_removing(&self, turn: u32) -> Option<Arc<RewindRecord>> {
        let SessionPhase::Ready(loaded) = &self.phase else {
            return None;
        };
        self.rewinds.recent.last_removing(turn, loaded.head)
    }

    fn enqueue_turn_rewind(
        &mut self,
        turn: Option<u32>,
        heard_chars: Option<usize>,
        wish: InterruptCommand,
        action: &'static str,
        ask: ReplyHandle<InterruptOutcome>,
        ctx: &mut Context<Self>,
    ) {
        let target = RewindTarget::Turn {
            number: turn.unwrap_or_default(),
            heard_chars,
        };
        self.enqueue_rewind(target, wish.key, wish.who, action, RewindCaller::Rewind(ask), ctx);
    }
}
