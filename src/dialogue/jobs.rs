//! The jobs after a turn. This module runs each kind of job; the curator leases, retries and spaces the jobs.

mod backoff;
mod embedding;
mod index;
pub(super) mod outbox;
mod state_extraction;

use serde::de::DeserializeOwned;

pub use self::{
    backoff::retry_pause,
    embedding::{embed_missing, embed_missing_of_tenants, run_embedding_backfill},
    index::{IndexDrift, LaggingTenants, activate_index, find_drift, heal_drift, maintain_index, reindex_tenant},
    outbox::{expected_points, relay_outbox},
};
use super::{
    Services,
    events::MemoryChange,
    models::{ModelRequest, parse_json_answer},
    npc_conversation::SceneMember,
    remember,
    scenarios::ScenarioUnlock,
    summarise,
};
pub(super) use crate::ports::ledger::jobs::JobInput;
use crate::{
    memory::state::StateChange,
    ports::{
        StoreError,
        ledger::jobs::{Job, JobKind},
        llm::{ChatMessage, ChatRole, JsonSchema, LlmError, Task},
    },
    tenancy::TenantScope,
};

/// The result of a job, for the dialogue's listeners.
#[derive(Debug, Clone, Default)]
pub struct JobReport {
    /// The turn of the job; 0 if the turn no longer stands.
    pub turn: u32,
    pub memory: Vec<MemoryChange>,
    pub state: Vec<StateChange>,
    /// The scenarios that the state changes unlocked.
    pub unlocked: Vec<ScenarioUnlock>,
    /// True if the stored summaries changed. The session then reads them again and trims its buffer.
    pub summaries_changed: bool,
}

/// The reason why a job failed. The job is retried, unless the failure is permanent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JobError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Model(#[from] LlmError),
    /// The model's answers could not be used, after several attempts.
    #[error("the model's answer could not be used: {0}")]
    Unusable(String),
}

/// Runs a leased job to its end. Idempotent in effect: if the turn no longer stands, or the job was finished meanwhile,
/// the call writes and reports nothing.
pub async fn run_job(services: &Services, scope: &TenantScope, job: &Job) -> Result<JobReport, JobError> {
    let Some(mut said) = services.ledger.jobs.load_job_input(scope, job).await? else {
        services.ledger.jobs.finish_unsaid(scope, job.id).await?;
        return Ok(JobReport::default());
    };
    said.world = said.world.for_npc(&said.npc);
    let mut report = match job.kind {
        JobKind::ExtractFacts => remember::extract_facts(services, scope, job, &said).await?,
        JobKind::ExtractState => state_extraction::extract_state(services, scope, job, &said).await?,
        JobKind::Summarise => summarise::summarise_turns(services, scope, job, &said).await?,
    };
    report.turn = said.turn.number;
    Ok(report)
}

impl JobInput {
    /// Returns the participating NPCs by name, or by id if an NPC was deleted.
    pub(super) async fn cast_members(
        &self,
        services: &Services,
        scope: &TenantScope,
    ) -> Result<Vec<SceneMember>, StoreError> {
        let mut cast = Vec::with_capacity(self.dialogue.npcs.len());
        for id in &self.dialogue.npcs {
            let name = if *id == self.npc.id {
                self.npc.name.clone()
            } else {
                let npc = services
                    .ledger
                    .authored
                    .load_npc(scope, &self.dialogue.world, id)
                    .await?;
                npc.map_or_else(|| id.to_string(), |npc| npc.name)
            };
            cast.push(SceneMember { id: id.clone(), name });
        }
        Ok(cast)
    }
}

/// Asks for JSON that fits `T`, with one retry if the answer does not fit. Also returns the answering model.
pub(super) async fn ask_json<T: DeserializeOwned>(
    services: &Services,
    scope: &TenantScope,
    task: Task,
    prompt: String,
    schema: JsonSchema,
) -> Result<(T, String), JobError> {
    ask_json_or_salvage(services, scope, task, prompt, schema, |_| None).await
}

/// Works like [`ask_json`]. If the second answer does not fit either, `salvage` takes the usable part.
pub(super) async fn ask_json_or_salvage<T: DeserializeOwned>(
    services: &Services,
    scope: &TenantScope,
    task: Task,
    prompt: String,
    schema: JsonSchema,
    salvage: impl Fn(&str) -> Option<T>,
) -> Result<(T, String), JobError> {
    let mut ask = ModelRequest {
        task,
        messages: vec![ChatMessage::new(ChatRole::User, prompt)],
        json_schema: Some(schema),
        model: None,
        more_room: false,
    };
    let mut fault = String::new();
    for last in [false, true] {
        let (answer, _) = services.models.request_completion(scope, ask.clone()).await;
        let answer = answer?;
        match parse_json_answer(&answer.text) {
            Ok(value) => return Ok((value, answer.model)),
            Err(why) => {
                if let Some(value) = salvage(&answer.text).filter(|_| last) {
                    tracing::warn!(task = task.as_str(), %why, "an answer was used as far as it went");
                    return Ok((value, answer.model));
                }
                fault = why;
                ask.more_room = answer.at_cap;
            }
        }
    }
    Err(JobError::Unusable(fault))
}

impl From<super::prompt::TemplateError> for JobError {
    fn from(error: super::prompt::TemplateError) -> Self {
        Self::Unusable(error.to_string())
    }
}
