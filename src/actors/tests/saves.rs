//! A save that is loaded while turns run, heads are moved and nobody is there.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use super::world::{Ear, World, dialogue_settings, outcome, until};
use crate::{
    actors::{Listener, OnBusy, SessionError, use_cases::UseCases as _},
    dialogue::{saves::RestoreRequest, turn::TurnError},
    ids::{DialogueId, SaveId},
    ports::ledger::{
        audit::Edit,
        saves::{NewSave, RestoreOutcome, Restored, RestoredDialogue},
    },
};

pub(super) async fn save(world: &World) -> SaveId {
    let (id, now) = (world.ports.ids.next(), world.ports.clock.now());
    let save = NewSave {
        id,
        world: "vale".parse().unwrap(),
        name: String::new(),
        max: 9,
        edit: Edit::by(&world.who(), &world.ports.ids, now, "save.create", id),
    };
    world.ports.ledger.saves.create(&world.scope, &save).await.unwrap();
    id
}

pub(super) async fn load(world: &World, save: SaveId) -> Restored {
    let vale = "vale".parse().unwrap();
    match world.sessions.restore(&world.who(), &vale, save, None).await.unwrap() {
        RestoreOutcome::Done { restored, .. } => restored,
        other => panic!("not restored: {other:?}"),
    }
}

/// Another node loads it, and its notice is on the way.
pub(super) async fn loaded_elsewhere(world: &World, save: SaveId) -> Vec<RestoredDialogue> {
    let request = RestoreRequest {
        scope: world.scope.clone(),
        world: "vale".parse().unwrap(),
        save,
        key: None,
        seq_gap: 10,
        who: world.who(),
    };
    match world.fake.restore(request).await.unwrap() {
        RestoreOutcome::Done { dialogues, .. } => dialogues,
        other => panic!("not restored: {other:?}"),
    }
}

async fn head(world: &World, id: DialogueId) -> (u32, usize) {
    let view = world.sessions.view(&world.scope, id).await.unwrap();
    (view.dialogue.head_turn, view.history.len())
}

#[actix::test]
async fn what_runs_when_a_save_is_loaded_never_happened_and_all_are_told() {
    let world = World::new().await;
    let id = world.session().await;
    world.turn(id, "one").await;
    let older = save(&world).await;
    world.turn(id, "two").await;
    let begun = world.session().await;
    world.turn(begun, "begun since").await;
    let newer = save(&world).await;
    let (ear, other) = (world.listen(id).await, world.listen(begun).await);
    let held = world.say(id, "hold").await;
    world.begun(4).await;

    // Nobody lets the model go: it is not waited for.
    let restored = load(&world, older).await;
    assert_eq!((restored.changed, restored.ended, restored.removed_turns), (2, 1, 2));
    assert!(matches!(*outcome(held).await.unwrap_err(), TurnError::Unsaid));
    ear.hears("rewound 1").await;
    assert_eq!(
        ear.story(),
        ["started 3", "interrupted 3", "error turn_unsaid", "rewound 1"]
    );
    other.hears("closed restored").await;
    assert_eq!(other.story(), ["rewound 0", "closed restored"]);
    assert_eq!(head(&world, id).await, (1, 1));
    assert!(matches!(world.say(begun, "more").await, Err(SessionError::Closed)));
    let next = world.turn(id, "two, otherwise").await;
    assert_eq!(next.number, 2);
    assert_eq!(ear.story()[4..], ["started 2", "completed 2", "committed 2"]);
    until("memories are settled", || world.fake.settled.load(Relaxed) > 0).await;

    load(&world, newer).await;
    assert_eq!((head(&world, id).await, head(&world, begun).await), ((2, 2), (1, 1)));
    assert_eq!(ear.story()[7..], ["rewound 2"]);
    assert_eq!(world.turn(begun, "more").await.number, 2);
    assert_eq!(world.turn(id, "three").await.number, 3);
    assert!(ear.seqs().is_sorted_by(|a, b| a < b));
    world.end().await;
}

#[actix::test]
async fn a_conversation_that_a_save_ends_tells_where_it_stands() {
    let world = World::new().await;
    let id = world.talk("the mill", 20, false).await;
    world.step(id).await;
    let older = save(&world).await;
    world.step(id).await;
    world.talks().end(&world.scope, id, "closed by request").await.unwrap();
    let newer = save(&world).await;
    load(&world, older).await;
    let ear = world.watch(id, None).await;
    load(&world, newer).await;
    ear.hears("ended 2 restored").await;
    world.end().await;
}

#[actix::test]
async fn a_job_that_hangs_for_what_a_save_unsaid_holds_up_no_other() {
    let mut settings = dialogue_settings();
    settings.turn.wait_for_memory_ms = 0;
    let world = World::with(super::world::settings(), settings).await;
    let id = world.session().await;
    world.turn(id, "one").await;
    let taken = save(&world).await;
    (*world.fake.with_jobs.lock(), *world.fake.hold_jobs.lock()) = (true, true);
    world.turn(id, "taken back").await;
    until("its job hangs", || world.fake.running_jobs.load(Relaxed) == 1).await;
    load(&world, taken).await;
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
async fn a_turn_is_let_go_though_nothing_else_is_taken_back() {
    let world = World::new().await;
    let id = world.session().await;
    world.turn(id, "one").await;
    let taken = save(&world).await;
    let ear = world.listen(id).await;
    let held = world.say(id, "hold").await;
    world.begun(2).await;
    let restored = load(&world, taken).await;
    assert_eq!(restored.changed, 0);
    assert!(matches!(*outcome(held).await.unwrap_err(), TurnError::Unsaid));
    ear.hears("failed 2").await;
    assert_eq!(world.turn(id, "two").await.number, 2);
    assert_eq!(
        ear.story(),
        ["started 2", "failed 2", "started 2", "completed 2", "committed 2"]
    );
    world.end().await;
}

#[actix::test]
async fn lines_that_waited_when_a_save_was_loaded_go_with_what_they_followed() {
    let world = World::new().await;
    let id = world.session().await;
    world.turn(id, "one").await;
    let older = save(&world).await;
    world.turn(id, "two").await;
    let newer = save(&world).await;
    let ear = world.listen(id).await;
    // Back, and to where it stands, where only what runs is let go.
    for (save, next) in [(newer, 3), (older, 2)] {
        let told = ear.story().len();
        let held = world.say(id, "hold").await;
        until("it is said", || {
            world.fake.spoken.lock().last().is_some_and(|line| line == "hold")
        })
        .await;
        let key = format!("waits for {next}");
        let waits = world.say_with(id, "after that", Some(&key), OnBusy::Queue).await;
        load(&world, save).await;
        for unsaid in [held, waits] {
            let unsaid = outcome(unsaid).await.unwrap_err();
            assert!(matches!(*unsaid, TurnError::Unsaid), "{unsaid:?}");
        }
        let again = world.say_with(id, "after that", Some(&key), OnBusy::Queue).await;
        assert!(matches!(again, Err(SessionError::TurnUnsaid)));
        assert!(ear.story()[told..].contains(&"error turn_unsaid".to_owned()));
        assert_eq!(world.turn(id, "and now?").await.number, next);
    }
    let spoken = world.fake.spoken.lock().clone();
    assert_eq!(spoken, ["one", "two", "hold", "and now?", "hold", "and now?"]);
    world.end().await;
}

#[actix::test]
async fn lines_behind_a_turn_that_was_fenced_end_as_it_did_and_may_be_said_again() {
    let world = World::new().await;
    let id = world.session().await;
    world.turn(id, "one").await;
    let taken = save(&world).await;
    let ear = world.listen(id).await;
    let held = world.say(id, "hold").await;
    world.begun(2).await;
    let waits = world.say_with(id, "after that", Some("waits"), OnBusy::Queue).await;
    // It has the dialogue where it stands, so that nothing is moved, and what runs is fenced.
    loaded_elsewhere(&world, taken).await;
    world.fake.go.add_permits(1);
    for fenced in [held, waits] {
        let fenced = outcome(fenced).await.unwrap_err();
        assert!(matches!(*fenced, TurnError::Fenced), "{fenced:?}");
    }
    let again = world.say_with(id, "after that", Some("waits"), OnBusy::Queue).await;
    assert_eq!(outcome(again).await.unwrap().number, 2);
    assert_eq!(
        ear.story(),
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
    world.end().await;
}

#[actix::test]
async fn what_a_save_ended_says_so_before_its_notice_comes() {
    let world = World::new().await;
    let taken = save(&world).await;
    let id = world.session().await;
    world.turn(id, "begun since").await;
    let ear = world.listen(id).await;
    let held = world.say(id, "hold").await;
    world.begun(2).await;
    let waits = world.say(id, "after that").await;
    let talk = world.talk("hold", 20, true).await;
    let watcher = world.watch(talk, Some(1)).await;
    world.begun(3).await;
    let dialogues = loaded_elsewhere(&world, taken).await;
    world.fake.go.add_permits(2);
    ear.hears("closed restored").await;
    watcher.hears("ended 0 restored").await;
    assert!(matches!(*outcome(held).await.unwrap_err(), TurnError::Fenced));
    assert!(matches!(*outcome(waits).await.unwrap_err(), TurnError::Unsaid));
    assert_eq!(world.fake.spoken.lock().len(), 3, "what waited is not said");
    world.sessions.was_restored(&world.scope, dialogues).await;
    assert!(matches!(world.say(id, "more").await, Err(SessionError::Closed)));
    let (told, watched) = (ear.story(), watcher.story());
    let ends = |story: &[String], end: &str| story.iter().filter(|event| *event == end).count();
    assert_eq!(
        (ends(&told, "rewound 0"), ends(&told, "closed restored")),
        (1, 1),
        "{told:?}"
    );
    assert_eq!(ends(&watched, "ended 0 restored"), 1, "{watched:?}");
    world.end().await;
}

#[actix::test]
async fn a_move_that_a_save_overtook_is_refused_and_the_save_stands() {
    let world = World::new().await;
    let id = world.session().await;
    world.turn(id, "one").await;
    world.turn(id, "two").await;
    let taken = save(&world).await;
    world.turn(id, "three").await;
    let ear = world.listen(id).await;
    *world.fake.hold_rewinds.lock() = true;
    let meanwhile = async {
        until("the move begins", || !world.fake.rewinds.lock().is_empty()).await;
        load(&world, taken).await;
        world.fake.rewind_go.add_permits(1);
    };
    let (moved, ()) = tokio::join!(world.back(id, 1), meanwhile);
    assert!(matches!(moved, Err(SessionError::Overloaded { .. })), "{moved:?}");
    assert_eq!(head(&world, id).await, (2, 2));
    assert_eq!(ear.story(), ["rewound 2"]);
    assert_eq!(world.turn(id, "three, otherwise").await.number, 3);
    assert!(ear.seqs().is_sorted_by(|a, b| a < b));
    world.end().await;
}

#[actix::test]
async fn whoever_was_away_hears_of_it_after_a_restart() {
    let world = World::new().await;
    let id = world.session().await;
    let ear = world.listen(id).await;
    world.turn(id, "one").await;
    let taken = save(&world).await;
    world.turn(id, "two").await;
    let seen = *ear.seqs().last().unwrap();
    load(&world, taken).await;
    world.turn(id, "two, otherwise").await;
    let world = world.restarted();
    let late = Ear::new();
    let listener: Arc<dyn Listener> = Arc::<Ear>::clone(&late);
    world
        .sessions
        .attach(&world.scope, id, listener, Some(seen))
        .await
        .unwrap();
    assert_eq!(late.story(), ["rewound 1", "started 2", "completed 2", "committed 2"]);
    assert_eq!(late.seqs(), ear.seqs()[6..]);
    world.end().await;
}

#[actix::test]
async fn what_is_told_late_of_a_save_unsays_nothing_that_was_said_since() {
    let world = World::new().await;
    let id = world.session().await;
    world.turn(id, "one").await;
    let taken = save(&world).await;
    world.turn(id, "two").await;
    let ear = world.listen(id).await;
    let held = world.say(id, "hold").await;
    world.begun(3).await;
    let waits = world.say(id, "after that").await;
    let dialogues = loaded_elsewhere(&world, taken).await;
    world.fake.go.add_permits(1);
    let fenced = outcome(held).await.unwrap_err();
    assert!(matches!(*fenced, TurnError::Fenced), "{fenced:?}");
    assert!(matches!(*outcome(waits).await.unwrap_err(), TurnError::Unsaid));
    // What was moved is told before anything that is said on top of it.
    assert_eq!(world.turn(id, "two, otherwise").await.number, 2);
    let before = ear.story();
    let at = before.iter().position(|event| event == "rewound 1").unwrap();
    assert_eq!(
        before[at + 1..],
        ["error turn_unsaid", "started 2", "completed 2", "committed 2"],
        "{before:?}"
    );
    let held = world.say(id, "hold").await;
    world.begun(5).await;
    world.sessions.was_restored(&world.scope, dialogues).await;
    world.fake.go.add_permits(1);
    assert_eq!(outcome(held).await.unwrap().number, 3);
    assert_eq!(ear.story()[before.len()..], ["started 3", "completed 3", "committed 3"]);
    assert!(ear.seqs().is_sorted_by(|a, b| a < b));
    world.end().await;
}
