//! Actions that NPCs ask the backend for: `/v1/worlds/{w}/actions`, `/v1/actions/{id}`.

use actix_web::{HttpResponse, get, post, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{
    AppState,
    errors::{Code, Problem},
    extract::{Author, Authorized, OptionalBody, Path, QueryParams},
    pagination::{Items, list_query},
    uncancelled::run_uncancelled,
    validate::one_line_label,
    worlds,
};
use colloquy_core::ids::{ActionId, DialogueId, NpcId, PlayerId, TurnId, WorldId};
use colloquy_dialogue::knowledge::actions;
use colloquy_ports::ledger::actions::{
    Action, ActionFilter, ActionStatus, AnswerKind, AnswerOutcome, MAX_ANSWER_CHARS,
};

/// An action that an NPC asked for.
#[derive(Debug, Serialize, ToSchema)]
pub struct ActionView {
    #[schema(value_type = String)]
    id: ActionId,
    #[schema(value_type = String)]
    world_id: WorldId,
    #[schema(value_type = String)]
    dialogue_id: DialogueId,
    /// The turn that asked: its id, and its number in the dialogue.
    #[schema(value_type = String)]
    turn_id: TurnId,
    turn: u32,
    #[schema(value_type = String)]
    npc_id: NpcId,
    /// The player in the dialogue; `null` in a conversation of NPCs.
    #[schema(value_type = Option<String>)]
    player_id: Option<PlayerId>,
    name: String,
    /// They fit the schema of the world's rule.
    #[schema(value_type = Object)]
    arguments: Map<String, Value>,
    /// `requested`: waits for an answer. `expired`: none came in time. `undone`: the turn was taken back, whether or not
    /// the action was answered.
    status: ActionStatus,
    requested_at: DateTime<Utc>,
    /// The end of the time for an answer.
    expires_at: DateTime<Utc>,
    answered_at: Option<DateTime<Utc>>,
    /// The backend's text for `:done`.
    result: Option<String>,
    /// The backend's text for `:refused`.
    reason: Option<String>,
}

impl ActionView {
    pub fn new(action: Action, now: DateTime<Utc>) -> Self {
        let status = action.status(now);
        let Action { request, answer, .. } = action;
        let text_of = |kind| {
            let answer = answer.as_ref().filter(|answer| answer.kind == kind)?;
            Some(answer.text.clone()).filter(|text| !text.is_empty())
        };
        Self {
            status,
            result: text_of(AnswerKind::Done),
            reason: text_of(AnswerKind::Refused),
            answered_at: answer.map(|answer| answer.answered_at),
            id: request.id,
            world_id: request.world,
            dialogue_id: request.dialogue,
            turn_id: request.turn,
            turn: request.number,
            npc_id: request.npc,
            player_id: request.player,
            name: request.name,
            arguments: request.arguments,
            requested_at: request.requested_at,
            expires_at: request.expires_at,
        }
    }
}

list_query! {
    pub struct ActionsQuery {
        #[param(inline)]
        status: Option<ActionStatus>,
        /// Only the actions of this dialogue.
        #[param(value_type = Option<String>)]
        dialogue: Option<DialogueId>,
    }
}

/// Lists the actions that NPCs of a world asked for, oldest first.
///
/// `?status=requested` has those that wait for an answer.
#[utoipa::path(
    tag = "world state",
    params(("world" = String, Path), ActionsQuery),
    responses((status = 200, body = Items<ActionView>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/worlds/{world}/actions")]
pub async fn list_actions(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<WorldId>,
    query: QueryParams<ActionsQuery>,
) -> Result<HttpResponse, Problem> {
    let world = worlds::find_world(&state, &caller, &path.0).await?;
    let page = query.0.parse_page::<ActionId>()?;
    let store = &state.services.ledger.actions;
    let now = state.services.clock.now();
    let filter = ActionFilter {
        status: query.0.status,
        dialogue: query.0.dialogue,
    };
    let actions = store.list_actions(&caller.scope, &world.id, filter, &page, now).await?;
    Ok(HttpResponse::Ok().json(Items::from_page(actions, |action| ActionView::new(action, now))))
}

/// Returns an action.
#[utoipa::path(
    tag = "world state",
    params(("action" = String, Path)),
    responses((status = 200, body = ActionView)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/actions/{action}")]
pub async fn get_action(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<ActionId>,
) -> Result<HttpResponse, Problem> {
    let action = find_action(&state, &caller, path.0).await?;
    Ok(HttpResponse::Ok().json(ActionView::new(action, state.services.clock.now())))
}

/// How a done action ended.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct ActionDoneBody {
    /// The result in one line, which the NPC reads before its next reply.
    #[garde(inner(length(chars, min = 1, max = MAX_ANSWER_CHARS), custom(one_line_label)))]
    #[schema(min_length = 1, max_length = 200)]
    result: Option<String>,
}

/// Why an action was refused.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct ActionRefusedBody {
    /// The reason in one line, which the NPC reads before its next reply.
    #[garde(inner(length(chars, min = 1, max = MAX_ANSWER_CHARS), custom(one_line_label)))]
    #[schema(min_length = 1, max_length = 200)]
    reason: Option<String>,
}

/// Reports that an action was done in the game.
///
/// The answer becomes an event of the world, which goes with the turn that asked. The body may be omitted. The same
/// answer again gets the same result.
#[utoipa::path(
    tag = "world state",
    params(("action" = String, Path)),
    request_body = ActionDoneBody,
    responses((status = 200, body = ActionView), (status = 409, description = "The action has another answer, has expired or is undone")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/actions/{action}:done")]
pub async fn complete_action(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<ActionId>,
    body: OptionalBody<ActionDoneBody>,
) -> Result<HttpResponse, Problem> {
    answer_action(state, caller, path.0, AnswerKind::Done, body.0.result).await
}

/// Reports that an action was refused by the game.
///
/// The answer becomes an event of the world, which goes with the turn that asked. The body may be omitted. The same
/// answer again gets the same result.
#[utoipa::path(
    tag = "world state",
    params(("action" = String, Path)),
    request_body = ActionRefusedBody,
    responses((status = 200, body = ActionView), (status = 409, description = "The action has another answer, has expired or is undone")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/actions/{action}:refused")]
pub async fn refuse_action(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<ActionId>,
    body: OptionalBody<ActionRefusedBody>,
) -> Result<HttpResponse, Problem> {
    answer_action(state, caller, path.0, AnswerKind::Refused, body.0.reason).await
}

async fn answer_action(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    id: ActionId,
    kind: AnswerKind,
    text: Option<String>,
) -> Result<HttpResponse, Problem> {
    run_uncancelled(async move {
        let action = find_action(&state, &caller, id).await?;
        let verb = match kind {
            AnswerKind::Done => "action.done",
            AnswerKind::Refused => "action.refused",
        };
        let edit = caller.new_edit(&state, verb, id);
        let answer = (kind, text.as_deref().unwrap_or_default());
        let outcome = actions::answer_action(&state.services, &caller.scope, &action, answer, &edit).await?;
        let action = match outcome {
            AnswerOutcome::Stored(action) => action,
            AnswerOutcome::NotOpen(action) => {
                check_repeat(&action, kind, edit.made_at)?;
                action
            }
            AnswerOutcome::NotFound => return Err(Problem::not_found("action")),
        };
        Ok(HttpResponse::Ok().json(ActionView::new(action, edit.made_at)))
    })
    .await
}

/// Refuses an answer to an action that is not open, unless it is the answer that the action has.
fn check_repeat(action: &Action, kind: AnswerKind, now: DateTime<Utc>) -> Result<(), Problem> {
    let (code, detail) = match (action.status(now), &action.answer) {
        (ActionStatus::Undone, _) => (Code::ActionUndone, "the turn that asked for the action was taken back"),
        (_, Some(answer)) if answer.kind == kind => return Ok(()),
        (_, Some(_)) => (Code::ActionAnswered, "the action has another answer"),
        (_, None) => (Code::ActionExpired, "the time for an answer is over"),
    };
    Err(Problem::new(code, detail))
}

async fn find_action(state: &AppState, caller: &Authorized<Author>, id: ActionId) -> Result<Action, Problem> {
    let action = state.services.ledger.actions.load_action(&caller.scope, id).await?;
    action.ok_or_else(|| Problem::not_found("action"))
}
