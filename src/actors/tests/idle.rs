//! Actors leave memory after a single use.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use super::world::{PATIENCE, TestWorld, test_actor_settings, test_dialogue_settings, wait_until};
use crate::ActorSettings;
use colloquy_memory::reconcile::JudgeVerdict;
use colloquy_ports::{
    clock::{Clock, SystemClock},
    ledger::facts::JudgedPair,
};

/// A clock that stands still until `advance`. Starts at noon, so that hours do not end the day.
pub(super) struct StoppedClock(Mutex<(DateTime<Utc>, Instant)>);

impl StoppedClock {
    pub(super) fn new() -> Arc<Self> {
        let noon = "2031-05-04T12:00:00Z".parse().unwrap();
        Arc::new(Self(Mutex::new((noon, SystemClock.monotonic_now()))))
    }
    pub(super) fn advance(&self, by: Duration) {
        let mut now = self.0.lock();
        *now = (now.0 + by, now.1 + by);
    }
}

impl Clock for StoppedClock {
    fn now(&self) -> DateTime<Utc> {
        self.0.lock().0
    }
    fn monotonic_now(&self) -> Instant {
        self.0.lock().1
    }
}

#[actix::test]
async fn idle_actors_and_their_memory_are_evicted() {
    const SESSIONS: usize = 300;
    const TALKS: usize = 20;
    let idle = Duration::from_secs(1);
    // The actors' tick does not depend on the stopped clock.
    let settings = ActorSettings {
        idle_s: idle.as_secs(),
        ..test_actor_settings()
    };
    let clock = StoppedClock::new();
    let world = TestWorld::with_clock(clock.clone(), settings, test_dialogue_settings()).await;
    *world.fake.with_jobs.lock() = true;
    for _ in 0..SESSIONS {
        let id = world.new_session().await;
        world.say_and_wait(id, "hello").await;
    }
    for _ in 0..TALKS {
        let id = world.new_conversation("the mill", 4, false).await;
        world.say_next_line(id).await;
    }
    let jobs = SESSIONS + TALKS;
    wait_until("every job ends", || world.fake.jobs.lock().len() >= jobs).await;
    let all = [
        ("session", SESSIONS),
        ("npc_conversation", TALKS),
        ("npc", 2),
        ("curator", 1),
    ];
    // The first actors have read the stopped clock by now.
    assert_eq!(world.sessions.actor_counts(), all);
    clock.advance(idle);
    wait_until("all of them are gone", || {
        world.sessions.actor_counts().iter().all(|(_, count)| *count == 0) && world.sessions.live_count() == 0
    })
    .await;
    // Every actor comes back when needed.
    let id = world.new_session().await;
    world.say_and_wait(id, "hello").await;
    assert_eq!(world.sessions.live_count(), 1);
    world.shut_down().await;
}

#[actix::test]
async fn expired_verdicts_are_pruned_however_many() {
    /// More than a run of the chores deletes.
    const PAIRS: u16 = 2_600;
    let clock = StoppedClock::new();
    let world = TestWorld::with_clock(clock.clone(), test_actor_settings(), test_dialogue_settings()).await;
    let (facts, scope) = (&world.ports.ledger.facts, &world.scope);
    let pairs: Vec<[u8; 32]> = (0..PAIRS)
        .map(|number| std::array::from_fn(|at| number.to_be_bytes()[at % 2]))
        .collect();
    let kept = pairs.iter().map(|pair| {
        let judged = JudgedPair {
            pair: *pair,
            verdict: JudgeVerdict::Same,
            model: "judge".to_owned(),
        };
        async move { facts.store_verdicts(scope, &[judged]).await.unwrap() }
    });
    futures_util::future::join_all(kept).await;
    assert_eq!(facts.load_verdicts(scope, &pairs).await.unwrap().len(), pairs.len());
    clock.advance(Duration::from_hours(100 * 24));
    let all_gone = async {
        while !facts.load_verdicts(scope, &pairs).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all_gone).await.expect("some are left");
    world.shut_down().await;
}
