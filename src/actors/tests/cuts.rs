//! Replies that are cut while running: the callers are recorded, and the replies are continued.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::{FutureExt as _, future::join_all};

use super::world::{
    PATIENCE, RecordingListener, TestWorld, test_actor_settings, test_dialogue_settings, wait_for_turn, wait_until,
};
use crate::{DialogueError, HeardLength, InterruptCommand, InterruptOutcome, OnBusy, ResumeCommand};
use colloquy_core::ids::DialogueId;
use colloquy_dialogue::turn::TurnError;
use colloquy_memory::turn::{Turn, TurnStatus};
use colloquy_ports::{PageRequest, ledger::audit::AuditRow};

impl TestWorld {
    pub(super) async fn audit_rows(&self, action: &str) -> Vec<AuditRow> {
        let page = PageRequest { limit: 50, after: None };
        let rows = self
            .ports
            .ledger
            .audit
            .list_audit_rows(&self.scope, &page)
            .await
            .unwrap()
            .items;
        rows.into_iter().filter(|row| row.action == action).collect()
    }

    pub(super) async fn resume_reply(
        &self,
        id: DialogueId,
        key: Option<&str>,
    ) -> Result<InterruptOutcome, DialogueError> {
        let wish = ResumeCommand {
            key: key.map(str::to_owned),
            re: None,
            who: self.test_principal(),
            may_continue: true,
        };
        self.sessions.resume_dialogue(&self.scope, id, wish).await
    }

    /// Waits until the given number of callers have cut the latest turn.
    async fn wait_for_cuts(&self, many: usize) {
        wait_until("it is cut", || {
            let cut = self.fake.cut.lock();
            let cut = cut
                .as_ref()
                .map(|cut| cut.borrow().as_ref().map_or(0, |cut| cut.requesters.len()));
            cut == Some(many)
        })
        .await;
    }

    pub(super) async fn said_turns(&self, id: DialogueId) -> Vec<Turn> {
        self.ports
            .ledger
            .dialogues
            .load_turns(&self.scope, id, 1, 99)
            .await
            .unwrap()
    }

    pub(super) fn keyed_interrupt(&self, turn: Option<u32>, key: &str) -> InterruptCommand {
        InterruptCommand {
            key: Some(key.to_owned()),
            ..self.interrupt_command(turn, None)
        }
    }

    /// Creates a session whose second reply, to a line with the key `hold`, was cut while running.
    pub(super) async fn new_session_with_cut_reply(&self) -> DialogueId {
        let id = self.new_session().await;
        self.say_and_wait(id, "one").await;
        let running = self.say_line_with(id, "hold", Some("hold"), OnBusy::Queue).await;
        self.wait_for_begun(2).await;
        let cut = self.interrupt(id, None, None).await.unwrap();
        assert_eq!(cut, InterruptOutcome::Cut { turn: 2 });
        assert_eq!(wait_for_turn(running).await.unwrap().status, TurnStatus::Interrupted);
        id
    }
}

/// Waits for turn `number` to stand and to be published.
async fn wait_for_committed(
    world: &TestWorld,
    id: DialogueId,
    ear: &RecordingListener,
    number: u32,
    times: usize,
) -> Turn {
    let event = format!("committed {number}");
    wait_until(&event, || {
        ear.event_labels().iter().filter(|told| **told == event).count() == times
    })
    .await;
    world.said_turns(id).await.pop().unwrap()
}

#[actix::test]
async fn interrupter_of_a_running_reply_is_recorded_with_its_turn() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let running = world.say_line(id, "hold on").await;
    world.wait_for_begun(1).await;
    let first = world.keyed_interrupt(Some(1), "first");
    let heard = InterruptCommand {
        heard_length: Some(HeardLength::Chars(3)),
        ..world.keyed_interrupt(None, "second")
    };
    let cuts = [first.clone(), heard.clone(), first.clone()]
        .map(|wish| world.sessions.interrupt_dialogue(&world.scope, id, wish));
    let committing = async {
        world.wait_for_cuts(2).await;
        world.fake.go.add_permits(1);
    };
    for told in tokio::join!(join_all(cuts), committing).0 {
        assert_eq!(told.unwrap(), InterruptOutcome::Cut { turn: 1 });
    }
    let cut = wait_for_turn(running).await.unwrap();
    assert_eq!(cut.status, TurnStatus::Interrupted);
    let rows = world.audit_rows("session.interrupt").await;
    assert_eq!(rows.len(), 2, "the repeated one is no other: {rows:?}");
    assert!(
        rows.iter()
            .all(|row| row.object == id.to_string() && row.subject == "test")
    );
    world.say_and_wait(id, "two").await;

    let world = world.restart_process();
    for wish in [first, heard] {
        let told = world.sessions.interrupt_dialogue(&world.scope, id, wish).await.unwrap();
        assert_eq!(told, InterruptOutcome::Cut { turn: 1 }, "after a restart too");
    }
    assert_eq!(world.said_turns(id).await.len(), 2, "nothing was taken back");
    assert_eq!(world.audit_rows("session.interrupt").await.len(), 2);
    world.shut_down().await;
}

#[actix::test]
async fn player_line_that_cuts_a_reply_is_recorded_too() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    let running = world.say_line(id, "hold").await;
    world.wait_for_begun(1).await;
    wait_for_turn(world.say_line_with(id, "wait", None, OnBusy::Interrupt).await)
        .await
        .unwrap();
    assert_eq!(wait_for_turn(running).await.unwrap().status, TurnStatus::Interrupted);
    assert_eq!(world.audit_rows("session.interrupt").await.len(), 1);
    // The turn's events report the cut; no separate event comes before or after a restart.
    let story = ear.event_labels();
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
    let world = world.restart_process();
    let late = RecordingListener::new();
    let listener: std::sync::Arc<dyn crate::Listener> = std::sync::Arc::<RecordingListener>::clone(&late);
    let seen = Some(ear.heard_seqs()[0]);
    world
        .sessions
        .attach_listener(&world.scope, id, listener, seen)
        .await
        .unwrap();
    assert_eq!(late.event_labels(), story[1..]);
    world.shut_down().await;
}

#[actix::test]
async fn reply_cut_while_streaming_is_continued() {
    let world = TestWorld::new().await;
    let id = world.new_session_with_cut_reply().await;
    let before = world.said_turns(id).await.pop().unwrap();
    let ear = world.attach_recorder(id).await;
    let told = world.resume_reply(id, Some("up")).await.unwrap();
    let InterruptOutcome::Rewound(rewound) = &told else {
        panic!("{told:?}")
    };
    assert_eq!(
        (rewound.head_turn, &rewound.removed[..], rewound.replacing),
        (1, &[2][..], Some(before.id))
    );
    world.wait_for_begun(3).await;
    assert_eq!(
        world.resume_reply(id, Some("up")).await.unwrap(),
        told,
        "it is being said"
    );
    world.fake.go.add_permits(1);
    let whole = wait_for_committed(&world, id, &ear, 2, 1).await;
    assert_eq!(whole.reply_text, format!("{} and more. And on.", before.reply_text));
    assert_eq!(
        (whole.status, whole.player_text.as_str()),
        (TurnStatus::Completed, "hold")
    );
    assert_eq!(
        ear.event_labels(),
        ["rewound 1", "started 2", "completed 2", "committed 2"]
    );
    assert_eq!(
        world.resume_reply(id, Some("up")).await.unwrap(),
        told,
        "a key takes up nothing twice"
    );
    let again = world.resume_reply(id, None).await;
    assert!(matches!(again, Err(DialogueError::NothingToResume)), "{again:?}");
    // The line was said, and a repeat of its key returns the turn.
    let repeated = wait_for_turn(world.say_line_with(id, "hold", Some("hold"), OnBusy::Queue).await)
        .await
        .unwrap();
    assert_eq!(repeated.id, whole.id);

    let world = world.restart_process();
    let repeated = wait_for_turn(world.say_line_with(id, "hold", Some("hold"), OnBusy::Queue).await)
        .await
        .unwrap();
    assert_eq!(repeated.id, whole.id);
    assert_eq!(world.resume_reply(id, Some("up")).await.unwrap(), told);
    assert_eq!(world.audit_rows("session.resume").await.len(), 1);
    assert_eq!(world.say_and_wait(id, "three").await.number, 3);
    world.shut_down().await;
}

#[actix::test]
async fn retried_resume_line_joins_the_continued_turn() {
    let world = TestWorld::new().await;
    let id = world.new_session_with_cut_reply().await;
    world.resume_reply(id, None).await.unwrap();
    world.wait_for_begun(3).await;
    // `on_busy` of the retry makes no difference.
    let mut retries = Vec::new();
    for on_busy in [OnBusy::Queue, OnBusy::Reject, OnBusy::Interrupt] {
        retries.push(world.say_line_with(id, "hold", Some("hold"), on_busy).await);
    }
    let other = world
        .say_line_with(id, "another line", Some("hold"), OnBusy::Queue)
        .await;
    assert!(matches!(other, Err(DialogueError::KeyReused)), "{:?}", other.err());
    world.fake.go.add_permits(1);
    let mut turns = Vec::new();
    for retry in retries {
        turns.push(wait_for_turn(retry).await.unwrap().id);
    }
    let whole = world.said_turns(id).await.pop().unwrap();
    assert_eq!(turns, [whole.id; 3]);
    assert_eq!(whole.status, TurnStatus::Completed);
    assert!(whole.reply_text.ends_with("and more. And on."), "{whole:?}");
    world.shut_down().await;
}

#[actix::test]
async fn concurrent_resumes_of_a_reply_are_both_answered_and_said_once() {
    let world = TestWorld::new().await;
    let id = world.new_session_with_cut_reply().await;
    let ear = world.attach_recorder(id).await;
    world.fake.go.add_permits(1);
    let (first, second) = tokio::join!(world.resume_reply(id, Some("a")), world.resume_reply(id, Some("b")));
    let told = [first.unwrap(), second.unwrap()];
    assert_eq!(told[0], told[1]);
    wait_for_committed(&world, id, &ear, 2, 1).await;
    assert_eq!(world.said_turns(id).await.len(), 2);
    assert_eq!(world.fake.spoken.lock().len(), 3);
    world.shut_down().await;
}

#[actix::test]
async fn resume_after_a_newer_turn_is_rejected() {
    let world = TestWorld::new().await;
    let id = world.new_session_with_cut_reply().await;
    world.say_and_wait(id, "three").await;
    let refused = world.resume_reply(id, None).await;
    assert!(matches!(refused, Err(DialogueError::NothingToResume)), "{refused:?}");
    assert_eq!(world.said_turns(id).await.len(), 3);
    world.shut_down().await;
}

#[actix::test]
async fn seal_expires_and_its_sealed_text_is_deleted() {
    let mut short = test_dialogue_settings();
    short.turn.seal_s = 0;
    let mut often = test_actor_settings();
    often.sweep_s = 1;
    let world = TestWorld::with_settings(often, short).await;
    let id = world.new_session_with_cut_reply().await;
    let refused = world.resume_reply(id, None).await;
    assert!(matches!(refused, Err(DialogueError::NothingToResume)), "{refused:?}");
    let head = world.said_turns(id).await.pop().unwrap().id;
    let rewinds = &world.ports.ledger.rewinds;
    let long_ago = chrono::DateTime::UNIX_EPOCH;
    let swept = async {
        while rewinds
            .load_sealed_reply(&world.scope, head, long_ago)
            .await
            .unwrap()
            .is_some()
        {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(super::world::PATIENCE, swept).await.unwrap();
    world.shut_down().await;
}

#[actix::test]
async fn reply_that_cannot_be_continued_stands_as_cut() {
    let world = TestWorld::new().await;
    let id = world.new_session_with_cut_reply().await;
    let before = world.said_turns(id).await;
    let ear = world.attach_recorder(id).await;
    world.fake.go.add_permits(1);
    *world.fake.fail_turns.lock() = true;
    world.resume_reply(id, Some("up")).await.unwrap();
    ear.wait_for_event("rewound 2").await;
    // Answered after the session has reinstated the turn.
    world.sessions.snapshot(&world.scope, id).await.unwrap();
    assert_eq!(world.said_turns(id).await, before);
    assert_eq!(ear.event_labels(), ["rewound 1", "started 2", "failed 2", "rewound 2"]);

    // The resume failed, so the same request is another try. Then the process dies.
    *world.fake.fail_turns.lock() = false;
    world.resume_reply(id, Some("up")).await.unwrap();
    world.wait_for_begun(4).await;
    let killed = world;
    let world = killed.restart_process();
    let view = world.sessions.snapshot(&world.scope, id).await.unwrap();
    assert_eq!((view.dialogue.head_turn, view.history.len()), (2, 2));
    assert_eq!(world.said_turns(id).await, before);
    let ear = world.attach_recorder(id).await;
    world.fake.go.add_permits(1);
    world.resume_reply(id, Some("up")).await.unwrap();
    let whole = wait_for_committed(&world, id, &ear, 2, 1).await;
    assert!(whole.reply_text.ends_with("and more. And on."), "{whole:?}");
    world.shut_down().await;
}

#[actix::test]
async fn continued_reply_can_be_cut_again() {
    let world = TestWorld::new().await;
    let id = world.new_session_with_cut_reply().await;
    let ear = world.attach_recorder(id).await;
    world.resume_reply(id, None).await.unwrap();
    world.wait_for_begun(3).await;
    world.interrupt(id, Some(2), None).await.unwrap();
    let cut = wait_for_committed(&world, id, &ear, 2, 1).await;
    assert_eq!(cut.status, TurnStatus::Interrupted);
    world.fake.go.add_permits(1);
    world.resume_reply(id, None).await.unwrap();
    let whole = wait_for_committed(&world, id, &ear, 2, 2).await;
    assert_eq!(whole.reply_text, format!("{} and more. And on.", cut.reply_text));
    world.shut_down().await;
}

#[actix::test]
async fn cut_npc_line_is_continued_by_its_speaker() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("hold", 3, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    world.wait_for_begun(1).await;
    let wish = world.keyed_interrupt(None, "cut");
    let told = world
        .sessions
        .interrupt_conversation(&world.scope, id, wish.clone())
        .await
        .unwrap();
    assert_eq!(told, InterruptOutcome::Cut { turn: 1 });
    ear.wait_for_event("committed 1").await;
    assert_eq!(world.audit_rows("conversation.interrupt").await.len(), 1);
    let again = world
        .sessions
        .interrupt_conversation(&world.scope, id, wish)
        .await
        .unwrap();
    assert_eq!(again, told, "a key is told the same");
    assert_eq!(world.line_texts(id).await, ["Mira says 1"]);

    world.fake.go.add_permits(10);
    world
        .sessions
        .resume_conversation(&world.scope, id, &world.test_principal())
        .await
        .unwrap();
    ear.wait_for_event("ended 3 max_turns").await;
    let lines = world.line_texts(id).await;
    assert_eq!(lines[0], "Mira says 1 and more. And on.");
    assert_eq!(lines.len(), 3);
    let story = ear.event_labels();
    assert!(story.contains(&"rewound 0".to_owned()), "{story:?}");
    assert_eq!(world.audit_rows("conversation.resume").await.len(), 1);
    world.shut_down().await;
}

#[actix::test]
async fn cut_of_an_uncommitted_turn_does_not_cut_the_next() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    world.say_and_wait(id, "one").await;
    let cut = async |world: &TestWorld, key: &str| {
        let wish = world.keyed_interrupt(None, key);
        world.sessions.interrupt_dialogue(&world.scope, id, wish).await.unwrap()
    };
    // The model fails despite the cut.
    *world.fake.fail_turns.lock() = true;
    let failing = world.say_line(id, "hold").await;
    world.wait_for_begun(2).await;
    let idle = cut(&world, "failed").await;
    assert_eq!(idle, InterruptOutcome::Idle { head_turn: 1 }, "told once that is known");
    wait_for_turn(failing).await.unwrap_err();
    *world.fake.fail_turns.lock() = false;
    // The turn is rewound before its commit.
    let unsaid = world.say_line(id, "hold on").await;
    world.wait_for_begun(3).await;
    let (told, back) = tokio::join!(cut(&world, "unsaid"), world.rewind_to(id, 0));
    assert_eq!(told, back.unwrap(), "all are told of the move");
    wait_for_turn(unsaid).await.unwrap_err();

    let world = world.restart_process();
    let running = world.say_line(id, "hold").await;
    wait_until("it is being said", || {
        world.fake.spoken.lock().last().is_some_and(|line| line == "hold")
    })
    .await;
    for (key, first) in [("failed", idle), ("unsaid", told)] {
        assert_eq!(cut(&world, key).await, first, "{key}");
    }
    world.fake.go.add_permits(1);
    assert_eq!(wait_for_turn(running).await.unwrap().status, TurnStatus::Completed);
    world.shut_down().await;
}

#[actix::test]
async fn cut_of_an_uncommitted_npc_line_does_not_cut_the_next() {
    let world = TestWorld::new().await;
    let cut = async |world: &TestWorld, id: DialogueId| {
        let wish = world.keyed_interrupt(None, "cut");
        world
            .sessions
            .interrupt_conversation(&world.scope, id, wish)
            .await
            .unwrap()
    };
    // The model fails despite the cut.
    let failed = world.new_conversation("hold", 20, false).await;
    world.fake.go.add_permits(1);
    world.say_next_line(failed).await;
    *world.fake.fail_turns.lock() = true;
    let _failing = world.sessions.say_next_line(&world.scope, failed).await.unwrap();
    world.wait_for_begun(2).await;
    let idle = cut(&world, failed).await;
    assert_eq!(idle, InterruptOutcome::Idle { head_turn: 1 });
    *world.fake.fail_turns.lock() = false;
    // The line is rewound before its commit.
    let unsaid = world.new_conversation("hold on", 20, false).await;
    world.fake.go.add_permits(2);
    world.say_next_line(unsaid).await;
    let ear = world.attach_watcher(unsaid, None).await;
    let _unsaid = world.sessions.say_next_line(&world.scope, unsaid).await.unwrap();
    world.wait_for_begun(4).await;
    let back = async {
        ear.wait_for_event("paused 1 interrupted").await;
        let wish = world.conversation_interrupt(Some(1));
        world
            .sessions
            .interrupt_conversation(&world.scope, unsaid, wish)
            .await
            .unwrap()
    };
    let (told, back) = tokio::join!(cut(&world, unsaid), back);
    assert_eq!(told, back, "all are told of the move");

    let world = world.restart_process();
    for (id, told, permits) in [(failed, idle, 1), (unsaid, back, 2)] {
        let spoken = world.fake.spoken.lock().len();
        let running = world.sessions.say_next_line(&world.scope, id).await.unwrap();
        world.wait_for_begun(spoken + 1).await;
        assert_eq!(cut(&world, id).await, told);
        world.fake.go.add_permits(permits);
        let line = tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap().unwrap();
        assert_eq!(line.status, TurnStatus::Completed);
    }
    world.shut_down().await;
}

#[actix::test]
async fn cut_is_published_only_once_durable() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    // The commit waits for a second permit.
    let running = world.say_line(id, "hold on").await;
    world.wait_for_begun(1).await;
    let wish = world.keyed_interrupt(Some(1), "cut");
    let cutting = world.sessions.interrupt_dialogue(&world.scope, id, wish.clone());
    let repeated = world.sessions.interrupt_dialogue(&world.scope, id, wish.clone());
    let told = AtomicUsize::new(0);
    let after = async {
        world.wait_for_cuts(1).await;
        // Every answer by now would be too early.
        assert!(world.said_turns(id).await.is_empty());
        assert_eq!(told.load(Ordering::Relaxed), 0);
        world.fake.go.add_permits(1);
    };
    let count = |outcome: Result<InterruptOutcome, DialogueError>| {
        assert_eq!(outcome.unwrap(), InterruptOutcome::Cut { turn: 1 });
        told.fetch_add(1, Ordering::Relaxed);
    };
    tokio::join!(cutting.map(count), repeated.map(count), after);
    assert_eq!(told.load(Ordering::Relaxed), 2);
    assert_eq!(world.said_turns(id).await[0].status, TurnStatus::Interrupted);
    wait_for_turn(running).await.unwrap();
    // Another process knows the key: a repeat cuts no later turn.
    let world = world.restart_process();
    let running = world.say_line(id, "hold").await;
    world.wait_for_begun(1).await;
    let again = world.sessions.interrupt_dialogue(&world.scope, id, wish).await.unwrap();
    assert_eq!(again, InterruptOutcome::Cut { turn: 1 });
    world.fake.go.add_permits(1);
    assert_eq!(wait_for_turn(running).await.unwrap().status, TurnStatus::Completed);
    world.shut_down().await;
}

#[actix::test]
async fn cut_that_is_durable_before_its_rewind_is_audited_once() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    world.say_and_wait(id, "one").await;
    *world.fake.hold_rewinds.lock() = true;
    let running = world.say_line(id, "hold on").await;
    world.wait_for_begun(2).await;
    let cutting = world
        .sessions
        .interrupt_dialogue(&world.scope, id, world.keyed_interrupt(Some(2), "cut"));
    let moving = async {
        world.wait_for_cuts(1).await;
        world.interrupt(id, Some(1), None).await
    };
    let held = async {
        wait_until("the move is asked for", || !world.fake.rewinds.lock().is_empty()).await;
        world.fake.go.add_permits(1);
        while world.said_turns(id).await.len() < 2 {
            tokio::task::yield_now().await;
        }
        world.fake.rewind_go.add_permits(1);
    };
    let (cut, moved, ()) = tokio::join!(cutting, moving, held);
    for told in [cut, moved] {
        assert!(matches!(told, Ok(InterruptOutcome::Rewound(_))), "{told:?}");
    }
    assert!(matches!(*wait_for_turn(running).await.unwrap_err(), TurnError::Unsaid));
    assert_eq!(world.audit_rows("session.interrupt").await.len(), 2, "each once");
    world.shut_down().await;
}
