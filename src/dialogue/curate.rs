//! Curation passes over a dialogue (docs/algorithms.md#curation). A job reads the turns since the last pass. The curation
//! model notes findings, decides about open ones, and edits its narrative memory.

mod draft;
mod material;

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use self::{
    draft::{EditOutcome, PassDraft},
    material::{PassMaterial, load_material},
};
use super::{
    Services,
    jobs::{JobError, JobInput, JobReport, ask_json},
    models::{ModelRequest, parse_json_answer, tallied_usage},
    prompt::{Template, escape_untrusted},
};
use colloquy_core::scope::TenantScope;
use colloquy_memory::curation::{
    CurationPass, Decision, FindingKind, MAX_FINDING_CHARS, MAX_FINDINGS_PER_PASS, MAX_REASON_CHARS, NarrativeMemory,
    PassMethod,
};
use colloquy_ports::{
    StoreError,
    ledger::{curation::PassCommit, jobs::Job},
    llm::{ChatMessage, ChatRole, JsonSchema, LlmError, Task},
};

/// From this turn on, the model is asked to shorten its older notes.
const COMPRESS_FROM_TURN: u32 = 50;
/// The most edits in an answer.
const MAX_EDITS: usize = 12;

/// A step of the model: findings, and edits of the narrative memory.
#[derive(Deserialize)]
struct StepAnswer {
    findings: Option<Vec<Value>>,
    edits: Option<Vec<Value>>,
    done: Option<bool>,
}

/// The whole pass in one answer.
#[derive(Deserialize)]
struct DirectAnswer {
    findings: Option<Vec<Value>>,
    memory: String,
}

/// Reads the turns up to the job's turn that no pass has read. Does nothing without such turns. Over the tenant's daily
/// budget of curation nothing is read either, and the next pass covers the gap.
pub(super) async fn curate_turns(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    said: &JobInput,
) -> Result<JobReport, JobError> {
    let material = load_material(services, scope, said).await?;
    let Some(material) = material.filter(|_| services.settings.curation.is_on()) else {
        services.ledger.jobs.finish_job(scope, job.id, &tallied_usage()).await?;
        return Ok(JobReport::default());
    };
    if is_over_budget(services, scope).await? {
        tracing::info!(tenant = %scope.tenant(), dialogue = %said.dialogue.id, "the curation budget of the day is used up");
        services.ledger.jobs.finish_job(scope, job.id, &tallied_usage()).await?;
        return Ok(JobReport::default());
    }
    let (draft, method) = match edit_in_steps(services, scope, said, &material).await {
        Ok(draft) => (draft, PassMethod::Edits),
        Err(error) if is_worth_a_direct_call(&error) => {
            tracing::info!(dialogue = %said.dialogue.id, %error, "the notes could not be edited step by step");
            (
                write_directly(services, scope, said, &material).await?,
                PassMethod::Direct,
            )
        }
        Err(error) => return Err(error),
    };
    failpoint!("pass.made");
    let commit = commit_of(services, job, said, &material, draft, method);
    services.ledger.curation.commit_pass(scope, &commit).await?;
    failpoint!("pass.durable");
    Ok(JobReport::default())
}

/// True if a call without steps may succeed: the model answers, but not as the steps need it.
fn is_worth_a_direct_call(error: &JobError) -> bool {
    matches!(
        error,
        JobError::Unusable(_) | JobError::Model(LlmError::Refused(_) | LlmError::Broken(_))
    )
}

async fn is_over_budget(services: &Services, scope: &TenantScope) -> Result<bool, StoreError> {
    let settings = &services.settings.curation;
    if settings.calls_per_day == 0 && settings.tokens_per_day == 0 {
        return Ok(false);
    }
    let today = services.clock.now().date_naive();
    let used = services.ledger.usage.list_usage_between(scope, today, today).await?;
    let of_curation = used.iter().filter(|row| row.task == Task::Curation.as_str());
    let (calls, tokens) = of_curation.fold((0, 0), |(calls, tokens), row| {
        (calls + row.calls, tokens + row.prompt_tokens + row.completion_tokens)
    });
    let is_over = |used: u64, limit: u64| limit > 0 && used >= limit;
    Ok(is_over(calls, settings.calls_per_day) || is_over(tokens, settings.tokens_per_day))
}

/// Lets the model note and edit in steps. A step that fails after a step that was used ends the pass without an error.
async fn edit_in_steps(
    services: &Services,
    scope: &TenantScope,
    said: &JobInput,
    material: &PassMaterial,
) -> Result<PassDraft, JobError> {
    let settings = &services.settings;
    let started = services.clock.monotonic_now();
    // The rest of the lease is for the last step and the write.
    let longest = Duration::from_secs(settings.jobs.lease_s) / 3;
    let mut draft = PassDraft::new(
        material,
        NarrativeMemory::new(material.memory.clone(), settings.curation.memory_chars),
    );
    let mut ask = ModelRequest {
        task: Task::Curation,
        messages: vec![ChatMessage::new(
            ChatRole::User,
            render_prompt(services, said, material, false)?,
        )],
        json_schema: Some(step_schema()),
        model: None,
        more_room: false,
    };
    for step in 0..settings.curation.max_steps.max(1) {
        let answer = match ask_step(services, scope, &mut ask).await {
            Ok(answer) => answer,
            Err(error) if step == 0 => return Err(error),
            Err(error) => {
                tracing::info!(dialogue = %said.dialogue.id, %error, "a later step of a curation pass was of no use");
                break;
            }
        };
        let StepAnswer { findings, edits, done } = answer;
        let (findings, edits) = (findings.unwrap_or_default(), edits.unwrap_or_default());
        let is_empty = findings.is_empty() && edits.is_empty();
        let outcomes = draft.apply_step(findings, edits.into_iter().take(MAX_EDITS));
        let is_done = is_empty || done.unwrap_or(true) && outcomes.iter().all(|outcome| outcome.fault.is_none());
        if is_done || is_later_than(services, started, longest) {
            break;
        }
        let outcome = render_outcome(services, said, &draft, &outcomes)?;
        ask.messages.push(ChatMessage::new(ChatRole::User, outcome));
    }
    Ok(draft)
}

fn is_later_than(services: &Services, started: Instant, longest: Duration) -> bool {
    services.clock.monotonic_now().saturating_duration_since(started) >= longest
}

/// Asks for a step, again if the answer is of no use, and adds the answer to the messages.
async fn ask_step(services: &Services, scope: &TenantScope, ask: &mut ModelRequest) -> Result<StepAnswer, JobError> {
    let mut fault = String::new();
    for _ in 0..2 {
        let (answer, _) = services.models.request_completion(scope, ask.clone()).await;
        let answer = answer?;
        match parse_json_answer::<StepAnswer>(&answer.text) {
            Ok(step) if step.findings.is_some() || step.edits.is_some() => {
                ask.messages.push(ChatMessage::new(ChatRole::Assistant, answer.text));
                return Ok(step);
            }
            Ok(_) => "the answer has neither findings nor edits".clone_into(&mut fault),
            Err(why) => fault = why,
        }
        ask.more_room = answer.at_cap;
    }
    Err(JobError::Unusable(fault))
}

/// Asks for the whole pass in one answer.
async fn write_directly(
    services: &Services,
    scope: &TenantScope,
    said: &JobInput,
    material: &PassMaterial,
) -> Result<PassDraft, JobError> {
    let prompt = render_prompt(services, said, material, true)?;
    let (answer, _): (DirectAnswer, _) = ask_json(services, scope, Task::Curation, prompt, direct_schema()).await?;
    let limit = services.settings.curation.memory_chars;
    let mut draft = PassDraft::new(material, NarrativeMemory::new(String::new(), limit));
    draft.apply_step(answer.findings.unwrap_or_default(), std::iter::empty());
    draft.write_memory(&answer.memory);
    Ok(draft)
}

fn commit_of(
    services: &Services,
    job: &Job,
    said: &JobInput,
    material: &PassMaterial,
    draft: PassDraft,
    method: PassMethod,
) -> PassCommit {
    let last = &material.last;
    let (world, dialogue) = (said.dialogue.world.clone(), said.dialogue.id);
    let result = draft.into_result(services, material, &world, dialogue);
    PassCommit {
        fence: job.fence(),
        cause: last.id,
        calls: tallied_usage(),
        pass: CurationPass {
            id: services.ids.next_id(),
            world,
            dialogue,
            from_turn: material.from,
            to_turn: last.number,
            method,
            steps: result.steps,
            memory: result.memory,
            // The turn's time, not the time of the write. A history must not depend on the speed of the model.
            at: last.committed_at,
        },
        findings: result.findings,
        decisions: result.decisions,
    }
}

fn render_prompt(
    services: &Services,
    said: &JobInput,
    material: &PassMaterial,
    direct: bool,
) -> Result<String, JobError> {
    let values = minijinja::context! {
        direct,
        compress => material.last.number >= COMPRESS_FROM_TURN,
        max_text => MAX_FINDING_CHARS,
        max_memory => services.settings.curation.memory_chars,
        memory => material.memory.lines().map(escape_untrusted).collect::<Vec<_>>(),
        ..material.values.clone()
    };
    Ok(services.prompts.render(said.npc.language, Template::Curation, values)?)
}

fn render_outcome(
    services: &Services,
    said: &JobInput,
    draft: &PassDraft,
    outcomes: &[EditOutcome],
) -> Result<String, JobError> {
    let results: Vec<_> = outcomes
        .iter()
        .map(|outcome| minijinja::context! { what => outcome.what, number => outcome.number, fault => outcome.fault, by => outcome.by })
        .collect();
    let values = minijinja::context! {
        results,
        size => draft.memory().char_count(),
        max_memory => services.settings.curation.memory_chars,
        memory => draft.memory().as_str().lines().map(str::to_owned).collect::<Vec<_>>(),
    };
    Ok(services
        .prompts
        .render(said.npc.language, Template::CurationOutcome, values)?)
}

fn finding_schema() -> Value {
    let names = |all: &[&str]| json!({ "type": "string", "enum": all });
    let item = JsonSchema::object(json!({
        "about": { "type": "string" },
        "kind": names(&FindingKind::ALL.map(FindingKind::as_str)),
        "text": { "type": "string", "maxLength": MAX_FINDING_CHARS },
        "turns": { "type": "array", "items": { "type": "integer" } },
        "decision": names(&Decision::ALL.map(Decision::as_str)),
        "reason": { "type": "string", "maxLength": MAX_REASON_CHARS },
    }));
    json!({ "type": "array", "maxItems": MAX_FINDINGS_PER_PASS, "items": item })
}

fn step_schema() -> JsonSchema {
    let edit = JsonSchema::object(json!({
        "edit": { "type": "string", "enum": ["append", "replace", "remove"] },
        "text": { "type": "string" },
        "by": { "type": "string" },
    }));
    let edits = json!({ "type": "array", "maxItems": MAX_EDITS, "items": edit });
    let properties = json!({ "findings": finding_schema(), "edits": edits, "done": { "type": "boolean" } });
    JsonSchema::for_object("curation", properties)
}

fn direct_schema() -> JsonSchema {
    let properties = json!({ "findings": finding_schema(), "memory": { "type": "string" } });
    JsonSchema::for_object("curation", properties)
}
