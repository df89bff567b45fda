//! The queue of a dialogue's rewind requests, of sessions and NPC conversations. The queue collects requests during a
//! rewind, so that simultaneous callers get one outcome: the rewind to the lowest turn.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    InterruptCommand, InterruptOutcome, dialogue::pending_cut::PendingCut, messages::ReplyHandle,
    running_turn::RunningTurn,
};
use colloquy_core::ids::TurnId;
use colloquy_dialogue::{
    requester::{Requester, Requesters},
    rewind::RewindTarget,
    turn::{CommittedTurn, TurnError},
};
use colloquy_memory::turn::TurnStatus;
use colloquy_ports::ledger::rewinds::RewindRecord;

/// The rewind requests of a dialogue.
pub(super) struct RewindQueue<A> {
    /// Requests that no rewind serves yet, each with its caller.
    waiting: Vec<(RewindTarget, Requester, A)>,
    /// Callers that get the outcome once no request is left.
    callers: Vec<A>,
    /// Callers served by an earlier rewind that was written without them.
    late: Requesters,
    /// Keys written with the running rewind.
    written_keys: Vec<String>,
    under_way: Option<RewindTarget>,
}

impl<A> Default for RewindQueue<A> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            callers: Vec::new(),
            late: Requesters::default(),
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
        self.under_way.is_some_and(|target| !goes_for_good(&target)) || self.waiting.iter().any(is_reinstatement)
    }

    pub fn push_request(&mut self, target: RewindTarget, requester: Requester, caller: A) {
        self.waiting.push((target, requester, caller));
    }

    /// Returns all callers that wait for an answer.
    pub fn callers(&self) -> impl Iterator<Item = &A> {
        self.callers
            .iter()
            .chain(self.waiting.iter().map(|(_, _, caller)| caller))
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
        let alone = self.waiting.iter().all(is_reinstatement);
        let (served, later) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|request| alone || !is_reinstatement(request));
        self.waiting = later;
        let lowest = served.iter().enumerate().min_by_key(|(_, (target, ..))| target.rank());
        let (index, target) = lowest.map(|(index, (target, ..))| (index, *target))?;
        let (mut other_requesters, callers): (Vec<_>, Vec<_>) = served
            .into_iter()
            .map(|(_, requester, caller)| (requester, caller))
            .unzip();
        self.callers.extend(callers);
        let author = other_requesters.remove(index);
        let requesters = Requesters::of_rewind(author, other_requesters, std::mem::take(&mut self.late));
        debug_assert!(!self.callers.is_empty(), "a rewind has a caller");
        self.under_way = Some(target);
        self.written_keys = requesters.keys().cloned().collect();
        Some((target, requesters))
    }

    /// Ends the rewind with `head` as the last turn. Queued requests that the head already satisfies need no further
    /// rewind. Returns the callers to answer, unless a lower request is queued: then [`Self::begin_next`].
    pub fn finish_at_head(&mut self, head: u32) -> Vec<A> {
        debug_assert!(self.under_way.is_some(), "a rewind that ends was begun");
        self.under_way = None;
        let (served, remaining) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|(target, ..)| target.is_reached_at(head));
        self.waiting = remaining;
        for (target, requester, caller) in served {
            // A refused request is not recorded as a rewind.
            match target {
                RewindTarget::Turn { .. } => self.late.add_requester(requester),
                _ => self.late.add_key(requester.key),
            }
            self.callers.push(caller);
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
    pub fn take_late_requesters(&mut self) -> Requesters {
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
        callers.extend(self.waiting.drain(..).map(|(_, _, caller)| caller));
        callers
    }
}

fn is_reinstatement<A>((target, ..): &(RewindTarget, Requester, A)) -> bool {
    matches!(target, RewindTarget::Reinstate { .. })
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
    /// who repeats a request just after a rewind then gets the same answer.
    pub fn last_with_target(&self, command: &InterruptCommand, head: Option<TurnId>) -> Option<Arc<RewindRecord>> {
        let last = self.last.as_ref().filter(|last| last.head == head)?;
        let is_same_target =
            command.heard_length.is_none() && command.turn == Some(last.head_turn) && !last.removed.is_empty();
        is_same_target.then(|| Arc::clone(last))
    }
}

#[cfg(test)]
mod tests;
