use colloquy::{
    ids::FactId,
    memory::fact::{Cause, InvalidReason, NewFact, NewInvalidation},
    ports::ledger::facts::{Extraction, FactPatch, TimelineRows, Writing},
};

use super::{Subject, fixture::Fixture};

async fn remove<S: Subject>(f: &Fixture<S>, fact: FactId) {
    let edit = f.edit("fact.remove");
    f.ledger().facts.remove(&f.scope, fact, None, &edit).await.unwrap();
}

pub async fn a_timeline_has_what_was_said_or_ended_since<S: Subject>(f: &Fixture<S>) {
    let before = f.learn(f.a_fact("one"), &[]).await;
    let ended = f.learn(f.a_fact("two"), &[]).await;
    let removed = f.learn(f.a_fact("three"), &[]).await;
    f.tick();
    let since = f.now();
    let mut other = f.a_fact("four");
    other.audience.private_to = Some(f.player.clone());
    let elsewhere = f.learn(other, &[]).await;
    // As an extraction is kept: under the turn that it is of.
    let mut plan = f.a_plan().await;
    let Writing::Job(fence) = plan.writing.clone() else {
        unreachable!()
    };
    let new = NewFact {
        cause: Cause::Turn(fence.turn),
        ..f.a_fact("five")
    };
    let said = new.id;
    plan.invalidations = vec![NewInvalidation {
        cause: Cause::Turn(fence.turn),
        ..f.an_invalidation(ended, InvalidReason::Superseded, Some(said))
    }];
    plan.facts = vec![new];
    let found = f.ledger().dialogues.turn(&f.scope, fence.turn).await.unwrap();
    let dialogue = found.unwrap().turn.dialogue;
    let extraction = Extraction {
        turn: fence.turn,
        dialogue,
        number: 1,
        audience: f.audience(),
        said_at: f.now(),
        player: Some(f.player.clone()),
        forget: vec!["the third".to_owned()],
        injected: vec![before],
        quoted: vec![before],
    };
    plan.extraction = Some(extraction.clone());
    f.reconcile(&plan).await;
    remove(f, removed).await;

    let facts = &f.ledger().facts;
    let timeline = async |scope, ids: &[FactId]| {
        facts
            .timeline(scope, &f.world, &f.audience(), since, ids)
            .await
            .unwrap()
    };
    let names = |rows: &TimelineRows| {
        let mut names: Vec<FactId> = rows.known.iter().map(|known| known.fact.id).collect();
        names.sort_unstable();
        names
    };
    let found = timeline(&f.scope, &[]).await;
    assert_eq!(names(&found), [ended, removed, said]);
    assert_eq!(found.extractions, [extraction]);
    assert!(found.elsewhere.is_empty());
    let ends = |fact| {
        let known = found.known.iter().find(|known| known.fact.id == fact).unwrap();
        known
            .ends
            .iter()
            .map(|end| (end.reason, end.by, end.turn))
            .collect::<Vec<_>>()
    };
    assert_eq!(ends(ended), [(InvalidReason::Superseded, Some(said), Some(fence.turn))]);
    assert_eq!(ends(removed), [(InvalidReason::Removed, None, None)]);
    assert!(found.known.iter().all(|known| !known.vector.is_empty()));

    let more = timeline(&f.scope, &[before, elsewhere, f.id()]).await;
    assert_eq!(names(&more), [before, ended, removed, said]);
    assert_eq!(more.elsewhere.keys().copied().collect::<Vec<_>>(), [elsewhere]);
    assert_eq!(timeline(&f.other, &[before]).await, TimelineRows::default());
}

pub async fn a_timeline_knows_what_people_changed<S: Subject>(f: &Fixture<S>) {
    let fact = f.learn(f.a_fact("one"), &[]).await;
    let facts = &f.ledger().facts;
    let now = async || {
        let rows = facts
            .timeline(&f.scope, &f.world, &f.audience(), f.now(), &[fact])
            .await
            .unwrap();
        rows.known.into_iter().next().unwrap()
    };
    let vector = now().await.vector;
    f.tick();
    remove(f, fact).await;
    f.tick();
    facts
        .restore(&f.scope, fact, None, &f.edit("fact.restore"))
        .await
        .unwrap();
    let restored_at = f.now();
    f.tick();
    let patch = FactPatch {
        content: Some("other words".to_owned()),
        pinned: Some(true),
        embedding: Some(vec![0.0, 1.0, 0.0]),
        ..FactPatch::default()
    };
    facts
        .edit(&f.scope, fact, &patch, None, &f.edit("fact.edit"))
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
}
