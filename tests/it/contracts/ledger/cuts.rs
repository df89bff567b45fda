//! Turns of which the player heard only a part.

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
        rewinds::{InterruptOutcome, LiveCut, Replacement, RewindCommit, RewindCommitResult, RewindOrigin},
    },
};

use super::{
    LedgerSubject,
    fixture::{Fixture, page},
    rewind_fixtures::dialogue_with_turns,
    saves,
};

pub async fn session_joined_at_a_line_survives_its_cut<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 2).await;
    let whole = told.turns[1].clone();
    let mut joined = f.sample_dialogue();
    joined.cause = Some(Cause::Turn(whole.id));
    assert!(f.ledger().dialogues.create_dialogue(&f.scope, &joined).await.unwrap());
    let cut = Turn {
        id: f.id(),
        status: TurnStatus::Interrupted,
        reply_text: "rep".to_owned(),
        ..whole.clone()
    };
    let rewind = RewindCommit {
        replacement: Some(Replacement {
            replaced_turn: whole.id,
            turn: cut.clone(),
            jobs: Vec::new(),
            sealed_reply: Some((whole.reply_text.clone(), f.now() + Duration::seconds(30))),
        }),
        ..told.rewind_request_to(f, Some(told.turn(1)))
    };
    assert!(told.rewind(f, &rewind).await.closed.is_empty());
    // Nor does restoring the whole line close the session.
    assert!(told.rewind_to(f, Some(whole.id)).await.closed.is_empty());
    // Repeated cuts and restores make no difference.
    let mut of = whole.id;
    for _ in 0..3 {
        let mut again = told.rewind_request_to(f, Some(told.turn(1)));
        let turn = Turn {
            id: f.id(),
            ..cut.clone()
        };
        let cut = Replacement {
            replaced_turn: std::mem::replace(&mut of, turn.id),
            turn,
            jobs: Vec::new(),
            sealed_reply: None,
        };
        again.replacement = Some(cut);
        assert!(told.rewind(f, &again).await.closed.is_empty());
    }
    assert!(told.rewind_to(f, Some(whole.id)).await.closed.is_empty());
    assert!(told.rewind_to(f, Some(of)).await.closed.is_empty());
    // A rewind below the line closes the session, although the session joined the line cut since.
    assert_eq!(told.rewind_to(f, Some(told.turn(1))).await.closed, [joined.id]);
}

pub async fn line_joined_by_a_player_cannot_be_resumed<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 2).await;
    let whole = told.turns[1].clone();
    let mut joined = f.sample_dialogue();
    joined.cause = Some(Cause::Turn(whole.id));
    assert!(f.ledger().dialogues.create_dialogue(&f.scope, &joined).await.unwrap());
    let cut = told.cut_turn(f, &whole, "rep").await;
    let resumed = RewindCommit {
        origin: RewindOrigin::Resume { cut },
        edits: ["session.rewind", "session.interrupt", "session.rewind"]
            .map(|action| f.audit_edit(action))
            .into(),
        ..told.rewind_request_to(f, Some(whole.id))
    };
    let outcome = f.ledger().rewinds.commit_rewind(&f.scope, &resumed).await.unwrap();
    assert_eq!(outcome, RewindCommitResult::Joined, "at the line that was cut since");
    let audit = async || {
        f.ledger()
            .audit
            .list_audit_rows(&f.scope, &page(9, None))
            .await
            .unwrap()
            .items
    };
    assert_eq!(audit().await.len(), 1, "the cut's own");
    let turn = f
        .ledger()
        .dialogues
        .load_turns(&f.scope, told.id(), 2, 2)
        .await
        .unwrap();
    assert_eq!(turn[0].id, cut, "nothing was moved");
    // A player who joined the cut line and spoke counts as joined, even after leaving. A silent player does not.
    f.close_dialogue(joined.id, f.claim_dialogue(joined.id).await.epoch)
        .await;
    for says in [false, true] {
        let mut left = f.sample_dialogue();
        left.cause = Some(Cause::Turn(cut));
        assert!(f.ledger().dialogues.create_dialogue(&f.scope, &left).await.unwrap());
        let open = f.claim_dialogue(left.id).await;
        if says {
            f.commit_turn(&f.sample_commit(&open, 1, None)).await;
        }
        f.close_dialogue(left.id, open.epoch).await;
    }
    let outcome = f.ledger().rewinds.commit_rewind(&f.scope, &resumed).await.unwrap();
    assert_eq!(outcome, RewindCommitResult::Joined, "by somebody who left");

    let elsewhere = RewindCommit {
        origin: RewindOrigin::Resume { cut: told.turn(1) },
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

pub async fn cut_turn_in_a_save_can_be_restored_whole<S: LedgerSubject>(f: &mut Fixture<S>) {
    saves::put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 1).await;
    let mut commit = told.turn_commit(f, 2);
    commit.checkpoint.has_ended = true;
    f.commit_turn(&commit).await;
    let whole = commit.turn.clone();
    told.turns.push(whole.clone());
    told.cut_turn(f, &whole, "rep").await;
    let save = saves::take_save(f, "cut").await;
    told.rewind_to(f, Some(told.turn(1))).await;
    saves::restore_save(f, save.id).await;
    told.open.epoch += 1;
    told.rewind_to(f, Some(whole.id)).await;
    let checkpoint = f.ledger().dialogues.load_checkpoint(&f.scope, told.id()).await.unwrap();
    assert_eq!(checkpoint, Some(commit.checkpoint));
}

pub async fn save_retains_its_whole_cut_turn_when_another_save_is_deleted<S: LedgerSubject>(f: &mut Fixture<S>) {
    saves::put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 2).await;
    let whole = told.turns[1].clone();
    let before = saves::take_save(f, "before").await;
    told.cut_turn(f, &whole, "rep").await;
    let cut = saves::take_save(f, "cut").await;
    told.rewind_to(f, Some(told.turn(1))).await;
    let edit = f.audit_edit("save.delete");
    let deleted = f.ledger().saves.delete_save(&f.scope, &f.world, before.id, &edit);
    assert!(deleted.await.unwrap());
    saves::restore_save(f, cut.id).await;
    told.open.epoch += 1;
    told.rewind_to(f, Some(whole.id)).await;
    assert_eq!(saves::checkpoint_turn(f, told.id()).await, Some(2));
}

pub async fn reply_cut_twice_can_be_restored_whole_after_a_save_is_deleted<S: LedgerSubject>(f: &mut Fixture<S>) {
    saves::put_default_world(f).await;
    let mut told = dialogue_with_turns(f, 2).await;
    let whole = told.turns[1].clone();
    let mut taken = vec![saves::take_save(f, "whole").await];
    let once = Turn {
        id: told.cut_turn(f, &whole, "rep").await,
        ..whole.clone()
    };
    taken.push(saves::take_save(f, "cut").await);
    told.cut_turn(f, &once, "re").await;
    for save in taken {
        let edit = f.audit_edit("save.delete");
        let deleted = f.ledger().saves.delete_save(&f.scope, &f.world, save.id, &edit);
        assert!(deleted.await.unwrap());
    }
    told.rewind_to(f, Some(whole.id)).await;
    assert_eq!(saves::checkpoint_turn(f, told.id()).await, Some(2));
}

pub async fn replaced_turn_leaves_no_checkpoint<S: LedgerSubject>(f: &mut Fixture<S>) {
    saves::put_default_world(f).await;
    for restored in [false, true] {
        let mut told = dialogue_with_turns(f, 1).await;
        let save = saves::take_save(f, "before").await;
        told.commit_turn(f, 2).await;
        let (first, second) = (told.turn(1), told.turn(2));
        let rewind = RewindCommit {
            replacing: Some(second),
            ..told.rewind_request_to(f, Some(first))
        };
        told.rewind(f, &rewind).await;
        if restored {
            saves::restore_save(f, save.id).await;
            told.open.epoch += 1;
        } else {
            told.open.replacing = Some(second);
            let mut commit = told.turn_commit(f, 2);
            (commit.expected_head, commit.key) = (Some(first), None);
            f.commit_turn(&commit).await;
        }
        told.rewind_to(f, Some(second)).await;
        assert_ne!(saves::checkpoint_turn(f, told.id()).await, Some(2));
    }
}

pub async fn turn_removed_while_pending_regeneration_leaves_no_checkpoint<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 2).await;
    let (first, second) = (told.turn(1), told.turn(2));
    let rewind = RewindCommit {
        replacing: Some(second),
        ..told.rewind_request_to(f, Some(first))
    };
    told.rewind(f, &rewind).await;
    told.rewind_to(f, Some(first)).await;
    told.rewind_to(f, Some(second)).await;
    assert_ne!(saves::checkpoint_turn(f, told.id()).await, Some(2));
    told.rewind_to(f, Some(first)).await;
    assert_eq!(
        saves::checkpoint_turn(f, told.id()).await,
        Some(1),
        "the others are untouched"
    );
}

pub async fn live_cut_is_sealed_audited_and_continued<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 1).await;
    f.advance_clock();
    let mut commit = told.turn_commit(f, 2);
    let until = f.now() + Duration::seconds(30);
    commit.turn.status = TurnStatus::Interrupted;
    commit.sealed_reply = Some(("reply and more".to_owned(), until));
    let cut = |key: Option<&str>| LiveCut {
        id: f.id(),
        key: key.map(str::to_owned),
        edit: f.audit_edit("session.interrupt"),
    };
    commit.cuts = vec![cut(Some("a")), cut(Some("b")), cut(Some("a")), cut(None)];
    f.commit_turn(&commit).await;
    told.turns.push(commit.turn.clone());

    let (rewinds, scope, id) = (&f.ledger().rewinds, &f.scope, told.id());
    for key in ["a", "b"] {
        let known = rewinds.load_outcome_by_key(scope, id, key).await.unwrap();
        assert_eq!(known, Some(InterruptOutcome::Cut { turn: 2 }), "{key}");
    }
    assert_eq!(
        rewinds.list_rewinds_since(scope, id, 0, 9).await.unwrap(),
        [],
        "no event tells of it"
    );
    let rows = f
        .ledger()
        .audit
        .list_audit_rows(scope, &page(9, None))
        .await
        .unwrap()
        .items;
    assert_eq!(rows.iter().filter(|row| row.action == "session.interrupt").count(), 4);

    let sealed = rewinds
        .load_sealed_reply(scope, commit.turn.id, f.now())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (sealed.whole, sealed.key.as_deref(), sealed.text.as_str(), sealed.until),
        (None, Some("key 2"), "reply and more", until)
    );
    assert_eq!(
        rewinds
            .load_sealed_reply(&f.other, commit.turn.id, f.now())
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        rewinds.load_sealed_reply(scope, commit.turn.id, until).await.unwrap(),
        None
    );

    // Rewound in order to continue: the next turn takes over the rewind's key.
    let taking_up = RewindCommit {
        replacing: Some(commit.turn.id),
        key: Some("up".to_owned()),
        ..told.rewind_request_to(f, Some(told.turn(1)))
    };
    let rewound = told.rewind(f, &taking_up).await;
    assert_eq!(rewound.replacing, Some(commit.turn.id));
    told.turns.truncate(1);
    let mut whole = told.turn_commit(f, 2);
    (whole.key, whole.key_of) = (None, Some(commit.turn.id));
    f.commit_turn(&whole).await;
    let keyed = f
        .ledger()
        .dialogues
        .load_turn_by_key(&f.scope, id, "key 2")
        .await
        .unwrap()
        .unwrap();
    assert_eq!((keyed.turn.id, keyed.stands), (whole.turn.id, true));
    let rewinds = &f.ledger().rewinds;
    assert_eq!(
        rewinds.load_outcome_by_key(&f.scope, id, "up").await.unwrap(),
        Some(InterruptOutcome::Rewound(rewound.into()))
    );
    assert_eq!(
        rewinds
            .load_sealed_reply(&f.scope, whole.turn.id, f.now())
            .await
            .unwrap(),
        None
    );

    // Seals are deleted at their expiry, not before, and only for the given tenant.
    let early = until - Duration::microseconds(1);
    assert_eq!(rewinds.delete_expired_seals(&f.scope, early).await.unwrap(), 0);
    assert_eq!(rewinds.delete_expired_seals(&f.other, until).await.unwrap(), 0);
    assert_eq!(rewinds.delete_expired_seals(&f.scope, until).await.unwrap(), 1);
    assert_eq!(
        rewinds
            .load_sealed_reply(&f.scope, commit.turn.id, f.now())
            .await
            .unwrap(),
        None
    );
}

pub async fn cut_turn_has_not_concluded<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 1).await;
    let mut commit = told.turn_commit(f, 2);
    commit.checkpoint.has_ended = true;
    let done = f.ledger().turns.commit_turn(&f.scope, &commit).await.unwrap();
    assert_eq!(done, CommitOutcome::Committed);
    let cut = Turn {
        id: f.id(),
        status: TurnStatus::Interrupted,
        reply_text: "rep".to_owned(),
        ..commit.turn.clone()
    };
    let rewind = RewindCommit {
        replacement: Some(Replacement {
            replaced_turn: commit.turn.id,
            turn: cut,
            jobs: Vec::new(),
            sealed_reply: None,
        }),
        ..told.rewind_request_to(f, Some(told.turn(1)))
    };
    told.rewind(f, &rewind).await;
    let checkpoint = f.ledger().dialogues.load_checkpoint(&f.scope, told.id()).await.unwrap();
    let expected = colloquy::memory::turn::Checkpoint {
        has_ended: false,
        ..commit.checkpoint
    };
    assert_eq!(checkpoint, Some(expected));
}

#[expect(clippy::too_many_lines, reason = "one story, in its order")]
pub async fn cut_turn_is_replaced<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 3).await;
    let late = told.fact_plan(f, 2, "The player likes figs.", &[]).await;
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
    let rewind = RewindCommit {
        replacement: Some(Replacement {
            replaced_turn: whole.id,
            turn: cut.clone(),
            jobs: vec![job(JobKind::ExtractFacts), job(JobKind::ExtractState)],
            sealed_reply: Some((whole.reply_text.clone(), until)),
        }),
        ..told.rewind_request_to(f, Some(told.turn(1)))
    };
    let rewound = told.rewind(f, &rewind).await;
    assert_eq!((rewound.head, rewound.head_turn), (Some(cut.id), 2));
    assert_eq!((rewound.heard_chars, &rewound.removed[..]), (Some(5), &[3][..]));
    assert_eq!(rewound.rolled_back.state, 2, "its own state block too");

    let ledger = f.ledger();
    assert_eq!(
        ledger.dialogues.load_turns(&f.scope, told.id(), 1, 9).await.unwrap(),
        [told.turns[0].clone(), cut.clone()]
    );
    let keyed = ledger
        .dialogues
        .load_turn_by_key(&f.scope, told.id(), "key 2")
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
            .load_checkpoint(&f.scope, told.id())
            .await
            .unwrap()
            .unwrap()
            .turn,
        2
    );
    assert!(
        ledger
            .dialogues
            .load_trace(&f.scope, told.id(), 2)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(
        ledger.facts.commit_reconciliation(&f.scope, &late).await.unwrap(),
        ReconcileOutcome::Fenced
    );
    let leased = ledger
        .jobs
        .lease_due_jobs(&f.scope, f.node, f.now(), until, 9)
        .await
        .unwrap();
    let of_cut: Vec<JobKind> = leased
        .iter()
        .filter(|job| job.turn == cut.id)
        .map(|job| job.kind)
        .collect();
    assert_eq!(of_cut.len(), 2, "{leased:?}");

    let sealed = ledger
        .rewinds
        .load_sealed_reply(&f.scope, cut.id, f.now())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (sealed.whole, sealed.text.as_str()),
        (Some(whole.id), whole.reply_text.as_str())
    );
    assert_eq!(
        ledger
            .rewinds
            .load_sealed_reply(&f.other, cut.id, f.now())
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        ledger.rewinds.load_sealed_reply(&f.scope, cut.id, until).await.unwrap(),
        None,
        "the seal has run out"
    );

    // The whole turn stands again with its checkpoint.
    let rewound = told.rewind_to(f, Some(whole.id)).await;
    assert_eq!((&rewound.removed[..], &rewound.reinstated[..]), (&[2][..], &[2][..]));
    assert_eq!(
        f.ledger()
            .dialogues
            .load_turns(&f.scope, told.id(), 1, 9)
            .await
            .unwrap(),
        told.turns[..2]
    );
    let checkpoint = f.ledger().dialogues.load_checkpoint(&f.scope, told.id()).await.unwrap();
    assert_eq!(checkpoint.unwrap().turn, 2);
}

pub async fn reply_cut_twice_is_restored_whole<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 3).await;
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
        let mut rewind = told.rewind_request_to(f, Some(told.turn(2)));
        rewind.replacement = Some(Replacement {
            replaced_turn: of.id,
            turn: turn.clone(),
            jobs: Vec::new(),
            sealed_reply: Some((of.reply_text.clone(), until)),
        });
        told.rewind(f, &rewind).await;
        of = turn;
    }
    let rewinds = &f.ledger().rewinds;
    let sealed = rewinds
        .load_sealed_reply(&f.scope, of.id, f.now())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(sealed.whole, Some(whole.id), "and not the first cut");
    for (scope, number, cuts) in [(&f.scope, 3, 2), (&f.scope, 2, 0), (&f.other, 3, 0)] {
        let counted = rewinds.count_cuts(scope, told.id(), number).await.unwrap();
        assert_eq!(counted, cuts, "of turn {number}");
    }
    for (scope, expected) in [(&f.scope, 3), (&f.other, 0)] {
        assert_eq!(rewinds.load_highest_turn(scope, told.id()).await.unwrap(), expected);
    }
    told.rewind_to(f, Some(whole.id)).await;
    assert_eq!(super::saves::checkpoint_turn(f, told.id()).await, Some(3));
    // Below the turn, none of its three versions has a checkpoint left.
    told.rewind_to(f, Some(of.id)).await;
    told.rewind_to(f, Some(told.turn(1))).await;
    let highest = f.ledger().rewinds.load_highest_turn(&f.scope, told.id());
    assert_eq!(highest.await.unwrap(), 3, "unsaid turns count");
    for turn in [whole.id, of.id] {
        told.rewind_to(f, Some(turn)).await;
        assert_eq!(super::saves::checkpoint_turn(f, told.id()).await, Some(0));
    }
}

pub async fn live_cut_that_is_cut_again_is_continued<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 1).await;
    let mut commit = told.turn_commit(f, 2);
    let until = f.now() + Duration::seconds(30);
    commit.turn.status = TurnStatus::Interrupted;
    commit.sealed_reply = Some(("reply and more".to_owned(), until));
    f.commit_turn(&commit).await;
    let shorter = Turn {
        id: f.id(),
        reply_text: "re".to_owned(),
        ..commit.turn.clone()
    };
    let mut rewind = told.rewind_request_to(f, Some(told.turn(1)));
    rewind.replacement = Some(Replacement {
        replaced_turn: commit.turn.id,
        turn: shorter.clone(),
        jobs: Vec::new(),
        sealed_reply: Some((commit.turn.reply_text.clone(), until)),
    });
    told.rewind(f, &rewind).await;
    let sealed = f
        .ledger()
        .rewinds
        .load_sealed_reply(&f.scope, shorter.id, f.now())
        .await;
    let sealed = sealed.unwrap().unwrap();
    assert_eq!((sealed.whole, sealed.text.as_str()), (None, "reply and more"));
}

pub async fn turn_pending_regeneration_stands_again_in_a_closed_dialogue<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 2).await;
    let owed = told.turn(2);
    let anew = RewindCommit {
        replacing: Some(owed),
        ..told.rewind_request_to(f, Some(told.turn(1)))
    };
    told.rewind(f, &anew).await;
    f.close_dialogue(told.id(), told.open.epoch).await;
    let rewinds = &f.ledger().rewinds;
    assert_eq!(
        rewinds.list_pending_replacements(&f.scope, 9).await.unwrap(),
        [told.id()]
    );
    let back = told.rewind_request_to(f, Some(owed));
    assert_eq!(
        rewinds.commit_rewind(&f.scope, &back).await.unwrap(),
        RewindCommitResult::Closed,
        "nothing else moves it"
    );
    let back = RewindCommit {
        origin: RewindOrigin::Reinstatement,
        ..back
    };
    assert_eq!(told.rewind(f, &back).await.reinstated, [2]);
    assert_eq!(
        f.ledger().rewinds.list_pending_replacements(&f.scope, 9).await.unwrap(),
        []
    );
}
