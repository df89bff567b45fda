//! Taking a session back while turns run, lines wait and others ask for the same.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use futures_util::future::join_all;

use super::world::{Ear, World, dialogue_settings, outcome, until};
use crate::{
    actors::{Accepted, Heard, Interrupted, Listener, OnBusy, SessionError, TakeBack},
    dialogue::turn::TurnError,
    ids::DialogueId,
    ports::ledger::{dialogues::OwnerWrite, rewinds::Rewound},
};

async fn said(world: &World, turns: u32) -> DialogueId {
    let id = world.session().await;
    for number in 1..=turns {
        assert_eq!(world.turn(id, &format!("line {number}")).await.number, number);
    }
    id
}

fn rewound(outcome: Result<Interrupted, SessionError>) -> Arc<Rewound> {
    match outcome.unwrap() {
        Interrupted::Rewound(rewound) => rewound,
        other => panic!("nothing was taken back: {other:?}"),
    }
}

#[actix::test]
async fn a_job_that_hangs_for_an_unsaid_turn_holds_up_no_other() {
    let mut settings = dialogue_settings();
    settings.turn.wait_for_memory_ms = 0;
    let world = World::with(super::world::settings(), settings).await;
    let id = said(&world, 1).await;
    (*world.fake.with_jobs.lock(), *world.fake.hold_jobs.lock()) = (true, true);
    world.turn(id, "taken back").await;
    until("its job hangs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    rewound(world.back(id, 1).await);
    let stands = world.turn(id, "stands").await;
    // One that hangs would take it first.
    until("the next one's job runs", || world.fake.running_jobs.load(Relaxed) == 2).await;
    world.fake.job_go.add_permits(1);
    until("it ends", || !world.fake.jobs.lock().is_empty()).await;
    let ran: Vec<_> = world.fake.jobs.lock().iter().map(|(_, job)| job.turn).collect();
    assert_eq!(ran, [stands.id]);
    world.end().await;
}

#[actix::test]
async fn of_ten_interrupts_the_lowest_turn_wins_and_all_are_told() {
    let world = World::new().await;
    let id = said(&world, 8).await;
    let ear = world.listen(id).await;
    *world.fake.hold_rewinds.lock() = true;
    let turns = [5, 7, 3, 6, 4, 7, 3, 5, 6, 4];
    let asked = join_all(turns.map(|turn| world.interrupt(id, Some(turn), None)));
    let held = async {
        until("all but the held ones wait", || !world.fake.rewinds.lock().is_empty()).await;
        until("every request is in", || {
            world.sessions.free_permits() <= world.settings.max_in_flight - turns.len()
        })
        .await;
        world.fake.rewind_go.add_permits(10);
    };
    let (outcomes, ()) = tokio::join!(asked, held);
    let outcomes: Vec<_> = outcomes.into_iter().map(rewound).collect();
    for outcome in &outcomes {
        assert_eq!(outcome, &outcomes[0], "one outcome");
        assert_eq!(outcome.head_turn, 3);
    }
    assert_eq!(
        world.audited("session.interrupt").await.len(),
        10,
        "each is written down"
    );
    let view = world.sessions.view(&world.scope, id).await.unwrap();
    assert_eq!((view.dialogue.head_turn, view.history.len()), (3, 3));
    assert_eq!(ear.story().last().unwrap(), "rewound 3");
    assert!(ear.seqs().is_sorted_by(|a, b| a < b));
    until("memories are settled", || {
        world.fake.settled.load(std::sync::atomic::Ordering::Relaxed) > 0
    })
    .await;
    assert_eq!(world.turn(id, "on").await.number, 4);
    world.end().await;
}

#[actix::test]
async fn a_running_turn_ends_unsaid_when_the_dialogue_is_taken_back() {
    let world = World::new().await;
    let id = said(&world, 2).await;
    let ear = world.listen(id).await;
    let held = world.say(id, "hold").await;
    world.begun(3).await;
    // Nobody lets the model go: the answer does not wait for it.
    let back = rewound(world.interrupt(id, Some(1), None).await);
    assert_eq!((back.head_turn, &back.removed[..]), (1, &[2][..]));
    assert!(matches!(*outcome(held).await.unwrap_err(), TurnError::Unsaid));
    assert_eq!(
        ear.story(),
        ["started 3", "interrupted 3", "error turn_unsaid", "rewound 1"]
    );
    let next = world.turn(id, "on").await;
    assert_eq!(next.number, 2);
    assert_eq!(ear.story()[4..], ["started 2", "completed 2", "committed 2"]);
    assert!(ear.seqs().is_sorted_by(|a, b| a < b));
    world.end().await;
}

#[actix::test]
async fn lines_wait_while_the_head_is_moved() {
    let world = World::new().await;
    let id = said(&world, 3).await;
    *world.fake.hold_rewinds.lock() = true;
    let moving = world.back(id, 1);
    let meanwhile = async {
        until("the move begins", || !world.fake.rewinds.lock().is_empty()).await;
        let waiting = world.say(id, "after");
        let release = async {
            until("the line is in", || {
                world.sessions.free_permits() <= world.settings.max_in_flight - 2
            })
            .await;
            assert_eq!(world.fake.spoken.lock().len(), 3, "it is not said yet");
            world.fake.rewind_go.add_permits(1);
        };
        let (accepted, ()) = tokio::join!(waiting, release);
        outcome(accepted).await.unwrap()
    };
    let (moved, turn) = tokio::join!(moving, meanwhile);
    assert_eq!(rewound(moved).removed, [2, 3]);
    assert_eq!((turn.number, turn.player_text.as_str()), (2, "after"));
    world.end().await;
}

#[actix::test]
async fn lines_that_waited_when_somebody_went_back_go_with_what_they_followed() {
    let world = World::new().await;
    let id = said(&world, 2).await;
    let held = world.say(id, "hold").await;
    world.begun(3).await;
    let ear = world.listen(id).await;
    let waits = world.say(id, "after that").await;
    assert_eq!(rewound(world.back(id, 1).await).removed, [2]);
    ear.hears("error turn_unsaid").await;
    for unsaid in [held, waits] {
        let unsaid = outcome(unsaid).await.unwrap_err();
        assert!(matches!(*unsaid, TurnError::Unsaid), "{unsaid:?}");
    }
    assert_eq!(world.turn(id, "and now?").await.number, 2);
    // One that only cuts what is being said lets the others be said.
    let held = world.say(id, "hold").await;
    until("it is said", || {
        world.fake.spoken.lock().last().is_some_and(|line| line == "hold")
    })
    .await;
    let waits = world.say(id, "after that").await;
    let cut = world.interrupt(id, Some(3), None).await.unwrap();
    assert_eq!(cut, Interrupted::Cut { turn: 3 });
    assert_eq!(outcome(held).await.unwrap().number, 3);
    assert_eq!(outcome(waits).await.unwrap().number, 4);
    world.end().await;
}

#[actix::test]
async fn a_line_that_was_taken_back_before_it_was_a_turn_is_not_said_when_it_is_repeated() {
    let world = World::new().await;
    let id = said(&world, 2).await;
    let runs = world.say_with(id, "hold", Some("runs"), OnBusy::Queue).await;
    world.begun(3).await;
    let waits = world.say_with(id, "after that", Some("waits"), OnBusy::Queue).await;
    assert_eq!(rewound(world.back(id, 1).await).removed, [2]);
    for unsaid in [runs, waits] {
        outcome(unsaid).await.unwrap_err();
    }
    for (key, line) in [("runs", "hold"), ("waits", "after that"), ("runs", "hold")] {
        let again = world.say_with(id, line, Some(key), OnBusy::Queue).await;
        assert!(matches!(again, Err(SessionError::TurnUnsaid)), "{key}");
    }
    assert_eq!(world.turn(id, "and now?").await.number, 2);
    world.end().await;
}

#[actix::test]
async fn a_reply_that_was_heard_in_part_is_cut_also_while_it_is_committed() {
    let world = World::new().await;
    let id = said(&world, 1).await;
    let ear = world.listen(id).await;
    let late = world.say(id, "commit later").await;
    ear.hears("completed 2").await;
    let waits = world.say(id, "after that").await;
    // Which one it heard is plain, and so is what it knew the head for.
    let wish = TakeBack {
        if_head: Some(1),
        ..world.wish(None, Some(Heard::Chars(3)))
    };
    let cut = world.sessions.interrupt(&world.scope, id, wish);
    let committed = async {
        until("the interrupt is in", || {
            world.sessions.free_permits() < world.settings.max_in_flight
        })
        .await;
        world.fake.go.add_permits(1);
    };
    let (cut, ()) = tokio::join!(cut, committed);
    let cut = rewound(cut);
    assert_eq!((cut.head_turn, cut.heard_chars), (2, Some(3)));
    assert_eq!(outcome(late).await.unwrap().number, 2);
    // Only the end of the reply was taken back.
    assert_eq!(outcome(waits).await.unwrap().number, 3);
    world.end().await;
}

#[actix::test]
async fn a_turn_that_commits_while_the_head_is_moved_goes_with_it() {
    let world = World::new().await;
    let id = said(&world, 2).await;
    let ear = world.listen(id).await;
    let held = world.say(id, "hold").await;
    world.begun(3).await;
    *world.fake.hold_rewinds.lock() = true;
    let meanwhile = async {
        until("the move begins", || !world.fake.rewinds.lock().is_empty()).await;
        world.fake.go.add_permits(1);
        let dialogues = &world.ports.ledger.dialogues;
        loop {
            // Committed, and nobody was told.
            if dialogues.get(&world.scope, id).await.unwrap().unwrap().head_turn == 3 {
                break;
            }
            tokio::task::yield_now().await;
        }
        world.fake.rewind_go.add_permits(1);
    };
    let (moved, ()) = tokio::join!(world.back(id, 1), meanwhile);
    assert_eq!(rewound(moved).removed, [2, 3]);
    assert!(matches!(*outcome(held).await.unwrap_err(), TurnError::Unsaid));
    assert_eq!(
        ear.story(),
        ["started 3", "interrupted 3", "error turn_unsaid", "rewound 1"]
    );
    assert_eq!(world.turn(id, "on").await.number, 2);
    assert!(ear.seqs().is_sorted_by(|a, b| a < b));
    world.end().await;
}

#[actix::test]
async fn a_key_is_told_its_outcome_and_a_stale_head_takes_nothing_back() {
    let world = World::new().await;
    let id = said(&world, 3).await;
    let unsaid = world.say_with(id, "four", Some("k4"), OnBusy::Queue).await;
    outcome(unsaid).await.unwrap();
    let wish = |turn, key: Option<&str>, if_head| TakeBack {
        key: key.map(str::to_owned),
        if_head,
        ..world.wish(Some(turn), None)
    };
    let stale = world.sessions.rewind(&world.scope, id, wish(1, None, Some(3))).await;
    assert!(matches!(stale, Err(SessionError::StaleHead { head_turn: 4 })));
    let keyed = wish(2, Some("r1"), Some(4));
    let first = rewound(world.sessions.rewind(&world.scope, id, keyed.clone()).await);
    assert_eq!(first.removed, [3, 4]);
    world.turn(id, "three again").await;
    let again = rewound(world.sessions.rewind(&world.scope, id, keyed.clone()).await);
    assert_eq!(again, first, "nothing is taken back twice");
    assert!(matches!(
        world.say_with(id, "four", Some("k4"), OnBusy::Queue).await,
        Err(SessionError::TurnUnsaid)
    ));
    let missing = world.back(id, 9).await;
    assert!(matches!(
        missing,
        Err(SessionError::NoSuchTurn { turn: 9, head_turn: 3 })
    ));

    let world = world.restarted();
    let again = rewound(world.sessions.rewind(&world.scope, id, keyed).await);
    assert_eq!(again, first, "after a restart too");
    assert_eq!(
        world.sessions.view(&world.scope, id).await.unwrap().dialogue.head_turn,
        3
    );
    world.end().await;
}

#[actix::test]
async fn a_move_comes_again_from_the_ledger_after_a_restart() {
    let world = World::new().await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    for line in ["1", "2", "3"] {
        world.turn(id, line).await;
    }
    rewound(world.back(id, 1).await);
    world.turn(id, "two").await;
    let story = ear.story();
    assert_eq!(story[9..], ["rewound 1", "started 2", "completed 2", "committed 2"]);
    let world = world.restarted();
    let late = Ear::new();
    let listener: Arc<dyn Listener> = Arc::<Ear>::clone(&late);
    let seen = ear.seqs()[2];
    world
        .sessions
        .attach(&world.scope, id, listener, Some(seen))
        .await
        .unwrap();
    assert_eq!(late.story(), story[9..], "turns that were unsaid are not told");
    assert_eq!(late.seqs(), ear.seqs()[9..]);
    world.end().await;
}

#[actix::test]
async fn a_reply_is_said_anew() {
    let world = World::new().await;
    let id = said(&world, 2).await;
    let ear = world.listen(id).await;
    let first = world
        .ports
        .ledger
        .dialogues
        .turns(&world.scope, id, 2, 2)
        .await
        .unwrap();
    let anew = async |key: Option<&str>| {
        let key = key.map(str::to_owned);
        world
            .sessions
            .regenerate(&world.scope, id, &world.who(), key, None, None)
            .await
    };
    let second = outcome(anew(Some("again")).await).await.unwrap();
    assert_eq!((second.number, second.player_text.as_str()), (2, "line 2"));
    assert_ne!(second.id, first[0].id);
    assert_eq!(ear.story(), ["rewound 1", "started 2", "completed 2", "committed 2"]);
    match anew(Some("again")).await.unwrap() {
        Accepted::Repeated(turn) => assert_eq!(turn.id, second.id),
        Accepted::Turn { .. } => panic!("the key is the same"),
    }
    let held = world.say(id, "hold").await;
    assert!(matches!(anew(None).await, Err(SessionError::TurnInProgress { .. })));
    world.fake.go.add_permits(1);
    outcome(held).await.unwrap();
    rewound(world.back(id, 0).await);
    assert!(matches!(anew(None).await, Err(SessionError::NothingToRegenerate)));
    world.end().await;
}

#[actix::test]
async fn whoever_waits_behind_a_move_that_is_fenced_is_served_from_what_stands() {
    let world = World::new().await;
    let id = said(&world, 4).await;
    *world.fake.hold_rewinds.lock() = true;
    let other = world.restarted();
    let meanwhile = async {
        until("the first asks the ledger", || world.fake.rewinds.lock().len() == 1).await;
        // Another process takes the dialogue.
        other.sessions.view(&other.scope, id).await.unwrap();
        let released = async {
            let stale = TakeBack {
                if_head: Some(99),
                ..world.wish(Some(2), None)
            };
            // Answered at once, and so after the second was asked.
            let stale = world.sessions.rewind(&world.scope, id, stale).await;
            assert!(matches!(stale, Err(SessionError::StaleHead { .. })), "{stale:?}");
            world.fake.rewind_go.add_permits(2);
        };
        tokio::join!(world.back(id, 1), released).0
    };
    let (first, second) = tokio::join!(world.back(id, 3), meanwhile);
    assert!(matches!(first, Err(SessionError::Overloaded { .. })), "{first:?}");
    assert_eq!(rewound(second).removed, [2, 3, 4]);
    assert_eq!(world.turn(id, "on").await.number, 2);
    other.end().await;
    world.end().await;
}

#[actix::test]
async fn keys_of_those_who_were_served_together_take_back_nothing_later() {
    let world = World::new().await;
    let id = said(&world, 6).await;
    *world.fake.hold_rewinds.lock() = true;
    let keyed = |turn, key: &str| TakeBack {
        key: Some(key.to_owned()),
        ..world.wish(turn, None)
    };
    let asks = [(3, "a"), (5, "b")].map(|(turn, key)| {
        let wish = keyed(Some(turn), key);
        async { world.sessions.interrupt(&world.scope, id, wish).await }
    });
    let late = async {
        until("a move is under way", || !world.fake.rewinds.lock().is_empty()).await;
        let released = async {
            until("all are in", || {
                world.sessions.free_permits() <= world.settings.max_in_flight - 3
            })
            .await;
            world.fake.rewind_go.add_permits(9);
        };
        let late = world.sessions.interrupt(&world.scope, id, keyed(Some(4), "late"));
        tokio::join!(late, released).0
    };
    let (told, late) = tokio::join!(join_all(asks), late);
    let first = rewound(late);
    for told in told {
        assert_eq!(rewound(told), first);
    }
    assert_eq!(first.head_turn, 3);
    // What is gone already, and what nothing was done for, too.
    let gone = world.sessions.interrupt(&world.scope, id, keyed(Some(6), "gone")).await;
    assert_eq!(rewound(gone), first);
    let idle = world.sessions.interrupt(&world.scope, id, keyed(None, "idle")).await;
    assert_eq!(idle.unwrap(), Interrupted::Idle { head_turn: 3 });
    for line in ["four", "five", "six"] {
        world.turn(id, line).await;
    }
    let world = world.restarted();
    for (turn, key) in [(3, "a"), (5, "b"), (4, "late"), (6, "gone")] {
        let again = world.sessions.interrupt(&world.scope, id, keyed(Some(turn), key)).await;
        let again = rewound(again);
        // One of the moves that they were served with.
        assert!(
            again.seq <= first.seq && again.head_turn >= first.head_turn,
            "{key}: {again:?}"
        );
    }
    let idle = world.sessions.interrupt(&world.scope, id, keyed(None, "idle")).await;
    assert_eq!(idle.unwrap(), Interrupted::Idle { head_turn: 3 });
    let view = world.sessions.view(&world.scope, id).await.unwrap();
    assert_eq!(view.dialogue.head_turn, 6);
    world.end().await;
}

#[actix::test]
async fn all_who_ask_for_a_reply_anew_with_one_key_are_told_of_the_same_turn() {
    let world = World::new().await;
    let id = said(&world, 1).await;
    world.fake.go.add_permits(1);
    world.turn(id, "hold").await;
    let who = world.who();
    let anew = || {
        let key = Some("again".to_owned());
        world.sessions.regenerate(&world.scope, id, &who, key, None, None)
    };
    let (first, second) = tokio::join!(anew(), anew());
    world.begun(3).await;
    let third = anew().await;
    world.fake.go.add_permits(1);
    let mut ids = Vec::new();
    for told in [first, second, third, anew().await] {
        ids.push(outcome(told).await.unwrap().id);
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let view = world.sessions.view(&world.scope, id).await.unwrap();
    assert_eq!((view.dialogue.head_turn, world.fake.spoken.lock().len()), (2, 3));
    world.end().await;
}

#[actix::test]
async fn a_reply_that_fails_to_be_said_anew_stands_again_each_time() {
    let world = World::new().await;
    let id = said(&world, 2).await;
    let before = world
        .ports
        .ledger
        .dialogues
        .turns(&world.scope, id, 1, 9)
        .await
        .unwrap();
    *world.fake.fail_turns.lock() = true;
    for times in 1..=3 {
        let who = world.who();
        let anew = world.sessions.regenerate(&world.scope, id, &who, None, None, None);
        outcome(anew.await).await.unwrap_err();
        // Answered once the session has put back what it had taken back.
        let view = world.sessions.view(&world.scope, id).await.unwrap();
        assert_eq!(view.dialogue.head_turn, 2, "after {times} failures");
    }
    let after = world
        .ports
        .ledger
        .dialogues
        .turns(&world.scope, id, 1, 9)
        .await
        .unwrap();
    assert_eq!(after, before);
    world.end().await;
}

#[actix::test]
async fn a_line_that_cuts_takes_the_place_of_what_it_cuts() {
    let world = World::new().await;
    let id = world.session().await;
    let running = world.say(id, "hold").await;
    world.begun(1).await;
    let mut queued = Vec::new();
    for line in ["1", "2", "3", "4"] {
        queued.push(world.say(id, line).await);
    }
    let full = world.say(id, "5").await;
    assert!(matches!(full, Err(SessionError::QueueFull { .. })));
    let cutting = world.say_with(id, "wait", None, OnBusy::Interrupt).await;
    let cut = outcome(running).await.unwrap();
    assert_eq!(cut.status, crate::memory::turn::TurnStatus::Interrupted);
    for line in queued {
        outcome(line).await.unwrap();
    }
    assert_eq!(outcome(cutting).await.unwrap().number, 6);
    world.end().await;
}

#[actix::test]
async fn a_reply_that_cannot_be_said_anew_stands_again() {
    let world = World::new().await;
    let id = said(&world, 1).await;
    world.fake.go.add_permits(1);
    world.turn(id, "hold").await;
    let standing = async |world: &World| {
        // Answered once the session has put back what it had taken back.
        let view = world.sessions.view(&world.scope, id).await.unwrap();
        assert_eq!((view.dialogue.head_turn, view.history.len()), (2, 2));
        let dialogues = &world.ports.ledger.dialogues;
        dialogues.turns(&world.scope, id, 1, 9).await.unwrap()
    };
    let anew = async |world: &World| {
        let (who, key) = (world.who(), Some("again".to_owned()));
        world.sessions.regenerate(&world.scope, id, &who, key, None, None).await
    };
    let before = standing(&world).await;
    let ear = world.listen(id).await;
    *world.fake.fail_turns.lock() = true;
    world.fake.go.add_permits(1);
    let failed = outcome(anew(&world).await).await;
    assert!(matches!(*failed.unwrap_err(), TurnError::Model(_)));
    assert_eq!(standing(&world).await, before);
    assert_eq!(ear.story(), ["rewound 1", "started 2", "failed 2", "rewound 2"]);

    *world.fake.fail_turns.lock() = false;
    let running = anew(&world).await;
    until("the reply is said anew", || world.fake.spoken.lock().len() == 4).await;
    // The process dies meanwhile.
    let killed = world;
    let world = killed.restarted();
    assert_eq!(standing(&world).await, before);
    drop(running);
    world.fake.go.add_permits(1);
    let second = outcome(anew(&world).await).await.unwrap();
    assert_eq!((second.number, second.player_text.as_str()), (2, "hold"));
    assert_ne!(second.id, before[1].id);
    world.end().await;
}

#[actix::test]
async fn a_reply_that_was_to_be_said_anew_stands_in_a_session_that_is_closed_meanwhile() {
    let world = World::new().await;
    let id = said(&world, 1).await;
    world.fake.go.add_permits(1);
    let whole = world.turn(id, "hold").await;
    let ear = world.listen(id).await;
    let who = world.who();
    let anew = world.sessions.regenerate(&world.scope, id, &who, None, None, None);
    let anew = anew.await;
    world.begun(3).await;
    let dialogues = &world.ports.ledger.dialogues;
    let mut epoch = 0;
    while dialogues
        .close(&world.scope, id, epoch, world.ports.clock.now())
        .await
        .unwrap()
        != OwnerWrite::Done
    {
        epoch += 1;
    }
    *world.fake.fail_turns.lock() = true;
    world.sessions.were_closed(&world.scope, vec![id]).await;
    outcome(anew).await.unwrap_err();
    ear.hears("closed rewound").await;
    assert_eq!(
        ear.story(),
        ["rewound 1", "started 2", "failed 2", "rewound 2", "closed rewound"]
    );
    let turns = dialogues.turns(&world.scope, id, 1, 9).await.unwrap();
    assert_eq!(turns.last().unwrap().id, whole.id);
    world.end().await;
}
