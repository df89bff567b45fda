//! Turns of which less was heard than was said.

use chrono::Duration;
use colloquy::{
    memory::{
        fact::Cause,
        turn::{Turn, TurnStatus},
    },
    ports::ledger::{
        dialogues::CommitOutcome,
        facts::ReconcileOutcome,
        jobs::{JobKind, NewJob},
        rewinds::{LiveCut, Replacement, Rewind, RewindOutcome, Rewound},
    },
};

use super::{
    Subject,
    fixture::{Fixture, page},
    saves,
    told::told,
};

pub async fn who_joined_a_line_stays_when_it_is_cut<S: Subject>(f: &mut Fixture<S>) {
    let mut told = told(f, 2).await;
    let whole = told.turns[1].clone();
    let mut joined = f.a_dialogue();
    joined.cause = Some(Cause::Turn(whole.id));
    assert!(f.ledger().dialogues.create(&f.scope, &joined).await.unwrap());
    let cut = Turn {
        id: f.id(),
        status: TurnStatus::Interrupted,
        reply_text: "rep".to_owned(),
        ..whole.clone()
    };
    let rewind = Rewind {
        replacement: Some(Replacement {
            of: whole.id,
            turn: cut.clone(),
            jobs: Vec::new(),
            uncut: Some((whole.reply_text.clone(), f.now() + Duration::seconds(30))),
        }),
        ..told.move_to(f, Some(told.turn(1)))
    };
    assert!(told.rewind(f, &rewind).await.closed.is_empty());
    // Nor does it when the line is whole again.
    assert!(told.back(f, Some(whole.id)).await.closed.is_empty());
    // However often it is cut, and back.
    let mut of = whole.id;
    for _ in 0..3 {
        let mut again = told.move_to(f, Some(told.turn(1)));
        let turn = Turn {
            id: f.id(),
            ..cut.clone()
        };
        let cut = Replacement {
            of: std::mem::replace(&mut of, turn.id),
            turn,
            jobs: Vec::new(),
            uncut: None,
        };
        again.replacement = Some(cut);
        assert!(told.rewind(f, &again).await.closed.is_empty());
    }
    assert!(told.back(f, Some(whole.id)).await.closed.is_empty());
    assert!(told.back(f, Some(of)).await.closed.is_empty());
    // Below it, it is closed, though it joined the line that was cut since.
    assert_eq!(told.back(f, Some(told.turn(1))).await.closed, [joined.id]);
}

pub async fn what_a_player_joined_at_is_not_taken_up_again<S: Subject>(f: &mut Fixture<S>) {
    let mut told = told(f, 2).await;
    let whole = told.turns[1].clone();
    let mut joined = f.a_dialogue();
    joined.cause = Some(Cause::Turn(whole.id));
    assert!(f.ledger().dialogues.create(&f.scope, &joined).await.unwrap());
    let cut = told.cut(f, &whole, "rep").await;
    let resumed = Rewind {
        unless_joined: Some(cut),
        others: vec![f.edit("session.interrupt"), f.edit("session.rewind")],
        ..told.move_to(f, Some(whole.id))
    };
    let outcome = f.ledger().rewinds.rewind(&f.scope, &resumed).await.unwrap();
    assert_eq!(outcome, RewindOutcome::Joined, "at the line that was cut since");
    let audit = async || f.ledger().audit.list(&f.scope, &page(9, None)).await.unwrap().items;
    assert_eq!(audit().await.len(), 1, "the cut's own");
    let turn = f.ledger().dialogues.turns(&f.scope, told.id(), 2, 2).await.unwrap();
    assert_eq!(turn[0].id, cut, "nothing was moved");
    // Who joined the line as it was cut, said something and went, has spoken since all the same; who said nothing has not.
    f.close(joined.id, f.claim(joined.id).await.epoch).await;
    for says in [false, true] {
        let mut left = f.a_dialogue();
        left.cause = Some(Cause::Turn(cut));
        assert!(f.ledger().dialogues.create(&f.scope, &left).await.unwrap());
        let open = f.claim(left.id).await;
        if says {
            f.commit(&f.a_commit(&open, 1, None)).await;
        }
        f.close(left.id, open.epoch).await;
    }
    let outcome = f.ledger().rewinds.rewind(&f.scope, &resumed).await.unwrap();
    assert_eq!(outcome, RewindOutcome::Joined, "by somebody who left");

    let elsewhere = Rewind {
        unless_joined: Some(told.turn(1)),
        ..resumed
    };
    told.rewind(f, &elsewhere).await;
    let rows = audit().await;
    let mut actions: Vec<_> = rows.iter().map(|row| row.action.as_str()).collect();
    actions.sort_unstable();
    assert_eq!(
        actions,
        [
            "session.interrupt",
            "session.rewind",
            "session.rewind",
            "session.rewind"
        ]
    );
}

pub async fn a_cut_turn_that_a_save_has_can_be_whole_again<S: Subject>(f: &mut Fixture<S>) {
    saves::world(f).await;
    let mut told = told(f, 1).await;
    let mut commit = told.commit(f, 2);
    commit.checkpoint.ended = true;
    f.commit(&commit).await;
    let whole = commit.turn.clone();
    told.turns.push(whole.clone());
    told.cut(f, &whole, "rep").await;
    let save = saves::save(f, "cut").await;
    told.back(f, Some(told.turn(1))).await;
    saves::load(f, save.id).await;
    told.open.epoch += 1;
    told.back(f, Some(whole.id)).await;
    let checkpoint = f.ledger().dialogues.checkpoint(&f.scope, told.id()).await.unwrap();
    assert_eq!(checkpoint, Some(commit.checkpoint));
}

pub async fn a_save_keeps_the_whole_of_its_cut_turn_when_another_is_deleted<S: Subject>(f: &mut Fixture<S>) {
    saves::world(f).await;
    let mut told = told(f, 2).await;
    let whole = told.turns[1].clone();
    let before = saves::save(f, "before").await;
    told.cut(f, &whole, "rep").await;
    let cut = saves::save(f, "cut").await;
    told.back(f, Some(told.turn(1))).await;
    let edit = f.edit("save.delete");
    let deleted = f.ledger().saves.delete(&f.scope, &f.world, before.id, &edit);
    assert!(deleted.await.unwrap());
    saves::load(f, cut.id).await;
    told.open.epoch += 1;
    told.back(f, Some(whole.id)).await;
    assert_eq!(saves::checkpointed(f, told.id()).await, Some(2));
}

pub async fn a_reply_that_was_cut_twice_can_be_whole_again_when_a_save_is_deleted<S: Subject>(f: &mut Fixture<S>) {
    saves::world(f).await;
    let mut told = told(f, 2).await;
    let whole = told.turns[1].clone();
    let mut taken = vec![saves::save(f, "whole").await];
    let once = Turn {
        id: told.cut(f, &whole, "rep").await,
        ..whole.clone()
    };
    taken.push(saves::save(f, "cut").await);
    told.cut(f, &once, "re").await;
    for save in taken {
        let edit = f.edit("save.delete");
        let deleted = f.ledger().saves.delete(&f.scope, &f.world, save.id, &edit);
        assert!(deleted.await.unwrap());
    }
    told.back(f, Some(whole.id)).await;
    assert_eq!(saves::checkpointed(f, told.id()).await, Some(2));
}

pub async fn a_turn_that_another_took_the_place_of_leaves_no_checkpoint<S: Subject>(f: &mut Fixture<S>) {
    saves::world(f).await;
    for restored in [false, true] {
        let mut told = told(f, 1).await;
        let save = saves::save(f, "before").await;
        told.say(f, 2).await;
        let (first, second) = (told.turn(1), told.turn(2));
        let rewind = Rewind {
            replacing: Some(second),
            ..told.move_to(f, Some(first))
        };
        told.rewind(f, &rewind).await;
        if restored {
            saves::load(f, save.id).await;
            told.open.epoch += 1;
        } else {
            told.open.replacing = Some(second);
            let mut commit = told.commit(f, 2);
            (commit.expected_head, commit.key) = (Some(first), None);
            f.commit(&commit).await;
        }
        told.back(f, Some(second)).await;
        assert_ne!(saves::checkpointed(f, told.id()).await, Some(2));
    }
}

pub async fn a_turn_that_was_to_be_said_anew_and_goes_for_good_leaves_no_checkpoint<S: Subject>(f: &mut Fixture<S>) {
    let mut told = told(f, 2).await;
    let (first, second) = (told.turn(1), told.turn(2));
    let rewind = Rewind {
        replacing: Some(second),
        ..told.move_to(f, Some(first))
    };
    told.rewind(f, &rewind).await;
    told.back(f, Some(first)).await;
    told.back(f, Some(second)).await;
    assert_ne!(saves::checkpointed(f, told.id()).await, Some(2));
    told.back(f, Some(first)).await;
    assert_eq!(
        saves::checkpointed(f, told.id()).await,
        Some(1),
        "the others are untouched"
    );
}

pub async fn a_live_cut_is_sealed_audited_and_gone_on_with<S: Subject>(f: &mut Fixture<S>) {
    let mut told = told(f, 1).await;
    f.tick();
    let mut commit = told.commit(f, 2);
    let until = f.now() + Duration::seconds(30);
    commit.turn.status = TurnStatus::Interrupted;
    commit.uncut = Some(("reply and more".to_owned(), until));
    let cut = |key: Option<&str>| LiveCut {
        rewound: Rewound::live_cut(f.id(), f.world.clone(), commit.epoch, &commit.turn),
        key: key.map(str::to_owned),
        edit: f.edit("session.interrupt"),
    };
    commit.cuts = vec![cut(Some("a")), cut(Some("b")), cut(Some("a")), cut(None)];
    f.commit(&commit).await;
    told.turns.push(commit.turn.clone());

    let (rewinds, scope, id) = (&f.ledger().rewinds, &f.scope, told.id());
    for (key, cut) in [("a", &commit.cuts[0]), ("b", &commit.cuts[1])] {
        let known = rewinds.by_key(scope, id, key).await.unwrap();
        assert_eq!(known.as_ref(), Some(&cut.rewound), "the first with a key");
        assert!(known.is_some_and(|known| known.is_live_cut()));
    }
    assert_eq!(
        rewinds.since(scope, id, 0, 9).await.unwrap(),
        [],
        "no event tells of it"
    );
    let rows = f.ledger().audit.list(scope, &page(9, None)).await.unwrap().items;
    assert_eq!(rows.iter().filter(|row| row.action == "session.interrupt").count(), 4);

    let sealed = rewinds.sealed(scope, commit.turn.id, f.now()).await.unwrap().unwrap();
    assert_eq!(
        (sealed.whole, sealed.key.as_deref(), sealed.text.as_str(), sealed.until),
        (None, Some("key 2"), "reply and more", until)
    );
    assert_eq!(rewinds.sealed(&f.other, commit.turn.id, f.now()).await.unwrap(), None);
    assert_eq!(rewinds.sealed(scope, commit.turn.id, until).await.unwrap(), None);

    // Taken back to be gone on with; the turn that comes takes its key over.
    let taking_up = Rewind {
        replacing: Some(commit.turn.id),
        key: Some("up".to_owned()),
        ..told.move_to(f, Some(told.turn(1)))
    };
    let rewound = told.rewind(f, &taking_up).await;
    assert_eq!(rewound.replacing, Some(commit.turn.id));
    told.turns.truncate(1);
    let mut whole = told.commit(f, 2);
    (whole.key, whole.key_of) = (None, Some(commit.turn.id));
    f.commit(&whole).await;
    let keyed = f
        .ledger()
        .dialogues
        .turn_by_key(&f.scope, id, "key 2")
        .await
        .unwrap()
        .unwrap();
    assert_eq!((keyed.turn.id, keyed.stands), (whole.turn.id, true));
    let rewinds = &f.ledger().rewinds;
    assert_eq!(rewinds.by_key(&f.scope, id, "up").await.unwrap(), Some(rewound));
    assert_eq!(rewinds.sealed(&f.scope, whole.turn.id, f.now()).await.unwrap(), None);

    // What is sealed goes when its time is over, and not before, and nobody else's does.
    let early = until - Duration::microseconds(1);
    assert_eq!(rewinds.unseal(&f.scope, early).await.unwrap(), 0);
    assert_eq!(rewinds.unseal(&f.other, until).await.unwrap(), 0);
    assert_eq!(rewinds.unseal(&f.scope, until).await.unwrap(), 1);
    assert_eq!(rewinds.sealed(&f.scope, commit.turn.id, f.now()).await.unwrap(), None);
}

pub async fn a_turn_that_was_cut_has_not_concluded<S: Subject>(f: &mut Fixture<S>) {
    let mut told = told(f, 1).await;
    let mut commit = told.commit(f, 2);
    commit.checkpoint.ended = true;
    let done = f.ledger().dialogues.commit_turn(&f.scope, &commit).await.unwrap();
    assert_eq!(done, CommitOutcome::Committed);
    let cut = Turn {
        id: f.id(),
        status: TurnStatus::Interrupted,
        reply_text: "rep".to_owned(),
        ..commit.turn.clone()
    };
    let rewind = Rewind {
        replacement: Some(Replacement {
            of: commit.turn.id,
            turn: cut,
            jobs: Vec::new(),
            uncut: None,
        }),
        ..told.move_to(f, Some(told.turn(1)))
    };
    told.rewind(f, &rewind).await;
    let checkpoint = f.ledger().dialogues.checkpoint(&f.scope, told.id()).await.unwrap();
    let expected = colloquy::memory::turn::Checkpoint {
        ended: false,
        ..commit.checkpoint
    };
    assert_eq!(checkpoint, Some(expected));
}

pub async fn a_cut_turn_is_replaced<S: Subject>(f: &mut Fixture<S>) {
    let mut told = told(f, 3).await;
    let late = told.plan(f, 2, "The player likes figs.", &[]).await;
    let whole = told.turns[1].clone();
    let cut = Turn {
        id: f.id(),
        status: TurnStatus::Interrupted,
        reply_text: "reply".to_owned(),
        ..whole.clone()
    };
    let job = |kind| NewJob {
        id: f.id(),
        kind,
        dialogue: cut.dialogue,
        turn: cut.id,
        text_version: 1,
        created_at: f.now(),
        leased_to: f.node,
        leased_until: f.now(),
        held_until: None,
    };
    let until = f.now() + Duration::seconds(30);
    let rewind = Rewind {
        replacement: Some(Replacement {
            of: whole.id,
            turn: cut.clone(),
            jobs: vec![job(JobKind::ExtractFacts), job(JobKind::ExtractState)],
            uncut: Some((whole.reply_text.clone(), until)),
        }),
        ..told.move_to(f, Some(told.turn(1)))
    };
    let rewound = told.rewind(f, &rewind).await;
    assert_eq!((rewound.head, rewound.head_turn), (Some(cut.id), 2));
    assert_eq!((rewound.heard_chars, &rewound.removed[..]), (Some(5), &[3][..]));
    assert_eq!(rewound.rolled_back.state, 2, "its own state block too");

    let ledger = f.ledger();
    assert_eq!(
        ledger.dialogues.turns(&f.scope, told.id(), 1, 9).await.unwrap(),
        [told.turns[0].clone(), cut.clone()]
    );
    let keyed = ledger
        .dialogues
        .turn_by_key(&f.scope, told.id(), "key 2")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (keyed.turn.id, keyed.stands),
        (cut.id, true),
        "the key is that of what stands"
    );
    assert_eq!(
        ledger
            .dialogues
            .checkpoint(&f.scope, told.id())
            .await
            .unwrap()
            .unwrap()
            .turn,
        2
    );
    assert!(ledger.dialogues.trace(&f.scope, told.id(), 2).await.unwrap().is_some());
    assert_eq!(
        ledger.facts.reconcile(&f.scope, &late).await.unwrap(),
        ReconcileOutcome::Fenced
    );
    let leased = ledger.jobs.lease(&f.scope, f.node, f.now(), until, 9).await.unwrap();
    let of_cut: Vec<JobKind> = leased
        .iter()
        .filter(|job| job.turn == cut.id)
        .map(|job| job.kind)
        .collect();
    assert_eq!(of_cut.len(), 2, "{leased:?}");

    let sealed = ledger.rewinds.sealed(&f.scope, cut.id, f.now()).await.unwrap().unwrap();
    assert_eq!(
        (sealed.whole, sealed.text.as_str()),
        (Some(whole.id), whole.reply_text.as_str())
    );
    assert_eq!(ledger.rewinds.sealed(&f.other, cut.id, f.now()).await.unwrap(), None);
    assert_eq!(
        ledger.rewinds.sealed(&f.scope, cut.id, until).await.unwrap(),
        None,
        "the seal has run out"
    );

    // Taken up again, with the checkpoint it had.
    let rewound = told.back(f, Some(whole.id)).await;
    assert_eq!((&rewound.removed[..], &rewound.reinstated[..]), (&[2][..], &[2][..]));
    assert_eq!(
        f.ledger().dialogues.turns(&f.scope, told.id(), 1, 9).await.unwrap(),
        told.turns[..2]
    );
    let checkpoint = f.ledger().dialogues.checkpoint(&f.scope, told.id()).await.unwrap();
    assert_eq!(checkpoint.unwrap().turn, 2);
}

pub async fn a_reply_that_was_cut_twice_is_whole_again<S: Subject>(f: &mut Fixture<S>) {
    let mut told = told(f, 3).await;
    let whole = told.turns[2].clone();
    let until = f.now() + Duration::seconds(30);
    let mut of = whole.clone();
    for reply_text in ["reply", "re"] {
        let turn = Turn {
            id: f.id(),
            status: TurnStatus::Interrupted,
            reply_text: reply_text.to_owned(),
            ..of.clone()
        };
        let mut rewind = told.move_to(f, Some(told.turn(2)));
        rewind.replacement = Some(Replacement {
            of: of.id,
            turn: turn.clone(),
            jobs: Vec::new(),
            uncut: Some((of.reply_text.clone(), until)),
        });
        told.rewind(f, &rewind).await;
        of = turn;
    }
    let rewinds = &f.ledger().rewinds;
    let sealed = rewinds.sealed(&f.scope, of.id, f.now()).await.unwrap().unwrap();
    assert_eq!(sealed.whole, Some(whole.id), "and not the first cut");
    told.back(f, Some(whole.id)).await;
    assert_eq!(super::saves::checkpointed(f, told.id()).await, Some(3));
    // Below it nothing is kept to go on from, of none of the three.
    told.back(f, Some(of.id)).await;
    told.back(f, Some(told.turn(1))).await;
    for turn in [whole.id, of.id] {
        told.back(f, Some(turn)).await;
        assert_eq!(super::saves::checkpointed(f, told.id()).await, Some(0));
    }
}

pub async fn a_live_cut_that_is_cut_again_is_gone_on_with<S: Subject>(f: &mut Fixture<S>) {
    let mut told = told(f, 1).await;
    let mut commit = told.commit(f, 2);
    let until = f.now() + Duration::seconds(30);
    commit.turn.status = TurnStatus::Interrupted;
    commit.uncut = Some(("reply and more".to_owned(), until));
    f.commit(&commit).await;
    let shorter = Turn {
        id: f.id(),
        reply_text: "re".to_owned(),
        ..commit.turn.clone()
    };
    let mut rewind = told.move_to(f, Some(told.turn(1)));
    rewind.replacement = Some(Replacement {
        of: commit.turn.id,
        turn: shorter.clone(),
        jobs: Vec::new(),
        uncut: Some((commit.turn.reply_text.clone(), until)),
    });
    told.rewind(f, &rewind).await;
    let sealed = f.ledger().rewinds.sealed(&f.scope, shorter.id, f.now()).await;
    let sealed = sealed.unwrap().unwrap();
    assert_eq!((sealed.whole, sealed.text.as_str()), (None, "reply and more"));
}

pub async fn what_was_to_be_said_anew_stands_again_in_a_closed_dialogue<S: Subject>(f: &mut Fixture<S>) {
    let mut told = told(f, 2).await;
    let owed = told.turn(2);
    let anew = Rewind {
        replacing: Some(owed),
        ..told.move_to(f, Some(told.turn(1)))
    };
    told.rewind(f, &anew).await;
    f.close(told.id(), told.open.epoch).await;
    let rewinds = &f.ledger().rewinds;
    assert_eq!(rewinds.replacing(&f.scope, 9).await.unwrap(), [told.id()]);
    let back = told.move_to(f, Some(owed));
    assert_eq!(
        rewinds.rewind(&f.scope, &back).await.unwrap(),
        RewindOutcome::Closed,
        "nothing else moves it"
    );
    let back = Rewind {
        closed_too: true,
        ..back
    };
    assert_eq!(told.rewind(f, &back).await.reinstated, [2]);
    assert_eq!(f.ledger().rewinds.replacing(&f.scope, 9).await.unwrap(), []);
}
