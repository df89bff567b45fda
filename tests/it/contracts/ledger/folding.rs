use colloquy::{
    memory::fact::{InvalidReason, NewFact},
    ports::ledger::facts::{FactHistoryEntry, FactPatch},
};

use super::{
    LedgerSubject,
    fixture::{Fixture, importance, sample_view},
};

fn fact_with_wording<S: LedgerSubject>(f: &Fixture<S>, content: &str, keyword: &str, weight: u8) -> NewFact {
    let mut fact = f.sample_fact(content);
    fact.statement.keywords = vec![keyword.to_owned()];
    fact.statement.importance = importance(weight);
    fact
}

pub async fn duplicate_is_folded_into_the_newer_fact<S: LedgerSubject>(f: &Fixture<S>) {
    let mut old = fact_with_wording(f, "likes grapes", "grape", 9);
    old.statement.pinned = true;
    let old = f.learn_fact(old, &[]).await;
    f.advance_clock();
    let new = f
        .learn_fact(
            fact_with_wording(f, "is fond of grapes", "fruit", 3),
            &[(old, InvalidReason::Duplicate)],
        )
        .await;

    let (old, new) = (f.fact(old).await, f.fact(new).await);
    let invalid = old.invalid.clone().unwrap();
    assert_eq!(
        (invalid.reason, invalid.ended_by, invalid.ended_at),
        (InvalidReason::Duplicate, Some(new.id), f.now())
    );
    assert_eq!(old.version, 2);
    assert_eq!(old.view, sample_view("likes grapes", &["grape"], 9, true));
    // The result has the newest wording, the higher importance and all keywords. It is pinned if either fact was.
    assert_eq!(new.view.content, "is fond of grapes");
    assert_eq!((new.view.importance, new.view.pinned), (importance(9), true));
    let mut keywords = new.view.keywords.clone();
    keywords.sort();
    assert_eq!(keywords, ["fruit", "grape"]);
    assert_eq!(new.statement.importance, importance(3));
    let standing = f
        .ledger()
        .facts
        .load_standing(&f.scope, &f.viewpoint(), false, f.now(), 9)
        .await
        .unwrap();
    assert_eq!(standing.facts.iter().map(|fact| fact.id).collect::<Vec<_>>(), [new.id]);
    assert_eq!(
        f.ledger().facts.load_history(&f.scope, new.id).await.unwrap(),
        [FactHistoryEntry::Merged {
            from: old.id,
            at: f.now()
        }]
    );
    let owed = f.ledger().facts.list_invalidated_by(&f.scope, new.id).await.unwrap();
    assert_eq!((owed.len(), owed[0].fact), (1, old.id));
}

pub async fn duplicate_reinstated_is_unfolded<S: LedgerSubject>(f: &Fixture<S>) {
    let old = f
        .learn_fact(fact_with_wording(f, "likes grapes", "grape", 9), &[])
        .await;
    let new = f
        .learn_fact(
            fact_with_wording(f, "is fond of grapes", "fruit", 3),
            &[(old, InvalidReason::Duplicate)],
        )
        .await;
    let folded = f.fact(new).await.version;
    f.drain_outbox().await;
    f.ledger()
        .facts
        .restore_fact(&f.scope, old, None, &f.audit_edit("fact.restore"))
        .await
        .unwrap();
    let (old, new) = (f.fact(old).await, f.fact(new).await);
    assert_eq!(old.invalid, None);
    assert_eq!(new.view, sample_view("is fond of grapes", &["fruit"], 3, false));
    assert_eq!(new.version, folded + 1);
    let mut touched = f.drain_outbox().await;
    touched.sort();
    assert_eq!(touched, [old.id, new.id]);
    assert!(
        f.ledger()
            .facts
            .load_history(&f.scope, new.id)
            .await
            .unwrap()
            .is_empty()
    );
}

pub async fn protected_fact_absorbs_the_newer_duplicate<S: LedgerSubject>(f: &Fixture<S>) {
    let mut old = fact_with_wording(f, "is allergic to nuts", "nut", 6);
    old.authored = true;
    let old = f.create_fact(old).await;
    f.advance_clock();
    let new = fact_with_wording(f, "cannot eat nuts", "allergy", 9);
    let mut plan = f.sample_plan().await;
    plan.invalidations = vec![f.sample_invalidation(new.id, InvalidReason::Duplicate, Some(old))];
    plan.facts = vec![new.clone()];
    f.reconcile_plan(&plan).await;
    let (old, new) = (f.fact(old).await, f.fact(new.id).await);
    assert_eq!(old.invalid, None);
    // A person wrote the words, so the words stay. Other fields come from the newer fact.
    assert_eq!(
        old.view,
        sample_view("is allergic to nuts", &["nut", "allergy"], 9, false)
    );
    assert_eq!((old.version, new.invalid.unwrap().ended_by), (2, Some(old.id)));
}

pub async fn pinned_fact_keeps_its_words<S: LedgerSubject>(f: &Fixture<S>) {
    let mut old = fact_with_wording(f, "promised to come back", "promise", 6);
    old.statement.pinned = true;
    let old = f.learn_fact(old, &[]).await;
    f.advance_clock();
    let new = fact_with_wording(f, "said something about returning", "return", 3);
    let mut plan = f.sample_plan().await;
    plan.invalidations = vec![f.sample_invalidation(new.id, InvalidReason::Duplicate, Some(old))];
    plan.facts = vec![new];
    f.reconcile_plan(&plan).await;
    let expected = sample_view("promised to come back", &["promise", "return"], 6, true);
    assert_eq!(f.fact(old).await.view, expected);
    // A person may still reword the fact.
    let patch = FactPatch {
        content: Some("promised to return".to_owned()),
        ..FactPatch::default()
    };
    f.advance_clock();
    f.ledger()
        .facts
        .edit_fact(&f.scope, old, &patch, None, &f.audit_edit("fact.edit"))
        .await
        .unwrap();
    assert_eq!(f.fact(old).await.view.content, "promised to return");
}

pub async fn late_duplicate_does_not_override_with_older_words<S: LedgerSubject>(f: &Fixture<S>) {
    // The first statement is written last, because its extraction had to be retried.
    let said_first = f.now();
    f.advance_clock();
    let second = f
        .learn_fact(fact_with_wording(f, "moved to Vale last spring", "vale", 5), &[])
        .await;
    f.advance_clock();
    let third = f
        .learn_fact(
            fact_with_wording(f, "lives in Vale by the mill", "mill", 5),
            &[(second, InvalidReason::Duplicate)],
        )
        .await;
    f.advance_clock();
    let mut first = fact_with_wording(f, "is moving to Vale", "moving", 5);
    first.valid_at = said_first;
    let first = f.learn_fact(first, &[(third, InvalidReason::Duplicate)]).await;
    assert_eq!(f.fact(first).await.view.content, "lives in Vale by the mill");

    // The same with several facts folded into one: the newest wording stays after every later fold.
    let mut base = fact_with_wording(f, "base", "a", 5);
    base.valid_at = said_first;
    let base = f.learn_fact(base, &[]).await;
    let mut plan = f.sample_plan().await;
    for (content, seconds) in [("newest", 9), ("in between", 4)] {
        f.advance_clock();
        let mut duplicate = fact_with_wording(f, content, content, 5);
        duplicate.valid_at = said_first + chrono::Duration::seconds(seconds);
        plan.invalidations
            .push(f.sample_invalidation(duplicate.id, InvalidReason::Duplicate, Some(base)));
        plan.facts.push(duplicate);
    }
    f.reconcile_plan(&plan).await;
    assert_eq!(f.fact(base).await.view.content, "newest");
}

pub async fn facts_folded_at_once_are_folded_in_spoken_order<S: LedgerSubject>(f: &Fixture<S>) {
    let said_first = f.now();
    let mut seen = Vec::new();
    for learned in [["a", "b"], ["b", "a"]] {
        let mut ends = Vec::new();
        for word in learned {
            f.advance_clock();
            let mut fact = fact_with_wording(f, word, word, 5);
            let later = i64::from(word != "a");
            fact.valid_at = said_first + chrono::Duration::milliseconds(later);
            ends.push((f.learn_fact(fact, &[]).await, InvalidReason::Duplicate));
        }
        f.advance_clock();
        let newest = f.learn_fact(fact_with_wording(f, "newest", "c", 5), &ends).await;
        seen.push(f.fact(newest).await.view.keywords);
    }
    assert_eq!(seen[0].len(), 3, "{seen:?}");
    assert_eq!(seen[0], seen[1], "in which order they were learned is chance");
}

pub async fn folds_reach_through_chains_of_duplicates<S: LedgerSubject>(f: &Fixture<S>) {
    let first = f.learn_fact(fact_with_wording(f, "one", "a", 9), &[]).await;
    let second = f
        .learn_fact(
            fact_with_wording(f, "two", "b", 2),
            &[(first, InvalidReason::Duplicate)],
        )
        .await;
    let third = f
        .learn_fact(
            fact_with_wording(f, "three", "c", 3),
            &[(second, InvalidReason::Duplicate)],
        )
        .await;
    let view = f.fact(third).await.view;
    assert_eq!((view.content.as_str(), view.importance), ("three", importance(9)));
    assert_eq!(view.keywords.len(), 3);
    // Removing the far end of the chain changes the near end.
    f.ledger()
        .facts
        .restore_fact(&f.scope, first, None, &f.audit_edit("fact.restore"))
        .await
        .unwrap();
    let view = f.fact(third).await.view;
    assert_eq!((view.importance, view.keywords.len()), (importance(3), 2));
    assert!(!view.keywords.contains(&"a".to_owned()));
    assert_eq!(f.fact(second).await.view, sample_view("two", &["b"], 2, false));
}

pub async fn edit_of_a_duplicate_reaches_the_target_of_its_fold<S: LedgerSubject>(f: &Fixture<S>) {
    let old = f.learn_fact(fact_with_wording(f, "one", "a", 4), &[]).await;
    let new = f
        .learn_fact(fact_with_wording(f, "two", "b", 2), &[(old, InvalidReason::Duplicate)])
        .await;
    let patch = FactPatch {
        importance: Some(importance(10)),
        ..FactPatch::default()
    };
    f.advance_clock();
    f.ledger()
        .facts
        .edit_fact(&f.scope, old, &patch, None, &f.audit_edit("fact.edit"))
        .await
        .unwrap();
    assert_eq!(f.fact(new).await.view.importance, importance(10));
}

pub async fn edit_after_a_fold_has_the_last_word<S: LedgerSubject>(f: &Fixture<S>) {
    let old = f.learn_fact(fact_with_wording(f, "one", "a", 9), &[]).await;
    let new = f
        .learn_fact(fact_with_wording(f, "two", "b", 2), &[(old, InvalidReason::Duplicate)])
        .await;
    f.advance_clock();
    let patch = FactPatch {
        importance: Some(importance(1)),
        keywords: Some(vec!["only".to_owned()]),
        ..FactPatch::default()
    };
    f.ledger()
        .facts
        .edit_fact(&f.scope, new, &patch, None, &f.audit_edit("fact.edit"))
        .await
        .unwrap();
    assert_eq!(f.fact(new).await.view, sample_view("two", &["only"], 1, false));
    // A fact folded in after the edit counts again.
    f.advance_clock();
    let third = fact_with_wording(f, "three", "c", 5);
    let mut plan = f.sample_plan().await;
    plan.invalidations = vec![f.sample_invalidation(third.id, InvalidReason::Duplicate, Some(new))];
    plan.facts = vec![third];
    f.reconcile_plan(&plan).await;
    assert_eq!(f.fact(new).await.view, sample_view("three", &["only", "c"], 5, false));
}

pub async fn earliest_standing_invalidation_counts<S: LedgerSubject>(f: &Fixture<S>) {
    let old = f.learn_fact(fact_with_wording(f, "one", "a", 5), &[]).await;
    f.advance_clock();
    let mut plan = f.sample_plan().await;
    let later = f.sample_invalidation(old, InvalidReason::Forgotten, None);
    let mut earlier = f.sample_invalidation(old, InvalidReason::Expired, None);
    earlier.ended_at = f.now() - chrono::Duration::milliseconds(500);
    plan.invalidations = vec![later, earlier.clone()];
    f.reconcile_plan(&plan).await;
    let invalid = f.fact(old).await.invalid.unwrap();
    assert_eq!(
        (invalid.ended_at, invalid.reason),
        (earlier.ended_at, InvalidReason::Expired)
    );
    assert_eq!(f.fact(old).await.version, 2);
    // A later invalidation changes no visible field.
    f.advance_clock();
    f.learn_fact(fact_with_wording(f, "two", "b", 5), &[(old, InvalidReason::Superseded)])
        .await;
    assert_eq!(f.fact(old).await.version, 2);
    assert_eq!(f.ledger().facts.load_history(&f.scope, old).await.unwrap().len(), 3);
}
