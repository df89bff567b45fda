//! Requests to take a dialogue back: collected while a move is under way, so that whoever asks at the
//! same time is told one outcome, that of the lowest turn; and what is the same about a move before and
//! after it. For sessions and NPC conversations alike; moving the head is `dialogue::rewind`.

mod pending_cut;
mod recording;

use std::{collections::BTreeSet, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use futures_util::FutureExt;

use super::{
    DialogueError, InterruptCommand, InterruptOutcome,
    curator::TurnsUnsaid,
    mailbox::send_message,
    messages::ReplyHandle,
    metrics::FencedWrite,
    registry::{DialogueKey, Node},
    running_turn::RunningTurn,
    session::{ClosedInLedger, load::LoadedDialogue},
};
use crate::{
    dialogue::{
        rewind::{RewindError, RewindRequest, RewindResponse, RewindTarget},
        turn::{CommittedTurn, CutRequester, TurnError},
    },
    ids::{DialogueId, DialogueKind, TurnId},
    memory::turn::TurnStatus,
    ports::{StoreError, ledger::rewinds::RewindRecord, peers::Notice},
    tenancy::{Principal, Role, TenantScope},
};

pub(super) use pending_cut::{CutOutcome, PendingCut};
pub(super) use recording::{LateCallers, callers_if_recorded, record_and_answer, record_dropped_cut, record_outcome};

/// When whoever asked of a dialogue that is elsewhere, or is another by now, may ask again.
pub(super) const REWIND_RETRY_AFTER: Duration = Duration::from_millis(200);

/// One request, and whom to answer.
pub(super) struct RewindIntent<A> {
    pub target: RewindTarget,
    pub key: Option<String>,
    pub who: Principal,
    /// For the audit log.
    pub action: &'static str,
    pub caller: A,
}

/// The move to make now.
#[derive(Debug, Clone)]
pub(super) struct CoalescedRewind {
    pub target: RewindTarget,
    pub key: Option<String>,
    /// Keys of the others whom it serves.
    pub also: Vec<String>,
    pub who: Principal,
    pub action: &'static str,
    /// Who asked for less at the same time.
    pub others: Vec<(Principal, &'static str)>,
}

/// What is asked of one dialogue.
pub(super) struct RewindQueue<A> {
    /// Not served by any move yet.
    waiting: Vec<RewindIntent<A>>,
    /// Who hears the outcome once nothing is asked any more.
    callers: Vec<A>,
    /// Those whom a move served that was asked for by others and is written already.
    late: LateCallers,
    /// Keys that are written with the move under way.
    written: Vec<String>,
    under_way: Option<RewindTarget>,
}

impl<A> Default for RewindQueue<A> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            callers: Vec::new(),
            late: LateCallers::default(),
            written: Vec::new(),
            under_way: None,
        }
    }
}

impl<A> RewindQueue<A> {
    /// Whether anything is asked or under way: nothing else may happen to the dialogue then.
    pub fn is_busy(&self) -> bool {
        self.under_way.is_some() || !self.waiting.is_empty()
    }

    /// Whether the ledger is being asked.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether the last turn is being put back, or taken out only to be said anew or gone on with: which one is the
    /// last is known after that.
    pub fn is_replacing(&self) -> bool {
        let goes_for_good = |target: &RewindTarget| matches!(target, RewindTarget::Turn { .. });
        let puts_back = |wish: &RewindIntent<A>| matches!(wish.target, RewindTarget::Reinstate { .. });
        self.under_way.is_some_and(|target| !goes_for_good(&target)) || self.waiting.iter().any(puts_back)
    }

    pub fn push_intent(&mut self, wish: RewindIntent<A>) {
        self.waiting.push(wish);
    }

    /// Everybody who is to be told of something.
    pub fn callers(&self) -> impl Iterator<Item = &A> {
        self.callers.iter().chain(self.waiting.iter().map(|wish| &wish.caller))
    }

    /// Those who hear the outcome of the move under way.
    pub fn served_callers(&mut self) -> &mut Vec<A> {
        &mut self.callers
    }

    /// One more who hears the outcome of the move under way.
    pub fn add_served_caller(&mut self, caller: A) {
        self.callers.push(caller);
    }

    /// The lowest of what is asked; all that was asked so far is served by it. `None`: a move is under
    /// way, or nothing is asked.
    ///
    /// What was to be said anew is put back by a move of its own: should the other one come to nothing, it
    /// is still asked.
    pub fn begin_next(&mut self) -> Option<CoalescedRewind> {
        if self.under_way.is_some() || self.waiting.is_empty() {
            return None;
        }
        let puts_back = |wish: &RewindIntent<A>| matches!(wish.target, RewindTarget::Reinstate { .. });
        let alone = self.waiting.iter().all(puts_back);
        let (served, later) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|wish| alone || !puts_back(wish));
        self.waiting = later;
        let mut lowest: Option<CoalescedRewind> = None;
        // Of those who are told of an earlier move: what is asked now must not be taken for theirs.
        let told = std::mem::take(&mut self.late);
        let (mut keys, mut others) = (Vec::new(), Vec::new());
        for wish in served {
            let lower = lowest
                .as_ref()
                .is_none_or(|goal| target_rank(wish.target) < target_rank(goal.target));
            let mut other = wish.key;
            if lower {
                let goal = CoalescedRewind {
                    target: wish.target,
                    key: other.take(),
                    also: Vec::new(),
                    who: wish.who,
                    action: wish.action,
                    others: Vec::new(),
                };
                let before = lowest.replace(goal);
                other = before.and_then(|before| {
                    others.push((before.who, before.action));
                    before.key
                });
            } else {
                others.push((wish.who, wish.action));
            }
            keys.extend(other);
            self.callers.push(wish.caller);
        }
        let mut goal = lowest?;
        self.under_way = Some(goal.target);
        goal.others = told.asked;
        goal.others.extend(others);
        keys.retain(|key| !told.keys.contains(key));
        goal.key = goal.key.or_else(|| keys.pop());
        goal.also = told.keys;
        goal.also.extend(keys);
        goal.also.retain(|key| goal.key.as_ref() != Some(key));
        self.written = goal.key.iter().chain(&goal.also).cloned().collect();
        Some(goal)
    }

    /// The move has ended with `head` as the last turn. What was asked meanwhile and is so already
    /// needs no other. Whom to answer, unless something lower is still asked: then [`Self::begin_next`].
    pub fn finish_at_head(&mut self, head: u32) -> Vec<A> {
        self.under_way = None;
        let (served, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|wish| is_target_reached(wish.target, head));
        self.waiting = waiting;
        for wish in served {
            // What is refused after all is nobody's move.
            let takes_back = matches!(wish.target, RewindTarget::Turn { .. });
            self.late
                .add_caller(wish.key, takes_back.then_some((wish.who, wish.action)));
            self.callers.push(wish.caller);
        }
        let written = std::mem::take(&mut self.written);
        if self.waiting.is_empty() {
            return std::mem::take(&mut self.callers);
        }
        // They are told of what comes next, and so is whoever repeats their keys.
        self.late.keys.extend(written);
        Vec::new()
    }

    /// Who cut the turn that goes with the move is told of the move. Its commit would have kept that they asked, and has
    /// if it was `said` before the move.
    pub fn adopt_cuts_of_turn(&mut self, running: &RunningTurn, said: Option<&Result<CommittedTurn, TurnError>>) {
        let noted = matches!(said, Some(Ok(said)) if said.turn.status == TurnStatus::Interrupted);
        for CutRequester { who, key, action } in running.cut_requesters() {
            self.late.add_caller(key, (!noted).then_some((who, action)));
        }
    }

    /// Who waits for what a cut comes to is told of the move; should something lower be asked, of that.
    pub fn adopt_pending_cut(&mut self, cut: PendingCut, action: &'static str) -> ReplyHandle<InterruptOutcome> {
        let asked = cut.audit_entry(action);
        self.late.add_caller(cut.wish.key, asked);
        cut.ask
    }

    /// Those who are told of the last move though it was written without them.
    pub fn take_late_callers(&mut self) -> LateCallers {
        std::mem::take(&mut self.late)
    }

    /// The move came to nothing: whom to tell. What was asked since is still asked.
    pub fn take_failed_callers(&mut self) -> Vec<A> {
        self.under_way = None;
        self.written.clear();
        std::mem::take(&mut self.callers)
    }

    /// Gives everything up: whom to tell.
    pub fn cancel_all(&mut self) -> Vec<A> {
        let mut callers = self.take_failed_callers();
        callers.extend(self.waiting.drain(..).map(|wish| wish.caller));
        callers
    }
}

/// What the last moves took back one after another, for whoever asked too late to be served by them.
#[derive(Default)]
pub(super) struct RecentRewinds {
    last: Option<Arc<RewindRecord>>,
    turns: BTreeSet<u32>,
}

impl RecentRewinds {
    /// The head was moved from `before`, and turn `ended`, which ran, ended with that.
    pub fn record_rewind(&mut self, before: Option<TurnId>, rewound: &Arc<RewindRecord>, ended: Option<u32>) {
        if self.last.as_ref().is_none_or(|last| last.head != before) {
            self.turns.clear();
        }
        self.turns.extend(rewound.removed.iter().copied().chain(ended));
        self.turns.retain(|turn| *turn > rewound.head_turn);
        self.last = Some(Arc::clone(rewound));
    }

    /// The last move, if `turn` went with it or with those just before it and nothing was said since.
    pub fn last_removing(&self, turn: u32, head: Option<TurnId>) -> Option<Arc<RewindRecord>> {
        let last = self.last.as_ref().filter(|last| last.head == head)?;
        self.turns.contains(&turn).then(|| Arc::clone(last))
    }

    /// The last move, if it took turns back to just where this is to go and nothing was said since: whoever asks for the
    /// same just after is told the same.
    pub fn last_with_target(&self, wish: &InterruptCommand, head: Option<TurnId>) -> Option<Arc<RewindRecord>> {
        let last = self.last.as_ref().filter(|last| last.head == head)?;
        let same = wish.heard.is_none() && wish.turn == Some(last.head_turn) && !last.removed.is_empty();
        same.then(|| Arc::clone(last))
    }
}

impl LoadedDialogue {
    /// What whoever asks to take back what does not stand is told, and its key is kept with.
    pub(super) fn unchanged_outcome(&self, node: &Node) -> RewindRecord {
        let (ports, dialogue) = (&node.ports, &self.dialogue);
        let head = (self.head, dialogue.head_turn);
        RewindRecord::for_no_change(
            ports.ids.next_id(),
            dialogue.world.clone(),
            self.epoch,
            head,
            ports.clock.now(),
        )
    }

    /// Asks for a move of this dialogue's head. `fence`: a turn is under way that must not commit; `seq`:
    /// of the event that will tell of it.
    pub(super) fn rewind_request(
        &self,
        node: &Node,
        (scope, dialogue): &DialogueKey,
        goal: CoalescedRewind,
        fence: bool,
        seq: u64,
    ) -> RewindRequest {
        RewindRequest {
            scope: scope.clone(),
            node: node.id,
            dialogue: *dialogue,
            world: self.dialogue.world.clone(),
            epoch: self.epoch,
            head_turn: self.dialogue.head_turn,
            head: self.head,
            fence,
            target: goal.target,
            paused: goal
                .target
                .paused_after()
                .filter(|_| dialogue.kind() == DialogueKind::NpcConversation),
            key: goal.key,
            also: goal.also,
            seq,
            who: goal.who,
            action: goal.action,
            others: goal.others,
        }
    }
}

/// Who asks for what nobody asked for.
pub(super) fn server_principal(scope: &TenantScope) -> Principal {
    Principal {
        subject: "server".to_owned(),
        tenant: scope.tenant().clone(),
        role: Role::Backend,
        player: None,
        world: None,
        issued: crate::tenancy::TokenIdentity::default(),
        expires_at: DateTime::<Utc>::MAX_UTC,
    }
}

/// Moves the head. A panic is told as a failed store: what was written, only the ledger knows.
pub(super) async fn run_rewind(node: Arc<Node>, request: RewindRequest) -> Result<RewindResponse, RewindError> {
    let moving = AssertUnwindSafe(node.use_cases.rewind_dialogue(request)).catch_unwind();
    let moved = moving
        .await
        .unwrap_or_else(|_panic| Err(StoreError::Rejected("the rewind panicked".into()).into()));
    if matches!(moved, Err(RewindError::Fenced)) {
        node.metrics.count_fenced_write(FencedWrite::Rewind);
    }
    moved
}

/// What whoever repeats a key is told again.
pub(super) fn repeated_outcome(rewound: RewindRecord) -> InterruptOutcome {
    if rewound.is_live_cut() {
        return InterruptOutcome::Cut {
            turn: rewound.head_turn,
        };
    }
    if rewound.is_no_change() {
        return InterruptOutcome::Idle {
            head_turn: rewound.head_turn,
        };
    }
    InterruptOutcome::Rewound(Arc::new(rewound))
}

/// Why nothing was moved, as whoever asked is told.
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

/// Whether only the ledger knows what was written, and who owns the dialogue now.
pub(super) fn is_outcome_unknown(error: &RewindError) -> bool {
    matches!(error, RewindError::Store(_) | RewindError::Fenced | RewindError::Closed)
}

/// Tells sessions that live here that they are closed. Those that do not.
pub(super) async fn notify_closed(node: &Node, scope: &TenantScope, closed: Vec<DialogueId>) -> Vec<DialogueId> {
    let mut elsewhere = Vec::new();
    for id in closed {
        match node.sessions.find_live(&(scope.clone(), id)) {
            Some(session) => {
                // One that stops just now reads that it is closed when it comes back.
                let _ = send_message(node, &session, ClosedInLedger("rewound")).await;
            }
            None => elsewhere.push(id),
        }
    }
    elsewhere
}

/// Tells those whom moves of heads concern beside the dialogues themselves: sessions that were `closed`
/// with turns of theirs, and the curator.
pub(super) async fn notify_others(
    node: Arc<Node>,
    scope: TenantScope,
    moved: Vec<DialogueId>,
    closed: Vec<DialogueId>,
) {
    let elsewhere = notify_closed(&node, &scope, closed).await;
    if let Some(curator) = node.get_or_spawn_curator(&scope) {
        // A curator that stops just now leaves it to the next one.
        let _ = send_message(&node, &curator, TurnsUnsaid(moved)).await;
    }
    if let Some(several) = node.membership.as_ref().filter(|_| !elsewhere.is_empty()) {
        let notice = Notice::Closed {
            tenant: scope.tenant().clone(),
            sessions: elsewhere,
        };
        if let Err(error) = several.peers.notify_peers(&notice).await {
            tracing::warn!(%error, "not every node heard of closed sessions; those that did not learn of it when they write");
        }
    }
}

/// Lower goes further back.
fn target_rank(target: RewindTarget) -> (u32, usize, u8) {
    match target {
        RewindTarget::Turn { number, heard_chars } => (number, heard_chars.unwrap_or(usize::MAX), 0),
        // Whoever takes the turn back for good wins.
        RewindTarget::Regenerate { number } => (number, usize::MAX, 1),
        RewindTarget::Resume | RewindTarget::Reinstate { .. } => (u32::MAX, usize::MAX, 2),
    }
}

/// Whether nothing is left to do for `target` once turn `head` is the last one.
fn is_target_reached(target: RewindTarget, head: u32) -> bool {
    match target {
        RewindTarget::Turn { number, heard_chars } => number > head || (number == head && heard_chars.is_none()),
        RewindTarget::Regenerate { number } => number >= head,
        // Something was unsaid since: there is nothing to take up.
        RewindTarget::Resume | RewindTarget::Reinstate { .. } => true,
    }
}

#[cfg(test)]
mod tests;
