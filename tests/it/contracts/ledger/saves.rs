use colloquy::{
    ids::{DialogueId, SaveId},
    ports::ledger::{
        authored::DeleteOutcome,
        dialogues::{CommitOutcome, DialogueStatus},
        facts::ReconcileOutcome,
        rewinds::Rewound,
        saves::{NewSave, Restore, RestoreOutcome, Restored, RestoredDialogue, Save, SaveOutcome},
    },
    tenancy::TenantScope,
};

use super::{
    Subject,
    fixture::{Fixture, page},
    told::{Told, told},
};

pub(super) async fn world<S: Subject>(f: &Fixture<S>) {
    for id in ["vale", "moor"] {
        f.put_world(id).await;
    }
}

fn a_save<S: Subject>(f: &Fixture<S>, name: &str) -> NewSave {
    NewSave {
        id: f.id(),
        world: f.world.clone(),
        name: name.to_owned(),
        max: 100,
        edit: f.edit("save.create"),
    }
}

pub(super) async fn save<S: Subject>(f: &Fixture<S>, name: &str) -> Save {
    f.tick();
    match f.ledger().saves.create(&f.scope, &a_save(f, name)).await.unwrap() {
        SaveOutcome::Saved(save) => save,
        other => panic!("not saved: {other:?}"),
    }
}

fn a_restore<S: Subject>(f: &Fixture<S>, save: SaveId) -> Restore {
    Restore {
        world: f.world.clone(),
        save,
        key: None,
        seq_gap: 10,
        edit: f.edit("save.restore"),
    }
}

pub(super) async fn load<S: Subject>(f: &Fixture<S>, save: SaveId) -> (Restored, Vec<RestoredDialogue>) {
    f.tick();
    match f.ledger().saves.restore(&f.scope, &a_restore(f, save)).await.unwrap() {
        RestoreOutcome::Done { restored, dialogues } => {
            let moved = dialogues.into_iter().filter(|dialogue| dialogue.rewound.is_some());
            (restored, moved.collect())
        }
        other => panic!("not restored: {other:?}"),
    }
}

/// How a restore moved a dialogue.
fn rewound(moved: &[RestoredDialogue], id: DialogueId, open: bool) -> &Rewound {
    let moved = moved.iter().find(|moved| moved.id == id).unwrap();
    assert_eq!(moved.open, open);
    moved.rewound.as_ref().unwrap()
}

async fn status<S: Subject>(f: &Fixture<S>, id: DialogueId) -> DialogueStatus {
    f.ledger().dialogues.get(&f.scope, id).await.unwrap().unwrap().status
}

async fn said<S: Subject>(f: &Fixture<S>, id: DialogueId) -> Vec<u32> {
    let turns = f.ledger().dialogues.turns(&f.scope, id, 1, 99).await.unwrap();
    turns.iter().map(|turn| turn.number).collect()
}

pub(super) async fn checkpointed<S: Subject>(f: &Fixture<S>, id: DialogueId) -> Option<u32> {
    let checkpoint = f.ledger().dialogues.checkpoint(&f.scope, id).await.unwrap();
    checkpoint.map(|checkpoint| checkpoint.turn)
}

pub async fn saves_are_taken_listed_and_deleted<S: Subject>(f: &mut Fixture<S>) {
    world(f).await;
    told(f, 1).await;
    let closed = f.open().await;
    f.close(closed.dialogue.id, closed.epoch).await;
    let mut elsewhere = f.a_dialogue();
    elsewhere.world = "moor".parse().unwrap();
    f.ledger().dialogues.create(&f.scope, &elsewhere).await.unwrap();
    let mut taken = Vec::new();
    for name in ["before the gate", "", "after"] {
        taken.push(save(f, name).await);
    }
    assert_eq!((taken[0].dialogues, taken[0].name.as_str()), (2, "before the gate"));
    let saves = &f.ledger().saves;
    let first = saves.list(&f.scope, &f.world, &page(2, None)).await.unwrap();
    assert_eq!(first.items, [taken[2].clone(), taken[1].clone()]);
    let second = saves.list(&f.scope, &f.world, &page(2, first.next)).await.unwrap();
    assert_eq!((second.items, second.next), (vec![taken[0].clone()], None));
    let moor = "moor".parse().unwrap();
    assert!(
        saves
            .list(&f.scope, &moor, &page(9, None))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert!(
        saves
            .list(&f.other, &f.world, &page(9, None))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    let id = taken[1].id;
    assert_eq!(saves.get(&f.scope, &f.world, id).await.unwrap(), Some(taken[1].clone()));
    assert_eq!(saves.get(&f.other, &f.world, id).await.unwrap(), None);
    assert_eq!(saves.get(&f.scope, &moor, id).await.unwrap(), None);

    let edit = f.edit("save.delete");
    assert!(!saves.delete(&f.other, &f.world, id, &edit).await.unwrap());
    assert!(!saves.delete(&f.scope, &moor, id, &edit).await.unwrap());
    assert!(saves.delete(&f.scope, &f.world, id, &edit).await.unwrap());
    assert!(
        !saves
            .delete(&f.scope, &f.world, id, &f.edit("save.delete"))
            .await
            .unwrap()
    );
    assert_eq!(
        saves
            .list(&f.scope, &f.world, &page(9, None))
            .await
            .unwrap()
            .items
            .len(),
        2
    );
    let rows = f.ledger().audit.list(&f.scope, &page(9, None)).await.unwrap().items;
    let actions: Vec<&str> = rows.iter().take(4).map(|row| row.action.as_str()).collect();
    assert_eq!(actions, ["save.delete", "save.create", "save.create", "save.create"]);
}

pub async fn a_world_has_only_so_many_saves<S: Subject>(f: &mut Fixture<S>) {
    let saves = &f.ledger().saves;
    assert_eq!(
        saves.create(&f.scope, &a_save(f, "")).await.unwrap(),
        SaveOutcome::NoSuchWorld
    );
    world(f).await;
    let few = || NewSave {
        max: 2,
        ..a_save(f, "")
    };
    for _ in 0..2 {
        assert!(matches!(
            saves.create(&f.scope, &few()).await.unwrap(),
            SaveOutcome::Saved(_)
        ));
    }
    assert_eq!(saves.create(&f.scope, &few()).await.unwrap(), SaveOutcome::Full);
    let elsewhere = NewSave {
        world: "moor".parse().unwrap(),
        ..few()
    };
    assert!(matches!(
        saves.create(&f.scope, &elsewhere).await.unwrap(),
        SaveOutcome::Saved(_)
    ));
    assert_eq!(
        saves
            .list(&f.scope, &f.world, &page(9, None))
            .await
            .unwrap()
            .items
            .len(),
        2
    );
    assert_eq!(
        saves.create(&f.other, &few()).await.unwrap(),
        SaveOutcome::NoSuchWorld,
        "another tenant's world"
    );
}

/// Goes back to the first turn and says three others.
async fn take_another_branch<S: Subject>(f: &Fixture<S>, branches: &mut Told) {
    let to = branches.turn(1);
    branches.back(f, Some(to)).await;
    branches.turns.truncate(1);
    branches.extractions.truncate(1);
    for number in 2..=4 {
        let mut commit = branches.commit(f, number);
        commit.key = None;
        commit.next_seq = 101 + 3 * u64::from(number);
        f.tick();
        f.commit(&commit).await;
        branches.extractions.push(commit.jobs[0].clone());
        branches.turns.push(commit.turn);
    }
}

async fn each_turn_can_be_gone_on_from<S: Subject>(f: &Fixture<S>, on: Told, newer: &Save) {
    // Not only the last one of a pinned branch.
    let mut again = Told {
        open: f.claim(on.id()).await,
        ..on
    };
    let to = again.turn(4);
    again.back(f, Some(to)).await;
    assert_eq!(checkpointed(f, again.id()).await, Some(4));
    // It is all the same to a save that everything is as it has it.
    load(f, newer.id).await;
    let (restored, moved) = load(f, newer.id).await;
    assert_eq!((restored.changed, moved.len()), (0, 0));
}

pub async fn the_older_save_and_then_the_newer_come_back_whole<S: Subject>(f: &mut Fixture<S>) {
    world(f).await;
    // One that goes on, one that is closed, one that takes another branch, and one that stays as it is.
    let (mut on, closed, mut branches, still) =
        (told(f, 3).await, told(f, 2).await, told(f, 3).await, told(f, 1).await);
    let grapes = on.learn(f, 1, "The player likes grapes.", &[]).await;
    let pears = closed.learn(f, 2, "The player likes pears.", &[grapes]).await;
    let old = branches.learn(f, 3, "The player likes plums.", &[]).await;
    let older = save(f, "older").await;
    let mut facts = vec![grapes, pears, old];
    let talks = |on: &Told, closed: &Told, branches: &Told| [on.id(), closed.id(), branches.id()];
    let ids = talks(&on, &closed, &branches);
    let mut first = Vec::new();
    for talk in [&on, &closed, &branches, &still] {
        first.push(talk.seen(f, &facts).await);
    }

    on.say(f, 4).await;
    on.say(f, 5).await;
    facts.push(on.learn(f, 4, "The player likes figs now.", &[pears]).await);
    f.close(closed.id(), closed.open.epoch).await;
    take_another_branch(f, &mut branches).await;
    facts.push(branches.learn(f, 4, "The player likes dates.", &[grapes]).await);
    let begun = told(f, 2).await;
    facts.push(begun.learn(f, 2, "The player likes limes.", &[facts[3]]).await);
    let newer = save(f, "newer").await;
    // Whatever was learned has a dialogue of its own beside it: three each.
    assert_eq!((older.dialogues, newer.dialogues), (4 + 3, 5 + 6));
    let mut second = Vec::new();
    for talk in [&on, &closed, &branches, &still, &begun] {
        second.push(talk.seen(f, &facts).await);
    }

    for _ in 0..2 {
        let (restored, moved) = load(f, older.id).await;
        assert_eq!((restored.changed, restored.ended, restored.reopened), (4 + 3, 1 + 3, 1));
        assert_eq!((restored.removed_turns, restored.reinstated_turns), (2 + 3 + 2 + 3, 2));
        assert_eq!(rewound(&moved, on.id(), true).removed, [4, 5]);
        for (talk, seen) in [&on, &closed, &branches, &still].into_iter().zip(&first) {
            assert_eq!(&talk.seen(f, &facts[..3]).await, seen);
        }
        for fact in &facts[3..] {
            assert!(f.fact(*fact).await.invalid.is_some(), "from the save's future");
        }
        let confirmed = f
            .ledger()
            .facts
            .confirm(&f.scope, &f.viewpoint(), &facts, f.now())
            .await
            .unwrap()
            .open;
        assert!(confirmed.iter().all(|row| facts[..3].contains(&row.fact)));
        assert_eq!(
            (said(f, begun.id()).await.len(), status(f, begun.id()).await),
            (0, DialogueStatus::Closed)
        );
        assert_eq!(status(f, closed.id()).await, DialogueStatus::Open);
        assert_eq!(checkpointed(f, branches.id()).await, Some(3));
        for id in ids {
            let told = f.ledger().rewinds.since(&f.scope, id, 0, 99).await.unwrap();
            assert_eq!(told.last().unwrap().at, restored.at);
        }
        assert!(
            f.ledger()
                .rewinds
                .since(&f.scope, still.id(), 0, 9)
                .await
                .unwrap()
                .is_empty()
        );

        // Whatever is said there is not in the other save.
        let open = f.claim(on.id()).await;
        let mut commit = f.a_commit(&open, 4, open.head);
        commit.next_seq = open.next_seq + 3;
        f.commit(&commit).await;

        let (restored, moved) = load(f, newer.id).await;
        assert_eq!((restored.changed, restored.ended, restored.reopened), (4 + 3, 1, 1 + 3));
        let moved_on = rewound(&moved, on.id(), true);
        assert_eq!(
            (&moved_on.removed[..], &moved_on.reinstated[..]),
            (&[4][..], &[4, 5][..])
        );
        for (talk, seen) in [&on, &closed, &branches, &still, &begun].into_iter().zip(&second) {
            assert_eq!(&talk.seen(f, &facts).await, seen);
        }
        assert_eq!(status(f, begun.id()).await, DialogueStatus::Open);
        assert_eq!(status(f, closed.id()).await, DialogueStatus::Closed);
        for (id, head) in [(on.id(), 5), (branches.id(), 4), (begun.id(), 2)] {
            assert_eq!(checkpointed(f, id).await, Some(head));
        }
    }
    let rows = f.ledger().audit.list(&f.scope, &page(99, None)).await.unwrap().items;
    let count = |action| rows.iter().filter(|row| row.action == action).count();
    assert_eq!(count("save.restore"), 4, "one row each");
    let of = |id: DialogueId| {
        let id = id.to_string();
        let rows = rows.iter().filter(move |row| row.object == id);
        rows.map(|row| row.action.clone()).collect::<Vec<_>>()
    };
    // What was moved each time, and what stood already.
    assert_eq!(of(on.id()), ["session.restore"; 4]);
    assert_eq!(of(still.id()), [""; 0]);
    each_turn_can_be_gone_on_from(f, on, &newer).await;
}

pub async fn what_runs_while_a_save_is_loaded_cannot_write<S: Subject>(f: &mut Fixture<S>) {
    world(f).await;
    let (mut moved, still) = (told(f, 1).await, told(f, 2).await);
    let taken = save(f, "").await;
    moved.say(f, 2).await;
    let late = moved.plan(f, 2, "The player likes figs.", &[]).await;
    let earlier = still.plan(f, 2, "The player likes pears.", &[]).await;
    let (running, unmoved) = (moved.commit(f, 3), still.commit(f, 3));
    let (_, dialogues) = load(f, taken.id).await;
    let told = dialogues.iter().find(|dialogue| dialogue.id == moved.id()).unwrap();
    assert!(!dialogues.iter().any(|dialogue| dialogue.id == still.id()));
    let ledger = f.ledger();
    for commit in [running, unmoved] {
        assert_eq!(
            ledger.dialogues.commit_turn(&f.scope, &commit).await.unwrap(),
            CommitOutcome::Fenced
        );
    }
    assert_eq!(
        ledger.facts.reconcile(&f.scope, &late).await.unwrap(),
        ReconcileOutcome::Fenced
    );
    assert_eq!(
        ledger.facts.reconcile(&f.scope, &earlier).await.unwrap(),
        ReconcileOutcome::Committed,
        "what stands in the save is still learned from"
    );
    assert_eq!(
        (said(f, moved.id()).await, said(f, still.id()).await),
        (vec![1], vec![1, 2])
    );
    // Numbers that its owner may have given out do not come again.
    let open = f.claim(moved.id()).await;
    assert_eq!(open.next_seq, told.rewound.as_ref().unwrap().seq + 1);
    assert!(open.next_seq > moved.open.next_seq + 10);
    let mut next = f.a_commit(&open, 2, open.head);
    next.next_seq = open.next_seq + 3;
    f.commit(&next).await;
}

pub async fn a_deleted_save_keeps_nothing<S: Subject>(f: &mut Fixture<S>) {
    world(f).await;
    let mut talk = told(f, 3).await;
    let short = save(f, "short").await;
    talk.say(f, 4).await;
    talk.say(f, 5).await;
    let (long, twin) = (save(f, "long").await, save(f, "twin").await);
    let to = talk.turn(1);
    talk.back(f, Some(to)).await;
    let saves = &f.ledger().saves;
    // What is left of turn `number`: to move there shows whether it can be gone on from.
    let mut kept = async |number: u32| {
        let there = talk.turn(number as usize);
        talk.back(f, Some(there)).await;
        let checkpoint = checkpointed(f, talk.id()).await;
        let home = talk.turn(1);
        talk.back(f, Some(home)).await;
        checkpoint == Some(number)
    };
    assert!(kept(5).await && kept(4).await);
    assert!(
        saves
            .delete(&f.scope, &f.world, long.id, &f.edit("save.delete"))
            .await
            .unwrap()
    );
    assert!(kept(5).await, "another save has it too");
    assert!(
        saves
            .delete(&f.scope, &f.world, twin.id, &f.edit("save.delete"))
            .await
            .unwrap()
    );
    assert!(!kept(5).await && !kept(4).await);
    assert!(kept(3).await && kept(2).await, "the other save's");
    assert_eq!(
        saves.restore(&f.scope, &a_restore(f, long.id)).await.unwrap(),
        RestoreOutcome::NotFound
    );
    load(f, short.id).await;
    assert_eq!(checkpointed(f, talk.id()).await, Some(3));
    assert!(
        saves
            .delete(&f.scope, &f.world, short.id, &f.edit("save.delete"))
            .await
            .unwrap()
    );
    assert_eq!(checkpointed(f, talk.id()).await, Some(3), "what stands needs no save");
}

pub async fn a_save_has_a_turn_that_is_being_said_anew<S: Subject>(f: &mut Fixture<S>) {
    world(f).await;
    let mut talk = told(f, 2).await;
    let (first, second) = (talk.turn(1), talk.turn(2));
    let mut away = talk.move_to(f, Some(first));
    away.replacing = Some(second);
    talk.rewind(f, &away).await;
    let (kept, other) = (save(f, "meanwhile").await, save(f, "other").await);
    let saves = &f.ledger().saves;
    let edit = f.edit("save.delete");
    assert!(saves.delete(&f.scope, &f.world, other.id, &edit).await.unwrap());
    load(f, kept.id).await;
    assert_eq!(said(f, talk.id()).await, [1, 2]);
    assert_eq!(checkpointed(f, talk.id()).await, Some(2));

    // Without any save it can still stand again.
    talk.open = f.claim(talk.id()).await;
    let mut away = talk.move_to(f, Some(first));
    away.replacing = Some(second);
    talk.rewind(f, &away).await;
    let edit = f.edit("save.delete");
    assert!(saves.delete(&f.scope, &f.world, kept.id, &edit).await.unwrap());
    talk.back(f, Some(second)).await;
    assert_eq!(checkpointed(f, talk.id()).await, Some(2));
}

pub async fn a_key_repeats_its_restore<S: Subject>(f: &mut Fixture<S>) {
    world(f).await;
    let mut talk = told(f, 1).await;
    let (first, other) = (save(f, "").await, save(f, "").await);
    talk.say(f, 2).await;
    let saves = &f.ledger().saves;
    let keyed = |save| Restore {
        key: Some("retry".to_owned()),
        ..a_restore(f, save)
    };
    let RestoreOutcome::Done { restored, .. } = saves.restore(&f.scope, &keyed(first.id)).await.unwrap() else {
        panic!("not restored");
    };
    let open = f.claim(talk.id()).await;
    let mut commit = f.a_commit(&open, 2, open.head);
    commit.next_seq = open.next_seq + 3;
    f.commit(&commit).await;
    assert_eq!(
        saves.restore(&f.scope, &keyed(first.id)).await.unwrap(),
        RestoreOutcome::Repeated(restored)
    );
    assert_eq!(said(f, talk.id()).await, [1, 2], "nothing is restored twice");
    assert_eq!(
        saves.restore(&f.scope, &keyed(other.id)).await.unwrap(),
        RestoreOutcome::KeyTaken
    );
    let missing = async |scope: &TenantScope, restore: Restore| {
        assert_eq!(saves.restore(scope, &restore).await.unwrap(), RestoreOutcome::NotFound);
    };
    missing(&f.other, keyed(first.id)).await;
    missing(&f.scope, a_restore(f, f.id())).await;
    let elsewhere = Restore {
        world: "moor".parse().unwrap(),
        ..a_restore(f, first.id)
    };
    missing(&f.scope, elsewhere).await;
    assert_eq!(said(f, talk.id()).await, [1, 2]);
}

pub async fn a_save_is_one_moment_and_so_is_a_restore<S: Subject>(f: &mut Fixture<S>) {
    world(f).await;
    let mut talks = Vec::new();
    for _ in 0..4 {
        talks.push(told(f, 1).await);
    }
    let low = save(f, "").await;
    for talk in &mut talks {
        talk.say(f, 2).await;
        talk.say(f, 3).await;
    }
    let high = save(f, "").await;
    let saves = &f.ledger().saves;
    for round in 0..5 {
        f.tick();
        let (to_low, to_high, between) = (a_restore(f, low.id), a_restore(f, high.id), a_save(f, "between"));
        let (first, second, taken) = tokio::join!(
            saves.restore(&f.scope, &to_low),
            saves.restore(&f.scope, &to_high),
            saves.create(&f.scope, &between),
        );
        assert!(matches!(first.unwrap(), RestoreOutcome::Done { .. }));
        assert!(matches!(second.unwrap(), RestoreOutcome::Done { .. }));
        assert!(matches!(taken.unwrap(), SaveOutcome::Saved(_)));
        let mut lengths = Vec::new();
        for restored in [None, Some(between.id)] {
            if let Some(save) = restored {
                load(f, save).await;
            }
            let mut seen = Vec::new();
            for talk in &talks {
                seen.push(said(f, talk.id()).await.len());
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

pub async fn what_was_deleted_since_is_not_opened_again<S: Subject>(f: &mut Fixture<S>) {
    world(f).await;
    let npc = f.an_npc("vale", "mira");
    let authored = &f.ledger().authored;
    authored
        .put_npc(&f.scope, &npc, None, &f.edit("npc.put"))
        .await
        .unwrap();
    let mut talk = told(f, 1).await;
    let taken = save(f, "").await;
    talk.say(f, 2).await;
    let gone = authored
        .delete_npc(&f.scope, &f.world, &npc.id, None, &f.edit("npc.delete"))
        .await;
    assert_eq!(gone.unwrap(), DeleteOutcome::Deleted);
    assert_eq!(status(f, talk.id()).await, DialogueStatus::Closed);
    let (restored, _) = load(f, taken.id).await;
    assert_eq!(restored.reopened, 0);
    assert_eq!(
        (said(f, talk.id()).await, status(f, talk.id()).await),
        (vec![1], DialogueStatus::Closed)
    );
}
