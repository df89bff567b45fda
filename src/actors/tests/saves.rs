//! Restores of a save during turns and rewinds, and without listeners.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use super::world::{RecordingListener, TestWorld, test_dialogue_settings, wait_for_turn, wait_until};
use crate::{DialogueError, Listener, OnBusy, use_cases::UseCases as _};
use colloquy_core::ids::{DialogueId, SaveId};
use colloquy_dialogue::{saves::RestoreRequest, turn::TurnError};
use colloquy_ports::ledger::{
    audit::Edit,
    saves::{NewSave, RestoreOutcome, RestoreReport, RestoredDialogue},
};

pub(super) async fn create_save(world: &TestWorld) -> SaveId {
    let (id, now) = (world.ports.ids.next_id(), world.ports.clock.now());
    let save = NewSave {
        id,
        world: "vale".parse().unwrap(),
        name: String::new(),
        max: 9,
        edit: Edit::made_by(&world.test_principal(), &world.ports.ids, now, "save.create", id),
    };
    world.ports.ledger.saves.create_save(&world.scope, &save).await.unwrap();
    id
}

pub(super) async fn load_save(world: &TestWorld, save: SaveId) -> RestoreReport {
    let vale = "vale".parse().unwrap();
    match world
        .sessions
        .restore_world(&world.test_principal(), &vale, save, None)
        .await
        .unwrap()
    {
        RestoreOutcome::Done { restored, .. } => restored,
        other => panic!("not restored: {other:?}"),
    }
}

/// Restores a save as another node would; returns the dialogues of the pending notice.
pub(super) async fn load_save_remotely(world: &TestWorld, save: SaveId) -> Vec<RestoredDialogue> {
    let request = RestoreRequest {
        scope: world.scope.clone(),
        world: "vale".parse().unwrap(),
        save,
        key: None,
        seq_gap: 10,
        who: world.test_principal(),
    };
    match world.fake.restore_world(request).await.unwrap() {
        RestoreOutcome::Done { dialogues, .. } => dialogues,
        other => panic!("not restored: {other:?}"),
    }
}

async fn head_and_history_len(world: &TestWorld, id: DialogueId) -> (u32, usize) {
    let view = world.sessions.snapshot(&world.scope, id).await.unwrap();
    (view.dialogue.head_turn, view.history.len())
}

#[actix::test]
async fn running_turns_are_discarded_on_a_restore_and_all_are_notified() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    world.say_and_wait(id, "one").await;
    let older = create_save(&world).await;
    world.say_and_wait(id, "two").await;
    let begun = world.new_session().await;
    world.say_and_wait(begun, "begun since").await;
    let newer = create_save(&world).await;
    let (ear, other) = (world.attach_recorder(id).await, world.attach_recorder(begun).await);
    let held = world.say_line(id, "hold").await;
    world.wait_for_begun(4).await;

    // The model stays held: the restore does not wait for the model.
    let restored = load_save(&world, older).await;
    assert_eq!(
        (restored.changed, restored.ended_dialogues, restored.removed_turns),
        (2, 1, 2)
    );
    assert!(matches!(*wait_for_turn(held).await.unwrap_err(), TurnError::Unsaid));
    ear.wait_for_event("rewound 1").await;
    assert_eq!(
        ear.event_labels(),
        ["started 3", "interrupted 3", "error turn_unsaid", "rewound 1"]
    );
    other.wait_for_event("closed restored").await;
    assert_eq!(other.event_labels(), ["rewound 0", "closed restored"]);
    assert_eq!(head_and_history_len(&world, id).await, (1, 1));
    assert!(matches!(
        world.say_line(begun, "more").await,
        Err(DialogueError::Closed)
    ));
    let next = world.say_and_wait(id, "two, otherwise").await;
    assert_eq!(next.number, 2);
    assert_eq!(ear.event_labels()[4..], ["started 2", "completed 2", "committed 2"]);
    wait_until("memories are settled", || world.fake.settled.load(Relaxed) > 0).await;

    load_save(&world, newer).await;
    assert_eq!(
        (
            head_and_history_len(&world, id).await,
            head_and_history_len(&world, begun).await
        ),
        ((2, 2), (1, 1))
    );
    assert_eq!(ear.event_labels()[7..], ["rewound 2"]);
    assert_eq!(world.say_and_wait(begun, "more").await.number, 2);
    assert_eq!(world.say_and_wait(id, "three").await.number, 3);
    assert!(ear.heard_seqs().is_sorted_by(|a, b| a < b));
    world.shut_down().await;
}

#[actix::test]
async fn conversation_ended_by_a_restore_publishes_its_head() {
    let world = TestWorld::new().await;
    let id = world.new_conversation("the mill", 20, false).await;
    world.say_next_line(id).await;
    let older = create_save(&world).await;
    world.say_next_line(id).await;
    world
        .sessions
        .end_conversation(&world.scope, id, "closed by request")
        .await
        .unwrap();
    let newer = create_save(&world).await;
    load_save(&world, older).await;
    let ear = world.attach_watcher(id, None).await;
    load_save(&world, newer).await;
    ear.wait_for_event("ended 2 restored").await;
    world.shut_down().await;
}

#[actix::test]
async fn hung_job_unsaid_by_a_restore_blocks_no_other_job() {
    let mut settings = test_dialogue_settings();
    settings.turn.wait_for_memory_ms = 0;
    let world = TestWorld::with_settings(super::world::test_actor_settings(), settings).await;
    let id = world.new_session().await;
    world.say_and_wait(id, "one").await;
    let taken = create_save(&world).await;
    (*world.fake.with_jobs.lock(), *world.fake.hold_jobs.lock()) = (true, true);
    world.say_and_wait(id, "taken back").await;
    wait_until("its job hangs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    load_save(&world, taken).await;
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
async fn running_turn_is_cancelled_by_a_restore_that_removes_nothing_else() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    world.say_and_wait(id, "one").await;
    let taken = create_save(&world).await;
    let ear = world.attach_recorder(id).await;
    let held = world.say_line(id, "hold").await;
    world.wait_for_begun(2).await;
    let restored = load_save(&world, taken).await;
    assert_eq!(restored.changed, 0);
    assert!(matches!(*wait_for_turn(held).await.unwrap_err(), TurnError::Unsaid));
    ear.wait_for_event("failed 2").await;
    assert_eq!(world.say_and_wait(id, "two").await.number, 2);
    assert_eq!(
        ear.event_labels(),
        ["started 2", "failed 2", "started 2", "completed 2", "committed 2"]
    );
    world.shut_down().await;
}

#[actix::test]
async fn queued_lines_are_cancelled_with_the_turns_a_restore_removes() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    world.say_and_wait(id, "one").await;
    let older = create_save(&world).await;
    world.say_and_wait(id, "two").await;
    let newer = create_save(&world).await;
    let ear = world.attach_recorder(id).await;
    // First the present state, where only the running turn is cancelled; then an older state.
    for (save, next) in [(newer, 3), (older, 2)] {
        let told = ear.event_labels().len();
        let held = world.say_line(id, "hold").await;
        wait_until("it is said", || {
            world.fake.spoken.lock().last().is_some_and(|line| line == "hold")
        })
        .await;
        let key = format!("waits for {next}");
        let waits = world.say_line_with(id, "after that", Some(&key), OnBusy::Queue).await;
        load_save(&world, save).await;
        for unsaid in [held, waits] {
            let unsaid = wait_for_turn(unsaid).await.unwrap_err();
            assert!(matches!(*unsaid, TurnError::Unsaid), "{unsaid:?}");
        }
        let again = world.say_line_with(id, "after that", Some(&key), OnBusy::Queue).await;
        assert!(matches!(again, Err(DialogueError::TurnUnsaid)));
        assert!(ear.event_labels()[told..].contains(&"error turn_unsaid".to_owned()));
        assert_eq!(world.say_and_wait(id, "and now?").await.number, next);
    }
    let spoken = world.fake.spoken.lock().clone();
    assert_eq!(spoken, ["one", "two", "hold", "and now?", "hold", "and now?"]);
    world.shut_down().await;
}

#[actix::test]
async fn lines_queued_behind_a_fenced_turn_fail_with_it_and_may_be_retried() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    world.say_and_wait(id, "one").await;
    let taken = create_save(&world).await;
    let ear = world.attach_recorder(id).await;
    let held = world.say_line(id, "hold").await;
    world.wait_for_begun(2).await;
    let waits = world
        .say_line_with(id, "after that", Some("waits"), OnBusy::Queue)
        .await;
    // The save has the present head, so no turn is removed, but the running turn is fenced.
    load_save_remotely(&world, taken).await;
    world.fake.go.add_permits(1);
    for fenced in [held, waits] {
        let fenced = wait_for_turn(fenced).await.unwrap_err();
        assert!(matches!(*fenced, TurnError::Fenced), "{fenced:?}");
    }
    let again = world
        .say_line_with(id, "after that", Some("waits"), OnBusy::Queue)
        .await;
    assert_eq!(wait_for_turn(again).await.unwrap().number, 2);
    assert_eq!(
        ear.event_labels(),
        [
            "started 2",
            "completed 2",
            "error wrong_node",
            "error wrong_node",
            "started 2",
            "completed 2",
            "committed 2"
        ]
    );
    assert_eq!(*world.fake.spoken.lock(), ["one", "hold", "after that"]);
    world.shut_down().await;
}

#[actix::test]
async fn dialogue_ended_by_a_restore_reports_it_before_the_notice_arrives() {
    let world = TestWorld::new().await;
    let taken = create_save(&world).await;
    let id = world.new_session().await;
    world.say_and_wait(id, "begun since").await;
    let ear = world.attach_recorder(id).await;
    let held = world.say_line(id, "hold").await;
    world.wait_for_begun(2).await;
    let waits = world.say_line(id, "after that").await;
    let talk = world.new_conversation("hold", 20, true).await;
    let watcher = world.attach_watcher(talk, Some(1)).await;
    world.wait_for_begun(3).await;
    let dialogues = load_save_remotely(&world, taken).await;
    world.fake.go.add_permits(2);
    ear.wait_for_event("closed restored").await;
    watcher.wait_for_event("ended 0 restored").await;
    assert!(matches!(*wait_for_turn(held).await.unwrap_err(), TurnError::Fenced));
    assert!(matches!(*wait_for_turn(waits).await.unwrap_err(), TurnError::Unsaid));
    assert_eq!(world.fake.spoken.lock().len(), 3, "what waited is not said");
    world.sessions.on_world_restored(&world.scope, dialogues).await;
    assert!(matches!(world.say_line(id, "more").await, Err(DialogueError::Closed)));
    let (told, watched) = (ear.event_labels(), watcher.event_labels());
    let ends = |story: &[String], end: &str| story.iter().filter(|event| *event == end).count();
    assert_eq!(
        (ends(&told, "rewound 0"), ends(&told, "closed restored")),
        (1, 1),
        "{told:?}"
    );
    assert_eq!(ends(&watched, "ended 0 restored"), 1, "{watched:?}");
    world.shut_down().await;
}

#[actix::test]
async fn rewind_overtaken_by_a_restore_is_rejected_and_the_restore_stands() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    world.say_and_wait(id, "one").await;
    world.say_and_wait(id, "two").await;
    let taken = create_save(&world).await;
    world.say_and_wait(id, "three").await;
    let ear = world.attach_recorder(id).await;
    *world.fake.hold_rewinds.lock() = true;
    let meanwhile = async {
        wait_until("the move begins", || !world.fake.rewinds.lock().is_empty()).await;
        load_save(&world, taken).await;
        world.fake.rewind_go.add_permits(1);
    };
    let (moved, ()) = tokio::join!(world.rewind_to(id, 1), meanwhile);
    assert!(matches!(moved, Err(DialogueError::Overloaded { .. })), "{moved:?}");
    assert_eq!(head_and_history_len(&world, id).await, (2, 2));
    assert_eq!(ear.event_labels(), ["rewound 2"]);
    assert_eq!(world.say_and_wait(id, "three, otherwise").await.number, 3);
    assert!(ear.heard_seqs().is_sorted_by(|a, b| a < b));
    world.shut_down().await;
}

#[actix::test]
async fn absent_listener_is_notified_of_a_restore_after_a_restart() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    let ear = world.attach_recorder(id).await;
    world.say_and_wait(id, "one").await;
    let taken = create_save(&world).await;
    world.say_and_wait(id, "two").await;
    let seen = *ear.heard_seqs().last().unwrap();
    load_save(&world, taken).await;
    world.say_and_wait(id, "two, otherwise").await;
    let world = world.restart_process();
    let late = RecordingListener::new();
    let listener: Arc<dyn Listener> = Arc::<RecordingListener>::clone(&late);
    world
        .sessions
        .attach_listener(&world.scope, id, listener, Some(seen))
        .await
        .unwrap();
    assert_eq!(
        late.event_labels(),
        ["rewound 1", "started 2", "completed 2", "committed 2"]
    );
    assert_eq!(late.heard_seqs(), ear.heard_seqs()[6..]);
    world.shut_down().await;
}

#[actix::test]
async fn late_notice_of_a_restore_unsays_no_newer_turn() {
    let world = TestWorld::new().await;
    let id = world.new_session().await;
    world.say_and_wait(id, "one").await;
    let taken = create_save(&world).await;
    world.say_and_wait(id, "two").await;
    let ear = world.attach_recorder(id).await;
    let held = world.say_line(id, "hold").await;
    world.wait_for_begun(3).await;
    let waits = world.say_line(id, "after that").await;
    let dialogues = load_save_remotely(&world, taken).await;
    world.fake.go.add_permits(1);
    let fenced = wait_for_turn(held).await.unwrap_err();
    assert!(matches!(*fenced, TurnError::Fenced), "{fenced:?}");
    assert!(matches!(*wait_for_turn(waits).await.unwrap_err(), TurnError::Unsaid));
    // The rewind is published before the events of later turns.
    assert_eq!(world.say_and_wait(id, "two, otherwise").await.number, 2);
    let before = ear.event_labels();
    let at = before.iter().position(|event| event == "rewound 1").unwrap();
    assert_eq!(
        before[at + 1..],
        ["error turn_unsaid", "started 2", "completed 2", "committed 2"],
        "{before:?}"
    );
    let held = world.say_line(id, "hold").await;
    world.wait_for_begun(5).await;
    world.sessions.on_world_restored(&world.scope, dialogues).await;
    world.fake.go.add_permits(1);
    assert_eq!(wait_for_turn(held).await.unwrap().number, 3);
    assert_eq!(
        ear.event_labels()[before.len()..],
        ["started 3", "completed 3", "committed 3"]
    );
    assert!(ear.heard_seqs().is_sorted_by(|a, b| a < b));
    world.shut_down().await;
}
