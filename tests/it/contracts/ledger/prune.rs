use std::time::Duration;

use colloquy::{
    memory::reconcile::Verdict,
    ports::{
        PageRequest,
        ledger::{
            PruneBefore,
            facts::{JudgedPair, Writing},
            jobs::{JobFailure, JobKind},
        },
    },
};

use super::{Subject, fixture::Fixture};

pub async fn what_is_too_old_goes_and_nothing_else<S: Subject>(f: &Fixture<S>) {
    let ledger = f.ledger();
    let mut made = Vec::new();
    for number in 0..2_u8 {
        let (dialogue, done) = f.a_fence(JobKind::Summarise).await;
        let (_, pending) = f.a_fence(JobKind::Summarise).await;
        let (_, dead) = f.a_fence(JobKind::Summarise).await;
        ledger.jobs.finish(&f.scope, done.job).await.unwrap();
        ledger
            .jobs
            .fail(&f.scope, dead.job, "no", JobFailure::Dead)
            .await
            .unwrap();
        let mut plan = f.a_plan().await;
        plan.verdicts = vec![JudgedPair {
            pair: [number; 32],
            verdict: Verdict::Same,
            model: "judge".to_owned(),
        }];
        let Writing::Job(fence) = plan.writing.clone() else {
            unreachable!()
        };
        f.reconcile(&plan).await;
        made.push((dialogue, done.job, fence.job, [pending.job, dead.job]));
        f.clock.advance(Duration::from_hours(24));
    }
    let at = f.now() - chrono::Duration::hours(36);
    let prune =
        async |scope, before: &PruneBefore, limit| ledger.maintenance.prune(scope, before, limit).await.unwrap();
    let all = PruneBefore {
        done_jobs: Some(at),
        traces: Some(at),
        verdicts: Some(at),
    };
    assert_eq!(prune(&f.scope, &PruneBefore::default(), 9).await, 0);
    assert_eq!(prune(&f.other, &all, 9).await, 0);
    // Two done jobs, four traces, a verdict: one of each at a time.
    assert_eq!(prune(&f.scope, &all, 1).await, 3);
    assert_eq!(prune(&f.scope, &all, 9).await, 1 + 3);
    assert_eq!(prune(&f.scope, &all, 9).await, 0);

    let page = PageRequest { limit: 50, after: None };
    let left: Vec<_> = ledger.jobs.list(&f.scope, None, &page).await.unwrap().items;
    let has = |job| left.iter().any(|row| row.id == job);
    let ((old, new), (gone, kept)) = ((&made[0], &made[1]), (&made[0].3, &made[1].3));
    assert!(!has(old.1) && !has(old.2) && gone.iter().all(|job| has(*job)));
    assert!(has(new.1) && has(new.2) && kept.iter().all(|job| has(*job)));
    let trace = async |dialogue| ledger.dialogues.trace(&f.scope, dialogue, 1).await.unwrap();
    assert!(trace(old.0).await.is_none() && trace(new.0).await.is_some());
    let verdict = async |number| ledger.facts.verdict(&f.scope, &[number; 32]).await.unwrap();
    assert_eq!((verdict(0).await, verdict(1).await), (None, Some(Verdict::Same)));
}
