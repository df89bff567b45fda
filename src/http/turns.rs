//! Turns of a session: saying a line, reading the transcript and the traces.

use actix_web::{HttpRequest, HttpResponse, get, http::header, post, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    AppState,
    actions::ActionView,
    awaited_turn::completed_turn,
    curation::FindingView,
    errors::{Code, Problem},
    extract::{Author, Authorized, Body, Path, QueryParams, Talker},
    idempotency,
    pagination::{self, Items},
    reachable_sessions::{reachable_open_session, reachable_session},
    sse,
    turn_view::TurnView,
};
use colloquy_actors::{AcceptedLine, DialogueError, OnBusy, PlayerLine};
use colloquy_core::{
    ids::{DialogueId, NpcId},
    scope::Principal,
};
use colloquy_dialogue::explain::{self, Explained, TurnExplanation};
use colloquy_ports::ledger::dialogues::Dialogue;

/// A player's line.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct TurnBody {
    /// At most `turn.max_line_chars` characters.
    #[schema(min_length = 1)]
    text: String,
    /// The NPC that answers, in a session with several NPCs. Unset: the living NPC named in the line, otherwise the
    /// last speaker, or another living NPC if that one is dead.
    #[schema(value_type = Option<String>)]
    to: Option<NpcId>,
    /// Makes a retry safe: the same key is the same turn. `Idempotency-Key` does the same.
    #[garde(inner(length(chars, min = 1, max = 128)))]
    #[schema(min_length = 1, max_length = 128)]
    key: Option<String>,
    #[serde(default)]
    on_busy: OnBusy,
}

/// Says a line and returns the finished turn.
///
/// With `Accept: text/event-stream`, streams the events of the turn.
#[utoipa::path(
    tag = "turns",
    params(("session" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "The same as `key` in the body")),
    request_body = TurnBody,
    responses((status = 200, content((TurnView = "application/json"), (String = "text/event-stream"))), (status = 409, description = "The session is closed, a reply is running, or the key belongs to a turn that was unsaid"), (status = 422, description = "Fields are not valid, or the key was used with another text"), (status = 502, description = "The language model failed"), (status = 504, description = "The language model did not answer in time")),
    extensions(("x-roles" = json!(["admin", "backend", "player"]))),
)]
#[post("/v1/sessions/{session}/turns")]
pub async fn create_turn(
    state: web::Data<AppState>,
    caller: Authorized<Talker>,
    path: Path<DialogueId>,
    request: HttpRequest,
    body: Body<TurnBody>,
) -> Result<HttpResponse, Problem> {
    let dialogue = reachable_open_session(&state, &caller.principal, path.0).await?;
    if let Some(player) = &dialogue.player {
        caller.count_turn(&state, player)?;
    }
    let key = idempotency::header_or_body_key(&request, body.value.key)?;
    let line = PlayerLine {
        text: body.value.text,
        to: body.value.to,
        key,
        on_busy: body.value.on_busy,
        re: None,
        who: Some(caller.principal.clone()),
        chat: None,
    };
    if accepts_event_stream(&request) {
        let say_marked_line = |mark| {
            let state = state.clone();
            let scope = caller.scope.clone();
            async move {
                let line = PlayerLine { re: Some(mark), ..line };
                state.sessions.say_line(&scope, dialogue.id, line).await
            }
        };
        return sse::stream_turn(&state, &caller.principal, dialogue.id, say_marked_line).await;
    }
    let has_key = line.key.is_some();
    let turn = match state.sessions.say_line(&caller.scope, dialogue.id, line).await? {
        AcceptedLine::Repeated(turn) => turn,
        AcceptedLine::Turn { done: turn_receiver } => match turn_receiver.await {
            // The line waited behind another line, and this node stops. The next owner of the session says the line
            // once.
            Err(_) if has_key && state.sessions.is_draining() => return Err(DialogueError::Draining.into()),
            received => completed_turn(received)?,
        },
    };
    Ok(HttpResponse::Ok().json(TurnView::for_caller(&turn, &caller.principal)))
}

pub(super) fn accepts_event_stream(request: &HttpRequest) -> bool {
    let accept = request.headers().get(header::ACCEPT);
    let mut accepted = accept
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .split(',');
    accepted.any(|part| part.trim().starts_with("text/event-stream"))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TurnsQuery {
    /// 1–200; default 50.
    limit: Option<u32>,
    /// `next` of the previous page: the number of its last turn.
    after: Option<u32>,
}

/// Lists the transcript, oldest turn first.
#[utoipa::path(
    tag = "turns",
    params(("session" = String, Path), TurnsQuery),
    responses((status = 200, body = Items<TurnView>)),
    extensions(("x-roles" = json!(["admin", "backend", "player"]))),
)]
#[get("/v1/sessions/{session}/turns")]
pub async fn list_turns(
    state: web::Data<AppState>,
    caller: Authorized<Talker>,
    path: Path<DialogueId>,
    query: QueryParams<TurnsQuery>,
) -> Result<HttpResponse, Problem> {
    let dialogue = reachable_session(&state, &caller.principal, path.0).await?;
    page_of_turns(&state, &caller.principal, &dialogue, query.0).await
}

/// Loads a page of a dialogue's turns.
pub async fn page_of_turns(
    state: &AppState,
    principal: &Principal,
    dialogue: &Dialogue,
    query: TurnsQuery,
) -> Result<HttpResponse, Problem> {
    let page = pagination::parse_page::<u32>(query.limit, None)?;
    let first_number = query.after.unwrap_or(0).saturating_add(1);
    let last_number = first_number.saturating_add(page.limit - 1);
    let dialogues = &state.services.ledger.dialogues;
    let turns = dialogues
        .load_turns(&principal.scope(), dialogue.id, first_number, last_number)
        .await?;
    let next_cursor = turns
        .last()
        .map(|turn| turn.number)
        .filter(|number| *number < dialogue.head_turn)
        .map(|number| number.to_string());
    Ok(HttpResponse::Ok().json(Items {
        items: turns.iter().map(|turn| TurnView::for_caller(turn, principal)).collect(),
        next: next_cursor,
    }))
}

/// A turn's trace, with what became of the turn since.
#[derive(Debug, Serialize, ToSchema)]
pub struct TraceView {
    #[serde(flatten)]
    explained: Explained,
    /// The actions that the reply asked for, as they are now. `notes` has the reasons of those that were refused at once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    requested_actions: Vec<ActionView>,
    /// The findings of curation that name the turn, oldest first; at most 50.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<FindingView>,
}

/// Whether the prompt is assembled again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
pub enum VerifyFlag {
    #[serde(rename = "0")]
    No,
    #[serde(rename = "1")]
    Yes,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TraceQuery {
    /// `1`: the answer has `verification`. The prompt of the turn is assembled again from the ledger, and compared.
    #[param(inline)]
    verify: Option<VerifyFlag>,
}

/// Answers with the explanation of a turn.
pub async fn respond_with_trace(
    state: &AppState,
    principal: &Principal,
    dialogue: &Dialogue,
    number: u32,
    query: &TraceQuery,
) -> Result<HttpResponse, Problem> {
    let verify = query.verify == Some(VerifyFlag::Yes);
    let scope = principal.scope();
    match explain::explain_turn(&state.services, &scope, dialogue, number, verify).await? {
        TurnExplanation::NoTurn => Err(Problem::not_found("standing turn")),
        TurnExplanation::TraceRemoved => Err(Problem::new(
            Code::NotFound,
            "the turn stands, but its trace was removed after `retention.traces_d` days",
        )),
        TurnExplanation::Explained(explanation) => {
            let now = state.services.clock.now();
            let actions = explanation.requested_actions.into_iter();
            Ok(HttpResponse::Ok().json(TraceView {
                explained: explanation.explained,
                requested_actions: actions.map(|action| ActionView::new(action, now)).collect(),
                findings: explanation.findings.into_iter().map(FindingView::from).collect(),
            }))
        }
    }
}

/// Explains a turn: the reasons for the reply, and the resources used by the turn and its jobs.
///
/// With `?verify=1`, also whether the prompt can be assembled again from the ledger. No model is called for this.
#[utoipa::path(
    tag = "turns",
    params(("session" = String, Path), ("turn" = u32, Path), TraceQuery),
    responses((status = 200, body = TraceView), (status = 404, description = "No such turn stands, or its trace was removed")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/sessions/{session}/turns/{turn}/trace")]
pub async fn get_trace(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(DialogueId, u32)>,
    query: QueryParams<TraceQuery>,
) -> Result<HttpResponse, Problem> {
    let (id, number) = path.0;
    let dialogue = reachable_session(&state, &caller.principal, id).await?;
    respond_with_trace(&state, &caller.principal, &dialogue, number, &query.0).await
}
