//! Resumed listening: replay from memory, from the ledger, and after a crash.

use std::sync::Arc;

use super::world::{RecordingListener, TestWorld, test_actor_settings, test_dialogue_settings};
use crate::{ActorSettings, DialogueError, Listener, handle::AttachedListener};
use colloquy_core::ids::DialogueId;

async fn attach_after_seq(
    world: &TestWorld,
    id: DialogueId,
    last_seq: u64,
) -> Result<(Arc<RecordingListener>, AttachedListener), DialogueError> {
    let ear = RecordingListener::new();
    let listener: Arc<dyn Listener> = Arc::<RecordingListener>::clone(&ear);
    let attached = world
        .sessions
        .attach_listener(&world.scope, id, listener, Some(last_seq))
        .await?;
    Ok((ear, attached))
}

#[actix::test]
async fn missed_events_are_replayed_from_memory() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    world.say_and_wait(id, "1").await;
    world.say_and_wait(id, "2").await;
    let (late, attached) = attach_after_seq(&world, id, ear.heard_seqs()[1]).await.unwrap();
    assert_eq!(late.heard_seqs(), ear.heard_seqs()[2..]);
    assert_eq!(attached.replayed, late.heard_seqs().len());
    assert_eq!(attached.head_seq, *ear.heard_seqs().last().unwrap());
    assert_eq!(attached.head_turn, 2);
    let (nothing, attached) = attach_after_seq(&world, id, attached.head_seq).await.unwrap();
    assert_eq!((nothing.heard_seqs().len(), attached.replayed), (0, 0));
    world.shut_down().await;
}

#[actix::test]
async fn missed_events_are_replayed_from_the_ledger_after_a_restart() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    world.say_and_wait(id, "1").await;
    world.say_and_wait(id, "2").await;
    let world = world.restart_process();
    let (late, attached) = attach_after_seq(&world, id, ear.heard_seqs()[0]).await.unwrap();
    assert_eq!(late.event_labels(), ear.event_labels()[1..]);
    assert_eq!(late.heard_seqs(), ear.heard_seqs()[1..]);
    assert_eq!(attached.replayed, 5);
    let texts = |ear: &RecordingListener| {
        ear.heard
            .lock()
            .iter()
            .filter(|e| e.seq.is_some())
            .map(|e| e.text().clone())
            .collect::<Vec<_>>()
    };
    let strip = |text: &str| {
        let mut event: serde_json::Value = serde_json::from_str(text).unwrap();
        event.as_object_mut().unwrap().remove("re");
        event
    };
    for (rebuilt, first) in texts(&late).iter().zip(&texts(&ear)[1..]) {
        assert_eq!(strip(rebuilt), strip(first));
    }
    world.say_and_wait(id, "3").await;
    assert!(late.heard_seqs().is_sorted_by(|a, b| a < b));
    world.shut_down().await;
}

#[actix::test]
async fn turn_lost_in_a_crash_is_reported_as_failed() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    world.say_and_wait(id, "1").await;
    world.say_line(id, "hold").await.unwrap();
    world.wait_for_begun(2).await;
    let seen = *ear.heard_seqs().last().unwrap();
    let killed = world;
    let world = killed.restart_process();
    let (late, attached) = attach_after_seq(&world, id, seen).await.unwrap();
    assert_eq!(late.event_labels(), ["failed 2"]);
    assert!(late.heard_seqs()[0] > seen && attached.head_seq == late.heard_seqs()[0]);
    world.say_and_wait(id, "again").await;
    assert_eq!(late.event_labels()[1..], ["started 2", "completed 2", "committed 2"]);
    assert!(late.heard_seqs().is_sorted_by(|a, b| a < b));
    // Published once: a client that reports the event gets no repeat, and other clients never saw the turn.
    let (_, attached) = attach_after_seq(&world, id, late.heard_seqs()[0]).await.unwrap();
    assert_eq!(attached.replayed, 3);
    // A number that was never sent is refused.
    let refused = attach_after_seq(&world, id, u64::MAX).await.err().unwrap();
    assert!(matches!(refused, DialogueError::ResumeExpired { .. }));
    world.shut_down().await;
}

#[actix::test]
async fn sequence_numbers_lost_in_a_crash_are_not_reused() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    world.say_and_wait(id, "1").await;
    world.say_line(id, "hold").await.unwrap();
    world.wait_for_begun(2).await;
    let seen = *ear.heard_seqs().last().unwrap();
    // Another client speaks before the client with the lost turn is back.
    let world = world.restart_process();
    let other = world.attach_recorder(id).await;
    world.say_and_wait(id, "other").await;
    let (late, attached) = attach_after_seq(&world, id, seen).await.unwrap();
    assert_eq!(late.event_labels(), ["started 2", "completed 2", "committed 2"]);
    assert_eq!(attached.replayed, 3);
    assert!(
        late.heard_seqs()[0] > seen,
        "the lost turn's numbers are not used again"
    );
    assert_eq!(other.event_labels(), late.event_labels());
    // Killed again before another commit: the new lost numbers are not used again either.
    world.say_line(id, "hold").await.unwrap();
    world.wait_for_begun(2).await;
    let seen = *other.heard_seqs().last().unwrap();
    let world = world.restart_process();
    let bystander = world.attach_recorder(id).await;
    for _ in 0..3 {
        let (again, _) = attach_after_seq(&world, id, seen).await.unwrap();
        assert_eq!(again.event_labels(), ["failed 3"]);
        assert!(again.heard_seqs()[0] > seen);
    }
    assert!(bystander.event_labels().is_empty(), "only the one who asked is told");
    world.say_and_wait(id, "3").await;
    assert!(bystander.heard_seqs()[0] > seen);
    world.shut_down().await;
}

#[actix::test]
async fn resume_from_an_expired_position_is_rejected() {
    let few = ActorSettings {
        replay_events: 4,
        ..test_actor_settings()
    };
    let world = TestWorld::with_settings(few, test_dialogue_settings()).await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    for line in ["1", "2", "3"] {
        world.say_and_wait(id, line).await;
    }
    let refused = attach_after_seq(&world, id, ear.heard_seqs()[1]).await.err().unwrap();
    assert!(matches!(refused, DialogueError::ResumeExpired { .. }), "{refused:?}");
    assert_eq!(
        attach_after_seq(&world, id, ear.heard_seqs()[4])
            .await
            .unwrap()
            .1
            .replayed,
        4
    );
    let world = world.restart_process();
    let refused = attach_after_seq(&world, id, ear.heard_seqs()[1]).await.err().unwrap();
    assert!(matches!(refused, DialogueError::ResumeExpired { .. }), "{refused:?}");
    world.shut_down().await;
}

#[actix::test]
async fn slow_listener_costs_other_listeners_nothing() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let (slow, quick) = (world.attach_recorder(id).await, world.attach_recorder(id).await);
    world.say_and_wait(id, "1").await;
    *slow.deaf.lock() = true;
    world.say_and_wait(id, "2").await;
    *slow.deaf.lock() = false;
    world.say_and_wait(id, "3").await;
    assert_eq!(slow.event_labels().len(), 3, "it was dropped, not resumed with a gap");
    assert_eq!(quick.event_labels().len(), 9);
    world.shut_down().await;
}
