//! Replies that are cut while they are said: who did it is kept, and they are gone on with.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{FutureExt as _, future::join_all};

use super::world::{Ear, PATIENCE, World, dialogue_settings, outcome, settings, until};
use crate::{
    actors::{Heard, Interrupted, OnBusy, SessionError, TakeBack, TakeUp},
    dialogue::turn::TurnError,
    ids::DialogueId,
    memory::turn::{Turn, TurnStatus},
    ports::{PageRequest, ledger::audit::AuditRow},
};

impl World {
    pub(super) async fn audited(&self, action: &str) -> Vec<AuditRow> {
        let page = PageRequest { limit: 50, after: None };
        let rows = self.ports.ledger.audit.list(&self.scope, &page).await.unwrap().items;
        rows.into_iter().filter(|row| row.action == action).collect()
    }

    pub(super) async fn take_up(&self, id: DialogueId, key: Option<&str>) -> Result<Interrupted, SessionError> {
        let wish = TakeUp {
            key: key.map(str::to_owned),
            re: None,
            who: self.who(),
        };
        self.sessions.resume(&self.scope, id, wish).await
    }

    /// Waits until so many have cut the turn that began last.
    async fn cut_by(&self, many: usize) {
        until("it is cut", || {
            let cut = self.fake.cut.lock();
            let cut = cut
                .as_ref()
                .map(|cut| cut.borrow().as_ref().map_or(0, |cut| cut.by.len()));
            cut == Some(many)
        })
        .await;
    }

    pub(super) async fn said(&self, id: DialogueId) -> Vec<Turn> {
        self.ports.ledger.dialogues.turns(&self.scope, id, 1, 99).await.unwrap()
    }

    pub(super) fn keyed(&self, turn: Option<u32>, key: &str) -> TakeBack {
        TakeBack {
            key: Some(key.to_owned()),
            ..self.wish(turn, None)
        }
    }

    /// A session whose second reply, to a line with the key `hold`, was cut while it was being said.
    pub(super) async fn cut_session(&self) -> DialogueId {
        let id = self.session().await;
        self.turn(id, "one").await;
        let running = self.say_with(id, "hold", Some("hold"), OnBusy::Queue).await;
        self.begun(2).await;
        let cut = self.interrupt(id, None, None).await.unwrap();
        assert_eq!(cut, Interrupted::Cut { turn: 2 });
        assert_eq!(outcome(running).await.unwrap().status, TurnStatus::Interrupted);
        id
    }
}

/// The turn `number` once it stands and has been told.
async fn committed(world: &World, id: DialogueId, ear: &Ear, number: u32, times: usize) -> Turn {
    let event = format!("committed {number}");
    until(&event, || {
        ear.story().iter().filter(|told| **told == event).count() == times
    })
    .await;
    world.said(id).await.pop().unwrap()
}

#[actix::test]
async fn who_cut_a_running_reply_is_kept_with_its_turn() {
    let world = World::new().await;
    let id = world.session().await;
    let running = world.say(id, "hold on").await;
    world.begun(1).await;
    let first = world.keyed(Some(1), "first");
    let heard = TakeBack {
        heard: Some(Heard::Chars(3)),
        ..world.keyed(None, "second")
    };
    let cuts =
        [first.clone(), heard.clone(), first.clone()].map(|wish| world.sessions.interrupt(&world.scope, id, wish));
    let committing = async {
        world.cut_by(2).await;
        world.fake.go.add_permits(1);
    };
    for told in tokio::join!(join_all(cuts), committing).0 {
        assert_eq!(told.unwrap(), Interrupted::Cut { turn: 1 });
    }
    let cut = outcome(running).await.unwrap();
    assert_eq!(cut.status, TurnStatus::Interrupted);
    let rows = world.audited("session.interrupt").await;
    assert_eq!(rows.len(), 2, "the repeated one is no other: {rows:?}");
    assert!(
        rows.iter()
            .all(|row| row.object == id.to_string() && row.subject == "test")
    );
    world.turn(id, "two").await;

    let world = world.restarted();
    for wish in [first, heard] {
        let told = world.sessions.interrupt(&world.scope, id, wish).await.unwrap();
        assert_eq!(told, Interrupted::Cut { turn: 1 }, "after a restart too");
    }
    assert_eq!(world.said(id).await.len(), 2, "nothing was taken back");
    assert_eq!(world.audited("session.interrupt").await.len(), 2);
    world.end().await;
}

#[actix::test]
async fn a_line_that_cuts_a_reply_is_kept_as_well() {
    let world = World::new().await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    let running = world.say(id, "hold").await;
    world.begun(1).await;
    outcome(world.say_with(id, "wait", None, OnBusy::Interrupt).await)
        .await
        .unwrap();
    assert_eq!(outcome(running).await.unwrap().status, TurnStatus::Interrupted);
    assert_eq!(world.audited("session.interrupt").await.len(), 1);
    // Its turn's events have told of it; no event of its own comes before or after a restart.
    let story = ear.story();
    assert_eq!(
        story,
        [
            "started 1",
            "interrupted 1",
            "committed 1",
            "started 2",
            "completed 2",
            "committed 2"
        ]
    );
    let world = world.restarted();
    let late = Ear::new();
    let listener: std::sync::Arc<dyn crate::actors::Listener> = std::sync::Arc::<Ear>::clone(&late);
    let seen = Some(ear.seqs()[0]);
    world.sessions.attach(&world.scope, id, listener, seen).await.unwrap();
    assert_eq!(late.story(), story[1..]);
    world.end().await;
}

#[actix::test]
async fn a_reply_that_was_cut_while_it_was_said_is_gone_on_with() {
    let world = World::new().await;
    let id = world.cut_session().await;
    let before = world.said(id).await.pop().unwrap();
    let ear = world.listen(id).await;
    let told = world.take_up(id, Some("up")).await.unwrap();
    let Interrupted::Rewound(rewound) = &told else {
        panic!("{told:?}")
    };
    assert_eq!(
        (rewound.head_turn, &rewound.removed[..], rewound.replacing),
        (1, &[2][..], Some(before.id))
    );
    world.begun(3).await;
    assert_eq!(world.take_up(id, Some("up")).await.unwrap(), told, "it is being said");
    world.fake.go.add_permits(1);
    let whole = committed(&world, id, &ear, 2, 1).await;
    assert_eq!(whole.reply_text, format!("{} and more. And on.", before.reply_text));
    assert_eq!(
        (whole.status, whole.player_text.as_str()),
        (TurnStatus::Completed, "hold")
    );
    assert_eq!(ear.story(), ["rewound 1", "started 2", "completed 2", "committed 2"]);
    assert_eq!(
        world.take_up(id, Some("up")).await.unwrap(),
        told,
        "a key takes up nothing twice"
    );
    let again = world.take_up(id, None).await;
    assert!(matches!(again, Err(SessionError::NothingToResume)), "{again:?}");
    // The line was said, and its key tells so.
    let repeated = outcome(world.say_with(id, "hold", Some("hold"), OnBusy::Queue).await)
        .await
        .unwrap();
    assert_eq!(repeated.id, whole.id);

    let world = world.restarted();
    let repeated = outcome(world.say_with(id, "hold", Some("hold"), OnBusy::Queue).await)
        .await
        .unwrap();
    assert_eq!(repeated.id, whole.id);
    assert_eq!(world.take_up(id, Some("up")).await.unwrap(), told);
    assert_eq!(world.audited("session.resume").await.len(), 1);
    assert_eq!(world.turn(id, "three").await.number, 3);
    world.end().await;
}

#[actix::test]
async fn a_retried_line_joins_the_turn_that_goes_on_with_its_reply() {
    let world = World::new().await;
    let id = world.cut_session().await;
    world.take_up(id, None).await.unwrap();
    world.begun(3).await;
    // However the retry would have treated a turn of somebody else's line.
    let mut retries = Vec::new();
    for on_busy in [OnBusy::Queue, OnBusy::Reject, OnBusy::Interrupt] {
        retries.push(world.say_with(id, "hold", Some("hold"), on_busy).await);
    }
    let other = world.say_with(id, "another line", Some("hold"), OnBusy::Queue).await;
    assert!(matches!(other, Err(SessionError::KeyReused)), "{:?}", other.err());
    world.fake.go.add_permits(1);
    let mut turns = Vec::new();
    for retry in retries {
        turns.push(outcome(retry).await.unwrap().id);
    }
    let whole = world.said(id).await.pop().unwrap();
    assert_eq!(turns, [whole.id; 3]);
    assert_eq!(whole.status, TurnStatus::Completed);
    assert!(whole.reply_text.ends_with("and more. And on."), "{whole:?}");
    world.end().await;
}

#[actix::test]
async fn of_two_who_take_a_reply_up_at_once_both_are_told_and_it_is_said_once() {
    let world = World::new().await;
    let id = world.cut_session().await;
    let ear = world.listen(id).await;
    world.fake.go.add_permits(1);
    let (first, second) = tokio::join!(world.take_up(id, Some("a")), world.take_up(id, Some("b")));
    let told = [first.unwrap(), second.unwrap()];
    assert_eq!(told[0], told[1]);
    committed(&world, id, &ear, 2, 1).await;
    assert_eq!(world.said(id).await.len(), 2);
    assert_eq!(world.fake.spoken.lock().len(), 3);
    world.end().await;
}

#[actix::test]
async fn what_was_said_since_stands() {
    let world = World::new().await;
    let id = world.cut_session().await;
    world.turn(id, "three").await;
    let refused = world.take_up(id, None).await;
    assert!(matches!(refused, Err(SessionError::NothingToResume)), "{refused:?}");
    assert_eq!(world.said(id).await.len(), 3);
    world.end().await;
}

#[actix::test]
async fn the_seal_runs_out_and_what_it_covered_is_gone() {
    let mut short = dialogue_settings();
    short.turn.seal_s = 0;
    let mut often = settings();
    often.sweep_s = 1;
    let world = World::with(often, short).await;
    let id = world.cut_session().await;
    let refused = world.take_up(id, None).await;
    assert!(matches!(refused, Err(SessionError::NothingToResume)), "{refused:?}");
    let head = world.said(id).await.pop().unwrap().id;
    let rewinds = &world.ports.ledger.rewinds;
    let long_ago = chrono::DateTime::UNIX_EPOCH;
    let swept = async {
        while rewinds.sealed(&world.scope, head, long_ago).await.unwrap().is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(super::world::PATIENCE, swept).await.unwrap();
    world.end().await;
}

#[actix::test]
async fn a_reply_that_cannot_be_gone_on_with_stands_as_it_was_cut() {
    let world = World::new().await;
    let id = world.cut_session().await;
    let before = world.said(id).await;
    let ear = world.listen(id).await;
    world.fake.go.add_permits(1);
    *world.fake.fail_turns.lock() = true;
    world.take_up(id, Some("up")).await.unwrap();
    ear.hears("rewound 2").await;
    // Answered once the session has put back what it had taken back.
    world.sessions.view(&world.scope, id).await.unwrap();
    assert_eq!(world.said(id).await, before);
    assert_eq!(ear.story(), ["rewound 1", "started 2", "failed 2", "rewound 2"]);

    // Nothing came of it, so the same request is another try; then the process dies.
    *world.fake.fail_turns.lock() = false;
    world.take_up(id, Some("up")).await.unwrap();
    world.begun(4).await;
    let killed = world;
    let world = killed.restarted();
    let view = world.sessions.view(&world.scope, id).await.unwrap();
    assert_eq!((view.dialogue.head_turn, view.history.len()), (2, 2));
    assert_eq!(world.said(id).await, before);
    let ear = world.listen(id).await;
    world.fake.go.add_permits(1);
    world.take_up(id, Some("up")).await.unwrap();
    let whole = committed(&world, id, &ear, 2, 1).await;
    assert!(whole.reply_text.ends_with("and more. And on."), "{whole:?}");
    world.end().await;
}

#[actix::test]
async fn a_reply_that_is_gone_on_with_can_be_cut_again() {
    let world = World::new().await;
    let id = world.cut_session().await;
    let ear = world.listen(id).await;
    world.take_up(id, None).await.unwrap();
    world.begun(3).await;
    world.interrupt(id, Some(2), None).await.unwrap();
    let cut = committed(&world, id, &ear, 2, 1).await;
    assert_eq!(cut.status, TurnStatus::Interrupted);
    world.fake.go.add_permits(1);
    world.take_up(id, None).await.unwrap();
    let whole = committed(&world, id, &ear, 2, 2).await;
    assert_eq!(whole.reply_text, format!("{} and more. And on.", cut.reply_text));
    world.end().await;
}

#[actix::test]
async fn a_line_between_npcs_that_was_cut_is_gone_on_with_by_its_speaker() {
    let world = World::new().await;
    let id = world.talk("hold", 3, true).await;
    let ear = world.watch(id, Some(1)).await;
    world.begun(1).await;
    let wish = world.keyed(None, "cut");
    let told = world.talks().interrupt(&world.scope, id, wish.clone()).await.unwrap();
    assert_eq!(told, Interrupted::Cut { turn: 1 });
    ear.hears("committed 1").await;
    assert_eq!(world.audited("conversation.interrupt").await.len(), 1);
    let again = world.talks().interrupt(&world.scope, id, wish).await.unwrap();
    assert_eq!(again, told, "a key is told the same");
    assert_eq!(world.lines(id).await, ["Mira says 1"]);

    world.fake.go.add_permits(10);
    world.talks().resume(&world.scope, id, &world.who()).await.unwrap();
    ear.hears("ended 3 max_turns").await;
    let lines = world.lines(id).await;
    assert_eq!(lines[0], "Mira says 1 and more. And on.");
    assert_eq!(lines.len(), 3);
    let story = ear.story();
    assert!(story.contains(&"rewound 0".to_owned()), "{story:?}");
    assert_eq!(world.audited("conversation.resume").await.len(), 1);
    world.end().await;
}

#[actix::test]
async fn a_cut_of_what_came_to_nothing_cuts_nothing_later() {
    let world = World::new().await;
    let id = world.session().await;
    world.turn(id, "one").await;
    let cut = async |world: &World, key: &str| {
        let wish = world.keyed(None, key);
        world.sessions.interrupt(&world.scope, id, wish).await.unwrap()
    };
    // The model fails all the same.
    *world.fake.fail_turns.lock() = true;
    let failing = world.say(id, "hold").await;
    world.begun(2).await;
    let idle = cut(&world, "failed").await;
    assert_eq!(idle, Interrupted::Idle { head_turn: 1 }, "told once that is known");
    outcome(failing).await.unwrap_err();
    *world.fake.fail_turns.lock() = false;
    // It is taken back before it is committed.
    let unsaid = world.say(id, "hold on").await;
    world.begun(3).await;
    let (told, back) = tokio::join!(cut(&world, "unsaid"), world.back(id, 0));
    assert_eq!(told, back.unwrap(), "all are told of the move");
    outcome(unsaid).await.unwrap_err();

    let world = world.restarted();
    let running = world.say(id, "hold").await;
    until("it is being said", || {
        world.fake.spoken.lock().last().is_some_and(|line| line == "hold")
    })
    .await;
    for (key, first) in [("failed", idle), ("unsaid", told)] {
        assert_eq!(cut(&world, key).await, first, "{key}");
    }
    world.fake.go.add_permits(1);
    assert_eq!(outcome(running).await.unwrap().status, TurnStatus::Completed);
    world.end().await;
}

#[actix::test]
async fn a_cut_of_a_line_between_npcs_that_came_to_nothing_cuts_nothing_later() {
    let world = World::new().await;
    let cut = async |world: &World, id: DialogueId| {
        let wish = world.keyed(None, "cut");
        world.talks().interrupt(&world.scope, id, wish).await.unwrap()
    };
    // The model fails all the same.
    let failed = world.talk("hold", 20, false).await;
    world.fake.go.add_permits(1);
    world.step(failed).await;
    *world.fake.fail_turns.lock() = true;
    let _failing = world.talks().step(&world.scope, failed).await.unwrap();
    world.begun(2).await;
    let idle = cut(&world, failed).await;
    assert_eq!(idle, Interrupted::Idle { head_turn: 1 });
    *world.fake.fail_turns.lock() = false;
    // It is taken back before it is committed.
    let unsaid = world.talk("hold on", 20, false).await;
    world.fake.go.add_permits(2);
    world.step(unsaid).await;
    let ear = world.watch(unsaid, None).await;
    let _unsaid = world.talks().step(&world.scope, unsaid).await.unwrap();
    world.begun(4).await;
    let back = async {
        ear.hears("paused 1 interrupted").await;
        let wish = world.back_to(Some(1));
        world.talks().interrupt(&world.scope, unsaid, wish).await.unwrap()
    };
    let (told, back) = tokio::join!(cut(&world, unsaid), back);
    assert_eq!(told, back, "all are told of the move");

    let world = world.restarted();
    for (id, told, permits) in [(failed, idle, 1), (unsaid, back, 2)] {
        let spoken = world.fake.spoken.lock().len();
        let running = world.talks().step(&world.scope, id).await.unwrap();
        world.begun(spoken + 1).await;
        assert_eq!(cut(&world, id).await, told);
        world.fake.go.add_permits(permits);
        let line = tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap().unwrap();
        assert_eq!(line.status, TurnStatus::Completed);
    }
    world.end().await;
}

#[actix::test]
async fn a_cut_is_told_once_it_is_durable() {
    let world = World::new().await;
    let id = world.session().await;
    // Its commit waits for a second permit.
    let running = world.say(id, "hold on").await;
    world.begun(1).await;
    let wish = world.keyed(Some(1), "cut");
    let cutting = world.sessions.interrupt(&world.scope, id, wish.clone());
    let repeated = world.sessions.interrupt(&world.scope, id, wish.clone());
    let told = AtomicUsize::new(0);
    let after = async {
        world.cut_by(1).await;
        // Whatever was told by now was told too early.
        assert!(world.said(id).await.is_empty());
        assert_eq!(told.load(Ordering::Relaxed), 0);
        world.fake.go.add_permits(1);
    };
    let count = |outcome: Result<Interrupted, SessionError>| {
        assert_eq!(outcome.unwrap(), Interrupted::Cut { turn: 1 });
        told.fetch_add(1, Ordering::Relaxed);
    };
    tokio::join!(cutting.map(count), repeated.map(count), after);
    assert_eq!(told.load(Ordering::Relaxed), 2);
    assert_eq!(world.said(id).await[0].status, TurnStatus::Interrupted);
    outcome(running).await.unwrap();
    // Another process knows the key: nothing that is said there is cut.
    let world = world.restarted();
    let running = world.say(id, "hold").await;
    world.begun(1).await;
    let again = world.sessions.interrupt(&world.scope, id, wish).await.unwrap();
    assert_eq!(again, Interrupted::Cut { turn: 1 });
    world.fake.go.add_permits(1);
    assert_eq!(outcome(running).await.unwrap().status, TurnStatus::Completed);
    world.end().await;
}

#[actix::test]
async fn a_cut_that_is_durable_before_a_move_takes_it_back_is_audited_once() {
    let world = World::new().await;
    let id = world.session().await;
    world.turn(id, "one").await;
    *world.fake.hold_rewinds.lock() = true;
    let running = world.say(id, "hold on").await;
    world.begun(2).await;
    let cutting = world.sessions.interrupt(&world.scope, id, world.keyed(Some(2), "cut"));
    let moving = async {
        world.cut_by(1).await;
        world.interrupt(id, Some(1), None).await
    };
    let held = async {
        until("the move is asked for", || !world.fake.rewinds.lock().is_empty()).await;
        world.fake.go.add_permits(1);
        while world.said(id).await.len() < 2 {
            tokio::task::yield_now().await;
        }
        world.fake.rewind_go.add_permits(1);
    };
    let (cut, moved, ()) = tokio::join!(cutting, moving, held);
    for told in [cut, moved] {
        assert!(matches!(told, Ok(Interrupted::Rewound(_))), "{told:?}");
    }
    assert!(matches!(*outcome(running).await.unwrap_err(), TurnError::Unsaid));
    assert_eq!(world.audited("session.interrupt").await.len(), 2, "each once");
    world.end().await;
}

#[actix::test]
async fn a_line_between_npcs_that_cannot_be_gone_on_with_stands_as_it_was_cut() {
    let world = World::new().await;
    let id = world.talk("hold", 20, false).await;
    let ear = world.watch(id, Some(1)).await;
    let _first = world.talks().step(&world.scope, id).await.unwrap();
    world.begun(1).await;
    let wish = world.back_to(None);
    world.talks().interrupt(&world.scope, id, wish).await.unwrap();
    ear.hears("committed 1").await;
    let before = world.said(id).await;
    let told = ear.story().len();
    *world.fake.fail_turns.lock() = true;
    // Nobody steps: who takes a line up asks for it.
    world.talks().resume(&world.scope, id, &world.who()).await.unwrap();
    world.begun(2).await;
    world.fake.go.add_permits(1);
    ear.hears("rewound 1").await;
    assert_eq!(world.said(id).await, before);
    let story = ear.story();
    assert_eq!(story[told..][..2], ["rewound 0", "resumed 0"], "{story:?}");
    assert_eq!(story.last().unwrap(), "rewound 1");

    // The process dies while it is gone on with.
    *world.fake.fail_turns.lock() = false;
    world.talks().resume(&world.scope, id, &world.who()).await.unwrap();
    world.begun(3).await;
    let world = world.restarted();
    assert_eq!(
        world.talks().view(&world.scope, id).await.unwrap().dialogue.head_turn,
        1
    );
    assert_eq!(world.said(id).await, before);

    // Whoever comes in meanwhile goes on from what was heard.
    world.talks().resume(&world.scope, id, &world.who()).await.unwrap();
    world.begun(1).await;
    *world.fake.fail_turns.lock() = true;
    let player = "p1".parse().unwrap();
    let joined = world.talks().join(&world.scope, id, player, None).await.unwrap();
    let heard = world.said(id).await;
    assert_eq!(heard, before);
    assert_eq!(
        joined.dialogue.cause,
        Some(crate::memory::fact::Cause::Turn(heard[0].id))
    );
    world.end().await;
}

#[actix::test]
async fn a_cut_of_what_came_to_nothing_leaves_the_line_that_waited_alone() {
    let world = World::new().await;
    let id = world.session().await;
    *world.fake.fail_turns.lock() = true;
    let failing = world.say(id, "hold").await;
    world.begun(1).await;
    let waiting = world.say(id, "hold two").await;
    let wish = TakeBack {
        heard: Some(Heard::Chars(0)),
        ..world.keyed(Some(1), "cut")
    };
    let told = world.sessions.interrupt(&world.scope, id, wish).await.unwrap();
    assert_eq!(
        told,
        Interrupted::Idle { head_turn: 0 },
        "told before the next line is said"
    );
    outcome(failing).await.unwrap_err();
    world.begun(2).await;
    *world.fake.fail_turns.lock() = false;
    world.fake.go.add_permits(1);
    let said = outcome(waiting).await.unwrap();
    assert_eq!((said.number, said.status), (1, TurnStatus::Completed));
    world.sessions.view(&world.scope, id).await.unwrap();
    assert_eq!(world.said(id).await, [(*said).clone()]);
    world.end().await;
}
