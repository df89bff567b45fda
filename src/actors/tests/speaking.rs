//! Lines: queued, interrupting, refused, repeated.

use std::sync::Arc;

use super::world::{TestWorld, wait_for_turn, wait_until};
use crate::{AcceptedLine, DialogueError, HeardLength, InterruptOutcome, OnBusy, metrics::ActorKind};
use colloquy_dialogue::turn::{ChatRequest, TurnError};
use colloquy_memory::turn::TurnStatus;

#[actix::test]
async fn queued_lines_keep_their_order_and_are_limited_to_four() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let mut said = vec![world.say_line(id, "hold 1").await];
    world.wait_for_begun(1).await;
    for line in ["2", "3", "4", "5"] {
        said.push(world.say_line(id, line).await);
    }
    let refused = world.say_line(id, "6").await.unwrap_err();
    assert!(
        matches!(refused, DialogueError::QueueFull { queued: 4, .. }),
        "{refused:?}"
    );
    world.fake.go.add_permits(1);
    for (number, accepted) in (1..).zip(said) {
        assert_eq!(wait_for_turn(accepted).await.unwrap().number, number);
    }
    assert_eq!(*world.fake.spoken.lock(), ["hold 1", "2", "3", "4", "5"]);
    let view = world.sessions.snapshot(&world.scope, id).await.unwrap();
    assert_eq!(view.history.len(), 5);
    assert_eq!(view.dialogue.head_turn, 5);
    world.shut_down().await;
}

#[actix::test]
async fn player_line_may_cut_the_running_reply() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    let first = world.say_line(id, "hold").await;
    world.wait_for_begun(1).await;
    let second = world.say_line_with(id, "wait!", None, OnBusy::Interrupt).await;
    assert_eq!(wait_for_turn(first).await.unwrap().status, TurnStatus::Interrupted);
    assert_eq!(wait_for_turn(second).await.unwrap().number, 2);
    ear.wait_for_event("committed 2").await;
    assert_eq!(
        ear.event_labels(),
        [
            "started 1",
            "interrupted 1",
            "committed 1",
            "started 2",
            "completed 2",
            "committed 2"
        ]
    );
    world.shut_down().await;
}

#[actix::test]
async fn interrupt_cuts_only_a_running_turn() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let idle = world.interrupt(id, None, None).await.unwrap();
    assert_eq!(idle, InterruptOutcome::Idle { head_turn: 0 });
    let first = world.say_line(id, "hold").await;
    world.wait_for_begun(1).await;
    let wrong = world.interrupt(id, Some(7), None).await.unwrap_err();
    assert!(matches!(wrong, DialogueError::NotRunning { turn: 7 }));
    let cut = world.interrupt(id, Some(1), Some(HeardLength::Chars(3))).await.unwrap();
    assert_eq!(cut, InterruptOutcome::Cut { turn: 1 });
    assert_eq!(wait_for_turn(first).await.unwrap().status, TurnStatus::Interrupted);
    world.shut_down().await;
}

#[actix::test]
async fn player_line_may_ask_to_be_rejected_when_busy() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let first = world.say_line(id, "hold").await;
    world.wait_for_begun(1).await;
    let refused = world.say_line_with(id, "2", None, OnBusy::Reject).await.unwrap_err();
    assert!(matches!(refused, DialogueError::TurnInProgress { .. }), "{refused:?}");
    world.fake.go.add_permits(1);
    wait_for_turn(first).await.unwrap();
    let taken = world.say_line_with(id, "2", None, OnBusy::Reject).await;
    assert_eq!(wait_for_turn(taken).await.unwrap().number, 2);
    world.shut_down().await;
}

#[actix::test]
async fn idempotency_key_makes_one_turn_however_often_sent() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    // A previous turn and a fresh actor, so that the ledger is asked too.
    world.say_and_wait(id, "before").await;
    let world = world.restart_process();
    let mut asked = Vec::new();
    for _ in 0..16 {
        let (sessions, scope) = (world.sessions.clone(), world.scope.clone());
        let line = crate::PlayerLine {
            text: "hold".into(),
            to: None,
            key: Some("k".into()),
            on_busy: OnBusy::Queue,
            re: None,
            who: None,
            chat: None,
        };
        asked.push(actix::spawn(async move { sessions.say_line(&scope, id, line).await }));
    }
    world.wait_for_begun(1).await;
    world.fake.go.add_permits(1);
    let mut turns = Vec::new();
    for asked in asked {
        turns.push(wait_for_turn(asked.await.unwrap()).await.unwrap());
    }
    assert!(turns.iter().all(|turn| turn.id == turns[0].id && turn.number == 2));
    // Remembered by the actor, and by the ledger for another actor.
    for world in [&world, &world.restart_process()] {
        let again = world.say_line_with(id, "hold", Some("k"), OnBusy::Queue).await.unwrap();
        let AcceptedLine::Repeated(turn) = again else {
            panic!("{again:?}")
        };
        assert_eq!(turn.id, turns[0].id);
    }
    assert_eq!(world.fake.spoken.lock().len(), 1);
    world.shut_down().await;
}

#[actix::test]
async fn player_lines_empty_or_too_long_are_rejected() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    assert!(matches!(world.say_line(id, " \n").await, Err(DialogueError::LineEmpty)));
    let longest = "가".repeat(100);
    assert!(matches!(
        world.say_line(id, &format!("{longest}가")).await,
        Err(DialogueError::LineTooLong { max: 100 })
    ));
    assert_eq!(world.say_and_wait(id, &longest).await.number, 1);
    world.shut_down().await;
}

#[actix::test]
async fn line_for_another_last_turn_is_refused() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    world.say_and_wait(id, "first").await;
    let say_after = async |head: u32| {
        let line = crate::PlayerLine {
            text: format!("after {head}"),
            to: None,
            key: None,
            on_busy: OnBusy::Queue,
            re: None,
            who: None,
            chat: Some(Arc::new(ChatRequest::default().with_if_head(head))),
        };
        world.sessions.say_line(&world.scope, id, line).await
    };
    for stale in [0, 2] {
        let refused = say_after(stale).await.unwrap_err();
        assert!(
            matches!(refused, DialogueError::StaleHead { head_turn: 1 }),
            "{refused:?}"
        );
    }
    let held = world.say_line(id, "hold").await;
    world.wait_for_begun(2).await;
    // Each waits behind the running turn.
    let stale = say_after(1).await;
    let known = say_after(2).await;
    let second = say_after(2).await;
    world.fake.go.add_permits(1);
    assert_eq!(wait_for_turn(held).await.unwrap().number, 2);
    assert!(matches!(*wait_for_turn(stale).await.unwrap_err(), TurnError::StaleHead));
    assert_eq!(wait_for_turn(known).await.unwrap().number, 3);
    assert!(matches!(
        *wait_for_turn(second).await.unwrap_err(),
        TurnError::StaleHead
    ));
    assert_eq!(*world.fake.spoken.lock(), ["first", "hold", "after 2"]);
    world.shut_down().await;
}

#[actix::test]
async fn failed_turn_is_reported_once_and_the_next_one_runs() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    let failed = |kind| {
        let meters = world.sessions.metrics();
        ["model_timeout", "internal"].map(|code| meters.failed_turns_so_far(kind, code))
    };
    for line in ["fail", "panic"] {
        assert!(wait_for_turn(world.say_line(id, line).await).await.is_err());
    }
    assert_eq!(failed(ActorKind::Session), [1, 1]);
    assert_eq!(world.say_and_wait(id, "well").await.number, 1);
    assert_eq!(
        ear.event_labels(),
        [
            "started 1",
            "failed 1",
            "started 1",
            "failed 1",
            "started 1",
            "completed 1",
            "committed 1"
        ]
    );
    let talk = world.new_conversation("fail", 5, false).await;
    let line = world.sessions.say_next_line(&world.scope, talk).await.unwrap();
    assert!(line.await.unwrap().is_err());
    assert_eq!(
        (failed(ActorKind::Session), failed(ActorKind::NpcConversation)),
        ([1, 1], [1, 0])
    );
    world.shut_down().await;
}

#[actix::test]
async fn foreign_session_is_not_found() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let foreign = colloquy_core::scope::TenantScope::new("other".parse().unwrap());
    let refused = world.sessions.snapshot(&foreign, id).await.unwrap_err();
    assert!(matches!(refused, DialogueError::NotFound));
    wait_until("its actor is gone", || world.sessions.live_count() == 0).await;
    world.shut_down().await;
}

#[actix::test]
async fn preview_starts_from_the_same_state_as_the_next_turn() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    world.say_and_wait(id, "one").await;
    let preview = world
        .sessions
        .preview_prompt(&world.scope, id, "two".into(), None)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((preview.prompt_tokens, preview.prompt_hash.as_str()), (2, "two"));
    assert_eq!(world.say_and_wait(id, "three").await.number, 2);
    world.shut_down().await;
}

#[actix::test]
async fn idempotency_key_belongs_to_one_text() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let other = async |world: &TestWorld| {
        let refused = world
            .say_line_with(id, "something else", Some("k"), OnBusy::Queue)
            .await;
        assert!(matches!(refused, Err(DialogueError::KeyReused)), "{refused:?}");
    };
    // During the turn, while the line waits, after the commit, and when only the ledger knows the key.
    let first = world.say_line(id, "hold").await;
    world.wait_for_begun(1).await;
    let waiting = world.say_line_with(id, "hold 2", Some("k"), OnBusy::Queue).await;
    other(&world).await;
    world.fake.go.add_permits(1);
    wait_for_turn(first).await.unwrap();
    world.wait_for_begun(2).await;
    other(&world).await;
    world.fake.go.add_permits(1);
    let turn = wait_for_turn(waiting).await.unwrap();
    other(&world).await;
    let same = world.say_line_with(id, "hold 2", Some("k"), OnBusy::Queue).await;
    assert_eq!(wait_for_turn(same).await.unwrap().id, turn.id);
    let world = world.restart_process();
    other(&world).await;
    let same = world.say_line_with(id, "hold 2", Some("k"), OnBusy::Queue).await;
    assert_eq!(wait_for_turn(same).await.unwrap().id, turn.id);
    assert_eq!(world.say_and_wait(id, "next").await.number, 3);
    world.shut_down().await;
}

#[actix::test]
async fn retried_line_is_said_once_however_old() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let keyed = async |world: &TestWorld, n: u32| {
        let key = format!("key {n}");
        wait_for_turn(world.say_line_with(id, "hello", Some(&key), OnBusy::Queue).await)
            .await
            .unwrap()
            .number
    };
    for n in 1..=20 {
        assert_eq!(keyed(&world, n).await, n);
    }
    for n in [1, 20] {
        assert_eq!(keyed(&world, n).await, n);
    }
    let again = world.restart_process();
    for n in [21, 1, 20, 21, 22] {
        assert_eq!(keyed(&again, n).await, n);
    }
    // Nor after the turn was rewound.
    again.rewind_to(id, 2).await.unwrap();
    for n in [30, 40] {
        let key = format!("key {}", n / 2);
        let told = again.say_line_with(id, "hello", Some(&key), OnBusy::Queue).await;
        assert!(matches!(told, Err(DialogueError::TurnUnsaid)), "{key}");
        assert_eq!(keyed(&again, n).await, n / 10);
    }
    again.shut_down().await;
    world.shut_down().await;
}
