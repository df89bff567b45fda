//! The jobs after a turn. This module runs each kind of job; the curator leases, retries and spaces the jobs.

mod backoff;
mod embedding;
mod index;
mod input;
mod json_answer;
pub(super) mod outbox;
mod outcome;
mod state_extraction;
mod unembedded_tenants;

pub(super) use self::json_answer::{ask_json, ask_json_or_salvage};
pub use self::{
    backoff::retry_pause,
    embedding::{embed_backlog, embed_missing, embed_missing_of_tenants, run_embedding_backfill},
    index::{IndexDrift, LaggingTenants, activate_index, find_drift, heal_drift, maintain_index, reindex_tenant},
    outbox::{expected_points, relay_outbox},
    outcome::{JobError, JobReport},
};
pub(super) use self::{
    embedding::embed_listed_facts,
    input::{cast_members, load_cast, load_input, new_jobs, unqueued_job},
    unembedded_tenants::UnembeddedTenants,
};
use super::{Services, curate, models::with_usage_owner, remember, summarise};
use colloquy_core::scope::TenantScope;
use colloquy_ports::ledger::jobs::{Job, JobKind};

/// Runs a leased job to its end. Idempotent in effect: if the turn no longer stands, or the job was finished meanwhile,
/// the call writes and reports nothing.
pub async fn run_job(services: &Services, scope: &TenantScope, job: &Job) -> Result<JobReport, JobError> {
    let Some((job_input, owner)) = load_input(&services.ledger, scope, job).await? else {
        services.ledger.jobs.finish_unsaid(scope, job.id).await?;
        return Ok(JobReport::default());
    };
    let services = &*services.tuned_by(&job_input.world.settings);
    let player = job_input.dialogue.player.clone();
    let run = Box::pin(async {
        match job.kind {
            JobKind::ExtractFacts => remember::extract_facts(services, scope, job, &job_input).await,
            JobKind::ExtractState => state_extraction::extract_state(services, scope, job, &job_input).await,
            JobKind::Summarise => summarise::summarise_turns(services, scope, job, &job_input).await,
            JobKind::Consolidate => remember::consolidate_facts(services, scope, job, &job_input).await,
            JobKind::Curate => curate::curate_turns(services, scope, job, &job_input).await,
        }
    });
    let mut report = with_usage_owner(owner, player, run).await?;
    report.turn = job_input.turn.number;
    Ok(report)
}
