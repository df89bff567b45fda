//! Sessions: `/v1/sessions`. A player sees and ends only its own sessions; other sessions are a 404.

use std::{sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    awaited_turn::await_turn,
    errors::{Code, FieldError, Problem},
    extract::{Author, Authorized, Body, InWorld, Path, QueryParams, Talker},
    idempotency::{self, IdempotentResponse},
    openai::is_hidden_world,
    pagination::{self, Items, list_query},
    reachable_sessions::reachable_session,
    setting_bodies::TierSettingsBody,
    turn_view::TurnView,
    uncancelled::run_uncancelled,
    validate::visible_text,
    worlds,
};
use colloquy_actors::{DialogueError, NewSession, handle::CreatedSession};
use colloquy_core::{
    ids::{DialogueId, DialogueKind, FactionId, NpcId, PlayerId, TurnId, WorldId},
    planted_leak,
    scope::{Principal, Role, TenantScope},
};
use colloquy_dialogue::{disclosure::may_hear, npc_conversation::MAX_NPCS, preview::Preview};
use colloquy_memory::{
    directive::KeyPattern,
    turn::{Intent, Turn},
};
use colloquy_ports::ledger::dialogues::{Dialogue, DialogueFilter, DialogueStatus, Playback};

/// How long the creation of a session waits for a greeting. Shorter than the minute in which a repeated request is not
/// handled twice.
const GREETING_TIMEOUT: Duration = Duration::from_secs(45);

/// A new session.
#[derive(Debug, Clone, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct SessionBody {
    // Optional, so that one error names all missing fields.
    #[schema(value_type = String, required = true, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    pub world_id: Option<WorldId>,
    /// The NPC of the session, if there is only one.
    #[schema(value_type = Option<String>, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    pub npc_id: Option<NpcId>,
    /// The NPCs of a session with several NPCs, in place of `npc_id`.
    #[serde(default)]
    #[garde(length(max = MAX_NPCS))]
    #[schema(value_type = Vec<String>, max_items = 8)]
    pub npc_ids: Vec<NpcId>,
    /// A player's token may omit this field; the token's player is used.
    #[schema(value_type = Option<String>, pattern = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
    pub player_id: Option<PlayerId>,
    /// NPCs that overhear the session and learn its facts.
    #[serde(default)]
    #[garde(length(max = 16))]
    #[schema(value_type = Vec<String>, max_items = 16)]
    pub witnesses: Vec<NpcId>,
    /// `ack`: NPCs learn from a turn only after `reply.played`, the next line, or a while.
    #[serde(default)]
    pub playback: Playback,
    /// The NPC speaks first: the first turn has no player's line. On the first meeting with a player, the NPC says its
    /// `persona.greeting`. Without a `persona.greeting`, and at later meetings unless `settings.greeting` is `always`,
    /// the model writes the greeting.
    #[serde(default)]
    pub greeting: bool,
    /// Settings of this session, in place of those of its NPC, world and tenant. Only for backends.
    #[serde(default)]
    #[garde(dive)]
    #[schema(inline)]
    pub settings: Option<TierSettingsBody>,
}

/// A session as it is stored.
#[derive(Debug, Serialize, ToSchema)]
pub struct SessionView {
    #[schema(value_type = String)]
    id: DialogueId,
    #[schema(value_type = String)]
    world_id: WorldId,
    /// The first of `npc_ids`.
    #[schema(value_type = String)]
    npc_id: Option<NpcId>,
    #[schema(value_type = Vec<String>)]
    npc_ids: Vec<NpcId>,
    #[schema(value_type = Option<String>)]
    player_id: Option<PlayerId>,
    /// Not shown to players.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, nullable = false)]
    witnesses: Option<Vec<NpcId>>,
    /// Factions that overhear the session: those of the conversation that the player joined. Not shown to players.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, nullable = false)]
    factions: Option<Vec<FactionId>>,
    status: DialogueStatus,
    /// Number of the last turn; 0 before the first.
    head_turn: u32,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl SessionView {
    /// The view of the session for `principal`.
    fn for_caller(dialogue: Dialogue, principal: &Principal) -> Self {
        Self {
            id: dialogue.id,
            world_id: dialogue.world,
            npc_id: dialogue.npcs.first().cloned(),
            npc_ids: dialogue.npcs,
            player_id: dialogue.player,
            witnesses: (principal.role != Role::Player).then_some(dialogue.witnesses),
            factions: (principal.role != Role::Player).then_some(dialogue.options.factions),
            status: dialogue.status,
            head_turn: dialogue.head_turn,
            created_at: dialogue.created_at,
            updated_at: dialogue.updated_at,
        }
    }
}

/// The stored answer for a repeated creation. Contains no spoken text, because the text may be unsaid by then.
#[derive(Debug, Serialize, Deserialize)]
struct StoredSession {
    session: DialogueId,
    greeting: Option<TurnId>,
}

/// A session that was just created.
#[derive(Debug, Serialize, ToSchema)]
pub struct NewSessionView {
    #[serde(flatten)]
    session: SessionView,
    /// The first turn, if the NPC speaks first. Missing if the greeting failed or took longer than 45 s: the session
    /// stands, and the player may speak. A repeated request also omits a greeting that no longer stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    greeting: Option<TurnView>,
    /// Shown once and not stored. For `session.resume` on a socket.
    resume_token: String,
}

impl NewSessionView {
    /// The view of the new session for `principal`.
    pub fn for_caller(created: CreatedSession, principal: &Principal) -> Self {
        Self {
            session: SessionView::for_caller(created.dialogue, principal),
            greeting: None,
            resume_token: created.resume_token,
        }
    }

    fn with_greeting(mut self, turn: &Turn, principal: &Principal) -> Self {
        self.session.head_turn = turn.number;
        self.session.updated_at = turn.committed_at;
        self.greeting = Some(TurnView::for_caller(turn, principal));
        self
    }

    /// The answer for the creator. The stored form contains neither the token nor spoken text.
    pub fn into_idempotent_response(self) -> Result<IdempotentResponse, Problem> {
        let location = format!("/v1/sessions/{}", self.session.id);
        let stored = StoredSession {
            session: self.session.id,
            greeting: self.greeting.as_ref().map(TurnView::id),
        };
        IdempotentResponse::created(&self, location)?.with_stored_body(&stored)
    }

    /// The answer for a repeated request: the current session. The caller lacks the first token and gets a new token.
    pub async fn replay_response(
        state: web::Data<AppState>,
        principal: Principal,
        stored_response: IdempotentResponse,
    ) -> Result<IdempotentResponse, Problem> {
        let StoredSession { session, greeting } =
            serde_json::from_str(stored_response.body()).map_err(|error| Problem::internal_error(&error))?;
        let scope = principal.scope();
        // The key alone gives no access: another token of the same player may be bound to another world.
        let dialogue = reachable_session(&state, &principal, session).await?;
        let renewed = state.sessions.renew_resume_token(&scope, session).await?;
        let resume_token = renewed.ok_or_else(|| Problem::not_found("session"))?;
        let greeting = match greeting {
            Some(turn) => state.services.ledger.dialogues.load_turn(&scope, turn).await?,
            None => None,
        };
        stored_response.with_body(&Self {
            session: SessionView::for_caller(dialogue, &principal),
            greeting: greeting
                .filter(|stored_turn| stored_turn.stands)
                .map(|stored_turn| TurnView::for_caller(&stored_turn.turn, &principal)),
            resume_token,
        })
    }
}

/// Returns the NPCs of a session, each once. Reports an error if there is none, or if both fields name NPCs.
fn parse_npcs(npc: Option<NpcId>, npcs: Vec<NpcId>, mut add_error: impl FnMut(&str, &str)) -> Vec<NpcId> {
    let has_single = npc.is_some();
    let npc_count = npcs.len() + usize::from(has_single);
    let mut different_npcs: Vec<NpcId> = Vec::new();
    for npc in npc.into_iter().chain(npcs) {
        if !different_npcs.contains(&npc) {
            different_npcs.push(npc);
        }
    }
    if different_npcs.is_empty() {
        add_error("npc_id", "is missing");
    } else if different_npcs.len() < npc_count {
        add_error("npc_ids", "names an NPC twice");
    } else if has_single && npc_count > 1 {
        add_error("npc_ids", "does not go together with npc_id");
    }
    different_npcs
}

/// Checks `body` and converts it to a new session.
///
/// # Errors
/// A player may speak only as itself and only in its token's world.
pub fn parse_new_session(principal: &Principal, body: SessionBody) -> Result<NewSession, Problem> {
    let mut errors = Vec::new();
    let mut add_error = |param: &str, detail: &str| {
        errors.push(FieldError {
            param: param.to_owned(),
            detail: detail.to_owned(),
        });
    };
    if let (Some(own_player), Some(requested_player)) = (&principal.player, &body.player_id)
        && own_player != requested_player
    {
        return Err(
            Problem::new(Code::Forbidden, "a player's token speaks for that player only").with_param("player_id"),
        );
    }
    if body.world_id.is_none() {
        add_error("world_id", "is missing");
    }
    let player = principal.player.clone().or(body.player_id);
    if player.is_none() {
        add_error("player_id", "is missing");
    }
    let npcs = parse_npcs(body.npc_id, body.npc_ids, add_error);
    let (Some(world), Some(player), true) = (body.world_id, player, errors.is_empty()) else {
        return Err(Problem::invalid_fields(errors));
    };
    if is_hidden_world(principal, &world) || !principal.can_access_world(&world) {
        return Err(Problem::not_found("world").with_param("world_id"));
    }
    let mut witnesses = body.witnesses;
    if principal.role == Role::Player && !witnesses.is_empty() {
        return Err(Problem::new(Code::Forbidden, "only a backend may name witnesses").with_param("witnesses"));
    }
    if principal.role == Role::Player && body.settings.is_some() {
        return Err(Problem::new(Code::Forbidden, "only a backend may set settings").with_param("settings"));
    }
    witnesses.sort();
    witnesses.dedup();
    witnesses.retain(|npc| !npcs.contains(npc));
    Ok(NewSession {
        world,
        npcs,
        player,
        witnesses,
        factions: Vec::new(),
        cause: None,
        chat_key: None,
        playback: body.playback,
        settings: body.settings.map(|settings| Box::new(settings.into())),
    })
}

/// Opens a session between a player and one or more NPCs.
///
/// A session without a spoken line is deleted after `retention.unchanged_d` (a day).
#[utoipa::path(
    tag = "sessions",
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key finds the session that the first made, as it is by now, with a new resume token in place of the first, which is void then")),
    request_body = SessionBody,
    responses((status = 201, body = NewSessionView), (status = 404, description = "There is no such world or NPC"), (status = 409, description = "The same request is being handled")),
    extensions(("x-roles" = json!(["admin", "backend", "player"]))),
)]
#[post("/v1/sessions")]
pub async fn create_session(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Talker>>,
    request: HttpRequest,
    body: Body<SessionBody>,
) -> Result<HttpResponse, Problem> {
    let raw = body.raw.clone();
    let greeting = body.value.greeting;
    let new_session = parse_new_session(&caller.principal, body.value)?;
    new_session
        .settings
        .iter()
        .try_for_each(|settings| worlds::check_models(&state, settings.models.as_ref()))?;
    caller.count_new_session(&state)?;
    if greeting {
        caller.count_turn(&state, &new_session.player)?;
    }
    let work = {
        let state = state.clone();
        let principal = caller.principal.clone();
        async move {
            let created = state.sessions.create_session(&principal.scope(), new_session).await?;
            let id = created.dialogue.id;
            let view = NewSessionView::for_caller(created, &principal);
            if !greeting {
                return view.into_idempotent_response();
            }
            match tokio::time::timeout(GREETING_TIMEOUT, run_greeting(&state, &principal.scope(), id)).await {
                Ok(Ok(turn)) => view.with_greeting(&turn, &principal).into_idempotent_response(),
                Ok(Err(problem)) => {
                    tracing::warn!(dialogue = %id, %problem, "the greeting of a new session failed");
                    view.into_idempotent_response()
                }
                // The greeting is still said, as the first turn of the session.
                Err(_late) => view.into_idempotent_response(),
            }
        }
    };
    let replay = |stored| NewSessionView::replay_response(state.clone(), caller.principal.clone(), stored);
    idempotency::run_once_with_replay(&state, &caller.principal, &request, &raw, work, replay).await
}

/// Requests and awaits the turn in which the NPC of a new session speaks first.
async fn run_greeting(state: &AppState, scope: &TenantScope, id: DialogueId) -> Result<Arc<Turn>, Problem> {
    await_turn(state.sessions.request_greeting(scope, id, None, None).await?).await
}

list_query! {
    pub struct SessionListQuery {
        #[param(value_type = Option<String>)]
        world_id: Option<WorldId>,
        #[param(value_type = Option<String>)]
        npc_id: Option<NpcId>,
        #[param(value_type = Option<String>)]
        player_id: Option<PlayerId>,
        #[param(inline)]
        status: Option<DialogueStatus>,
        /// A pattern of dialogue keys, as in directives: `world:vale:npc:guard-*`.
        #[param(value_type = Option<String>)]
        key: Option<KeyPattern>,
    }
}

/// Lists sessions, newest first.
///
/// A player sees only its own sessions.
#[utoipa::path(
    tag = "sessions",
    params(SessionListQuery),
    responses((status = 200, body = Items<SessionView>)),
    extensions(("x-roles" = json!(["admin", "backend", "player"]))),
)]
#[get("/v1/sessions")]
pub async fn list_sessions(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Talker>>,
    query: QueryParams<SessionListQuery>,
) -> Result<HttpResponse, Problem> {
    let principal = &caller.principal;
    let is_listed = |dialogue: &Dialogue| dialogue.id.kind() == DialogueKind::Session && may_hear(principal, dialogue);
    let page = query.0.parse_page::<DialogueId>()?;
    pagination::check_dialogue_cursor(&state, &caller.scope, &page, is_listed).await?;
    // Objects out of a player's reach count as missing.
    let other_player =
        principal.player.is_some() && query.0.player_id.is_some() && principal.player != query.0.player_id;
    let other_world = principal.world.is_some() && query.0.world_id.is_some() && principal.world != query.0.world_id;
    if other_player || other_world {
        return Ok(HttpResponse::Ok().json(Items::<SessionView>::only_page([])));
    }
    let filter = DialogueFilter {
        kind: Some(DialogueKind::Session),
        world: principal.world.clone().or(query.0.world_id),
        npc: query.0.npc_id,
        player: principal
            .player
            .clone()
            .or(query.0.player_id)
            .filter(|_| !planted_leak!("sessions.cursor")),
        status: query.0.status,
        heard_by: None,
        key: query.0.key,
        chat_key: None,
    };
    let dialogues = &state.services.ledger.dialogues;
    let mut sessions = dialogues.list_dialogues(&caller.scope, &filter, &page).await?;
    if planted_leak!("sessions.cursor") {
        sessions.items.retain(is_listed);
    }
    let view = |dialogue| SessionView::for_caller(dialogue, principal);
    Ok(HttpResponse::Ok().json(Items::from_page(sessions, view)))
}

/// Returns a session.
#[utoipa::path(
    tag = "sessions",
    params(("session" = String, Path)),
    responses((status = 200, body = SessionView)),
    extensions(("x-roles" = json!(["admin", "backend", "player"]))),
)]
#[get("/v1/sessions/{session}")]
pub async fn get_session(
    state: web::Data<AppState>,
    caller: Authorized<Talker>,
    path: Path<DialogueId>,
) -> Result<HttpResponse, Problem> {
    let dialogue = reachable_session(&state, &caller.principal, path.0).await?;
    Ok(HttpResponse::Ok().json(SessionView::for_caller(dialogue, &caller.principal)))
}

/// Ends a session.
///
/// The transcript and the learned facts stay. A closed session stays unchanged.
#[utoipa::path(
    tag = "sessions",
    params(("session" = String, Path)),
    responses((status = 204)),
    extensions(("x-roles" = json!(["admin", "backend", "player"]))),
)]
#[delete("/v1/sessions/{session}")]
pub async fn delete_session(
    state: web::Data<AppState>,
    caller: Authorized<Talker>,
    path: Path<DialogueId>,
) -> Result<HttpResponse, Problem> {
    run_uncancelled(async move {
        let dialogue = reachable_session(&state, &caller.principal, path.0).await?;
        if dialogue.status == DialogueStatus::Open {
            let sessions = &state.sessions;
            match sessions
                .close_dialogue(&caller.scope, path.0, "closed by request")
                .await
            {
                // The session was closed meanwhile.
                Ok(()) | Err(DialogueError::Closed) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(HttpResponse::NoContent().finish())
    })
    .await
}

/// A line whose prompt to show.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ContextBody {
    #[garde(length(chars, max = 8000), custom(visible_text))]
    #[schema(min_length = 1)]
    text: String,
    /// The intent to assume. Default: the line is classified as in a turn, which costs a call of the classifier.
    #[garde(skip)]
    #[schema(inline)]
    intent: Option<Intent>,
}

/// Shows the prompt that a line would get: sections and tokens.
///
/// The reply model is not called. The intent of the line is classified as in a turn, unless `intent` names one.
/// `not_searched` lists the sources that the turn would not search with this intent.
#[utoipa::path(
    tag = "sessions",
    params(("session" = String, Path)),
    request_body = ContextBody,
    responses((status = 200, body = Preview)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/sessions/{session}/context")]
pub async fn preview_context(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<DialogueId>,
    body: Body<ContextBody>,
) -> Result<HttpResponse, Problem> {
    reachable_session(&state, &caller.principal, path.0).await?;
    let preview = state
        .sessions
        .preview_prompt(&caller.scope, path.0, body.value.text, body.value.intent)
        .await?
        .map_err(|error| Problem::from(&error))?;
    Ok(HttpResponse::Ok().json(preview))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn principal(role: Role, player: Option<&str>, world: Option<&str>) -> Principal {
        Principal {
            subject: "s".into(),
            tenant: "t".parse().unwrap(),
            role,
            player: player.map(|id| id.parse().unwrap()),
            world: world.map(|id| id.parse().unwrap()),
            issued: colloquy_core::scope::TokenIdentity::default(),
            expires_at: DateTime::<Utc>::MAX_UTC,
        }
    }
    fn body(player: Option<&str>, witnesses: &[&str]) -> SessionBody {
        SessionBody {
            greeting: false,
            world_id: Some("vale".parse().unwrap()),
            npc_id: Some("ergen".parse().unwrap()),
            npc_ids: Vec::new(),
            player_id: player.map(|id| id.parse().unwrap()),
            witnesses: witnesses.iter().map(|id| id.parse().unwrap()).collect(),
            playback: Playback::Immediate,
            settings: None,
        }
    }

    #[test]
    fn player_speaks_only_as_itself() {
        let p7 = principal(Role::Player, Some("p7"), None);
        assert_eq!(parse_new_session(&p7, body(None, &[])).unwrap().player.as_str(), "p7");
        assert_eq!(
            parse_new_session(&p7, body(Some("p8"), &[])).unwrap_err().code,
            Code::Forbidden
        );
        assert_eq!(
            parse_new_session(&p7, body(None, &["mira"])).unwrap_err().code,
            Code::Forbidden
        );
        let bound = principal(Role::Player, Some("p7"), Some("elsewhere"));
        assert_eq!(
            parse_new_session(&bound, body(None, &[])).unwrap_err().code,
            Code::NotFound
        );
    }

    #[test]
    fn missing_fields_are_all_named() {
        let faulty_params = |principal: &Principal, text: &str| {
            let body: SessionBody = serde_json::from_str(text).unwrap();
            let problem = parse_new_session(principal, body).unwrap_err();
            assert_eq!(problem.code, Code::ValidationFailed);
            problem.errors.into_iter().map(|error| error.param).collect::<Vec<_>>()
        };
        let backend = principal(Role::Backend, None, None);
        assert_eq!(faulty_params(&backend, "{}"), ["world_id", "player_id", "npc_id"]);
        let twice = r#"{"world_id":"vale","npc_ids":["mira","mira"]}"#;
        assert_eq!(faulty_params(&backend, twice), ["player_id", "npc_ids"]);
        assert_eq!(
            faulty_params(&principal(Role::Player, Some("p7"), None), "{}"),
            ["world_id", "npc_id"]
        );
    }

    #[test]
    fn backend_names_the_player_and_the_witnesses() {
        let backend = principal(Role::Backend, None, None);
        assert_eq!(
            parse_new_session(&backend, body(None, &[])).unwrap_err().code,
            Code::ValidationFailed
        );
        let new = parse_new_session(&backend, body(Some("p8"), &["mira", "ergen", "mira"])).unwrap();
        assert_eq!(new.witnesses, ["mira".parse().unwrap()]);
    }
}
