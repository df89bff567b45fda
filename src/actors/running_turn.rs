//! The turn that runs, in a session or a conversation: how it is begun, cut and let go, and who waits
//! for it. What it does is `dialogue::turn`.

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

use super::{event_log::TurnEvents, registry::Node, use_cases::UseCases};
use crate::{
    dialogue::turn::{CommittedTurn, Cut, CutRequester, TurnError, TurnInput},
    ids::{NpcId, TurnId},
    memory::turn::Turn,
    ports::{StoreError, ledger::metrics::GaugeGuard},
};

/// What becomes of a turn.
pub(super) type TurnOutcome = Result<Arc<Turn>, Arc<TurnError>>;

/// Past a turn's own time limit, for a turn that does not keep it.
const TURN_TIMEOUT_GRACE: Duration = Duration::from_secs(10);

/// A client's key, the line it came with and who answers that.
pub(super) struct KeyedLine {
    pub key: String,
    pub text: String,
    pub npc: NpcId,
}

/// The turn that runs.
pub(super) struct RunningTurn {
    pub id: TurnId,
    pub number: u32,
    pub started: Instant,
    /// What a repeated request is known by. A line between NPCs has none.
    pub key: Option<KeyedLine>,
    /// What its events are the answer to.
    pub re: Option<Arc<str>>,
    /// Its client has heard all of it, before it was committed.
    pub played: bool,
    cut: watch::Sender<Option<Cut>>,
    /// Lets the turn go wherever it is, its model's stream included.
    abort: AbortHandle,
    waiters: Vec<oneshot::Sender<TurnOutcome>>,
    _counted: GaugeGuard,
}

impl RunningTurn {
    /// Begins a turn at `now`. What is returned beside it runs the turn, and ends with what became of
    /// it; `None`: it was let go.
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
        let (cut, cut_watch) = watch::channel(None);
        let (abort, aborted) = AbortHandle::new_pair();
        let running = Self {
            id: input.id,
            number: input.number,
            started: now,
            key: None,
            re: feed.re.clone(),
            played: false,
            cut,
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
            npc = %input.npc.id,
        );
        let turn = async move { run_guarded(use_cases.as_ref(), limit, input, &feed, cut_watch).await };
        let turn = turn.instrument(span);
        (running, Abortable::new(turn, aborted).map(Result::ok))
    }

    /// One more waits for it.
    pub fn waiters_mut(&mut self) -> &mut Vec<oneshot::Sender<TurnOutcome>> {
        &mut self.waiters
    }

    /// Asks it to end where it is, or at what was heard. Of those who ask until it does, whoever heard
    /// least decides; all of them are written down with it.
    pub fn request_cut(&self, heard_chars: Option<usize>, by: Option<CutRequester>) {
        self.cut.send_if_modified(|cut| {
            let first = cut.is_none();
            cut.get_or_insert_default().add_requester(heard_chars, by);
            first
        });
    }

    /// Those who asked it to.
    pub fn cut_requesters(&self) -> Vec<CutRequester> {
        self.cut.borrow().as_ref().map(|cut| cut.by.clone()).unwrap_or_default()
    }

    /// Their keys.
    pub fn cut_keys(&self) -> Vec<String> {
        self.cut_requesters().into_iter().filter_map(|by| by.key).collect()
    }

    /// It has ended: tells those who waited.
    pub fn notify_waiters(self, outcome: &TurnOutcome) {
        for waiter in self.waiters {
            // Whoever waited may have gone away.
            let _ = waiter.send(outcome.clone());
        }
    }

    /// The dialogue was taken back to before it: it never happened.
    pub fn abort_unsaid(self) {
        self.abort.abort();
        self.notify_waiters(&Err(Arc::new(TurnError::Unsaid)));
    }
}

/// Runs a turn that may panic, or not end by itself.
async fn run_guarded(
    use_cases: &dyn UseCases,
    limit: Duration,
    input: TurnInput,
    feed: &TurnEvents,
    cut: watch::Receiver<Option<Cut>>,
) -> Result<CommittedTurn, TurnError> {
    let turn = AssertUnwindSafe(use_cases.run_turn(input, feed, cut)).catch_unwind();
    match tokio::time::timeout(limit, turn).await {
        Ok(Ok(ended)) => ended,
        Ok(Err(_panic)) => Err(TurnError::Store(StoreError::Rejected("the turn panicked".into()))),
        Err(_elapsed) => Err(TurnError::TimedOut),
    }
}
