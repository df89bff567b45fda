use chrono::NaiveDate;
use colloquy::{
    memory::turn::Usage,
    ports::ledger::usage::{UsageDelta, UsageRow},
};

use super::{Subject, fixture::Fixture};

pub async fn usage_adds_up_by_day_task_and_model<S: Subject>(f: &Fixture<S>) {
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
    usage.add(&f.scope, &[]).await.unwrap();
    // The same row twice in one call, and again in another.
    let deltas = [
        delta(4, "reply", 1, 10),
        delta(4, "reply", 1, 20),
        delta(5, "judge", 3, 7),
    ];
    usage.add(&f.scope, &deltas).await.unwrap();
    usage.add(&f.scope, &deltas[..1]).await.unwrap();
    usage.add(&f.other, &deltas[..1]).await.unwrap();
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
        usage.between(&f.scope, day(4), day(5)).await.unwrap(),
        [fourth, fifth.clone()]
    );
    assert_eq!(usage.between(&f.scope, day(5), day(9)).await.unwrap(), [fifth]);
    let theirs = usage.between(&f.other, day(1), day(9)).await.unwrap();
    assert_eq!((theirs.len(), theirs[0].calls), (1, 1));
}
