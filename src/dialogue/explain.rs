//! The explanation of a turn: why an NPC said its reply, and the cost of the turn.

mod material;
mod verification;

use serde::Serialize;
use utoipa::ToSchema;

pub use self::verification::{SectionDifference, Verification};
use super::Services;
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    curation::Finding,
    trace::{JobTrace, TaskUsage, TurnTrace},
};
use colloquy_ports::{
    StoreResult,
    ledger::{actions::Action, dialogues::Dialogue},
};

/// The most findings of curation in an explanation.
const MAX_FINDINGS: u32 = 50;

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
    /// Whether the prompt, assembled again from the ledger, is the same. Only with `?verify=1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
}

/// The explanation of a turn, with what became of the turn since.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    pub explained: Explained,
    /// The actions that the reply asked for, as they are now.
    pub requested_actions: Vec<Action>,
    /// The findings of curation that stand and name the turn, oldest first; at most 50.
    pub findings: Vec<Finding>,
}

/// What is known of a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnExplanation {
    Explained(Box<Explanation>),
    /// The turn stands, and its trace was removed after `retention.traces_d` days.
    TraceRemoved,
    /// No turn with the number stands.
    NoTurn,
}

/// Explains a standing turn of a dialogue: its trace with its jobs and all calls summed. With `verify`, its prompt is
/// assembled again and compared, without a call of a model and without a write.
///
/// # Errors
/// The store's.
pub async fn explain_turn(
    services: &Services,
    scope: &TenantScope,
    dialogue: &Dialogue,
    number: u32,
    verify: bool,
) -> StoreResult<TurnExplanation> {
    let ledger = &services.ledger;
    let (turns, trace, jobs, findings) = tokio::try_join!(
        ledger.dialogues.load_turns(scope, dialogue.id, number, number),
        ledger.dialogues.load_trace(scope, dialogue.id, number),
        ledger.jobs.list_turn_job_traces(scope, dialogue.id, number),
        ledger
            .curation
            .list_findings_of_turn(scope, dialogue.id, number, MAX_FINDINGS),
    )?;
    let Some(turn) = turns.into_iter().next() else {
        return Ok(TurnExplanation::NoTurn);
    };
    let Some(trace) = trace else {
        return Ok(TurnExplanation::TraceRemoved);
    };
    let requested_actions = ledger.actions.load_actions_of_turn(scope, turn.id).await?;
    let verification = if verify {
        Some(Box::pin(verification::verify_prompt(services, scope, dialogue, &turn, &trace)).await?)
    } else {
        None
    };
    let mut tasks = Vec::new();
    for call in trace.calls.iter().filter(|call| call.attempts > 0) {
        TaskUsage::add_usage(&mut tasks, &call.task, call.attempts, call.usage);
    }
    for call in jobs.iter().flat_map(|job| &job.calls) {
        TaskUsage::add_usage(&mut tasks, &call.task, call.calls, call.usage);
    }
    Ok(TurnExplanation::Explained(Box::new(Explanation {
        explained: Explained {
            trace,
            tasks,
            jobs,
            verification,
        },
        requested_actions,
        findings,
    })))
}
