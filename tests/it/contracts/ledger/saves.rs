use colloquy::{
    ids::{DialogueId, SaveId},
    ports::ledger::{
        authored::DeleteOutcome,
        dialogues::{CommitOutcome, DialogueStatus},
        facts::ReconcileOutcome,
        rewinds::RewindRecord,
        saves::{NewSave, RestoreCommit, RestoreOutcome, RestoreReport, RestoredDialogue, Save, SaveOutcome},
    },
    tenancy::TenantScope,
};

use super::{
    LedgerSubject,
    fixture::{Fixture, page},
    rewind_fixtures::{RewindFixture, dialogue_with_turns},
    state::{load_clock, pass_days, put_clock},
};

pub(super) async fn put_default_world<S: LedgerSubject>(f: &Fixture<S>) {
    for id in ["vale", "moor"] {
        f.put_world(id).await;
    }
}

fn new_save<S: LedgerSubject>(f: &Fixture<S>, name: &str) -> NewSave {
    NewSave {
        id: f.id(),
        world: f.world.clone(),
        name: name.to_owned(),
        max: 100,
        edit: f.audit_edit("save.create"),
    }
}

pub(super) async fn take_save<S: LedgerSubject>(f: &Fixture<S>, name: &str) -> Save {
    f.advance_clock();
    match f
        .ledger()
        .saves
        .create_save(&f.scope, &new_save(f, name))
        .await
        .unwrap()
    {
        SaveOutcome::Saved(save) => save,
        other => panic!("not saved: {other:?}"),
    }
}

fn restore_request<S: LedgerSubject>(f: &Fixture<S>, save: SaveId) -> RestoreCommit {
    RestoreCommit {
        world: f.world.clone(),
        save,
        key: None,
        seq_gap: 10,
        edit: f.audit_edit("save.restore"),
    }
}

pub(super) async fn restore_save<S: LedgerSubject>(
    f: &Fixture<S>,
    save: SaveId,
) -> (RestoreReport, Vec<RestoredDialogue>) {
    f.advance_clock();
    match f
        .ledger()
        .saves
        .restore_save(&f.scope, &restore_request(f, save))
        .await
        .unwrap()
    {
        RestoreOutcome::Done { restored, dialogues } => {
            let moved = dialogues.into_iter().filter(|dialogue| dialogue.rewound.is_some());
            (restored, moved.collect())
        }
        other => panic!("not restored: {other:?}"),
    }
}

/// Returns the rewind of a dialogue by a restore.
fn rewind_of(moved: &[RestoredDialogue], id: DialogueId, open: bool) -> &RewindRecord {
    let moved = moved.iter().find(|moved| moved.id == id).unwrap();
    assert_eq!(moved.open, open);
    moved.rewound.as_ref().unwrap()
}

async fn status<S: LedgerSubject>(f: &Fixture<S>, id: DialogueId) -> DialogueStatus {
    f.ledger()
        .dialogues
        .load_dialogue(&f.scope, id)
        .await
        .unwrap()
        .unwrap()
        .status
}

async fn turn_numbers<S: LedgerSubject>(f: &Fixture<S>, id: DialogueId) -> Vec<u32> {
    let turns = f.ledger().dialogues.load_turns(&f.scope, id, 1, 99).await.unwrap();
    turns.iter().map(|turn| turn.number).collect()
}

pub(super) async fn checkpoint_turn<S: LedgerSubject>(f: &Fixture<S>, id: DialogueId) -> Option<u32> {
    let checkpoint = f.ledger().dialogues.load_checkpoint(&f.scope, id).await.unwrap();
    checkpoint.map(|checkpoint| checkpoint.turn)
}

pub async fn saves_are_taken_listed_and_deleted<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    dialogue_with_turns(f, 1).await;
    let closed = f.open_dialogue().await;
    f.close_dialogue(closed.dialogue.id, closed.epoch).await;
    let mut elsewhere = f.sample_dialogue();
    elsewhere.world = "moor".parse().unwrap();
    f.ledger()
        .dialogues
        .create_dialogue(&f.scope, &elsewhere)
        .await
        .unwrap();
    let mut taken = Vec::new();
    for name in ["before the gate", "", "after"] {
        taken.push(take_save(f, name).await);
    }
    assert_eq!((taken[0].dialogues, taken[0].name.as_str()), (2, "before the gate"));
    let saves = &f.ledger().saves;
    let first = saves.list_saves(&f.scope, &f.world, &page(2, None)).await.unwrap();
    assert_eq!(first.items, [taken[2].clone(), taken[1].clone()]);
    let second = saves
        .list_saves(&f.scope, &f.world, &page(2, first.next))
        .await
        .unwrap();
    assert_eq!((second.items, second.next), (vec![taken[0].clone()], None));
    let moor = "moor".parse().unwrap();
    assert!(
        saves
            .list_saves(&f.scope, &moor, &page(9, None))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert!(
        saves
            .list_saves(&f.other, &f.world, &page(9, None))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    let id = taken[1].id;
    assert_eq!(
        saves.load_save(&f.scope, &f.world, id).await.unwrap(),
        Some(taken[1].clone())
    );
    assert_eq!(saves.load_save(&f.other, &f.world, id).await.unwrap(), None);
    assert_eq!(saves.load_save(&f.scope, &moor, id).await.unwrap(), None);

    let edit = f.audit_edit("save.delete");
    assert!(!saves.delete_save(&f.other, &f.world, id, &edit).await.unwrap());
    assert!(!saves.delete_save(&f.scope, &moor, id, &edit).await.unwrap());
    assert!(saves.delete_save(&f.scope, &f.world, id, &edit).await.unwrap());
    assert!(
        !saves
            .delete_save(&f.scope, &f.world, id, &f.audit_edit("save.delete"))
            .await
            .unwrap()
    );
    assert_eq!(
        saves
            .list_saves(&f.scope, &f.world, &page(9, None))
            .await
            .unwrap()
            .items
            .len(),
        2
    );
    let rows = f
        .ledger()
        .audit
        .list_audit_rows(&f.scope, &page(9, None))
        .await
        .unwrap()
        .items;
    let actions: Vec<&str> = rows.iter().take(4).map(|row| row.action.as_str()).collect();
    assert_eq!(actions, ["save.delete", "save.create", "save.create", "save.create"]);
}

pub async fn saves_of_a_world_are_limited<S: LedgerSubject>(f: &mut Fixture<S>) {
    let saves = &f.ledger().saves;
    assert_eq!(
        saves.create_save(&f.scope, &new_save(f, "")).await.unwrap(),
        SaveOutcome::NoSuchWorld
    );
    put_default_world(f).await;
    let few = || NewSave {
        max: 2,
        ..new_save(f, "")
    };
    for _ in 0..2 {
        assert!(matches!(
            saves.create_save(&f.scope, &few()).await.unwrap(),
            SaveOutcome::Saved(_)
        ));
    }
    assert_eq!(saves.create_save(&f.scope, &few()).await.unwrap(), SaveOutcome::Full);
    let elsewhere = NewSave {
        world: "moor".parse().unwrap(),
        ..few()
    };
    assert!(matches!(
        saves.create_save(&f.scope, &elsewhere).await.unwrap(),
        SaveOutcome::Saved(_)
    ));
    assert_eq!(
        saves
            .list_saves(&f.scope, &f.world, &page(9, None))
            .await
            .unwrap()
            .items
            .len(),
        2
    );
    assert_eq!(
        saves.create_save(&f.other, &few()).await.unwrap(),
        SaveOutcome::NoSuchWorld,
        "another tenant's world"
    );
}

/// Rewinds to the first turn and adds three other turns.
async fn take_another_branch<S: LedgerSubject>(f: &Fixture<S>, branches: &mut RewindFixture) {
    let to = branches.turn(1);
    branches.rewind_to(f, Some(to)).await;
    branches.turns.truncate(1);
    branches.extractions.truncate(1);
    for number in 2..=4 {
        let mut commit = branches.turn_commit(f, number);
        commit.key = None;
        commit.next_seq = 101 + 3 * u64::from(number);
        f.advance_clock();
        f.commit_turn(&commit).await;
        branches.extractions.push(commit.jobs[0].clone());
        branches.turns.push(commit.turn);
    }
}

async fn assert_turns_can_be_continued<S: LedgerSubject>(f: &Fixture<S>, on: RewindFixture, newer: &Save) {
    // Continuing works from every turn of a pinned branch, not only the last.
    let mut again = RewindFixture {
        open: f.claim_dialogue(on.id()).await,
        ..on
    };
    let to = again.turn(4);
    again.rewind_to(f, Some(to)).await;
    assert_eq!(checkpoint_turn(f, again.id()).await, Some(4));
    // Restoring a save that matches the current state changes nothing.
    restore_save(f, newer.id).await;
    let (restored, moved) = restore_save(f, newer.id).await;
    assert_eq!((restored.changed, moved.len()), (0, 0));
}

#[expect(clippy::too_many_lines, reason = "one story, in its order")]
pub async fn saves_older_then_newer_are_restored_whole<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    // One dialogue continues, one is closed, one takes another branch, and one stays unchanged.
    let (mut on, closed, mut branches, still) = (
        dialogue_with_turns(f, 3).await,
        dialogue_with_turns(f, 2).await,
        dialogue_with_turns(f, 3).await,
        dialogue_with_turns(f, 1).await,
    );
    let grapes = on.learn_fact(f, 1, "The player likes grapes.", &[]).await;
    let pears = closed.learn_fact(f, 2, "The player likes pears.", &[grapes]).await;
    let old = branches.learn_fact(f, 3, "The player likes plums.", &[]).await;
    let older = take_save(f, "older").await;
    let mut facts = vec![grapes, pears, old];
    let talks =
        |on: &RewindFixture, closed: &RewindFixture, branches: &RewindFixture| [on.id(), closed.id(), branches.id()];
    let ids = talks(&on, &closed, &branches);
    let mut first = Vec::new();
    for talk in [&on, &closed, &branches, &still] {
        first.push(talk.visible_state(f, &facts).await);
    }

    on.commit_turn(f, 4).await;
    on.commit_turn(f, 5).await;
    facts.push(on.learn_fact(f, 4, "The player likes figs now.", &[pears]).await);
    f.close_dialogue(closed.id(), closed.open.epoch).await;
    take_another_branch(f, &mut branches).await;
    facts.push(branches.learn_fact(f, 4, "The player likes dates.", &[grapes]).await);
    let begun = dialogue_with_turns(f, 2).await;
    facts.push(begun.learn_fact(f, 2, "The player likes limes.", &[facts[3]]).await);
    let newer = take_save(f, "newer").await;
    // Every learned fact has a dialogue of its own: three per save.
    assert_eq!((older.dialogues, newer.dialogues), (4 + 3, 5 + 6));
    let mut second = Vec::new();
    for talk in [&on, &closed, &branches, &still, &begun] {
        second.push(talk.visible_state(f, &facts).await);
    }

    for _ in 0..2 {
        let (restored, moved) = restore_save(f, older.id).await;
        assert_eq!(
            (restored.changed, restored.ended_dialogues, restored.reopened),
            (4 + 3, 1 + 3, 1)
        );
        assert_eq!((restored.removed_turns, restored.reinstated_turns), (2 + 3 + 2 + 3, 2));
        assert_eq!(rewind_of(&moved, on.id(), true).removed, [4, 5]);
        for (talk, seen) in [&on, &closed, &branches, &still].into_iter().zip(&first) {
            assert_eq!(&talk.visible_state(f, &facts[..3]).await, seen);
        }
        for fact in &facts[3..] {
            assert!(f.fact(*fact).await.invalid.is_some(), "from the save's future");
        }
        let confirmed = f
            .ledger()
            .facts
            .confirm_facts(&f.scope, &f.viewpoint(), &facts, f.now())
            .await
            .unwrap()
            .open;
        assert!(confirmed.iter().all(|row| facts[..3].contains(&row.fact)));
        assert_eq!(
            (turn_numbers(f, begun.id()).await.len(), status(f, begun.id()).await),
            (0, DialogueStatus::Closed)
        );
        assert_eq!(status(f, closed.id()).await, DialogueStatus::Open);
        assert_eq!(checkpoint_turn(f, branches.id()).await, Some(3));
        for id in ids {
            let told = f
                .ledger()
                .rewinds
                .list_rewinds_since(&f.scope, id, 0, 99)
                .await
                .unwrap();
            assert_eq!(told.last().unwrap().rewound_at, restored.restored_at);
        }
        assert!(
            f.ledger()
                .rewinds
                .list_rewinds_since(&f.scope, still.id(), 0, 9)
                .await
                .unwrap()
                .is_empty()
        );

        // A new turn there is not in the other save.
        let open = f.claim_dialogue(on.id()).await;
        let mut commit = f.sample_commit(&open, 4, open.head);
        commit.next_seq = open.next_seq + 3;
        f.commit_turn(&commit).await;

        let (restored, moved) = restore_save(f, newer.id).await;
        assert_eq!(
            (restored.changed, restored.ended_dialogues, restored.reopened),
            (4 + 3, 1, 1 + 3)
        );
        let moved_on = rewind_of(&moved, on.id(), true);
        assert_eq!(
            (&moved_on.removed[..], &moved_on.reinstated[..]),
            (&[4][..], &[4, 5][..])
        );
        for (talk, seen) in [&on, &closed, &branches, &still, &begun].into_iter().zip(&second) {
            assert_eq!(&talk.visible_state(f, &facts).await, seen);
        }
        assert_eq!(status(f, begun.id()).await, DialogueStatus::Open);
        assert_eq!(status(f, closed.id()).await, DialogueStatus::Closed);
        for (id, head) in [(on.id(), 5), (branches.id(), 4), (begun.id(), 2)] {
            assert_eq!(checkpoint_turn(f, id).await, Some(head));
        }
    }
    let rows = f
        .ledger()
        .audit
        .list_audit_rows(&f.scope, &page(99, None))
        .await
        .unwrap()
        .items;
    let count = |action| rows.iter().filter(|row| row.action == action).count();
    assert_eq!(count("save.restore"), 4, "one row each");
    let of = |id: DialogueId| {
        let id = id.to_string();
        let rows = rows.iter().filter(move |row| row.object == id);
        rows.map(|row| row.action.clone()).collect::<Vec<_>>()
    };
    // Audit rows exist for the moved dialogues only.
    assert_eq!(of(on.id()), ["session.restore"; 4]);
    assert_eq!(of(still.id()), [""; 0]);
    assert_turns_can_be_continued(f, on, &newer).await;
}

pub async fn work_running_during_a_restore_cannot_write<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let (mut moved, still) = (dialogue_with_turns(f, 1).await, dialogue_with_turns(f, 2).await);
    let taken = take_save(f, "").await;
    moved.commit_turn(f, 2).await;
    let late = moved.fact_plan(f, 2, "The player likes figs.", &[]).await;
    let earlier = still.fact_plan(f, 2, "The player likes pears.", &[]).await;
    let (running, unmoved) = (moved.turn_commit(f, 3), still.turn_commit(f, 3));
    let (_, dialogues) = restore_save(f, taken.id).await;
    let told = dialogues.iter().find(|dialogue| dialogue.id == moved.id()).unwrap();
    assert!(!dialogues.iter().any(|dialogue| dialogue.id == still.id()));
    let ledger = f.ledger();
    for commit in [running, unmoved] {
        assert_eq!(
            ledger.turns.commit_turn(&f.scope, &commit).await.unwrap(),
            CommitOutcome::Fenced
        );
    }
    assert_eq!(
        ledger.facts.commit_reconciliation(&f.scope, &late).await.unwrap(),
        ReconcileOutcome::Fenced
    );
    assert_eq!(
        ledger.facts.commit_reconciliation(&f.scope, &earlier).await.unwrap(),
        ReconcileOutcome::Committed,
        "what stands in the save is still learned from"
    );
    assert_eq!(
        (turn_numbers(f, moved.id()).await, turn_numbers(f, still.id()).await),
        (vec![1], vec![1, 2])
    );
    // Event numbers that the owner may have published are not used again.
    let open = f.claim_dialogue(moved.id()).await;
    assert_eq!(open.next_seq, told.rewound.as_ref().unwrap().seq + 1);
    assert!(open.next_seq > moved.open.next_seq + 10);
    let mut next = f.sample_commit(&open, 2, open.head);
    next.next_seq = open.next_seq + 3;
    f.commit_turn(&next).await;
}

pub async fn deleted_save_retains_nothing<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let mut talk = dialogue_with_turns(f, 3).await;
    let short = take_save(f, "short").await;
    talk.commit_turn(f, 4).await;
    talk.commit_turn(f, 5).await;
    let (long, twin) = (take_save(f, "long").await, take_save(f, "twin").await);
    let to = talk.turn(1);
    talk.rewind_to(f, Some(to)).await;
    let saves = &f.ledger().saves;
    // Rewinds to turn `number`, and returns whether a checkpoint is left there.
    let mut kept = async |number: u32| {
        let there = talk.turn(number as usize);
        talk.rewind_to(f, Some(there)).await;
        let checkpoint = checkpoint_turn(f, talk.id()).await;
        let home = talk.turn(1);
        talk.rewind_to(f, Some(home)).await;
        checkpoint == Some(number)
    };
    assert!(kept(5).await && kept(4).await);
    assert!(
        saves
            .delete_save(&f.scope, &f.world, long.id, &f.audit_edit("save.delete"))
            .await
            .unwrap()
    );
    assert!(kept(5).await, "another save has it too");
    assert!(
        saves
            .delete_save(&f.scope, &f.world, twin.id, &f.audit_edit("save.delete"))
            .await
            .unwrap()
    );
    assert!(!kept(5).await && !kept(4).await);
    assert!(kept(3).await && kept(2).await, "the other save's");
    assert_eq!(
        saves
            .restore_save(&f.scope, &restore_request(f, long.id))
            .await
            .unwrap(),
        RestoreOutcome::NotFound
    );
    restore_save(f, short.id).await;
    assert_eq!(checkpoint_turn(f, talk.id()).await, Some(3));
    assert!(
        saves
            .delete_save(&f.scope, &f.world, short.id, &f.audit_edit("save.delete"))
            .await
            .unwrap()
    );
    assert_eq!(
        checkpoint_turn(f, talk.id()).await,
        Some(3),
        "what stands needs no save"
    );
}

pub async fn save_includes_a_turn_being_regenerated<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let mut talk = dialogue_with_turns(f, 2).await;
    let (first, second) = (talk.turn(1), talk.turn(2));
    let mut away = talk.rewind_request_to(f, Some(first));
    away.replacing = Some(second);
    talk.rewind(f, &away).await;
    let (kept, other) = (take_save(f, "meanwhile").await, take_save(f, "other").await);
    let saves = &f.ledger().saves;
    let edit = f.audit_edit("save.delete");
    assert!(saves.delete_save(&f.scope, &f.world, other.id, &edit).await.unwrap());
    restore_save(f, kept.id).await;
    assert_eq!(turn_numbers(f, talk.id()).await, [1, 2]);
    assert_eq!(checkpoint_turn(f, talk.id()).await, Some(2));

    // Without any save, the turn can still stand again.
    talk.open = f.claim_dialogue(talk.id()).await;
    let mut away = talk.rewind_request_to(f, Some(first));
    away.replacing = Some(second);
    talk.rewind(f, &away).await;
    let edit = f.audit_edit("save.delete");
    assert!(saves.delete_save(&f.scope, &f.world, kept.id, &edit).await.unwrap());
    talk.rewind_to(f, Some(second)).await;
    assert_eq!(checkpoint_turn(f, talk.id()).await, Some(2));
}

pub async fn restore_key_repeats_its_restore<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let mut talk = dialogue_with_turns(f, 1).await;
    let (first, other) = (take_save(f, "").await, take_save(f, "").await);
    talk.commit_turn(f, 2).await;
    let saves = &f.ledger().saves;
    let keyed = |save| RestoreCommit {
        key: Some("retry".to_owned()),
        ..restore_request(f, save)
    };
    let RestoreOutcome::Done { restored, .. } = saves.restore_save(&f.scope, &keyed(first.id)).await.unwrap() else {
        panic!("not restored");
    };
    let open = f.claim_dialogue(talk.id()).await;
    let mut commit = f.sample_commit(&open, 2, open.head);
    commit.next_seq = open.next_seq + 3;
    f.commit_turn(&commit).await;
    assert_eq!(
        saves.restore_save(&f.scope, &keyed(first.id)).await.unwrap(),
        RestoreOutcome::Repeated(restored)
    );
    assert_eq!(turn_numbers(f, talk.id()).await, [1, 2], "nothing is restored twice");
    assert_eq!(
        saves.restore_save(&f.scope, &keyed(other.id)).await.unwrap(),
        RestoreOutcome::KeyTaken
    );
    let missing = async |scope: &TenantScope, restore: RestoreCommit| {
        assert_eq!(
            saves.restore_save(scope, &restore).await.unwrap(),
            RestoreOutcome::NotFound
        );
    };
    missing(&f.other, keyed(first.id)).await;
    missing(&f.scope, restore_request(f, f.id())).await;
    let elsewhere = RestoreCommit {
        world: "moor".parse().unwrap(),
        ..restore_request(f, first.id)
    };
    missing(&f.scope, elsewhere).await;
    assert_eq!(turn_numbers(f, talk.id()).await, [1, 2]);
}

pub async fn save_and_restore_are_atomic<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let mut talks = Vec::new();
    for _ in 0..4 {
        talks.push(dialogue_with_turns(f, 1).await);
    }
    let low = take_save(f, "").await;
    for talk in &mut talks {
        talk.commit_turn(f, 2).await;
        talk.commit_turn(f, 3).await;
    }
    let high = take_save(f, "").await;
    let saves = &f.ledger().saves;
    for round in 0..5 {
        f.advance_clock();
        let (to_low, to_high, between) = (
            restore_request(f, low.id),
            restore_request(f, high.id),
            new_save(f, "between"),
        );
        let (first, second, taken) = tokio::join!(
            saves.restore_save(&f.scope, &to_low),
            saves.restore_save(&f.scope, &to_high),
            saves.create_save(&f.scope, &between),
        );
        assert!(matches!(first.unwrap(), RestoreOutcome::Done { .. }));
        assert!(matches!(second.unwrap(), RestoreOutcome::Done { .. }));
        assert!(matches!(taken.unwrap(), SaveOutcome::Saved(_)));
        let mut lengths = Vec::new();
        for restored in [None, Some(between.id)] {
            if let Some(save) = restored {
                restore_save(f, save).await;
            }
            let mut seen = Vec::new();
            for talk in &talks {
                seen.push(turn_numbers(f, talk.id()).await.len());
            }
            lengths.push(seen);
        }
        for seen in lengths {
            assert!(
                seen == [1; 4] || seen == [3; 4],
                "round {round}: half of something: {seen:?}"
            );
        }
    }
}

pub async fn dialogue_of_a_deleted_npc_is_not_reopened_by_a_restore<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let npc = f.sample_npc("vale", "mira");
    let authored = &f.ledger().authored;
    authored
        .put_npc(&f.scope, &npc, None, &f.audit_edit("npc.put"))
        .await
        .unwrap();
    let mut talk = dialogue_with_turns(f, 1).await;
    let taken = take_save(f, "").await;
    talk.commit_turn(f, 2).await;
    let gone = authored
        .delete_npc(&f.scope, &f.world, &npc.id, None, &f.audit_edit("npc.delete"))
        .await;
    assert_eq!(gone.unwrap(), DeleteOutcome::Deleted);
    assert_eq!(status(f, talk.id()).await, DialogueStatus::Closed);
    let (restored, _) = restore_save(f, taken.id).await;
    assert_eq!(restored.reopened, 0);
    assert_eq!(
        (turn_numbers(f, talk.id()).await, status(f, talk.id()).await),
        (vec![1], DialogueStatus::Closed)
    );
}

pub async fn restore_sets_the_clock_of_its_world_back<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let start = 100 * 86_400;
    let now = async |f: &Fixture<S>| {
        let (clock, changes) = load_clock(f, &f.world).await;
        (clock.time_at(f.now()).map(|time| time.seconds() - start), changes)
    };
    let without = take_save(f, "without").await;
    restore_save(f, without.id).await;
    assert_eq!(now(f).await, (None, 0), "a world without a clock");
    put_clock(f, 10.0).await;
    let older = take_save(f, "older").await;
    f.advance_clock();
    pass_days(f, 3).await;
    let newer = take_save(f, "newer").await;
    f.advance_clock();
    pass_days(f, 5).await;
    for _ in 0..2 {
        restore_save(f, older.id).await;
        assert_eq!(now(f).await.0, Some(10));
        f.advance_clock();
        assert_eq!(now(f).await.0, Some(20), "the clock goes on");
        restore_save(f, newer.id).await;
        assert_eq!(now(f).await.0, Some(3 * 86_400 + 30));
    }
    // Ages follow the real moments of the past, which stays.
    let clock = load_clock(f, &f.world).await.0;
    let then = clock.time_at(newer.created_at).unwrap().seconds();
    assert_eq!(then - start, 3 * 86_400 + 30);

    let mut asked = restore_request(f, older.id);
    asked.key = Some("again".to_owned());
    let restore = async |asked: &RestoreCommit| f.ledger().saves.restore_save(&f.scope, asked).await.unwrap();
    assert!(matches!(restore(&asked).await, RestoreOutcome::Done { .. }));
    let written = now(f).await;
    f.advance_clock();
    asked.edit = f.audit_edit("save.restore");
    assert!(matches!(restore(&asked).await, RestoreOutcome::Repeated(_)));
    assert_eq!(now(f).await, (Some(20), written.1));
}
