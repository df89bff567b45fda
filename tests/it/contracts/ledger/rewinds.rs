//! Rewinds of a dialogue's head.

use std::collections::BTreeSet;

use colloquy::{
    ids::{FactId, NpcId},
    memory::{
        disclosure::audience::Knower,
        fact::{Cause, InvalidReason},
        timeline::{JudgeBudgetShare, PromiseEnd},
    },
    ports::ledger::{
        dialogues::{CommitOutcome, DialogueOptions, DialogueStatus, TurnCommit},
        facts::{Extraction, FactEditOutcome, FactPatch, ReconcileOutcome, ReconcileTrigger},
        jobs::{JobFence, JobKind},
        rewinds::{InterruptOutcome, OnKeyConflict, QuotedIn, RewindAcks, RewindCommit, RewindCommitResult},
        summaries::SummaryCommit,
    },
};

use super::{
    LedgerSubject,
    fixture::{Fixture, importance, page},
    rewind_fixtures::dialogue_with_turns,
    state, summaries,
};

pub async fn rewind_lifts_rows_caused_by_later_turns<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 4).await;
    let kept = told.learn_fact(f, 1, "The player likes grapes.", &[]).await;
    let gone = told.learn_fact(f, 3, "The player likes figs.", &[]).await;
    let (to, last) = (told.turn(2), told.turn(4));
    let rewound = told.rewind_to(f, Some(to)).await;
    assert_eq!((rewound.head, rewound.head_turn), (Some(to), 2));
    assert_eq!((&rewound.removed[..], &rewound.reinstated[..]), (&[3, 4][..], &[][..]));
    let back = rewound.rolled_back;
    assert_eq!((back.facts, back.restored, back.summaries, back.state), (1, 0, 0, 2));
    // A manual edit can neither restore nor correct an unsaid fact.
    let facts = &f.ledger().facts;
    let before = f.fact(gone).await;
    let refused = facts
        .restore_fact(&f.scope, gone, None, &f.audit_edit("fact.restore"))
        .await;
    assert_eq!(refused.unwrap(), FactEditOutcome::Unsaid);
    let patch = FactPatch {
        pinned: Some(true),
        ..FactPatch::default()
    };
    let refused = facts
        .edit_fact(&f.scope, gone, &patch, None, &f.audit_edit("fact.edit"))
        .await;
    assert_eq!(refused.unwrap(), FactEditOutcome::Unsaid);
    assert_eq!(f.fact(gone).await, before);

    let dialogues = &f.ledger().dialogues;
    assert_eq!(
        dialogues.load_turns(&f.scope, told.id(), 1, 9).await.unwrap(),
        told.turns[..2]
    );
    let unsaid = dialogues
        .load_turn_by_key(&f.scope, told.id(), "key 4")
        .await
        .unwrap()
        .unwrap();
    assert_eq!((unsaid.turn.id, unsaid.stands), (last, false));
    let mut latest_first = told.turns[2..].to_vec();
    latest_first.reverse();
    for most in [9, 1] {
        let listed = dialogues.list_unsaid_turns(&f.scope, told.id(), most).await.unwrap();
        assert_eq!(listed, latest_first[..most.min(latest_first.len())]);
    }
    let of_another = dialogues.list_unsaid_turns(&f.other, told.id(), 9).await.unwrap();
    assert!(of_another.is_empty());
    assert_eq!(
        dialogues
            .load_checkpoint(&f.scope, told.id())
            .await
            .unwrap()
            .unwrap()
            .turn,
        2
    );
    assert!(f.fact(kept).await.invalid.is_none());
    let fact = f.fact(gone).await;
    assert_eq!(
        fact.invalid.map(|invalid| invalid.ended_at),
        Some(fact.valid_at),
        "it was never valid"
    );
    // Turn 1's job is done, turn 2's job is pending, and the jobs of turns 3 and 4 are gone.
    assert_eq!(
        f.ledger().jobs.count_pending_jobs(&f.scope, told.id()).await.unwrap(),
        1
    );
    let audit = f
        .ledger()
        .audit
        .list_audit_rows(&f.scope, &page(1, None))
        .await
        .unwrap();
    assert_eq!(audit.items[0].action, "session.rewind");

    // The dialogue continues from there, with unused event numbers.
    let open = f.claim_dialogue(told.id()).await;
    assert_eq!((open.head, open.next_seq), (Some(to), 101));
    told.open = open;
    told.turns.truncate(2);
    let mut again = told.turn_commit(f, 3);
    assert_eq!(
        f.ledger().turns.commit_turn(&f.scope, &again).await.unwrap(),
        CommitOutcome::KeyTaken,
        "an unsaid turn keeps its key"
    );
    again.key = None;
    f.commit_turn(&again).await;
    let rewound = told.rewind_to(f, None).await;
    assert_eq!((rewound.head_turn, &rewound.removed[..]), (0, &[1, 2, 3][..]));
    assert!(
        dialogues
            .load_turns(&f.scope, told.id(), 1, 9)
            .await
            .unwrap()
            .is_empty()
    );
}

pub async fn state_fold_restarts_after_a_rewind<S: LedgerSubject>(f: &mut Fixture<S>) {
    f.put_world("vale").await;
    let mut told = dialogue_with_turns(f, 3).await;
    let state = async |f: &Fixture<S>| {
        f.ledger()
            .state
            .load_changes_since(&f.scope, &f.world, 0)
            .await
            .unwrap()
    };
    let (to, last) = (told.turn(2), told.turn(3));
    let whole = state(f).await;
    told.rewind_to(f, Some(to)).await;
    let less = state(f).await;
    assert!(less.generation > whole.generation);
    assert_eq!(less.changes, whole.changes[..2]);
    told.rewind_to(f, Some(last)).await;
    let again = state(f).await;
    assert!(again.generation > less.generation);
    assert_eq!(again.changes, whole.changes);
    // All earlier reads are still valid.
    told.rewind_to(f, Some(last)).await;
    assert_eq!(state(f).await.generation, again.generation);
}

pub async fn rewind_there_and_back_changes_nothing<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 5).await;
    let first = told.learn_fact(f, 1, "The player likes grapes.", &[]).await;
    let second = told.learn_fact(f, 4, "The player likes figs now.", &[first]).await;
    let commit = f.sample_commit(&told.open, 6, told.turns.last().map(|turn| turn.id));
    let mut commit = TurnCommit { ..commit };
    commit.jobs = vec![
        f.sample_job(&commit, JobKind::Summarise),
        f.sample_job(&commit, JobKind::ExtractState),
    ];
    f.commit_turn(&commit).await;
    let fence = JobFence {
        job: commit.jobs[0].id,
        turn: commit.turn.id,
        text_version: 1,
    };
    let landing = SummaryCommit {
        calls: vec![],
        fence,
        summary: colloquy::memory::summary::Summary {
            id: f.id(),
            dialogue: told.id(),
            from_turn: 1,
            to_turn: 5,
            text: "they spoke of fruit".to_owned(),
            importance: importance(5),
            created_at: f.now(),
        },
        evict: None,
        fade: None,
    };
    assert!(f.ledger().summaries.commit_summary(&f.scope, &landing).await.unwrap());
    let facts = [first, second];
    let before = told.visible_state(f, &facts).await;

    let to = told.turn(2);
    let rewound = told.rewind_to(f, Some(to)).await;
    assert_eq!(rewound.rolled_back.restored, 1, "what turn 4 had ended");
    assert_eq!(rewound.rolled_back.summaries, 1);
    let between = told.visible_state(f, &facts).await;
    for (what, seen) in &before {
        assert_ne!(seen, &between[what], "{what}");
    }
    let rewound = told.rewind_to(f, Some(commit.turn.id)).await;
    assert_eq!(
        (&rewound.removed[..], &rewound.reinstated[..]),
        (&[][..], &[3, 4, 5, 6][..])
    );
    assert_eq!(told.visible_state(f, &facts).await, before);
}

pub async fn fact_ended_by_an_unsaid_turn_is_valid_unless_ended_twice<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 3).await;
    let old = told.learn_fact(f, 1, "The player likes grapes.", &[]).await;
    let other = told.learn_fact(f, 2, "The player likes pears.", &[]).await;
    let newest = told.learn_fact(f, 3, "The player likes figs now.", &[old, other]).await;
    // A fact of another dialogue, which stands.
    let elsewhere = f.sample_fact("The player likes plums now.");
    f.learn_fact(elsewhere, &[(other, InvalidReason::Superseded)]).await;
    f.drain_outbox().await;
    let seq = f.memory_seq().await;
    let to = told.turn(2);
    let rewound = told.rewind_to(f, Some(to)).await;
    assert_eq!((rewound.rolled_back.facts, rewound.rolled_back.restored), (1, 1));
    assert!(f.fact(old).await.invalid.is_none());
    assert!(f.fact(other).await.invalid.is_some(), "somebody else ended it");
    let confirmed = f
        .ledger()
        .facts
        .confirm_facts(&f.scope, &f.viewpoint(), &[old, other, newest], f.now())
        .await
        .unwrap()
        .open;
    let confirmed: Vec<FactId> = confirmed.iter().map(|row| row.fact).collect();
    assert_eq!(confirmed, [old]);
    let named = f.drain_outbox().await;
    assert!(named.contains(&old) && named.contains(&newest), "the index is told");
    assert!(f.memory_seq().await > seq, "plans made before are made anew");
    let unsettled = f.ledger().rewinds.list_dirty_memories(&f.scope, 9).await.unwrap();
    assert_eq!(unsettled.len(), 1);
    assert_eq!((&unsettled[0].audience, &unsettled[0].world), (&f.audience(), &f.world));
    assert_eq!(unsettled[0].since, told.turns[2].committed_at);
}

/// The fact to forget does not exist yet.
pub async fn turn_with_a_forget_request_marks_memory_dirty_on_rewind_and_reinstatement<S: LedgerSubject>(
    f: &mut Fixture<S>,
) {
    assert_marks_memory_dirty_both_ways(f, vec!["pears".to_owned()], Vec::new()).await;
}

pub async fn turn_that_ended_a_promise_marks_memory_dirty_on_rewind_and_reinstatement<S: LedgerSubject>(
    f: &mut Fixture<S>,
) {
    let over = PromiseEnd {
        fact: f.ids.next_id(),
        how: InvalidReason::Fulfilled,
    };
    assert_marks_memory_dirty_both_ways(f, Vec::new(), vec![over]).await;
}

async fn assert_marks_memory_dirty_both_ways<S: LedgerSubject>(
    f: &mut Fixture<S>,
    forget: Vec<String>,
    ends: Vec<PromiseEnd>,
) {
    let mut told = dialogue_with_turns(f, 2).await;
    let mut plan = told.fact_plan(f, 2, "", &[]).await;
    plan.facts.clear();
    plan.extractions.push(Extraction {
        turn: told.turn(2),
        dialogue: told.id(),
        number: 2,
        npc: f.npc.clone(),
        audience: f.audience(),
        said_at: told.turns[1].committed_at,
        player: Some(f.player.clone()),
        forget: forget.clone(),
        injected: Vec::new(),
        ends,
        quoted: Vec::new(),
        room: JudgeBudgetShare::WHOLE,
    });
    let mut seq = f.memory_seq().await;
    let rises = async |f: &Fixture<S>, seq: &mut u64| {
        let before = std::mem::replace(seq, f.memory_seq().await);
        assert!(*seq > before, "plans made before are made anew");
    };
    f.reconcile_plan(&plan).await;
    rises(f, &mut seq).await;
    let mut mark = 0;
    for number in [1, 2] {
        let to = told.turn(number);
        told.rewind_to(f, Some(to)).await;
        let facts = &f.ledger().facts;
        let asked = facts.list_forget_requests(&f.scope, told.id(), 1, 2).await.unwrap();
        assert_eq!(asked, if number == 2 { &forget[..] } else { &[] });
        assert!(
            facts
                .list_forget_requests(&f.other, told.id(), 1, 2)
                .await
                .unwrap()
                .is_empty()
        );
        rises(f, &mut seq).await;
        let unsettled = f.ledger().rewinds.list_dirty_memories(&f.scope, 9).await.unwrap();
        assert_eq!(unsettled.len(), 1);
        assert_eq!((&unsettled[0].audience, &unsettled[0].world), (&f.audience(), &f.world));
        assert_eq!(unsettled[0].since, told.turns[1].committed_at);
        assert!(unsettled[0].mark > mark);
        mark = unsettled[0].mark;
    }
}

/// Facts of a faction may be in anyone's prompt. A plan that treats the fact as known, or as new, is made again.
pub async fn rewind_of_widely_known_facts_advances_the_shared_memory_version<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 2).await;
    let mut plan = told.fact_plan(f, 2, "The player likes figs.", &[]).await;
    let guild = Knower::Faction("guild".parse().unwrap());
    plan.facts[0].audience.knowers = BTreeSet::from([guild]);
    f.reconcile_plan(&plan).await;
    let mut seq = f.memory_seq().await;
    for to in [1, 2] {
        let to = told.turn(to);
        told.rewind_to(f, Some(to)).await;
        let before = std::mem::replace(&mut seq, f.memory_seq().await);
        assert!(seq > before);
    }
    // A plan that depends on no memory does not wait for the version.
    let mut nothing = f.sample_plan().await;
    (nothing.npcs, nothing.expected_memory_seq) = (Vec::new(), 0);
    f.reconcile_plan(&nothing).await;
}

pub async fn job_of_an_unsaid_turn_cannot_write<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 3).await;
    let late = told.fact_plan(f, 3, "The player likes figs.", &[]).await;
    let earlier = told.fact_plan(f, 2, "The player likes pears.", &[]).await;
    let turn = told.turn_commit(f, 4);
    let to = told.turn(2);
    told.rewind_to(f, Some(to)).await;
    let facts = &f.ledger().facts;
    assert_eq!(
        facts.commit_reconciliation(&f.scope, &late).await.unwrap(),
        ReconcileOutcome::Fenced
    );
    assert_eq!(
        f.ledger().turns.commit_turn(&f.scope, &turn).await.unwrap(),
        CommitOutcome::Fenced
    );
    let ReconcileTrigger::Job(fence) = late.trigger else {
        unreachable!("it is a job's")
    };
    let moved = [state::location_change(f, "what they said")];
    assert!(
        !f.ledger()
            .state
            .commit_changes(&f.scope, &fence, &moved, &[])
            .await
            .unwrap()
    );
    let summary = summaries::landing_summary(f, fence, told.id(), (1, 3));
    assert!(!f.ledger().summaries.commit_summary(&f.scope, &summary).await.unwrap());
    assert_eq!(
        facts.commit_reconciliation(&f.scope, &earlier).await.unwrap(),
        ReconcileOutcome::Committed,
        "an earlier turn's extraction is not lost"
    );
}

pub async fn rejected_rewind_writes_nothing<S: LedgerSubject>(f: &mut Fixture<S>) {
    let told = dialogue_with_turns(f, 2).await;
    let stranger = self::dialogue_with_turns(f, 1).await;
    let rewinds = &f.ledger().rewinds;
    let stale = RewindCommit {
        epoch: told.open.epoch - 1,
        ..told.rewind_request_to(f, None)
    };
    assert_eq!(
        rewinds.commit_rewind(&f.scope, &stale).await.unwrap(),
        RewindCommitResult::Fenced
    );
    let foreign = told.rewind_request_to(f, None);
    assert_eq!(
        rewinds.commit_rewind(&f.other, &foreign).await.unwrap(),
        RewindCommitResult::Fenced
    );
    let missing = told.rewind_request_to(f, Some(f.id()));
    assert_eq!(
        rewinds.commit_rewind(&f.scope, &missing).await.unwrap(),
        RewindCommitResult::NoSuchTurn
    );
    let others = told.rewind_request_to(f, Some(stranger.turn(1)));
    assert_eq!(
        rewinds.commit_rewind(&f.scope, &others).await.unwrap(),
        RewindCommitResult::NoSuchTurn
    );
    f.close_dialogue(told.id(), told.open.epoch).await;
    let closed = told.rewind_request_to(f, None);
    assert_eq!(
        rewinds.commit_rewind(&f.scope, &closed).await.unwrap(),
        RewindCommitResult::Closed
    );
    assert_eq!(
        f.ledger()
            .dialogues
            .load_turns(&f.scope, told.id(), 1, 9)
            .await
            .unwrap(),
        told.turns
    );
    assert!(
        rewinds
            .list_rewinds_since(&f.scope, told.id(), 0, 9)
            .await
            .unwrap()
            .is_empty()
    );
}

pub async fn rewind_pauses_a_conversation_and_resume_continues_it<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 3).await;
    let dialogues = &f.ledger().dialogues;
    let options = told.open.dialogue.options.clone();
    for (to, paused, is) in [
        (2, Some(true), true),
        (1, None, true),
        (3, Some(false), false),
        (2, None, false),
    ] {
        let rewind = RewindCommit {
            paused,
            ..told.rewind_request_to(f, Some(told.turn(to)))
        };
        told.rewind(f, &rewind).await;
        let stored = dialogues.load_dialogue(&f.scope, told.id()).await.unwrap().unwrap();
        let expected = DialogueOptions {
            paused: is,
            ..options.clone()
        };
        assert_eq!(
            (stored.options, stored.head_turn),
            (expected, u32::try_from(to).unwrap())
        );
    }
    // A failed rewind pauses nothing.
    let stale = RewindCommit {
        epoch: told.open.epoch - 1,
        paused: Some(true),
        ..told.rewind_request_to(f, None)
    };
    let rewinds = &f.ledger().rewinds;
    assert_eq!(
        rewinds.commit_rewind(&f.scope, &stale).await.unwrap(),
        RewindCommitResult::Fenced
    );
    let stored = dialogues.load_dialogue(&f.scope, told.id()).await.unwrap().unwrap();
    assert!(!stored.options.paused);
}

pub async fn turn_pending_regeneration_can_stand_again_until_replaced<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 2).await;
    let (first, second) = (told.turn(1), told.turn(2));
    let before = f.ledger().dialogues.load_checkpoint(&f.scope, told.id()).await.unwrap();
    let replacing = |rewind: RewindCommit| RewindCommit {
        replacing: Some(second),
        ..rewind
    };
    let rewind = replacing(told.rewind_request_to(f, Some(first)));
    told.rewind(f, &rewind).await;
    let owed = async |f: &Fixture<S>| f.ledger().rewinds.list_pending_replacements(&f.scope, 9).await.unwrap();
    assert_eq!(owed(f).await, [told.id()]);
    assert!(
        f.ledger()
            .rewinds
            .list_pending_replacements(&f.other, 9)
            .await
            .unwrap()
            .is_empty()
    );
    told.open = f.claim_dialogue(told.id()).await;
    assert_eq!(told.open.replacing, Some(second));
    // The turn stands again with its checkpoint.
    let again = told.rewind_request_to(f, Some(second));
    told.rewind(f, &again).await;
    let back = f.claim_dialogue(told.id()).await;
    assert_eq!(
        (back.head, back.replacing, Some(&back.checkpoint)),
        (Some(second), None, before.as_ref())
    );
    assert!(owed(f).await.is_empty());
    told.open = back;
    // A replacement turn also ends the regeneration.
    let rewind = replacing(told.rewind_request_to(f, Some(first)));
    told.rewind(f, &rewind).await;
    let mut commit = told.turn_commit(f, 2);
    (commit.expected_head, commit.key) = (Some(first), None);
    let done = f.ledger().turns.commit_turn(&f.scope, &commit).await.unwrap();
    assert_eq!(done, CommitOutcome::Committed);
    assert!(owed(f).await.is_empty());
    assert_eq!(f.claim_dialogue(told.id()).await.replacing, None);
}

pub async fn keys_of_coalesced_callers_find_the_rewind_that_served_them<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 4).await;
    let mut rewind = told.rewind_request_to(f, Some(told.turn(2)));
    rewind.key = Some("own".to_owned());
    rewind.other_keys = ["b", "c"].map(|key| (f.id(), key.to_owned())).into();
    let done = told.rewind(f, &rewind).await;
    let outcome = InterruptOutcome::Rewound(done.clone().into());
    let (scope, id, rewinds) = (&f.scope, told.id(), &f.ledger().rewinds);
    let noted = |keys: &[&str]| RewindAcks {
        recorded_at: f.now(),
        keys: keys.iter().map(|key| (f.id(), (*key).to_owned())).collect(),
        edits: vec![f.audit_edit("session.interrupt")],
    };
    rewinds
        .record_outcome(scope, id, &noted(&["late", "own"]), &outcome, OnKeyConflict::Keep)
        .await
        .unwrap();
    for key in ["own", "b", "c", "late"] {
        let known = rewinds.load_outcome_by_key(scope, id, key).await.unwrap();
        assert_eq!(known.as_ref(), Some(&outcome), "{key}");
    }
    assert_eq!(
        rewinds.list_rewinds_since(scope, id, 0, 9).await.unwrap(),
        std::slice::from_ref(&done),
        "one event"
    );
    // A stored key keeps its outcome.
    let nothing = InterruptOutcome::Idle { head_turn: 2 };
    rewinds
        .record_outcome(scope, id, &noted(&["b", "idle"]), &nothing, OnKeyConflict::Keep)
        .await
        .unwrap();
    assert_eq!(
        rewinds.load_outcome_by_key(scope, id, "b").await.unwrap(),
        Some(outcome.clone())
    );
    let idle = rewinds.load_outcome_by_key(scope, id, "idle").await.unwrap();
    assert_eq!(idle, Some(nothing));
    assert_eq!(rewinds.load_outcome_by_key(&f.other, id, "late").await.unwrap(), None);
    // The key moves to the next rewind if the caller got that answer. The first rewind is still published.
    let mut lower = told.rewind_request_to(f, Some(told.turn(1)));
    lower.seq = done.seq + 1;
    lower.other_keys = vec![(f.id(), "own".to_owned())];
    let last = told.rewind(f, &lower).await;
    assert_eq!(
        rewinds.load_outcome_by_key(scope, id, "own").await.unwrap(),
        Some(InterruptOutcome::Rewound(last.clone().into()))
    );
    let events = rewinds.list_rewinds_since(scope, id, 0, 9).await.unwrap();
    assert_eq!(events, [done, last]);
    let noted = RewindAcks {
        recorded_at: f.now(),
        keys: vec![(f.id(), "own".to_owned())],
        edits: Vec::new(),
    };
    rewinds
        .record_outcome(scope, id, &noted, &outcome, OnKeyConflict::Replace)
        .await
        .unwrap();
    assert_eq!(
        rewinds.load_outcome_by_key(scope, id, "own").await.unwrap(),
        Some(outcome)
    );
}

pub async fn rewind_key_finds_its_rewind_and_rewinds_are_read_in_order<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 4).await;
    let keyed = |rewind: RewindCommit, seq| RewindCommit {
        key: Some("retry".to_owned()),
        seq,
        ..rewind
    };
    let (third, second) = (told.turn(3), told.turn(2));
    let rewind = keyed(told.rewind_request_to(f, Some(third)), 50);
    let first = told.rewind(f, &rewind).await;
    let outcome = InterruptOutcome::Rewound(first.clone().into());
    let rewinds = &f.ledger().rewinds;
    // The key finds its rewind in any epoch.
    let again = keyed(told.rewind_request_to(f, None), 60);
    assert_eq!(
        rewinds.commit_rewind(&f.scope, &again).await.unwrap(),
        RewindCommitResult::Repeated(outcome.clone())
    );
    assert_eq!(
        rewinds.load_outcome_by_key(&f.scope, told.id(), "retry").await.unwrap(),
        Some(outcome)
    );
    assert_eq!(
        rewinds.load_outcome_by_key(&f.other, told.id(), "retry").await.unwrap(),
        None
    );
    assert_eq!(
        rewinds
            .load_outcome_by_key(&f.scope, told.id(), "another")
            .await
            .unwrap(),
        None
    );
    let next = RewindCommit {
        seq: 70,
        ..told.rewind_request_to(f, Some(second))
    };
    let next = told.rewind(f, &next).await;
    assert_eq!(
        f.ledger()
            .rewinds
            .list_rewinds_since(&f.scope, told.id(), 0, 9)
            .await
            .unwrap(),
        [first, next.clone()]
    );
    assert_eq!(
        f.ledger()
            .rewinds
            .list_rewinds_since(&f.scope, told.id(), 50, 9)
            .await
            .unwrap(),
        [next]
    );
    assert!(
        f.ledger()
            .rewinds
            .list_rewinds_since(&f.other, told.id(), 0, 9)
            .await
            .unwrap()
            .is_empty()
    );
}

pub async fn session_joined_from_an_unsaid_turn_is_closed<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut told = dialogue_with_turns(f, 3).await;
    let (kept, gone) = (told.turn(1), told.turn(3));
    let mut ids = Vec::new();
    for cause in [kept, gone] {
        let mut dialogue = f.sample_dialogue();
        dialogue.cause = Some(Cause::Turn(cause));
        assert!(f.ledger().dialogues.create_dialogue(&f.scope, &dialogue).await.unwrap());
        ids.push(dialogue.id);
    }
    let rewound = told.rewind_to(f, Some(kept)).await;
    assert_eq!(rewound.closed, [ids[1]]);
    let status = async |id| {
        f.ledger()
            .dialogues
            .load_dialogue(&f.scope, id)
            .await
            .unwrap()
            .unwrap()
            .status
    };
    assert_eq!(status(ids[0]).await, DialogueStatus::Open);
    assert_eq!(status(ids[1]).await, DialogueStatus::Closed);
    let mut late = f.sample_dialogue();
    late.cause = Some(Cause::Turn(gone));
    assert!(!f.ledger().dialogues.create_dialogue(&f.scope, &late).await.unwrap());
    assert_eq!(
        f.ledger().dialogues.load_dialogue(&f.scope, late.id).await.unwrap(),
        None,
        "nobody joins there"
    );
}

pub async fn remote_turns_that_quoted_unsaid_text_are_named<S: LedgerSubject>(f: &mut Fixture<S>) {
    let other: NpcId = "ergen".parse().unwrap();
    // Other holders of the quoted fact, with the NPC that had the fact in its prompt.
    for (knowers, by) in [
        (f.audience().knowers, f.npc.clone()),
        ([Knower::Faction("guild".parse().unwrap())].into(), other.clone()),
        ([Knower::World].into(), other.clone()),
        // Both knowers may have had the fact in a prompt.
        (&f.audience().knowers | &BTreeSet::from([Knower::World]), other),
        (&f.audience().knowers | &BTreeSet::from([Knower::World]), f.npc.clone()),
    ] {
        let mut told = dialogue_with_turns(f, 2).await;
        let mut facts = Vec::new();
        for (number, content) in [(1, "The player likes grapes."), (2, "The player likes figs.")] {
            let mut plan = told.fact_plan(f, number, content, &[]).await;
            plan.facts[0].audience.knowers.clone_from(&knowers);
            f.reconcile_plan(&plan).await;
            facts.push(plan.facts[0].id);
        }
        let mut elsewhere = Vec::new();
        for quoted in [vec![facts[0]], facts.clone()] {
            let other = self::dialogue_with_turns(f, 1).await;
            let mut plan = other.fact_plan(f, 1, "The player is back.", &[]).await;
            plan.extractions.push(Extraction {
                turn: other.turn(1),
                dialogue: other.id(),
                number: 1,
                npc: by.clone(),
                audience: f.audience(),
                said_at: other.turns[0].committed_at,
                player: Some(f.player.clone()),
                forget: Vec::new(),
                ends: Vec::new(),
                injected: Vec::new(),
                quoted,
                room: JudgeBudgetShare::WHOLE,
            });
            f.reconcile_plan(&plan).await;
            elsewhere.push(other);
        }
        let to = told.turn(1);
        let rewound = told.rewind_to(f, Some(to)).await;
        let quoted = QuotedIn {
            dialogue_id: elsewhere[1].id(),
            turn: 1,
        };
        assert_eq!(rewound.quoted_in, [quoted], "{knowers:?}");
        assert_eq!(
            f.ledger()
                .dialogues
                .load_turns(&f.scope, elsewhere[1].id(), 1, 9)
                .await
                .unwrap(),
            elsewhere[1].turns,
            "what was said there stands"
        );
    }
}
