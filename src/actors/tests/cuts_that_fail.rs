//! Cuts of turns that are never committed.

use super::world::{TestWorld, wait_for_turn};
use crate::{HeardLength, InterruptCommand, InterruptOutcome};
use colloquy_memory::turn::TurnStatus;

#[actix::test]
async fn npc_line_that_cannot_be_continued_stands_as_cut() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("hold", 20, false).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    let _first = world.sessions.say_next_line(&world.scope, id).await.unwrap();
    world.wait_for_begun(1).await;
    let wish = world.conversation_interrupt(None);
    world
        .sessions
        .interrupt_conversation(&world.scope, id, wish)
        .await
        .unwrap();
    ear.wait_for_event("committed 1").await;
    let before = world.said_turns(id).await;
    let told = ear.event_labels().len();
    *world.fake.fail_turns.lock() = true;
    // No step is needed: the resume requests the line.
    world
        .sessions
        .resume_conversation(&world.scope, id, &world.test_principal())
        .await
        .unwrap();
    world.wait_for_begun(2).await;
    world.fake.go.add_permits(1);
    ear.wait_for_event("rewound 1").await;
    assert_eq!(world.said_turns(id).await, before);
    let story = ear.event_labels();
    assert_eq!(story[told..][..2], ["rewound 0", "resumed 0"], "{story:?}");
    assert_eq!(story.last().unwrap(), "rewound 1");

    // The process dies during the continuation.
    *world.fake.fail_turns.lock() = false;
    world
        .sessions
        .resume_conversation(&world.scope, id, &world.test_principal())
        .await
        .unwrap();
    world.wait_for_begun(3).await;
    let world = world.restart_process();
    assert_eq!(
        world
            .sessions
            .conversation_snapshot(&world.scope, id)
            .await
            .unwrap()
            .dialogue
            .head_turn,
        1
    );
    assert_eq!(world.said_turns(id).await, before);

    // A player who joins meanwhile continues from the heard part.
    world
        .sessions
        .resume_conversation(&world.scope, id, &world.test_principal())
        .await
        .unwrap();
    world.wait_for_begun(1).await;
    *world.fake.fail_turns.lock() = true;
    let player = "p1".parse().unwrap();
    let joined = world
        .sessions
        .join_conversation(&world.scope, id, player, None)
        .await
        .unwrap();
    let heard = world.said_turns(id).await;
    assert_eq!(heard, before);
    assert_eq!(
        joined.dialogue.cause,
        Some(colloquy_memory::fact::Cause::Turn(heard[0].id))
    );
    world.shut_down().await;
}

#[actix::test]
async fn cut_of_an_uncommitted_turn_leaves_the_queued_line_alone() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    *world.fake.fail_turns.lock() = true;
    let failing = world.say_line(id, "hold").await;
    world.wait_for_begun(1).await;
    let waiting = world.say_line(id, "hold two").await;
    let wish = InterruptCommand {
        heard_length: Some(HeardLength::Chars(0)),
        ..world.keyed_interrupt(Some(1), "cut")
    };
    let told = world.sessions.interrupt_dialogue(&world.scope, id, wish).await.unwrap();
    assert_eq!(
        told,
        InterruptOutcome::Idle { head_turn: 0 },
        "told before the next line is said"
    );
    wait_for_turn(failing).await.unwrap_err();
    world.wait_for_begun(2).await;
    *world.fake.fail_turns.lock() = false;
    world.fake.go.add_permits(1);
    let said = wait_for_turn(waiting).await.unwrap();
    assert_eq!((said.number, said.status), (1, TurnStatus::Completed));
    world.sessions.snapshot(&world.scope, id).await.unwrap();
    assert_eq!(world.said_turns(id).await, [(*said).clone()]);
    world.shut_down().await;
}
