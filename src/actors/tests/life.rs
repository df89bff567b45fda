//! Spawning, evicting, panicking, closing, draining.

use std::{sync::Arc, time::Duration};

use super::world::{PATIENCE, World, dialogue_settings, outcome, settings, until};
use crate::{
    actors::{Accepted, ActorSettings, SessionError, mailbox::Kind, meters::FencedWrite, session},
    memory::turn::TurnStatus,
    ports::{
        buffer::{BufferHead, BufferSnapshot, BufferedTurn},
        ledger::{authored::DeleteOutcome, dialogues::Claim},
    },
};

#[actix::test]
async fn many_callers_at_once_spawn_one_actor() {
    let world = World::new().await;
    let id = world.session().await;
    let views = (0..64).map(|_| world.sessions.view(&world.scope, id));
    for view in futures_util::future::join_all(views).await {
        view.unwrap();
    }
    assert_eq!(world.sessions.live(), 1);
    // Each actor claims the dialogue once, and each claim raises the epoch.
    let now = world.ports.clock.now();
    let dialogues = &world.ports.ledger.dialogues;
    let claim = dialogues.claim(&world.scope, id, world.node, now, now).await.unwrap();
    let Claim::Owned(open) = claim else { panic!("{claim:?}") };
    assert_eq!(open.epoch, 2);
    world.end().await;
}

#[actix::test]
async fn an_idle_actor_stops_and_the_next_message_finds_another() {
    let tiny = ActorSettings {
        idle_s: 0,
        ..settings()
    };
    let world = World::with(tiny, dialogue_settings()).await;
    let id = world.session().await;
    let mut last = 0;
    for number in 1..=5 {
        // Speaking races with the eviction that a time of zero keeps trying.
        let turn = world.turn(id, "hello").await;
        assert_eq!(turn.number, number);
        assert!(turn.seqs.started > last, "numbers rise over evictions");
        last = turn.seqs.committed;
        until("the idle actor stops", || world.sessions.live() == 0).await;
    }
    // A listener keeps it.
    let ear = world.listen(id).await;
    world.turn(id, "hello").await;
    assert_eq!(ear.story().len(), 3);
    assert_eq!(world.sessions.live(), 1);
    *ear.deaf.lock() = true;
    world.turn(id, "hello").await;
    until("without a listener it stops", || world.sessions.live() == 0).await;
    world.end().await;
}

#[actix::test]
async fn a_panic_loses_neither_listeners_nor_the_reply_that_ran() {
    let world = World::new().await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    let lost = world.say(id, "hold").await.unwrap();
    world.begun(1).await;
    let key = (world.scope.clone(), id);
    world.sessions.session_for_test(&key).try_send(session::Panic).unwrap();
    ear.hears("failed 1").await;
    let Accepted::Turn { done } = lost else { panic!() };
    assert!(
        done.await.is_err(),
        "whoever waited is told that it never became a turn"
    );
    let turn = outcome(world.say(id, "again").await).await.unwrap();
    assert_eq!(turn.number, 1);
    assert_eq!(
        ear.story(),
        ["started 1", "failed 1", "started 1", "completed 1", "committed 1"]
    );
    assert!(ear.seqs().is_sorted_by(|a, b| a < b));
    world.end().await;
}

#[actix::test]
async fn an_actor_that_keeps_panicking_is_not_respawned_at_once_for_ever() {
    let world = World::new().await;
    let id = world.session().await;
    let key = (world.scope.clone(), id);
    let mut waits = Vec::new();
    for _ in 0..6 {
        match world.sessions.view(&world.scope, id).await {
            Ok(_) => {
                let addr = world.sessions.session_for_test(&key);
                addr.try_send(session::Panic).unwrap();
                until("it is dead", || !addr.connected()).await;
            }
            Err(SessionError::Overloaded { retry_after }) => waits.push(retry_after),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(!waits.is_empty());
    assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(10)));
    let back = async {
        while world.sessions.node_for_test().session(&key).await.is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, back)
        .await
        .expect("it does not come back");
    assert_eq!(world.turn(id, "hello").await.number, 1);
    world.end().await;
}

#[actix::test]
async fn messages_are_counted_until_their_actor_comes_to_them() {
    let one_thread = ActorSettings {
        arbiters: 1,
        ..settings()
    };
    let world = World::with(one_thread, dialogue_settings()).await;
    let id = world.session().await;
    let waiting = |kind| world.sessions.meters().messages(kind);
    world.turn(id, "hello").await;
    until("what the turn left is done", || Kind::ALL.map(waiting) == [0; 4]).await;
    let (go, stuck) = std::sync::mpsc::channel::<()>();
    let node = world.sessions.node_for_test();
    assert!(node.arbiter(&id).spawn_fn(move || stuck.recv().unwrap()));
    let views = (0..3).map(|_| world.sessions.view(&world.scope, id));
    let all = futures_util::future::join_all(views);
    let seen = async {
        until("all of them wait", || waiting(Kind::Session) == 3).await;
        // The curator may still be told what became of the turn's jobs.
        for kind in [Kind::NpcConversation, Kind::Npc] {
            assert_eq!(waiting(kind), 0, "nobody else was asked anything");
        }
        go.send(()).unwrap();
    };
    let (views, ()) = tokio::join!(all, seen);
    for view in views {
        view.unwrap();
    }
    until("none is left", || Kind::ALL.map(waiting) == [0; 4]).await;
    world.end().await;
}

#[actix::test]
async fn a_full_node_refuses_with_a_time_to_wait() {
    let small = ActorSettings {
        max_in_flight: 1,
        max_sessions: 1,
        ..settings()
    };
    let world = World::with(small, dialogue_settings()).await;
    let (first, second) = (world.session().await, world.session().await);
    world.turn(first, "hello").await;
    let _ear = world.listen(first).await;
    let refused = world.say(second, "hello").await.unwrap_err();
    assert!(
        matches!(refused, SessionError::Overloaded { .. }),
        "too many sessions: {refused:?}"
    );
    let permit = world
        .sessions
        .node_for_test()
        .admission
        .take(world.scope.tenant())
        .unwrap();
    let refused = world.say(first, "hello").await.unwrap_err();
    assert!(
        matches!(refused, SessionError::Overloaded { .. }),
        "too many requests: {refused:?}"
    );
    drop(permit);
    world.turn(first, "hello").await;
    world.end().await;
}

#[actix::test]
async fn closing_cuts_the_reply_keeps_it_and_lets_waiting_lines_go() {
    let world = World::new().await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    let running = world.say(id, "hold").await;
    world.begun(1).await;
    let Ok(Accepted::Turn { done: waiting }) = world.say(id, "never").await else {
        panic!()
    };
    world.sessions.close(&world.scope, id, "left").await.unwrap();
    assert_eq!(outcome(running).await.unwrap().status, TurnStatus::Interrupted);
    assert!(waiting.await.is_err());
    assert_eq!(
        ear.story(),
        [
            "started 1",
            "interrupted 1",
            "committed 1",
            "error session_closed",
            "closed left"
        ]
    );
    let refused = world.say(id, "hello?").await.unwrap_err();
    assert!(matches!(refused, SessionError::Closed), "{refused:?}");
    let refused = world.sessions.close(&world.scope, id, "left").await.unwrap_err();
    assert!(matches!(refused, SessionError::Closed), "{refused:?}");
    world.end().await;
}

#[actix::test]
async fn draining_cuts_what_does_not_end_and_refuses_the_rest() {
    let world = World::new().await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    let running = world.say(id, "hold").await;
    world.begun(1).await;
    let Ok(Accepted::Turn { done: waiting }) = world.say(id, "never").await else {
        panic!()
    };
    let drained = world.sessions.drain_within(Duration::from_millis(100), PATIENCE).await;
    assert_eq!((drained.finished, drained.cut, drained.abandoned), (0, 1, 0));
    assert_eq!(outcome(running).await.unwrap().status, TurnStatus::Interrupted);
    assert!(waiting.await.is_err());
    assert!(matches!(world.say(id, "more").await, Err(SessionError::Draining)));
    assert!(matches!(
        world.sessions.view(&world.scope, id).await,
        Err(SessionError::Draining) | Ok(_)
    ));
    assert_eq!(
        ear.story(),
        ["started 1", "interrupted 1", "committed 1", "error draining"]
    );
    world.end().await;
}

#[actix::test]
async fn a_node_that_lost_the_dialogue_writes_nothing_more_to_it() {
    let world = World::new().await;
    let id = world.session().await;
    world.turn(id, "mine").await;
    let ear = world.listen(id).await;
    // Somebody else takes over: this node's epoch is stale from now on.
    let now = world.ports.clock.now();
    let later = now + Duration::from_hours(1);
    let dialogues = &world.ports.ledger.dialogues;
    dialogues.claim(&world.scope, id, world.node, now, later).await.unwrap();
    assert!(outcome(world.say(id, "stale").await).await.is_err());
    let meters = world.sessions.meters();
    assert_eq!(
        (
            meters.fenced_so_far(FencedWrite::Turn),
            meters.fenced_so_far(FencedWrite::Line)
        ),
        (1, 0)
    );
    // It noticed, claimed the dialogue back (nobody else lives) and goes on.
    assert_eq!(outcome(world.say(id, "again").await).await.unwrap().number, 2);
    assert_eq!(ear.story()[..3], ["started 2", "completed 2", "error wrong_node"]);
    let other = world.ports.ids.next();
    dialogues
        .claim(&world.scope, id, other, later, later + Duration::from_secs(1))
        .await
        .unwrap();
    let _ = outcome(world.say(id, "stale").await).await;
    ear.hears("closed moved").await;
    world.end().await;
}

#[actix::test]
async fn npcs_that_do_not_exist_leave_nothing_behind() {
    let world = World::new().await;
    world.session().await;
    for number in 0..100 {
        let new = crate::actors::NewSession {
            world: "vale".parse().unwrap(),
            npcs: vec![format!("nobody-{number}").parse().unwrap()],
            player: "p1".parse().unwrap(),
            witnesses: Vec::new(),
            factions: Vec::new(),
            cause: None,
            playback: crate::ports::ledger::dialogues::Playback::Immediate,
        };
        let refused = world.sessions.create(&world.scope, new).await.unwrap_err();
        assert!(matches!(refused, SessionError::NoNpc(_)), "{refused:?}");
    }
    assert_eq!(world.sessions.node_for_test().npcs.len(), 1, "the one that exists");
    world.end().await;
}

#[actix::test]
async fn lines_that_wait_when_an_actor_panics_are_told() {
    let world = World::new().await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    world.say(id, "hold").await.unwrap();
    world.begun(1).await;
    let Ok(Accepted::Turn { done: waiting }) = world.say(id, "waiting").await else {
        panic!()
    };
    let key = (world.scope.clone(), id);
    world.sessions.session_for_test(&key).try_send(session::Panic).unwrap();
    assert!(waiting.await.is_err());
    ear.hears("error internal").await;
    assert_eq!(ear.story(), ["started 1", "failed 1", "error internal"]);
    let told = ear.heard.lock().last().unwrap().re.clone();
    assert_eq!(told.as_deref(), Some("waiting"), "it says which line");
    world.end().await;
}

#[actix::test]
async fn an_edit_shows_in_the_next_turn_and_a_deleted_npc_ends_its_sessions() {
    let world = World::new().await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    world.turn(id, "hello").await;
    let (scope, authored) = (&world.scope, &world.ports.ledger.authored);
    let who = crate::tenancy::Principal {
        subject: "test".into(),
        tenant: scope.tenant().clone(),
        role: crate::tenancy::Role::Admin,
        player: None,
        world: None,
        issued: crate::tenancy::Issued::default(),
        expires_at: world.ports.clock.now(),
    };
    let edit =
        crate::ports::ledger::audit::Edit::by(&who, &world.ports.ids, world.ports.clock.now(), "npc.delete", "mira");
    let vale = "vale".parse().unwrap();
    let gone = authored
        .delete_npc(scope, &vale, &"mira".parse().unwrap(), None, &edit)
        .await;
    assert_eq!(gone.unwrap(), DeleteOutcome::Deleted);
    world.sessions.forget_authored(scope, &vale);
    // The line is let go: there is nobody to answer it.
    if let Ok(Accepted::Turn { done }) = world.say(id, "still there?").await {
        assert!(done.await.is_err());
    }
    ear.hears("closed npc_deleted").await;
    assert_eq!(world.fake.spoken.lock().len(), 1);
    world.end().await;
}

#[actix::test]
async fn who_stops_leaves_its_dialogues_to_others() {
    let tiny = ActorSettings {
        idle_s: 0,
        ..settings()
    };
    let world = World::with(tiny, dialogue_settings()).await;
    let dialogues = Arc::clone(&world.ports.ledger.dialogues);
    let (scope, now, rival) = (world.scope.clone(), world.ports.clock.now(), world.ports.ids.next());
    let claim = async |id| {
        let until = now + Duration::from_secs(30);
        dialogues.claim(&scope, id, rival, now, until).await.unwrap()
    };
    let idle = world.session().await;
    world.turn(idle, "hello").await;
    until("the idle actor stops", || world.sessions.live() == 0).await;
    // What it gives up is written just after it has stopped.
    let taken = async {
        while !matches!(claim(idle).await, Claim::Owned(_)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, taken).await.unwrap();

    let heard = world.session().await;
    let _ear = world.listen(heard).await;
    world.turn(heard, "hello").await;
    assert!(matches!(claim(heard).await, Claim::OwnedBy { .. }));
    world.sessions.drain(PATIENCE).await;
    assert!(matches!(claim(heard).await, Claim::Owned(_)));
    world.end().await;
}

/// A session of two turns whose buffer has other words for the first, under `epoch`; what another process takes
/// them for, and the epoch that the buffer has then.
async fn taken_over(epoch: u64) -> (String, u64) {
    let world = World::new().await;
    let id = world.session().await;
    let mut turns = Vec::new();
    for line in ["one", "two"] {
        turns.push(BufferedTurn::from(&*world.turn(id, line).await));
    }
    turns[0].player_text = "from the buffer".to_owned();
    let head = BufferHead {
        epoch,
        turn: Some(turns[1].id),
    };
    let left = BufferSnapshot { head, turns };
    world.ports.buffers.replace(&world.scope, id, &left).await.unwrap();
    let next = world.restarted();
    let view = next.sessions.view(&next.scope, id).await.unwrap();
    assert_eq!(view.history.len(), 2);
    let kept = next.ports.buffers.load(&next.scope, id).await.unwrap().unwrap();
    assert_eq!(kept.turns, *view.history);
    let seen = (view.history[0].player_text.clone(), kept.head.epoch);
    next.end().await;
    seen
}

#[actix::test]
async fn the_buffer_that_the_owner_before_left_is_taken_over() {
    // The owner before had the first epoch, and the next one has the second.
    assert_eq!(taken_over(1).await, ("from the buffer".to_owned(), 2));
    assert_eq!(taken_over(0).await, ("one".to_owned(), 2), "from before another owner");
    assert_eq!(taken_over(3).await, ("one".to_owned(), 2));
}
