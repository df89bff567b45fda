//! What was touched once does not stay in memory.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use super::world::{PATIENCE, World, dialogue_settings, settings, until};
use crate::{
    actors::ActorSettings,
    memory::reconcile::Verdict,
    ports::{
        clock::{Clock, SystemClock},
        ledger::facts::JudgedPair,
    },
};

/// Stands still until it is moved.
struct Stopped(Mutex<(DateTime<Utc>, Instant)>);

impl Stopped {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new((SystemClock.now(), SystemClock.instant()))))
    }
    fn advance(&self, by: Duration) {
        let mut now = self.0.lock();
        *now = (now.0 + by, now.1 + by);
    }
}

impl Clock for Stopped {
    fn now(&self) -> DateTime<Utc> {
        self.0.lock().0
    }
    fn instant(&self) -> Instant {
        self.0.lock().1
    }
}

#[actix::test]
async fn what_was_touched_once_is_gone_when_it_has_been_idle() {
    const SESSIONS: usize = 300;
    const TALKS: usize = 20;
    let idle = Duration::from_secs(1);
    // How often an actor looks does not depend on the clock that is stopped here.
    let settings = ActorSettings {
        idle_s: idle.as_secs(),
        ..settings()
    };
    let clock = Stopped::new();
    let world = World::at(clock.clone(), settings, dialogue_settings()).await;
    *world.fake.with_jobs.lock() = true;
    for _ in 0..SESSIONS {
        let id = world.session().await;
        world.turn(id, "hello").await;
    }
    for _ in 0..TALKS {
        let id = world.talk("the mill", 4, false).await;
        world.step(id).await;
    }
    let jobs = SESSIONS + TALKS;
    until("every job ends", || world.fake.jobs.lock().len() >= jobs).await;
    let all = [
        ("session", SESSIONS),
        ("npc_conversation", TALKS),
        ("npc", 2),
        ("curator", 1),
    ];
    // The first of them have looked at the clock by now, which stands still.
    assert_eq!(world.sessions.actors(), all);
    clock.advance(idle);
    until("all of them are gone", || {
        world.sessions.actors().iter().all(|(_, count)| *count == 0) && world.sessions.live() == 0
    })
    .await;
    // And each comes back when it is needed.
    let id = world.session().await;
    world.turn(id, "hello").await;
    assert_eq!(world.sessions.live(), 1);
    world.end().await;
}

#[actix::test]
async fn what_was_kept_long_enough_goes_however_much_it_is() {
    /// More than goes in one go of the chores.
    const PAIRS: u16 = 2_600;
    let clock = Stopped::new();
    let world = World::at(clock.clone(), settings(), dialogue_settings()).await;
    let (facts, scope) = (&world.ports.ledger.facts, &world.scope);
    let pairs: Vec<[u8; 32]> = (0..PAIRS)
        .map(|number| std::array::from_fn(|at| number.to_be_bytes()[at % 2]))
        .collect();
    let kept = pairs.iter().map(|pair| {
        let judged = JudgedPair {
            pair: *pair,
            verdict: Verdict::Same,
            model: "judge".to_owned(),
        };
        async move { facts.keep_verdicts(scope, &[judged]).await.unwrap() }
    });
    futures_util::future::join_all(kept).await;
    assert_eq!(facts.verdicts(scope, &pairs).await.unwrap().len(), pairs.len());
    clock.advance(Duration::from_hours(100 * 24));
    let all_gone = async {
        while !facts.verdicts(scope, &pairs).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all_gone).await.expect("some are left");
    world.end().await;
}
