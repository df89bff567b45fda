use std::time::Duration;

use colloquy::{
    memory::reconcile::JudgeVerdict,
    ports::ledger::{
        facts::JudgedPair,
        jobs::{JobFailure, JobKind},
        metrics::{Backlog, QueueBacklog},
    },
};

use futures_util::future::join_all;

use super::{LedgerSubject, fixture::Fixture};

async fn backlog<S: LedgerSubject>(f: &Fixture<S>) -> Backlog {
    f.ledger().maintenance.load_backlog().await.unwrap()
}

pub async fn queues_report_length_and_age<S: LedgerSubject>(f: &Fixture<S>) {
    assert_eq!(backlog(f).await, Backlog::default());
    let open = f.open_dialogue().await;
    let mut commit = f.sample_commit(&open, 1, None);
    commit.jobs = vec![
        f.sample_job(&commit, JobKind::ExtractFacts),
        f.sample_job(&commit, JobKind::Summarise),
    ];
    f.commit_turn(&commit).await;
    f.clock.advance(Duration::from_secs(90));
    let fact = f.create_fact(f.sample_fact("one")).await;

    let waiting = backlog(f).await;
    assert_eq!(waiting.outbox.count, 1);
    assert!((0.0..60.0).contains(&waiting.outbox.oldest_s), "{waiting:?}");
    let age = (f.now() - commit.jobs[0].created_at).num_microseconds().unwrap();
    let age = f64::from(u32::try_from(age).unwrap()) / 1e6;
    assert!(age >= 90.0);
    let mut pending = waiting.pending.clone();
    pending.sort_by_key(|(kind, _)| kind.as_str());
    let one = QueueBacklog {
        count: 1,
        oldest_s: age,
    };
    assert_eq!(pending, [(JobKind::ExtractFacts, one), (JobKind::Summarise, one)]);
    assert_eq!(waiting.dead, []);

    let jobs = &f.ledger().jobs;
    jobs.fail_job(&f.scope, commit.jobs[0].id, f.node, "useless", JobFailure::Dead, &[])
        .await
        .unwrap();
    jobs.finish_job(&f.scope, commit.jobs[1].id, &[]).await.unwrap();
    assert_eq!(f.drain_outbox().await, [fact]);
    let dead = vec![(JobKind::ExtractFacts, 1)];
    assert_eq!(
        backlog(f).await,
        Backlog {
            dead,
            ..Backlog::default()
        }
    );
}

pub async fn ledger_measures_its_waits_and_transactions<S: LedgerSubject>(f: &Fixture<S>) {
    let meters = f.ledger().maintenance.ledger_metrics();
    let before = (
        meters.transactions.get_sample_count(),
        meters.write_waits.get_sample_count(),
    );
    f.create_fact(f.sample_fact("one")).await;
    // The writer counts a transaction after answering the caller.
    backlog(f).await;
    f.create_fact(f.sample_fact("two")).await;
    assert!(meters.transactions.get_sample_count() > before.0);
    assert!(meters.write_waits.get_sample_count() > before.1);
    assert!(meters.read_waits.get_sample_count() > 0);
    assert_eq!((meters.writes.get(), meters.busy.get()), (0, 0), "nothing runs");
}

pub async fn grown_tables_are_counted_beside_writers<S: LedgerSubject>(f: &Fixture<S>) {
    let ledger = f.ledger();
    let judged = |number: u16| {
        let mut pair = [0; 32];
        pair[..2].copy_from_slice(&number.to_le_bytes());
        JudgedPair {
            pair,
            verdict: JudgeVerdict::Same,
            model: "judge".to_owned(),
        }
    };
    let verdicts: Vec<JudgedPair> = (0..600).map(judged).collect();
    for some in verdicts.chunks(20) {
        let writes = join_all(
            some.iter()
                .map(|pair| ledger.facts.store_verdicts(&f.scope, std::slice::from_ref(pair))),
        );
        let (counted, written) = tokio::join!(ledger.maintenance.count_grown_tables(), writes);
        counted.unwrap();
        assert!(written.iter().all(Result::is_ok), "{written:?}");
    }
    for kept in &verdicts {
        let verdict = ledger
            .facts
            .load_verdicts(&f.scope, &[kept.pair])
            .await
            .unwrap()
            .remove(&kept.pair);
        assert_eq!(verdict, Some(JudgeVerdict::Same));
    }
    assert_eq!(
        ledger
            .facts
            .load_verdicts(&f.other, &[verdicts[0].pair])
            .await
            .unwrap()
            .remove(&verdicts[0].pair),
        None
    );
}
