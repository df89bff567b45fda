//! The rows of jobs, and what a job reads before its work.

use chrono::{DateTime, Utc};

use crate::{Services, npc_conversation::SceneMember};
use colloquy_core::{
    ids::{DialogueId, NodeId, TurnId},
    scope::TenantScope,
};
use colloquy_memory::{authored::Npc, turn::Turn};
use colloquy_ports::{
    StoreError,
    clock::IdSource,
    ledger::{
        Ledger,
        jobs::{Job, JobInput, JobKind, NewJob},
        usage::UsageOwner,
    },
};

/// Reads the input of a job, with the settings of the dialogue's tiers, and the NPC for which its calls count. `None`: the
/// turn no longer stands.
pub(crate) async fn load_input(
    ledger: &Ledger,
    scope: &TenantScope,
    job: &Job,
) -> Result<Option<(JobInput, UsageOwner)>, StoreError> {
    let Some(mut job_input) = ledger.jobs.load_job_input(scope, job).await? else {
        return Ok(None);
    };
    let session = job_input.dialogue.options.settings.as_deref();
    job_input.world = job_input.world.for_npc(&job_input.npc).for_session(session);
    let owner = UsageOwner {
        world: job_input.world.id.clone(),
        npc: job_input.npc.id.clone(),
    };
    Ok(Some((job_input, owner)))
}

/// Returns a job of a turn that is in no table: the turn's input is read for it, and it is never finished.
pub(crate) fn unqueued_job(
    ids: &IdSource,
    kind: JobKind,
    dialogue: DialogueId,
    turn: TurnId,
    text_version: u32,
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
pub(crate) fn new_jobs(
    services: &Services,
    turn: &Turn,
    created_at: DateTime<Utc>,
    leased_to: NodeId,
    leased_until: DateTime<Utc>,
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
pub(crate) async fn cast_members(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
) -> Result<Vec<SceneMember>, StoreError> {
    let cast = load_cast(services, scope, job_input).await?;
    Ok(cast.into_iter().map(|(member, _)| member).collect())
}

/// Returns the participating NPCs as [`cast_members`], each with its authored row; `None` if the NPC was deleted.
pub(crate) async fn load_cast(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
) -> Result<Vec<(SceneMember, Option<Npc>)>, StoreError> {
    let mut cast = Vec::with_capacity(job_input.dialogue.npcs.len());
    for id in &job_input.dialogue.npcs {
        let npc = if *id == job_input.npc.id {
            Some(job_input.npc.clone())
        } else {
            let authored = &services.ledger.authored;
            authored.load_npc(scope, &job_input.dialogue.world, id).await?
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
