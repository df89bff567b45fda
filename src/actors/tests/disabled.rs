//! The work that stops for a disabled tenant.

use std::sync::atomic::Ordering::Relaxed;

use super::world::{TestWorld, test_actor_settings, test_dialogue_settings, wait_until};

impl TestWorld {
    fn set_disabled(&self, disabled: bool) {
        self.ports.disabled.set_disabled(self.scope.tenant(), disabled);
    }
}

#[actix::test]
async fn conversation_of_a_disabled_tenant_says_no_line_until_enabled() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("hold", 3, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    world.wait_for_begun(1).await;
    world.set_disabled(true);
    world.fake.go.add_permits(10);
    // The running line is said to its end.
    ear.wait_for_event("committed 1").await;
    for _ in 0..3 {
        let asked = world.sessions.say_next_line(&world.scope, id).await.unwrap();
        assert!(asked.await.is_err(), "nobody is asked for a line");
    }
    assert_eq!(world.fake.spoken.lock().len(), 1);
    let view = world.sessions.conversation_snapshot(&world.scope, id).await.unwrap();
    assert!(!view.dialogue.options.paused, "nobody has to resume it");
    world.set_disabled(false);
    ear.wait_for_event("ended 3 max_turns").await;
    world.shut_down().await;
}

#[actix::test]
async fn jobs_of_a_disabled_tenant_wait_until_enabled() {
    let mut no_wait = test_dialogue_settings();
    no_wait.turn.wait_for_memory_ms = 0;
    let world = TestWorld::with_settings(test_actor_settings(), no_wait).await;
    (*world.fake.with_jobs.lock(), *world.fake.hold_jobs.lock()) = (true, true);
    let id = world.new_session().await;
    world.say_and_wait(id, "1").await;
    world.say_and_wait(id, "2").await;
    wait_until("a job runs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    let curators = || {
        let actors = world.sessions.actor_counts();
        actors.iter().find(|(kind, _)| *kind == "curator").unwrap().1
    };
    world.set_disabled(true);
    wait_until("what runs is let go", || curators() == 0).await;
    world.fake.job_go.add_permits(10);
    // A line said at the moment of the change.
    world.say_and_wait(id, "3").await;
    assert_eq!(curators(), 0);
    assert!(world.fake.jobs.lock().is_empty());
    let pending = world
        .ports
        .ledger
        .jobs
        .count_pending_jobs(&world.scope, id)
        .await
        .unwrap();
    assert_eq!(pending, 3);
    world.set_disabled(false);
    wait_until("all run", || world.fake.jobs.lock().len() == 3).await;
    world.shut_down().await;
}
