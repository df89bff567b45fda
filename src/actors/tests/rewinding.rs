//! Rewinds of a session with running turns, waiting lines and simultaneous callers.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use futures_util::future::join_all;

use super::world::{RecordingListener, TestWorld, test_dialogue_settings, wait_for_turn, wait_until};
use crate::{AcceptedLine, DialogueError, HeardLength, InterruptCommand, InterruptOutcome, Listener, OnBusy};
use colloquy_core::ids::DialogueId;
use colloquy_dialogue::turn::TurnError;
use colloquy_ports::ledger::rewinds::RewindRecord;

pub(super) async fn session_with_turns(world: &TestWorld, turns: u32) -> DialogueId {
    let id = world.new_session().await;
    for number in 1..=turns {
        assert_eq!(world.say_and_wait(id, &format!("line {number}")).await.number, number);
    }
    id
}

fn expect_rewound(outcome: Result<InterruptOutcome, DialogueError>) -> Arc<RewindRecord> {
    match outcome.unwrap() {
        InterruptOutcome::Rewound(rewound) => rewound,
        other => panic!("nothing was taken back: {other:?}"),
    }
}

#[actix::test]
async fn hung_job_of_an_unsaid_turn_blocks_no_other_job() {
    let mut settings = test_dialogue_settings();
    settings.turn.wait_for_memory_ms = 0;
    let world = TestWorld::with_settings(super::world::test_actor_settings(), settings).await;
    let id = session_with_turns(&world, 1).await;
    (*world.fake.with_jobs.lock(), *world.fake.hold_jobs.lock()) = (true, true);
    world.say_and_wait(id, "taken back").await;
    wait_until("its job hangs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    expect_rewound(world.rewind_to(id, 1).await);
    let stands = world.say_and_wait(id, "stands").await;
    // A hung job would take the permit first.
    wait_until("the next one's job runs", || world.fake.running_jobs.load(Relaxed) == 2).await;
    world.fake.job_go.add_permits(1);
    wait_until("it ends", || !world.fake.jobs.lock().is_empty()).await;
    let ran = world.fake.turns_of_jobs();
    assert_eq!(ran, [stands.id]);
    world.shut_down().await;
}

#[actix::test]
async fn ten_interrupts_apply_the_lowest_turn_and_answer_all() {
    let world = TestWorld::new().await;
    let id = session_with_turns(&world, 8).await;
    let ear = world.attach_recorder(id).await;
    *world.fake.hold_rewinds.lock() = true;
    let turns = [5, 7, 3, 6, 4, 7, 3, 5, 6, 4];
    let asked = join_all(turns.map(|turn| world.interrupt(id, Some(turn), None)));
    let held = async {
        wait_until("all but the held ones wait", || !world.fake.rewinds.lock().is_empty()).await;
        wait_until("every request is in", || {
            world.sessions.free_permits() <= world.settings.max_in_flight - turns.len()
        })
        .await;
        world.fake.rewind_go.add_permits(10);
    };
    let (outcomes, ()) = tokio::join!(asked, held);
    let outcomes: Vec<_> = outcomes.into_iter().map(expect_rewound).collect();
    for outcome in &outcomes {
        assert_eq!(outcome, &outcomes[0], "one outcome");
        assert_eq!(outcome.head_turn, 3);
    }
    assert_eq!(
        world.audit_rows("session.interrupt").await.len(),
        10,
        "each is written down"
    );
    let view = world.sessions.snapshot(&world.scope, id).await.unwrap();
    assert_eq!((view.dialogue.head_turn, view.history.len()), (3, 3));
    assert_eq!(ear.event_labels().last().unwrap(), "rewound 3");
    assert!(ear.heard_seqs().is_sorted_by(|a, b| a < b));
    wait_until("memories are settled", || {
        world.fake.settled.load(std::sync::atomic::Ordering::Relaxed) > 0
    })
    .await;
    assert_eq!(world.say_and_wait(id, "on").await.number, 4);
    world.shut_down().await;
}

#[actix::test]
async fn running_turn_ends_unsaid_on_a_rewind() {
    let world = TestWorld::new().await;
    let id = session_with_turns(&world, 2).await;
    let ear = world.attach_recorder(id).await;
    let held = world.say_line(id, "hold").await;
    world.wait_for_begun(3).await;
    // The model stays held: the answer does not wait for the model.
    let back = expect_rewound(world.interrupt(id, Some(1), None).await);
    assert_eq!((back.head_turn, &back.removed[..]), (1, &[2][..]));
    assert!(matches!(*wait_for_turn(held).await.unwrap_err(), TurnError::Unsaid));
    assert_eq!(
        ear.event_labels(),
        ["started 3", "interrupted 3", "error turn_unsaid", "rewound 1"]
    );
    let next = world.say_and_wait(id, "on").await;
    assert_eq!(next.number, 2);
    assert_eq!(ear.event_labels()[4..], ["started 2", "completed 2", "committed 2"]);
    assert!(ear.heard_seqs().is_sorted_by(|a, b| a < b));
    world.shut_down().await;
}

#[actix::test]
async fn queued_lines_wait_during_a_rewind() {
    let world = TestWorld::new().await;
    let id = session_with_turns(&world, 3).await;
    *world.fake.hold_rewinds.lock() = true;
    let moving = world.rewind_to(id, 1);
    let meanwhile = async {
        wait_until("the move begins", || !world.fake.rewinds.lock().is_empty()).await;
        let waiting = world.say_line(id, "after");
        let release = async {
            wait_until("the line is in", || {
                world.sessions.free_permits() <= world.settings.max_in_flight - 2
            })
            .await;
            assert_eq!(world.fake.spoken.lock().len(), 3, "it is not said yet");
            world.fake.rewind_go.add_permits(1);
        };
        let (accepted, ()) = tokio::join!(waiting, release);
        wait_for_turn(accepted).await.unwrap()
    };
    let (moved, turn) = tokio::join!(moving, meanwhile);
    assert_eq!(expect_rewound(moved).removed, [2, 3]);
    assert_eq!((turn.number, turn.player_text.as_str()), (2, "after"));
    world.shut_down().await;
}

#[actix::test]
async fn queued_lines_are_cancelled_with_the_turn_they_followed() {
    let world = TestWorld::new().await;
    let id = session_with_turns(&world, 2).await;
    let held = world.say_line(id, "hold").await;
    world.wait_for_begun(3).await;
    let ear = world.attach_recorder(id).await;
    let waits = world.say_line(id, "after that").await;
    assert_eq!(expect_rewound(world.rewind_to(id, 1).await).removed, [2]);
    ear.wait_for_event("error turn_unsaid").await;
    for unsaid in [held, waits] {
        let unsaid = wait_for_turn(unsaid).await.unwrap_err();
        assert!(matches!(*unsaid, TurnError::Unsaid), "{unsaid:?}");
    }
    assert_eq!(world.say_and_wait(id, "and now?").await.number, 2);
    // A cut of the running reply leaves the queued lines alone.
    let held = world.say_line(id, "hold").await;
    wait_until("it is said", || {
        world.fake.spoken.lock().last().is_some_and(|line| line == "hold")
    })
    .await;
    let waits = world.say_line(id, "after that").await;
    let cut = world.interrupt(id, Some(3), None).await.unwrap();
    assert_eq!(cut, InterruptOutcome::Cut { turn: 3 });
    assert_eq!(wait_for_turn(held).await.unwrap().number, 3);
    assert_eq!(wait_for_turn(waits).await.unwrap().number, 4);
    world.shut_down().await;
}

#[actix::test]
async fn queued_lines_end_with_the_running_turn_when_the_answer_of_its_rewind_is_lost() {
    for turn_fails in [false, true] {
        let world = TestWorld::new().await;
        let id = session_with_turns(&world, 2).await;
        let held = world.say_line(id, "hold").await;
        world.wait_for_begun(3).await;
        let line = world
            .say_line_with(id, "after that", Some("waits"), OnBusy::Queue)
            .await;
        *world.fake.lose_rewind_answers.lock() = true;
        // The head is turn 2: the rewind removes no turn of the ledger, but the running turn.
        world.rewind_to(id, 2).await.unwrap_err();
        *world.fake.lose_rewind_answers.lock() = false;
        *world.fake.fail_turns.lock() = turn_fails;
        world.fake.go.add_permits(1);
        wait_for_turn(held).await.unwrap_err();
        let ended = wait_for_turn(line).await.unwrap_err();
        assert!(matches!(*ended, TurnError::Unsaid), "{turn_fails}: {ended:?}");
        let again = world
            .say_line_with(id, "after that", Some("waits"), OnBusy::Queue)
            .await;
        assert!(matches!(again, Err(DialogueError::TurnUnsaid)), "{turn_fails}");
        *world.fake.fail_turns.lock() = false;
        assert_eq!(world.say_and_wait(id, "and now?").await.number, 3);
        world.shut_down().await;
    }
}

#[actix::test]
async fn line_rewound_before_it_was_a_turn_is_not_said_on_retry() {
    let world = TestWorld::new().await;
    let id = session_with_turns(&world, 2).await;
    let runs = world.say_line_with(id, "hold", Some("runs"), OnBusy::Queue).await;
    world.wait_for_begun(3).await;
    let waits = world
        .say_line_with(id, "after that", Some("waits"), OnBusy::Queue)
        .await;
    assert_eq!(expect_rewound(world.rewind_to(id, 1).await).removed, [2]);
    for unsaid in [runs, waits] {
        wait_for_turn(unsaid).await.unwrap_err();
    }
    for (key, line) in [("runs", "hold"), ("waits", "after that"), ("runs", "hold")] {
        let again = world.say_line_with(id, line, Some(key), OnBusy::Queue).await;
        assert!(matches!(again, Err(DialogueError::TurnUnsaid)), "{key}");
    }
    assert_eq!(world.say_and_wait(id, "and now?").await.number, 2);
    world.shut_down().await;
}

#[actix::test]
async fn reply_heard_in_part_is_cut_even_during_its_commit() {
    let world = TestWorld::new().await;
    let id = session_with_turns(&world, 1).await;
    let ear = world.attach_recorder(id).await;
    let late = world.say_line(id, "commit later").await;
    ear.wait_for_event("completed 2").await;
    let waits = world.say_line(id, "after that").await;
    // The interrupted turn is clear without a number, and so is the expected head.
    let wish = InterruptCommand {
        if_head: Some(1),
        ..world.interrupt_command(None, Some(HeardLength::Chars(3)))
    };
    let cut = world.sessions.interrupt_dialogue(&world.scope, id, wish);
    let committed = async {
        wait_until("the interrupt is in", || {
            world.sessions.free_permits() < world.settings.max_in_flight
        })
        .await;
        world.fake.go.add_permits(1);
    };
    let (cut, ()) = tokio::join!(cut, committed);
    let cut = expect_rewound(cut);
    assert_eq!((cut.head_turn, cut.heard_chars), (2, Some(3)));
    assert_eq!(wait_for_turn(late).await.unwrap().number, 2);
    // Only the end of the reply was removed.
    assert_eq!(wait_for_turn(waits).await.unwrap().number, 3);
    world.shut_down().await;
}

#[actix::test]
async fn turn_that_commits_during_a_rewind_is_rewound_with_it() {
    let world = TestWorld::new().await;
    let id = session_with_turns(&world, 2).await;
    let ear = world.attach_recorder(id).await;
    let held = world.say_line(id, "hold").await;
    world.wait_for_begun(3).await;
    *world.fake.hold_rewinds.lock() = true;
    let meanwhile = async {
        wait_until("the move begins", || !world.fake.rewinds.lock().is_empty()).await;
        world.fake.go.add_permits(1);
        let dialogues = &world.ports.ledger.dialogues;
        loop {
            // Committed, but not published.
            if dialogues
                .load_dialogue(&world.scope, id)
                .await
                .unwrap()
                .unwrap()
                .head_turn
                == 3
            {
                break;
            }
            tokio::task::yield_now().await;
        }
        world.fake.rewind_go.add_permits(1);
    };
    let (moved, ()) = tokio::join!(world.rewind_to(id, 1), meanwhile);
    assert_eq!(expect_rewound(moved).removed, [2, 3]);
    assert!(matches!(*wait_for_turn(held).await.unwrap_err(), TurnError::Unsaid));
    assert_eq!(
        ear.event_labels(),
        ["started 3", "interrupted 3", "error turn_unsaid", "rewound 1"]
    );
    assert_eq!(world.say_and_wait(id, "on").await.number, 2);
    assert!(ear.heard_seqs().is_sorted_by(|a, b| a < b));
    world.shut_down().await;
}

#[actix::test]
async fn rewind_key_repeats_its_outcome_and_stale_head_is_rejected() {
    let world = TestWorld::new().await;
    let id = session_with_turns(&world, 3).await;
    let unsaid = world.say_line_with(id, "four", Some("k4"), OnBusy::Queue).await;
    wait_for_turn(unsaid).await.unwrap();
    let wish = |turn, key: Option<&str>, if_head| InterruptCommand {
        key: key.map(str::to_owned),
        if_head,
        ..world.interrupt_command(Some(turn), None)
    };
    let stale = world
        .sessions
        .rewind_dialogue(&world.scope, id, wish(1, None, Some(3)))
        .await;
    assert!(matches!(stale, Err(DialogueError::StaleHead { head_turn: 4 })));
    let keyed = wish(2, Some("r1"), Some(4));
    let first = expect_rewound(world.sessions.rewind_dialogue(&world.scope, id, keyed.clone()).await);
    assert_eq!(first.removed, [3, 4]);
    world.say_and_wait(id, "three again").await;
    let again = expect_rewound(world.sessions.rewind_dialogue(&world.scope, id, keyed.clone()).await);
    assert_eq!(again, first, "nothing is taken back twice");
    assert!(matches!(
        world.say_line_with(id, "four", Some("k4"), OnBusy::Queue).await,
        Err(DialogueError::TurnUnsaid)
    ));
    let missing = world.rewind_to(id, 9).await;
    assert!(matches!(
        missing,
        Err(DialogueError::NoSuchTurn { turn: 9, head_turn: 3 })
    ));

    let world = world.restart_process();
    let again = expect_rewound(world.sessions.rewind_dialogue(&world.scope, id, keyed).await);
    assert_eq!(again, first, "after a restart too");
    assert_eq!(
        world
            .sessions
            .snapshot(&world.scope, id)
            .await
            .unwrap()
            .dialogue
            .head_turn,
        3
    );
    world.shut_down().await;
}

#[actix::test]
async fn rewind_event_is_replayed_from_the_ledger_after_a_restart() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    for line in ["1", "2", "3"] {
        world.say_and_wait(id, line).await;
    }
    expect_rewound(world.rewind_to(id, 1).await);
    world.say_and_wait(id, "two").await;
    let story = ear.event_labels();
    assert_eq!(story[9..], ["rewound 1", "started 2", "completed 2", "committed 2"]);
    let world = world.restart_process();
    let late = RecordingListener::new();
    let listener: Arc<dyn Listener> = Arc::<RecordingListener>::clone(&late);
    let seen = ear.heard_seqs()[2];
    world
        .sessions
        .attach_listener(&world.scope, id, listener, Some(seen))
        .await
        .unwrap();
    assert_eq!(late.event_labels(), story[9..], "turns that were unsaid are not told");
    assert_eq!(late.heard_seqs(), ear.heard_seqs()[9..]);
    world.shut_down().await;
}

#[actix::test]
async fn reply_is_regenerated() {
    let world = TestWorld::new().await;
    let id = session_with_turns(&world, 2).await;
    let ear = world.attach_recorder(id).await;
    let first = world
        .ports
        .ledger
        .dialogues
        .load_turns(&world.scope, id, 2, 2)
        .await
        .unwrap();
    let anew = async |key: Option<&str>| {
        let key = key.map(str::to_owned);
        world
            .sessions
            .regenerate_reply(&world.scope, id, &world.test_principal(), key, None, None)
            .await
    };
    let second = wait_for_turn(anew(Some("again")).await).await.unwrap();
    assert_eq!((second.number, second.player_text.as_str()), (2, "line 2"));
    assert_ne!(second.id, first[0].id);
    assert_eq!(
        ear.event_labels(),
        ["rewound 1", "started 2", "completed 2", "committed 2"]
    );
    match anew(Some("again")).await.unwrap() {
        AcceptedLine::Repeated(turn) => assert_eq!(turn.id, second.id),
        AcceptedLine::Turn { .. } => panic!("the key is the same"),
    }
    let held = world.say_line(id, "hold").await;
    assert!(matches!(anew(None).await, Err(DialogueError::TurnInProgress { .. })));
    world.fake.go.add_permits(1);
    wait_for_turn(held).await.unwrap();
    expect_rewound(world.rewind_to(id, 0).await);
    assert!(matches!(anew(None).await, Err(DialogueError::NothingToRegenerate)));
    world.shut_down().await;
}

#[actix::test]
async fn callers_behind_a_fenced_rewind_are_served_from_what_stands() {
    let world = TestWorld::new().await;
    let id = session_with_turns(&world, 4).await;
    *world.fake.hold_rewinds.lock() = true;
    let other = world.restart_process();
    let meanwhile = async {
        wait_until("the first asks the ledger", || world.fake.rewinds.lock().len() == 1).await;
        // Another process takes the dialogue.
        other.sessions.snapshot(&other.scope, id).await.unwrap();
        let released = async {
            let stale = InterruptCommand {
                if_head: Some(99),
                ..world.interrupt_command(Some(2), None)
            };
            // The refusal comes at once, and therefore after the second request.
            let stale = world.sessions.rewind_dialogue(&world.scope, id, stale).await;
            assert!(matches!(stale, Err(DialogueError::StaleHead { .. })), "{stale:?}");
            world.fake.rewind_go.add_permits(2);
        };
        tokio::join!(world.rewind_to(id, 1), released).0
    };
    let (first, second) = tokio::join!(world.rewind_to(id, 3), meanwhile);
    assert!(matches!(first, Err(DialogueError::Overloaded { .. })), "{first:?}");
    assert_eq!(expect_rewound(second).removed, [2, 3, 4]);
    assert_eq!(world.say_and_wait(id, "on").await.number, 2);
    other.shut_down().await;
    world.shut_down().await;
}

#[actix::test]
async fn keys_of_coalesced_rewinds_rewind_nothing_later() {
    let world = TestWorld::new().await;
    let id = session_with_turns(&world, 6).await;
    *world.fake.hold_rewinds.lock() = true;
    let keyed = |turn, key: &str| InterruptCommand {
        key: Some(key.to_owned()),
        ..world.interrupt_command(turn, None)
    };
    let asks = [(3, "a"), (5, "b")].map(|(turn, key)| {
        let wish = keyed(Some(turn), key);
        async { world.sessions.interrupt_dialogue(&world.scope, id, wish).await }
    });
    let late = async {
        wait_until("a move is under way", || !world.fake.rewinds.lock().is_empty()).await;
        let released = async {
            wait_until("all are in", || {
                world.sessions.free_permits() <= world.settings.max_in_flight - 3
            })
            .await;
            world.fake.rewind_go.add_permits(9);
        };
        let late = world
            .sessions
            .interrupt_dialogue(&world.scope, id, keyed(Some(4), "late"));
        tokio::join!(late, released).0
    };
    let (told, late) = tokio::join!(join_all(asks), late);
    let first = expect_rewound(late);
    for told in told {
        assert_eq!(expect_rewound(told), first);
    }
    assert_eq!(first.head_turn, 3);
    // Also keys for turns that are already gone, and keys without effect.
    let gone = world
        .sessions
        .interrupt_dialogue(&world.scope, id, keyed(Some(6), "gone"))
        .await;
    assert_eq!(expect_rewound(gone), first);
    let idle = world
        .sessions
        .interrupt_dialogue(&world.scope, id, keyed(None, "idle"))
        .await;
    assert_eq!(idle.unwrap(), InterruptOutcome::Idle { head_turn: 3 });
    for line in ["four", "five", "six"] {
        world.say_and_wait(id, line).await;
    }
    let world = world.restart_process();
    for (turn, key) in [(3, "a"), (5, "b"), (4, "late"), (6, "gone")] {
        let again = world
            .sessions
            .interrupt_dialogue(&world.scope, id, keyed(Some(turn), key))
            .await;
        let again = expect_rewound(again);
        // A rewind that served the key.
        assert!(
            again.seq <= first.seq && again.head_turn >= first.head_turn,
            "{key}: {again:?}"
        );
    }
    let idle = world
        .sessions
        .interrupt_dialogue(&world.scope, id, keyed(None, "idle"))
        .await;
    assert_eq!(idle.unwrap(), InterruptOutcome::Idle { head_turn: 3 });
    let view = world.sessions.snapshot(&world.scope, id).await.unwrap();
    assert_eq!(view.dialogue.head_turn, 6);
    world.shut_down().await;
}

#[actix::test]
async fn regenerate_requests_with_one_key_get_the_same_turn() {
    let world = TestWorld::new().await;
    let id = session_with_turns(&world, 1).await;
    world.fake.go.add_permits(1);
    world.say_and_wait(id, "hold").await;
    let who = world.test_principal();
    let anew = || {
        let key = Some("again".to_owned());
        world.sessions.regenerate_reply(&world.scope, id, &who, key, None, None)
    };
    let (first, second) = tokio::join!(anew(), anew());
    world.wait_for_begun(3).await;
    let third = anew().await;
    world.fake.go.add_permits(1);
    let mut ids = Vec::new();
    for told in [first, second, third, anew().await] {
        ids.push(wait_for_turn(told).await.unwrap().id);
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let view = world.sessions.snapshot(&world.scope, id).await.unwrap();
    assert_eq!((view.dialogue.head_turn, world.fake.spoken.lock().len()), (2, 3));
    world.shut_down().await;
}

#[actix::test]
async fn reply_stands_again_after_each_failed_regeneration() {
    let world = TestWorld::new().await;
    let id = session_with_turns(&world, 2).await;
    let before = world
        .ports
        .ledger
        .dialogues
        .load_turns(&world.scope, id, 1, 9)
        .await
        .unwrap();
    *world.fake.fail_turns.lock() = true;
    for times in 1..=3 {
        let who = world.test_principal();
        let anew = world
            .sessions
            .regenerate_reply(&world.scope, id, &who, None, None, None);
        wait_for_turn(anew.await).await.unwrap_err();
        // Answered after the session has reinstated the turn.
        let view = world.sessions.snapshot(&world.scope, id).await.unwrap();
        assert_eq!(view.dialogue.head_turn, 2, "after {times} failures");
    }
    let after = world
        .ports
        .ledger
        .dialogues
        .load_turns(&world.scope, id, 1, 9)
        .await
        .unwrap();
    assert_eq!(after, before);
    world.shut_down().await;
}

#[actix::test]
async fn player_line_that_cuts_a_reply_replaces_its_rest() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let running = world.say_line(id, "hold").await;
    world.wait_for_begun(1).await;
    let mut queued = Vec::new();
    for line in ["1", "2", "3", "4"] {
        queued.push(world.say_line(id, line).await);
    }
    let full = world.say_line(id, "5").await;
    assert!(matches!(full, Err(DialogueError::QueueFull { .. })));
    let cutting = world.say_line_with(id, "wait", None, OnBusy::Interrupt).await;
    let cut = wait_for_turn(running).await.unwrap();
    assert_eq!(cut.status, colloquy_memory::turn::TurnStatus::Interrupted);
    for line in queued {
        wait_for_turn(line).await.unwrap();
    }
    assert_eq!(wait_for_turn(cutting).await.unwrap().number, 6);
    world.shut_down().await;
}
