//! Sessions in which nothing is learned from a reply before it was heard.

use std::sync::atomic::Ordering::Relaxed;

use super::world::{Ear, World, outcome, until};
use crate::{
    actors::{Heard, Interrupted, OnBusy, session},
    ids::DialogueId,
    memory::turn::TurnStatus,
};

/// A session whose only reply was cut after it was said; what was heard of it is being learned.
async fn cut_after_it_was_said(world: &World) -> DialogueId {
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let id = world.acknowledging_session().await;
    world.turn(id, "1").await;
    world.interrupt(id, Some(1), Some(Heard::Chars(3))).await.unwrap();
    until("what was heard is being learned", || {
        world.fake.running_jobs.load(Relaxed) == 1
    })
    .await;
    id
}

/// Says the second line, which is to wait until the running job ends.
async fn says_what_waits(world: &World, id: DialogueId) {
    let ear = world.listen(id).await;
    let second = world.say(id, "2").await;
    // Whatever the line made of jobs that are held has been written by now, and heard of.
    let jobs = &world.ports.ledger.jobs;
    let said = world
        .ports
        .ledger
        .dialogues
        .turns(&world.scope, id, 1, 1)
        .await
        .unwrap();
    let due = jobs.make_due(&world.scope, id, said[0].id, world.ports.clock.now());
    assert_eq!(due.await.unwrap(), 0);
    for _ in 0..3 {
        world.sessions.view(&world.scope, id).await.unwrap();
    }
    assert_eq!(*world.fake.spoken.lock(), ["1"], "the second turn waits");
    world.fake.job_go.add_permits(1);
    assert_eq!(outcome(second).await.unwrap().number, 2);
    first_taught_before_the_second(&ear);
}

fn first_taught_before_the_second(ear: &Ear) {
    let story = ear.story();
    let at = |what: &str| story.iter().position(|event| event == what);
    assert!(
        at("memory 1").is_some() && at("memory 1") < at("started 2"),
        "{story:?}"
    );
}

/// Says a line while the reply to `first` runs, which ends as `ended`; it is answered once that has taught.
async fn spoken_while_it_runs(first: &str, on_busy: OnBusy, ended: TurnStatus) {
    let world = World::new().await;
    *world.fake.with_jobs.lock() = true;
    let id = world.acknowledging_session().await;
    let ear = world.listen(id).await;
    let first = world.say(id, first).await;
    world.begun(1).await;
    let second = world.say_with(id, "2", None, on_busy).await;
    world.fake.go.add_permits(1);
    assert_eq!(outcome(first).await.unwrap().status, ended);
    assert_eq!(outcome(second).await.unwrap().number, 2);
    first_taught_before_the_second(&ear);
    world.end().await;
}

#[actix::test]
async fn a_line_that_waited_behind_a_reply_waits_for_what_it_taught() {
    spoken_while_it_runs("hold", OnBusy::Queue, TurnStatus::Completed).await;
}

#[actix::test]
async fn a_line_that_cuts_a_reply_waits_for_what_was_heard() {
    spoken_while_it_runs("hold", OnBusy::Interrupt, TurnStatus::Interrupted).await;
}

#[actix::test]
async fn so_does_one_that_came_too_late_to_cut() {
    spoken_while_it_runs("commit later", OnBusy::Interrupt, TurnStatus::Completed).await;
}

#[actix::test]
async fn the_line_after_a_cut_waits_for_what_was_heard() {
    let world = World::new().await;
    let id = cut_after_it_was_said(&world).await;
    says_what_waits(&world, id).await;
    world.end().await;
}

#[actix::test]
async fn it_waits_as_well_where_the_session_was_read_anew_since() {
    let world = World::new().await;
    let id = cut_after_it_was_said(&world).await;
    let addr = world.sessions.session_for_test(&(world.scope.clone(), id));
    addr.try_send(session::Panic).unwrap();
    until("it is dead", || !addr.connected()).await;
    says_what_waits(&world, id).await;
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
