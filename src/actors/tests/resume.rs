//! Coming back: replay from memory, from the ledger, and after a crash.

use std::sync::Arc;

use super::world::{Ear, World, dialogue_settings, settings};
use crate::{
    actors::{ActorSettings, Listener, SessionError, handle::Attached},
    ids::DialogueId,
};

async fn resume(world: &World, id: DialogueId, last_seq: u64) -> Result<(Arc<Ear>, Attached), SessionError> {
    let ear = Ear::new();
    let listener: Arc<dyn Listener> = Arc::<Ear>::clone(&ear);
    let attached = world
        .sessions
        .attach(&world.scope, id, listener, Some(last_seq))
        .await?;
    Ok((ear, attached))
}

#[actix::test]
async fn missed_events_come_again_from_memory() {
    let world = World::new().await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    world.turn(id, "1").await;
    world.turn(id, "2").await;
    let (late, attached) = resume(&world, id, ear.seqs()[1]).await.unwrap();
    assert_eq!(late.seqs(), ear.seqs()[2..]);
    assert_eq!(attached.replayed, late.seqs().len());
    assert_eq!(attached.head_seq, *ear.seqs().last().unwrap());
    assert_eq!(attached.head_turn, 2);
    let (nothing, attached) = resume(&world, id, attached.head_seq).await.unwrap();
    assert_eq!((nothing.seqs().len(), attached.replayed), (0, 0));
    world.end().await;
}

#[actix::test]
async fn missed_events_come_again_from_the_ledger_after_a_restart() {
    let world = World::new().await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    world.turn(id, "1").await;
    world.turn(id, "2").await;
    let world = world.restarted();
    let (late, attached) = resume(&world, id, ear.seqs()[0]).await.unwrap();
    assert_eq!(late.story(), ear.story()[1..]);
    assert_eq!(late.seqs(), ear.seqs()[1..]);
    assert_eq!(attached.replayed, 5);
    let texts = |ear: &Ear| {
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
    world.turn(id, "3").await;
    assert!(late.seqs().is_sorted_by(|a, b| a < b));
    world.end().await;
}

#[actix::test]
async fn a_turn_that_a_crash_took_is_told_as_failed() {
    let world = World::new().await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    world.turn(id, "1").await;
    world.say(id, "hold").await.unwrap();
    world.begun(2).await;
    let seen = *ear.seqs().last().unwrap();
    let killed = world;
    let world = killed.restarted();
    let (late, attached) = resume(&world, id, seen).await.unwrap();
    assert_eq!(late.story(), ["failed 2"]);
    assert!(late.seqs()[0] > seen && attached.head_seq == late.seqs()[0]);
    world.turn(id, "again").await;
    assert_eq!(late.story()[1..], ["started 2", "completed 2", "committed 2"]);
    assert!(late.seqs().is_sorted_by(|a, b| a < b));
    // Told once: who says that it heard so hears it no more, and nobody else heard it at all.
    let (_, attached) = resume(&world, id, late.seqs()[0]).await.unwrap();
    assert_eq!(attached.replayed, 3);
    // A number that was never sent is no reason to jump there.
    let refused = resume(&world, id, u64::MAX).await.err().unwrap();
    assert!(matches!(refused, SessionError::ResumeExpired { .. }));
    world.end().await;
}

#[actix::test]
async fn numbers_that_a_crash_took_do_not_come_again() {
    let world = World::new().await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    world.turn(id, "1").await;
    world.say(id, "hold").await.unwrap();
    world.begun(2).await;
    let seen = *ear.seqs().last().unwrap();
    // Somebody else speaks before the one who saw the lost turn is back.
    let world = world.restarted();
    let other = world.listen(id).await;
    world.turn(id, "other").await;
    let (late, attached) = resume(&world, id, seen).await.unwrap();
    assert_eq!(late.story(), ["started 2", "completed 2", "committed 2"]);
    assert_eq!(attached.replayed, 3);
    assert!(late.seqs()[0] > seen, "the lost turn's numbers are not used again");
    assert_eq!(other.story(), late.story());
    // Killed again before anything more was committed: those numbers do not come again either.
    world.say(id, "hold").await.unwrap();
    world.begun(2).await;
    let seen = *other.seqs().last().unwrap();
    let world = world.restarted();
    let bystander = world.listen(id).await;
    for _ in 0..3 {
        let (again, _) = resume(&world, id, seen).await.unwrap();
        assert_eq!(again.story(), ["failed 3"]);
        assert!(again.seqs()[0] > seen);
    }
    assert!(bystander.story().is_empty(), "only the one who asked is told");
    world.turn(id, "3").await;
    assert!(bystander.seqs()[0] > seen);
    world.end().await;
}

#[actix::test]
async fn what_is_too_old_is_said_to_be() {
    let few = ActorSettings {
        replay_events: 4,
        ..settings()
    };
    let world = World::with(few, dialogue_settings()).await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    for line in ["1", "2", "3"] {
        world.turn(id, line).await;
    }
    let refused = resume(&world, id, ear.seqs()[1]).await.err().unwrap();
    assert!(matches!(refused, SessionError::ResumeExpired { .. }), "{refused:?}");
    assert_eq!(resume(&world, id, ear.seqs()[4]).await.unwrap().1.replayed, 4);
    let world = world.restarted();
    let refused = resume(&world, id, ear.seqs()[1]).await.err().unwrap();
    assert!(matches!(refused, SessionError::ResumeExpired { .. }), "{refused:?}");
    world.end().await;
}

#[actix::test]
async fn a_listener_that_does_not_keep_up_costs_the_others_nothing() {
    let world = World::new().await;
    let id = world.session().await;
    let (slow, quick) = (world.listen(id).await, world.listen(id).await);
    world.turn(id, "1").await;
    *slow.deaf.lock() = true;
    world.turn(id, "2").await;
    *slow.deaf.lock() = false;
    world.turn(id, "3").await;
    assert_eq!(slow.story().len(), 3, "it was dropped, not resumed with a gap");
    assert_eq!(quick.story().len(), 9);
    world.end().await;
}
