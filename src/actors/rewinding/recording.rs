//! Records of rewind requests. The ledger stores each key with its answer, so that a repeated request removes no later
//! turn. The audit log stores the callers.

use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, fut::wrap_future};

use crate::{
    actors::{
        InterruptCommand, InterruptOutcome,
        messages::{DialogueKey, ReplyHandle},
        node::Node,
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

/// Callers answered with a rewind that was written without them.
#[derive(Debug, Default)]
pub(in crate::actors) struct LateCallers {
    pub keys: Vec<String>,
    /// The callers and their actions.
    pub asked: Vec<(Principal, &'static str)>,
}

impl LateCallers {
    /// Adds a caller. A repeat with the same key counts once.
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

/// Stores the late callers' answer and audit entries, since no rewind of their own does. Both are written, or none.
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

/// Returns the callers to answer after the late callers were recorded, or failed to be. On a failure, rewind callers
/// get the error and must retry: a repeated key that is not stored would remove later turns.
pub(in crate::actors) fn callers_if_recorded<A>(
    kept: Result<(), StoreError>,
    (_, dialogue): &DialogueKey,
    callers: Vec<A>,
    back: impl Fn(A) -> Result<ReplyHandle<InterruptOutcome>, A>,
) -> Vec<A> {
    let Err(error) = kept else { return callers };
    tracing::warn!(%dialogue, %error, "who else asked for a move could not be kept");
    let refuse = |caller| match back(caller) {
        Ok(reply) => {
            reply.answer(Err(error.clone().into()));
            None
        }
        Err(other) => Some(other),
    };
    callers.into_iter().filter_map(refuse).collect()
}

/// Answers with `told`. A key is first stored with its outcome, so that a repeat removes no later turn.
pub(in crate::actors) fn record_and_answer<A: Actor<Context = Context<A>>>(
    node: &Arc<Node>,
    dialogue: &DialogueKey,
    key: Option<String>,
    (told, outcome): (InterruptOutcome, Arc<RewindRecord>),
    reply: ReplyHandle<InterruptOutcome>,
    ctx: &mut Context<A>,
) {
    match key {
        Some(key) => record_then_answer(
            node,
            dialogue,
            LateCallers::from(vec![key]),
            (told, outcome),
            reply,
            ctx,
        ),
        None => reply.answer(Ok(told)),
    }
}

/// As [`record_and_answer`], for a turn cut before the first character of its reply: no commit wrote the audit log.
pub(in crate::actors) fn record_dropped_cut<A: Actor<Context = Context<A>>>(
    node: &Arc<Node>,
    dialogue: &DialogueKey,
    command: InterruptCommand,
    action: &'static str,
    outcome: Arc<RewindRecord>,
    reply: ReplyHandle<InterruptOutcome>,
    ctx: &mut Context<A>,
) {
    let turn = outcome.head_turn;
    let late = LateCallers {
        keys: command.key.into_iter().collect(),
        asked: vec![(command.who, action)],
    };
    record_then_answer(
        node,
        dialogue,
        late,
        (InterruptOutcome::Cut { turn }, outcome),
        reply,
        ctx,
    );
}

fn record_then_answer<A: Actor<Context = Context<A>>>(
    node: &Arc<Node>,
    dialogue: &DialogueKey,
    late: LateCallers,
    (told, outcome): (InterruptOutcome, Arc<RewindRecord>),
    reply: ReplyHandle<InterruptOutcome>,
    ctx: &mut Context<A>,
) {
    let kept = record_outcome(Arc::clone(node), dialogue.clone(), late, outcome, OnKeyConflict::Keep);
    ctx.spawn(wrap_future(async move {
        match kept.await {
            Ok(()) => reply.answer(Ok(told)),
            Err(error) => reply.answer(Err(error.into())),
        }
    }));
}
