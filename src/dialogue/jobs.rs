//! After-turn jobs: what each kind runs. Leasing, retrying and spacing them is the curator's.

use super::{Services, events::MemoryChange};
use crate::{
    memory::state::StateChange,
    ports::{StoreError, ledger::jobs::Job, llm::LlmError},
    tenancy::TenantScope,
};

/// What a job did, for those who listen to the dialogue.
#[derive(Debug, Clone, Default)]
pub struct JobReport {
    /// The turn the job belongs to.
    pub turn: u32,
    pub memory: Vec<MemoryChange>,
    pub state: Vec<StateChange>,
    /// The kept summaries changed: the session reads them anew and trims its buffer.
    pub summaries_changed: bool,
}

/// Why a job failed. It is tried again unless it is hopeless.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JobError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Model(#[from] LlmError),
    /// The model's answer could not be used, again and again.
    #[error("the model's answer could not be used: {0}")]
    Unusable(String),
}

/// Runs one leased job to its end. Idempotent in effect: a job whose turn no longer stands, or that
/// was finished meanwhile, writes nothing and reports nothing.
pub async fn run(services: &Services, scope: &TenantScope, job: &Job) -> Result<JobReport, JobError> {
    let _ = (services, scope, job);
    todo!()
}

/// Moves what the outbox names into the index. Returns how many rows were handled (0: idle).
pub async fn relay_outbox(services: &Services) -> Result<usize, StoreError> {
    let _ = services;
    todo!()
}

/// Rebuilds a tenant's part of the index from the ledger without calling the embedder.
/// Returns the number of points.
pub async fn reindex(services: &Services, scope: &TenantScope) -> Result<u64, StoreError> {
    let _ = (services, scope);
    todo!()
}
