//! Lines of NPCs that wait for the facts of the previous line.

use std::sync::atomic::Ordering::Relaxed;

use super::world::{PATIENCE, TestWorld, test_actor_settings, test_dialogue_settings, wait_until};
use colloquy_dialogue::turn::TurnError;

#[actix::test]
async fn next_line_waits_for_memory_of_the_last_line() {
    let world = TestWorld::new().await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let id = world.new_conversation("the mill", 3, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    wait_until("the first job runs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    let view = world.sessions.conversation_snapshot(&world.scope, id).await.unwrap();
    assert_eq!(
        (view.dialogue.head_turn, view.running_turn),
        (1, None),
        "nobody speaks yet"
    );
    world.fake.job_go.add_permits(3);
    ear.wait_for_event("ended 3 max_turns").await;
    let story = ear.event_labels();
    let at = |what: &str| story.iter().position(|event| event == what).unwrap();
    assert!(at("memory 1") < at("ergen started 2"), "{story:?}");
    let waits = world.fake.memory_waits.lock().clone();
    assert!(waits[0] == 0.0 && waits[1] > 0.0 && waits[1] < 5_000.0, "{waits:?}");
    world.shut_down().await;
}

#[actix::test]
async fn requested_line_is_not_said_after_an_interrupt() {
    for back_to in [None, Some(1)] {
        let world = TestWorld::new().await;
        *world.fake.with_jobs.lock() = true;
        *world.fake.hold_jobs.lock() = true;
        let id = world.new_conversation("the mill", 3, false).await;
        world.say_next_line(id).await;
        // Waits for the facts of the first line.
        let waiting = world.sessions.say_next_line(&world.scope, id).await.unwrap();
        let cut = world
            .sessions
            .interrupt_conversation(&world.scope, id, world.conversation_interrupt(back_to))
            .await;
        cut.unwrap();
        let told = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
        assert!(matches!(*told.unwrap_err(), TurnError::Unsaid));
        world.fake.job_go.add_permits(3);
        wait_until("it is learned", || world.fake.running_jobs.load(Relaxed) == 0).await;
        assert_eq!(world.line_texts(id).await.len(), 1);
        // The next requested line is said.
        world.say_next_line(id).await;
        assert_eq!(world.line_texts(id).await.len(), 2);
        world.shut_down().await;
    }
}

#[actix::test]
async fn line_memory_wait_is_bounded() {
    let mut short = test_dialogue_settings();
    short.turn.wait_for_memory_ms = 30;
    let world = TestWorld::with_settings(test_actor_settings(), short).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let id = world.new_conversation("the mill", 2, false).await;
    world.say_next_line(id).await;
    world.say_next_line(id).await;
    let waits = world.fake.memory_waits.lock().clone();
    assert!(waits[1] >= 29.0, "{waits:?}");
    assert!(world.fake.jobs.lock().is_empty());
    world.shut_down().await;
}
