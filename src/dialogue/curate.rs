//! Curation passes over a dialogue (docs/algorithms.md#curation). A job reads the turns since the last pass. The curation
//! model notes findings, decides about open ones, edits its narrative memory, and writes insights.

mod budget;
mod carried;
mod comparison;
mod draft;
mod dry_run;
mod hidden_values;
mod insights;
mod material;
mod prompt_ids;
mod turn_values;
mod unread_turns;
mod world_state;

use std::time::{Duration, Instant};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

pub(super) use self::budget::CurationBudget;
pub use self::dry_run::make_dry_run;
use self::{
    draft::{EditOutcome, MAX_EDITS, PassDraft, StepParts},
    material::{PassMaterial, load_material},
};
use super::{
    Services,
    jobs::{JobError, JobReport},
    models::{ModelRequest, parse_json_answer, tallied_usage},
    prompt::{Template, escape_untrusted},
};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    curation::{
        CurationPass, Decision, FindingKind, MAX_FINDING_CHARS, MAX_FINDINGS_PER_PASS, MAX_REASON_CHARS, PassMethod,
    },
    insight::{MAX_ENTITY_CHARS, MAX_INSIGHT_CHARS, MAX_INSIGHTS_PER_PASS},
};
use colloquy_ports::{
    ledger::{
        curation::PassCommit,
        jobs::{Job, JobInput},
    },
    llm::{ChatMessage, ChatRole, JsonSchema, LlmError, Task},
};

/// From this turn on, the model is asked to shorten its older notes.
const COMPRESS_FROM_TURN: u32 = 50;

/// A step of the model: findings, edits of the narrative memory, and insights. At least one of these keys is there.
#[derive(Deserialize)]
#[serde(try_from = "AnyStepAnswer")]
struct StepAnswer {
    parts: StepParts,
    is_done: Option<bool>,
}

#[derive(Deserialize)]
struct AnyStepAnswer {
    findings: Option<Vec<Value>>,
    edits: Option<Vec<Value>>,
    insights: Option<Vec<Value>>,
    #[serde(rename = "done")]
    is_done: Option<bool>,
}

impl TryFrom<AnyStepAnswer> for StepAnswer {
    type Error = &'static str;

    fn try_from(answer: AnyStepAnswer) -> Result<Self, Self::Error> {
        let AnyStepAnswer {
            findings,
            edits,
            insights,
            is_done,
        } = answer;
        if findings.is_none() && edits.is_none() && insights.is_none() {
            return Err("neither findings nor edits nor insights");
        }
        let parts = StepParts {
            findings: findings.unwrap_or_default(),
            edits: edits.unwrap_or_default(),
            insights: insights.unwrap_or_default(),
        };
        Ok(Self { parts, is_done })
    }
}

/// The whole pass in one answer.
#[derive(Deserialize)]
struct DirectAnswer {
    findings: Option<Vec<Value>>,
    insights: Option<Vec<Value>>,
    memory: String,
}

/// A pass before its calls.
struct PendingPass<'a> {
    services: &'a Services,
    scope: &'a TenantScope,
    job_input: &'a JobInput,
    material: &'a PassMaterial,
    budget: CurationBudget,
    /// No call begins later. The rest of the lease is for the last call and the write.
    last_call_at: Instant,
}

/// Reads the turns up to the job's turn that no pass has read. Does nothing without such turns.
///
/// # Errors
/// [`JobError::OverCurationBudget`] if the tenant's calls or tokens of the day are used up. The job then waits.
pub(super) async fn curate_turns(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    job_input: &JobInput,
) -> Result<JobReport, JobError> {
    let lease = Duration::from_secs(services.settings.jobs.lease_s);
    let last_call_at = services.clock.monotonic_now() + lease / 3;
    let Some(commit) = make_pass(services, scope, job, job_input, last_call_at).await? else {
        services.ledger.jobs.finish_job(scope, job.id, &tallied_usage()).await?;
        return Ok(JobReport::default());
    };
    failpoint!("pass.made");
    let stored = services.ledger.curation.commit_pass(scope, &commit).await?;
    failpoint!("pass.durable");
    if stored && commit.pass.to_turn < job_input.turn.number {
        // A backlog takes several passes.
        let next_pass = services.ids.next_id();
        let now = services.clock.now();
        services
            .ledger
            .curation
            .queue_pass(scope, job_input.dialogue.id, next_pass, now)
            .await?;
    }
    Ok(JobReport::default())
}

/// Makes the next pass up to the job's turn, without a write. `None`: no turn is unread, or the settings have no passes.
async fn make_pass(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    job_input: &JobInput,
    last_call_at: Instant,
) -> Result<Option<PassCommit>, JobError> {
    let budget = CurationBudget::load_for_pass(services, scope, job_input.turn.player.as_ref()).await?;
    let material = load_material(services, scope, job_input).await?;
    let Some(material) = material.filter(|_| services.settings.curation.is_on()) else {
        return Ok(None);
    };
    budget.check_player(services)?;
    let pass = PendingPass {
        services,
        scope,
        job_input,
        material: &material,
        budget,
        last_call_at,
    };
    let (draft, method) = match pass.edit_in_steps().await {
        Ok(draft) => (draft, PassMethod::Edits),
        Err(error) if is_worth_a_direct_call(&error) && pass.has_time() && pass.budget.check(services).is_ok() => {
            tracing::info!(dialogue = %job_input.dialogue.id, %error, "the notes could not be edited step by step");
            (pass.write_directly().await?, PassMethod::Direct)
        }
        Err(error) => return Err(error),
    };
    let commit = commit_of(services, scope, job, job_input, &material, draft, method).await?;
    Ok(Some(commit))
}

/// True if a call without steps may succeed: the model answers, but not as the steps need it.
fn is_worth_a_direct_call(error: &JobError) -> bool {
    matches!(
        error,
        JobError::Unusable(_) | JobError::Model(LlmError::Refused(_) | LlmError::Broken(_))
    )
}

impl PendingPass<'_> {
    fn has_time(&self) -> bool {
        self.services.clock.monotonic_now() < self.last_call_at
    }

    /// Lets the model note and edit in steps. A step that fails after a step that was used ends the pass without an error.
    async fn edit_in_steps(&self) -> Result<PassDraft, JobError> {
        let settings = &self.services.settings.curation.limits;
        let mut draft = PassDraft::new(self.material, settings.memory_chars);
        let mut messages = vec![ChatMessage::new(ChatRole::User, self.render_prompt(false)?)];
        for step in 0..settings.max_steps.max(1) {
            let answer = self.ask_model::<StepAnswer>(&messages, step_schema(), false).await;
            let (StepAnswer { parts, is_done }, text) = match answer {
                Ok(answered) => answered,
                Err(error) if step == 0 => return Err(error),
                Err(error) => {
                    tracing::info!(dialogue = %self.job_input.dialogue.id, %error, "a later step of a curation pass was of no use");
                    break;
                }
            };
            let is_empty = parts.is_empty();
            let outcomes = draft.apply_step(parts);
            if is_empty {
                return Ok(draft);
            }
            let is_done = is_done.unwrap_or(true) && outcomes.iter().all(|outcome| outcome.fault.is_none());
            if is_done || !self.has_time() {
                break;
            }
            messages.push(ChatMessage::new(ChatRole::Assistant, text));
            messages.push(ChatMessage::new(
                ChatRole::User,
                self.render_outcome(&draft, &outcomes)?,
            ));
        }
        if draft.is_refused() {
            return Err(JobError::Unusable("nothing in the answers could be used".to_owned()));
        }
        Ok(draft)
    }

    /// Asks for the whole pass in one answer.
    async fn write_directly(&self) -> Result<PassDraft, JobError> {
        let messages = [ChatMessage::new(ChatRole::User, self.render_prompt(true)?)];
        let (answer, _) = self.ask_model::<DirectAnswer>(&messages, direct_schema(), true).await?;
        let mut draft = PassDraft::new(self.material, self.services.settings.curation.limits.memory_chars);
        draft.apply_step(StepParts {
            findings: answer.findings.unwrap_or_default(),
            insights: answer.insights.unwrap_or_default(),
            edits: Vec::new(),
        });
        draft.write_memory(&answer.memory);
        Ok(draft)
    }

    /// Asks for an answer that fits, once more if the first does not, and time and budget are left. Also returns the answer's
    /// text. `more_room`: as in [`ModelRequest`].
    async fn ask_model<T: DeserializeOwned>(
        &self,
        messages: &[ChatMessage],
        schema: JsonSchema,
        more_room: bool,
    ) -> Result<(T, String), JobError> {
        let mut ask = ModelRequest {
            task: Task::Curation,
            messages: messages.to_vec(),
            json_schema: Some(schema),
            model: self.services.named_model(Task::Curation),
            more_room,
            client: None,
        };
        self.budget.check(self.services)?;
        let mut is_repeated = false;
        loop {
            let (answer, _) = self.services.models.request_completion(self.scope, ask.clone()).await;
            let answer = answer?;
            let fault = match parse_json_answer(&answer.text) {
                Ok(fits) => return Ok((fits, answer.text)),
                Err(fault) => fault,
            };
            if is_repeated || !self.has_time() || self.budget.check(self.services).is_err() {
                return Err(JobError::Unusable(fault));
            }
            is_repeated = true;
            ask.more_room = true;
        }
    }

    fn render_prompt(&self, direct: bool) -> Result<String, JobError> {
        let services = self.services;
        let material = self.material;
        let values = minijinja::context! {
            direct,
            compress => material.last.number >= COMPRESS_FROM_TURN,
            max_text => MAX_FINDING_CHARS,
            max_edits => MAX_EDITS,
            max_insights => MAX_INSIGHTS_PER_PASS,
            max_insight => MAX_INSIGHT_CHARS,
            max_memory => services.settings.curation.limits.memory_chars,
            memory => material.memory.lines().map(escape_untrusted).collect::<Vec<_>>(),
            ..material.values.clone()
        };
        Ok(services
            .prompts
            .render(self.job_input.npc.language, Template::Curation, values)?)
    }

    fn render_outcome(&self, draft: &PassDraft, outcomes: &[EditOutcome]) -> Result<String, JobError> {
        let services = self.services;
        let results: Vec<_> = outcomes
            .iter()
            .map(|outcome| minijinja::context! { what => outcome.part, number => outcome.number, fault => outcome.fault, by => outcome.fault_number })
            .collect();
        let values = minijinja::context! {
            results,
            size => draft.memory().char_count(),
            max_memory => services.settings.curation.limits.memory_chars,
            memory => draft.memory().as_str().lines().map(str::to_owned).collect::<Vec<_>>(),
        };
        let language = self.job_input.npc.language;
        Ok(services.prompts.render(language, Template::CurationOutcome, values)?)
    }
}

async fn commit_of(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    job_input: &JobInput,
    material: &PassMaterial,
    mut draft: PassDraft,
    method: PassMethod,
) -> Result<PassCommit, JobError> {
    let last = &material.last;
    let insights = insights::insights_for_npcs(services, scope, job_input, material, draft.take_insights()).await?;
    let world = job_input.dialogue.world.clone();
    let dialogue = job_input.dialogue.id;
    let result = draft.into_result(services, material, &world, dialogue);
    Ok(PassCommit {
        fence: job.fence(),
        cause: last.id,
        calls: tallied_usage(),
        player: last.player.clone(),
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
            last_turn_at: last.committed_at,
        },
        findings: result.findings,
        decisions: result.decisions,
        insights,
    })
}

fn finding_schema() -> Value {
    let one_of = |names: &[&str]| json!({ "type": "string", "enum": names });
    let item = JsonSchema::object(json!({
        "about": { "type": "string" },
        "kind": one_of(&FindingKind::ALL.map(FindingKind::as_str)),
        "text": { "type": "string", "maxLength": MAX_FINDING_CHARS },
        "turns": { "type": "array", "items": { "type": "integer" } },
        "decision": one_of(&Decision::ALL.map(Decision::as_str)),
        "reason": { "type": "string", "maxLength": MAX_REASON_CHARS },
    }));
    json!({ "type": "array", "maxItems": MAX_FINDINGS_PER_PASS, "items": item })
}

fn insight_schema() -> Value {
    let item = JsonSchema::object(json!({
        "about": { "type": "string" },
        "entity": { "type": "string", "maxLength": MAX_ENTITY_CHARS },
        "text": { "type": "string", "maxLength": MAX_INSIGHT_CHARS },
        "turns": { "type": "array", "items": { "type": "integer" } },
    }));
    json!({ "type": "array", "maxItems": MAX_INSIGHTS_PER_PASS, "items": item })
}

fn step_schema() -> JsonSchema {
    let edit = JsonSchema::object(json!({
        "edit": { "type": "string", "enum": ["append", "replace", "remove"] },
        "text": { "type": "string" },
        "by": { "type": "string" },
    }));
    let edits = json!({ "type": "array", "maxItems": MAX_EDITS, "items": edit });
    let properties = json!({
        "findings": finding_schema(), "edits": edits, "insights": insight_schema(), "done": { "type": "boolean" }
    });
    JsonSchema::for_object("curation", properties)
}

fn direct_schema() -> JsonSchema {
    let properties =
        json!({ "findings": finding_schema(), "memory": { "type": "string" }, "insights": insight_schema() });
    JsonSchema::for_object("curation", properties)
}
