use colloquy::{
    memory::{fact::InvalidReason, reconcile::JudgeVerdict, timeline::FlaggedFact},
    ports::ledger::{
        facts::{
            FactFilter, FactHistoryEntry, FactPatch, JudgedPair, ReconcileOutcome, ReconcileTrigger, Reconciliation,
        },
        jobs::JobFence,
    },
    tenancy::TenantScope,
};

use super::{LedgerSubject, fixture::Fixture};

fn fence_of(plan: &mut Reconciliation) -> &mut JobFence {
    match &mut plan.trigger {
        ReconcileTrigger::Job(fence) => fence,
        ReconcileTrigger::DirtyMemory { .. } => unreachable!("plans of this suite are of jobs"),
    }
}

async fn reconcile_outcome<S: LedgerSubject>(f: &Fixture<S>, plan: &Reconciliation) -> ReconcileOutcome {
    f.ledger().facts.commit_reconciliation(&f.scope, plan).await.unwrap()
}

pub async fn reconciliation_writes_everything_at_once<S: LedgerSubject>(f: &Fixture<S>) {
    let old = f.learn_fact(f.sample_fact("lives in the keep"), &[]).await;
    let before = f.memory_seq().await;
    f.drain_outbox().await;
    f.advance_clock();
    let mut plan = f.sample_plan().await;
    let (one, two) = (f.sample_fact("lives in the vale"), f.sample_fact("has a dog"));
    plan.invalidations = vec![f.sample_invalidation(old, InvalidReason::Superseded, Some(one.id))];
    plan.facts = vec![one.clone(), two.clone()];
    let dialogue = f
        .ledger()
        .dialogues
        .load_turn(&f.scope, fence_of(&mut plan).turn)
        .await
        .unwrap()
        .unwrap()
        .turn
        .dialogue;
    assert_eq!(f.ledger().jobs.count_pending_jobs(&f.scope, dialogue).await.unwrap(), 1);
    f.reconcile_plan(&plan).await;

    assert_eq!(f.ledger().jobs.count_pending_jobs(&f.scope, dialogue).await.unwrap(), 0);
    assert_eq!(f.memory_seq().await, before + 1);
    let mut touched = f.drain_outbox().await;
    touched.sort();
    assert_eq!(touched, [old, one.id, two.id]);
    let invalid = f.fact(old).await.invalid.unwrap();
    assert_eq!(
        (invalid.reason, invalid.ended_by),
        (InvalidReason::Superseded, Some(one.id))
    );
    // A fact is not folded with the facts it replaces.
    assert_eq!((f.fact(one.id).await.version, f.fact(two.id).await.version), (1, 1));
    let ids = [old, one.id, two.id];
    let valid = f
        .ledger()
        .facts
        .confirm_facts(&f.scope, &f.viewpoint(), &ids, f.now())
        .await
        .unwrap()
        .open;
    assert_eq!(valid.iter().map(|row| row.fact).collect::<Vec<_>>(), [one.id, two.id]);
}

pub async fn closed_fence_rejects_all_writes<S: LedgerSubject>(f: &Fixture<S>) {
    let mut plan = f.sample_plan().await;
    plan.facts = vec![f.sample_fact("anything")];
    let mut cut_since = plan.clone();
    fence_of(&mut cut_since).text_version += 1;
    assert_eq!(reconcile_outcome(f, &cut_since).await, ReconcileOutcome::Fenced);
    let mut other_turn = plan.clone();
    fence_of(&mut other_turn).turn = f.id();
    assert_eq!(reconcile_outcome(f, &other_turn).await, ReconcileOutcome::Fenced);
    let theirs = f.ledger().facts.commit_reconciliation(&f.other, &plan).await.unwrap();
    assert_eq!(theirs, ReconcileOutcome::Fenced);
    assert!(f.drain_outbox().await.is_empty());

    f.reconcile_plan(&plan).await;
    // The same job runs again, with any memory version.
    assert_eq!(reconcile_outcome(f, &plan).await, ReconcileOutcome::Fenced);
    assert_eq!(f.drain_outbox().await.len(), 1);
}

pub async fn memory_changed_since_the_plan_is_reported_and_left_unwritten<S: LedgerSubject>(f: &Fixture<S>) {
    let mut plan = f.sample_plan().await;
    plan.facts = vec![f.sample_fact("anything")];
    f.learn_fact(f.sample_fact("meanwhile"), &[]).await;
    f.drain_outbox().await;
    assert_eq!(reconcile_outcome(f, &plan).await, ReconcileOutcome::MemoryMoved);
    assert_eq!(
        f.ledger().facts.load_fact(&f.scope, plan.facts[0].id).await.unwrap(),
        None
    );
    assert!(f.drain_outbox().await.is_empty());
    // After a new plan, the same job may still write.
    plan.expected_memory_seq = f.memory_seq().await;
    f.reconcile_plan(&plan).await;
}

pub async fn concurrent_plans_on_one_memory_make_one_retry<S: LedgerSubject>(f: &Fixture<S>) {
    let (mut one, mut two) = (f.sample_plan().await, f.sample_plan().await);
    one.facts = vec![f.sample_fact("the player likes grapes")];
    two.facts = vec![f.sample_fact("the player loves grapes")];
    let facts = &f.ledger().facts;
    let (first, second) = tokio::join!(
        facts.commit_reconciliation(&f.scope, &one),
        facts.commit_reconciliation(&f.scope, &two)
    );
    let mut outcomes = [first.unwrap(), second.unwrap()];
    outcomes.sort_by_key(|outcome| *outcome != ReconcileOutcome::Committed);
    assert_eq!(outcomes, [ReconcileOutcome::Committed, ReconcileOutcome::MemoryMoved]);
    assert_eq!(f.drain_outbox().await.len(), 1);
}

pub async fn manual_edit_advances_the_memory_version<S: LedgerSubject>(f: &Fixture<S>) {
    let mut plan = f.sample_plan().await;
    plan.facts = vec![f.sample_fact("anything")];
    let id = f.create_fact(f.sample_fact("by hand")).await;
    assert_eq!(reconcile_outcome(f, &plan).await, ReconcileOutcome::MemoryMoved);
    let facts = &f.ledger().facts;
    let mut seq = f.memory_seq().await;
    let patch = FactPatch {
        pinned: Some(true),
        ..FactPatch::default()
    };
    facts
        .edit_fact(&f.scope, id, &patch, None, &f.audit_edit("fact.edit"))
        .await
        .unwrap();
    assert!(f.memory_seq().await > seq);
    seq = f.memory_seq().await;
    facts
        .remove_fact(&f.scope, id, None, &f.audit_edit("fact.remove"))
        .await
        .unwrap();
    assert!(f.memory_seq().await > seq);
    seq = f.memory_seq().await;
    facts
        .restore_fact(&f.scope, id, None, &f.audit_edit("fact.restore"))
        .await
        .unwrap();
    assert!(f.memory_seq().await > seq);
    let nobodys = facts.memory_position(&f.scope, &f.world, &[]).await.unwrap();
    assert_eq!(nobodys.seq, 0);
}

pub async fn memory_reports_pending_index_writes<S: LedgerSubject>(f: &Fixture<S>) {
    let facts = &f.ledger().facts;
    let is_indexed = async |scope: &TenantScope| {
        let position = facts
            .memory_position(scope, &f.world, std::slice::from_ref(&f.npc))
            .await;
        position.unwrap().is_indexed
    };
    assert!(is_indexed(&f.scope).await);
    f.create_fact(f.sample_fact("by hand")).await;
    assert!(!is_indexed(&f.scope).await);
    assert!(is_indexed(&f.other).await, "it is nothing of another tenant's");
    f.drain_outbox().await;
    assert!(is_indexed(&f.scope).await);
}

pub async fn verdicts_are_stored_by_pair<S: LedgerSubject>(f: &Fixture<S>) {
    let pair = |byte, verdict| JudgedPair {
        pair: [byte; 32],
        verdict,
        model: "judge".to_owned(),
    };
    let seq = f.memory_seq().await;
    let facts = &f.ledger().facts;
    for judged in [pair(1, JudgeVerdict::Same), pair(2, JudgeVerdict::Contradicts)] {
        facts.store_verdicts(&f.scope, &[judged]).await.unwrap();
    }
    // A verdict does not change the memory version.
    assert_eq!(f.memory_seq().await, seq);
    assert_eq!(
        facts
            .load_verdicts(&f.scope, &[[1; 32]])
            .await
            .unwrap()
            .remove(&[1; 32]),
        Some(JudgeVerdict::Same)
    );
    assert_eq!(
        facts
            .load_verdicts(&f.scope, &[[2; 32]])
            .await
            .unwrap()
            .remove(&[2; 32]),
        Some(JudgeVerdict::Contradicts)
    );
    assert_eq!(
        facts
            .load_verdicts(&f.scope, &[[3; 32]])
            .await
            .unwrap()
            .remove(&[3; 32]),
        None
    );
    assert_eq!(
        facts
            .load_verdicts(&f.other, &[[1; 32]])
            .await
            .unwrap()
            .remove(&[1; 32]),
        None
    );
    let again = pair(1, JudgeVerdict::Independent);
    facts.store_verdicts(&f.scope, &[again]).await.unwrap();
    assert_eq!(
        facts
            .load_verdicts(&f.scope, &[[1; 32]])
            .await
            .unwrap()
            .remove(&[1; 32]),
        Some(JudgeVerdict::Independent)
    );
}

pub async fn flags_are_recorded_in_history<S: LedgerSubject>(f: &Fixture<S>) {
    let mut kept = f.sample_fact("is allergic to nuts");
    kept.authored = true;
    let kept = f.create_fact(kept).await;
    f.advance_clock();
    let mut plan = f.sample_plan().await;
    let new = f.sample_fact("eats nuts");
    plan.flags = vec![FlaggedFact {
        fact: kept,
        statement: new.id,
        turn: fence_of(&mut plan).turn,
    }];
    let by = new.id;
    plan.facts = vec![new];
    f.reconcile_plan(&plan).await;
    let history = f.ledger().facts.load_history(&f.scope, kept).await.unwrap();
    assert_eq!(history, [FactHistoryEntry::Flagged { by, at: f.now() }]);
    assert_eq!(f.fact(kept).await.invalid, None);
    let facts = &f.ledger().facts;
    let everything = super::facts::match_all_filter(f);
    let flagged = FactFilter {
        flagged: true,
        ..everything.clone()
    };
    assert_eq!(super::facts::listed_ids(f, &flagged).await, [kept]);
    assert_eq!(super::facts::listed_ids(f, &everything).await.len(), 2);
    let found = facts.list_contradictions(&f.scope, &[kept, by], f.now()).await.unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|by| (by.fact, by.statement, by.content.as_str(), by.flagged_at))
        .collect();
    assert_eq!(found, [(kept, by, f.fact(by).await.view.content.as_str(), f.now())]);
    assert_eq!(facts.list_contradictions(&f.other, &[kept], f.now()).await.unwrap(), []);
    // The turn is reconciled again. Flags without a new judgement stay, and so do flags by other memories. All other
    // flags go.
    let turn = fence_of(&mut plan).turn;
    for (of, flags_kept, left) in [
        (by, vec![(kept, by)], 1),
        (f.id(), Vec::new(), 1),
        (by, vec![(kept, f.id())], 0),
    ] {
        let mut again = f.sample_plan().await;
        again.facts = vec![f.sample_fact("sings")];
        (again.flagging, again.flagging_by, again.flags_kept) = (vec![turn], vec![of], flags_kept);
        f.reconcile_plan(&again).await;
        let flags = f.ledger().facts.load_history(&f.scope, kept).await.unwrap();
        let flags = flags
            .iter()
            .filter(|entry| matches!(entry, FactHistoryEntry::Flagged { .. }));
        assert_eq!(flags.count(), left);
    }
}

pub async fn foreign_fact_cannot_be_invalidated<S: LedgerSubject>(f: &Fixture<S>) {
    let theirs = f.sample_fact("theirs");
    f.ledger()
        .facts
        .create_fact(&f.other, &theirs, false, &f.audit_edit("fact.create"))
        .await
        .unwrap();
    let mut plan = f.sample_plan().await;
    plan.invalidations = vec![f.sample_invalidation(theirs.id, InvalidReason::Forgotten, None)];
    plan.flags = vec![FlaggedFact {
        fact: theirs.id,
        statement: f.id(),
        turn: fence_of(&mut plan).turn,
    }];
    f.reconcile_plan(&plan).await;
    let facts = &f.ledger().facts;
    let untouched = facts.load_fact(&f.other, theirs.id).await.unwrap().unwrap();
    assert_eq!((untouched.invalid, untouched.version), (None, 1));
    for scope in [&f.scope, &f.other] {
        assert!(facts.load_history(scope, theirs.id).await.unwrap().is_empty());
    }
}

pub async fn extraction_without_facts_only_ends_its_job<S: LedgerSubject>(f: &Fixture<S>) {
    let plan = f.sample_plan().await;
    let seq = f.memory_seq().await;
    f.reconcile_plan(&plan).await;
    assert_eq!(f.memory_seq().await, seq);
    assert!(f.drain_outbox().await.is_empty());
    assert_eq!(reconcile_outcome(f, &plan).await, ReconcileOutcome::Fenced);
}
