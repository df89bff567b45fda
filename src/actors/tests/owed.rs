//! Interrupts and rewinds while a turn is rewound for a regeneration or a continuation.

use std::time::Duration;

use super::world::{TestWorld, test_actor_settings, test_dialogue_settings, wait_for_turn, wait_until};
use crate::{DialogueError, HeardLength, InterruptCommand, InterruptOutcome, OnBusy};
use colloquy_core::ids::DialogueId;
use colloquy_dialogue::turn::TurnError;
use colloquy_memory::turn::TurnStatus;

/// Creates a world in which every line waits a second for facts that never come.
async fn world_with_memory_wait() -> TestWorld {
    let mut dialogue = test_dialogue_settings();
    dialogue.turn.wait_for_memory_ms = 1_000;
    let world = TestWorld::with_settings(test_actor_settings(), dialogue).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    world
}

/// Waits longer than a queued line would.
async fn outwait_memory() {
    tokio::time::sleep(Duration::from_millis(1_500)).await;
}

fn head_turn(told: &InterruptOutcome) -> u32 {
    match told {
        InterruptOutcome::Rewound(rewound) => rewound.head_turn,
        InterruptOutcome::Idle { head_turn } => *head_turn,
        InterruptOutcome::Cut { turn } | InterruptOutcome::Dropped { turn } => *turn,
    }
}

impl TestWorld {
    async fn has_pending_replacement(&self, id: DialogueId) -> bool {
        let owing = self
            .ports
            .ledger
            .rewinds
            .list_pending_replacements(&self.scope, 9)
            .await;
        owing.unwrap().contains(&id)
    }
}

#[actix::test]
async fn rewind_before_a_regeneration_removes_the_turn_for_good() {
    let world = world_with_memory_wait().await;
    let id = world.new_session().await;
    world.say_and_wait(id, "one").await;
    world.say_and_wait(id, "two").await;
    let anew = world
        .sessions
        .regenerate_reply(&world.scope, id, &world.test_principal(), None, None, None)
        .await;
    assert!(world.has_pending_replacement(id).await);
    let told = world.rewind_to(id, 1).await.unwrap();
    assert_eq!(head_turn(&told), 1);
    assert!(!world.has_pending_replacement(id).await, "nothing comes back");
    assert!(matches!(*wait_for_turn(anew).await.unwrap_err(), TurnError::Unsaid));
    outwait_memory().await;
    assert_eq!(world.fake.spoken.lock().len(), 2);
    assert_eq!(world.said_turns(id).await.len(), 1);
    world.shut_down().await;
}

#[actix::test]
async fn rewind_during_a_pending_regeneration_is_served_after_it() {
    let world = world_with_memory_wait().await;
    let id = world.new_session().await;
    world.say_and_wait(id, "one").await;
    world.say_and_wait(id, "two").await;
    *world.fake.hold_rewinds.lock() = true;
    let who = world.test_principal();
    let anew = world
        .sessions
        .regenerate_reply(&world.scope, id, &who, None, None, None);
    let back = async {
        wait_until("it is taken out", || world.fake.rewinds.lock().len() == 1).await;
        let back = world.rewind_to(id, 1);
        world.fake.rewind_go.add_permits(2);
        back.await
    };
    let (anew, told) = tokio::join!(anew, back);
    assert_eq!(head_turn(&told.unwrap()), 1);
    assert!(matches!(*wait_for_turn(anew).await.unwrap_err(), TurnError::Unsaid));
    assert!(!world.has_pending_replacement(id).await);
    assert_eq!(world.said_turns(id).await.len(), 1);
    world.shut_down().await;
}

#[actix::test]
async fn reply_cut_before_its_continuation_stands_as_cut() {
    let world = world_with_memory_wait().await;
    let id = world.new_session_with_cut_reply().await;
    let before = world.said_turns(id).await;
    let ear = world.attach_recorder(id).await;
    for during_the_move in [false, true] {
        *world.fake.hold_rewinds.lock() = during_the_move;
        let moves = world.fake.rewinds.lock().len();
        let up = world.resume_reply(id, None);
        let cut = async {
            wait_until("it is taken out", || world.fake.rewinds.lock().len() > moves).await;
            world.fake.rewind_go.add_permits(4);
            if !during_the_move {
                wait_until("it is told", || {
                    ear.event_labels().last().is_some_and(|told| told == "rewound 1")
                })
                .await;
            }
            world.interrupt(id, Some(2), None).await
        };
        let (up, cut) = tokio::join!(up, cut);
        assert_eq!(head_turn(&up.unwrap()), 1);
        assert_eq!(head_turn(&cut.unwrap()), 2);
        assert_eq!(world.said_turns(id).await, before, "during the move: {during_the_move}");
    }
    outwait_memory().await;
    assert_eq!(world.fake.spoken.lock().len(), 2, "nobody goes on");
    let shorter = world.resume_reply(id, None).await.unwrap();
    assert_eq!(head_turn(&shorter), 1);
    let heard = Some(HeardLength::Chars(3));
    let told = world.interrupt(id, Some(2), heard).await.unwrap();
    assert_eq!(head_turn(&told), 2);
    assert_eq!(world.said_turns(id).await[1].reply_text, before[1].reply_text[..3]);
    world.shut_down().await;
}

#[actix::test]
async fn npc_line_cut_before_its_continuation_stands_and_the_conversation_pauses() {
    let world = world_with_memory_wait().await;
    let id = world.new_conversation("hold", 9, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    world.wait_for_begun(1).await;
    world.fake.go.add_permits(1);
    world.wait_for_begun(2).await;
    let cut = world
        .sessions
        .interrupt_conversation(&world.scope, id, world.conversation_interrupt(None))
        .await
        .unwrap();
    assert_eq!(cut, InterruptOutcome::Cut { turn: 2 });
    let before = world.said_turns(id).await;
    for during_the_move in [false, true] {
        *world.fake.hold_rewinds.lock() = during_the_move;
        let moves = world.fake.rewinds.lock().len();
        let (talks, who) = (world.sessions.clone(), world.test_principal());
        let up = talks.resume_conversation(&world.scope, id, &who);
        let cut = async {
            wait_until("it is taken out", || world.fake.rewinds.lock().len() > moves).await;
            world.fake.rewind_go.add_permits(4);
            if !during_the_move {
                wait_until("it is told", || {
                    ear.event_labels().last().is_some_and(|told| told == "resumed 1")
                })
                .await;
            }
            world
                .sessions
                .interrupt_conversation(&world.scope, id, world.conversation_interrupt(Some(2)))
                .await
        };
        let (up, cut) = tokio::join!(up, cut);
        up.unwrap();
        assert_eq!(head_turn(&cut.unwrap()), 2);
        assert_eq!(world.said_turns(id).await, before, "during the move: {during_the_move}");
        assert!(!world.has_pending_replacement(id).await);
        let stored = world
            .ports
            .ledger
            .dialogues
            .load_dialogue(&world.scope, id)
            .await
            .unwrap()
            .unwrap();
        assert!(stored.options.paused, "during the move: {during_the_move}");
    }
    outwait_memory().await;
    assert_eq!(world.fake.spoken.lock().len(), 2, "nobody goes on");
    world.shut_down().await;
}

#[actix::test]
async fn cut_before_the_first_character_is_published_and_audited() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let running = world.say_line(id, "hold back").await;
    world.wait_for_begun(1).await;
    let wish = world.keyed_interrupt(None, "cut");
    for again in [false, true] {
        let told = world.sessions.interrupt_dialogue(&world.scope, id, wish.clone()).await;
        assert_eq!(told.unwrap(), InterruptOutcome::Dropped { turn: 1 }, "again: {again}");
    }
    assert!(matches!(
        *wait_for_turn(running).await.unwrap_err(),
        TurnError::CutBeforeReply
    ));
    assert_eq!(world.audit_rows("session.interrupt").await.len(), 1);
    assert!(world.said_turns(id).await.is_empty());

    let id = world.new_conversation("hold back", 9, true).await;
    world.wait_for_begun(2).await;
    let told = world
        .sessions
        .interrupt_conversation(&world.scope, id, world.conversation_interrupt(None))
        .await;
    assert_eq!(told.unwrap(), InterruptOutcome::Dropped { turn: 1 });
    assert_eq!(world.audit_rows("conversation.interrupt").await.len(), 1);
    world.shut_down().await;
}

#[actix::test]
async fn player_line_that_cuts_before_the_first_character_is_audited() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let running = world.say_line(id, "hold back").await;
    world.wait_for_begun(1).await;
    let next = world.say_line_with(id, "next", None, OnBusy::Interrupt).await;
    assert!(matches!(
        *wait_for_turn(running).await.unwrap_err(),
        TurnError::CutBeforeReply
    ));
    assert_eq!(wait_for_turn(next).await.unwrap().number, 1);
    // The audit row is written without a waiting caller, so maybe a moment later.
    for _ in 0..600 {
        if !world.audit_rows("session.interrupt").await.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.audit_rows("session.interrupt").await.len(), 1);
    world.shut_down().await;
}

#[actix::test]
async fn keyed_cut_finds_the_reply_as_it_was_before_its_replacement() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    world.say_and_wait(id, "one").await;
    let whole = world.say_and_wait(id, "two").await;
    *world.fake.hold_rewinds.lock() = true;
    let who = world.test_principal();
    let anew = world
        .sessions
        .regenerate_reply(&world.scope, id, &who, None, None, None);
    let cut = async {
        wait_until("it is taken out", || world.fake.rewinds.lock().len() == 1).await;
        let wish = InterruptCommand {
            heard_length: Some(HeardLength::Chars(3)),
            ..world.keyed_interrupt(Some(2), "cut")
        };
        let cut = world.sessions.interrupt_dialogue(&world.scope, id, wish);
        world.fake.rewind_go.add_permits(9);
        cut.await
    };
    let (anew, cut) = tokio::join!(anew, cut);
    assert!(matches!(*wait_for_turn(anew).await.unwrap_err(), TurnError::Unsaid));
    assert_eq!(head_turn(&cut.unwrap()), 2);
    assert_eq!(world.said_turns(id).await[1].reply_text, whole.reply_text[..3]);
    world.shut_down().await;
}

#[actix::test]
async fn reply_may_be_acknowledged_before_its_commit() {
    let world = TestWorld::new().await;
    *world.fake.with_jobs.lock() = true;
    let id = world.new_acknowledging_session().await;
    let ear = world.attach_recorder(id).await;
    let said = world.say_line(id, "commit later").await;
    ear.wait_for_event("completed 1").await;
    world.sessions.mark_played(&world.scope, id, 1).await.unwrap();
    assert!(world.fake.jobs.lock().is_empty());
    world.fake.go.add_permits(1);
    assert_eq!(wait_for_turn(said).await.unwrap().status, TurnStatus::Completed);
    wait_until("it is learned", || world.fake.jobs.lock().len() == 1).await;

    world.say_line(id, "hold").await.unwrap();
    world.wait_for_begun(2).await;
    let early = world.sessions.mark_played(&world.scope, id, 2).await;
    assert!(
        matches!(early, Err(DialogueError::NoSuchTurn { turn: 2, .. })),
        "{early:?}"
    );
    world.shut_down().await;
}
