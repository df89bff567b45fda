use std::{
    future::Future as _,
    task::{Context, Waker},
};

use colloquy::{
    memory::fact::InvalidReason,
    ports::{StoreError, ledger::jobs::JobKind},
};

use super::{LedgerSubject, fixture::Fixture};

pub async fn acknowledged_writes_survive_reopening<S: LedgerSubject>(f: &mut Fixture<S>) {
    let open = f.open_dialogue().await;
    let mut commit = f.sample_commit(&open, 1, None);
    commit.jobs = vec![f.sample_job(&commit, JobKind::ExtractFacts)];
    f.commit_turn(&commit).await;
    let old = f.learn_fact(f.sample_fact("old"), &[]).await;
    let new = f
        .learn_fact(f.sample_fact("new"), &[(old, InvalidReason::Duplicate)])
        .await;
    let (old, new) = (f.fact(old).await, f.fact(new).await);
    let seq = f.memory_seq().await;
    let waiting = f.ledger().facts.load_outbox(99).await.unwrap();

    f.subject.reopen(f.clock.clone()).await;
    let turns = f
        .ledger()
        .dialogues
        .load_turns(&f.scope, open.dialogue.id, 1, 9)
        .await
        .unwrap();
    assert_eq!(turns, [commit.turn]);
    assert_eq!(
        f.ledger()
            .jobs
            .count_pending_jobs(&f.scope, open.dialogue.id)
            .await
            .unwrap(),
        1
    );
    assert_eq!((f.fact(old.id).await, f.fact(new.id).await), (old, new));
    assert_eq!(f.memory_seq().await, seq);
    assert_eq!(f.ledger().facts.load_outbox(99).await.unwrap(), waiting);
    // The same node continues with a new epoch.
    assert_eq!(f.claim_dialogue(open.dialogue.id).await.epoch, open.epoch + 1);
}

pub async fn failed_write_does_not_fail_its_batch_neighbours<S: LedgerSubject>(f: &Fixture<S>) {
    // The writes are sent together, so that they may share a transaction. Every third write repeats an id.
    let twice = f.sample_fact("written twice");
    f.create_fact(twice.clone()).await;
    let (facts, scope) = (&f.ledger().facts, &f.scope);
    let mut writes = Vec::new();
    let mut fresh = Vec::new();
    for number in 0..30 {
        let fact = if number % 3 == 1 {
            twice.clone()
        } else {
            f.sample_fact("fresh")
        };
        if number % 3 != 1 {
            fresh.push(fact.id);
        }
        let edit = f.audit_edit("fact.create");
        writes.push(async move { facts.create_fact(scope, &fact, false, &edit).await });
    }
    let results = futures_util::future::join_all(writes).await;
    for (number, result) in results.iter().enumerate() {
        assert_eq!(result.is_err(), number % 3 == 1, "write {number}: {result:?}");
    }
    for id in fresh {
        assert_eq!(f.fact(id).await.version, 1);
    }
    // A failed write leaves no audit row and does not advance the memory version.
    let rows = f
        .ledger()
        .audit
        .list_audit_rows(&f.scope, &super::fixture::page(200, None))
        .await
        .unwrap();
    assert_eq!(rows.items.len(), 21);
    assert_eq!(f.memory_seq().await, 21);
}

pub async fn write_completes_though_its_caller_is_dropped<S: LedgerSubject>(f: &Fixture<S>) {
    let fact = f.sample_fact("said by somebody who left");
    let edit = f.audit_edit("fact.create");
    {
        let mut write = Box::pin(f.ledger().facts.create_fact(&f.scope, &fact, false, &edit));
        let _ = write.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    let get = || f.ledger().facts.load_fact(&f.scope, fact.id);
    let written = crate::support::eventually("the write", async || get().await.unwrap()).await;
    assert_eq!(written.id, fact.id);
}

pub async fn closed_ledger_reports_itself_closed<S: LedgerSubject>(f: &Fixture<S>) {
    f.ledger().maintenance.ping().await.unwrap();
    let id = f.create_fact(f.sample_fact("before")).await;
    f.ledger().maintenance.close_connections().await;
    assert!(matches!(
        f.ledger().maintenance.ping().await,
        Err(StoreError::Unavailable(_))
    ));
    let read = f.ledger().facts.load_fact(&f.scope, id).await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))));
    let write = f
        .ledger()
        .facts
        .create_fact(&f.scope, &f.sample_fact("after"), false, &f.audit_edit("fact.create"))
        .await;
    assert!(matches!(write, Err(StoreError::Unavailable(_))));
    // Closing twice is harmless.
    f.ledger().maintenance.close_connections().await;
}
