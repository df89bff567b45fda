//! What a tenant's being disabled stops.

use std::sync::atomic::Ordering::Relaxed;

use super::world::{World, dialogue_settings, settings, until};

impl World {
    fn disable(&self, disabled: bool) {
        self.ports.disabled.set(self.scope.tenant(), disabled);
    }
}

#[actix::test]
async fn a_conversation_says_no_line_more_until_its_tenant_is_enabled() {
    let world = World::new().await;
    let id = world.talk("hold", 3, true).await;
    let ear = world.watch(id, Some(1)).await;
    world.begun(1).await;
    world.disable(true);
    world.fake.go.add_permits(10);
    // What is being said is said to its end.
    ear.hears("committed 1").await;
    for _ in 0..3 {
        let asked = world.talks().step(&world.scope, id).await.unwrap();
        assert!(asked.await.is_err(), "nobody is asked for a line");
    }
    assert_eq!(world.fake.spoken.lock().len(), 1);
    let view = world.talks().view(&world.scope, id).await.unwrap();
    assert!(!view.dialogue.options.paused, "nobody has to resume it");
    world.disable(false);
    ear.hears("ended 3 max_turns").await;
    world.end().await;
}

#[actix::test]
async fn jobs_wait_until_their_tenant_is_enabled() {
    let mut no_wait = dialogue_settings();
    no_wait.turn.wait_for_memory_ms = 0;
    let world = World::with(settings(), no_wait).await;
    (*world.fake.with_jobs.lock(), *world.fake.hold_jobs.lock()) = (true, true);
    let id = world.session().await;
    world.turn(id, "1").await;
    world.turn(id, "2").await;
    until("a job runs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    let curators = || {
        let actors = world.sessions.actors();
        actors.iter().find(|(kind, _)| *kind == "curator").unwrap().1
    };
    world.disable(true);
    until("what runs is let go", || curators() == 0).await;
    world.fake.job_go.add_permits(10);
    // One that was said as it happened.
    world.turn(id, "3").await;
    assert_eq!(curators(), 0);
    assert!(world.fake.jobs.lock().is_empty());
    let pending = world.ports.ledger.jobs.pending(&world.scope, id).await.unwrap();
    assert_eq!(pending, 3);
    world.disable(false);
    until("all run", || world.fake.jobs.lock().len() == 3).await;
    world.end().await;
}
