use chrono::{DateTime, Utc};
use colloquy::{
    ids::AuditId,
    ports::ledger::{PruneBefore, audit::Edit},
};

use super::{
    LedgerSubject,
    fixture::{Fixture, page},
};

pub async fn audit_edits_are_listed_newest_first_in_pages<S: LedgerSubject>(f: &Fixture<S>) {
    let audit = &f.ledger().audit;
    for action in ["first", "second", "third"] {
        audit.append_audit_row(&f.scope, &f.audit_edit(action)).await.unwrap();
    }
    // An edit of another row writes its own audit row in the same transaction.
    f.create_fact(f.sample_fact("the player likes grapes")).await;
    audit
        .append_audit_row(&f.other, &f.audit_edit("elsewhere"))
        .await
        .unwrap();

    let first = audit.list_audit_rows(&f.scope, &page(3, None)).await.unwrap();
    let actions: Vec<_> = first.items.iter().map(|row| row.action.as_str()).collect();
    assert_eq!(actions, ["fact.create", "third", "second"]);
    assert_eq!(
        (first.items[0].subject.as_str(), first.items[0].made_at),
        ("designer", f.now())
    );
    let second = audit.list_audit_rows(&f.scope, &page(3, first.next)).await.unwrap();
    assert_eq!(second.items.len(), 1);
    assert_eq!((second.items[0].action.as_str(), second.next), ("first", None));
    assert_eq!(
        audit
            .list_audit_rows(&f.other, &page(9, None))
            .await
            .unwrap()
            .items
            .len(),
        1
    );
}

pub async fn audit_log_is_immutable<S: LedgerSubject>(f: &Fixture<S>) {
    f.ledger()
        .audit
        .append_audit_row(&f.scope, &f.audit_edit("kept"))
        .await
        .unwrap();
    assert!(f.subject.is_audit_immutable().await);
    let rows = f
        .ledger()
        .audit
        .list_audit_rows(&f.scope, &page(9, None))
        .await
        .unwrap()
        .items;
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].subject, "designer");
}

pub async fn old_lines_of_the_audit_log_are_pruned<S: LedgerSubject>(f: &Fixture<S>) {
    let ledger = f.ledger();
    let old: DateTime<Utc> = "2020-05-04T12:00:00Z".parse().unwrap();
    let millis = u128::try_from(old.timestamp_millis()).unwrap();
    for random in 0..3 {
        let edit = Edit {
            made_at: old,
            audit_id: AuditId::from_u128(millis << 80 | random),
            ..f.audit_edit("old")
        };
        ledger.audit.append_audit_row(&f.scope, &edit).await.unwrap();
    }
    ledger
        .audit
        .append_audit_row(&f.scope, &f.audit_edit("new"))
        .await
        .unwrap();
    let before = |at| PruneBefore {
        audit: Some(at),
        ..PruneBefore::default()
    };
    let prune = async |scope, at, limit| ledger.maintenance.prune_expired(scope, &before(at), limit).await;
    assert_eq!(prune(&f.scope, old, 9).await.unwrap(), 0);
    let later = old + chrono::Duration::days(1);
    assert_eq!(prune(&f.other, later, 9).await.unwrap(), 0);
    assert_eq!(prune(&f.scope, later, 2).await.unwrap(), 2);
    assert_eq!(prune(&f.scope, later, 9).await.unwrap(), 1);
    // A clock that is far ahead deletes nothing new.
    assert!(prune(&f.scope, f.now() + chrono::Duration::days(400), 9).await.is_err());
    let left = ledger.audit.list_audit_rows(&f.scope, &page(9, None)).await.unwrap();
    let left: Vec<_> = left.items.iter().map(|row| row.action.as_str()).collect();
    assert_eq!(left, ["new"]);
}
