//! What is kept of those who asked to take a dialogue back: with their keys what they were told, so that to ask again takes
//! nothing back that is said later; and in the audit log that they asked.

use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, fut::wrap_future};

use crate::{
    actors::{
        Interrupted, TakeBack,
        handle::Ask,
        registry::{Node, SessionKey},
    },
    ports::{
        StoreError,
        ledger::{
            audit::Edit,
            rewinds::{KnownKeys, Rewound},
        },
    },
    tenancy::Principal,
};

/// Those who are told of a move that was written without them.
#[derive(Debug, Default)]
pub(in crate::actors) struct Late {
    pub keys: Vec<String>,
    /// Who asked, and for what.
    pub asked: Vec<(Principal, &'static str)>,
}

impl Late {
    /// One more. Whoever asks again with the same key has asked once.
    pub fn add(&mut self, key: Option<String>, asked: Option<(Principal, &'static str)>) {
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

impl From<Vec<String>> for Late {
    fn from(keys: Vec<String>) -> Self {
        Self {
            keys,
            asked: Vec::new(),
        }
    }
}

/// Keeps what these are told, since no move of their own does, and that they asked.
pub(in crate::actors) async fn note(
    node: Arc<Node>,
    (scope, dialogue): SessionKey,
    late: Late,
    outcome: Arc<Rewound>,
    known: KnownKeys,
) -> Result<(), StoreError> {
    let ports = &node.ports;
    for (who, action) in &late.asked {
        let edit = Edit::by(who, &ports.ids, ports.clock.now(), action, dialogue);
        ports.ledger.audit.append(&scope, &edit).await?;
    }
    if late.keys.is_empty() {
        return Ok(());
    }
    let keys: Vec<_> = late.keys.into_iter().map(|key| (ports.ids.next(), key)).collect();
    ports
        .ledger
        .rewinds
        .note_keys(&scope, dialogue, &keys, &outcome, known)
        .await
}

/// Answers with `told`; first, a key is kept with the outcome it stands for, so that it takes back nothing that
/// is said later.
pub(in crate::actors) fn keep<A: Actor<Context = Context<A>>>(
    node: &Arc<Node>,
    dialogue: &SessionKey,
    key: Option<String>,
    (told, outcome): (Interrupted, Arc<Rewound>),
    ask: Ask<Interrupted>,
    ctx: &mut Context<A>,
) {
    match key {
        Some(key) => noted(node, dialogue, Late::from(vec![key]), (told, outcome), ask, ctx),
        None => ask.answer(Ok(told)),
    }
}

/// As [`keep`], of a turn that was cut before the first character of its reply: no commit has told the audit log of it.
pub(in crate::actors) fn keep_dropped<A: Actor<Context = Context<A>>>(
    node: &Arc<Node>,
    dialogue: &SessionKey,
    wish: TakeBack,
    action: &'static str,
    outcome: Arc<Rewound>,
    ask: Ask<Interrupted>,
    ctx: &mut Context<A>,
) {
    let turn = outcome.head_turn;
    let late = Late {
        keys: wish.key.into_iter().collect(),
        asked: vec![(wish.who, action)],
    };
    noted(node, dialogue, late, (Interrupted::Cut { turn }, outcome), ask, ctx);
}

fn noted<A: Actor<Context = Context<A>>>(
    node: &Arc<Node>,
    dialogue: &SessionKey,
    late: Late,
    (told, outcome): (Interrupted, Arc<Rewound>),
    ask: Ask<Interrupted>,
    ctx: &mut Context<A>,
) {
    let kept = note(Arc::clone(node), dialogue.clone(), late, outcome, KnownKeys::Stay);
    ctx.spawn(wrap_future(async move {
        match kept.await {
            Ok(()) => ask.answer(Ok(told)),
            Err(error) => ask.answer(Err(error.into())),
        }
    }));
}
