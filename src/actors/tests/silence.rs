//! Summaries after a silence: queued by curators, for dialogues and curators that are long out of memory.

use std::time::Duration;

use super::{
    idle::StoppedClock,
    world::{PATIENCE, TestWorld, test_actor_settings, test_dialogue_settings, wait_until},
};
use crate::ActorSettings;
use colloquy_core::ids::DialogueId;
use colloquy_ports::{
    PageRequest,
    ledger::{
        curator::SilenceCheck,
        jobs::{JobKind, JobRow},
    },
};

const HOUR: Duration = Duration::from_hours(1);
/// A sweep of the chores wakes the curator.
const SWEEP: Duration = Duration::from_mins(1);

async fn all_jobs(world: &TestWorld) -> Vec<JobRow> {
    let page = PageRequest {
        limit: 100,
        after: None,
    };
    let jobs = &world.ports.ledger.jobs;
    jobs.list_jobs(&world.scope, None, &page).await.unwrap().items
}

async fn due_checks(world: &TestWorld) -> Vec<SilenceCheck> {
    let (curator, until) = (&world.ports.ledger.curator, world.ports.clock.now() - HOUR);
    curator.list_silence_checks(&world.scope, until, 100).await.unwrap()
}

/// Waits until curators have checked all dialogues that are due.
async fn wait_for_checks(world: &TestWorld) {
    let checked = async {
        while !due_checks(world).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, checked).await.expect("checks are left");
}

async fn session_of(world: &TestWorld, turns: usize) -> DialogueId {
    let id = world.new_session().await;
    for number in 1..=turns {
        world.say_and_wait(id, &number.to_string()).await;
    }
    id
}

#[actix::test]
async fn silent_dialogue_out_of_memory_is_summarised() {
    // All actors have left memory long before the hour is over.
    let settings = ActorSettings {
        idle_s: 1,
        ..test_actor_settings()
    };
    let clock = StoppedClock::new();
    let world = TestWorld::with_clock(clock.clone(), settings, test_dialogue_settings()).await;
    let long = session_of(&world, 4).await;
    session_of(&world, 3).await;
    clock.advance(Duration::from_mins(59));
    wait_until("all actors have left memory", || {
        world.sessions.actor_counts().iter().all(|(_, count)| *count == 0)
    })
    .await;
    assert!(all_jobs(&world).await.is_empty());
    clock.advance(SWEEP);
    wait_until("the summary ran", || world.fake.jobs.lock().len() == 1).await;
    wait_for_checks(&world).await;
    let (dialogue, job) = world.fake.jobs.lock()[0].clone();
    assert_eq!((dialogue, job.kind), (long, JobKind::Summarise));
    let turns = world.ports.ledger.dialogues.load_turns(&world.scope, long, 4, 4).await;
    assert_eq!(job.turn, turns.unwrap()[0].id);
    assert_eq!(all_jobs(&world).await.len(), 1, "three turns are not worth a summary");

    // Silence alone brings no further summary; turns do.
    clock.advance(2 * HOUR);
    assert!(due_checks(&world).await.is_empty());
    let last = world.say_and_wait(long, "5").await;
    clock.advance(59 * SWEEP);
    assert!(due_checks(&world).await.is_empty(), "the hour is not over");
    clock.advance(2 * SWEEP);
    wait_until("the next summary ran", || world.fake.jobs.lock().len() == 2).await;
    assert_eq!(world.fake.jobs.lock()[1].1.turn, last.id);
    world.shut_down().await;
}

#[actix::test]
async fn closed_session_is_summarised_without_the_hour_of_silence() {
    let clock = StoppedClock::new();
    let world = TestWorld::with_clock(clock.clone(), test_actor_settings(), test_dialogue_settings()).await;
    let (long, short) = (session_of(&world, 4).await, session_of(&world, 3).await);
    for session in [long, short] {
        world
            .sessions
            .close_dialogue(&world.scope, session, "done")
            .await
            .unwrap();
    }
    clock.advance(SWEEP);
    wait_until("the summary ran", || world.fake.jobs.lock().len() == 1).await;
    wait_for_checks(&world).await;
    assert_eq!(world.fake.jobs.lock()[0].0, long);
    assert_eq!(all_jobs(&world).await.len(), 1, "three turns are not worth a summary");
    world.shut_down().await;
}

#[actix::test]
async fn dialogue_that_goes_on_is_checked_again_later() {
    let clock = StoppedClock::new();
    let world = TestWorld::with_clock(clock.clone(), test_actor_settings(), test_dialogue_settings()).await;
    let id = session_of(&world, 4).await;
    clock.advance(59 * SWEEP);
    let last = world.say_and_wait(id, "5").await;
    clock.advance(2 * SWEEP);
    wait_for_checks(&world).await;
    assert!(all_jobs(&world).await.is_empty(), "the player was there a moment ago");
    clock.advance(HOUR);
    wait_until("the summary ran", || world.fake.jobs.lock().len() == 1).await;
    assert_eq!(world.fake.jobs.lock()[0].1.turn, last.id);
    world.shut_down().await;
}

#[actix::test]
async fn silent_dialogue_is_summarised_by_one_of_several_nodes() {
    let clock = StoppedClock::new();
    let world = TestWorld::with_clock(clock.clone(), test_actor_settings(), test_dialogue_settings()).await;
    let mut sessions = Vec::new();
    for _ in 0..5 {
        sessions.push(session_of(&world, 4).await);
    }
    let other = world.restart_process();
    clock.advance(HOUR + SWEEP);
    let ran = || {
        let jobs = [&world, &other].map(|node| node.fake.jobs.lock().clone());
        let mut ran: Vec<_> = jobs.iter().flatten().map(|(dialogue, _)| *dialogue).collect();
        ran.sort_unstable();
        ran
    };
    wait_until("the summaries ran", || ran().len() >= sessions.len()).await;
    wait_for_checks(&world).await;
    sessions.sort_unstable();
    assert_eq!(ran(), sessions);
    assert_eq!(all_jobs(&world).await.len(), sessions.len());
    other.shut_down().await;
    world.shut_down().await;
}
