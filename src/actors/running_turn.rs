//! The running turn of a session or a conversation: its start, its cuts, its cancellation and its waiters. The work of
//! a turn is in `dialogue::turn`.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{
    FutureExt,
    future::{AbortHandle, Abortable},
};
use tokio::sync::{oneshot, watch};
use tracing::{Instrument as _, Span};

use super::{event_log::TurnEvents, node::Node, use_cases::UseCases};
use colloquy_core::ids::{NpcId, TurnId};
use colloquy_dialogue::{
    requester::Requester,
    turn::{CommittedTurn, Cut, TurnError, TurnInput},
};
use colloquy_memory::turn::Turn;
use colloquy_ports::{StoreError, ledger::metrics::GaugeGuard};

/// The result of a turn.
pub(super) type TurnOutcome = Result<Arc<Turn>, Arc<TurnError>>;

/// Added to a turn's own time limit, for a turn that exceeds the limit.
const TURN_TIMEOUT_GRACE: Duration = Duration::from_secs(10);

/// A client's key, the line of the request and the NPC that answers.
pub(super) struct KeyedLine {
    pub key: String,
    pub text: String,
    pub npc: NpcId,
}

/// The running turn.
pub(super) struct RunningTurn {
    pub id: TurnId,
    pub number: u32,
    pub started: Instant,
    /// Identifies a repeated request. A line between NPCs has no key.
    pub key: Option<KeyedLine>,
    /// The client's message that the turn's events answer.
    pub re: Option<Arc<str>>,
    /// True if the client has heard the whole reply before the commit.
    pub played: bool,
    cut_sender: watch::Sender<Option<Cut>>,
    /// Cancels the turn at any point, including the model's stream.
    abort: AbortHandle,
    waiters: Vec<oneshot::Sender<TurnOutcome>>,
    _counted: GaugeGuard,
}

impl RunningTurn {
    /// Begins a turn at `now`. The returned future runs the turn and yields the result; `None`: the turn was cancelled.
    pub fn begin_turn(
        node: &Node,
        now: Instant,
        input: TurnInput,
        feed: TurnEvents,
        waiters: Vec<oneshot::Sender<TurnOutcome>>,
        part_of: &Span,
    ) -> (
        Self,
        impl Future<Output = Option<Result<CommittedTurn, TurnError>>> + use<>,
    ) {
        let (cut_sender, cut_watch) = watch::channel(None);
        let (abort, aborted) = AbortHandle::new_pair();
        let running = Self {
            id: input.id,
            number: input.number,
            started: now,
            key: None,
            re: feed.re.clone(),
            played: false,
            cut_sender,
            abort,
            waiters,
            _counted: node.metrics.count_running_turn(),
        };
        let use_cases = Arc::clone(&node.use_cases);
        let limit = Duration::from_millis(node.ports.settings.turn.timeout_ms) + TURN_TIMEOUT_GRACE;
        let span = tracing::debug_span!(
            parent: part_of,
            "turn",
            tenant = %input.scope.tenant(),
            dialogue = %input.dialogue.id,
            turn = input.number,
            turn_id = %input.id,
            key = %input.dialogue_key(),
        );
        let turn = async move { run_guarded(use_cases.as_ref(), limit, input, &feed, cut_watch).await };
        let turn = turn.instrument(span);
        (running, Abortable::new(turn, aborted).map(Result::ok))
    }

    /// Returns the callers that wait for the turn, to add another.
    pub fn waiters_mut(&mut self) -> &mut Vec<oneshot::Sender<TurnOutcome>> {
        &mut self.waiters
    }

    /// Asks the turn to end at its present text, or at the heard length. Several requests may arrive before the end.
    /// The smallest heard length decides; all requesters are recorded with the turn.
    pub fn request_cut(&self, heard_chars: Option<usize>, requester: Option<Requester>) {
        self.cut_sender.send_if_modified(|cut| {
            let first = cut.is_none();
            cut.get_or_insert_default().add_requester(heard_chars, requester);
            first
        });
    }

    /// Returns the callers that requested a cut.
    pub fn cut_requesters(&self) -> Vec<Requester> {
        self.cut_sender
            .borrow()
            .as_ref()
            .map(|cut| cut.requesters.clone())
            .unwrap_or_default()
    }

    /// Returns the keys of the cut requests.
    pub fn cut_keys(&self) -> Vec<String> {
        self.cut_requesters()
            .into_iter()
            .filter_map(|requester| requester.key)
            .collect()
    }

    /// Sends the result of an ended turn to the waiters.
    pub fn notify_waiters(self, outcome: &TurnOutcome) {
        for waiter in self.waiters {
            // The waiter may have gone away.
            let _ = waiter.send(outcome.clone());
        }
    }

    /// Aborts a turn that a rewind has unsaid, and tells the waiters.
    pub fn abort_unsaid(self) {
        self.abort.abort();
        self.notify_waiters(&Err(Arc::new(TurnError::Unsaid)));
    }
}

/// Runs a turn and catches a panic or a missing end.
async fn run_guarded(
    use_cases: &dyn UseCases,
    limit: Duration,
    input: TurnInput,
    feed: &TurnEvents,
    cut_watch: watch::Receiver<Option<Cut>>,
) -> Result<CommittedTurn, TurnError> {
    let turn = AssertUnwindSafe(use_cases.run_turn(input, feed, cut_watch)).catch_unwind();
    match tokio::time::timeout(limit, turn).await {
        Ok(Ok(result)) => result,
        Ok(Err(_panic)) => Err(TurnError::Store(StoreError::Rejected("the turn panicked".into()))),
        Err(_elapsed) => Err(TurnError::TimedOut),
    }
}
