use colloquy::{
    ids::FactId,
    memory::{
        fact::{Cause, InvalidReason, NewFact, NewInvalidation},
        timeline::{JudgeBudgetShare, PromiseEnd},
    },
    ports::ledger::facts::{Extraction, FactPatch, ReconcileTrigger, TimelineRows},
};

use super::{LedgerSubject, fixture::Fixture};

async fn remove_fact<S: LedgerSubject>(f: &Fixture<S>, fact: FactId) {
    let edit = f.audit_edit("fact.remove");
    f.ledger().facts.remove_fact(&f.scope, fact, None, &edit).await.unwrap();
}

pub async fn timeline_has_statements_made_or_ended_since_its_start<S: LedgerSubject>(f: &Fixture<S>) {
    let before = f.learn_fact(f.sample_fact("one"), &[]).await;
    let ended = f.learn_fact(f.sample_fact("two"), &[]).await;
    let removed = f.learn_fact(f.sample_fact("three"), &[]).await;
    f.advance_clock();
    let since = f.now();
    let mut other = f.sample_fact("four");
    other.audience.private_to = Some(f.player.clone());
    let elsewhere = f.learn_fact(other, &[]).await;
    // An extraction is stored under its turn.
    let mut plan = f.sample_plan().await;
    let ReconcileTrigger::Job(fence) = plan.trigger.clone() else {
        unreachable!()
    };
    let new = NewFact {
        cause: Cause::Turn(fence.turn),
        ..f.sample_fact("five")
    };
    let said = new.id;
    plan.invalidations = vec![NewInvalidation {
        cause: Cause::Turn(fence.turn),
        ..f.sample_invalidation(ended, InvalidReason::Superseded, Some(said))
    }];
    plan.facts = vec![new];
    let found = f.ledger().dialogues.load_turn(&f.scope, fence.turn).await.unwrap();
    let dialogue = found.unwrap().turn.dialogue;
    let extraction = Extraction {
        turn: fence.turn,
        dialogue,
        number: 1,
        npc: f.npc.clone(),
        audience: f.audience(),
        said_at: f.now(),
        player: Some(f.player.clone()),
        forget: vec!["the third".to_owned()],
        injected: vec![before],
        ends: vec![PromiseEnd {
            fact: before,
            how: InvalidReason::Fulfilled,
        }],
        quoted: vec![before],
        room: JudgeBudgetShare::GREATER,
    };
    // The extraction for another memory of the same turn.
    let mut beside = Extraction {
        forget: Vec::new(),
        room: JudgeBudgetShare::LESSER,
        ..extraction.clone()
    };
    beside.audience.private_to = Some(f.player.clone());
    plan.extractions = vec![extraction.clone(), beside.clone()];
    f.reconcile_plan(&plan).await;
    remove_fact(f, removed).await;

    let facts = &f.ledger().facts;
    let timeline = async |scope, ids: &[FactId]| {
        facts
            .load_timeline(scope, &f.world, &f.audience(), since, ids)
            .await
            .unwrap()
    };
    let names = |rows: &TimelineRows| {
        let mut names: Vec<FactId> = rows.known_facts.iter().map(|known| known.fact.id).collect();
        names.sort_unstable();
        names
    };
    let found = timeline(&f.scope, &[]).await;
    assert_eq!(names(&found), [ended, removed, said]);
    assert_eq!(found.extractions, [extraction]);
    let there = facts
        .load_timeline(&f.scope, &f.world, &beside.audience, since, &[])
        .await;
    assert_eq!(there.unwrap().extractions, [beside]);
    assert!(found.foreign_facts.is_empty());
    let ends = |fact| {
        let known = found.known_facts.iter().find(|known| known.fact.id == fact).unwrap();
        known
            .ends
            .iter()
            .map(|end| (end.reason, end.ended_by, end.turn))
            .collect::<Vec<_>>()
    };
    assert_eq!(ends(ended), [(InvalidReason::Superseded, Some(said), Some(fence.turn))]);
    assert_eq!(ends(removed), [(InvalidReason::Removed, None, None)]);
    assert!(found.known_facts.iter().all(|known| !known.vector.is_empty()));

    let more = timeline(&f.scope, &[before, elsewhere, f.id()]).await;
    assert_eq!(names(&more), [before, ended, removed, said]);
    assert_eq!(more.foreign_facts.keys().copied().collect::<Vec<_>>(), [elsewhere]);
    assert_eq!(timeline(&f.other, &[before]).await, TimelineRows::default());
}

pub async fn timeline_includes_manual_changes<S: LedgerSubject>(f: &mut Fixture<S>) {
    let fact = f.learn_fact(f.sample_fact("one"), &[]).await;
    let facts = &f.ledger().facts;
    let now = async || {
        let rows = facts
            .load_timeline(&f.scope, &f.world, &f.audience(), f.now(), &[fact])
            .await
            .unwrap();
        rows.known_facts.into_iter().next().unwrap()
    };
    let vector = now().await.vector;
    f.advance_clock();
    remove_fact(f, fact).await;
    f.advance_clock();
    facts
        .restore_fact(&f.scope, fact, None, &f.audit_edit("fact.restore"))
        .await
        .unwrap();
    let restored_at = f.now();
    f.advance_clock();
    let patch = FactPatch {
        content: Some("other words".to_owned()),
        pinned: Some(true),
        embedding: Some(vec![0.0, 1.0, 0.0]),
        ..FactPatch::default()
    };
    facts
        .edit_fact(&f.scope, fact, &patch, None, &f.audit_edit("fact.edit"))
        .await
        .unwrap();
    let known = now().await;
    assert_eq!(known.ends.len(), 1);
    assert_eq!(known.ends[0].restored_at, Some(restored_at));
    let edits: Vec<_> = known
        .edits
        .iter()
        .map(|edit| (edit.restored, edit.pinned, edit.vector_before.clone()))
        .collect();
    assert_eq!(edits, [(true, None, None), (false, Some(true), Some(vector))]);
    assert_eq!(known.vector, [0.0, 1.0, 0.0]);
    assert_eq!(known.written_at, known.fact.valid_at);

    // A manual fact may be valid from an earlier time. Vectors of another embedder cannot be compared.
    f.advance_clock();
    let mut long = f.sample_fact("two");
    long.valid_at = f.now() - chrono::Duration::days(365);
    let (long, written) = (f.create_fact(long).await, f.now());
    f.subject.change_embedder(f.clock.clone(), "second").await;
    let (facts, audience) = (&f.ledger().facts, f.audience());
    let rows = facts
        .load_timeline(&f.scope, &f.world, &audience, f.now(), &[fact, long])
        .await;
    let mut known = rows.unwrap().known_facts;
    known.sort_by_key(|known| known.fact.id);
    assert_eq!(known[1].written_at, written);
    assert!(known[0].edits.iter().all(|edit| edit.vector_before.is_none()));
}

pub async fn timeline_includes_pins_and_fold_targets<S: LedgerSubject>(f: &Fixture<S>) {
    let facts = &f.ledger().facts;
    let mut vital = f.sample_fact("one");
    vital.statement.pinned = true;
    let vital = f.learn_fact(vital, &[]).await;
    let over = f
        .learn_fact(f.sample_fact("two"), &[(vital, InvalidReason::Duplicate)])
        .await;
    let last = f
        .learn_fact(f.sample_fact("three"), &[(over, InvalidReason::Duplicate)])
        .await;
    let by_hand = f.learn_fact(f.sample_fact("four"), &[]).await;
    let into = f
        .learn_fact(f.sample_fact("five"), &[(by_hand, InvalidReason::Duplicate)])
        .await;
    // The first fact was not pinned by a person, and the second was not folded.
    let plain = f.learn_fact(f.sample_fact("six"), &[]).await;
    f.learn_fact(f.sample_fact("seven"), &[(plain, InvalidReason::Duplicate)])
        .await;
    // Pins count for every subject, because a subject has several spellings.
    let mut other = f.sample_fact("nine");
    (other.statement.subject, other.statement.pinned) = ("Hanna".to_owned(), true);
    let other = f.learn_fact(other, &[]).await;
    let mut others = f.sample_fact("ten");
    "Hanna".clone_into(&mut others.statement.subject);
    let others = f.learn_fact(others, &[(other, InvalidReason::Duplicate)]).await;
    let mut alone = f.sample_fact("eight");
    alone.statement.pinned = true;
    f.learn_fact(alone, &[]).await;
    f.advance_clock();
    for pinned in [true, false] {
        let patch = FactPatch {
            pinned: Some(pinned),
            ..FactPatch::default()
        };
        let edit = f.audit_edit("fact.edit");
        facts.edit_fact(&f.scope, by_hand, &patch, None, &edit).await.unwrap();
    }
    f.advance_clock();
    let since = f.now();
    let rows = facts
        .load_timeline(&f.scope, &f.world, &f.audience(), since, &[plain])
        .await;
    let mut known: Vec<FactId> = rows.unwrap().known_facts.iter().map(|known| known.fact.id).collect();
    known.sort_unstable();
    assert_eq!(known, [vital, over, last, by_hand, into, plain, other, others]);
}
