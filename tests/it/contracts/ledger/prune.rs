use std::time::Duration;

use colloquy::{
    memory::{fact::Cause, reconcile::JudgeVerdict},
    ports::{
        PageRequest,
        ledger::{
            PruneBefore,
            dialogues::{DialogueFilter, OpenDialogue},
            facts::{JudgedPair, ReconcileTrigger},
            jobs::{JobFailure, JobKind},
            rewinds::{InterruptOutcome, OnKeyConflict, RewindAcks, RewindRecord},
        },
    },
};

use super::{
    LedgerSubject,
    fixture::Fixture,
    rewind_fixtures::dialogue_with_turns,
    saves::{checkpoint_turn, put_default_world, restore_save, take_save},
};

pub async fn expired_rows_alone_are_pruned<S: LedgerSubject>(f: &Fixture<S>) {
    let ledger = f.ledger();
    let mut made = Vec::new();
    for number in 0..2_u8 {
        let (dialogue, done) = f.sample_job_fence(JobKind::Summarise).await;
        let (_, pending) = f.sample_job_fence(JobKind::Summarise).await;
        let (_, dead) = f.sample_job_fence(JobKind::Summarise).await;
        ledger.jobs.finish_job(&f.scope, done.job, &[]).await.unwrap();
        ledger
            .jobs
            .fail_job(&f.scope, dead.job, f.node, "no", JobFailure::Dead, &[])
            .await
            .unwrap();
        let plan = f.sample_plan().await;
        let judged = JudgedPair {
            pair: [number; 32],
            verdict: JudgeVerdict::Same,
            model: "judge".to_owned(),
        };
        ledger.facts.store_verdicts(&f.scope, &[judged]).await.unwrap();
        let ReconcileTrigger::Job(fence) = plan.trigger.clone() else {
            unreachable!()
        };
        f.reconcile_plan(&plan).await;
        made.push((dialogue, done.job, fence.job, [pending.job, dead.job]));
        f.clock.advance(Duration::from_hours(24));
    }
    let at = f.now() - chrono::Duration::hours(36);
    let prune = async |scope, before: &PruneBefore, limit| {
        ledger.maintenance.prune_expired(scope, before, limit).await.unwrap()
    };
    let all = PruneBefore {
        done_jobs: Some(at),
        traces: Some(at),
        verdicts: Some(at),
        unsaid: None,
        revocations: None,
        unchanged: None,
        npc_usage: None,
        audit: None,
        player_usage: None,
        webhook_messages: None,
    };
    assert_eq!(prune(&f.scope, &PruneBefore::default(), 9).await, 0);
    assert_eq!(prune(&f.other, &all, 9).await, 0);
    // Two done jobs, a verdict and three traces, as one trace's turn has a pending job. A call prunes at most one of
    // each.
    assert_eq!(prune(&f.scope, &all, 1).await, 3);
    assert_eq!(prune(&f.scope, &all, 9).await, 1 + 2);
    assert_eq!(prune(&f.scope, &all, 9).await, 0);

    let page = PageRequest { limit: 50, after: None };
    let left: Vec<_> = ledger.jobs.list_jobs(&f.scope, None, &page).await.unwrap().items;
    let has = |job| left.iter().any(|row| row.id == job);
    let ((old, new), (gone, kept)) = ((&made[0], &made[1]), (&made[0].3, &made[1].3));
    assert!(!has(old.1) && !has(old.2) && gone.iter().all(|job| has(*job)));
    assert!(has(new.1) && has(new.2) && kept.iter().all(|job| has(*job)));
    let trace = async |dialogue| ledger.dialogues.load_trace(&f.scope, dialogue, 1).await.unwrap();
    assert!(trace(old.0).await.is_none() && trace(new.0).await.is_some());
    let verdict = async |number| {
        ledger
            .facts
            .load_verdicts(&f.scope, &[[number; 32]])
            .await
            .unwrap()
            .remove(&[number; 32])
    };
    assert_eq!((verdict(0).await, verdict(1).await), (None, Some(JudgeVerdict::Same)));
}

pub async fn unsaid_rows_are_pruned_unless_they_can_stand_again<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let mut talk = dialogue_with_turns(f, 3).await;
    let tea = talk.learn_fact(f, 1, "The player likes tea.", &[]).await;
    let grapes = talk.learn_fact(f, 2, "The player likes grapes.", &[]).await;
    let saved = take_save(f, "before").await;
    talk.commit_turn(f, 4).await;
    talk.commit_turn(f, 5).await;
    let figs = talk.learn_fact(f, 5, "The player likes figs now.", &[tea]).await;
    let first = talk.turn(1);
    let mut back = talk.rewind_request_to(f, Some(first));
    back.key = Some("back".to_owned());
    talk.rewind(f, &back).await;
    // This turn is being regenerated, and has no replacement yet.
    let mut anew = dialogue_with_turns(f, 2).await;
    let (to, last) = (anew.turn(1), anew.turn(2));
    let mut going = anew.rewind_request_to(f, Some(to));
    going.replacing = Some(last);
    anew.rewind(f, &going).await;
    f.clock.advance(Duration::from_hours(48));

    let ledger = f.ledger();
    let before = |hours| PruneBefore {
        unsaid: Some(f.now() - chrono::Duration::hours(hours)),
        ..PruneBefore::default()
    };
    let prune = async |scope, hours, limit| {
        ledger
            .maintenance
            .prune_expired(scope, &before(hours), limit)
            .await
            .unwrap()
    };
    assert_eq!(prune(&f.scope, 72, 9).await, 0);
    assert_eq!(prune(&f.other, 24, 9).await, 0);
    // Two turns and two rewinds. A call prunes at most one of each.
    assert_eq!(prune(&f.scope, 24, 1).await, 2);
    assert_eq!(prune(&f.scope, 24, 9).await, 2);
    assert_eq!(prune(&f.scope, 24, 9).await, 0);

    let keyed = async |number: u32| {
        let key = format!("key {number}");
        let found = ledger.dialogues.load_turn_by_key(&f.scope, talk.id(), &key);
        found.await.unwrap().unwrap()
    };
    for number in [4, 5] {
        let shell = keyed(number).await;
        assert_eq!((shell.turn.id, shell.stands), (talk.turn(number as usize), false));
        assert_eq!((&shell.turn.player_text[..], &shell.turn.reply_text[..]), ("", ""));
    }
    assert_eq!(keyed(3).await.turn, talk.turns[2], "the save has it");
    assert_eq!(ledger.facts.load_fact(&f.scope, figs).await.unwrap(), None);
    assert!(f.fact(tea).await.invalid.is_none());
    assert!(
        ledger.facts.load_history(&f.scope, tea).await.unwrap().is_empty(),
        "what ended it is gone"
    );
    let moved = ledger
        .rewinds
        .load_outcome_by_key(&f.scope, talk.id(), "back")
        .await
        .unwrap();
    assert_eq!(moved, None);

    let found = ledger
        .dialogues
        .load_turn_by_key(&f.scope, anew.id(), "key 2")
        .await
        .unwrap();
    assert_eq!(found.unwrap().turn, anew.turns[1], "it may stand again");

    restore_save(f, saved.id).await;
    assert!(f.fact(grapes).await.invalid.is_none());
    assert_eq!(checkpoint_turn(f, talk.id()).await, Some(3));
}

pub async fn join_position_survives_pruning<S: LedgerSubject>(f: &mut Fixture<S>) {
    let mut talk = dialogue_with_turns(f, 2).await;
    let mut unkeyed = talk.turn_commit(f, 3);
    unkeyed.key = None;
    f.commit_turn(&unkeyed).await;
    talk.turns.push(unkeyed.turn);
    let at = talk.turn(3);
    let mut joined = f.sample_dialogue();
    joined.cause = Some(Cause::Turn(at));
    assert!(f.ledger().dialogues.create_dialogue(&f.scope, &joined).await.unwrap());
    let first = talk.turn(1);
    talk.rewind_to(f, Some(first)).await;
    f.clock.advance(Duration::from_hours(48));
    let before = PruneBefore {
        unsaid: Some(f.now() - chrono::Duration::hours(24)),
        ..PruneBefore::default()
    };
    let pruned = f
        .ledger()
        .maintenance
        .prune_expired(&f.scope, &before, 9)
        .await
        .unwrap();
    assert!(pruned >= 2, "{pruned}");
    let shell = f.ledger().dialogues.load_turn(&f.scope, at).await.unwrap().unwrap();
    assert_eq!((shell.stands, &shell.turn.reply_text[..]), (false, ""));
    assert_eq!(shell.turn.dialogue, talk.id());
}

pub async fn jobs_of_a_pinned_turn_are_not_pruned<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    let mut talk = dialogue_with_turns(f, 2).await;
    let taken = take_save(f, "").await;
    let to = talk.turn(1);
    talk.rewind_to(f, Some(to)).await;
    let mut loose = dialogue_with_turns(f, 2).await;
    let to = loose.turn(1);
    loose.rewind_to(f, Some(to)).await;
    let later = f.now() + chrono::Duration::days(100);
    let before = PruneBefore {
        done_jobs: Some(later),
        traces: Some(later),
        ..PruneBefore::default()
    };
    let pruned = f
        .ledger()
        .maintenance
        .prune_expired(&f.scope, &before, 100)
        .await
        .unwrap();
    assert_eq!(
        pruned, 2,
        "of the turn that no save has its job and its trace; the others' jobs are to be done, or may be"
    );
    restore_save(f, taken.id).await;
    let trace = async |number| {
        f.ledger()
            .dialogues
            .load_trace(&f.scope, talk.id(), number)
            .await
            .unwrap()
    };
    let pruned = f
        .ledger()
        .maintenance
        .prune_expired(&f.scope, &before, 100)
        .await
        .unwrap();
    assert_eq!(pruned, 2, "the same of the turn that the save ended");
    assert!(
        trace(2).await.is_some(),
        "what was given up with its turn is gone on with"
    );
    assert_eq!(
        f.ledger().jobs.count_pending_jobs(&f.scope, talk.id()).await.unwrap(),
        2
    );
}

pub async fn verdicts_are_not_pruned_while_a_save_exists<S: LedgerSubject>(f: &Fixture<S>) {
    put_default_world(f).await;
    dialogue_with_turns(f, 1).await;
    let pairs: [[u8; 32]; 2] = [[0; 32], [1; 32]];
    let mut saved = Vec::new();
    for pair in pairs {
        let judged = JudgedPair {
            pair,
            verdict: JudgeVerdict::Same,
            model: "judge".to_owned(),
        };
        f.ledger().facts.store_verdicts(&f.scope, &[judged]).await.unwrap();
        f.clock.advance(Duration::from_hours(1));
        saved.push(take_save(f, "").await.id);
        f.clock.advance(Duration::from_hours(1));
    }
    let before = PruneBefore {
        verdicts: Some(f.now()),
        ..PruneBefore::default()
    };
    for (nth, id) in saved.into_iter().enumerate() {
        // A verdict on a pinned fact may be older than the save, and older than all saves.
        let pruned = f
            .ledger()
            .maintenance
            .prune_expired(&f.scope, &before, 100)
            .await
            .unwrap();
        let left = f.ledger().facts.load_verdicts(&f.scope, &pairs).await.unwrap();
        assert_eq!((pruned, left.len()), (0, 2), "with {} saves", 2 - nth);
        let edit = f.audit_edit("save.delete");
        let world = "vale".parse().unwrap();
        assert!(f.ledger().saves.delete_save(&f.scope, &world, id, &edit).await.unwrap());
    }
    let pruned = f
        .ledger()
        .maintenance
        .prune_expired(&f.scope, &before, 100)
        .await
        .unwrap();
    assert_eq!(pruned, 2);
}

#[expect(clippy::too_many_lines, reason = "one story, in its order")]
pub async fn unchanged_rows_alone_are_pruned<S: LedgerSubject>(f: &mut Fixture<S>) {
    put_default_world(f).await;
    let ledger = f.ledger();
    let created = async || {
        let dialogue = f.sample_dialogue();
        ledger.dialogues.create_dialogue(&f.scope, &dialogue).await.unwrap();
        dialogue.id
    };
    // A saved session, a never-opened session, an opened and released session, and a session in memory.
    let saved = created().await;
    take_save(f, "early").await;
    let unopened = created().await;
    let left = f.open_dialogue().await;
    f.close_dialogue(left.dialogue.id, left.epoch).await;
    let release = async |open: &OpenDialogue| {
        let id = open.dialogue.id;
        ledger
            .dialogues
            .release_ownership(&f.scope, id, open.epoch, 0)
            .await
            .unwrap();
    };
    release(&left).await;
    let in_memory = f.open_dialogue().await;
    // Its node was killed.
    let left_behind = f.open_dialogue().await.dialogue.id;
    // These dialogues have turns. In the last dialogue all turns are unsaid.
    let mut talk = dialogue_with_turns(f, 2).await;
    let mut back = talk.rewind_request_to(f, None);
    back.key = Some("back".to_owned());
    let moved = talk.rewind(f, &back).await;
    let (all_back, other) = (talk.id(), dialogue_with_turns(f, 1).await.id());
    for id in [all_back, other] {
        release(&f.claim_dialogue(id).await).await;
    }
    // A caller of the same rewind as another caller, and a caller with nothing to rewind.
    let note = async |key: &str, outcome: InterruptOutcome| {
        let asked = RewindAcks {
            recorded_at: f.now(),
            keys: vec![(f.id(), key.to_owned())],
            edits: Vec::new(),
        };
        let rewinds = &ledger.rewinds;
        rewinds
            .record_outcome(&f.scope, other, &asked, &outcome, OnKeyConflict::Keep)
            .await
            .unwrap();
    };
    let idle = InterruptOutcome::Idle { head_turn: 1 };
    note("same", InterruptOutcome::Rewound(moved.clone().into())).await;
    note("cut", InterruptOutcome::Cut { turn: 2 }).await;
    note("nothing", idle.clone()).await;
    note("dropped", InterruptOutcome::Dropped { turn: 2 }).await;
    // The outcomes of an earlier build had the form of a rewind, and no kind.
    for (key, heard_chars) in [("old cut", Some(7)), ("old nothing", None), ("old dropped", Some(0))] {
        note(key, idle.clone()).await;
        let old = RewindRecord {
            heard_chars,
            head_turn: 2,
            seq: 0,
            ..moved.clone()
        };
        let old = serde_json::to_string(&old).unwrap();
        f.subject.overwrite_outcome(key, &old).await;
    }
    f.clock.advance(Duration::from_hours(36));
    note("new", idle.clone()).await;
    let until = f.now() + chrono::Duration::seconds(30);
    let renewed = ledger
        .dialogues
        .renew_ownership(&f.scope, in_memory.dialogue.id, in_memory.epoch, until)
        .await;
    assert!(renewed.unwrap());
    let young = created().await;

    let before = |hours| PruneBefore {
        unchanged: Some(f.now() - chrono::Duration::hours(hours)),
        ..PruneBefore::default()
    };
    let prune = async |scope, hours, limit| {
        ledger
            .maintenance
            .prune_expired(scope, &before(hours), limit)
            .await
            .unwrap()
    };
    assert_eq!(prune(&f.scope, 48, 9).await, 0);
    assert_eq!(prune(&f.other, 24, 9).await, 0);
    // Three sessions and four outcomes. A call prunes at most one of each.
    assert_eq!(prune(&f.scope, 24, 1).await, 2);
    assert_eq!(prune(&f.scope, 24, 9).await, 5);
    assert_eq!(prune(&f.scope, 24, 9).await, 0);
    let is_there = async |id| ledger.dialogues.load_dialogue(&f.scope, id).await.unwrap().is_some();
    for gone in [unopened, left.dialogue.id, left_behind] {
        assert!(!is_there(gone).await);
    }
    for kept in [saved, in_memory.dialogue.id, all_back, other, young] {
        assert!(is_there(kept).await);
    }
    for (key, known) in [
        ("same", Some(InterruptOutcome::Rewound(moved.into()))),
        ("cut", Some(InterruptOutcome::Cut { turn: 2 })),
        ("nothing", None),
        ("dropped", None),
        ("old cut", Some(InterruptOutcome::Cut { turn: 2 })),
        ("old nothing", None),
        ("old dropped", None),
        ("new", Some(idle)),
    ] {
        let found = ledger.rewinds.load_outcome_by_key(&f.scope, other, key).await.unwrap();
        assert_eq!(found, known, "{key}");
    }
    let filter = DialogueFilter {
        npc: Some(f.npc.clone()),
        ..DialogueFilter::default()
    };
    let page = PageRequest { limit: 50, after: None };
    let listed = ledger
        .dialogues
        .list_dialogues(&f.scope, &filter, &page)
        .await
        .unwrap()
        .items;
    assert!(
        listed
            .iter()
            .all(|dialogue| dialogue.id != unopened && dialogue.id != left.dialogue.id)
    );
}
