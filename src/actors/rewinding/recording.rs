//! What is kept of those who asked to take a dialogue back: with their keys what they were told, so that to ask again takes
//! nothing back that is said later; and in the audit log that they asked.

use std::{ops::ControlFlow, sync::Arc};

use actix::{Actor, AsyncContext, Context, fut::wrap_future};

use crate::{
    actors::{
        InterruptCommand, InterruptOutcome,
        messages::ReplyHandle,
        registry::{DialogueKey, Node},
    },
    ports::{
        StoreError,
        ledger::{
            audit::Edit,
            rewinds::{OnKeyConflict, RewindAcks, RewindRecord},
        },
    },
    tenancy::Principal,
};

/// Those who are told of a move that was written without them.
#[derive(Debug, Default)]
pub(in crate::actors) struct LateCallers {
    pub keys: Vec<String>,
    /// Who asked, and for what.
    pub asked: Vec<(Principal, &'static str)>,
}

impl LateCallers {
    /// One more. Whoever asks again with the same key has asked once.
    pub fn add_caller(&mut self, key: Option<String>, asked: Option<(Principal, &'static str)>) {
        if key.as_ref().is_some_and(|key| self.keys.contains(key)) {
            return;
        }
        self.keys.extend(key);
        self.asked.extend(asked);
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.asked.is_empty()
    }
}

impl From<Vec<String>> for LateCallers {
    fn from(keys: Vec<String>) -> Self {
        Self {
            keys,
            asked: Vec::new(),
        }
    }
}

/// Keeps what these are told, since no move of their own does, and that they asked: both, or nothing.
pub(in crate::actors) async fn record_outcome(
    node: Arc<Node>,
    (scope, dialogue): DialogueKey,
    late: LateCallers,
    outcome: Arc<RewindRecord>,
    known: OnKeyConflict,
) -> Result<(), StoreError> {
    let ports = &node.ports;
    let edit = |(who, action)| Edit::made_by(&who, &ports.ids, ports.clock.now(), action, dialogue);
    let told = RewindAcks {
        edits: late.asked.into_iter().map(edit).collect(),
        keys: late.keys.into_iter().map(|key| (ports.ids.next_id(), key)).collect(),
    };
    ports
        .ledger
        .rewinds
        .record_outcome(&scope, dialogue, &told, &outcome, known)
        .await
}

/// Those who may be told of a move, once what was owed to those who came late is kept, or could not be. Whoever asked to take
/// the dialogue back asks again, then: a key that is not kept would take back what is said later.
pub(in crate::actors) fn callers_if_recorded<A>(
    kept: Result<(), StoreError>,
    (_, dialogue): &DialogueKey,
    callers: Vec<A>,
    back: impl Fn(A) -> ControlFlow<ReplyHandle<InterruptOutcome>, A>,
) -> Vec<A> {
    let Err(error) = kept else { return callers };
    tracing::warn!(%dialogue, %error, "who else asked for a move could not be kept");
    let refuse = |caller| match back(caller) {
        ControlFlow::Break(ask) => {
            ask.answer(Err(error.clone().into()));
            None
        }
        ControlFlow::Continue(other) => Some(other),
    };
    callers.into_iter().filter_map(refuse).collect()
}

/// Answers with `told`; first, a key is kept with the outcome it stands for, so that it takes back nothing that
/// is said later.
pub(in crate::actors) fn record_and_answer<A: Actor<Context = Context<A>>>(
    node: &Arc<Node>,
    dialogue: &DialogueKey,
    key: Option<String>,
    (told, outcome): (InterruptOutcome, Arc<RewindRecord>),
    ask: ReplyHandle<InterruptOutcome>,
    ctx: &mut Context<A>,
) {
    match key {
        Some(key) => record_then_answer(node, dialogue, LateCallers::from(vec![key]), (told, outcome), ask, ctx),
        None => ask.answer(Ok(told)),
    }
}

/// As [`record_and_answer`], of a turn that was cut before the first character of its reply: no commit has told the audit log of it.
pub(in crate::actors) fn record_dropped_cut<A: Actor<Context = Context<A>>>(
    node: &Arc<Node>,
    dialogue: &DialogueKey,
    wish: InterruptCommand,
    action: &'static str,
    outcome: Arc<RewindRecord>,
    ask: ReplyHandle<InterruptOutcome>,
    ctx: &mut Context<A>,
) {
    let turn = outcome.head_turn;
    let late = LateCallers {
        keys: wish.key.into_iter().collect(),
        asked: vec![(wish.who, action)],
    };
    record_then_answer(
        node,
        dialogue,
        late,
        (InterruptOutcome::Cut { turn }, outcome),
        ask,
        ctx,
    );
}

fn record_then_answer<A: Actor<Context = Context<A>>>(
    node: &Arc<Node>,
    dialogue: &DialogueKey,
    late: LateCallers,
    (told, outcome): (InterruptOutcome, Arc<RewindRecord>),
    ask: ReplyHandle<InterruptOutcome>,
    ctx: &mut Context<A>,
) {
    let kept = record_outcome(Arc::clone(node), dialogue.clone(), late, outcome, OnKeyConflict::Keep);
    ctx.spawn(wrap_future(async move {
        match kept.await {
            Ok(()) => ask.answer(Ok(told)),
            Err(error) => ask.answer(Err(error.into())),
        }
    }));
}
