//! The jobs after a turn. This module runs each kind of job; the curator leases, retries and spaces the jobs.

mod backoff;
mod embedding;
mod index;
mod json_answer;
pub(super) mod outbox;
mod outcome;
mod state_extraction;

pub(super) use self::embedding::{UnembeddedTenants, embed_listed_facts};
pub(super) use self::json_answer::{ask_json, ask_json_or_salvage};
pub use self::{
    backoff::retry_pause,
    embedding::{embed_backlog, embed_missing, embed_missing_of_tenants, run_embedding_backfill},
    index::{IndexDrift, LaggingTenants, activate_index, find_drift, heal_drift, maintain_index, reindex_tenant},
    outbox::{expected_points, relay_outbox},
    outcome::{JobError, JobReport},
};
use super::{Services, curate, models::with_usage_owner, npc_conversation::SceneMember, remember, summarise};
use chrono::{DateTime, Utc};
use colloquy_core::{
    ids::{DialogueId, NodeId, TurnId},
    scope::TenantScope,
};
use colloquy_memory::{authored::Npc, turn::Turn};
pub(super) use colloquy_ports::ledger::jobs::JobInput;
use colloquy_ports::{
    StoreError,
    clock::IdSource,
    ledger::{
        Ledger,
        jobs::{Job, JobKind, NewJob},
        usage::UsageOwner,
    },
};

/// Runs a leased job to its end. Idempotent in effect: if the turn no longer stands, or the job was finished meanwhile,
/// the call writes and reports nothing.
pub async fn run_job(services: &Services, scope: &TenantScope, job: &Job) -> Result<JobReport, JobError> {
    let Some((said, owner)) = load_input(&services.ledger, scope, job).await? else {
        services.ledger.jobs.finish_unsaid(scope, job.id).await?;
        return Ok(JobReport::default());
    };
    let services = &*services.tuned_by(&said.world.settings);
    let player = said.dialogue.player.clone();
    let run = Box::pin(async {
        match job.kind {
            JobKind::ExtractFacts => remember::extract_facts(services, scope, job, &said).await,
            JobKind::ExtractState => state_extraction::extract_state(services, scope, job, &said).await,
            JobKind::Summarise => summarise::summarise_turns(services, scope, job, &said).await,
            JobKind::Consolidate => remember::consolidate_facts(services, scope, job, &said).await,
            JobKind::Curate => curate::curate_turns(services, scope, job, &said).await,
        }
    });
    let mut report = with_usage_owner(owner, player, run).await?;
    report.turn = said.turn.number;
    Ok(report)
}

/// Reads the input of a job, with the settings of the dialogue's tiers, and the NPC for which its calls count. `None`: the
/// turn no longer stands.
pub(super) async fn load_input(
    ledger: &Ledger,
    scope: &TenantScope,
    job: &Job,
) -> Result<Option<(JobInput, UsageOwner)>, StoreError> {
    let Some(mut said) = ledger.jobs.load_job_input(scope, job).await? else {
        return Ok(None);
    };
    let session = said.dialogue.options.settings.as_deref();
    said.world = said.world.for_npc(&said.npc).for_session(session);
    let owner = UsageOwner {
        world: said.world.id.clone(),
        npc: said.npc.id.clone(),
    };
    Ok(Some((said, owner)))
}

/// Returns a job of a turn that is in no table: the turn's input is read for it, and it is never finished.
pub(super) fn unqueued_job(
    ids: &IdSource,
    kind: JobKind,
    dialogue: DialogueId,
    (turn, text_version): (TurnId, u32),
    now: DateTime<Utc>,
) -> Job {
    Job {
        id: ids.next_id(),
        kind,
        dialogue,
        turn,
        text_version,
        attempts: 0,
        useless: 0,
        created_at: now,
        since: now,
        answer: None,
        leased_until: now,
    }
}

/// Returns the jobs of a turn, leased from the start.
pub(super) fn new_jobs(
    services: &Services,
    turn: &Turn,
    created_at: DateTime<Utc>,
    (leased_to, leased_until): (NodeId, DateTime<Utc>),
    held_until: Option<DateTime<Utc>>,
    kinds: impl IntoIterator<Item = JobKind>,
) -> Vec<NewJob> {
    let job = |kind| NewJob {
        id: services.ids.next_id(),
        kind,
        dialogue: turn.dialogue,
        turn: turn.id,
        text_version: turn.text_version,
        created_at,
        leased_to,
        leased_until,
        held_until,
    };
    kinds.into_iter().map(job).collect()
}

/// Returns the participating NPCs of a job's turn by name, or by id if an NPC was deleted.
pub(super) async fn cast_members(
    services: &Services,
    scope: &TenantScope,
    said: &JobInput,
) -> Result<Vec<SceneMember>, StoreError> {
    let cast = load_cast(services, scope, said).await?;
    Ok(cast.into_iter().map(|(member, _)| member).collect())
}

/// Returns the participating NPCs as [`cast_members`], each with its authored row; `None` if the NPC was deleted.
pub(super) async fn load_cast(
    services: &Services,
    scope: &TenantScope,
    said: &JobInput,
) -> Result<Vec<(SceneMember, Option<Npc>)>, StoreError> {
    let mut cast = Vec::with_capacity(said.dialogue.npcs.len());
    for id in &said.dialogue.npcs {
        let npc = if *id == said.npc.id {
            Some(said.npc.clone())
        } else {
            let authored = &services.ledger.authored;
            authored.load_npc(scope, &said.dialogue.world, id).await?
        };
        let nameless = || SceneMember {
            id: id.clone(),
            name: id.to_string(),
            factions: Vec::new(),
        };
        let member = npc.as_ref().map_or_else(nameless, SceneMember::of_npc);
        cast.push((member, npc));
    }
    Ok(cast)
}
