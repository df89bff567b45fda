//! Requests to rewind a dialogue. The queue collects requests during a rewind, so that simultaneous callers get one
//! outcome: the rewind to the lowest turn. The module also has the common steps before and after a rewind. Sessions and
//! NPC conversations both use the module; `dialogue::rewind` moves the head.

mod pending_cut;
mod recording;

use std::{collections::BTreeSet, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures_util::FutureExt;

use super::{
    DialogueError, InterruptCommand, InterruptOutcome,
    dialogue::{due_jobs::make_jobs_due, load::LoadedDialogue},
    messages::{ClosedInLedger, CuratorRequest, DialogueKey, ReplyHandle},
    metrics::FencedWrite,
    node::Node,
    running_turn::RunningTurn,
};
use colloquy_core::{
    ids::{DialogueId, DialogueKind, TurnId},
    scope::{Principal, Role, TenantScope},
};
use colloquy_dialogue::{
    requester::{LateRequesters, Requester, Requesters},
    rewind::{DialogueTiers, OwnedDialogue, RewindError, RewindRequest, RewindResponse, RewindTarget},
    turn::{CommittedTurn, TurnError},
};
use colloquy_memory::turn::TurnStatus;
use colloquy_ports::{StoreError, ledger::rewinds::RewindRecord, peers::Notice};

pub(super) use pending_cut::{CutOutcome, PendingCut};
pub(super) use recording::{callers_if_recorded, record_outcome};

/// Retry delay for a caller whose dialogue is on another node or has changed meanwhile.
pub(super) const REWIND_RETRY_AFTER: Duration = Duration::from_millis(200);

/// A rewind request with its caller.
pub(super) struct RewindIntent<A> {
    pub target: RewindTarget,
    pub requester: Requester,
    pub caller: A,
}

/// The rewind requests of a dialogue.
pub(super) struct RewindQueue<A> {
    /// Requests that no rewind serves yet.
    waiting: Vec<RewindIntent<A>>,
    /// Callers that get the outcome once no request is left.
    callers: Vec<A>,
    /// Callers served by an earlier rewind that was written without them.
    late: LateRequesters,
    /// Keys written with the running rewind.
    written_keys: Vec<String>,
    under_way: Option<RewindTarget>,
}

impl<A> Default for RewindQueue<A> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            callers: Vec::new(),
            late: LateRequesters::default(),
            written_keys: Vec::new(),
            under_way: None,
        }
    }
}

impl<A> RewindQueue<A> {
    /// True if a rewind is queued or running: the dialogue may start no other work then.
    pub fn is_busy(&self) -> bool {
        self.under_way.is_some() || !self.waiting.is_empty()
    }

    /// True if the last turn is being reinstated, regenerated or resumed. The last turn is known only afterwards.
    pub fn is_replacing(&self) -> bool {
        let goes_for_good = |target: &RewindTarget| matches!(target, RewindTarget::Turn { .. });
        let puts_back = |intent: &RewindIntent<A>| matches!(intent.target, RewindTarget::Reinstate { .. });
        self.under_way.is_some_and(|target| !goes_for_good(&target)) || self.waiting.iter().any(puts_back)
    }

    pub fn push_intent(&mut self, intent: RewindIntent<A>) {
        self.waiting.push(intent);
    }

    /// Returns all callers that wait for an answer.
    pub fn callers(&self) -> impl Iterator<Item = &A> {
        self.callers
            .iter()
            .chain(self.waiting.iter().map(|intent| &intent.caller))
    }

    /// Returns the callers that get the outcome of the running rewind.
    pub fn served_callers(&mut self) -> &mut Vec<A> {
        &mut self.callers
    }

    /// Adds a caller that gets the outcome of the running rewind.
    pub fn add_served_caller(&mut self, caller: A) {
        self.callers.push(caller);
    }

    /// Starts the lowest of the queued rewinds, which serves all requests so far. `None`: a rewind is running, or the
    /// queue is empty.
    ///
    /// A replaced turn is reinstated by a separate rewind: if the first rewind fails, the reinstatement is still
    /// queued.
    pub fn begin_next(&mut self) -> Option<(RewindTarget, Requesters)> {
        if self.under_way.is_some() {
            return None;
        }
        let puts_back = |intent: &RewindIntent<A>| matches!(intent.target, RewindTarget::Reinstate { .. });
        let alone = self.waiting.iter().all(puts_back);
        let (served, later) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|intent| alone || !puts_back(intent));
        self.waiting = later;
        let lowest = served.iter().enumerate().min_by_key(|(_, intent)| intent.target.rank());
        let (index, target) = lowest.map(|(index, intent)| (index, intent.target))?;
        let (mut other_requesters, callers): (Vec<_>, Vec<_>) = served
            .into_iter()
            .map(|intent| (intent.requester, intent.caller))
            .unzip();
        self.callers.extend(callers);
        let author = other_requesters.remove(index);
        let requesters = Requesters::new(author, other_requesters, std::mem::take(&mut self.late));
        self.under_way = Some(target);
        self.written_keys = requesters.keys().cloned().collect();
        Some((target, requesters))
    }

    /// Ends the rewind with `head` as the last turn. Queued requests that the head already satisfies need no further
    /// rewind. Returns the callers to answer, unless a lower request is queued: then [`Self::begin_next`].
    pub fn finish_at_head(&mut self, head: u32) -> Vec<A> {
        self.under_way = None;
        let (served, remaining) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|intent| intent.target.is_reached_at(head));
        self.waiting = remaining;
        for intent in served {
            // A refused request is not recorded as a rewind.
            match intent.target {
                RewindTarget::Turn { .. } => self.late.add_requester(intent.requester),
                _ => self.late.add_key(intent.requester.key),
            }
            self.callers.push(intent.caller);
        }
        let written_keys = std::mem::take(&mut self.written_keys);
        if self.waiting.is_empty() {
            return std::mem::take(&mut self.callers);
        }
        // The late callers get the outcome of the next rewind, and so do repeats of their keys.
        for key in written_keys {
            self.late.add_key(Some(key));
        }
        Vec::new()
    }

    /// Adds the callers that cut the rewound turn to the rewind's callers. The turn's commit would have recorded their
    /// requests, and has done so if `turn_result` came before the rewind.
    pub fn adopt_cuts_of_turn(
        &mut self,
        running: &RunningTurn,
        turn_result: Option<&Result<CommittedTurn, TurnError>>,
    ) {
        let noted = matches!(turn_result, Some(Ok(committed)) if committed.turn.status == TurnStatus::Interrupted);
        for requester in running.cut_requesters() {
            self.add_late_requester(requester, noted);
        }
    }

    /// Answers the caller of a pending cut with the rewind, or with a later, lower rewind.
    pub fn adopt_pending_cut(&mut self, pending_cut: PendingCut) -> ReplyHandle<InterruptOutcome> {
        let is_audited = pending_cut.is_audited();
        self.add_late_requester(pending_cut.requester, is_audited);
        pending_cut.reply
    }

    fn add_late_requester(&mut self, requester: Requester, is_audited: bool) {
        if is_audited {
            self.late.add_key(requester.key);
        } else {
            self.late.add_requester(requester);
        }
    }

    /// Takes the requesters served by the last rewind but not written with the rewind.
    pub fn take_late_requesters(&mut self) -> LateRequesters {
        std::mem::take(&mut self.late)
    }

    /// Ends a failed rewind and returns the callers to answer. Later requests stay queued.
    pub fn take_failed_callers(&mut self) -> Vec<A> {
        self.under_way = None;
        self.written_keys.clear();
        std::mem::take(&mut self.callers)
    }

    /// Cancels all requests and returns the callers to answer.
    pub fn cancel_all(&mut self) -> Vec<A> {
        let mut callers = self.take_failed_callers();
        callers.extend(self.waiting.drain(..).map(|intent| intent.caller));
        callers
    }
}

/// Turns removed by the latest consecutive rewinds, for callers that come too late.
#[derive(Default)]
pub(super) struct RecentRewinds {
    last: Option<Arc<RewindRecord>>,
    turns: BTreeSet<u32>,
}

impl RecentRewinds {
    /// Records a rewind from `before`. Turn `ended_turn` was running and ended with the rewind.
    pub fn record_rewind(&mut self, before: Option<TurnId>, rewound: &Arc<RewindRecord>, ended_turn: Option<u32>) {
        if self.last.as_ref().is_none_or(|last| last.head != before) {
            self.turns.clear();
        }
        self.turns.extend(rewound.removed.iter().copied().chain(ended_turn));
        self.turns.retain(|turn| *turn > rewound.head_turn);
        self.last = Some(Arc::clone(rewound));
    }

    /// Returns the last rewind if it or the rewinds just before removed `turn`, and no turn was said since.
    pub fn last_removing(&self, turn: u32, head: Option<TurnId>) -> Option<Arc<RewindRecord>> {
        let last = self.last.as_ref().filter(|last| last.head == head)?;
        self.turns.contains(&turn).then(|| Arc::clone(last))
    }

    /// Returns the last rewind if it removed turns and ended at the wished turn, and no turn was said since. A caller
    /// who repeats a intent just after a rewind then gets the same answer.
    pub fn last_with_target(&self, command: &InterruptCommand, head: Option<TurnId>) -> Option<Arc<RewindRecord>> {
        let last = self.last.as_ref().filter(|last| last.head == head)?;
        let is_same_target =
            command.heard_length.is_none() && command.turn == Some(last.head_turn) && !last.removed.is_empty();
        is_same_target.then(|| Arc::clone(last))
    }
}

impl LoadedDialogue {
    /// Creates the request for a rewind of the dialogue's head. `fence`: a running turn must not commit; `seq`: the
    /// number of the rewind's event.
    pub(super) fn rewind_request(
        &self,
        node: &Node,
        (scope, id): &DialogueKey,
        target: RewindTarget,
        requesters: Requesters,
        fence: bool,
        seq: u64,
    ) -> RewindRequest {
        RewindRequest {
            dialogue: OwnedDialogue {
                scope: scope.clone(),
                node: node.id,
                id: *id,
                world: self.dialogue.world.clone(),
                epoch: self.epoch,
                head: self.head,
                head_turn: self.dialogue.head_turn,
            },
            target,
            fence,
            paused: target
                .paused_after()
                .filter(|_| id.kind() == DialogueKind::NpcConversation),
            seq,
            requesters,
            tiers: DialogueTiers {
                worlds: self.participants.held_worlds(),
                session: self.dialogue.options.settings.clone(),
            },
        }
    }
}

/// Returns the principal for actions that the server starts itself.
pub(super) fn server_principal(scope: &TenantScope) -> Principal {
    Principal {
        subject: "server".to_owned(),
        tenant: scope.tenant().clone(),
        role: Role::Backend,
        player: None,
        world: None,
        issued: colloquy_core::scope::TokenIdentity::default(),
        expires_at: DateTime::<Utc>::MAX_UTC,
    }
}

/// Runs a rewind. A panic counts as a store failure: only the ledger knows the written rows.
pub(super) async fn run_rewind(node: Arc<Node>, request: RewindRequest) -> Result<RewindResponse, RewindError> {
    let moving = AssertUnwindSafe(node.use_cases.rewind_dialogue(request)).catch_unwind();
    let result = moving
        .await
        .unwrap_or_else(|_panic| Err(StoreError::Rejected("the rewind panicked".into()).into()));
    if matches!(result, Err(RewindError::Fenced)) {
        node.metrics.count_fenced_write(FencedWrite::Rewind);
    }
    result
}

/// Returns the caller's error for a rewind that did not happen.
pub(super) fn rewind_error(error: &RewindError) -> DialogueError {
    match error {
        RewindError::Store(error) => error.clone().into(),
        RewindError::Fenced => DialogueError::Overloaded {
            retry_after: REWIND_RETRY_AFTER,
        },
        RewindError::Closed => DialogueError::Closed,
        RewindError::NoSuchTurn { turn, head_turn } => DialogueError::NoSuchTurn {
            turn: *turn,
            head_turn: *head_turn,
        },
        RewindError::NothingToResume => DialogueError::NothingToResume,
    }
}

/// True if only the ledger knows the written rows and the present owner.
pub(super) fn is_outcome_unknown(error: &RewindError) -> bool {
    matches!(error, RewindError::Store(_) | RewindError::Fenced | RewindError::Closed)
}

/// Notifies closed sessions on the node. Returns the sessions that are not here.
pub(super) async fn notify_closed(node: &Node, scope: &TenantScope, closed: Vec<DialogueId>) -> Vec<DialogueId> {
    let mut elsewhere = Vec::new();
    for id in closed {
        let session = node
            .actors()
            .and_then(|actors| actors.closed_notices(&(scope.clone(), id)));
        match session {
            Some(session) => {
                // A session that is just stopping reads its closed state at the next load.
                let _ = session.send(&node.metrics, ClosedInLedger("rewound")).await;
            }
            None => elsewhere.push(id),
        }
    }
    elsewhere
}

/// Makes the held jobs of a closed session due, as the actor of a closing session does. The session has no actor on
/// this node.
async fn release_jobs_of_closed(node: &Arc<Node>, (scope, id): DialogueKey) {
    let dialogues = &node.ports.ledger.dialogues;
    let reading = async {
        let session = dialogues.load_dialogue(&scope, id).await?;
        let head_turn = session.map_or(0, |session| session.head_turn);
        dialogues.load_turns(&scope, id, head_turn, head_turn).await
    };
    let head = reading.await.map(|mut turns| turns.pop());
    match head {
        Ok(Some(head)) => drop(make_jobs_due(Arc::clone(node), (scope, id), head.id).await),
        Ok(None) => {}
        // The jobs become due by themselves.
        Err(error) => tracing::warn!(dialogue = %id, %error, "a closed session could not be read"),
    }
}

/// Notifies other parties of rewinds: sessions that were `closed` with their turns, and the curator.
pub(super) async fn notify_others(
    node: Arc<Node>,
    scope: TenantScope,
    rewound_dialogues: Vec<DialogueId>,
    closed: Vec<DialogueId>,
) {
    let elsewhere = notify_closed(&node, &scope, closed).await;
    if let Some(curator) = node.actors().and_then(|actors| actors.curator(&scope)) {
        // A curator that is just stopping leaves the work to the next curator.
        let _ = curator
            .send(&node.metrics, CuratorRequest::TurnsUnsaid(rewound_dialogues))
            .await;
    }
    if let Some(membership) = node.membership.as_ref().filter(|_| !elsewhere.is_empty()) {
        let notice = Notice::Closed {
            tenant: scope.tenant().clone(),
            sessions: elsewhere.clone(),
        };
        if let Err(error) = membership.peers.notify_peers(&notice).await {
            tracing::warn!(%error, "not every node heard of closed sessions; those that did not learn of it when they write");
        }
    }
    for session in elsewhere {
        release_jobs_of_closed(&node, (scope.clone(), session)).await;
    }
}

#[cfg(test)]
mod tests;
