//! Curation of a world: `/v1/worlds/{w}/curation`.

use std::{sync::Arc, time::Duration};

use actix_web::{HttpResponse, get, post, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    errors::{Code, Problem},
    extract::{Author, Authorized, Body, Path, QueryParams},
    npcs,
    pagination::{Items, list_query},
    uncancelled::run_uncancelled,
    validate::one_line_label,
    worlds,
};
use colloquy_core::{
    ids::{DialogueId, FindingId, PassId, WorldId},
    scope::TenantScope,
};
use colloquy_dialogue::{curate::make_dry_run, jobs::JobError};
use colloquy_memory::curation::{CurationPass, Decision, Finding, FindingKind, MAX_REASON_CHARS, PassMethod};
use colloquy_ports::ledger::{
    curation::{FindingFilter, PassCommit, PersonDecision},
    dialogues::Dialogue,
};

/// How long a dry run may take.
const DRY_RUN_LIMIT: Duration = Duration::from_mins(2);
/// When a dry run begins no further call of the model.
const LAST_CALL_OF_DRY_RUN: Duration = Duration::from_secs(40);

/// A finding of a curation pass, with the decision that counts.
#[derive(Debug, Serialize, ToSchema)]
pub struct FindingView {
    #[schema(value_type = String)]
    id: FindingId,
    #[schema(value_type = String)]
    world_id: WorldId,
    #[schema(value_type = String)]
    dialogue_id: DialogueId,
    kind: FindingKind,
    text: String,
    /// The numbers of the turns that it is about.
    turns: Vec<u32>,
    decision: Decision,
    reason: String,
    /// The subject of the token of the person who decided; `null`: the curation model decided. A person's decision stays.
    decided_by: Option<String>,
    decided_at: DateTime<Utc>,
    /// When the last turn of the pass was committed.
    found_at: DateTime<Utc>,
}

impl From<Finding> for FindingView {
    fn from(finding: Finding) -> Self {
        let decided = finding.decided;
        Self {
            id: finding.id,
            world_id: finding.world,
            dialogue_id: finding.dialogue,
            kind: finding.kind,
            text: finding.text,
            turns: finding.turns,
            decision: decided.decision,
            reason: decided.reason,
            decided_by: decided.decided_by,
            decided_at: decided.decided_at,
            found_at: finding.found_at,
        }
    }
}

/// A curation pass.
#[derive(Debug, Serialize, ToSchema)]
pub struct CurationPassView {
    #[schema(value_type = String)]
    id: PassId,
    #[schema(value_type = String)]
    dialogue_id: DialogueId,
    /// The first and the last turn that the pass read.
    from_turn: u32,
    to_turn: u32,
    method: PassMethod,
    /// The model's answers.
    steps: u32,
    /// The narrative memory of the dialogue after the pass: the model's own notes.
    narrative_memory: String,
    /// When the last turn of the pass was committed.
    #[serde(rename = "at")]
    last_turn_at: DateTime<Utc>,
}

impl From<CurationPass> for CurationPassView {
    fn from(pass: CurationPass) -> Self {
        Self {
            id: pass.id,
            dialogue_id: pass.dialogue,
            from_turn: pass.from_turn,
            to_turn: pass.to_turn,
            method: pass.method,
            steps: pass.steps,
            narrative_memory: pass.memory,
            last_turn_at: pass.last_turn_at,
        }
    }
}

list_query! {
    pub struct CurationQuery {
        #[param(inline)]
        kind: Option<FindingKind>,
        #[param(inline)]
        decision: Option<Decision>,
        /// Only the findings of this dialogue.
        #[param(value_type = Option<String>)]
        dialogue: Option<DialogueId>,
    }
}

/// Lists what curation passes have found in a world, newest first.
///
/// Findings of turns that were taken back are not listed.
#[utoipa::path(
    tag = "world state",
    params(("world" = String, Path), CurationQuery),
    responses((status = 200, body = Items<FindingView>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/curation")]
pub async fn list_findings(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    query: QueryParams<CurationQuery>,
) -> Result<HttpResponse, Problem> {
    let world = worlds::find_world(&state, &caller, &path.0).await?;
    let page = query.0.parse_page::<FindingId>()?;
    let filter = FindingFilter {
        kind: query.0.kind,
        decision: query.0.decision,
        dialogue: query.0.dialogue,
    };
    let store = &state.services.ledger.curation;
    let findings = store.list_findings(&caller.scope, &world.id, filter, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from_page(findings, FindingView::from)))
}

list_query! {
    pub struct CurationPassesQuery {
        /// Only the passes over this dialogue.
        #[param(value_type = Option<String>)]
        dialogue: Option<DialogueId>,
    }
}

/// Lists the curation passes over dialogues of a world, newest first, each with the narrative memory that it left.
///
/// Passes over turns that were taken back are not listed.
#[utoipa::path(
    tag = "world state",
    params(("world" = String, Path), CurationPassesQuery),
    responses((status = 200, body = Items<CurationPassView>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/curation/passes")]
pub async fn list_curation_passes(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    query: QueryParams<CurationPassesQuery>,
) -> Result<HttpResponse, Problem> {
    let world = worlds::find_world(&state, &caller, &path.0).await?;
    let page = query.0.parse_page::<PassId>()?;
    let store = &state.services.ledger.curation;
    let passes = store
        .list_passes(&caller.scope, &world.id, query.0.dialogue, &page)
        .await?;
    Ok(HttpResponse::Ok().json(Items::from_page(passes, CurationPassView::from)))
}

/// The dialogue for a pass.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct CurationRunBody {
    /// A session or an NPC conversation of the world.
    #[schema(value_type = String)]
    dialogue_id: DialogueId,
    /// True: the pass is made at once and returned, and nothing is stored but the usage of the model.
    #[serde(default)]
    dry_run: bool,
}

/// Whether a pass was queued.
#[derive(Debug, Serialize, ToSchema)]
pub struct CurationRunView {
    /// False: the settings have no passes, no turn stands, or a pass up to the last turn is queued already or was given up (`GET /v1/jobs`).
    queued: bool,
}

/// A dry run.
#[derive(Debug, Serialize, ToSchema)]
pub struct CurationDryRunView {
    /// `null`: the settings have no passes, or passes have read all turns that stand.
    pass: Option<DryRunPassView>,
}

/// What a pass would store.
#[derive(Debug, Serialize, ToSchema)]
pub struct DryRunPassView {
    /// The first and the last turn that the pass has read.
    from_turn: u32,
    to_turn: u32,
    method: PassMethod,
    /// The model's answers.
    steps: u32,
    /// The narrative memory of the dialogue after the pass.
    narrative_memory: String,
    /// New findings.
    findings: Vec<DryRunFindingView>,
    /// Decisions about findings of earlier passes.
    decisions: Vec<DryRunDecisionView>,
    /// New insights. Each NPC of the dialogue would get them.
    insights: Vec<DryRunInsightView>,
}

/// A finding that a pass would store.
#[derive(Debug, Serialize, ToSchema)]
pub struct DryRunFindingView {
    kind: FindingKind,
    text: String,
    /// The numbers of the turns that it is about.
    turns: Vec<u32>,
    decision: Decision,
    reason: String,
}

/// A decision that a pass would store.
#[derive(Debug, Serialize, ToSchema)]
pub struct DryRunDecisionView {
    #[schema(value_type = String)]
    finding_id: FindingId,
    decision: Decision,
    reason: String,
}

/// An insight that a pass would store.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub struct DryRunInsightView {
    /// `player:<id>`, or the name of an NPC, a place or another thing.
    entity: String,
    /// Empty: an earlier insight about the entity does not hold.
    text: String,
}

impl From<PassCommit> for DryRunPassView {
    fn from(commit: PassCommit) -> Self {
        let findings = commit.findings.into_iter().map(|finding| DryRunFindingView {
            kind: finding.kind,
            text: finding.text,
            turns: finding.turns,
            decision: finding.decided.decision,
            reason: finding.decided.reason,
        });
        let decisions = commit.decisions.into_iter().map(|decided| DryRunDecisionView {
            finding_id: decided.finding,
            decision: decided.decision,
            reason: decided.reason,
        });
        let insights = commit.insights.into_iter().map(|insight| DryRunInsightView {
            entity: insight.entity,
            text: insight.text,
        });
        let mut view = Self {
            from_turn: commit.pass.from_turn,
            to_turn: commit.pass.to_turn,
            method: commit.pass.method,
            steps: commit.pass.steps,
            narrative_memory: commit.pass.memory,
            findings: findings.collect(),
            decisions: decisions.collect(),
            insights: insights.collect(),
        };
        // The rows of several NPCs follow each other.
        view.insights.dedup();
        view
    }
}

/// Queues a curation pass over the turns of a dialogue that no pass has read, or makes it as a dry run.
///
/// A queued pass runs after the answer, within the budget of `curation` in the settings. A dry run is made within two
/// minutes and returned. It stores nothing, and counts toward the same budgets.
#[utoipa::path(
    tag = "world state",
    params(("world" = String, Path)),
    request_body = CurationRunBody,
    responses(
        (status = 200, body = CurationDryRunView, description = "The result of a dry run"),
        (status = 202, body = CurationRunView, description = "Whether a pass was queued"),
        (status = 404, description = "No such dialogue in this world"),
        (status = 502, description = "In a dry run: the language model failed, or its answers could not be used"),
        (status = 504, description = "In a dry run: the language model did not answer in time"),
    ),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/worlds/{world}/curation:run")]
pub async fn run_curation(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    body: Body<CurationRunBody>,
) -> Result<HttpResponse, Problem> {
    let CurationRunBody { dialogue_id, dry_run } = body.value;
    if dry_run {
        // The client waits for the calls. If the client goes, they end.
        let dialogue = find_dialogue(&state, &caller, &path.0, dialogue_id).await?;
        let pass = Box::pin(run_dry(&state, &caller.scope, &dialogue)).await?;
        let pass = pass.map(DryRunPassView::from);
        return Ok(HttpResponse::Ok().json(CurationDryRunView { pass }));
    }
    run_uncancelled(async move {
        let dialogue = find_dialogue(&state, &caller, &path.0, dialogue_id).await?;
        let world = Arc::new(worlds::find_world(&state, &caller, &path.0).await?);
        let world = match dialogue.npcs.first() {
            Some(npc) => world.for_npc(&npcs::find_npc(&state, &caller, &path.0, npc).await?),
            None => world,
        };
        let world = world.for_session(dialogue.options.settings.as_deref());
        let services = state.services.tuned_by(&world.settings);
        let job = services.ids.next_id();
        let now = services.clock.now();
        let curation = &services.ledger.curation;
        let queued =
            services.settings.curation.is_on() && curation.queue_pass(&caller.scope, dialogue.id, job, now).await?;
        Ok(HttpResponse::Accepted().json(CurationRunView { queued }))
    })
    .await
}

/// Returns a dialogue of the world.
async fn find_dialogue(
    state: &AppState,
    caller: &Authorized<Author>,
    world: &WorldId,
    id: DialogueId,
) -> Result<Dialogue, Problem> {
    let world = worlds::find_world(state, caller, world).await?;
    let dialogue = state.services.ledger.dialogues.load_dialogue(&caller.scope, id).await?;
    dialogue
        .filter(|dialogue| dialogue.world == world.id)
        .ok_or_else(|| Problem::not_found("dialogue"))
}

/// Makes a pass without a write, within the time limit.
async fn run_dry(state: &AppState, scope: &TenantScope, dialogue: &Dialogue) -> Result<Option<PassCommit>, Problem> {
    let dry_run = make_dry_run(&state.services, scope, dialogue, LAST_CALL_OF_DRY_RUN);
    let commit = tokio::time::timeout(DRY_RUN_LIMIT, Box::pin(dry_run)).await;
    let commit = commit.map_err(|_| Problem::new(Code::ModelTimeout, "the dry run took too long"))?;
    commit.map_err(|error| match error {
        JobError::Store(error) => error.into(),
        JobError::Model(error) => error.into(),
        JobError::Unusable(_) => Problem::new(Code::ModelFailed, "the language model's answers could not be used"),
        JobError::OverCurationBudget { retry_after } => {
            Problem::new(Code::BudgetSpent, error.to_string()).with_retry_after(retry_after)
        }
        JobError::Panicked | JobError::LeaseExpired => Problem::internal_error(&error),
    })
}

/// A person's decision about a finding.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct DecideBody {
    #[schema(inline)]
    decision: Decision,
    /// One line, which later passes read.
    #[garde(inner(length(chars, min = 1, max = MAX_REASON_CHARS), custom(one_line_label)))]
    #[schema(min_length = 1, max_length = 300)]
    reason: Option<String>,
}

/// Decides about a finding.
///
/// Later passes keep to the decision, and no pass changes it. A later decision of a person replaces it.
#[utoipa::path(
    tag = "world state",
    params(("world" = String, Path), ("finding" = String, Path)),
    request_body = DecideBody,
    responses((status = 200, body = FindingView), (status = 404, description = "No such finding, or its turns were taken back")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/worlds/{world}/curation/{finding}:decide")]
pub async fn decide_finding(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(WorldId, FindingId)>,
    body: Body<DecideBody>,
) -> Result<HttpResponse, Problem> {
    run_uncancelled(async move {
        let (world, finding) = path.0;
        let world = worlds::find_world(&state, &caller, &world).await?;
        let edit = caller.new_edit(&state, "finding.decide", finding);
        let decision = PersonDecision {
            decision: body.value.decision,
            reason: body.value.reason.as_deref().unwrap_or_default(),
        };
        let store = &state.services.ledger.curation;
        let decided = store
            .decide_finding(&caller.scope, &world.id, finding, decision, &edit)
            .await?;
        let finding = decided.ok_or_else(|| Problem::not_found("finding"))?;
        Ok(HttpResponse::Ok().json(FindingView::from(finding)))
    })
    .await
}
