//! Conversations of NPCs when a save of their world is loaded: who watches, who speaks next, and what a
//! restart makes of it.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    saves::{load, save},
    world::{PATIENCE, World, until},
};
use crate::{
    actors::SessionError,
    ids::DialogueId,
    ports::ledger::dialogues::{DialogueStatus, NextSpeaker},
};

impl World {
    /// How a conversation stands for its actor and in the ledger: its last turn, and whether it is paused.
    async fn talk_stands(&self, id: DialogueId) -> (u32, bool) {
        let view = self.talks().view(&self.scope, id).await.unwrap();
        let stored = self.ports.ledger.dialogues.get(&self.scope, id).await.unwrap().unwrap();
        assert_eq!(view.dialogue.head_turn, stored.head_turn);
        assert_eq!(view.dialogue.options, stored.options);
        (stored.head_turn, stored.options.paused)
    }
}

#[actix::test]
async fn a_conversation_goes_back_to_where_the_save_has_it_and_its_speakers_with_it() {
    let world = World::new().await;
    let id = world.talk("the mill", 20, false).await;
    world.step(id).await;
    let taken = save(&world).await;
    for _ in 0..2 {
        world.step(id).await;
    }
    let ear = world.watch(id, None).await;
    let restored = load(&world, taken).await;
    assert_eq!((restored.changed, restored.removed_turns), (1, 2));
    ear.hears("rewound 1").await;
    assert_eq!(ear.story(), ["rewound 1"]);
    assert_eq!(world.lines(id).await, ["Mira says 1"]);
    assert_eq!(world.talk_stands(id).await.0, 1);
    let next = world.step(id).await;
    assert_eq!((next.number, next.npc.as_str()), (2, "ergen"), "mira spoke last");
    assert_eq!(ear.story()[1..], ["ergen started 2", "completed 2", "committed 2"]);
    assert!(ear.seqs().is_sorted_by(|a, b| a < b));

    // Who was away is told the same by another process.
    let seqs = ear.seqs();
    let world = world.restarted();
    let late = world.watch(id, Some(seqs[0] - 1)).await;
    assert_eq!(late.story(), ear.story());
    assert_eq!(late.seqs(), seqs);
    assert_eq!(world.step(id).await.npc.as_str(), "mira");
    world.end().await;
}

#[actix::test]
async fn the_line_that_is_said_when_a_save_is_loaded_never_happened() {
    let world = World::new().await;
    let id = world.talk("hold", 20, false).await;
    world.fake.go.add_permits(1);
    world.step(id).await;
    let taken = save(&world).await;
    let ear = world.watch(id, None).await;
    let stepped = world.talks().step(&world.scope, id).await.unwrap();
    world.begun(2).await;
    // Nobody lets the model go: it is not waited for.
    load(&world, taken).await;
    let unsaid = tokio::time::timeout(PATIENCE, stepped).await.unwrap().unwrap();
    assert!(unsaid.is_err());
    ear.hears("failed 2").await;
    assert_eq!(world.talk_stands(id).await.0, 1);
    world.fake.go.add_permits(1);
    let next = world.step(id).await;
    assert_eq!((next.number, next.npc.as_str()), (2, "ergen"));
    assert!(ear.seqs().is_sorted_by(|a, b| a < b));
    world.end().await;
}

#[actix::test]
async fn one_that_paces_itself_goes_on_from_the_save_by_itself() {
    let world = World::new().await;
    let id = world.talk("hold", 4, true).await;
    let ear = world.watch(id, Some(1)).await;
    world.fake.go.add_permits(1);
    ear.hears("committed 1").await;
    world.begun(2).await;
    let taken = save(&world).await;
    world.fake.go.add_permits(1);
    ear.hears("committed 2").await;
    world.begun(3).await;
    load(&world, taken).await;
    ear.hears("rewound 1").await;
    // Nobody asks for anything.
    world.fake.go.add_permits(10);
    ear.hears("ended 4 max_turns").await;
    let story = ear.story();
    let at = story.iter().position(|event| event == "rewound 1").unwrap();
    assert_eq!(story[at + 1], "ergen started 2", "{story:?}");
    assert_eq!(
        world.lines(id).await,
        ["Mira says 1", "Ergen says 2", "Mira says 3", "Ergen says 4"]
    );
    assert!(ear.seqs().is_sorted_by(|a, b| a < b));

    // It had ended, and is open again.
    load(&world, taken).await;
    assert_eq!(world.lines(id).await, ["Mira says 1"]);
    let again = world.watch(id, None).await;
    again.hears("ended 4 max_turns").await;
    world.end().await;
}

#[actix::test]
async fn one_that_was_paused_stays_so_and_another_process_finds_it_so() {
    let world = World::new().await;
    let id = world.talk("hold", 20, true).await;
    let ear = world.watch(id, Some(1)).await;
    world.begun(1).await;
    let wish = world.back_to(None);
    world.talks().interrupt(&world.scope, id, wish).await.unwrap();
    ear.hears("committed 1").await;
    let taken = save(&world).await;
    world.fake.go.add_permits(2);
    world.step(id).await;
    world.step(id).await;
    let spoken = world.fake.spoken.lock().len();
    load(&world, taken).await;
    ear.hears("rewound 1").await;
    assert_eq!(world.talk_stands(id).await, (1, true));
    let world = world.restarted();
    assert_eq!(world.talk_stands(id).await, (1, true));
    assert_eq!(world.fake.spoken.lock().len(), 0, "nobody spoke after {spoken} lines");
    world.fake.go.add_permits(1);
    assert_eq!(world.step(id).await.number, 2);
    world.end().await;
}

#[actix::test]
async fn one_that_was_begun_since_is_over() {
    let world = World::new().await;
    let taken = save(&world).await;
    let id = world.talk("hold", 20, true).await;
    let ear = world.watch(id, Some(1)).await;
    world.begun(1).await;
    load(&world, taken).await;
    ear.hears("ended 0 restored").await;
    let stored = world
        .ports
        .ledger
        .dialogues
        .get(&world.scope, id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((stored.status, stored.head_turn), (DialogueStatus::Closed, 0));
    let refused = world.talks().step(&world.scope, id).await.unwrap_err();
    assert!(matches!(refused, SessionError::Ended), "{refused:?}");
    until("its actor is gone", || world.sessions.live() <= 1).await;
    assert_eq!(world.fake.spoken.lock().len(), 1, "and nobody speaks");
    world.end().await;
}

#[actix::test]
async fn whether_it_was_paused_is_part_of_a_save() {
    let world = World::new().await;
    let id = world.talk("hold", 20, true).await;
    let ear = world.watch(id, Some(1)).await;
    world.begun(1).await;
    let going_on = save(&world).await;
    let wish = world.back_to(None);
    world.talks().interrupt(&world.scope, id, wish).await.unwrap();
    ear.hears("committed 1").await;
    let paused = save(&world).await;
    world.talks().resume(&world.scope, id, &world.who()).await.unwrap();
    world.begun(2).await;

    // Nobody goes on behind a player who had cut in.
    load(&world, paused).await;
    assert_eq!(world.talk_stands(id).await, (1, true));
    // And where they were talking they talk on.
    load(&world, going_on).await;
    assert_eq!(world.talk_stands(id).await, (0, false));
    world.begun(3).await;
    // Only that is another.
    let wish = world.back_to(Some(0));
    world.talks().interrupt(&world.scope, id, wish).await.unwrap();
    assert_eq!(world.talk_stands(id).await, (0, true));
    load(&world, going_on).await;
    assert_eq!(world.talk_stands(id).await, (0, false));
    world.begun(4).await;
    world.end().await;
}

#[actix::test]
async fn whoever_was_asked_who_speaks_after_a_line_that_is_gone_holds_up_nobody() {
    let world = World::new().await;
    let id = world.talk_of(NextSpeaker::Model, "the mill", 20, false).await;
    world.step(id).await;
    let taken = save(&world).await;
    world.step(id).await;
    *world.fake.hold_speakers.lock() = true;
    let stepped = world.talks().step(&world.scope, id).await.unwrap();
    until("a model is asked", || world.fake.speakers_asked.load(Relaxed) == 3).await;
    *world.fake.hold_speakers.lock() = false;
    load(&world, taken).await;
    assert!(stepped.await.is_err(), "its line is not to be had");
    assert_eq!(world.step(id).await.number, 2);
    world.end().await;
}
