//! Long-term memory: extraction after a turn, duplicates and conflicts, and manual edits by people.

mod audience_overlaps;
mod block_sentences;
mod consolidation;
mod corrections;
mod decisions;
mod dirty_memories;
mod edit_error;
mod embedding;
mod extraction;
mod injected_memory;
mod judge;
mod judge_calls;
mod known_texts;
mod learned;
mod manual_edits;
mod memory_update;
mod pii;
mod reconcile_backoff;
mod reconciliation;
mod self_told;
mod statements;
#[cfg(test)]
mod test_statements;
mod text_limits;
mod timeline_input;
mod timeline_reading;
mod turn_facts;

use chrono::{DateTime, Utc};
use minijinja::context;

pub(super) use self::consolidation::consolidate_facts;
use self::injected_memory::{InjectedMemory, MAX_PROMISES, OpenPromise};
pub(super) use self::text_limits::parse_number;
pub use self::{
    consolidation::{queue_consolidations, queue_due_consolidations},
    corrections::{FactCorrection, FlagVerdict, correct_fact, decide_flag},
    edit_error::ManualEditError,
    manual_edits::{ManualFact, write_manual_fact},
};
pub use self::{dirty_memories::reconcile_dirty_memories, reconcile_backoff::ReconcileBackoff};
use super::{
    Services,
    disclosure::TaughtLocks,
    jobs::{JobError, JobReport, outbox::relay_or_log},
    models::tallied_usage,
    prompt::{PromptReader, Template, attribute_statement, escape_untrusted},
    recall,
};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    agreement,
    disclosure::{audience::Audience, secrecy::Secrecy},
    trace::{CandidateTrace, ScenarioTrace},
};
use colloquy_ports::ledger::jobs::{Job, JobInput};

/// Extracts the facts of a turn, reconciles and indexes the facts, and then returns. The next turn finds the facts.
pub(super) async fn extract_facts(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    job_input: &JobInput,
) -> Result<JobReport, JobError> {
    let mut injected = collect_injected(services, scope, job_input).await?;
    let learned = extraction::extract_learned(services, scope, job_input, &injected, job.answer.as_deref()).await?;
    failpoint!("facts.extracted");
    if learned.is_empty() && injected.quoted.is_empty() {
        services.ledger.jobs.finish_job(scope, job.id, &tallied_usage()).await?;
        return Ok(JobReport::default());
    }
    let turn = &job_input.turn;
    let viewpoint = job_input.dialogue.viewpoint_for(&job_input.npc, turn.player.clone());
    let aliases = recall::read_names(services, scope, &job_input.world, &viewpoint, turn.committed_at);
    injected.locks = TaughtLocks::load(services, scope, job_input, aliases).await?;
    let lacks_vectors = learned.lacks_vectors();
    let memory = turn_facts::reconcile_turn(services, scope, job, job_input, &injected, learned).await?;
    if lacks_vectors {
        services.memory_cache.unembedded.record_tenant(scope);
    }
    failpoint!("facts.durable");
    if memory.is_some() {
        relay_or_log(services).await;
    }
    Ok(JobReport {
        memory: memory.unwrap_or_default(),
        ..JobReport::default()
    })
}

async fn collect_injected(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
) -> Result<InjectedMemory, JobError> {
    let mut injected = InjectedMemory::default();
    let audience = job_input.audience();
    let Some(trace) = &job_input.trace else {
        return Ok(injected);
    };
    for text in trace.scenarios.iter().filter_map(ScenarioTrace::shown_content) {
        let values = context! { name => escape_untrusted(&job_input.npc.name), text };
        let text = services
            .prompts
            .render(job_input.npc.language, Template::Past, values)?;
        injected.world.push(text);
    }
    // What an NPC knows is news to the other NPCs.
    if job_input.turn.player.is_some() {
        let open_lore = trace.lore.iter().filter(|traced| traced.secrecy == Secrecy::Open);
        injected
            .world
            .extend(open_lore.filter_map(|traced| traced.shown_text.clone()));
    }
    for candidate in &trace.candidates {
        if job_input.turn.player.is_some() {
            injected.record_subject(&candidate.subject, job_input);
        }
        if candidate.fate.is_in_prompt() {
            injected.quoted.push(candidate.fact);
            if !candidate.over && is_in_memory(services, scope, job_input, candidate, &audience).await? {
                inject_candidate(services, scope, job_input, candidate, &mut injected).await?;
            }
        }
    }
    Ok(injected)
}

/// True if a candidate is of the memory that the turn teaches. An NPC's own memory is news to the other NPCs.
async fn is_in_memory(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    candidate: &CandidateTrace,
    audience: &Audience,
) -> Result<bool, JobError> {
    if job_input.turn.player.is_some() {
        return Ok(true);
    }
    let fact = services.ledger.facts.load_fact(scope, candidate.fact).await?;
    Ok(fact.is_some_and(|fact| fact.audience == *audience))
}

async fn inject_candidate(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    candidate: &CandidateTrace,
    injected: &mut InjectedMemory,
) -> Result<(), JobError> {
    injected.ids.push(candidate.fact);
    injected.record_subject(&candidate.subject, job_input);
    // The extraction model takes no part in the turn, so the NPC appears by name.
    let reader = PromptReader {
        language: job_input.npc.language,
        npc: "",
        player: job_input.turn.player.as_ref(),
    };
    let text = attribute_statement(
        &services.prompts,
        reader,
        &candidate.subject,
        &candidate.speaker,
        &candidate.content,
    )?;
    if candidate.promise && injected.promises.len() < MAX_PROMISES {
        let made_at = load_time_of_dated(services, scope, candidate).await?;
        let fact = candidate.fact;
        injected.promises.push(OpenPromise { fact, text, made_at });
    } else {
        injected.texts.push(text);
    }
    Ok(())
}

/// Returns when a promise was made whose text names a day. Without a day, no promise is overdue.
async fn load_time_of_dated(
    services: &Services,
    scope: &TenantScope,
    promise: &CandidateTrace,
) -> Result<Option<DateTime<Utc>>, JobError> {
    if agreement::days_in(&promise.content).next().is_none() {
        return Ok(None);
    }
    let fact = services.ledger.facts.load_fact(scope, promise.fact).await?;
    Ok(fact.map(|fact| fact.valid_at))
}
