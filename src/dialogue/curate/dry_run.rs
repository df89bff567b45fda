//! A pass that is made and shown, and stored nowhere.

use std::time::Duration;

use super::make_pass;
use crate::{
    Services,
    jobs::{JobError, load_input, unqueued_job},
    models::{with_usage_owner, with_usage_tally},
};
use colloquy_core::scope::TenantScope;
use colloquy_ports::ledger::{curation::PassCommit, dialogues::Dialogue, jobs::JobKind};

/// Makes the next pass over a dialogue, as a job would, and returns it without a write. Its calls count for the
/// tenant's usage and budgets. No call begins later than `last_call_in` from now. `None`: no turn is unread, or the
/// settings have no passes.
///
/// # Errors
/// As for a job. [`JobError::OverCurationBudget`] has the time until the next day.
pub async fn make_dry_run(
    services: &Services,
    scope: &TenantScope,
    dialogue: &Dialogue,
    last_call_in: Duration,
) -> Result<Option<PassCommit>, JobError> {
    let dialogues = &services.ledger.dialogues;
    let head = dialogue.head_turn;
    let turns = dialogues.load_turns(scope, dialogue.id, head, head).await?;
    let Some(turn) = turns.last() else {
        return Ok(None);
    };
    let now = services.clock.now();
    let ids = &services.ids;
    let job = unqueued_job(ids, JobKind::Curate, dialogue.id, turn.id, turn.text_version, now);
    let Some((job_input, owner)) = load_input(&services.ledger, scope, &job).await? else {
        return Ok(None);
    };
    let services = &*services.tuned_by(&job_input.world.settings);
    let last_call_at = services.clock.monotonic_now() + last_call_in;
    // A person asked for the pass, and not the player.
    let pass = with_usage_owner(owner, None, make_pass(services, scope, &job, &job_input, last_call_at));
    Box::pin(with_usage_tally(pass)).await
}
