use colloquy::{
    ids::{DialogueId, SummaryId},
    memory::summary::Summary,
    ports::ledger::{
        jobs::{JobFence, JobKind},
        summaries::SummaryCommit,
    },
};

use super::{
    LedgerSubject,
    fixture::{Fixture, importance},
};

pub(super) fn landing_summary<S: LedgerSubject>(
    f: &Fixture<S>,
    fence: JobFence,
    dialogue: DialogueId,
    turns: (u32, u32),
) -> SummaryCommit {
    SummaryCommit {
        calls: vec![],
        fence,
        summary: Summary {
            id: f.id(),
            dialogue,
            from_turn: turns.0,
            to_turn: turns.1,
            text: format!("what happened in {}–{}", turns.0, turns.1),
            importance: importance(6),
            created_at: f.now(),
        },
        evict: None,
        fade: None,
    }
}

pub async fn summaries_are_stored_faded_and_evicted<S: LedgerSubject>(f: &Fixture<S>) {
    let summaries = &f.ledger().summaries;
    let (dialogue, first_fence) = f.sample_job_fence(JobKind::Summarise).await;
    let later = landing_summary(f, first_fence, dialogue, (11, 20));
    assert!(summaries.commit_summary(&f.scope, &later).await.unwrap());
    assert_eq!(
        summaries.load_summaries(&f.scope, dialogue).await.unwrap(),
        std::slice::from_ref(&later.summary)
    );

    // Summaries come in time order, for any order of writing.
    let (_, fence) = f.sample_job_fence(JobKind::Summarise).await;
    let earlier = landing_summary(f, fence, dialogue, (1, 10));
    assert!(summaries.commit_summary(&f.scope, &earlier).await.unwrap());
    let kept: Vec<SummaryId> = summaries
        .load_summaries(&f.scope, dialogue)
        .await
        .unwrap()
        .iter()
        .map(|s| s.id)
        .collect();
    assert_eq!(kept, [earlier.summary.id, later.summary.id]);

    let (_, fence) = f.sample_job_fence(JobKind::Summarise).await;
    let newest = SummaryCommit {
        evict: Some(earlier.summary.id),
        fade: Some(later.summary.id),
        ..landing_summary(f, fence, dialogue, (21, 30))
    };
    assert!(summaries.commit_summary(&f.scope, &newest).await.unwrap());
    let kept = summaries.load_summaries(&f.scope, dialogue).await.unwrap();
    let mut faded = later.summary.clone();
    faded.importance = importance(5);
    assert_eq!(kept, [faded.clone(), newest.summary]);

    // By id, also those that are not kept.
    let ids = [later.summary.id, f.id(), earlier.summary.id];
    let named = summaries.load_summaries_by_id(&f.scope, &ids).await.unwrap();
    assert_eq!(named, [earlier.summary, faded]);
    assert_eq!(summaries.load_summaries_by_id(&f.other, &ids).await.unwrap(), []);
}

pub async fn summary_of_a_finished_job_is_fenced<S: LedgerSubject>(f: &Fixture<S>) {
    let summaries = &f.ledger().summaries;
    let (dialogue, fence) = f.sample_job_fence(JobKind::Summarise).await;
    assert!(
        summaries
            .commit_summary(&f.scope, &landing_summary(f, fence, dialogue, (1, 10)))
            .await
            .unwrap()
    );
    let again = landing_summary(f, fence, dialogue, (1, 10));
    assert!(!summaries.commit_summary(&f.scope, &again).await.unwrap());
    assert_eq!(summaries.load_summaries(&f.scope, dialogue).await.unwrap().len(), 1);
}

pub async fn turn_is_summarised_once<S: LedgerSubject>(f: &Fixture<S>) {
    let summaries = &f.ledger().summaries;
    let (dialogue, fence) = f.sample_job_fence(JobKind::Summarise).await;
    let first = landing_summary(f, fence, dialogue, (1, 10));
    assert!(summaries.commit_summary(&f.scope, &first).await.unwrap());

    // A second job read the dialogue before the first summary was written.
    let (_, fence) = f.sample_job_fence(JobKind::Summarise).await;
    let overlapping = SummaryCommit {
        evict: Some(first.summary.id),
        ..landing_summary(f, fence, dialogue, (1, 12))
    };
    assert!(!summaries.commit_summary(&f.scope, &overlapping).await.unwrap());
    assert_eq!(
        summaries.load_summaries(&f.scope, dialogue).await.unwrap(),
        std::slice::from_ref(&first.summary)
    );
    // The second job is ended by the refusal.
    let retried = landing_summary(f, fence, dialogue, (11, 12));
    assert!(!summaries.commit_summary(&f.scope, &retried).await.unwrap());

    // An evicted summary still covers its turns.
    let (_, fence) = f.sample_job_fence(JobKind::Summarise).await;
    let next = SummaryCommit {
        evict: Some(first.summary.id),
        ..landing_summary(f, fence, dialogue, (11, 20))
    };
    assert!(summaries.commit_summary(&f.scope, &next).await.unwrap());
    let (_, fence) = f.sample_job_fence(JobKind::Summarise).await;
    let again = landing_summary(f, fence, dialogue, (1, 10));
    assert!(!summaries.commit_summary(&f.scope, &again).await.unwrap());
    assert_eq!(
        summaries.load_summaries(&f.scope, dialogue).await.unwrap(),
        [next.summary]
    );
}

pub async fn summaries_of_another_tenant_are_unchanged<S: LedgerSubject>(f: &Fixture<S>) {
    let summaries = &f.ledger().summaries;
    let (dialogue, fence) = f.sample_job_fence(JobKind::Summarise).await;
    let landed = landing_summary(f, fence, dialogue, (1, 10));
    assert!(!summaries.commit_summary(&f.other, &landed).await.unwrap());
    assert!(summaries.commit_summary(&f.scope, &landed).await.unwrap());
    assert!(summaries.load_summaries(&f.other, dialogue).await.unwrap().is_empty());

    // Naming a summary of another dialogue changes nothing there.
    let (elsewhere, fence) = f.sample_job_fence(JobKind::Summarise).await;
    let meddling = SummaryCommit {
        evict: Some(landed.summary.id),
        fade: Some(landed.summary.id),
        ..landing_summary(f, fence, elsewhere, (1, 10))
    };
    assert!(summaries.commit_summary(&f.scope, &meddling).await.unwrap());
    assert_eq!(
        summaries.load_summaries(&f.scope, dialogue).await.unwrap(),
        [landed.summary]
    );
}
