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
    dialogue::turn::{CommittedTurn, Cut, CutBy, TurnError, TurnInput},
    ids::{NpcId, TurnId},
    memory::turn::Turn,
    ports::{StoreError, ledger::meters::Counted},
};

/// What becomes of a turn.
pub(super) type Outcome = Result<Arc<Turn>, Arc<TurnError>>;

/// Past a turn's own time limit, for a turn that does not keep it.
const GRACE: Duration = Duration::from_secs(10);

/// A client's key, the line it came with and who answers that.
pub(super) struct Keyed {
    pub key: String,
    pub text: String,
    pub npc: NpcId,
}

/// The turn that runs.
pub(super) struct Running {
    pub id: TurnId,
    pub number: u32,
    pub started: Instant,
    /// What a repeated request is known by. A line between NPCs has none.
    pub key: Option<Keyed>,
    /// What its events are the answer to.
    pub re: Option<Arc<str>>,
    /// Its client has heard all of it, before it was committed.
    pub played: bool,
    cut: watch::Sender<Option<Cut>>,
    /// Lets the turn go wherever it is, its model's stream included.
    abort: AbortHandle,
    waiters: Vec<oneshot::Sender<Outcome>>,
    _counted: Counted,
}

impl Running {
    /// Begins a turn at `now`. What is returned beside it runs the turn, and ends with what became of
    /// it; `None`: it was let go.
    pub fn begin(
        node: &Node,
        now: Instant,
        input: TurnInput,
        feed: TurnEvents,
        waiters: Vec<oneshot::Sender<Outcome>>,
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
            _counted: node.meters.turn(),
        };
        let use_cases = Arc::clone(&node.use_cases);
        let limit = Duration::from_millis(node.ports.settings.turn.timeout_ms) + GRACE;
        let span = tracing::debug_span!(
            parent: part_of,
            "turn",
            tenant = %input.scope.tenant(),
            dialogue = %input.dialogue.id,
            turn = input.number,
            turn_id = %input.id,
            npc = %input.npc.id,
        );
        let turn = async move { run(use_cases.as_ref(), limit, input, &feed, cut_watch).await };
        let turn = turn.instrument(span);
        (running, Abortable::new(turn, aborted).map(Result::ok))
    }

    /// One more waits for it.
    pub fn take_on(&mut self) -> &mut Vec<oneshot::Sender<Outcome>> {
        &mut self.waiters
    }

    /// Asks it to end where it is, or at what was heard. Of those who ask until it does, whoever heard
    /// least decides; all of them are written down with it.
    pub fn cut(&self, heard_chars: Option<usize>, by: Option<CutBy>) {
        self.cut.send_if_modified(|cut| {
            let first = cut.is_none();
            cut.get_or_insert_default().also(heard_chars, by);
            first
        });
    }

    /// Those who asked it to.
    pub fn cut_by(&self) -> Vec<CutBy> {
        self.cut.borrow().as_ref().map(|cut| cut.by.clone()).unwrap_or_default()
    }

    /// Their keys.
    pub fn cut_keys(&self) -> Vec<String> {
        self.cut_by().into_iter().filter_map(|by| by.key).collect()
    }

    /// It has ended: tells those who waited.
    pub fn tell(self, outcome: &Outcome) {
        for waiter in self.waiters {
            // Whoever waited may have gone away.
            let _ = waiter.send(outcome.clone());
        }
    }

    /// The dialogue was taken back to before it: it never happened.
    pub fn unsay(self) {
        self.abort.abort();
        self.tell(&Err(Arc::new(TurnError::Unsaid)));
    }
}

/// Runs a turn that may panic, or not end by itself.
async fn run(
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
