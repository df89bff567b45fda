//! Jobs after a turn: the wait for jobs, their order, retries and recovery.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use super::world::{PATIENCE, TestWorld, test_actor_settings, test_dialogue_settings, wait_for_turn, wait_until};
use colloquy_dialogue::settings::DialogueSettings;
use colloquy_memory::turn::Usage;
use colloquy_ports::{
    PageRequest,
    ledger::{curator::FailedJob, jobs::JobStatus, usage::UsageDelta},
};

#[actix::test]
async fn next_turn_waits_for_memory_of_the_last_turn() {
    let world = TestWorld::new().await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    world.say_and_wait(id, "1").await;
    let second = world.say_line(id, "2").await;
    wait_until("the first job runs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    assert_eq!(world.fake.spoken.lock().len(), 1, "the second turn waits");
    world.fake.job_go.add_permits(1);
    assert_eq!(wait_for_turn(second).await.unwrap().number, 2);
    let story = ear.event_labels();
    let at = |what: &str| story.iter().position(|event| event == what).unwrap();
    assert!(at("memory 1") < at("started 2"), "{story:?}");
    let waits = world.fake.memory_waits.lock().clone();
    assert!(waits[0] == 0.0 && waits[1] > 0.0 && waits[1] < 5_000.0, "{waits:?}");
    world.shut_down().await;
}

#[actix::test]
async fn unlocked_scenario_is_published_after_reading_without_delaying_the_turn() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    // Every turn is committed, and followed by another, before the read of the unlocked scenarios.
    world.say_and_wait(id, "unlock").await;
    world.say_and_wait(id, "unlock").await;
    world.say_and_wait(id, "3").await;
    assert!(!ear.event_labels().iter().any(|event| event.starts_with("unlocked")));
    world.rewind_to(id, 1).await.unwrap();
    world.fake.go.add_permits(2);
    ear.wait_for_event("unlocked 1 well").await;
    wait_until("both were read", || world.fake.go.available_permits() == 0).await;
    world.say_and_wait(id, "2").await;
    assert!(
        !ear.event_labels().contains(&"unlocked 2 well".to_owned()),
        "it was taken back"
    );
    world.shut_down().await;
}

#[actix::test]
async fn memory_wait_is_bounded() {
    let mut short = test_dialogue_settings();
    short.turn.wait_for_memory_ms = 30;
    let world = TestWorld::with_settings(test_actor_settings(), short).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let id = world.new_session().await;
    world.say_and_wait(id, "1").await;
    world.say_and_wait(id, "2").await;
    let waits = world.fake.memory_waits.lock().clone();
    assert!(waits[1] >= 29.0, "{waits:?}");
    assert!(world.fake.jobs.lock().is_empty());
    world.shut_down().await;
}

#[actix::test]
async fn extraction_keeps_turn_order_and_ignores_other_dialogues_of_the_npc() {
    let world = TestWorld::with_settings(test_actor_settings(), no_wait()).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let (a, b) = (world.new_session().await, world.new_session().await);
    for line in ["1", "2", "3"] {
        world.say_and_wait(a, line).await;
        world.say_and_wait(b, line).await;
    }
    wait_until("both dialogues' first jobs run", || {
        world.fake.running_jobs.load(Relaxed) == 2
    })
    .await;
    world.fake.job_go.add_permits(6);
    wait_until("all ran", || world.fake.jobs.lock().len() == 6).await;
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
    world.shut_down().await;
}

#[actix::test]
async fn failed_job_is_retried_before_later_jobs_and_finally_dies() {
    let world = TestWorld::with_settings(test_actor_settings(), no_wait()).await;
    *world.fake.with_jobs.lock() = true;
    let id = world.new_session().await;
    world.fake.failures.lock().insert(id, 2);
    let first = world.say_and_wait(id, "1").await;
    let second = world.say_and_wait(id, "2").await;
    wait_until("both ran", || world.fake.jobs.lock().len() == 2).await;
    let order: Vec<_> = world
        .fake
        .jobs
        .lock()
        .iter()
        .map(|(_, job)| (job.turn, job.attempts))
        .collect();
    assert_eq!(order, [(first.id, 2), (second.id, 0)]);

    let hopeless = world.new_session().await;
    world.fake.failures.lock().insert(hopeless, u32::MAX);
    world.say_and_wait(hopeless, "1").await;
    let page = PageRequest { limit: 10, after: None };
    let mut dead = 0;
    for _ in 0..1_000 {
        let jobs = world
            .ports
            .ledger
            .jobs
            .list_jobs(&world.scope, Some(JobStatus::Dead), &page)
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
    world.shut_down().await;
}

#[actix::test]
async fn jobs_of_a_killed_process_run_after_restart() {
    let world = TestWorld::with_settings(test_actor_settings(), no_wait()).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let id = world.new_session().await;
    let turns = [world.say_and_wait(id, "1").await, world.say_and_wait(id, "2").await];
    wait_until("a job runs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    let killed = world;
    let world = killed.restart_process();
    wait_until("they run", || world.fake.jobs.lock().len() == 2).await;
    let ran = world.fake.turns_of_jobs();
    assert_eq!(ran, turns.map(|turn| turn.id));
    assert!(killed.fake.jobs.lock().is_empty());
    world.shut_down().await;
}

#[actix::test]
async fn job_that_waited_too_long_is_left_to_its_new_owner() {
    let mut dialogue = no_wait();
    dialogue.jobs.concurrency = 1;
    let world = TestWorld::with_settings(test_actor_settings(), dialogue).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    // The leases are not fresh: every job renews its lease before the run.
    *world.fake.leased_for.lock() = Duration::from_mins(1);
    let first = world.new_session().await;
    world.say_and_wait(first, "1").await;
    wait_until("a job runs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    let second = world.new_session().await;
    world.say_and_wait(second, "1").await;
    wait_until("another waits", || world.sessions.metrics().jobs_held.get() == 2).await;
    let (jobs, rival) = (&world.ports.ledger.jobs, world.ports.ids.next_id());
    let later = world.ports.clock.now() + Duration::from_hours(1);
    let until_then = later + Duration::from_hours(1);
    let taken = jobs
        .lease_due_jobs(&world.scope, rival, later, until_then, 9)
        .await
        .unwrap();
    assert_eq!(taken.len(), 2);
    *world.fake.hold_jobs.lock() = false;
    world.fake.job_go.add_permits(1);
    let ran = || world.fake.jobs.lock().iter().map(|(of, _)| *of).collect::<Vec<_>>();
    wait_until("the first has run", || ran() == [first]).await;
    // The curator polls every 50 ms.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(ran(), [first], "the model is paid once");
    jobs.release_all_leases(rival).await.unwrap();
    wait_until("it runs once it is anybody's", || ran() == [first, second]).await;
    world.shut_down().await;
}

#[actix::test]
async fn job_waits_for_its_predecessor_at_another_node() {
    let world = TestWorld::with_settings(test_actor_settings(), no_wait()).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    *world.fake.leased_for.lock() = Duration::from_mins(1);
    let id = world.new_session().await;
    for line in ["1", "2", "3"] {
        world.say_and_wait(id, line).await;
    }
    wait_until("the first job runs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    wait_until("two wait", || world.sessions.metrics().jobs_held.get() == 3).await;
    let (jobs, rival) = (&world.ports.ledger.jobs, world.ports.ids.next_id());
    let later = world.ports.clock.now() + Duration::from_hours(1);
    let until_then = later + Duration::from_hours(1);
    let taken = jobs
        .lease_due_jobs(&world.scope, rival, later, until_then, 2)
        .await
        .unwrap();
    *world.fake.hold_jobs.lock() = false;
    world.fake.job_go.add_permits(1);
    let ran = || world.fake.jobs.lock().iter().map(|(_, job)| job.id).collect::<Vec<_>>();
    wait_until("the first has run", || ran() == [taken[0].id]).await;
    // The curator polls every 50 ms.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(ran(), [taken[0].id], "the third waits for the second");
    jobs.finish_job(&world.scope, taken[1].id, &[]).await.unwrap();
    wait_until("the third runs", || ran().len() == 2).await;
    assert!(!ran().contains(&taken[1].id), "the model is paid once");
    world.shut_down().await;
}

/// Waits for a failed job, and returns it.
async fn failed_job(world: &TestWorld) -> FailedJob {
    let now = world.ports.clock.now();
    let failed = async {
        loop {
            let curator = &world.ports.ledger.curator;
            let report = curator.load_curator_report(&world.scope, now, now).await.unwrap();
            if let Some(failure) = report.failures.into_iter().next() {
                break failure;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, failed).await.unwrap()
}

#[actix::test]
async fn job_that_panics_is_a_failed_attempt_and_runs_again() {
    let world = TestWorld::with_settings(test_actor_settings(), no_wait()).await;
    *world.fake.with_jobs.lock() = true;
    world.fake.panicking_jobs.store(1, Relaxed);
    let id = world.new_session().await;
    let turn = world.say_and_wait(id, "1").await;
    wait_until("it runs", || world.fake.jobs.lock().len() == 1).await;
    let failure = failed_job(&world).await;
    assert_eq!((failure.turn_id, failure.error.as_str()), (turn.id, "the job panicked"));
    assert_eq!((failure.attempts, failure.status), (1, JobStatus::Done));
    world.shut_down().await;
}

#[actix::test]
async fn job_longer_than_its_lease_is_a_failed_attempt_and_runs_again() {
    let mut dialogue = no_wait();
    dialogue.jobs.lease_s = 1;
    let world = TestWorld::with_settings(test_actor_settings(), dialogue).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    *world.fake.leased_for.lock() = Duration::from_secs(1);
    let id = world.new_session().await;
    world.say_and_wait(id, "1").await;
    let failure = failed_job(&world).await;
    assert_eq!(failure.error, "the job ran longer than its lease");
    *world.fake.hold_jobs.lock() = false;
    world.fake.job_go.add_permits(10);
    wait_until("it runs", || world.fake.jobs.lock().len() == 1).await;
    world.shut_down().await;
}

#[actix::test]
async fn usage_is_written_periodically_and_at_shutdown() {
    let world = TestWorld::new().await;
    let day = world.ports.clock.now().date_naive();
    let spend = || {
        let usage = Usage {
            prompt_tokens: 10,
            ..Usage::default()
        };
        let delta = UsageDelta {
            player: None,
            owner: None,
            unchanged_tokens: 0,
            day,
            task: "reply",
            model: "m".into(),
            calls: 1,
            usage,
        };
        world.fake.usage.lock().push((world.scope.clone(), delta));
    };
    spend();
    wait_until("it is taken", || world.fake.usage.lock().is_empty()).await;
    spend();
    world.sessions.drain_node(PATIENCE).await;
    let rows = world
        .ports
        .ledger
        .usage
        .list_usage_between(&world.scope, day, day)
        .await
        .unwrap();
    assert_eq!((rows[0].calls, rows[0].prompt_tokens), (2, 20));
    world.shut_down().await;
}

#[actix::test]
async fn turn_waits_for_no_job_behind_a_failed_job() {
    let mut settings = test_dialogue_settings();
    settings.jobs.retry_base_s = 3_600;
    let world = TestWorld::with_settings(test_actor_settings(), settings).await;
    *world.fake.with_jobs.lock() = true;
    let id = world.new_session().await;
    world.fake.failures.lock().insert(id, 1);
    for line in ["1", "2", "3", "4"] {
        world.say_and_wait(id, line).await;
    }
    let waits = world.fake.memory_waits.lock().clone();
    assert!(waits[1..].iter().all(|wait| *wait < 4_000.0), "{waits:?}");
    assert!(world.fake.jobs.lock().is_empty(), "no later job runs first");
    world.shut_down().await;
}

fn no_wait() -> DialogueSettings {
    let mut settings = test_dialogue_settings();
    settings.turn.wait_for_memory_ms = 0;
    settings
}

#[actix::test]
async fn line_that_points_at_the_last_turn_waits_longer() {
    let mut settings = test_dialogue_settings();
    (
        settings.turn.wait_for_memory_ms,
        settings.turn.longest_wait_for_memory_ms,
    ) = (20, 300);
    let world = TestWorld::with_settings(test_actor_settings(), settings).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let id = world.new_session().await;
    for line in ["My sister Bera is ill.", "Do you sell salt?", "Does she like salt?"] {
        world.say_and_wait(id, line).await;
    }
    let waits = world.fake.memory_waits.lock().clone();
    assert!(
        (19.0..200.0).contains(&waits[1]),
        "nothing of the line is in the last turn: {waits:?}"
    );
    assert!(waits[2] >= 299.0, "{waits:?}");
    world.shut_down().await;
}
