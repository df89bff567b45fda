use colloquy::{
    memory::fact::{Cause, Fact, InvalidReason},
    ports::ledger::{
        facts::{FactEdit, FactHistoryEntry, FactPatch},
        jobs::JobKind,
    },
};

use super::{
    Subject,
    facts::{confirmed, standing},
    fixture::{Fixture, importance, page},
};

fn done(edit: FactEdit) -> Fact {
    match edit {
        FactEdit::Done(fact) => *fact,
        other => panic!("not done: {other:?}"),
    }
}

pub async fn editing_changes_the_view_and_not_the_statement<S: Subject>(f: &Fixture<S>) {
    let before = f.fact(f.create(f.a_fact("the player likes grapes")).await).await;
    let facts = &f.ledger().facts;
    f.tick();
    let patch = FactPatch {
        content: Some("the player likes \"red\" grapes".to_owned()),
        keywords: Some(vec!["grape".to_owned(), "red".to_owned()]),
        importance: Some(importance(9)),
        pinned: Some(true),
        embedding: Some(vec![1.0, 0.0, 0.0]),
    };
    let edit = f.edit("fact.edit");
    let after = done(facts.edit(&f.scope, before.id, &patch, Some(1), &edit).await.unwrap());
    assert_eq!(after.statement, before.statement);
    assert_eq!(
        after.view,
        super::fixture::a_view("the player likes \"red\" grapes", &["grape", "red"], 9, true)
    );
    assert_eq!(after.version, 2);
    assert_eq!(f.fact(before.id).await, after);
    assert_eq!(standing(f, &f.viewpoint(), 9).await, [before.id]);

    // Unset fields stay.
    let patch = FactPatch {
        pinned: Some(false),
        ..FactPatch::default()
    };
    f.tick();
    let later = done(
        facts
            .edit(&f.scope, before.id, &patch, None, &f.edit("fact.edit"))
            .await
            .unwrap(),
    );
    assert_eq!(
        (later.view.importance, later.view.pinned, later.version),
        (importance(9), false, 3)
    );
    assert!(standing(f, &f.viewpoint(), 9).await.is_empty());
    let history = facts.history(&f.scope, before.id).await.unwrap();
    assert_eq!(history.len(), 2);
    let FactHistoryEntry::Edited { edit: by, at, patch } = &history[0] else {
        panic!("{history:?}")
    };
    assert_eq!((*by, *at), (edit.id, edit.at));
    assert_eq!(patch["importance"], 9);
    assert_eq!(
        history[1],
        FactHistoryEntry::Edited {
            edit: match &history[1] {
                FactHistoryEntry::Edited { edit, .. } => *edit,
                other => panic!("{other:?}"),
            },
            at: f.now(),
            patch: serde_json::json!({"pinned": false}),
        }
    );
}

pub async fn editing_checks_the_version<S: Subject>(f: &Fixture<S>) {
    let id = f.create(f.a_fact("the player likes grapes")).await;
    let facts = &f.ledger().facts;
    let patch = FactPatch {
        importance: Some(importance(2)),
        ..FactPatch::default()
    };
    let edit = |id, version| {
        let (edit, patch) = (f.edit("fact.edit"), patch.clone());
        async move { facts.edit(&f.scope, id, &patch, version, &edit).await.unwrap() }
    };
    assert_eq!(edit(id, Some(3)).await, FactEdit::VersionMismatch { stored: 1 });
    assert_eq!(f.fact(id).await.version, 1);
    assert_eq!(edit(f.id(), None).await, FactEdit::NotFound);
    assert_eq!(done(edit(id, Some(1)).await).version, 2);
    let nothing = facts
        .edit(&f.scope, id, &FactPatch::default(), None, &f.edit("fact.edit"))
        .await
        .unwrap();
    assert_eq!(done(nothing).version, 2);
}

pub async fn removing_and_restoring_are_history<S: Subject>(f: &Fixture<S>) {
    let id = f.create(f.a_fact("the player likes grapes")).await;
    let facts = &f.ledger().facts;
    f.tick();
    let removal = f.edit("fact.remove");
    let removed = done(facts.remove(&f.scope, id, None, &removal).await.unwrap());
    let invalid = removed.invalid.clone().unwrap();
    assert_eq!(
        (invalid.at, invalid.reason, invalid.by),
        (removal.at, InvalidReason::Removed, None)
    );
    assert_eq!(removed.version, 2);
    assert!(confirmed(f, &f.viewpoint(), &[id]).await.is_empty());
    let other = facts.restore(&f.scope, id, Some(1), &f.edit("fact.restore")).await;
    assert_eq!(other.unwrap(), FactEdit::VersionMismatch { stored: 2 });
    let other = facts.remove(&f.scope, id, Some(1), &f.edit("fact.remove")).await;
    assert_eq!(other.unwrap(), FactEdit::VersionMismatch { stored: 2 });
    // Invalid already: it stays as it is.
    f.tick();
    let again = done(facts.remove(&f.scope, id, None, &f.edit("fact.remove")).await.unwrap());
    assert_eq!(again, removed);

    let restored = done(
        facts
            .restore(&f.scope, id, None, &f.edit("fact.restore"))
            .await
            .unwrap(),
    );
    assert_eq!((&restored.invalid, restored.version), (&None, 3));
    assert_eq!(confirmed(f, &f.viewpoint(), &[id]).await, [id]);
    let unchanged = done(
        facts
            .restore(&f.scope, id, None, &f.edit("fact.restore"))
            .await
            .unwrap(),
    );
    assert_eq!(unchanged, restored);

    let history = facts.history(&f.scope, id).await.unwrap();
    let [FactHistoryEntry::Invalidated(entry), FactHistoryEntry::Edited { .. }] = history.as_slice() else {
        panic!("{history:?}")
    };
    assert_eq!(
        (entry.reason, entry.cause),
        (InvalidReason::Removed, Cause::Edit(removal.id))
    );
    assert_eq!((entry.at, entry.lifted_at), (removal.at, Some(f.now())));
    let audit = &f.ledger().audit;
    let rows = audit.list(&f.scope, &page(9, None)).await.unwrap().items;
    assert_eq!(rows.iter().filter(|row| row.action == "fact.restore").count(), 1);
    // What was said since may still come to end it, so whoever stands by it now says something new.
    f.tick();
    f.a_fence(JobKind::ExtractFacts).await;
    let unchanged = done(
        facts
            .restore(&f.scope, id, None, &f.edit("fact.restore"))
            .await
            .unwrap(),
    );
    assert_eq!(unchanged.version, 3);
    assert_eq!(facts.history(&f.scope, id).await.unwrap().len(), 3);
    // Each time anew.
    let removed = done(facts.remove(&f.scope, id, None, &f.edit("fact.remove")).await.unwrap());
    assert_eq!(removed.version, 4);
    assert_eq!(
        facts
            .remove(&f.scope, f.id(), None, &f.edit("fact.remove"))
            .await
            .unwrap(),
        FactEdit::NotFound
    );
    assert_eq!(
        facts
            .restore(&f.scope, f.id(), None, &f.edit("fact.restore"))
            .await
            .unwrap(),
        FactEdit::NotFound
    );
}
