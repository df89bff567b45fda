//! Conversations of NPCs: pacing, steps, interrupts, joins, the end, and recovery after a crash.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use super::world::{PATIENCE, TestWorld, test_actor_settings, test_dialogue_settings, wait_until};
use crate::{DialogueError, InterruptCommand, InterruptOutcome, NewConversation};
use colloquy_core::ids::{DialogueId, NpcId};
use colloquy_memory::turn::{Turn, TurnStatus};
use colloquy_ports::ledger::dialogues::{DialogueStatus, Interrupters, NextSpeaker};

impl TestWorld {
    pub(super) async fn new_conversation(&self, topic: &str, max_turns: u32, auto: bool) -> DialogueId {
        self.new_conversation_with(NextSpeaker::Rule, topic, max_turns, auto)
            .await
    }

    pub(super) async fn new_conversation_with(
        &self,
        next_speaker: NextSpeaker,
        topic: &str,
        max_turns: u32,
        auto: bool,
    ) -> DialogueId {
        let new = NewConversation {
            world: "vale".parse().unwrap(),
            npcs: vec!["mira".parse().unwrap(), "ergen".parse().unwrap()],
            witnesses: Vec::new(),
            factions: Vec::new(),
            topic: Some(topic.to_owned()),
            max_turns: Some(max_turns),
            auto,
            next_speaker,
            watchers: Vec::new(),
            open: false,
            interrupters: Interrupters::default(),
        };
        self.sessions.create_conversation(&self.scope, new).await.unwrap().id
    }

    pub(super) async fn say_next_line(&self, id: DialogueId) -> Arc<Turn> {
        let said = self.sessions.say_next_line(&self.scope, id).await.unwrap();
        tokio::time::timeout(PATIENCE, said).await.unwrap().unwrap().unwrap()
    }

    pub(super) fn conversation_interrupt(&self, turn: Option<u32>) -> InterruptCommand {
        InterruptCommand {
            turn,
            heard_length: None,
            key: None,
            if_head: None,
            who: self.test_principal(),
        }
    }

    pub(super) async fn line_texts(&self, id: DialogueId) -> Vec<String> {
        let turns = self
            .ports
            .ledger
            .dialogues
            .load_turns(&self.scope, id, 1, 100)
            .await
            .unwrap();
        turns.into_iter().map(|turn| turn.reply_text).collect()
    }
}

#[actix::test]
async fn next_speaker_is_chosen_by_the_model() {
    let world = TestWorld::new().await;
    let named = ["mira", "ergen", "ergen"].map(|npc| npc.parse().unwrap());
    *world.fake.next_speakers.lock() = named.into();
    let id = world
        .new_conversation_with(NextSpeaker::Model, "the mill", 4, true)
        .await;
    let ear = world.attach_watcher(id, Some(1)).await;
    ear.wait_for_event("ended 4 max_turns").await;
    let started: Vec<String> = ear
        .event_labels()
        .into_iter()
        .filter(|event| event.contains("started"))
        .collect();
    // After the three named speakers, the NPC that was silent for longest speaks.
    let expected = [
        "ergen started 1",
        "ergen started 2",
        "mira started 3",
        "ergen started 4",
    ];
    assert_eq!(started, expected);
    // With the rule, no model is asked.
    *world.fake.next_speakers.lock() = vec!["ergen".parse().unwrap()];
    let id = world.new_conversation("the mill", 1, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    ear.wait_for_event("ended 1 max_turns").await;
    assert!(ear.event_labels().contains(&"mira started 1".to_owned()));
}

#[actix::test]
async fn npcs_take_turns_until_the_last_line() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("the mill", 4, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    ear.wait_for_event("ended 4 max_turns").await;
    assert_eq!(
        ear.event_labels(),
        [
            "mira started 1",
            "completed 1",
            "committed 1",
            "ergen started 2",
            "completed 2",
            "committed 2",
            "mira started 3",
            "completed 3",
            "committed 3",
            "ergen started 4",
            "completed 4",
            "committed 4",
            "ended 4 max_turns"
        ]
    );
    assert!(ear.heard_seqs().is_sorted_by(|a, b| a < b), "{:?}", ear.heard_seqs());
    let stored = world
        .ports
        .ledger
        .dialogues
        .load_dialogue(&world.scope, id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stored.status, DialogueStatus::Closed);
    let refused = world.sessions.say_next_line(&world.scope, id).await.unwrap_err();
    assert!(matches!(refused, DialogueError::Ended), "{refused:?}");
    world.shut_down().await;
}

#[actix::test]
async fn last_line_can_be_cut_or_joined_while_it_may_still_be_read() {
    let mut slow = test_dialogue_settings();
    slow.conversation.pause_ms = 600_000;
    let world = TestWorld::with_settings(test_actor_settings(), slow).await;
    for topic in ["the mill", "conclude at 2"] {
        let id = world.new_conversation(topic, 2, true).await;
        let ear = world.attach_watcher(id, Some(1)).await;
        ear.wait_for_event("committed 1").await;
        world.say_next_line(id).await;
        let wish = InterruptCommand {
            heard_length: Some(crate::HeardLength::Chars(5)),
            ..world.conversation_interrupt(Some(2))
        };
        world
            .sessions
            .interrupt_conversation(&world.scope, id, wish)
            .await
            .unwrap();
        let player = "p1".parse().unwrap();
        let joined = world
            .sessions
            .join_conversation(&world.scope, id, player, None)
            .await
            .unwrap();
        assert!(joined.dialogue.cause.is_some());
        assert!(
            !ear.event_labels().iter().any(|event| event.starts_with("ended")),
            "{:?}",
            ear.event_labels()
        );
        // No further line is possible.
        let stepped = world.sessions.say_next_line(&world.scope, id).await.unwrap();
        assert!(stepped.await.is_err());
        wait_until("it ends", || {
            ear.event_labels().iter().any(|event| event.starts_with("ended 2"))
        })
        .await;
    }
    world.shut_down().await;
}

#[actix::test]
async fn conversation_is_concluded_by_a_speaker() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("conclude at 2", 20, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    ear.wait_for_event("ended 2 concluded").await;
    assert_eq!(world.line_texts(id).await, ["Mira says 1", "Ergen says 2"]);
    world.shut_down().await;
}

#[actix::test]
async fn stepped_conversation_says_a_line_on_request() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("the mill", 2, false).await;
    let ear = world.attach_watcher(id, None).await;
    assert_eq!(world.say_next_line(id).await.npc.as_str(), "mira");
    assert_eq!(world.fake.spoken.lock().len(), 1, "nobody speaks unasked");
    assert_eq!(world.say_next_line(id).await.npc.as_str(), "ergen");
    ear.wait_for_event("ended 2 max_turns").await;
    world.shut_down().await;
}

#[actix::test]
async fn interrupt_pauses_the_conversation_until_resumed() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("hold", 3, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    world.wait_for_begun(1).await;
    let cut = world
        .sessions
        .interrupt_conversation(&world.scope, id, world.conversation_interrupt(None))
        .await
        .unwrap();
    assert_eq!(cut, InterruptOutcome::Cut { turn: 1 });
    let stored = world
        .ports
        .ledger
        .dialogues
        .load_dialogue(&world.scope, id)
        .await
        .unwrap()
        .unwrap();
    assert!(stored.options.paused, "a restart must not go on");
    ear.wait_for_event("interrupted 1").await;
    assert_eq!(world.fake.spoken.lock().len(), 1);
    world.fake.go.add_permits(10);
    world
        .sessions
        .resume_conversation(&world.scope, id, &world.test_principal())
        .await
        .unwrap();
    ear.wait_for_event("ended 3 max_turns").await;
    let story = ear.event_labels();
    let place = |what: &str| {
        story
            .iter()
            .position(|event| event == what)
            .unwrap_or_else(|| panic!("{what}: {story:?}"))
    };
    assert!(place("paused 0 interrupted") < place("committed 1"));
    // The cut line is continued.
    assert!(place("committed 1") < place("rewound 0"));
    assert!(place("resumed 0") < place("completed 1") && place("completed 1") < place("ergen started 2"));
    world.shut_down().await;
}

#[actix::test]
async fn conversation_resumed_during_a_line_continues_after_it() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("hold", 4, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    world.wait_for_begun(1).await;
    let resume = || async {
        world
            .sessions
            .resume_conversation(&world.scope, id, &world.test_principal())
            .await
            .unwrap()
    };
    // During the cut: the cut line is continued.
    let cut = async {
        let (talks, wish) = (world.sessions.clone(), world.conversation_interrupt(None));
        talks.interrupt_conversation(&world.scope, id, wish).await.unwrap()
    };
    let resumed = async {
        ear.wait_for_event("paused 0 interrupted").await;
        resume().await
    };
    let (cut, _) = tokio::join!(cut, resumed);
    assert_eq!(cut, InterruptOutcome::Cut { turn: 1 });
    world.fake.go.add_permits(1);
    ear.wait_for_event("completed 1").await;
    world.wait_for_begun(3).await;
    // During a line that was requested in a pause.
    world
        .sessions
        .interrupt_conversation(&world.scope, id, world.conversation_interrupt(None))
        .await
        .unwrap();
    let stepped = world.sessions.say_next_line(&world.scope, id).await.unwrap();
    world.wait_for_begun(4).await;
    assert!(!resume().await.dialogue.options.paused);
    world.fake.go.add_permits(9);
    stepped.await.unwrap().unwrap();
    ear.wait_for_event("ended 4 max_turns").await;
    world.shut_down().await;
}

#[actix::test]
async fn rewind_removes_later_lines_and_the_running_line() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("the mill", 20, false).await;
    for _ in 0..4 {
        world.say_next_line(id).await;
    }
    let ear = world.attach_watcher(id, None).await;
    let done = world
        .sessions
        .interrupt_conversation(&world.scope, id, world.conversation_interrupt(Some(2)))
        .await
        .unwrap();
    let InterruptOutcome::Rewound(rewound) = done else {
        panic!("{done:?}")
    };
    assert_eq!((rewound.head_turn, rewound.removed.as_slice()), (2, [3, 4].as_slice()));
    assert_eq!(world.line_texts(id).await, ["Mira says 1", "Ergen says 2"]);
    assert!(
        ear.event_labels()
            .ends_with(&["rewound 2".to_owned(), "paused 2 interrupted".to_owned()]),
        "{:?}",
        ear.event_labels()
    );
    // A late request for the same rewind gets its outcome.
    let late = world
        .sessions
        .interrupt_conversation(&world.scope, id, world.conversation_interrupt(Some(4)))
        .await
        .unwrap();
    assert_eq!(late, InterruptOutcome::Rewound(Arc::clone(&rewound)));
    // A wrong `if_head` is refused.
    let stale = InterruptCommand {
        if_head: Some(4),
        ..world.conversation_interrupt(Some(4))
    };
    let stale = world.sessions.interrupt_conversation(&world.scope, id, stale).await;
    assert!(
        matches!(stale, Err(DialogueError::StaleHead { head_turn: 2 })),
        "{stale:?}"
    );
    // The conversation continues from there.
    let next = world.say_next_line(id).await;
    assert_eq!((next.number, next.npc.as_str()), (3, "mira"));
    world.shut_down().await;
}

#[actix::test]
async fn concurrent_interrupts_apply_the_lowest_and_answer_all() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("the mill", 20, false).await;
    for _ in 0..6 {
        world.say_next_line(id).await;
    }
    let ear = world.attach_watcher(id, None).await;
    *world.fake.hold_rewinds.lock() = true;
    let turns = [5, 2, 4, 3, 6, 2, 5, 4, 3, 5];
    let asked = turns.map(|turn| {
        let (talks, scope, wish) = (
            world.sessions.clone(),
            world.scope.clone(),
            world.conversation_interrupt(Some(turn)),
        );
        async move { talks.interrupt_conversation(&scope, id, wish).await.unwrap() }
    });
    let held = async {
        wait_until("a move begins", || !world.fake.rewinds.lock().is_empty()).await;
        wait_until("every request is in", || {
            world.sessions.free_permits() <= world.settings.max_in_flight - turns.len()
        })
        .await;
        world.fake.rewind_go.add_permits(turns.len());
    };
    let (told, ()) = tokio::join!(futures_util::future::join_all(asked), held);
    for outcome in &told {
        assert_eq!(outcome, &told[0], "one outcome");
        let InterruptOutcome::Rewound(rewound) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(rewound.head_turn, 2);
    }
    assert_eq!(world.line_texts(id).await.len(), 2);
    // The pause may come before or after, because either request may be handled first.
    let moves: Vec<_> = ear
        .event_labels()
        .into_iter()
        .filter(|told| !told.starts_with("paused"))
        .collect();
    assert_eq!(moves.last().unwrap(), "rewound 2");
    assert!(ear.heard_seqs().is_sorted_by(|a, b| a < b));
    let stored = world
        .ports
        .ledger
        .dialogues
        .load_dialogue(&world.scope, id)
        .await
        .unwrap()
        .unwrap();
    assert!(stored.options.paused);
    world.shut_down().await;
}

#[actix::test]
async fn interrupter_of_the_running_line_gets_the_final_outcome() {
    let world = TestWorld::new().await;
    world.fake.go.add_permits(4);
    let id = world.new_conversation("hold on", 20, false).await;
    for _ in 0..2 {
        world.say_next_line(id).await;
    }
    let _line = world.sessions.say_next_line(&world.scope, id).await.unwrap();
    world.wait_for_begun(3).await;
    *world.fake.hold_rewinds.lock() = true;
    let ask = |turn| {
        let (talks, scope, wish) = (
            world.sessions.clone(),
            world.scope.clone(),
            world.conversation_interrupt(turn),
        );
        async move { talks.interrupt_conversation(&scope, id, wish).await.unwrap() }
    };
    let late = async {
        wait_until("a move is under way", || !world.fake.rewinds.lock().is_empty()).await;
        let released = async {
            wait_until("all are in", || {
                world.sessions.free_permits() <= world.settings.max_in_flight - 3
            })
            .await;
            world.fake.rewind_go.add_permits(9);
        };
        tokio::join!(ask(Some(1)), released).0
    };
    let (cut, back, late) = tokio::join!(ask(None), ask(Some(2)), late);
    let InterruptOutcome::Rewound(rewound) = &late else {
        panic!("{late:?}")
    };
    assert_eq!(rewound.head_turn, 1);
    assert_eq!([&cut, &back], [&late, &late]);
    world.shut_down().await;
}

#[actix::test]
async fn hung_job_of_an_unsaid_line_blocks_no_other_job() {
    let mut settings = test_dialogue_settings();
    settings.turn.wait_for_memory_ms = 0;
    let world = TestWorld::with_settings(super::world::test_actor_settings(), settings).await;
    let id = world.new_conversation("the mill", 20, false).await;
    world.say_next_line(id).await;
    (*world.fake.with_jobs.lock(), *world.fake.hold_jobs.lock()) = (true, true);
    world.say_next_line(id).await;
    wait_until("its job hangs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    let wish = world.conversation_interrupt(Some(1));
    world
        .sessions
        .interrupt_conversation(&world.scope, id, wish)
        .await
        .unwrap();
    let stands = world.say_next_line(id).await;
    // A hung job would take the permit first.
    wait_until("the next one's job runs", || world.fake.running_jobs.load(Relaxed) == 2).await;
    world.fake.job_go.add_permits(1);
    wait_until("it ends", || !world.fake.jobs.lock().is_empty()).await;
    let ran = world.fake.turns_of_jobs();
    assert_eq!(ran, [stands.id]);
    world.shut_down().await;
}

#[actix::test]
async fn player_joins_at_the_current_line_and_the_conversation_pauses() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("hold", 20, true).await;
    world.wait_for_begun(1).await;
    let joined = world
        .sessions
        .join_conversation(&world.scope, id, "p1".parse().unwrap(), None)
        .await
        .unwrap();
    let names: Vec<&str> = joined.dialogue.npcs.iter().map(NpcId::as_str).collect();
    assert_eq!(names, ["mira", "ergen"]);
    assert!(joined.dialogue.cause.is_some(), "it began at the line that was cut");
    // The last speaker answers, unless the line names or addresses another NPC.
    let session = joined.dialogue.id;
    assert_eq!(world.say_and_wait(session, "who was it?").await.npc.as_str(), "mira");
    assert_eq!(
        world.say_and_wait(session, "Ergen, who was it?").await.npc.as_str(),
        "ergen"
    );
    assert_eq!(world.say_and_wait(session, "and then?").await.npc.as_str(), "ergen");
    // After a rewind to the join, the last speaker at the join answers again.
    world.rewind_to(session, 0).await.unwrap();
    assert_eq!(world.say_and_wait(session, "who was it?").await.npc.as_str(), "mira");
    let lines = world
        .ports
        .ledger
        .dialogues
        .load_turns(&world.scope, id, 1, 9)
        .await
        .unwrap();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].status, TurnStatus::Interrupted);
    world.shut_down().await;
}

#[actix::test]
async fn concurrent_joins_with_one_key_make_one_session() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("the mill", 20, false).await;
    world.say_next_line(id).await;
    let join = |player: &str, key: &'static str| {
        let (talks, scope, player) = (world.sessions.clone(), world.scope.clone(), player.parse().unwrap());
        async move {
            talks
                .join_conversation(&scope, id, player, Some(key))
                .await
                .unwrap()
                .dialogue
                .id
        }
    };
    let (first, second) = tokio::join!(join("p1", "k"), join("p1", "k"));
    assert_eq!(first, second);
    let (talks, player) = (world.sessions.clone(), "p1".parse().unwrap());
    let found = talks
        .find_joined_session(&world.scope, id, &player, "k", "hello")
        .await
        .unwrap();
    assert_eq!(found.unwrap().dialogue.id, first);
    assert_ne!(join("p2", "k").await, first);
    assert_ne!(join("p1", "l").await, first);
    world.shut_down().await;
}

#[actix::test]
async fn panicked_conversation_resumes_by_itself() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("hold", 2, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    world.wait_for_begun(1).await;
    let key = (world.scope.clone(), id);
    let addr = world.sessions.node_for_test().conversations.find_live(&key).unwrap();
    addr.try_send(crate::messages::PanicForTest).unwrap();
    ear.wait_for_event("failed 1").await;
    world.fake.go.add_permits(10);
    // Without a request, the chores revive the conversation.
    ear.wait_for_event("ended 2 max_turns").await;
    assert_eq!(world.line_texts(id).await.len(), 2);
    world.shut_down().await;
}

#[actix::test]
async fn conversation_with_failing_model_backs_off() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("fail", 5, true).await;
    let ear = world.attach_watcher(id, Some(1)).await;
    ear.wait_for_event("failed 1").await;
    let view = world.sessions.conversation_snapshot(&world.scope, id).await.unwrap();
    assert_eq!((view.dialogue.head_turn, view.running_turn), (0, None));
    let refused = world.sessions.say_next_line(&world.scope, id).await.unwrap();
    let failed = tokio::time::timeout(PATIENCE, refused).await.unwrap().unwrap();
    assert!(failed.is_err(), "a step tells why at once");
    world
        .sessions
        .end_conversation(&world.scope, id, "closed by request")
        .await
        .unwrap();
    ear.wait_for_event("ended 0 closed by request").await;
    world.shut_down().await;
}

#[actix::test]
async fn conversation_is_resumed_by_another_process_when_watched() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("hold", 2, true).await;
    world.wait_for_begun(1).await;
    let second = world.restart_process();
    second.fake.go.add_permits(10);
    let ear = second.attach_watcher(id, None).await;
    ear.wait_for_event("ended 2 max_turns").await;
    assert_eq!(second.line_texts(id).await, ["Mira says 1", "Ergen says 2"]);
    second.sessions.drain_node(PATIENCE).await;
    second.sessions.stop_threads();
    world.shut_down().await;
}
