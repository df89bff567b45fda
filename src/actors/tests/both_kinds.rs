//! Rules that hold for sessions and for conversations alike.

use super::{saves, world::*};
use crate::{DialogueError, InterruptCommand, InterruptOutcome};

#[actix::test]
async fn stored_outcome_of_a_key_is_repeated_after_the_dialogue_was_closed() {
    let world = TestWorld::new().await;
    let session = world.new_session().await;
    let talk = world.new_conversation("the mill", 20, false).await;
    for _ in 0..2 {
        world.say_and_wait(session, "hello").await;
        world.say_next_line(talk).await;
    }
    let with_key = |key: &str, command| InterruptCommand {
        key: Some(key.to_owned()),
        ..command
    };
    let in_session = |key| {
        world.sessions.interrupt_dialogue(
            &world.scope,
            session,
            with_key(key, world.interrupt_command(Some(1), None)),
        )
    };
    let talks = &world.sessions;
    let in_talk =
        |key| talks.interrupt_conversation(&world.scope, talk, with_key(key, world.conversation_interrupt(Some(1))));
    let (first_in_session, first_in_talk) = (in_session("a").await.unwrap(), in_talk("a").await.unwrap());
    world
        .sessions
        .close_dialogue(&world.scope, session, "done")
        .await
        .unwrap();
    talks.end_conversation(&world.scope, talk, "done").await.unwrap();
    assert_eq!(in_session("a").await.unwrap(), first_in_session);
    assert_eq!(in_talk("a").await.unwrap(), first_in_talk);
    let (closed, ended) = (in_session("b").await, in_talk("b").await);
    assert!(matches!(closed, Err(DialogueError::Closed)), "{closed:?}");
    assert!(matches!(ended, Err(DialogueError::Ended)), "{ended:?}");
    world.shut_down().await;
}

#[actix::test]
async fn restore_that_meets_a_rewind_is_applied_after_the_rewind() {
    let world = TestWorld::new().await;
    let talk = world.new_conversation("the mill", 20, false).await;
    for _ in 0..2 {
        world.say_next_line(talk).await;
    }
    let save = saves::create_save(&world).await;
    world.say_next_line(talk).await;
    let ear = world.attach_watcher(talk, None).await;
    *world.fake.hold_rewinds.lock() = true;
    let meanwhile = async {
        wait_until("the rewind begins", || !world.fake.rewinds.lock().is_empty()).await;
        saves::load_save(&world, save).await;
        world.fake.rewind_go.add_permits(1);
    };
    let talks = &world.sessions;
    let interrupt = talks.interrupt_conversation(&world.scope, talk, world.conversation_interrupt(Some(1)));
    let (rewound, ()) = tokio::join!(interrupt, meanwhile);
    assert!(matches!(rewound, Err(DialogueError::Overloaded { .. })), "{rewound:?}");
    assert_eq!(world.line_texts(talk).await.len(), 2);
    ear.wait_for_event("rewound 2").await;
    assert_eq!(world.say_next_line(talk).await.number, 3);
    assert!(ear.heard_seqs().is_sorted_by(|a, b| a < b));
    world.shut_down().await;
}

#[actix::test]
async fn requests_that_meet_a_rewind_are_handled_after_it_in_their_order() {
    let world = TestWorld::new().await;
    let session = world.new_session().await;
    for _ in 0..3 {
        world.say_and_wait(session, "hello").await;
    }
    *world.fake.hold_rewinds.lock() = true;
    let meanwhile = async {
        wait_until("the rewind begins", || !world.fake.rewinds.lock().is_empty()).await;
        let released = async {
            wait_until("both requests are in", || {
                world.sessions.free_permits() <= world.settings.max_in_flight - 3
            })
            .await;
            world.fake.rewind_go.add_permits(1);
        };
        let line = world.say_and_wait(session, "after the rewind");
        let close = world.sessions.close_dialogue(&world.scope, session, "done");
        tokio::join!(line, close, released)
    };
    let (rewound, (line, close, ())) = tokio::join!(world.rewind_to(session, 1), meanwhile);
    let InterruptOutcome::Rewound(rewound) = rewound.unwrap() else {
        panic!("the session was rewound")
    };
    assert_eq!((rewound.head_turn, line.number), (1, 2));
    close.unwrap();
    world.shut_down().await;
}

#[actix::test]
async fn pause_that_meets_a_durable_rewind_does_not_block_the_next_rewind() {
    let world = TestWorld::new().await;
    let talk = world.new_conversation("the mill", 20, false).await;
    for _ in 0..4 {
        world.say_next_line(talk).await;
    }
    *world.fake.hold_rewind_answers.lock() = true;
    let talks = &world.sessions;
    let interrupt = |turn| talks.interrupt_conversation(&world.scope, talk, world.conversation_interrupt(turn));
    let meanwhile = async {
        wait_until("the first rewind is durable", || {
            world.fake.durable_rewinds.load(std::sync::atomic::Ordering::Relaxed) == 1
        })
        .await;
        // The pause of the interrupt without a turn finds the epoch of the rewind.
        let pausing = interrupt(None);
        let lower = async {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            let released = async {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                world.fake.rewind_go.add_permits(8);
            };
            tokio::join!(interrupt(Some(2)), released).0
        };
        tokio::join!(pausing, lower)
    };
    let all = async { tokio::join!(interrupt(Some(3)), meanwhile) };
    let (first, (pausing, lower)) = tokio::time::timeout(PATIENCE, all).await.unwrap();
    for outcome in [first, pausing, lower] {
        outcome.unwrap();
    }
    assert_eq!(world.line_texts(talk).await.len(), 2);
    world.shut_down().await;
}
