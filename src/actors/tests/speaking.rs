//! Lines: queued, cutting in, refused, repeated.

use super::world::{World, outcome, until};
use crate::{
    actors::{Accepted, Heard, Interrupted, OnBusy, SessionError, mailbox::Kind},
    memory::turn::TurnStatus,
};

#[actix::test]
async fn lines_wait_in_order_and_no_more_than_four() {
    let world = World::new().await;
    let id = world.session().await;
    let mut said = vec![world.say(id, "hold 1").await];
    world.begun(1).await;
    for line in ["2", "3", "4", "5"] {
        said.push(world.say(id, line).await);
    }
    let refused = world.say(id, "6").await.unwrap_err();
    assert!(
        matches!(refused, SessionError::QueueFull { queued: 4, .. }),
        "{refused:?}"
    );
    world.fake.go.add_permits(1);
    for (number, accepted) in (1..).zip(said) {
        assert_eq!(outcome(accepted).await.unwrap().number, number);
    }
    assert_eq!(*world.fake.spoken.lock(), ["hold 1", "2", "3", "4", "5"]);
    let view = world.sessions.view(&world.scope, id).await.unwrap();
    assert_eq!(view.history.len(), 5);
    assert_eq!(view.dialogue.head_turn, 5);
    world.end().await;
}

#[actix::test]
async fn a_line_may_cut_the_running_reply() {
    let world = World::new().await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    let first = world.say(id, "hold").await;
    world.begun(1).await;
    let second = world.say_with(id, "wait!", None, OnBusy::Interrupt).await;
    assert_eq!(outcome(first).await.unwrap().status, TurnStatus::Interrupted);
    assert_eq!(outcome(second).await.unwrap().number, 2);
    ear.hears("committed 2").await;
    assert_eq!(
        ear.story(),
        [
            "started 1",
            "interrupted 1",
            "committed 1",
            "started 2",
            "completed 2",
            "committed 2"
        ]
    );
    world.end().await;
}

#[actix::test]
async fn an_interrupt_cuts_only_a_turn_that_runs() {
    let world = World::new().await;
    let id = world.session().await;
    let idle = world.interrupt(id, None, None).await.unwrap();
    assert_eq!(idle, Interrupted::Idle { head_turn: 0 });
    let first = world.say(id, "hold").await;
    world.begun(1).await;
    let wrong = world.interrupt(id, Some(7), None).await.unwrap_err();
    assert!(matches!(wrong, SessionError::NotRunning { turn: 7 }));
    let cut = world.interrupt(id, Some(1), Some(Heard::Chars(3))).await.unwrap();
    assert_eq!(cut, Interrupted::Cut { turn: 1 });
    assert_eq!(outcome(first).await.unwrap().status, TurnStatus::Interrupted);
    world.end().await;
}

#[actix::test]
async fn a_line_may_ask_to_be_refused_when_a_reply_runs() {
    let world = World::new().await;
    let id = world.session().await;
    let first = world.say(id, "hold").await;
    world.begun(1).await;
    let refused = world.say_with(id, "2", None, OnBusy::Reject).await.unwrap_err();
    assert!(matches!(refused, SessionError::TurnInProgress { .. }), "{refused:?}");
    world.fake.go.add_permits(1);
    outcome(first).await.unwrap();
    let taken = world.say_with(id, "2", None, OnBusy::Reject).await;
    assert_eq!(outcome(taken).await.unwrap().number, 2);
    world.end().await;
}

#[actix::test]
async fn a_key_makes_one_turn_however_often_it_comes() {
    let world = World::new().await;
    let id = world.session().await;
    // A turn before, and a fresh actor, so that the ledger is asked too.
    world.turn(id, "before").await;
    let world = world.restarted();
    let mut asked = Vec::new();
    for _ in 0..16 {
        let (sessions, scope) = (world.sessions.clone(), world.scope.clone());
        let line = crate::actors::Line {
            text: "hold".into(),
            to: None,
            key: Some("k".into()),
            on_busy: OnBusy::Queue,
            re: None,
            who: None,
        };
        asked.push(actix::spawn(async move { sessions.say(&scope, id, line).await }));
    }
    world.begun(1).await;
    world.fake.go.add_permits(1);
    let mut turns = Vec::new();
    for asked in asked {
        turns.push(outcome(asked.await.unwrap()).await.unwrap());
    }
    assert!(turns.iter().all(|turn| turn.id == turns[0].id && turn.number == 2));
    // Remembered by the actor, and by the ledger when the actor is another.
    for world in [&world, &world.restarted()] {
        let again = world.say_with(id, "hold", Some("k"), OnBusy::Queue).await.unwrap();
        let Accepted::Repeated(turn) = again else {
            panic!("{again:?}")
        };
        assert_eq!(turn.id, turns[0].id);
    }
    assert_eq!(world.fake.spoken.lock().len(), 1);
    world.end().await;
}

#[actix::test]
async fn lines_without_words_or_with_too_many_are_refused() {
    let world = World::new().await;
    let id = world.session().await;
    assert!(matches!(world.say(id, " \n").await, Err(SessionError::LineEmpty)));
    let longest = "가".repeat(100);
    assert!(matches!(
        world.say(id, &format!("{longest}가")).await,
        Err(SessionError::LineTooLong { max: 100 })
    ));
    assert_eq!(world.turn(id, &longest).await.number, 1);
    world.end().await;
}

#[actix::test]
async fn a_turn_that_fails_is_told_once_and_the_next_one_runs() {
    let world = World::new().await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    let failed = |kind| {
        let meters = world.sessions.meters();
        ["model_timeout", "internal"].map(|code| meters.failed_so_far(kind, code))
    };
    for line in ["fail", "panic"] {
        assert!(outcome(world.say(id, line).await).await.is_err());
    }
    assert_eq!(failed(Kind::Session), [1, 1]);
    assert_eq!(world.turn(id, "well").await.number, 1);
    assert_eq!(
        ear.story(),
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
    let talk = world.talk("fail", 5, false).await;
    let line = world.talks().step(&world.scope, talk).await.unwrap();
    assert!(line.await.unwrap().is_err());
    assert_eq!((failed(Kind::Session), failed(Kind::NpcConversation)), ([1, 1], [1, 0]));
    world.end().await;
}

#[actix::test]
async fn a_foreign_session_is_not_found() {
    let world = World::new().await;
    let id = world.session().await;
    let foreign = crate::tenancy::TenantScope::new("other".parse().unwrap());
    let refused = world.sessions.view(&foreign, id).await.unwrap_err();
    assert!(matches!(refused, SessionError::NotFound));
    until("its actor is gone", || world.sessions.live() == 0).await;
    world.end().await;
}

#[actix::test]
async fn a_preview_starts_from_what_the_next_turn_would() {
    let world = World::new().await;
    let id = world.session().await;
    world.turn(id, "one").await;
    let preview = world
        .sessions
        .preview(&world.scope, id, "two".into())
        .await
        .unwrap()
        .unwrap();
    assert_eq!((preview.prompt_tokens, preview.prompt_hash.as_str()), (2, "two"));
    assert_eq!(world.turn(id, "three").await.number, 2);
    world.end().await;
}

#[actix::test]
async fn a_key_is_for_one_text() {
    let world = World::new().await;
    let id = world.session().await;
    let other = async |world: &World| {
        let refused = world.say_with(id, "something else", Some("k"), OnBusy::Queue).await;
        assert!(matches!(refused, Err(SessionError::KeyReused)), "{refused:?}");
    };
    // While its turn runs, while its line waits, once it is committed, and when only the ledger knows.
    let first = world.say(id, "hold").await;
    world.begun(1).await;
    let waiting = world.say_with(id, "hold 2", Some("k"), OnBusy::Queue).await;
    other(&world).await;
    world.fake.go.add_permits(1);
    outcome(first).await.unwrap();
    world.begun(2).await;
    other(&world).await;
    world.fake.go.add_permits(1);
    let turn = outcome(waiting).await.unwrap();
    other(&world).await;
    let same = world.say_with(id, "hold 2", Some("k"), OnBusy::Queue).await;
    assert_eq!(outcome(same).await.unwrap().id, turn.id);
    let world = world.restarted();
    other(&world).await;
    let same = world.say_with(id, "hold 2", Some("k"), OnBusy::Queue).await;
    assert_eq!(outcome(same).await.unwrap().id, turn.id);
    assert_eq!(world.turn(id, "next").await.number, 3);
    world.end().await;
}

#[actix::test]
async fn a_line_is_said_once_however_long_ago_that_was() {
    let world = World::new().await;
    let id = world.session().await;
    let keyed = async |world: &World, n: u32| {
        let key = format!("key {n}");
        outcome(world.say_with(id, "hello", Some(&key), OnBusy::Queue).await)
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
    let again = world.restarted();
    for n in [21, 1, 20, 21, 22] {
        assert_eq!(keyed(&again, n).await, n);
    }
    // Nor if the turn is gone.
    again.back(id, 2).await.unwrap();
    for n in [30, 40] {
        let key = format!("key {}", n / 2);
        let told = again.say_with(id, "hello", Some(&key), OnBusy::Queue).await;
        assert!(matches!(told, Err(SessionError::TurnUnsaid)), "{key}");
        assert_eq!(keyed(&again, n).await, n / 10);
    }
    again.end().await;
    world.end().await;
}
