//! The result of a job, and the reason of a failure.

use std::time::Duration;

use crate::{events::MemoryChange, knowledge::scenarios::ScenarioUnlock, prompt::TemplateError};
use colloquy_memory::state::StateChange;
use colloquy_ports::{StoreError, llm::LlmError};

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
    /// The limits of `curation` in the settings are reached. The job waits for the next day.
    #[error("the curation budget of the day is used up")]
    OverCurationBudget { retry_after: Duration },
    /// A defect of this server.
    #[error("the job panicked")]
    Panicked,
    /// The attempt was stopped, before another node would take the job.
    #[error("the job ran longer than its lease")]
    LeaseExpired,
}

impl From<TemplateError> for JobError {
    fn from(error: TemplateError) -> Self {
        Self::Unusable(error.to_string())
    }
}
