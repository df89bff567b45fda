//! Conversations of NPCs when a save of their world is restored: listeners, the next speaker, and restarts.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    saves::{create_save, load_save},
    world::{PATIENCE, TestWorld, wait_until},
};
use crate::DialogueError;
use colloquy_core::ids::DialogueId;
use colloquy_ports::ledger::dialogues::{DialogueStatus, NextSpeaker};

impl TestWorld {
    /// Returns the last turn and the pause of a conversation, as the actor and the ledger have them.
    async fn conversation_state(&self, id: DialogueId) -> (u32, bool) {
        let view = self.sessions.conversation_snapshot(&self.scope, id).await.unwrap();
        let stored = self
            .ports
            .ledger
            .dialogues
            .load_dialogue(&self.scope, id)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(view.dialogue.head_turn, stored.head_turn);
        assert_eq!(view.dialogue.options, stored.options);
        (stored.head_turn, stored.options.paused)
    }
}

#[actix::test]
async fn conversation_and_its_speakers_return_to_the_save() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("the mill", 20, false).await;
    world.say_next_line(id).await;
    let taken = create_save(&world).await;
    for _ in 0..2 {
        world.say_next_line(id).await;
    }
    let ear = world.attach_watcher(id, None).await;
    let restored = load_save(&world, taken).await;
    assert_eq!((restored.changed, restored.removed_turns), (1, 2));
    ear.wait_for_event("rewound 1").await;
    assert_eq!(ear.event_labels(), ["rewound 1"]);
    assert_eq!(world.line_texts(id).await, ["Mira says 1"]);
    assert_eq!(world.conversation_state(id).await.0, 1);
    let next = world.say_next_line(id).await;
    assert_eq!((next.number, next.npc.as_str()), (2, "ergen"), "mira spoke last");
    assert_eq!(
        ear.event_labels()[1..],
        ["ergen started 2", "completed 2", "committed 2"]
    );
    assert!(ear.heard_seqs().is_sorted_by(|a, b| a < b));

    // A listener that was away gets the same events from another process.
    let seqs = ear.heard_seqs();
    let world = world.restart_process();
    let late = world.attach_watcher(id, Some(seqs[0] - 1)).await;
    assert_eq!(late.event_labels(), ear.event_labels());
    assert_eq!(late.heard_seqs(), seqs);
    assert_eq!(world.say_next_line(id).await.npc.as_str(), "mira");
    world.shut_down().await;
}

#[actix::test]
async fn line_running_during_a_restore_never_happened() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("hold", 20, false).await;
    world.fake.go.add_permits(1);
    world.say_next_line(id).await;
    let taken = create_save(&world).await;
    let ear = world.attach_watcher(id, None).await;
    let stepped = world.sessions.say_next_line(&world.scope, id).await.unwrap();
    world.wait_for_begun(2).await;
    // The model stays held: the restore does not wait for the model.
    load_save(&world, taken).await;
    let unsaid = tokio::time::timeout(PATIENCE, stepped).await.unwrap().unwrap();
    assert!(unsaid.is_err());
    ear.wait_for_event("failed 2").await;
    assert_eq!(world.conversation_state(id).await.0, 1);
    world.fake.go.add_permits(1);
    let next = world.say_next_line(id).await;
    assert_eq!((next.number, next.npc.as_str()), (2, "ergen"));
    assert!(ear.heard_seqs().is_sorted_by(|a, b| a < b));
    world.shut_down().await;
}

#[actix::test]
async fn self_paced_conversation_continues_from_the_save() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("hold", 4, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    world.fake.go.add_permits(1);
    ear.wait_for_event("committed 1").await;
    world.wait_for_begun(2).await;
    let taken = create_save(&world).await;
    world.fake.go.add_permits(1);
    ear.wait_for_event("committed 2").await;
    world.wait_for_begun(3).await;
    load_save(&world, taken).await;
    ear.wait_for_event("rewound 1").await;
    // No request is needed.
    world.fake.go.add_permits(10);
    ear.wait_for_event("ended 4 max_turns").await;
    let story = ear.event_labels();
    let at = story.iter().position(|event| event == "rewound 1").unwrap();
    assert_eq!(story[at + 1], "ergen started 2", "{story:?}");
    assert_eq!(
        world.line_texts(id).await,
        ["Mira says 1", "Ergen says 2", "Mira says 3", "Ergen says 4"]
    );
    assert!(ear.heard_seqs().is_sorted_by(|a, b| a < b));

    // The conversation had ended, and is open again.
    load_save(&world, taken).await;
    assert_eq!(world.line_texts(id).await, ["Mira says 1"]);
    let again = world.attach_watcher(id, None).await;
    again.wait_for_event("ended 4 max_turns").await;
    world.shut_down().await;
}

#[actix::test]
async fn paused_conversation_stays_paused_after_a_restore_and_a_restart() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("hold", 20, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    world.wait_for_begun(1).await;
    let wish = world.conversation_interrupt(None);
    world
        .sessions
        .interrupt_conversation(&world.scope, id, wish)
        .await
        .unwrap();
    ear.wait_for_event("committed 1").await;
    let taken = create_save(&world).await;
    world.fake.go.add_permits(2);
    world.say_next_line(id).await;
    world.say_next_line(id).await;
    let spoken = world.fake.spoken.lock().len();
    load_save(&world, taken).await;
    ear.wait_for_event("rewound 1").await;
    assert_eq!(world.conversation_state(id).await, (1, true));
    let world = world.restart_process();
    assert_eq!(world.conversation_state(id).await, (1, true));
    assert_eq!(world.fake.spoken.lock().len(), 0, "nobody spoke after {spoken} lines");
    world.fake.go.add_permits(1);
    assert_eq!(world.say_next_line(id).await.number, 2);
    world.shut_down().await;
}

#[actix::test]
async fn conversation_begun_after_the_save_is_over() {
    let world = TestWorld::new().await;
    let taken = create_save(&world).await;
    let id = world.new_conversation("hold", 20, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    world.wait_for_begun(1).await;
    load_save(&world, taken).await;
    ear.wait_for_event("ended 0 restored").await;
    let stored = world
        .ports
        .ledger
        .dialogues
        .load_dialogue(&world.scope, id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((stored.status, stored.head_turn), (DialogueStatus::Closed, 0));
    let refused = world.sessions.say_next_line(&world.scope, id).await.unwrap_err();
    assert!(matches!(refused, DialogueError::Ended), "{refused:?}");
    wait_until("its actor is gone", || world.sessions.live_count() <= 1).await;
    assert_eq!(world.fake.spoken.lock().len(), 1, "and nobody speaks");
    world.shut_down().await;
}

#[actix::test]
async fn paused_state_is_part_of_a_save() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("hold", 20, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    world.wait_for_begun(1).await;
    let going_on = create_save(&world).await;
    let wish = world.conversation_interrupt(None);
    world
        .sessions
        .interrupt_conversation(&world.scope, id, wish)
        .await
        .unwrap();
    ear.wait_for_event("committed 1").await;
    let paused = create_save(&world).await;
    world
        .sessions
        .resume_conversation(&world.scope, id, &world.test_principal())
        .await
        .unwrap();
    world.wait_for_begun(2).await;

    // The conversation stays paused behind the player's interrupt.
    load_save(&world, paused).await;
    assert_eq!(world.conversation_state(id).await, (1, true));
    // In the other save the conversation was running, and continues.
    load_save(&world, going_on).await;
    assert_eq!(world.conversation_state(id).await, (0, false));
    world.wait_for_begun(3).await;
    // The line that continues is another line.
    let wish = world.conversation_interrupt(Some(0));
    world
        .sessions
        .interrupt_conversation(&world.scope, id, wish)
        .await
        .unwrap();
    assert_eq!(world.conversation_state(id).await, (0, true));
    load_save(&world, going_on).await;
    assert_eq!(world.conversation_state(id).await, (0, false));
    world.wait_for_begun(4).await;
    world.shut_down().await;
}

#[actix::test]
async fn speaker_choice_for_an_unsaid_line_blocks_nothing() {
    let world = TestWorld::new().await;
    let id = world
        .new_conversation_with(NextSpeaker::Model, "the mill", 20, false)
        .await;
    world.say_next_line(id).await;
    let taken = create_save(&world).await;
    world.say_next_line(id).await;
    *world.fake.hold_speakers.lock() = true;
    let stepped = world.sessions.say_next_line(&world.scope, id).await.unwrap();
    wait_until("a model is asked", || world.fake.speakers_asked.load(Relaxed) == 3).await;
    *world.fake.hold_speakers.lock() = false;
    load_save(&world, taken).await;
    assert!(stepped.await.is_err(), "its line is not to be had");
    assert_eq!(world.say_next_line(id).await.number, 2);
    world.shut_down().await;
}
