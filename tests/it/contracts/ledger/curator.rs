use std::time::Duration;

use colloquy::{
    ids::{DialogueKind, JobId},
    memory::summary::Summary,
    ports::ledger::{
        curator::{
            CuratorReport, FailedJob, JobPass, KindQueue, PassOutcome, SilenceCheck, SilenceOutcome, SilentHead,
        },
        dialogues::Dialogue,
        jobs::{JobFailure, JobKind, JobStatus},
        summaries::SummaryCommit,
    },
};

use super::{LedgerSubject, fixture::Fixture, rewind_fixtures::dialogue_with_turns, summaries::landing_summary};

async fn silence_checks<S: LedgerSubject>(f: &Fixture<S>) -> Vec<SilenceCheck> {
    let curator = &f.ledger().curator;
    curator.list_silence_checks(&f.scope, f.now(), 9).await.unwrap()
}

fn summarise(job: JobId) -> SilenceOutcome {
    SilenceOutcome::Queue {
        summary: Some(job),
        pass: None,
    }
}

async fn settle<S: LedgerSubject>(f: &Fixture<S>, check: &SilenceCheck, outcome: SilenceOutcome) -> bool {
    let curator = &f.ledger().curator;
    curator.settle_silence_check(&f.scope, check, outcome).await.unwrap()
}

async fn report<S: LedgerSubject>(f: &Fixture<S>) -> CuratorReport {
    let curator = &f.ledger().curator;
    curator.load_curator_report(&f.scope, f.now(), f.now()).await.unwrap()
}

pub async fn silence_check_waits_from_the_first_turn_after_the_last_check<S: LedgerSubject>(f: &Fixture<S>) {
    let mut told = dialogue_with_turns(f, 2).await;
    let [first, last] = [&told.turns[0], &told.turns[1]];
    let head = SilentHead {
        turn: last.id,
        number: 2,
        text_version: 1,
        committed_at: last.committed_at,
    };
    let check = SilenceCheck {
        dialogue: told.id(),
        since: first.committed_at,
        head: Some(head.clone()),
        summarised_through: 0,
        curated_through: 0,
        is_read_again: true,
        is_closed: false,
    };
    assert_eq!(silence_checks(f).await, std::slice::from_ref(&check));
    let curator = &f.ledger().curator;
    let before = first.committed_at - chrono::Duration::microseconds(1);
    assert!(
        curator
            .list_silence_checks(&f.scope, before, 9)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        curator
            .list_silence_checks(&f.other, f.now(), 9)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        !curator
            .settle_silence_check(&f.other, &check, SilenceOutcome::Nothing)
            .await
            .unwrap()
    );

    assert!(settle(f, &check, SilenceOutcome::CheckFrom(head.committed_at)).await);
    assert!(
        !settle(f, &check, SilenceOutcome::Nothing).await,
        "another node was faster"
    );
    let moved = SilenceCheck {
        since: head.committed_at,
        ..check
    };
    assert_eq!(silence_checks(f).await, std::slice::from_ref(&moved));
    assert!(settle(f, &moved, SilenceOutcome::Nothing).await);
    assert!(silence_checks(f).await.is_empty());

    told.commit_turn(f, 3).await;
    let again = silence_checks(f).await;
    assert_eq!(again[0].since, told.turns[2].committed_at);
    assert!(settle(f, &again[0], SilenceOutcome::Nothing).await);
    told.rewind_to(f, Some(told.turn(1))).await;
    let rewound = silence_checks(f).await;
    assert!(rewound[0].since >= told.turns[2].committed_at, "the time of the rewind");
    assert_eq!(rewound[0].head.as_ref().map(|head| head.turn), Some(told.turn(1)));
    assert!(settle(f, &rewound[0], SilenceOutcome::Nothing).await);
    told.rewind_to(f, None).await;
    let empty = silence_checks(f).await;
    assert_eq!(empty[0].head, None);
    assert!(settle(f, &empty[0], SilenceOutcome::Nothing).await);
}

pub async fn silence_check_of_a_changed_dialogue_is_not_settled<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.open_dialogue().await;
    let first = f.sample_commit(&open, 1, None);
    f.commit_turn(&first).await;
    let seen = silence_checks(f).await;
    f.commit_turn(&f.sample_commit(&open, 2, Some(first.turn.id))).await;
    assert!(!settle(f, &seen[0], summarise(f.id())).await);
    assert_eq!(report(f).await.queue[2].waiting, 0);
    assert_eq!(silence_checks(f).await[0].since, seen[0].since, "the mark stays");
}

pub async fn summary_after_a_silence_is_one_job_of_the_last_turn<S: LedgerSubject>(f: &Fixture<S>) {
    let told = dialogue_with_turns(f, 3).await;
    let jobs = &f.ledger().jobs;
    let lease = async || {
        let until = f.now() + chrono::Duration::seconds(60);
        let leased = jobs.lease_due_jobs(&f.scope, f.node, f.now(), until, 9).await.unwrap();
        leased.into_iter().find(|job| job.kind == JobKind::Summarise)
    };
    let job: JobId = f.id();
    assert!(settle(f, &silence_checks(f).await[0], summarise(job)).await);
    let queued = lease().await.unwrap();
    assert_eq!(
        (queued.id, queued.dialogue, queued.turn),
        (job, told.id(), told.turn(3))
    );

    // A rewind there and back marks the dialogue again.
    let mut told = told;
    let mark = async |told: &mut super::rewind_fixtures::RewindFixture| {
        let (before, last) = (told.turn(2), told.turn(3));
        told.rewind_to(f, Some(before)).await;
        told.rewind_to(f, Some(last)).await;
        silence_checks(f).await.remove(0)
    };
    let check = mark(&mut told).await;
    assert!(settle(f, &check, summarise(f.id())).await);
    assert_eq!(lease().await.unwrap().id, job, "a pending job is enough");

    // A job that found no summary due runs again.
    let check = mark(&mut told).await;
    jobs.finish_job(&f.scope, job, &[]).await.unwrap();
    assert_eq!(lease().await, None);
    f.advance_clock();
    assert!(settle(f, &check, summarise(f.id())).await);
    let again = lease().await.unwrap();
    assert_eq!((again.id, again.attempts, again.since), (job, 0, f.now()));

    let check = mark(&mut told).await;
    let leased = lease().await.unwrap();
    jobs.fail_job(&f.scope, leased.id, f.node, "no", JobFailure::Dead, &[])
        .await
        .unwrap();
    assert!(settle(f, &check, summarise(f.id())).await);
    assert_eq!(lease().await, None, "a dead job is left to a person");
}

pub async fn silence_check_counts_summaries_and_ended_conversations<S: LedgerSubject>(f: &Fixture<S>) {
    let (dialogue, fence) = f.sample_job_fence(JobKind::Summarise).await;
    let summaries = &f.ledger().summaries;
    let landed = landing_summary(f, fence, dialogue, (1, 7));
    assert!(summaries.commit_summary(&f.scope, &landed).await.unwrap());
    let (_, fence) = f.sample_job_fence(JobKind::Summarise).await;
    let evicting = SummaryCommit {
        summary: Summary {
            dialogue,
            ..landing_summary(f, fence, dialogue, (8, 9)).summary
        },
        evict: Some(landed.summary.id),
        ..landing_summary(f, fence, dialogue, (8, 9))
    };
    assert!(summaries.commit_summary(&f.scope, &evicting).await.unwrap());
    let found = silence_checks(f).await;
    let of_dialogue = found.iter().find(|check| check.dialogue == dialogue).unwrap();
    assert_eq!(of_dialogue.summarised_through, 9);

    let conversation = Dialogue {
        id: f.ids.next_dialogue_id(DialogueKind::NpcConversation),
        player: None,
        ..f.sample_dialogue()
    };
    let id = conversation.id;
    f.ledger()
        .dialogues
        .create_dialogue(&f.scope, &conversation)
        .await
        .unwrap();
    let open = f.claim_dialogue(id).await;
    f.commit_turn(&f.sample_commit(&open, 1, None)).await;
    let is_read_again = async || {
        let found = silence_checks(f).await;
        found.iter().find(|check| check.dialogue == id).unwrap().is_read_again
    };
    assert!(is_read_again().await);
    f.close_dialogue(id, open.epoch).await;
    assert!(!is_read_again().await);
}

pub async fn curator_report_shows_queue_ends_and_failures<S: LedgerSubject>(f: &Fixture<S>) {
    let empty = |kind| KindQueue {
        kind,
        waiting: 0,
        running: 0,
        delayed: 0,
        lease_expired: 0,
        oldest_at: None,
    };
    let nothing = CuratorReport {
        queue: JobKind::ALL.map(empty).to_vec(),
        queue_is_complete: true,
        passes: Vec::new(),
        failures: Vec::new(),
        silence_checks_due: 0,
        next_silence_check: None,
    };
    assert_eq!(report(f).await, nothing);
    let created = f.now();
    let (dialogue, fence) = f.sample_job_fence(JobKind::ExtractFacts).await;
    let (elsewhere, summary) = f.sample_job_fence(JobKind::Summarise).await;
    f.clock.advance(Duration::from_secs(2));
    let seen = report(f).await;
    let running = |kind| KindQueue {
        running: 1,
        oldest_at: Some(created),
        ..empty(kind)
    };
    assert_eq!(
        seen.queue,
        [
            running(JobKind::ExtractFacts),
            empty(JobKind::ExtractState),
            running(JobKind::Summarise),
            empty(JobKind::Curate),
            empty(JobKind::Consolidate),
        ]
    );
    assert_eq!((seen.silence_checks_due, seen.next_silence_check), (2, Some(created)));

    let jobs = &f.ledger().jobs;
    let retry_at = f.now() + chrono::Duration::minutes(10);
    let (failed_at, later) = (f.now(), JobFailure::RetryAt(retry_at));
    jobs.fail_job(&f.scope, fence.job, f.node, "the model is down", later, &[])
        .await
        .unwrap();
    f.clock.advance(Duration::from_mins(2));
    let seen = report(f).await;
    assert_eq!((seen.queue[0].delayed, seen.queue[0].waiting), (1, 0));
    assert_eq!((seen.queue[2].waiting, seen.queue[2].lease_expired), (1, 1));
    let failure = FailedJob {
        job_id: fence.job,
        kind: JobKind::ExtractFacts,
        dialogue_id: dialogue,
        turn_id: fence.turn,
        turn: Some(1),
        status: JobStatus::Pending,
        attempts: 1,
        error: "the model is down".to_owned(),
        failed_at,
        retry_at: Some(retry_at),
    };
    assert_eq!(seen.failures, std::slice::from_ref(&failure));

    jobs.finish_job(&f.scope, summary.job, &[]).await.unwrap();
    let summarised_at = f.now();
    f.advance_clock();
    jobs.finish_job(&f.scope, fence.job, &[]).await.unwrap();
    let seen = report(f).await;
    let pass = |kind, dialogue, turn, failed_attempts, ended_at| JobPass {
        kind,
        dialogue,
        turn,
        outcome: PassOutcome::Done,
        failed_attempts,
        since: created,
        ended_at,
    };
    assert_eq!(
        seen.passes,
        [
            pass(JobKind::ExtractFacts, dialogue, fence.turn, 1, f.now()),
            pass(JobKind::Summarise, elsewhere, summary.turn, 0, summarised_at),
        ]
    );
    let succeeded = FailedJob {
        status: JobStatus::Done,
        retry_at: None,
        ..failure
    };
    assert_eq!(seen.failures, [succeeded]);
    assert_eq!(seen.queue, nothing.queue);
    let curator = &f.ledger().curator;
    let foreign = curator.load_curator_report(&f.other, f.now(), f.now()).await.unwrap();
    assert_eq!(foreign, nothing);
}

pub async fn curator_report_is_bounded<S: LedgerSubject>(f: &Fixture<S>) {
    let jobs = &f.ledger().jobs;
    for number in 0..25 {
        let (_, fence) = f.sample_job_fence(JobKind::ExtractFacts).await;
        f.advance_clock();
        if number < 3 {
            jobs.finish_job(&f.scope, fence.job, &[]).await.unwrap();
        } else {
            jobs.fail_job(&f.scope, fence.job, f.node, &number.to_string(), JobFailure::Dead, &[])
                .await
                .unwrap();
        }
        let (_, fence) = f.sample_job_fence(JobKind::Summarise).await;
        jobs.finish_job(&f.scope, fence.job, &[]).await.unwrap();
    }
    let seen = report(f).await;
    assert_eq!((seen.failures.len(), seen.failures[0].error.as_str()), (20, "24"));
    let of_kind = |kind| seen.passes.iter().filter(|pass| pass.kind == kind).count();
    assert_eq!((of_kind(JobKind::ExtractFacts), of_kind(JobKind::Summarise)), (3, 10));
    assert!(
        seen.passes
            .is_sorted_by(|newer, older| newer.ended_at >= older.ended_at)
    );
}
