//! Jobs: waited for, in order, retried, resumed.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use super::world::{PATIENCE, World, dialogue_settings, outcome, settings, until};
use crate::{
    dialogue::settings::DialogueSettings,
    memory::turn::Usage,
    ports::{
        PageRequest,
        ledger::{jobs::JobStatus, usage::UsageDelta},
    },
};

#[actix::test]
async fn the_next_turn_waits_for_what_the_last_one_taught() {
    let world = World::new().await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let id = world.session().await;
    let ear = world.listen(id).await;
    world.turn(id, "1").await;
    let second = world.say(id, "2").await;
    until("the first job runs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    assert_eq!(world.fake.spoken.lock().len(), 1, "the second turn waits");
    world.fake.job_go.add_permits(1);
    assert_eq!(outcome(second).await.unwrap().number, 2);
    let story = ear.story();
    let at = |what: &str| story.iter().position(|event| event == what).unwrap();
    assert!(at("memory 1") < at("started 2"), "{story:?}");
    let waits = world.fake.memory_waits.lock().clone();
    assert!(waits[0] == 0.0 && waits[1] > 0.0 && waits[1] < 5_000.0, "{waits:?}");
    world.end().await;
}

#[actix::test]
async fn what_a_turn_unlocked_is_told_once_it_is_read_and_nobody_waits_for_it() {
    let world = World::new().await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    // Each of them is committed, and followed, while nothing has been read yet.
    world.turn(id, "unlock").await;
    world.turn(id, "unlock").await;
    world.turn(id, "3").await;
    assert!(!ear.story().iter().any(|event| event.starts_with("unlocked")));
    world.back(id, 1).await.unwrap();
    world.fake.go.add_permits(2);
    ear.hears("unlocked 1 well").await;
    until("both were read", || world.fake.go.available_permits() == 0).await;
    world.turn(id, "2").await;
    assert!(
        !ear.story().contains(&"unlocked 2 well".to_owned()),
        "it was taken back"
    );
    world.end().await;
}

#[actix::test]
async fn the_wait_for_memory_is_bounded() {
    let mut short = dialogue_settings();
    short.turn.wait_for_memory_ms = 30;
    let world = World::with(settings(), short).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let id = world.session().await;
    world.turn(id, "1").await;
    world.turn(id, "2").await;
    let waits = world.fake.memory_waits.lock().clone();
    assert!(waits[1] >= 29.0, "{waits:?}");
    assert!(world.fake.jobs.lock().is_empty());
    world.end().await;
}

#[actix::test]
async fn extraction_follows_the_turns_of_a_dialogue_and_waits_for_no_other_dialogue_of_the_npc() {
    let world = World::with(settings(), no_wait()).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let (a, b) = (world.session().await, world.session().await);
    for line in ["1", "2", "3"] {
        world.turn(a, line).await;
        world.turn(b, line).await;
    }
    until("both dialogues' first jobs run", || {
        world.fake.running_jobs.load(Relaxed) == 2
    })
    .await;
    world.fake.job_go.add_permits(6);
    until("all ran", || world.fake.jobs.lock().len() == 6).await;
    let jobs = world.fake.jobs.lock().clone();
    for dialogue in [a, b] {
        let ids: Vec<_> = jobs
            .iter()
            .filter(|(of, _)| *of == dialogue)
            .map(|(_, job)| job.id)
            .collect();
        assert!(ids.is_sorted(), "the order of the turns");
    }
    assert_eq!(
        world.fake.most_running_jobs.load(Relaxed),
        2,
        "one at a time in a dialogue"
    );
    world.end().await;
}

#[actix::test]
async fn a_failed_job_is_tried_again_before_later_ones_and_dies_at_last() {
    let world = World::with(settings(), no_wait()).await;
    *world.fake.with_jobs.lock() = true;
    let id = world.session().await;
    world.fake.failures.lock().insert(id, 2);
    let first = world.turn(id, "1").await;
    let second = world.turn(id, "2").await;
    until("both ran", || world.fake.jobs.lock().len() == 2).await;
    let order: Vec<_> = world
        .fake
        .jobs
        .lock()
        .iter()
        .map(|(_, job)| (job.turn, job.attempts))
        .collect();
    assert_eq!(order, [(first.id, 2), (second.id, 0)]);

    let hopeless = world.session().await;
    world.fake.failures.lock().insert(hopeless, u32::MAX);
    world.turn(hopeless, "1").await;
    let page = PageRequest { limit: 10, after: None };
    let mut dead = 0;
    for _ in 0..1_000 {
        let jobs = world
            .ports
            .ledger
            .jobs
            .list(&world.scope, Some(JobStatus::Dead), &page)
            .await
            .unwrap();
        dead = jobs.items.len();
        if dead > 0 {
            assert_eq!(jobs.items[0].attempts, 3);
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(dead, 1);
    world.end().await;
}

#[actix::test]
async fn jobs_of_a_killed_process_run_after_the_next_start() {
    let world = World::with(settings(), no_wait()).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let id = world.session().await;
    let turns = [world.turn(id, "1").await, world.turn(id, "2").await];
    until("a job runs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    let killed = world;
    let world = killed.restarted();
    until("they run", || world.fake.jobs.lock().len() == 2).await;
    let ran: Vec<_> = world.fake.jobs.lock().iter().map(|(_, job)| job.turn).collect();
    assert_eq!(ran, turns.map(|turn| turn.id));
    assert!(killed.fake.jobs.lock().is_empty());
    world.end().await;
}

#[actix::test]
async fn a_job_that_waited_too_long_is_left_to_whoever_has_it_by_then() {
    let mut dialogue = no_wait();
    dialogue.jobs.concurrency = 1;
    let world = World::with(settings(), dialogue).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    // Not fresh: each asks for its lease again before it runs.
    *world.fake.leased_for.lock() = Duration::from_mins(1);
    let first = world.session().await;
    world.turn(first, "1").await;
    until("a job runs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    let second = world.session().await;
    world.turn(second, "1").await;
    until("another waits", || world.sessions.meters().jobs_held.get() == 2).await;
    let (jobs, rival) = (&world.ports.ledger.jobs, world.ports.ids.next());
    let later = world.ports.clock.now() + Duration::from_hours(1);
    let until_then = later + Duration::from_hours(1);
    let taken = jobs.lease(&world.scope, rival, later, until_then, 9).await.unwrap();
    assert_eq!(taken.len(), 2);
    *world.fake.hold_jobs.lock() = false;
    world.fake.job_go.add_permits(1);
    let ran = || world.fake.jobs.lock().iter().map(|(of, _)| *of).collect::<Vec<_>>();
    until("the first has run", || ran() == [first]).await;
    // Looked at every 50 ms.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(ran(), [first], "the model is paid once");
    jobs.release_all(rival).await.unwrap();
    until("it runs once it is anybody's", || ran() == [first, second]).await;
    world.end().await;
}

#[actix::test]
async fn what_follows_a_job_of_another_node_waits_until_that_is_done() {
    let world = World::with(settings(), no_wait()).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    *world.fake.leased_for.lock() = Duration::from_mins(1);
    let id = world.session().await;
    for line in ["1", "2", "3"] {
        world.turn(id, line).await;
    }
    until("the first job runs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    until("two wait", || world.sessions.meters().jobs_held.get() == 3).await;
    let (jobs, rival) = (&world.ports.ledger.jobs, world.ports.ids.next());
    let later = world.ports.clock.now() + Duration::from_hours(1);
    let until_then = later + Duration::from_hours(1);
    let taken = jobs.lease(&world.scope, rival, later, until_then, 2).await.unwrap();
    *world.fake.hold_jobs.lock() = false;
    world.fake.job_go.add_permits(1);
    let ran = || world.fake.jobs.lock().iter().map(|(_, job)| job.id).collect::<Vec<_>>();
    until("the first has run", || ran() == [taken[0].id]).await;
    // Looked at every 50 ms.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(ran(), [taken[0].id], "the third waits for the second");
    jobs.finish(&world.scope, taken[1].id, &[]).await.unwrap();
    until("the third runs", || ran().len() == 2).await;
    assert!(!ran().contains(&taken[1].id), "the model is paid once");
    world.end().await;
}

#[actix::test]
async fn usage_is_written_every_now_and_then_and_at_the_end() {
    let world = World::new().await;
    let day = world.ports.clock.now().date_naive();
    let spend = || {
        let usage = Usage {
            prompt_tokens: 10,
            ..Usage::default()
        };
        let delta = UsageDelta {
            day,
            task: "reply",
            model: "m".into(),
            calls: 1,
            usage,
        };
        world.fake.usage.lock().push((world.scope.clone(), delta));
    };
    spend();
    until("it is taken", || world.fake.usage.lock().is_empty()).await;
    spend();
    world.sessions.drain(PATIENCE).await;
    let rows = world.ports.ledger.usage.between(&world.scope, day, day).await.unwrap();
    assert_eq!((rows[0].calls, rows[0].prompt_tokens), (2, 20));
    world.end().await;
}

fn no_wait() -> DialogueSettings {
    let mut settings = dialogue_settings();
    settings.turn.wait_for_memory_ms = 0;
    settings
}
