//! The only source of time and randomness. Tests can therefore control both.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, SubsecRound, Utc};
use parking_lot::Mutex;
use ulid::Ulid;

use colloquy_core::ids::{DialogueId, DialogueKind, GeneratedId};

/// The time of day, and a stopwatch.
pub trait Clock: Send + Sync {
    /// Returns the current time, truncated to microseconds (the precision of every ledger).
    fn now(&self) -> DateTime<Utc>;
    /// Returns a monotonic instant, for measuring.
    fn monotonic_now(&self) -> Instant;
    /// False while the time may be wrong: nothing is deleted by its age.
    fn is_settled(&self) -> bool {
        true
    }
}

/// The machine's clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> DateTime<Utc> {
        Utc::now().trunc_subsecs(6)
    }
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn monotonic_now(&self) -> Instant {
        Instant::now()
    }
}

/// A clock under the control of a test.
#[derive(Debug)]
pub struct ManualClock {
    now: Mutex<DateTime<Utc>>,
}

impl ManualClock {
    /// Returns a clock that starts at `now`.
    #[must_use]
    pub fn starting_at(now: DateTime<Utc>) -> Arc<Self> {
        Arc::new(Self {
            now: Mutex::new(now.trunc_subsecs(6)),
        })
    }
    /// Moves the time forward.
    pub fn advance(&self, duration: Duration) {
        *self.now.lock() += duration;
    }
    /// Sets the clock back, as an operator or a time server may.
    pub fn set_back(&self, duration: Duration) {
        *self.now.lock() -= duration;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        *self.now.lock()
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "a stopwatch has nothing to do with the time of day"
    )]
    fn monotonic_now(&self) -> Instant {
        Instant::now()
    }
}

/// Makes generated ids: monotonic within a process, from the clock and 80 random bits.
pub struct IdSource {
    clock: Arc<dyn Clock>,
    state: Mutex<IdState>,
}

struct IdState {
    last: Ulid,
    random: Box<dyn FnMut() -> u128 + Send>,
}

impl IdSource {
    /// Returns a source of ids from `clock` and the low 80 bits of `random`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, random: Box<dyn FnMut() -> u128 + Send>) -> Self {
        Self {
            clock,
            state: Mutex::new(IdState {
                last: Ulid::nil(),
                random,
            }),
        }
    }
    /// Returns a source of ids from `clock` and the thread's random generator.
    #[must_use]
    pub fn from_thread_rng(clock: Arc<dyn Clock>) -> Self {
        Self::new(clock, Box::new(rand::random::<u128>))
    }
    /// Returns a fresh ULID, above every earlier ULID of this source.
    pub fn next_ulid(&self) -> Ulid {
        let millis = u64::try_from(self.clock.now().timestamp_millis()).unwrap_or_default();
        let mut state = self.state.lock();
        let random = (state.random)() & Self::RANDOM_BITS;
        let candidate = Ulid(u128::from(millis) << 80 | random);
        let next = if candidate > state.last {
            candidate
        } else {
            Ulid(state.last.0 + 1)
        };
        debug_assert!(next > state.last, "each id of a source is above the id before");
        state.last = next;
        next
    }
    /// Returns a fresh generated id.
    pub fn next_id<T: GeneratedId>(&self) -> T {
        T::from_ulid(self.next_ulid())
    }
    /// Returns a fresh dialogue id.
    pub fn next_dialogue_id(&self, kind: DialogueKind) -> DialogueId {
        DialogueId::new(kind, self.next_ulid())
    }

    const RANDOM_BITS: u128 = (1 << 80) - 1;
}
