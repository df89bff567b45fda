use std::{
    future::Future as _,
    task::{Context, Waker},
};

use colloquy::{
    memory::fact::InvalidReason,
    ports::{StoreError, ledger::jobs::JobKind},
};

use super::{Subject, fixture::Fixture};

pub async fn what_was_acknowledged_is_there_after_reopening<S: Subject>(f: &mut Fixture<S>) {
    let open = f.open().await;
    let mut commit = f.a_commit(&open, 1, None);
    commit.jobs = vec![f.a_job(&commit, JobKind::ExtractFacts)];
    f.commit(&commit).await;
    let old = f.learn(f.a_fact("old"), &[]).await;
    let new = f.learn(f.a_fact("new"), &[(old, InvalidReason::Duplicate)]).await;
    let (old, new) = (f.fact(old).await, f.fact(new).await);
    let seq = f.memory_seq().await;
    let waiting = f.ledger().facts.outbox(99).await.unwrap();

    f.subject.reopen(f.clock.clone()).await;
    let turns = f
        .ledger()
        .dialogues
        .turns(&f.scope, open.dialogue.id, 1, 9)
        .await
        .unwrap();
    assert_eq!(turns, [commit.turn]);
    assert_eq!(f.ledger().jobs.pending(&f.scope, open.dialogue.id).await.unwrap(), 1);
    assert_eq!((f.fact(old.id).await, f.fact(new.id).await), (old, new));
    assert_eq!(f.memory_seq().await, seq);
    assert_eq!(f.ledger().facts.outbox(99).await.unwrap(), waiting);
    // The same node goes on with a new epoch.
    assert_eq!(f.claim(open.dialogue.id).await.epoch, open.epoch + 1);
}

pub async fn a_failing_write_does_not_fail_its_neighbours<S: Subject>(f: &Fixture<S>) {
    // Sent together, so that they may share a transaction; one in three repeats an id.
    let twice = f.a_fact("written twice");
    f.create(twice.clone()).await;
    let (facts, scope) = (&f.ledger().facts, &f.scope);
    let mut writes = Vec::new();
    let mut fresh = Vec::new();
    for number in 0..30 {
        let fact = if number % 3 == 1 {
            twice.clone()
        } else {
            f.a_fact("fresh")
        };
        if number % 3 != 1 {
            fresh.push(fact.id);
        }
        let edit = f.edit("fact.create");
        writes.push(async move { facts.create(scope, &fact, false, &edit).await });
    }
    let results = futures_util::future::join_all(writes).await;
    for (number, result) in results.iter().enumerate() {
        assert_eq!(result.is_err(), number % 3 == 1, "write {number}: {result:?}");
    }
    for id in fresh {
        assert_eq!(f.fact(id).await.version, 1);
    }
    // Nothing of a failed one stays: not its audit row, not its rise of memory.
    let rows = f
        .ledger()
        .audit
        .list(&f.scope, &super::fixture::page(200, None))
        .await
        .unwrap();
    assert_eq!(rows.items.len(), 21);
    assert_eq!(f.memory_seq().await, 21);
}

pub async fn a_write_is_done_though_its_caller_went_away<S: Subject>(f: &Fixture<S>) {
    let fact = f.a_fact("said by somebody who left");
    let edit = f.edit("fact.create");
    {
        let mut write = Box::pin(f.ledger().facts.create(&f.scope, &fact, false, &edit));
        let _ = write.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    let get = || f.ledger().facts.get(&f.scope, fact.id);
    let written = crate::support::eventually("the write", async || get().await.unwrap()).await;
    assert_eq!(written.id, fact.id);
}

pub async fn a_closed_ledger_says_so<S: Subject>(f: &Fixture<S>) {
    f.ledger().maintenance.ping().await.unwrap();
    let id = f.create(f.a_fact("before")).await;
    f.ledger().maintenance.close().await;
    assert!(matches!(
        f.ledger().maintenance.ping().await,
        Err(StoreError::Unavailable(_))
    ));
    let read = f.ledger().facts.get(&f.scope, id).await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))));
    let write = f
        .ledger()
        .facts
        .create(&f.scope, &f.a_fact("after"), false, &f.edit("fact.create"))
        .await;
    assert!(matches!(write, Err(StoreError::Unavailable(_))));
    // Closing twice is harmless.
    f.ledger().maintenance.close().await;
}
