use colloquy::{
    memory::fact::{Cause, Fact, InvalidReason},
    ports::ledger::{
        facts::{FactEditOutcome, FactHistoryEntry, FactPatch},
        jobs::JobKind,
    },
};

use super::{
    LedgerSubject,
    facts::{confirmed_ids, standing_ids},
    fixture::{Fixture, importance, page},
};

fn edited_fact(edit: FactEditOutcome) -> Fact {
    match edit {
        FactEditOutcome::Done(fact) => *fact,
        other => panic!("not done: {other:?}"),
    }
}

pub async fn edit_changes_the_view_and_not_the_statement<S: LedgerSubject>(f: &Fixture<S>) {
    let before = f
        .fact(f.create_fact(f.sample_fact("the player likes grapes")).await)
        .await;
    let facts = &f.ledger().facts;
    f.advance_clock();
    let patch = FactPatch {
        content: Some("the player likes \"red\" grapes".to_owned()),
        keywords: Some(vec!["grape".to_owned(), "red".to_owned()]),
        importance: Some(importance(9)),
        pinned: Some(true),
        embedding: Some(vec![1.0, 0.0, 0.0]),
        pii: Some(vec!["email".to_owned()]),
    };
    let edit = f.audit_edit("fact.edit");
    let after = edited_fact(
        facts
            .edit_fact(&f.scope, before.id, &patch, Some(1), &edit)
            .await
            .unwrap(),
    );
    assert_eq!(after.statement, before.statement);
    assert_eq!(
        after.view,
        super::fixture::sample_view("the player likes \"red\" grapes", &["grape", "red"], 9, true)
    );
    assert_eq!((after.version, &after.pii), (2, &vec!["email".to_owned()]));
    assert_eq!(f.fact(before.id).await, after);
    assert_eq!(standing_ids(f, &f.viewpoint(), 9).await, [before.id]);

    // Fields missing in the patch stay.
    let patch = FactPatch {
        pinned: Some(false),
        ..FactPatch::default()
    };
    f.advance_clock();
    let later = edited_fact(
        facts
            .edit_fact(&f.scope, before.id, &patch, None, &f.audit_edit("fact.edit"))
            .await
            .unwrap(),
    );
    assert_eq!(
        (later.view.importance, later.view.pinned, later.version),
        (importance(9), false, 3)
    );
    assert!(standing_ids(f, &f.viewpoint(), 9).await.is_empty());
    let history = facts.load_history(&f.scope, before.id).await.unwrap();
    assert_eq!(history.len(), 2);
    let FactHistoryEntry::Edited { edit: by, at, patch } = &history[0] else {
        panic!("{history:?}")
    };
    assert_eq!((*by, *at), (edit.id, edit.made_at));
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

pub async fn edit_checks_the_version<S: LedgerSubject>(f: &Fixture<S>) {
    let id = f.create_fact(f.sample_fact("the player likes grapes")).await;
    let facts = &f.ledger().facts;
    let patch = FactPatch {
        importance: Some(importance(2)),
        ..FactPatch::default()
    };
    let edit = |id, version| {
        let (edit, patch) = (f.audit_edit("fact.edit"), patch.clone());
        async move { facts.edit_fact(&f.scope, id, &patch, version, &edit).await.unwrap() }
    };
    assert_eq!(edit(id, Some(3)).await, FactEditOutcome::VersionMismatch { stored: 1 });
    assert_eq!(f.fact(id).await.version, 1);
    assert_eq!(edit(f.id(), None).await, FactEditOutcome::NotFound);
    assert_eq!(edited_fact(edit(id, Some(1)).await).version, 2);
    let nothing = facts
        .edit_fact(&f.scope, id, &FactPatch::default(), None, &f.audit_edit("fact.edit"))
        .await
        .unwrap();
    assert_eq!(edited_fact(nothing).version, 2);
}

pub async fn removal_and_reinstatement_are_recorded_in_history<S: LedgerSubject>(f: &Fixture<S>) {
    let id = f.create_fact(f.sample_fact("the player likes grapes")).await;
    let facts = &f.ledger().facts;
    f.advance_clock();
    let removal = f.audit_edit("fact.remove");
    let removed = edited_fact(facts.remove_fact(&f.scope, id, None, &removal).await.unwrap());
    let invalid = removed.invalid.clone().unwrap();
    assert_eq!(
        (invalid.ended_at, invalid.reason, invalid.ended_by),
        (removal.made_at, InvalidReason::Removed, None)
    );
    assert_eq!(removed.version, 2);
    assert!(confirmed_ids(f, &f.viewpoint(), &[id]).await.is_empty());
    let other = facts
        .restore_fact(&f.scope, id, Some(1), &f.audit_edit("fact.restore"))
        .await;
    assert_eq!(other.unwrap(), FactEditOutcome::VersionMismatch { stored: 2 });
    let other = facts
        .remove_fact(&f.scope, id, Some(1), &f.audit_edit("fact.remove"))
        .await;
    assert_eq!(other.unwrap(), FactEditOutcome::VersionMismatch { stored: 2 });
    // The fact is already invalid and stays unchanged.
    f.advance_clock();
    let again = edited_fact(
        facts
            .remove_fact(&f.scope, id, None, &f.audit_edit("fact.remove"))
            .await
            .unwrap(),
    );
    assert_eq!(again, removed);

    let restored = edited_fact(
        facts
            .restore_fact(&f.scope, id, None, &f.audit_edit("fact.restore"))
            .await
            .unwrap(),
    );
    assert_eq!((&restored.invalid, restored.version), (&None, 3));
    assert_eq!(confirmed_ids(f, &f.viewpoint(), &[id]).await, [id]);
    let unchanged = edited_fact(
        facts
            .restore_fact(&f.scope, id, None, &f.audit_edit("fact.restore"))
            .await
            .unwrap(),
    );
    assert_eq!(unchanged, restored);

    let history = facts.load_history(&f.scope, id).await.unwrap();
    let [FactHistoryEntry::Invalidated(entry), FactHistoryEntry::Edited { .. }] = history.as_slice() else {
        panic!("{history:?}")
    };
    assert_eq!(
        (entry.reason, entry.cause),
        (InvalidReason::Removed, Cause::Edit(removal.id))
    );
    assert_eq!((entry.ended_at, entry.lifted_at), (removal.made_at, Some(f.now())));
    let audit = &f.ledger().audit;
    let rows = audit.list_audit_rows(&f.scope, &page(9, None)).await.unwrap().items;
    assert_eq!(rows.iter().filter(|row| row.action == "fact.restore").count(), 1);
    // Later speech may still end the fact. Confirming the fact again is therefore a new statement.
    f.advance_clock();
    f.sample_job_fence(JobKind::ExtractFacts).await;
    let unchanged = edited_fact(
        facts
            .restore_fact(&f.scope, id, None, &f.audit_edit("fact.restore"))
            .await
            .unwrap(),
    );
    assert_eq!(unchanged.version, 3);
    assert_eq!(facts.load_history(&f.scope, id).await.unwrap().len(), 3);
    // Removals are recorded every time.
    let removed = edited_fact(
        facts
            .remove_fact(&f.scope, id, None, &f.audit_edit("fact.remove"))
            .await
            .unwrap(),
    );
    assert_eq!(removed.version, 4);
    assert_eq!(
        facts
            .remove_fact(&f.scope, f.id(), None, &f.audit_edit("fact.remove"))
            .await
            .unwrap(),
        FactEditOutcome::NotFound
    );
    assert_eq!(
        facts
            .restore_fact(&f.scope, f.id(), None, &f.audit_edit("fact.restore"))
            .await
            .unwrap(),
        FactEditOutcome::NotFound
    );
}
