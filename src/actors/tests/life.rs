//! Spawning, evicting, panicking, closing, draining.

use std::{sync::Arc, time::Duration};

use super::world::{PATIENCE, TestWorld, test_actor_settings, test_dialogue_settings, wait_for_turn, wait_until};
use crate::{
    AcceptedLine, ActorSettings, DialogueError,
    metrics::{ActorKind, FencedWrite},
    session::SessionKind,
};
use colloquy_memory::turn::TurnStatus;
use colloquy_ports::{
    buffer::{BufferHead, BufferSnapshot, BufferedTurn},
    ledger::{authored::DeleteOutcome, dialogues::OwnershipClaim},
};

#[actix::test]
async fn concurrent_callers_spawn_one_actor() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let views = (0..64).map(|_| world.sessions.snapshot(&world.scope, id));
    for view in futures_util::future::join_all(views).await {
        view.unwrap();
    }
    assert_eq!(world.sessions.live_count(), 1);
    // Each actor claims the dialogue once, and each claim raises the epoch.
    let now = world.ports.clock.now();
    let dialogues = &world.ports.ledger.dialogues;
    let claim = dialogues
        .claim_ownership(&world.scope, id, world.node, now, now)
        .await
        .unwrap();
    let OwnershipClaim::Owned(open) = claim else {
        panic!("{claim:?}")
    };
    assert_eq!(open.epoch, 2);
    world.shut_down().await;
}

#[actix::test]
async fn idle_actor_stops_and_the_next_message_spawns_another() {
    let tiny = ActorSettings {
        idle_s: 0,
        ..test_actor_settings()
    };
    let world = TestWorld::with_settings(tiny, test_dialogue_settings()).await;
    let id = world.new_session().await;
    let mut last = 0;
    for number in 1..=5 {
        // The line races with the eviction that an idle time of zero keeps trying.
        let turn = world.say_and_wait(id, "hello").await;
        assert_eq!(turn.number, number);
        assert!(turn.seqs.started > last, "numbers rise over evictions");
        last = turn.seqs.committed;
        wait_until("the idle actor stops", || world.sessions.live_count() == 0).await;
    }
    // A listener keeps the actor alive.
    let ear = world.attach_recorder(id).await;
    world.say_and_wait(id, "hello").await;
    assert_eq!(ear.event_labels().len(), 3);
    assert_eq!(world.sessions.live_count(), 1);
    *ear.deaf.lock() = true;
    world.say_and_wait(id, "hello").await;
    wait_until("without a listener it stops", || world.sessions.live_count() == 0).await;
    world.shut_down().await;
}

#[actix::test]
async fn actor_panic_loses_neither_listeners_nor_the_running_reply() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    let lost = world.say_line(id, "hold").await.unwrap();
    world.wait_for_begun(1).await;
    let key = (world.scope.clone(), id);
    world
        .sessions
        .session_for_test(&key)
        .try_send(crate::messages::PanicForTest)
        .unwrap();
    ear.wait_for_event("failed 1").await;
    let AcceptedLine::Turn { done } = lost else { panic!() };
    assert!(
        done.await.is_err(),
        "whoever waited is told that it never became a turn"
    );
    let turn = wait_for_turn(world.say_line(id, "again").await).await.unwrap();
    assert_eq!(turn.number, 1);
    assert_eq!(
        ear.event_labels(),
        ["started 1", "failed 1", "started 1", "completed 1", "committed 1"]
    );
    assert!(ear.heard_seqs().is_sorted_by(|a, b| a < b));
    world.shut_down().await;
}

#[actix::test]
async fn actor_that_keeps_panicking_is_respawned_with_backoff() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let key = (world.scope.clone(), id);
    let mut waits = Vec::new();
    for _ in 0..6 {
        match world.sessions.snapshot(&world.scope, id).await {
            Ok(_) => {
                let addr = world.sessions.session_for_test(&key);
                addr.try_send(crate::messages::PanicForTest).unwrap();
                wait_until("it is dead", || !addr.connected()).await;
            }
            Err(DialogueError::Overloaded { retry_after }) => waits.push(retry_after),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(!waits.is_empty());
    assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(10)));
    let back = async {
        while world
            .sessions
            .node_for_test()
            .get_or_spawn_dialogue(&key, SessionKind::default)
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, back)
        .await
        .expect("it does not come back");
    assert_eq!(world.say_and_wait(id, "hello").await.number, 1);
    world.shut_down().await;
}

#[actix::test]
async fn mailbox_messages_are_counted_until_handled() {
    let one_thread = ActorSettings {
        arbiters: 1,
        ..test_actor_settings()
    };
    let world = TestWorld::with_settings(one_thread, test_dialogue_settings()).await;
    let id = world.new_session().await;
    let waiting = |kind| world.sessions.metrics().waiting_messages(kind);
    world.say_and_wait(id, "hello").await;
    wait_until("what the turn left is done", || ActorKind::ALL.map(waiting) == [0; 4]).await;
    let (go, stuck) = std::sync::mpsc::channel::<()>();
    let node = world.sessions.node_for_test();
    assert!(node.arbiter_for(&id).spawn_fn(move || stuck.recv().unwrap()));
    let views = (0..3).map(|_| world.sessions.snapshot(&world.scope, id));
    let all = futures_util::future::join_all(views);
    let seen = async {
        wait_until("all of them wait", || waiting(ActorKind::Session) == 3).await;
        // The curator may still get messages about the turn's jobs.
        for kind in [ActorKind::NpcConversation, ActorKind::Npc] {
            assert_eq!(waiting(kind), 0, "nobody else was asked anything");
        }
        go.send(()).unwrap();
    };
    let (views, ()) = tokio::join!(all, seen);
    for view in views {
        view.unwrap();
    }
    wait_until("none is left", || ActorKind::ALL.map(waiting) == [0; 4]).await;
    world.shut_down().await;
}

#[actix::test]
async fn full_node_refuses_with_retry_after() {
    let small = ActorSettings {
        max_in_flight: 1,
        max_sessions: 1,
        ..test_actor_settings()
    };
    let world = TestWorld::with_settings(small, test_dialogue_settings()).await;
    let (first, second) = (world.new_session().await, world.new_session().await);
    world.say_and_wait(first, "hello").await;
    let _ear = world.attach_recorder(first).await;
    let refused = world.say_line(second, "hello").await.unwrap_err();
    assert!(
        matches!(refused, DialogueError::Overloaded { .. }),
        "too many sessions: {refused:?}"
    );
    let permit = world
        .sessions
        .node_for_test()
        .admission
        .acquire_share(world.scope.tenant())
        .unwrap();
    let refused = world.say_line(first, "hello").await.unwrap_err();
    assert!(
        matches!(refused, DialogueError::Overloaded { .. }),
        "too many requests: {refused:?}"
    );
    drop(permit);
    world.say_and_wait(first, "hello").await;
    world.shut_down().await;
}

#[actix::test]
async fn session_close_cuts_and_stores_the_reply_and_cancels_queued_lines() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    let running = world.say_line(id, "hold").await;
    world.wait_for_begun(1).await;
    let Ok(AcceptedLine::Turn { done: waiting }) = world.say_line(id, "never").await else {
        panic!()
    };
    world.sessions.close_dialogue(&world.scope, id, "left").await.unwrap();
    assert_eq!(wait_for_turn(running).await.unwrap().status, TurnStatus::Interrupted);
    assert!(waiting.await.is_err());
    assert_eq!(
        ear.event_labels(),
        [
            "started 1",
            "interrupted 1",
            "committed 1",
            "error session_closed",
            "closed left"
        ]
    );
    let refused = world.say_line(id, "hello?").await.unwrap_err();
    assert!(matches!(refused, DialogueError::Closed), "{refused:?}");
    let refused = world
        .sessions
        .close_dialogue(&world.scope, id, "left")
        .await
        .unwrap_err();
    assert!(matches!(refused, DialogueError::Closed), "{refused:?}");
    world.shut_down().await;
}

#[actix::test]
async fn drain_cuts_unfinished_replies_and_refuses_new_lines() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    let running = world.say_line(id, "hold").await;
    world.wait_for_begun(1).await;
    let Ok(AcceptedLine::Turn { done: waiting }) = world.say_line(id, "never").await else {
        panic!()
    };
    let drained = world
        .sessions
        .drain_node_within(Duration::from_millis(100), PATIENCE)
        .await;
    assert_eq!((drained.finished, drained.cut_turns, drained.abandoned), (0, 1, 0));
    assert_eq!(wait_for_turn(running).await.unwrap().status, TurnStatus::Interrupted);
    assert!(waiting.await.is_err());
    assert!(matches!(world.say_line(id, "more").await, Err(DialogueError::Draining)));
    assert!(matches!(
        world.sessions.snapshot(&world.scope, id).await,
        Err(DialogueError::Draining) | Ok(_)
    ));
    assert_eq!(
        ear.event_labels(),
        ["started 1", "interrupted 1", "committed 1", "error draining"]
    );
    world.shut_down().await;
}

#[actix::test]
async fn node_that_lost_ownership_writes_nothing_more() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    world.say_and_wait(id, "mine").await;
    let ear = world.attach_recorder(id).await;
    // Another owner takes over: the node's epoch is stale from now on.
    let now = world.ports.clock.now();
    let later = now + Duration::from_hours(1);
    let dialogues = &world.ports.ledger.dialogues;
    dialogues
        .claim_ownership(&world.scope, id, world.node, now, later)
        .await
        .unwrap();
    assert!(wait_for_turn(world.say_line(id, "stale").await).await.is_err());
    let meters = world.sessions.metrics();
    assert_eq!(
        (
            meters.fenced_writes(FencedWrite::Turn),
            meters.fenced_writes(FencedWrite::Line)
        ),
        (1, 0)
    );
    // The node noticed, claimed the dialogue again (no other node lives) and continues.
    assert_eq!(
        wait_for_turn(world.say_line(id, "again").await).await.unwrap().number,
        2
    );
    assert_eq!(
        ear.event_labels()[..3],
        ["started 2", "completed 2", "error wrong_node"]
    );
    let other = world.ports.ids.next_id();
    dialogues
        .claim_ownership(&world.scope, id, other, later, later + Duration::from_secs(1))
        .await
        .unwrap();
    let _ = wait_for_turn(world.say_line(id, "stale").await).await;
    ear.wait_for_event("closed moved").await;
    world.shut_down().await;
}

#[actix::test]
async fn unknown_npcs_leave_no_actor_behind() {
    let world = TestWorld::new().await;
    world.new_session().await;
    for number in 0..100 {
        let new = crate::NewSession {
            world: "vale".parse().unwrap(),
            npcs: vec![format!("nobody-{number}").parse().unwrap()],
            player: "p1".parse().unwrap(),
            witnesses: Vec::new(),
            factions: Vec::new(),
            cause: None,
            chat_key: None,
            playback: colloquy_ports::ledger::dialogues::Playback::Immediate,
            settings: None,
        };
        let refused = world.sessions.create_session(&world.scope, new).await.unwrap_err();
        assert!(matches!(refused, DialogueError::NoNpc(_)), "{refused:?}");
    }
    assert_eq!(world.sessions.node_for_test().npcs.len(), 1, "the one that exists");
    world.shut_down().await;
}

#[actix::test]
async fn queued_lines_are_answered_when_their_actor_panics() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    world.say_line(id, "hold").await.unwrap();
    world.wait_for_begun(1).await;
    let Ok(AcceptedLine::Turn { done: waiting }) = world.say_line(id, "waiting").await else {
        panic!()
    };
    let key = (world.scope.clone(), id);
    world
        .sessions
        .session_for_test(&key)
        .try_send(crate::messages::PanicForTest)
        .unwrap();
    assert!(waiting.await.is_err());
    ear.wait_for_event("error internal").await;
    assert_eq!(ear.event_labels(), ["started 1", "failed 1", "error internal"]);
    let told = ear.heard.lock().last().unwrap().re.clone();
    assert_eq!(told.as_deref(), Some("waiting"), "it says which line");
    world.shut_down().await;
}

#[actix::test]
async fn npc_edit_shows_in_the_next_turn_and_npc_deletion_ends_sessions() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    world.say_and_wait(id, "hello").await;
    let (scope, authored) = (&world.scope, &world.ports.ledger.authored);
    let who = colloquy_core::scope::Principal {
        subject: "test".into(),
        tenant: scope.tenant().clone(),
        role: colloquy_core::scope::Role::Admin,
        player: None,
        world: None,
        issued: colloquy_core::scope::TokenIdentity::default(),
        expires_at: world.ports.clock.now(),
    };
    let edit = colloquy_ports::ledger::audit::Edit::made_by(
        &who,
        &world.ports.ids,
        world.ports.clock.now(),
        "npc.delete",
        "mira",
    );
    let vale = "vale".parse().unwrap();
    let gone = authored
        .delete_npc(scope, &vale, &"mira".parse().unwrap(), None, &edit)
        .await;
    assert_eq!(gone.unwrap(), DeleteOutcome::Deleted);
    world.sessions.forget_authored(scope, &vale);
    // The line is cancelled: no NPC is left to answer.
    if let Ok(AcceptedLine::Turn { done }) = world.say_line(id, "still there?").await {
        assert!(done.await.is_err());
    }
    ear.wait_for_event("closed npc_deleted").await;
    assert_eq!(world.fake.spoken.lock().len(), 1);
    world.shut_down().await;
}

#[actix::test]
async fn stopped_actor_releases_its_dialogues() {
    let tiny = ActorSettings {
        idle_s: 0,
        ..test_actor_settings()
    };
    let world = TestWorld::with_settings(tiny, test_dialogue_settings()).await;
    let dialogues = Arc::clone(&world.ports.ledger.dialogues);
    let (scope, now, rival) = (world.scope.clone(), world.ports.clock.now(), world.ports.ids.next_id());
    let claim = async |id| {
        let until = now + Duration::from_secs(30);
        dialogues.claim_ownership(&scope, id, rival, now, until).await.unwrap()
    };
    let idle = world.new_session().await;
    world.say_and_wait(idle, "hello").await;
    wait_until("the idle actor stops", || world.sessions.live_count() == 0).await;
    // The release is written just after the actor has stopped.
    let taken = async {
        while !matches!(claim(idle).await, OwnershipClaim::Owned(_)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, taken).await.unwrap();

    let heard = world.new_session().await;
    let _ear = world.attach_recorder(heard).await;
    world.say_and_wait(heard, "hello").await;
    assert!(matches!(claim(heard).await, OwnershipClaim::OwnedBy { .. }));
    world.sessions.drain_node(PATIENCE).await;
    assert!(matches!(claim(heard).await, OwnershipClaim::Owned(_)));
    world.shut_down().await;
}

/// Takes over a session of two turns whose buffer, under `epoch`, has another text for the first turn. Returns the text
/// that the next process reads, and the epoch of the buffer afterwards.
async fn take_over_buffer(epoch: u64) -> (String, u64) {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let mut turns = Vec::new();
    for line in ["one", "two"] {
        turns.push(BufferedTurn::from(&*world.say_and_wait(id, line).await));
    }
    turns[0].player_text = "from the buffer".to_owned();
    let head = BufferHead {
        epoch,
        turn: Some(turns[1].id),
    };
    let left = BufferSnapshot { head, turns };
    world
        .ports
        .buffers
        .replace_buffer(&world.scope, id, &left)
        .await
        .unwrap();
    let next = world.restart_process();
    let view = next.sessions.snapshot(&next.scope, id).await.unwrap();
    assert_eq!(view.history.len(), 2);
    let kept = next.ports.buffers.load_buffer(&next.scope, id).await.unwrap().unwrap();
    assert_eq!(kept.turns, *view.history);
    let seen = (view.history[0].player_text.clone(), kept.head.epoch);
    next.shut_down().await;
    seen
}

#[actix::test]
async fn buffer_of_the_previous_owner_is_taken_over() {
    // The previous owner had the first epoch; the next owner has the second.
    assert_eq!(take_over_buffer(1).await, ("from the buffer".to_owned(), 2));
    assert_eq!(
        take_over_buffer(0).await,
        ("one".to_owned(), 2),
        "from before another owner"
    );
    assert_eq!(take_over_buffer(3).await, ("one".to_owned(), 2));
}
