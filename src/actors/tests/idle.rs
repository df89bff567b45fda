//! What was touched once does not stay in memory.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use super::world::{World, dialogue_settings, settings, until};
use crate::{
    actors::ActorSettings,
    ports::clock::{Clock, SystemClock},
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
