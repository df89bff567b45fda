use chrono::NaiveDate;
use colloquy::{
    ids::TenantId,
    memory::turn::Usage,
    ports::ledger::{
        jobs::JobKind,
        usage::{DailyModelUsage, StoredAmounts, UsageDelta, UsageRow},
    },
};

use super::{LedgerSubject, fixture::Fixture};

pub async fn usage_is_summed_by_day_task_and_model<S: LedgerSubject>(f: &Fixture<S>) {
    let day = |number| NaiveDate::from_ymd_opt(2031, 5, number).unwrap();
    let delta = |number, task, calls, prompt_tokens| UsageDelta {
        day: day(number),
        task,
        model: "m".to_owned(),
        calls,
        usage: Usage {
            prompt_tokens,
            cached_tokens: 1,
            completion_tokens: 2,
        },
    };
    let usage = &f.ledger().usage;
    usage.add_usage(&f.scope, &[]).await.unwrap();
    // The same row occurs twice in one call, and again in another call.
    let deltas = [
        delta(4, "reply", 1, 10),
        delta(4, "reply", 1, 20),
        delta(5, "judge", 3, 7),
    ];
    usage.add_usage(&f.scope, &deltas).await.unwrap();
    usage.add_usage(&f.scope, &deltas[..1]).await.unwrap();
    usage.add_usage(&f.other, &deltas[..1]).await.unwrap();
    let row = |number, task: &str, calls, prompt_tokens, cached_tokens, completion_tokens| UsageRow {
        day: day(number),
        task: task.to_owned(),
        model: "m".to_owned(),
        calls,
        prompt_tokens,
        cached_tokens,
        completion_tokens,
    };
    let (fourth, fifth) = (row(4, "reply", 3, 40, 3, 6), row(5, "judge", 3, 7, 1, 2));
    assert_eq!(
        usage.list_usage_between(&f.scope, day(4), day(5)).await.unwrap(),
        [fourth, fifth.clone()]
    );
    assert_eq!(
        usage.list_usage_between(&f.scope, day(5), day(9)).await.unwrap(),
        [fifth]
    );
    let theirs = usage.list_usage_between(&f.other, day(1), day(9)).await.unwrap();
    assert_eq!((theirs.len(), theirs[0].calls), (1, 1));
}

pub async fn usage_of_all_tenants_is_summed_by_day_and_model<S: LedgerSubject>(f: &Fixture<S>) {
    let day = |number| NaiveDate::from_ymd_opt(2031, 5, number).unwrap();
    let delta = |number, task, model: &str, prompt_tokens| UsageDelta {
        day: day(number),
        task,
        model: model.to_owned(),
        calls: 1,
        usage: Usage {
            prompt_tokens,
            cached_tokens: 1,
            completion_tokens: 2,
        },
    };
    let usage = &f.ledger().usage;
    let ours = [
        delta(4, "reply", "a", 10),
        delta(4, "judge", "a", 20),
        delta(4, "reply", "b", 5),
        delta(5, "reply", "a", 7),
    ];
    usage.add_usage(&f.scope, &ours).await.unwrap();
    usage.add_usage(&f.other, &ours[..1]).await.unwrap();
    let mut rows = usage.list_usage_of_day(day(4)).await.unwrap();
    rows.sort_by_key(|row| (row.tenant != *f.scope.tenant(), row.model.clone()));
    let row = |tenant: &TenantId, model: &str, prompt_tokens, cached_tokens, completion_tokens| DailyModelUsage {
        tenant: tenant.clone(),
        model: model.to_owned(),
        prompt_tokens,
        cached_tokens,
        completion_tokens,
    };
    let (mine, theirs) = (f.scope.tenant(), f.other.tenant());
    assert_eq!(
        rows,
        [
            row(mine, "a", 30, 2, 4),
            row(mine, "b", 5, 1, 2),
            row(theirs, "a", 10, 1, 2)
        ]
    );
    assert!(usage.list_usage_of_day(day(6)).await.unwrap().is_empty());
}

pub async fn stored_rows_are_counted_up_to_the_requested_limit<S: LedgerSubject>(f: &Fixture<S>) {
    let usage = &f.ledger().usage;
    let stored = |dialogues, turns| StoredAmounts { dialogues, turns };
    assert_eq!(usage.count_stored(&f.scope, stored(9, 9)).await.unwrap(), stored(0, 0));
    for _ in 0..3 {
        f.sample_job_fence(JobKind::ExtractFacts).await;
    }
    f.open_dialogue().await;
    assert_eq!(usage.count_stored(&f.scope, stored(9, 9)).await.unwrap(), stored(4, 3));
    assert_eq!(usage.count_stored(&f.scope, stored(2, 0)).await.unwrap(), stored(2, 0));
    assert_eq!(usage.count_stored(&f.other, stored(9, 9)).await.unwrap(), stored(0, 0));
}
