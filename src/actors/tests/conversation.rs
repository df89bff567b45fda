//! NPCs who talk: pacing, steps, cutting in, joining, ending, and what a crash leaves.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use super::world::{PATIENCE, World, dialogue_settings, settings, until};
use crate::{
    actors::{
        Interrupted, NewConversation, SessionError, TakeBack, npc_conversation::handle::NpcConversations, session,
    },
    dialogue::turn::TurnError,
    ids::{DialogueId, NpcId},
    memory::turn::{Turn, TurnStatus},
    ports::ledger::dialogues::{DialogueStatus, Interrupters, NextSpeaker},
};

impl World {
    pub(super) fn talks(&self) -> NpcConversations {
        self.sessions.npc_conversations()
    }

    pub(super) async fn talk(&self, topic: &str, max_turns: u32, auto: bool) -> DialogueId {
        self.talk_of(NextSpeaker::Rule, topic, max_turns, auto).await
    }

    pub(super) async fn talk_of(
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
        self.talks().create(&self.scope, new).await.unwrap().id
    }

    pub(super) async fn step(&self, id: DialogueId) -> Arc<Turn> {
        let said = self.talks().step(&self.scope, id).await.unwrap();
        tokio::time::timeout(PATIENCE, said).await.unwrap().unwrap().unwrap()
    }

    pub(super) fn back_to(&self, turn: Option<u32>) -> TakeBack {
        TakeBack {
            turn,
            heard: None,
            key: None,
            if_head: None,
            who: self.who(),
        }
    }

    pub(super) async fn lines(&self, id: DialogueId) -> Vec<String> {
        let turns = self
            .ports
            .ledger
            .dialogues
            .turns(&self.scope, id, 1, 100)
            .await
            .unwrap();
        turns.into_iter().map(|turn| turn.reply_text).collect()
    }
}

#[actix::test]
async fn a_model_that_is_asked_says_who_speaks_next() {
    let world = World::new().await;
    let named = ["mira", "ergen", "ergen"].map(|npc| npc.parse().unwrap());
    *world.fake.next_speakers.lock() = named.into();
    let id = world.talk_of(NextSpeaker::Model, "the mill", 4, true).await;
    let ear = world.watch(id, Some(1)).await;
    ear.hears("ended 4 max_turns").await;
    let started: Vec<String> = ear
        .story()
        .into_iter()
        .filter(|event| event.contains("started"))
        .collect();
    // After the three that were named, whoever was silent for longest.
    let expected = [
        "ergen started 1",
        "ergen started 2",
        "mira started 3",
        "ergen started 4",
    ];
    assert_eq!(started, expected);
    // Where the rule decides, nobody is asked.
    *world.fake.next_speakers.lock() = vec!["ergen".parse().unwrap()];
    let id = world.talk("the mill", 1, true).await;
    let ear = world.watch(id, Some(1)).await;
    ear.hears("ended 1 max_turns").await;
    assert!(ear.story().contains(&"mira started 1".to_owned()));
}

#[actix::test]
async fn they_take_turns_by_themselves_until_the_last_line() {
    let world = World::new().await;
    let id = world.talk("the mill", 4, true).await;
    let ear = world.watch(id, Some(1)).await;
    ear.hears("ended 4 max_turns").await;
    assert_eq!(
        ear.story(),
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
    assert!(ear.seqs().is_sorted_by(|a, b| a < b), "{:?}", ear.seqs());
    let stored = world
        .ports
        .ledger
        .dialogues
        .get(&world.scope, id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(stored.status, DialogueStatus::Closed);
    let refused = world.talks().step(&world.scope, id).await.unwrap_err();
    assert!(matches!(refused, SessionError::Ended), "{refused:?}");
    world.end().await;
}

#[actix::test]
async fn the_last_line_can_be_cut_and_joined_until_it_can_have_been_read() {
    let mut slow = dialogue_settings();
    (slow.conversation.pause_ms, slow.conversation.longest_pause_ms) = (600_000, 600_000);
    let world = World::with(settings(), slow).await;
    for topic in ["the mill", "conclude at 2"] {
        let id = world.talk(topic, 2, true).await;
        let ear = world.watch(id, Some(1)).await;
        ear.hears("committed 1").await;
        world.step(id).await;
        let wish = TakeBack {
            heard: Some(crate::actors::Heard::Chars(5)),
            ..world.back_to(Some(2))
        };
        world.talks().interrupt(&world.scope, id, wish).await.unwrap();
        let player = "p1".parse().unwrap();
        let joined = world.talks().join(&world.scope, id, player, None).await.unwrap();
        assert!(joined.dialogue.cause.is_some());
        assert!(
            !ear.story().iter().any(|event| event.starts_with("ended")),
            "{:?}",
            ear.story()
        );
        // Another line is not to be had.
        let stepped = world.talks().step(&world.scope, id).await.unwrap();
        assert!(stepped.await.is_err());
        until("it ends", || {
            ear.story().iter().any(|event| event.starts_with("ended 2"))
        })
        .await;
    }
    world.end().await;
}

#[actix::test]
async fn a_speaker_concludes() {
    let world = World::new().await;
    let id = world.talk("conclude at 2", 20, true).await;
    let ear = world.watch(id, Some(1)).await;
    ear.hears("ended 2 concluded").await;
    assert_eq!(world.lines(id).await, ["Mira says 1", "Ergen says 2"]);
    world.end().await;
}

#[actix::test]
async fn a_stepped_one_says_a_line_when_it_is_asked_to() {
    let world = World::new().await;
    let id = world.talk("the mill", 2, false).await;
    let ear = world.watch(id, None).await;
    assert_eq!(world.step(id).await.npc.as_str(), "mira");
    assert_eq!(world.fake.spoken.lock().len(), 1, "nobody speaks unasked");
    assert_eq!(world.step(id).await.npc.as_str(), "ergen");
    ear.hears("ended 2 max_turns").await;
    world.end().await;
}

#[actix::test]
async fn whoever_cuts_in_pauses_it_and_it_goes_on_when_resumed() {
    let world = World::new().await;
    let id = world.talk("hold", 3, true).await;
    let ear = world.watch(id, Some(1)).await;
    world.begun(1).await;
    let cut = world
        .talks()
        .interrupt(&world.scope, id, world.back_to(None))
        .await
        .unwrap();
    assert_eq!(cut, Interrupted::Cut { turn: 1 });
    let stored = world
        .ports
        .ledger
        .dialogues
        .get(&world.scope, id)
        .await
        .unwrap()
        .unwrap();
    assert!(stored.options.paused, "a restart must not go on");
    ear.hears("interrupted 1").await;
    assert_eq!(world.fake.spoken.lock().len(), 1);
    world.fake.go.add_permits(10);
    world.talks().resume(&world.scope, id, &world.who()).await.unwrap();
    ear.hears("ended 3 max_turns").await;
    let story = ear.story();
    let place = |what: &str| {
        story
            .iter()
            .position(|event| event == what)
            .unwrap_or_else(|| panic!("{what}: {story:?}"))
    };
    assert!(place("paused 0 interrupted") < place("committed 1"));
    // The line that was cut is gone on with.
    assert!(place("committed 1") < place("rewound 0"));
    assert!(place("resumed 0") < place("completed 1") && place("completed 1") < place("ergen started 2"));
    world.end().await;
}

#[actix::test]
async fn one_that_is_resumed_while_a_line_is_said_goes_on_after_it() {
    let world = World::new().await;
    let id = world.talk("hold", 4, true).await;
    let ear = world.watch(id, Some(1)).await;
    world.begun(1).await;
    let resume = || async { world.talks().resume(&world.scope, id, &world.who()).await.unwrap() };
    // While it is being cut: that line is gone on with.
    let cut = async {
        let (talks, wish) = (world.talks(), world.back_to(None));
        talks.interrupt(&world.scope, id, wish).await.unwrap()
    };
    let resumed = async {
        ear.hears("paused 0 interrupted").await;
        resume().await
    };
    let (cut, _) = tokio::join!(cut, resumed);
    assert_eq!(cut, Interrupted::Cut { turn: 1 });
    world.fake.go.add_permits(1);
    ear.hears("completed 1").await;
    world.begun(3).await;
    // While one is said that was asked for during a pause.
    world
        .talks()
        .interrupt(&world.scope, id, world.back_to(None))
        .await
        .unwrap();
    let stepped = world.talks().step(&world.scope, id).await.unwrap();
    world.begun(4).await;
    assert!(!resume().await.dialogue.options.paused);
    world.fake.go.add_permits(9);
    stepped.await.unwrap().unwrap();
    ear.hears("ended 4 max_turns").await;
    world.end().await;
}

#[actix::test]
async fn going_back_takes_what_followed_and_the_running_line_with_it() {
    let world = World::new().await;
    let id = world.talk("the mill", 20, false).await;
    for _ in 0..4 {
        world.step(id).await;
    }
    let ear = world.watch(id, None).await;
    let done = world
        .talks()
        .interrupt(&world.scope, id, world.back_to(Some(2)))
        .await
        .unwrap();
    let Interrupted::Rewound(rewound) = done else {
        panic!("{done:?}")
    };
    assert_eq!((rewound.head_turn, rewound.removed.as_slice()), (2, [3, 4].as_slice()));
    assert_eq!(world.lines(id).await, ["Mira says 1", "Ergen says 2"]);
    assert!(
        ear.story()
            .ends_with(&["rewound 2".to_owned(), "paused 2 interrupted".to_owned()]),
        "{:?}",
        ear.story()
    );
    // Asked too late for the same: told what it came to.
    let late = world
        .talks()
        .interrupt(&world.scope, id, world.back_to(Some(4)))
        .await
        .unwrap();
    assert_eq!(late, Interrupted::Rewound(Arc::clone(&rewound)));
    // Not if it takes the conversation for what it is not.
    let stale = TakeBack {
        if_head: Some(4),
        ..world.back_to(Some(4))
    };
    let stale = world.talks().interrupt(&world.scope, id, stale).await;
    assert!(
        matches!(stale, Err(SessionError::StaleHead { head_turn: 2 })),
        "{stale:?}"
    );
    // It goes on from there.
    let next = world.step(id).await;
    assert_eq!((next.number, next.npc.as_str()), (3, "mira"));
    world.end().await;
}

#[actix::test]
async fn of_interrupts_at_the_same_time_the_lowest_wins_and_all_are_told() {
    let world = World::new().await;
    let id = world.talk("the mill", 20, false).await;
    for _ in 0..6 {
        world.step(id).await;
    }
    let ear = world.watch(id, None).await;
    *world.fake.hold_rewinds.lock() = true;
    let turns = [5, 2, 4, 3, 6, 2, 5, 4, 3, 5];
    let asked = turns.map(|turn| {
        let (talks, scope, wish) = (world.talks(), world.scope.clone(), world.back_to(Some(turn)));
        async move { talks.interrupt(&scope, id, wish).await.unwrap() }
    });
    let held = async {
        until("a move begins", || !world.fake.rewinds.lock().is_empty()).await;
        until("every request is in", || {
            world.sessions.free_permits() <= world.settings.max_in_flight - turns.len()
        })
        .await;
        world.fake.rewind_go.add_permits(turns.len());
    };
    let (told, ()) = tokio::join!(futures_util::future::join_all(asked), held);
    for outcome in &told {
        assert_eq!(outcome, &told[0], "one outcome");
        let Interrupted::Rewound(rewound) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(rewound.head_turn, 2);
    }
    assert_eq!(world.lines(id).await.len(), 2);
    // The pause is told before or after, whichever of the two came to it first.
    let moves: Vec<_> = ear
        .story()
        .into_iter()
        .filter(|told| !told.starts_with("paused"))
        .collect();
    assert_eq!(moves.last().unwrap(), "rewound 2");
    assert!(ear.seqs().is_sorted_by(|a, b| a < b));
    let stored = world
        .ports
        .ledger
        .dialogues
        .get(&world.scope, id)
        .await
        .unwrap()
        .unwrap();
    assert!(stored.options.paused);
    world.end().await;
}

#[actix::test]
async fn whoever_cut_the_running_line_is_told_the_last_outcome_too() {
    let world = World::new().await;
    world.fake.go.add_permits(4);
    let id = world.talk("hold on", 20, false).await;
    for _ in 0..2 {
        world.step(id).await;
    }
    let _line = world.talks().step(&world.scope, id).await.unwrap();
    world.begun(3).await;
    *world.fake.hold_rewinds.lock() = true;
    let ask = |turn| {
        let (talks, scope, wish) = (world.talks(), world.scope.clone(), world.back_to(turn));
        async move { talks.interrupt(&scope, id, wish).await.unwrap() }
    };
    let late = async {
        until("a move is under way", || !world.fake.rewinds.lock().is_empty()).await;
        let released = async {
            until("all are in", || {
                world.sessions.free_permits() <= world.settings.max_in_flight - 3
            })
            .await;
            world.fake.rewind_go.add_permits(9);
        };
        tokio::join!(ask(Some(1)), released).0
    };
    let (cut, back, late) = tokio::join!(ask(None), ask(Some(2)), late);
    let Interrupted::Rewound(rewound) = &late else {
        panic!("{late:?}")
    };
    assert_eq!(rewound.head_turn, 1);
    assert_eq!([&cut, &back], [&late, &late]);
    world.end().await;
}

#[actix::test]
async fn a_job_that_hangs_for_an_unsaid_line_holds_up_no_other() {
    let mut settings = dialogue_settings();
    settings.turn.wait_for_memory_ms = 0;
    let world = World::with(super::world::settings(), settings).await;
    let id = world.talk("the mill", 20, false).await;
    world.step(id).await;
    (*world.fake.with_jobs.lock(), *world.fake.hold_jobs.lock()) = (true, true);
    world.step(id).await;
    until("its job hangs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    let wish = world.back_to(Some(1));
    world.talks().interrupt(&world.scope, id, wish).await.unwrap();
    let stands = world.step(id).await;
    // One that hangs would take it first.
    until("the next one's job runs", || world.fake.running_jobs.load(Relaxed) == 2).await;
    world.fake.job_go.add_permits(1);
    until("it ends", || !world.fake.jobs.lock().is_empty()).await;
    let ran: Vec<_> = world.fake.jobs.lock().iter().map(|(_, job)| job.turn).collect();
    assert_eq!(ran, [stands.id]);
    world.end().await;
}

#[actix::test]
async fn a_player_joins_where_the_conversation_is_and_it_pauses() {
    let world = World::new().await;
    let id = world.talk("hold", 20, true).await;
    world.begun(1).await;
    let joined = world
        .talks()
        .join(&world.scope, id, "p1".parse().unwrap(), None)
        .await
        .unwrap();
    let names: Vec<&str> = joined.dialogue.npcs.iter().map(NpcId::as_str).collect();
    assert_eq!(names, ["mira", "ergen"]);
    assert!(joined.dialogue.cause.is_some(), "it began at the line that was cut");
    // The one who spoke last answers, unless another is named or asked.
    let session = joined.dialogue.id;
    assert_eq!(world.turn(session, "who was it?").await.npc.as_str(), "mira");
    assert_eq!(world.turn(session, "Ergen, who was it?").await.npc.as_str(), "ergen");
    assert_eq!(world.turn(session, "and then?").await.npc.as_str(), "ergen");
    // Taken back to where it was joined, whoever spoke there answers again.
    world.back(session, 0).await.unwrap();
    assert_eq!(world.turn(session, "who was it?").await.npc.as_str(), "mira");
    let lines = world
        .ports
        .ledger
        .dialogues
        .turns(&world.scope, id, 1, 9)
        .await
        .unwrap();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].status, TurnStatus::Interrupted);
    world.end().await;
}

#[actix::test]
async fn joining_at_the_same_time_with_one_key_is_one_session() {
    let world = World::new().await;
    let id = world.talk("the mill", 20, false).await;
    world.step(id).await;
    let join = |player: &str, key: &'static str| {
        let (talks, scope, player) = (world.talks(), world.scope.clone(), player.parse().unwrap());
        async move { talks.join(&scope, id, player, Some(key)).await.unwrap().dialogue.id }
    };
    let (first, second) = tokio::join!(join("p1", "k"), join("p1", "k"));
    assert_eq!(first, second);
    let (talks, player) = (world.talks(), "p1".parse().unwrap());
    let found = talks.joined(&world.scope, id, &player, "k", "hello").await.unwrap();
    assert_eq!(found.unwrap().dialogue.id, first);
    assert_ne!(join("p2", "k").await, first);
    assert_ne!(join("p1", "l").await, first);
    world.end().await;
}

#[actix::test]
async fn one_that_panicked_goes_on_by_itself() {
    let world = World::new().await;
    let id = world.talk("hold", 2, true).await;
    let ear = world.watch(id, Some(1)).await;
    world.begun(1).await;
    let key = (world.scope.clone(), id);
    let addr = world.sessions.node_for_test().conversations.live(&key).unwrap();
    addr.try_send(session::Panic).unwrap();
    ear.hears("failed 1").await;
    world.fake.go.add_permits(10);
    // Nobody asks for anything: the chores take it up.
    ear.hears("ended 2 max_turns").await;
    assert_eq!(world.lines(id).await.len(), 2);
    world.end().await;
}

#[actix::test]
async fn one_whose_model_keeps_failing_waits_longer_and_longer() {
    let world = World::new().await;
    let id = world.talk("fail", 5, true).await;
    let ear = world.watch(id, Some(1)).await;
    ear.hears("failed 1").await;
    let view = world.talks().view(&world.scope, id).await.unwrap();
    assert_eq!((view.dialogue.head_turn, view.running_turn), (0, None));
    let refused = world.talks().step(&world.scope, id).await.unwrap();
    let failed = tokio::time::timeout(PATIENCE, refused).await.unwrap().unwrap();
    assert!(failed.is_err(), "a step tells why at once");
    world.talks().end(&world.scope, id, "closed by request").await.unwrap();
    ear.hears("ended 0 closed by request").await;
    world.end().await;
}

#[actix::test]
async fn another_process_goes_on_when_somebody_looks() {
    let world = World::new().await;
    let id = world.talk("hold", 2, true).await;
    world.begun(1).await;
    let second = world.restarted();
    second.fake.go.add_permits(10);
    let ear = second.watch(id, None).await;
    ear.hears("ended 2 max_turns").await;
    assert_eq!(second.lines(id).await, ["Mira says 1", "Ergen says 2"]);
    second.sessions.drain(PATIENCE).await;
    second.sessions.stop();
    world.end().await;
}

#[actix::test]
async fn the_next_line_waits_for_what_the_last_one_taught() {
    let world = World::new().await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let id = world.talk("the mill", 3, true).await;
    let ear = world.watch(id, Some(1)).await;
    until("the first job runs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    let view = world.talks().view(&world.scope, id).await.unwrap();
    assert_eq!(
        (view.dialogue.head_turn, view.running_turn),
        (1, None),
        "nobody speaks yet"
    );
    world.fake.job_go.add_permits(3);
    ear.hears("ended 3 max_turns").await;
    let story = ear.story();
    let at = |what: &str| story.iter().position(|event| event == what).unwrap();
    assert!(at("memory 1") < at("ergen started 2"), "{story:?}");
    let waits = world.fake.memory_waits.lock().clone();
    assert!(waits[0] == 0.0 && waits[1] > 0.0 && waits[1] < 5_000.0, "{waits:?}");
    world.end().await;
}

#[actix::test]
async fn a_line_that_was_asked_for_is_not_said_after_somebody_cut_in() {
    for back_to in [None, Some(1)] {
        let world = World::new().await;
        *world.fake.with_jobs.lock() = true;
        *world.fake.hold_jobs.lock() = true;
        let id = world.talk("the mill", 3, false).await;
        world.step(id).await;
        // Waits for what the first one taught.
        let waiting = world.talks().step(&world.scope, id).await.unwrap();
        let cut = world.talks().interrupt(&world.scope, id, world.back_to(back_to)).await;
        cut.unwrap();
        let told = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
        assert!(matches!(*told.unwrap_err(), TurnError::Unsaid));
        world.fake.job_go.add_permits(3);
        until("it is learned", || world.fake.running_jobs.load(Relaxed) == 0).await;
        assert_eq!(world.lines(id).await.len(), 1);
        // The next one that is asked for is.
        world.step(id).await;
        assert_eq!(world.lines(id).await.len(), 2);
        world.end().await;
    }
}

#[actix::test]
async fn the_wait_of_a_line_is_bounded() {
    let mut short = dialogue_settings();
    short.turn.wait_for_memory_ms = 30;
    let world = World::with(settings(), short).await;
    *world.fake.with_jobs.lock() = true;
    *world.fake.hold_jobs.lock() = true;
    let id = world.talk("the mill", 2, false).await;
    world.step(id).await;
    world.step(id).await;
    let waits = world.fake.memory_waits.lock().clone();
    assert!(waits[1] >= 29.0, "{waits:?}");
    assert!(world.fake.jobs.lock().is_empty());
    world.end().await;
}
