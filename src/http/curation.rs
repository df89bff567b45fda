//! Curation of a world: `/v1/worlds/{w}/curation`.

use actix_web::{HttpResponse, get, post, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    AppState,
    errors::Problem,
    extract::{Author, Authorized, Body, Path, QueryParams},
    pagination::{self, Items},
    run_uncancelled,
    validate::one_line_label,
    worlds,
};
use colloquy_core::ids::{DialogueId, FindingId, PassId, WorldId};
use colloquy_memory::curation::{CurationPass, Decision, Finding, FindingKind, MAX_REASON_CHARS, PassMethod};
use colloquy_ports::ledger::curation::{FindingFilter, PersonDecision};

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
            decided_at: decided.at,
            found_at: finding.at,
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
    at: DateTime<Utc>,
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
            at: pass.at,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CurationQuery {
    #[param(inline)]
    kind: Option<FindingKind>,
    #[param(inline)]
    decision: Option<Decision>,
    /// Only the findings of this dialogue.
    #[param(value_type = Option<String>)]
    dialogue: Option<DialogueId>,
    /// 1–200; default 50.
    limit: Option<u32>,
    /// `next` of the previous page.
    after: Option<String>,
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
    let CurationQuery {
        kind,
        decision,
        dialogue,
        limit,
        after,
    } = query.0;
    let page = pagination::parse_page::<FindingId>(&state, limit, after)?;
    let filter = FindingFilter {
        kind,
        decision,
        dialogue,
    };
    let store = &state.services.ledger.curation;
    let found = store.list_findings(&caller.scope, &world.id, filter, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from_page(found, FindingView::from)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CurationPassesQuery {
    /// Only the passes over this dialogue.
    #[param(value_type = Option<String>)]
    dialogue: Option<DialogueId>,
    /// 1–200; default 50.
    limit: Option<u32>,
    /// `next` of the previous page.
    after: Option<String>,
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
    let CurationPassesQuery { dialogue, limit, after } = query.0;
    let page = pagination::parse_page::<PassId>(&state, limit, after)?;
    let store = &state.services.ledger.curation;
    let found = store.list_passes(&caller.scope, &world.id, dialogue, &page).await?;
    Ok(HttpResponse::Ok().json(Items::from_page(found, CurationPassView::from)))
}

/// The dialogue for a pass.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct CurationRunBody {
    /// A session or an NPC conversation of the world.
    #[schema(value_type = String)]
    dialogue_id: DialogueId,
}

/// Whether a pass was queued.
#[derive(Debug, Serialize, ToSchema)]
pub struct CurationRunView {
    /// False: the settings have no passes, no turn stands, or a pass up to the last turn is queued already or was given up (`GET /v1/jobs`).
    queued: bool,
}

/// Queues a curation pass over the turns of a dialogue that no pass has read.
///
/// The pass runs after the answer, within the budget of `curation` in the settings.
#[utoipa::path(
    tag = "world state",
    params(("world" = String, Path)),
    request_body = CurationRunBody,
    responses((status = 202, body = CurationRunView), (status = 404, description = "No such dialogue in this world")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/worlds/{world}/curation:run")]
pub async fn run_curation(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    body: Body<CurationRunBody>,
) -> Result<HttpResponse, Problem> {
    run_uncancelled(async move {
        let world = worlds::find_world(&state, &caller, &path.0).await?;
        let (services, id) = (&state.services, body.value.dialogue_id);
        let dialogue = services.ledger.dialogues.load_dialogue(&caller.scope, id).await?;
        dialogue
            .filter(|dialogue| dialogue.world == world.id)
            .ok_or_else(|| Problem::not_found("dialogue"))?;
        let (job, now) = (services.ids.next_id(), services.clock.now());
        let curation = &services.ledger.curation;
        let queued = services.settings.curation.is_on() && curation.queue_pass(&caller.scope, id, job, now).await?;
        Ok(HttpResponse::Accepted().json(CurationRunView { queued }))
    })
    .await
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
