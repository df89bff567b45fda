//! Replies whose regeneration fails: the previous reply is reinstated.

use super::{
    rewinding::session_with_turns,
    world::{TestWorld, wait_for_turn, wait_until},
};
use colloquy_dialogue::turn::TurnError;
use colloquy_ports::ledger::dialogues::OwnerWriteOutcome;

#[actix::test]
async fn reply_that_cannot_be_regenerated_stands_again() {
    let world = TestWorld::new().await;
    let id = session_with_turns(&world, 1).await;
    world.fake.go.add_permits(1);
    world.say_and_wait(id, "hold").await;
    let standing = async |world: &TestWorld| {
        // Answered after the session has reinstated the turn.
        let view = world.sessions.snapshot(&world.scope, id).await.unwrap();
        assert_eq!((view.dialogue.head_turn, view.history.len()), (2, 2));
        let dialogues = &world.ports.ledger.dialogues;
        dialogues.load_turns(&world.scope, id, 1, 9).await.unwrap()
    };
    let anew = async |world: &TestWorld| {
        let (who, key) = (world.test_principal(), Some("again".to_owned()));
        world
            .sessions
            .regenerate_reply(&world.scope, id, &who, key, None, None)
            .await
    };
    let before = standing(&world).await;
    let ear = world.attach_recorder(id).await;
    *world.fake.fail_turns.lock() = true;
    world.fake.go.add_permits(1);
    let failed = wait_for_turn(anew(&world).await).await;
    assert!(matches!(*failed.unwrap_err(), TurnError::Model(_)));
    assert_eq!(standing(&world).await, before);
    assert_eq!(ear.event_labels(), ["rewound 1", "started 2", "failed 2", "rewound 2"]);

    *world.fake.fail_turns.lock() = false;
    let running = anew(&world).await;
    wait_until("the reply is said anew", || world.fake.spoken.lock().len() == 4).await;
    // The process dies meanwhile.
    let killed = world;
    let world = killed.restart_process();
    assert_eq!(standing(&world).await, before);
    drop(running);
    world.fake.go.add_permits(1);
    let second = wait_for_turn(anew(&world).await).await.unwrap();
    assert_eq!((second.number, second.player_text.as_str()), (2, "hold"));
    assert_ne!(second.id, before[1].id);
    world.shut_down().await;
}

#[actix::test]
async fn reply_pending_regeneration_stands_in_a_closed_session() {
    let world = TestWorld::new().await;
    let id = session_with_turns(&world, 1).await;
    world.fake.go.add_permits(1);
    let whole = world.say_and_wait(id, "hold").await;
    let ear = world.attach_recorder(id).await;
    let who = world.test_principal();
    let anew = world
        .sessions
        .regenerate_reply(&world.scope, id, &who, None, None, None);
    let anew = anew.await;
    world.wait_for_begun(3).await;
    let dialogues = &world.ports.ledger.dialogues;
    let mut epoch = 0;
    while dialogues
        .close_dialogue(&world.scope, id, epoch, world.ports.clock.now())
        .await
        .unwrap()
        != OwnerWriteOutcome::Done
    {
        epoch += 1;
    }
    *world.fake.fail_turns.lock() = true;
    world.sessions.on_sessions_closed(&world.scope, vec![id]).await;
    wait_for_turn(anew).await.unwrap_err();
    ear.wait_for_event("closed rewound").await;
    assert_eq!(
        ear.event_labels(),
        ["rewound 1", "started 2", "failed 2", "rewound 2", "closed rewound"]
    );
    let turns = dialogues.load_turns(&world.scope, id, 1, 9).await.unwrap();
    assert_eq!(turns.last().unwrap().id, whole.id);
    world.shut_down().await;
}
