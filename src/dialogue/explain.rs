//! Why an NPC said what it said, and what its turn cost.

use serde::Serialize;
use utoipa::ToSchema;

use super::Services;
use crate::{
    ids::DialogueId,
    memory::trace::{JobTrace, TaskUsage, TurnTrace},
    ports::StoreResult,
    tenancy::TenantScope,
};

/// The trace of a turn, with what came after its reply.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Explained {
    #[serde(flatten)]
    pub trace: TurnTrace,
    /// What models were asked for by the turn and its jobs, by task; of a job, once it has ended or an attempt failed.
    pub tasks: Vec<TaskUsage>,
    /// The jobs that it left behind. Those that are done go after `retention.done_jobs_d` days.
    pub jobs: Vec<JobTrace>,
}

/// The trace of a dialogue's turn that stands, with its jobs and all calls summed up. `None`: there is none, or it has gone.
///
/// # Errors
/// If the ledger cannot be read.
pub async fn explain_turn(
    services: &Services,
    scope: &TenantScope,
    dialogue: DialogueId,
    number: u32,
) -> StoreResult<Option<Explained>> {
    let (dialogues, jobs) = (&services.ledger.dialogues, &services.ledger.jobs);
    let (trace, jobs) = tokio::try_join!(
        dialogues.load_trace(scope, dialogue, number),
        jobs.list_turn_job_traces(scope, dialogue, number)
    )?;
    Ok(trace.map(|trace| {
        let mut tasks = Vec::new();
        for call in trace.calls.iter().filter(|call| call.attempts > 0) {
            TaskUsage::add_usage(&mut tasks, &call.task, call.attempts, call.usage);
        }
        for one in jobs.iter().flat_map(|job| &job.calls) {
            TaskUsage::add_usage(&mut tasks, &one.task, one.calls, one.usage);
        }
        Explained { trace, tasks, jobs }
    }))
}
