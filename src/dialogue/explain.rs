//! The explanation of a turn: why an NPC said its reply, and the cost of the turn.

use serde::Serialize;
use utoipa::ToSchema;

use super::Services;
use colloquy_core::{ids::DialogueId, scope::TenantScope};
use colloquy_memory::trace::{JobTrace, TaskUsage, TurnTrace};
use colloquy_ports::StoreResult;

/// The trace of a turn, with the jobs after its reply.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Explained {
    #[serde(flatten)]
    pub trace: TurnTrace,
    /// The model calls of the turn and its jobs, summed by task. A job's calls appear after its end, or after a failed
    /// attempt.
    pub tasks: Vec<TaskUsage>,
    /// The jobs that the turn created. Finished jobs are removed after `retention.done_jobs_d` days.
    pub jobs: Vec<JobTrace>,
}

/// Returns the trace of a standing turn, with its jobs and all calls summed. `None`: the turn or its trace is gone.
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
