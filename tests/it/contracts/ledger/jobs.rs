use std::time::Duration;

use colloquy::{
    ids::NodeId,
    memory::{authored::World, fact::Cause, state::StateChange, trace::TaskUsage, turn::Usage},
    ports::{
        PageRequest,
        ledger::{
            authored::DeleteOutcome,
            jobs::{ExtractionStatus, Job, JobFailure, JobFence, JobKind, JobRetry, JobStatus, LeaseRenewal, NewJob},
            rewinds::RewindCommit,
            state::NewStateChange,
            tenants::{Tenant, TenantChange},
        },
    },
    tenancy::TenantScope,
};

use super::{
    LedgerSubject,
    fixture::{Fixture, page},
    rewind_fixtures::dialogue_with_turns,
    state::location_change,
};

async fn lease_jobs<S: LedgerSubject>(f: &Fixture<S>, node: NodeId, limit: u32) -> Vec<Job> {
    let until = f.now() + chrono::Duration::seconds(60);
    f.ledger()
        .jobs
        .lease_due_jobs(&f.scope, node, f.now(), until, limit)
        .await
        .unwrap()
}

pub async fn commit_leaves_its_jobs_leased<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.open_dialogue().await;
    let mut commit = f.sample_commit(&open, 1, None);
    commit.jobs = vec![
        f.sample_job(&commit, JobKind::ExtractFacts),
        f.sample_job(&commit, JobKind::Summarise),
    ];
    f.commit_turn(&commit).await;
    let jobs = &f.ledger().jobs;
    assert_eq!(jobs.count_pending_jobs(&f.scope, open.dialogue.id).await.unwrap(), 2);
    let (dialogue, turn) = (open.dialogue.id, commit.turn.id);
    let extraction = async |scope| {
        jobs.load_extraction_status(scope, dialogue, turn, f.now())
            .await
            .unwrap()
    };
    assert_eq!(extraction(&f.scope).await, ExtractionStatus::Due);
    assert_eq!(extraction(&f.other).await, ExtractionStatus::None);
    let is_unfinished = async |scope, kind| jobs.has_unfinished_job(scope, dialogue, turn, kind).await.unwrap();
    assert!(is_unfinished(&f.scope, JobKind::Summarise).await);
    assert!(!is_unfinished(&f.other, JobKind::Summarise).await);
    assert!(!is_unfinished(&f.scope, JobKind::ExtractState).await);
    assert!(lease_jobs(f, f.node, 9).await.is_empty());
    assert!(lease_jobs(f, f.id(), 9).await.is_empty());

    f.clock.advance(Duration::from_mins(2));
    let other: NodeId = f.id();
    let taken = lease_jobs(f, other, 9).await;
    let leased_until = f.now() + chrono::Duration::seconds(60);
    let again = |job: &NewJob| Job {
        leased_until,
        ..Job::from(job)
    };
    assert_eq!(taken, commit.jobs.iter().map(again).collect::<Vec<_>>());
    assert!(lease_jobs(f, f.node, 9).await.is_empty());

    jobs.finish_job(&f.scope, taken[0].id, &[]).await.unwrap();
    jobs.finish_job(&f.scope, taken[0].id, &[]).await.unwrap();
    assert_eq!(jobs.count_pending_jobs(&f.scope, open.dialogue.id).await.unwrap(), 1);
    assert!(!is_unfinished(&f.scope, JobKind::ExtractFacts).await, "done");
    assert_eq!(
        extraction(&f.scope).await,
        ExtractionStatus::None,
        "another job of the turn is nothing to wait for"
    );
    f.clock.advance(Duration::from_mins(1));
    let rest: Vec<_> = lease_jobs(f, f.node, 9).await.iter().map(|job| job.id).collect();
    assert_eq!(rest, [taken[1].id]);
}

pub async fn job_lease_is_extended_unless_taken_by_another_node<S: LedgerSubject>(f: &Fixture<S>) {
    let (_, fence) = f.sample_job_fence(JobKind::ExtractFacts).await;
    let jobs = &f.ledger().jobs;
    let rival: NodeId = f.id();
    let again = async |scope, node| {
        let until = f.now() + chrono::Duration::seconds(60);
        jobs.renew_lease(scope, fence.job, node, f.now(), until).await.unwrap()
    };
    assert_eq!(
        again(&f.scope, rival).await,
        LeaseRenewal::NotHeld,
        "it is leased to another"
    );
    assert_eq!(
        again(&f.other, f.node).await,
        LeaseRenewal::Finished,
        "of another tenant"
    );
    assert_eq!(again(&f.scope, f.node).await, LeaseRenewal::Renewed);
    f.clock.advance(Duration::from_secs(59));
    assert!(lease_jobs(f, rival, 9).await.is_empty(), "the lease was prolonged");
    f.clock.advance(Duration::from_secs(1));
    assert_eq!(
        again(&f.scope, f.node).await,
        LeaseRenewal::Renewed,
        "it has run out, and nobody came"
    );
    f.clock.advance(Duration::from_mins(1));
    assert_eq!(lease_jobs(f, rival, 9).await.len(), 1);
    assert_eq!(again(&f.scope, f.node).await, LeaseRenewal::NotHeld, "somebody came");
    let later = JobFailure::RetryAt(f.now() + chrono::Duration::seconds(5));
    jobs.fail_job(&f.scope, fence.job, f.node, "frozen", JobFailure::Dead, &[])
        .await
        .unwrap();
    assert_eq!(
        again(&f.scope, rival).await,
        LeaseRenewal::Renewed,
        "it is not this node's to end"
    );
    jobs.fail_job(&f.scope, fence.job, rival, "slow", later, &[])
        .await
        .unwrap();
    assert_eq!(
        again(&f.scope, f.node).await,
        LeaseRenewal::NotHeld,
        "it waits before it is tried again"
    );
    f.clock.advance(Duration::from_secs(5));
    assert_eq!(again(&f.scope, f.node).await, LeaseRenewal::Renewed);
    jobs.finish_job(&f.scope, fence.job, &[]).await.unwrap();
    assert_eq!(again(&f.scope, f.node).await, LeaseRenewal::Finished, "it is done");
}

pub async fn job_reads_its_input<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.open_dialogue().await;
    let mut commit = f.sample_commit(&open, 1, None);
    commit.jobs = vec![f.sample_job(&commit, JobKind::ExtractFacts)];
    f.commit_turn(&commit).await;
    let job = Job::from(&commit.jobs[0]);
    let jobs = &f.ledger().jobs;
    let said = async |job: &Job| jobs.load_job_input(&f.scope, job).await.unwrap();
    assert_eq!(said(&job).await, None, "nobody wrote the world and the NPC");

    let authored = &f.ledger().authored;
    let (npc, edit) = (f.sample_npc("vale", "mira"), f.audit_edit("npc.put"));
    f.put_world("vale").await;
    authored.put_npc(&f.scope, &npc, None, &edit).await.unwrap();
    let found = said(&job).await.unwrap();
    assert_eq!(found.turn, commit.turn);
    assert_eq!(
        Some(found.dialogue),
        f.ledger()
            .dialogues
            .load_dialogue(&f.scope, open.dialogue.id)
            .await
            .unwrap()
    );
    let world = authored.load_world(&f.scope, &f.world).await.unwrap().unwrap();
    assert_eq!(*found.world, world);
    let premise = "Since an edit, another premise.".to_owned();
    let edited = World { premise, ..world };
    let edit = f.audit_edit("world.put");
    authored.put_world(&f.scope, &edited, None, &edit).await.unwrap();
    let again = said(&job).await.unwrap();
    assert_eq!(again.world.premise, edited.premise);
    assert_eq!(
        Some(found.npc),
        authored.load_npc(&f.scope, &f.world, &f.npc).await.unwrap()
    );

    let cut_since = Job {
        text_version: 2,
        ..job.clone()
    };
    assert_eq!(said(&cut_since).await, None);
    assert_eq!(jobs.load_job_input(&f.other, &job).await.unwrap(), None);
    let deleted = f.audit_edit("npc.delete");
    let outcome = authored.delete_npc(&f.scope, &f.world, &f.npc, None, &deleted).await;
    assert_eq!(outcome.unwrap(), DeleteOutcome::Deleted);
    // The turn stands, and other NPCs heard the turn.
    let gone = said(&job).await.unwrap();
    assert_eq!((gone.npc.name, gone.turn), (npc.name, commit.turn));
    let deleted = f.audit_edit("world.delete");
    let outcome = authored.delete_world(&f.scope, &f.world, None, &deleted).await;
    assert_eq!(outcome.unwrap(), DeleteOutcome::Deleted);
    assert!(said(&job).await.is_some());
}

pub async fn job_of_facts_reads_events_and_notes_of_its_turn<S: LedgerSubject>(f: &Fixture<S>) {
    f.put_world("vale").await;
    let (npc, edit) = (f.sample_npc("vale", "mira"), f.audit_edit("npc.put"));
    f.ledger().authored.put_npc(&f.scope, &npc, None, &edit).await.unwrap();
    let open = f.open_dialogue().await;
    let sentences = [
        StateChange::Note {
            text: "The player limps.".to_owned(),
        },
        StateChange::Happened {
            text: "The \"bell\" 종 broke.".to_owned(),
        },
    ];
    let mut head = None;
    for (number, kinds) in [
        (1, [JobKind::ExtractFacts, JobKind::Summarise]),
        // What this job finds comes from the words of the reply.
        (2, [JobKind::ExtractFacts, JobKind::ExtractState]),
    ] {
        let mut commit = f.sample_commit(&open, number, head);
        head = Some(commit.turn.id);
        let row = |change: StateChange| NewStateChange {
            dialogue: Some(open.dialogue.id),
            change,
            cause: Cause::Turn(commit.turn.id),
            ..location_change(f, "the keep")
        };
        let [note, event] = sentences.clone();
        let place = location_change(f, "the keep").change;
        commit.state = [note, place, event].map(row).into();
        commit.jobs = kinds.map(|kind| f.sample_job(&commit, kind)).into();
        f.commit_turn(&commit).await;
        let read = async |job: &NewJob| {
            let input = f.ledger().jobs.load_job_input(&f.scope, &Job::from(job)).await;
            input.unwrap().unwrap().block_sentences
        };
        let expected = if number == 1 { &sentences[..] } else { &[] };
        assert_eq!(read(&commit.jobs[0]).await, expected, "turn {number}");
        assert_eq!(read(&commit.jobs[1]).await, [], "only facts are made of them");
    }
}

pub async fn job_of_a_reinstated_turn_is_not_ended_as_unsaid<S: LedgerSubject>(f: &Fixture<S>) {
    let (_, fence) = f.sample_job_fence(JobKind::ExtractFacts).await;
    let jobs = &f.ledger().jobs;
    let status = async || {
        let page = PageRequest { limit: 9, after: None };
        let rows = jobs.list_jobs(&f.scope, None, &page).await.unwrap().items;
        rows.iter().find(|row| row.id == fence.job).unwrap().status
    };
    // A worker found the turn unsaid, but the turn stood again before the job was ended.
    jobs.finish_unsaid(&f.scope, fence.job).await.unwrap();
    assert_eq!(status().await, JobStatus::Pending);
    jobs.finish_unsaid(&f.other, fence.job).await.unwrap();
    jobs.finish_job(&f.scope, fence.job, &[]).await.unwrap();
    assert_eq!(status().await, JobStatus::Done);
}

pub async fn job_answer_is_stored_until_the_job_is_done<S: LedgerSubject>(f: &Fixture<S>) {
    let (_, fence) = f.sample_job_fence(JobKind::ExtractFacts).await;
    let jobs = &f.ledger().jobs;
    assert!(!jobs.store_answer(&f.other, &fence, "{}").await.unwrap());
    let cut_since = JobFence {
        text_version: 2,
        ..fence
    };
    assert!(!jobs.store_answer(&f.scope, &cut_since, "{}").await.unwrap());
    for answer in ["{}", r#"{"facts": []}"#] {
        assert!(jobs.store_answer(&f.scope, &fence, answer).await.unwrap());
        jobs.fail_job(&f.scope, fence.job, f.node, "slow", JobFailure::RetryAt(f.now()), &[])
            .await
            .unwrap();
        let leased = lease_jobs(f, f.node, 9).await;
        assert_eq!(leased[0].answer.as_deref(), Some(answer));
    }
    jobs.finish_job(&f.scope, fence.job, &[]).await.unwrap();
    assert!(!jobs.store_answer(&f.scope, &fence, "{}").await.unwrap());
}

pub async fn due_jobs_are_leased_oldest_first<S: LedgerSubject>(f: &Fixture<S>) {
    let mut fences = Vec::new();
    for _ in 0..3 {
        fences.push(f.sample_job_fence(JobKind::ExtractFacts).await.1);
        f.advance_clock();
    }
    f.clock.advance(Duration::from_secs(200));
    let ids = |jobs: Vec<Job>| jobs.into_iter().map(|job| job.id).collect::<Vec<_>>();
    assert_eq!(ids(lease_jobs(f, f.node, 2).await), [fences[0].job, fences[1].job]);
    assert_eq!(ids(lease_jobs(f, f.node, 2).await), [fences[2].job]);
}

pub async fn failed_job_waits_and_finally_dies<S: LedgerSubject>(f: &Fixture<S>) {
    let (dialogue, fence) = f.sample_job_fence(JobKind::ExtractFacts).await;
    let jobs = &f.ledger().jobs;
    let again = f.now() + chrono::Duration::seconds(10);
    jobs.fail_job(
        &f.scope,
        fence.job,
        f.node,
        "the model was slow",
        JobFailure::RetryAt(again),
        &[],
    )
    .await
    .unwrap();
    f.clock.advance(Duration::from_secs(9));
    assert!(lease_jobs(f, f.node, 9).await.is_empty());
    f.clock.advance(Duration::from_secs(1));
    assert_eq!(lease_jobs(f, f.node, 9).await[0].attempts, 1);

    jobs.fail_job(
        &f.scope,
        fence.job,
        f.node,
        "the model was wrong",
        JobFailure::Dead,
        &[],
    )
    .await
    .unwrap();
    f.clock.advance(Duration::from_mins(10));
    assert!(lease_jobs(f, f.node, 9).await.is_empty());
    assert_eq!(jobs.count_pending_jobs(&f.scope, dialogue).await.unwrap(), 0);
    let dead = jobs
        .list_jobs(&f.scope, Some(JobStatus::Dead), &page(9, None))
        .await
        .unwrap()
        .items;
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].id, dead[0].attempts), (fence.job, 2));
    assert_eq!(dead[0].last_error.as_deref(), Some("the model was wrong"));
    // Dead jobs stay dead.
    jobs.fail_job(&f.scope, fence.job, f.node, "again", JobFailure::RetryAt(f.now()), &[])
        .await
        .unwrap();
    assert!(lease_jobs(f, f.node, 9).await.is_empty());
}

pub async fn useless_attempts_are_counted_separately<S: LedgerSubject>(f: &Fixture<S>) {
    let (_, fence) = f.sample_job_fence(JobKind::ExtractFacts).await;
    let jobs = &f.ledger().jobs;
    let mut last = Vec::new();
    for then in [JobFailure::RetryAt(f.now()), JobFailure::RetryUselessAt(f.now())] {
        jobs.fail_job(&f.scope, fence.job, f.node, "no", then, &[])
            .await
            .unwrap();
        last = lease_jobs(f, f.node, 9).await;
    }
    let job = last.remove(0);
    assert_eq!((job.attempts, job.useless), (2, 1));
    assert_eq!(job.since, job.created_at);
}

pub async fn dead_job_is_retried_on_request<S: LedgerSubject>(f: &Fixture<S>) {
    let (_, fence) = f.sample_job_fence(JobKind::ExtractFacts).await;
    let jobs = &f.ledger().jobs;
    let retry = async |scope| {
        jobs.retry_dead_job(scope, fence.job, &f.audit_edit("job.retry"))
            .await
            .unwrap()
    };
    assert_eq!(retry(&f.scope).await, JobRetry::NotDead(JobStatus::Pending));
    for then in [JobFailure::RetryUselessAt(f.now()), JobFailure::Dead] {
        jobs.fail_job(&f.scope, fence.job, f.node, "no", then, &[])
            .await
            .unwrap();
        lease_jobs(f, f.node, 9).await;
    }
    assert_eq!(retry(&f.other).await, JobRetry::NotFound);
    assert!(
        f.ledger()
            .audit
            .list_audit_rows(&f.scope, &page(9, None))
            .await
            .unwrap()
            .items
            .iter()
            .all(|row| row.action != "job.retry")
    );
    f.clock.advance(Duration::from_hours(48));
    let JobRetry::Done(row) = retry(&f.scope).await else {
        panic!("it was dead")
    };
    assert_eq!((row.id, row.status, row.attempts), (fence.job, JobStatus::Pending, 0));
    let job = lease_jobs(f, f.node, 9).await.remove(0);
    assert_eq!((job.id, job.attempts, job.useless), (fence.job, 0, 0));
    assert_eq!(job.since, f.now(), "its time begins anew");
    assert_eq!(job.turn, fence.turn);
    assert_eq!(retry(&f.scope).await, JobRetry::NotDead(JobStatus::Pending));
    let audit = f
        .ledger()
        .audit
        .list_audit_rows(&f.scope, &page(9, None))
        .await
        .unwrap()
        .items;
    assert_eq!(audit.iter().filter(|row| row.action == "job.retry").count(), 1);
    jobs.finish_job(&f.scope, fence.job, &[]).await.unwrap();
    assert_eq!(retry(&f.scope).await, JobRetry::NotDead(JobStatus::Done));
}

pub async fn leases_of_a_dead_process_are_released<S: LedgerSubject>(f: &Fixture<S>) {
    let (_, fence) = f.sample_job_fence(JobKind::ExtractFacts).await;
    let jobs = &f.ledger().jobs;
    jobs.release_all_leases(f.id()).await.unwrap();
    assert!(lease_jobs(f, f.node, 9).await.is_empty());
    jobs.release_all_leases(f.node).await.unwrap();
    assert_eq!(lease_jobs(f, f.node, 9).await[0].id, fence.job);
}

pub async fn jobs_of_a_disabled_tenant_are_not_leased<S: LedgerSubject>(f: &Fixture<S>) {
    let (_, fence) = f.sample_job_fence(JobKind::ExtractFacts).await;
    let (tenants, jobs) = (&f.ledger().tenants, &f.ledger().jobs);
    let tenant = |scope: &TenantScope| Tenant {
        id: scope.tenant().clone(),
        name: "Studio".to_owned(),
        budget: None,
        enabled: true,
        created_at: f.now(),
        version: 1,
    };
    for scope in [&f.scope, &f.other] {
        tenants.ensure_tenant(&tenant(scope)).await.unwrap();
    }
    let enable = async |scope: &TenantScope, enabled| {
        let change = TenantChange {
            budget: None,
            name: None,
            enabled: Some(enabled),
        };
        let edit = f.audit_edit("tenant.edit");
        tenants
            .change_tenant(scope.tenant(), &change, None, &edit)
            .await
            .unwrap();
    };
    let again = async || {
        let until = f.now() + chrono::Duration::seconds(60);
        jobs.renew_lease(&f.scope, fence.job, f.node, f.now(), until)
            .await
            .unwrap()
    };
    enable(&f.scope, false).await;
    jobs.release_tenant_leases(&f.scope, f.node).await.unwrap();
    assert!(lease_jobs(f, f.node, 9).await.is_empty());
    assert_eq!(again().await, LeaseRenewal::NotHeld);
    enable(&f.other, false).await;
    enable(&f.scope, true).await;
    assert_eq!(again().await, LeaseRenewal::Renewed);
    // Only the leases of the given tenant and node are released.
    jobs.release_tenant_leases(&f.other, f.node).await.unwrap();
    jobs.release_tenant_leases(&f.scope, f.id()).await.unwrap();
    assert!(lease_jobs(f, f.node, 9).await.is_empty());
    jobs.release_tenant_leases(&f.scope, f.node).await.unwrap();
    assert_eq!(lease_jobs(f, f.node, 9).await[0].id, fence.job);
}

pub async fn jobs_of_another_tenant_are_not_found<S: LedgerSubject>(f: &Fixture<S>) {
    let (dialogue, fence) = f.sample_job_fence(JobKind::ExtractFacts).await;
    f.clock.advance(Duration::from_secs(200));
    let jobs = &f.ledger().jobs;
    let until = f.now() + chrono::Duration::seconds(60);
    assert!(
        jobs.lease_due_jobs(&f.other, f.node, f.now(), until, 9)
            .await
            .unwrap()
            .is_empty()
    );
    jobs.finish_job(&f.other, fence.job, &[]).await.unwrap();
    jobs.fail_job(&f.other, fence.job, f.node, "no", JobFailure::Dead, &[])
        .await
        .unwrap();
    assert_eq!(jobs.count_pending_jobs(&f.other, dialogue).await.unwrap(), 0);
    assert!(
        jobs.list_jobs(&f.other, None, &page(9, None))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert_eq!(jobs.count_pending_jobs(&f.scope, dialogue).await.unwrap(), 1);
    assert_eq!(lease_jobs(f, f.node, 9).await[0].attempts, 0);
}

pub async fn learning_progress_counts_standing_turns<S: LedgerSubject>(f: &Fixture<S>) {
    let mut told = dialogue_with_turns(f, 4).await;
    let jobs = &f.ledger().jobs;
    let progress = async || {
        let found = jobs.load_learning_progress(&f.scope, told.id()).await.unwrap().unwrap();
        (
            found.turns,
            found.learned,
            found.waiting,
            found.failed,
            found.summarised_to,
        )
    };
    assert_eq!(progress().await, (4, 0, 4, 0, 0));
    jobs.finish_job(&f.scope, told.extractions[0].id, &[]).await.unwrap();
    for job in &told.extractions[2..] {
        jobs.fail_job(&f.scope, job.id, f.node, "no", JobFailure::Dead, &[])
            .await
            .unwrap();
    }
    assert_eq!(progress().await, (4, 1, 1, 2, 0));
    // Jobs of turns that were taken back do not count.
    let to = told.turn(3);
    told.rewind_to(f, Some(to)).await;
    let found = jobs.load_learning_progress(&f.scope, told.id()).await.unwrap().unwrap();
    assert_eq!((found.turns, found.learned, found.waiting, found.failed), (3, 1, 1, 1));
    assert_eq!(jobs.load_learning_progress(&f.other, told.id()).await.unwrap(), None);
}

pub async fn jobs_are_listed_in_pages<S: LedgerSubject>(f: &Fixture<S>) {
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(f.sample_job_fence(JobKind::Summarise).await.1.job);
    }
    f.ledger().jobs.finish_job(&f.scope, ids[1], &[]).await.unwrap();
    ids.reverse();
    let jobs = &f.ledger().jobs;
    let first = jobs.list_jobs(&f.scope, None, &page(2, None)).await.unwrap();
    let second = jobs.list_jobs(&f.scope, None, &page(2, first.next)).await.unwrap();
    let listed: Vec<_> = first.items.iter().chain(&second.items).map(|row| row.id).collect();
    assert_eq!((listed, second.next), (ids.clone(), None));
    let only = |status| async move {
        jobs.list_jobs(&f.scope, Some(status), &page(9, None))
            .await
            .unwrap()
            .items
    };
    let done = only(JobStatus::Done).await;
    assert_eq!((done.len(), done[0].id, done[0].status), (1, ids[1], JobStatus::Done));
    assert_eq!(only(JobStatus::Pending).await.len(), 2);
}

pub async fn held_jobs_wait_until_made_due<S: LedgerSubject>(f: &Fixture<S>) {
    let open = f.open_dialogue().await;
    let mut commit = f.sample_commit(&open, 1, None);
    let until = f.now() + chrono::Duration::seconds(60);
    let mut held = f.sample_job(&commit, JobKind::ExtractFacts);
    held.held_until = Some(until);
    commit.jobs = vec![held.clone()];
    f.commit_turn(&commit).await;
    let jobs = &f.ledger().jobs;
    let later = until + chrono::Duration::seconds(60);
    let lease = async |now| jobs.lease_due_jobs(&f.scope, f.node, now, later, 9).await.unwrap();
    assert!(lease(f.now()).await.is_empty());
    let extraction = async || {
        jobs.load_extraction_status(&f.scope, open.dialogue.id, held.turn, f.now())
            .await
            .unwrap()
    };
    assert_eq!(extraction().await, ExtractionStatus::Held);
    let another = f.sample_commit(&open, 2, Some(held.turn)).turn.id;
    let due = jobs.make_due(&f.scope, open.dialogue.id, another, f.now());
    assert_eq!(due.await.unwrap(), [], "of another turn");
    assert_eq!(
        jobs.make_due(&f.other, open.dialogue.id, held.turn, f.now())
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        jobs.make_due(&f.scope, open.dialogue.id, held.turn, f.now())
            .await
            .unwrap(),
        [JobKind::ExtractFacts]
    );
    assert_eq!(
        jobs.make_due(&f.scope, open.dialogue.id, held.turn, f.now())
            .await
            .unwrap(),
        [JobKind::ExtractFacts],
        "nobody does it yet"
    );
    assert_eq!(extraction().await, ExtractionStatus::Due);
    let leased = lease(f.now()).await;
    assert_eq!(leased.iter().map(|job| job.id).collect::<Vec<_>>(), [held.id]);
    assert_eq!(
        jobs.make_due(&f.scope, open.dialogue.id, held.turn, f.now())
            .await
            .unwrap(),
        [JobKind::ExtractFacts],
        "it runs"
    );
    let to_retry = JobFailure::RetryAt(later);
    let failed = jobs.fail_job(&f.scope, held.id, f.node, "no model", to_retry, &[]);
    failed.await.unwrap();
    assert_eq!(
        jobs.make_due(&f.scope, open.dialogue.id, held.turn, f.now())
            .await
            .unwrap(),
        [],
        "it waits for its retry"
    );

    // The job becomes due at its hold time without a call.
    let mut second = f.sample_commit(&open, 2, Some(commit.turn.id));
    let mut held = f.sample_job(&second, JobKind::ExtractFacts);
    held.held_until = Some(until);
    second.jobs = vec![held.clone()];
    f.commit_turn(&second).await;
    assert_eq!(lease(until).await.len(), 1);
}

pub async fn held_job_is_held_again_when_its_turn_is_reinstated<S: LedgerSubject>(f: &Fixture<S>) {
    let mut told = dialogue_with_turns(f, 1).await;
    let hold = chrono::Duration::seconds(60);
    let mut commit = told.turn_commit(f, 2);
    commit.jobs[0].held_until = Some(f.now() + hold);
    f.commit_turn(&commit).await;
    told.turns.push(commit.turn.clone());
    let told_at = f.now();
    let jobs = &f.ledger().jobs;
    let lease = async |now| {
        let leased = jobs.lease_due_jobs(&f.scope, f.node, now, now + hold, 9).await.unwrap();
        assert!(
            leased.iter().all(|job| job.useless == 0 && job.since > told_at),
            "with all its time"
        );
        leased.iter().map(|job| job.turn).collect::<Vec<_>>()
    };
    let (first, second) = (told.turn(1), told.turn(2));
    told.rewind_to(f, None).await;
    // At the reinstatement the original hold time is over, both times.
    f.clock.advance(Duration::from_secs(90));
    told.rewind_to(f, Some(second)).await;
    f.clock.advance(Duration::from_secs(10));
    told.rewind_to(f, None).await;
    f.clock.advance(Duration::from_hours(24));
    let again = told.rewind_request_to(f, Some(second));
    told.rewind(f, &again).await;
    let until = again.rewound_at + hold;
    assert_eq!(lease(f.now()).await, [first], "that one was heard");
    assert_eq!(lease(until - chrono::Duration::microseconds(1)).await, []);
    assert_eq!(lease(until).await, [second]);

    // A job that was made due is not held again.
    let mut commit = told.turn_commit(f, 3);
    commit.jobs[0].held_until = Some(f.now() + hold);
    f.commit_turn(&commit).await;
    told.turns.push(commit.turn.clone());
    assert_eq!(
        jobs.make_due(&f.scope, told.id(), commit.turn.id, f.now())
            .await
            .unwrap(),
        [JobKind::ExtractFacts]
    );
    told.rewind_to(f, Some(second)).await;
    told.rewind_to(f, Some(commit.turn.id)).await;
    assert_eq!(lease(f.now()).await, [commit.turn.id]);

    // A resumed reply may be cut again: its job is held, and keeps the answer of an earlier attempt.
    let fence = JobFence {
        job: commit.jobs[0].id,
        turn: commit.turn.id,
        text_version: commit.turn.text_version,
    };
    assert!(jobs.store_answer(&f.scope, &fence, "answer").await.unwrap());
    told.rewind_to(f, Some(second)).await;
    let until = f.now() + hold;
    let resumed = RewindCommit {
        held_until: Some(until),
        ..told.rewind_request_to(f, Some(commit.turn.id))
    };
    told.rewind(f, &resumed).await;
    assert_eq!(lease(f.now()).await, []);
    let leased = jobs
        .lease_due_jobs(&f.scope, f.node, until, until + hold, 9)
        .await
        .unwrap();
    let of_turn = leased.iter().find(|job| job.turn == commit.turn.id).unwrap();
    assert_eq!(of_turn.answer.as_deref(), Some("answer"));
}

pub async fn job_usage_is_summed_by_task<S: LedgerSubject>(f: &Fixture<S>) {
    let (dialogue, fence) = f.sample_job_fence(JobKind::ExtractState).await;
    let jobs = &f.ledger().jobs;
    let of_turn = async |scope| jobs.list_turn_job_traces(scope, dialogue, 1).await.unwrap();
    let fresh = of_turn(&f.scope).await;
    assert_eq!(fresh.len(), 1);
    assert_eq!((fresh[0].status.as_str(), fresh[0].calls.len()), ("pending", 0));
    assert!(of_turn(&f.other).await.is_empty(), "of another tenant");

    let used = |task: &str, calls, tokens| {
        let usage = Usage {
            prompt_tokens: tokens,
            cached_tokens: 1,
            completion_tokens: 2,
        };
        TaskUsage {
            task: task.to_owned(),
            calls,
            usage,
        }
    };
    let again = JobFailure::RetryUselessAt(f.now());
    let first = [used("extraction", 2, 100)];
    jobs.fail_job(&f.scope, fence.job, f.node, "prose", again, &first)
        .await
        .unwrap();
    // This attempt made no model call.
    assert_eq!(lease_jobs(f, f.node, 9).await.len(), 1);
    jobs.fail_job(
        &f.scope,
        fence.job,
        f.node,
        "no model",
        JobFailure::RetryAt(f.now()),
        &[],
    )
    .await
    .unwrap();
    assert_eq!(lease_jobs(f, f.node, 9).await.len(), 1);
    let last = [used("extraction", 1, 50), used("judge", 1, u32::MAX)];
    assert!(
        f.ledger()
            .state
            .commit_changes(&f.scope, &fence, &[], &last)
            .await
            .unwrap()
    );
    // A closed fence admits no more writes.
    assert!(
        !f.ledger()
            .state
            .commit_changes(&f.scope, &fence, &[], &last)
            .await
            .unwrap()
    );

    let done = of_turn(&f.scope).await.remove(0);
    assert_eq!((done.kind.as_str(), done.status.as_str()), ("extract_state", "done"));
    assert_eq!((done.failed_attempts, done.error.as_deref()), (2, Some("no model")));
    let extraction = Usage {
        prompt_tokens: 150,
        cached_tokens: 2,
        completion_tokens: 4,
    };
    assert_eq!(done.calls.len(), 2);
    assert_eq!((done.calls[0].calls, done.calls[0].usage), (3, extraction));
    assert_eq!(done.calls[1], used("judge", 1, u32::MAX));
}
