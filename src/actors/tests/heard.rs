//! Sessions that learn from a reply only after it was heard.

use std::sync::atomic::Ordering::Relaxed;

use super::world::{
    RecordingListener, TestWorld, test_actor_settings, test_dialogue_settings, wait_for_turn, wait_until,
};
use crate::{HeardLength, InterruptOutcome, OnBusy};
use colloquy_core::ids::{DialogueId, TurnId};
use colloquy_memory::turn::TurnStatus;
use colloquy_ports::ledger::jobs::{ExtractionStatus, JobKind};

/// Creates a session whose only reply was cut after its end; a job is learning the heard part.
async fn new_session_cut_after_reply(world: &TestWorld) -> DialogueId {
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let id = world.new_acknowledging_session().await;
    world.say_and_wait(id, "1").await;
    world.interrupt(id, Some(1), Some(HeardLength::Chars(3))).await.unwrap();
    wait_until("what was heard is being learned", || {
        world.fake.running_jobs.load(Relaxed) == 1
    })
    .await;
    id
}

/// Says the second line, which must wait until the running job ends.
async fn say_waiting_line(world: &TestWorld, id: DialogueId) {
    let ear = world.attach_recorder(id).await;
    let second = world.say_line(id, "2").await;
    // By now the line's effect on held jobs has been written and reported.
    let jobs = &world.ports.ledger.jobs;
    let said = world
        .ports
        .ledger
        .dialogues
        .load_turns(&world.scope, id, 1, 1)
        .await
        .unwrap();
    let due = jobs.make_due(&world.scope, id, said[0].id, world.ports.clock.now());
    assert_eq!(due.await.unwrap(), [JobKind::ExtractFacts], "the job runs");
    for _ in 0..3 {
        world.sessions.snapshot(&world.scope, id).await.unwrap();
    }
    assert_eq!(*world.fake.spoken.lock(), ["1"], "the second turn waits");
    world.fake.job_go.add_permits(1);
    assert_eq!(wait_for_turn(second).await.unwrap().number, 2);
    assert_taught_before_second(&ear);
}

/// Kills the actor of a session. The next request loads the session again.
async fn kill_actor(world: &TestWorld, id: DialogueId) {
    let addr = world.sessions.session_for_test(&(world.scope.clone(), id));
    addr.try_send(crate::messages::PanicForTest).unwrap();
    wait_until("it is dead", || !addr.connected()).await;
}

fn assert_taught_before_second(ear: &RecordingListener) {
    let story = ear.event_labels();
    let at = |what: &str| story.iter().position(|event| event == what);
    assert!(
        at("memory 1").is_some() && at("memory 1") < at("started 2"),
        "{story:?}"
    );
}

/// Says a line during the reply to `first`, which ends as `ended`; the answer must wait for its facts.
async fn assert_second_waits_for_taught(first: &str, on_busy: OnBusy, ended: TurnStatus) {
    let world = TestWorld::new().await;
    *world.fake.with_jobs.lock() = true;
    let id = world.new_acknowledging_session().await;
    let ear = world.attach_recorder(id).await;
    let first = world.say_line(id, first).await;
    world.wait_for_begun(1).await;
    let second = world.say_line_with(id, "2", None, on_busy).await;
    world.fake.go.add_permits(1);
    assert_eq!(wait_for_turn(first).await.unwrap().status, ended);
    assert_eq!(wait_for_turn(second).await.unwrap().number, 2);
    assert_taught_before_second(&ear);
    world.shut_down().await;
}

#[actix::test]
async fn line_queued_behind_a_reply_waits_for_its_memory() {
    assert_second_waits_for_taught("hold", OnBusy::Queue, TurnStatus::Completed).await;
}

#[actix::test]
async fn line_that_cuts_a_reply_waits_for_memory_of_the_heard_part() {
    assert_second_waits_for_taught("hold", OnBusy::Interrupt, TurnStatus::Interrupted).await;
}

#[actix::test]
async fn line_too_late_to_cut_waits_for_memory_of_the_reply() {
    assert_second_waits_for_taught("commit later", OnBusy::Interrupt, TurnStatus::Completed).await;
}

#[actix::test]
async fn line_after_a_cut_waits_for_memory_of_the_heard_part() {
    let world = TestWorld::new().await;
    let id = new_session_cut_after_reply(&world).await;
    say_waiting_line(&world, id).await;
    world.shut_down().await;
}

#[actix::test]
async fn line_after_a_cut_waits_for_memory_in_a_reloaded_session_too() {
    let world = TestWorld::new().await;
    let id = new_session_cut_after_reply(&world).await;
    kill_actor(&world, id).await;
    say_waiting_line(&world, id).await;
    world.shut_down().await;
}

#[actix::test]
async fn line_after_a_turn_without_extraction_does_not_wait() {
    let world = TestWorld::new().await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let id = world.new_acknowledging_session().await;
    world.say_and_wait(id, "nothing new").await;
    world.say_and_wait(id, "2").await;
    let waits = world.fake.memory_waits.lock().clone();
    assert!(waits[1] < 4_000.0, "{waits:?}");
    world.shut_down().await;
}

/// Acknowledges the playback of the first reply. The extraction of `turn` must wait for the next line all the same.
async fn assert_playback_teaches_nothing(world: &TestWorld, id: DialogueId, turn: TurnId) {
    world.sessions.mark_played(&world.scope, id, 1).await.unwrap();
    // By now an effect on the held jobs has begun.
    for _ in 0..3 {
        world.sessions.snapshot(&world.scope, id).await.unwrap();
    }
    let jobs = &world.ports.ledger.jobs;
    assert_eq!(jobs.count_pending_jobs(&world.scope, id).await.unwrap(), 1);
    let extraction = jobs.load_extraction_status(&world.scope, id, turn, world.ports.clock.now());
    assert_eq!(extraction.await.unwrap(), ExtractionStatus::Held);
}

#[actix::test]
async fn resumed_reply_is_learned_with_the_next_line_however_often_it_is_played() {
    let mut settings = test_dialogue_settings();
    settings.turn.cut_hold_s = 30;
    let world = TestWorld::with_settings(test_actor_settings(), settings).await;
    *world.fake.with_jobs.lock() = true;
    let id = world.new_acknowledging_session().await;
    let whole = world.say_and_wait(id, "1").await;
    let learned = || world.fake.turns_of_jobs();
    for _ in 0..5 {
        world.interrupt(id, Some(1), Some(HeardLength::Chars(3))).await.unwrap();
        let told = world.resume_reply(id, None).await.unwrap();
        let InterruptOutcome::Rewound(rewound) = told else {
            panic!("{told:?}")
        };
        assert_eq!(rewound.head, Some(whole.id));
        assert_playback_teaches_nothing(&world, id, whole.id).await;
    }
    assert!(learned().is_empty());
    world.say_and_wait(id, "2").await;
    wait_until("the resumed reply is learned", || learned() == [whole.id]).await;
    world.shut_down().await;
}

#[actix::test]
async fn cut_reply_of_a_reloaded_session_is_not_learned_once_played() {
    let mut settings = test_dialogue_settings();
    settings.turn.cut_hold_s = 30;
    let world = TestWorld::with_settings(test_actor_settings(), settings).await;
    *world.fake.with_jobs.lock() = true;
    let id = world.new_acknowledging_session().await;
    world.say_and_wait(id, "1").await;
    world.interrupt(id, Some(1), Some(HeardLength::Chars(3))).await.unwrap();
    kill_actor(&world, id).await;
    let heard = world.said_turns(id).await[0].id;
    assert_playback_teaches_nothing(&world, id, heard).await;
    world.shut_down().await;
}

#[actix::test]
async fn uncut_reply_of_a_reloaded_session_is_learned_once_played() {
    let mut settings = test_dialogue_settings();
    settings.turn.playback_timeout_s = 3_600;
    let world = TestWorld::with_settings(test_actor_settings(), settings).await;
    *world.fake.with_jobs.lock() = true;
    let id = world.new_acknowledging_session().await;
    let whole = world.say_and_wait(id, "1").await;
    kill_actor(&world, id).await;
    let learned = || world.fake.turns_of_jobs();
    world.sessions.snapshot(&world.scope, id).await.unwrap();
    assert!(learned().is_empty(), "the reply was not played yet");
    world.sessions.mark_played(&world.scope, id, 1).await.unwrap();
    wait_until("the reply is learned", || learned() == [whole.id]).await;
    world.shut_down().await;
}

#[actix::test]
async fn heard_part_is_learned_once_however_often_the_reply_is_cut_and_resumed() {
    for closes in [false, true] {
        let mut settings = test_dialogue_settings();
        settings.turn.cut_hold_s = 30;
        let world = TestWorld::with_settings(test_actor_settings(), settings).await;
        *world.fake.with_jobs.lock() = true;
        let id = world.new_session().await;
        let learned = || world.fake.turns_of_jobs();
        let whole = world.say_and_wait(id, "1").await;
        wait_until("the reply is learned", || learned() == [whole.id]).await;
        for _ in 0..3 {
            world.interrupt(id, Some(1), Some(HeardLength::Chars(3))).await.unwrap();
            world.resume_reply(id, None).await.unwrap();
        }
        world.interrupt(id, Some(1), Some(HeardLength::Chars(4))).await.unwrap();
        world.interrupt(id, Some(1), Some(HeardLength::Chars(3))).await.unwrap();
        let heard = world
            .ports
            .ledger
            .dialogues
            .load_turns(&world.scope, id, 1, 1)
            .await
            .unwrap();
        assert_eq!(learned(), [whole.id], "the reply may still be resumed");
        if closes {
            world.sessions.close_dialogue(&world.scope, id, "test").await.unwrap();
        } else {
            world.say_and_wait(id, "2").await;
        }
        wait_until("the heard part is learned", || learned().len() > 1).await;
        assert_eq!(learned()[1], heard[0].id);
        world.shut_down().await;
    }
}

#[actix::test]
async fn heard_part_is_learned_when_a_rewind_closes_a_joined_session_that_is_not_in_memory() {
    let mut settings = test_dialogue_settings();
    settings.turn.cut_hold_s = 3_600;
    let world = TestWorld::with_settings(test_actor_settings(), settings).await;
    *world.fake.with_jobs.lock() = true;
    let talk = world.new_conversation("the mill", 20, false).await;
    for _ in 0..2 {
        world.say_next_line(talk).await;
    }
    let (talks, player) = (world.sessions.clone(), "p1".parse().unwrap());
    let joined = talks.join_conversation(&world.scope, talk, player, None).await.unwrap();
    let id = joined.dialogue.id;
    world.say_and_wait(id, "1").await;
    world.interrupt(id, Some(1), Some(HeardLength::Chars(3))).await.unwrap();
    let heard = world.said_turns(id).await[0].id;
    kill_actor(&world, id).await;
    let is_learned = || world.fake.turns_of_jobs().contains(&heard);
    assert!(!is_learned(), "the reply may still be resumed");
    talks
        .interrupt_conversation(&world.scope, talk, world.conversation_interrupt(Some(1)))
        .await
        .unwrap();
    wait_until("the heard part is learned", is_learned).await;
    world.shut_down().await;
}
