//! Sessions in which nothing is learned from a reply before it was heard.

use std::sync::atomic::Ordering::Relaxed;

use super::world::{World, outcome, until};
use crate::actors::{Heard, Interrupted};

#[actix::test]
async fn the_line_after_a_cut_waits_for_what_was_heard() {
    let world = World::new().await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let id = world.acknowledging_session().await;
    let ear = world.listen(id).await;
    world.turn(id, "1").await;
    world.interrupt(id, Some(1), Some(Heard::Chars(3))).await.unwrap();
    until("what was heard is being learned", || {
        world.fake.running_jobs.load(Relaxed) == 1
    })
    .await;
    let second = world.say(id, "2").await;
    // Whatever the line made of jobs that are held has been written by now, and heard of.
    let jobs = &world.ports.ledger.jobs;
    assert_eq!(
        jobs.make_due(&world.scope, id, world.ports.clock.now()).await.unwrap(),
        0
    );
    world.sessions.view(&world.scope, id).await.unwrap();
    assert_eq!(world.fake.spoken.lock().len(), 1, "the second turn waits");
    world.fake.job_go.add_permits(1);
    assert_eq!(outcome(second).await.unwrap().number, 2);
    let story = ear.story();
    let at = |what: &str| story.iter().position(|event| event == what).unwrap();
    assert!(at("memory 1") < at("started 2"), "{story:?}");
    world.end().await;
}

#[actix::test]
async fn a_reply_that_is_put_back_whole_is_learned_when_it_was_played() {
    let world = World::new().await;
    *world.fake.with_jobs.lock() = true;
    let id = world.acknowledging_session().await;
    let whole = world.turn(id, "1").await;
    let learned = || {
        world
            .fake
            .jobs
            .lock()
            .iter()
            .map(|(_, job)| job.turn)
            .collect::<Vec<_>>()
    };
    world.interrupt(id, Some(1), Some(Heard::Chars(3))).await.unwrap();
    until("what was heard is learned", || learned().len() == 1).await;
    assert_ne!(learned(), [whole.id]);

    let told = world.take_up(id, None).await.unwrap();
    let Interrupted::Rewound(rewound) = told else {
        panic!("{told:?}")
    };
    assert_eq!(rewound.head, Some(whole.id));
    let jobs = &world.ports.ledger.jobs;
    let due = jobs.extracting(&world.scope, id, whole.id, world.ports.clock.now());
    assert!(!due.await.unwrap() && learned().len() == 1, "it has not been played");
    assert_eq!(jobs.pending(&world.scope, id).await.unwrap(), 1);
    world.sessions.played(&world.scope, id, 1).await.unwrap();
    until("it is learned", || learned().len() == 2).await;
    assert_eq!(learned()[1], whole.id);
    world.end().await;
}
