//! NPC conversations: `/v1/npc-conversations`. A player sees conversations that are open or list the player; all others
//! are a 404. The right to interrupt is separate (`interrupters`).

use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    awaited_turn::completed_turn,
    errors::{Code, Problem},
    extract::{Author, Authorized, Body, InWorld, NoOptions, OptionalBody, Path, QueryParams, Talker},
    idempotency::{self, IdempotentResponse},
    pagination::{self, Items, list_query},
    rewinds::{InterruptBody, InterruptView},
    sessions::NewSessionView,
    summaries::respond_with_summaries,
    turn_view::TurnView,
    turns::{self, TraceQuery, TraceView, TurnsQuery},
    uncancelled::run_uncancelled,
    validate::visible_text,
};
use colloquy_actors::{DialogueError, NewConversation};
use colloquy_core::{
    ids::{DialogueId, DialogueKind, FactionId, NpcId, PlayerId, WorldId},
    scope::{Principal, Role},
};
use colloquy_dialogue::{
    disclosure::may_hear,
    npc_conversation::{MAX_NPCS, MAX_TOPIC_CHARS, MAX_TURNS, MIN_NPCS},
};
use colloquy_memory::{directive::KeyPattern, summary::Summary};
use colloquy_ports::ledger::dialogues::{Dialogue, DialogueFilter, DialogueStatus, Interrupters, NextSpeaker};

/// A new conversation.
#[derive(Debug, Clone, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct ConversationBody {
    #[schema(value_type = String, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    world_id: WorldId,
    /// The NPCs that take part, each once. The first NPC opens the conversation.
    #[garde(length(min = MIN_NPCS, max = MAX_NPCS), custom(each_once))]
    #[schema(value_type = Vec<String>, min_items = 2, max_items = 8)]
    npc_ids: Vec<NpcId>,
    /// The topic of the conversation.
    #[garde(inner(length(chars, max = MAX_TOPIC_CHARS), custom(visible_text)))]
    #[schema(min_length = 1, max_length = 500)]
    topic: Option<String>,
    /// The conversation ends after this number of lines; unset: `conversation.max_turns`.
    #[garde(inner(range(min = 1, max = MAX_TURNS)))]
    #[schema(minimum = 1, maximum = 100)]
    max_turns: Option<u32>,
    /// NPCs that overhear the conversation and learn its facts.
    #[serde(default)]
    #[garde(length(max = 16))]
    #[schema(value_type = Vec<String>, max_items = 16)]
    witnesses: Vec<NpcId>,
    /// Factions that overhear the conversation and learn its facts.
    #[serde(default)]
    #[garde(length(max = 16))]
    #[schema(value_type = Vec<String>, max_items = 16)]
    factions: Vec<FactionId>,
    /// True if the conversation paces itself; otherwise each `:step` requests a line.
    #[serde(default = "default_true")]
    auto: bool,
    /// How the next speaker is chosen.
    #[serde(default)]
    next_speaker: NextSpeaker,
    /// Players who may watch the conversation.
    #[serde(default)]
    #[garde(length(max = 64))]
    #[schema(value_type = Vec<String>, max_items = 64)]
    watchers: Vec<PlayerId>,
    /// True if every player of the world may watch.
    #[serde(default)]
    open: bool,
    /// Players who may interrupt, join and resume the conversation: `none`, `watchers` (the listed players) or `all`
    /// (every player who may watch). Cut text is taken back for all listeners.
    #[serde(default)]
    interrupters: Interrupters,
}

const fn default_true() -> bool {
    true
}

#[expect(clippy::ptr_arg, clippy::trivially_copy_pass_by_ref, reason = "as garde calls it")]
fn each_once(npcs: &Vec<NpcId>, (): &()) -> garde::Result {
    let mut ids = npcs.clone();
    ids.sort();
    ids.dedup();
    if ids.len() == npcs.len() {
        Ok(())
    } else {
        Err(garde::Error::new("names an NPC twice"))
    }
}

impl From<ConversationBody> for NewConversation {
    fn from(body: ConversationBody) -> Self {
        let mut witnesses = body.witnesses;
        witnesses.sort();
        witnesses.dedup();
        witnesses.retain(|npc| !body.npc_ids.contains(npc));
        let mut factions = body.factions;
        factions.sort();
        factions.dedup();
        Self {
            world: body.world_id,
            npcs: body.npc_ids,
            witnesses,
            factions,
            topic: body.topic,
            max_turns: body.max_turns,
            auto: body.auto,
            next_speaker: body.next_speaker,
            watchers: body.watchers,
            open: body.open,
            interrupters: body.interrupters,
        }
    }
}

/// The state of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConversationStatus {
    Open,
    /// No NPC speaks until a resume or a step.
    Paused,
    Closed,
}

/// A conversation as it is stored.
#[derive(Debug, Serialize, ToSchema)]
pub struct ConversationView {
    #[schema(value_type = String)]
    id: DialogueId,
    #[schema(value_type = String)]
    world_id: WorldId,
    #[schema(value_type = Vec<String>)]
    npc_ids: Vec<NpcId>,
    topic: Option<String>,
    max_turns: u32,
    /// Not shown to players.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, nullable = false)]
    witnesses: Option<Vec<NpcId>>,
    /// Not shown to players.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, nullable = false)]
    factions: Option<Vec<FactionId>>,
    auto: bool,
    next_speaker: NextSpeaker,
    /// Not shown to players.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, nullable = false)]
    watchers: Option<Vec<PlayerId>>,
    open: bool,
    interrupters: Interrupters,
    status: ConversationStatus,
    /// Number of the last line; 0 before the first.
    head_turn: u32,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl ConversationView {
    /// The view of the conversation for `principal`.
    fn for_caller(state: &AppState, dialogue: Dialogue, principal: &Principal) -> Self {
        let options = dialogue.options;
        let for_author = principal.role != Role::Player;
        let default = state.services.settings.conversation.max_turns;
        Self {
            id: dialogue.id,
            world_id: dialogue.world,
            npc_ids: dialogue.npcs,
            topic: options.topic,
            max_turns: options.max_turns.unwrap_or(default),
            witnesses: for_author.then_some(dialogue.witnesses),
            factions: for_author.then_some(options.factions),
            auto: options.auto,
            next_speaker: options.next_speaker,
            watchers: for_author.then_some(options.watchers),
            open: options.open,
            interrupters: options.interrupters,
            status: match (dialogue.status, options.paused) {
                (DialogueStatus::Closed, _) => ConversationStatus::Closed,
                (DialogueStatus::Open, true) => ConversationStatus::Paused,
                (DialogueStatus::Open, false) => ConversationStatus::Open,
            },
            head_turn: dialogue.head_turn,
            created_at: dialogue.created_at,
            updated_at: dialogue.updated_at,
        }
    }
}

/// Loads the conversation `id` if `principal` may interrupt, join and resume the conversation.
///
/// # Errors
/// 403 for a player who may only watch. 404 for a caller who may not watch.
pub async fn interruptible_conversation(
    state: &AppState,
    principal: &Principal,
    id: DialogueId,
) -> Result<Dialogue, Problem> {
    let dialogue = reachable_conversation(state, principal, id).await?;
    let may_not = |player: &PlayerId| !dialogue.options.may_interrupt(player);
    if principal.player.as_ref().is_some_and(may_not) {
        return Err(Problem::new(
            Code::Forbidden,
            "this player may watch this conversation, and not cut into it, join it or resume it (`interrupters`)",
        ));
    }
    Ok(dialogue)
}

/// Loads the conversation `id` if `principal` may watch the conversation; 404 otherwise.
pub async fn reachable_conversation(
    state: &AppState,
    principal: &Principal,
    id: DialogueId,
) -> Result<Dialogue, Problem> {
    let not_found = || Problem::not_found("conversation");
    if id.kind() != DialogueKind::NpcConversation {
        return Err(not_found());
    }
    let dialogues = &state.services.ledger.dialogues;
    let stored = dialogues.load_dialogue(&principal.scope(), id).await?;
    stored
        .filter(|dialogue| may_hear(principal, dialogue))
        .ok_or_else(not_found)
}

/// Starts a conversation between NPCs.
#[utoipa::path(
    tag = "npc-conversations",
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key gets the first answer")),
    request_body = ConversationBody,
    responses((status = 201, body = ConversationView), (status = 404, description = "There is no such world or NPC"), (status = 409, description = "The same request is being handled")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/npc-conversations")]
pub async fn create_conversation(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Author>>,
    request: HttpRequest,
    body: Body<ConversationBody>,
) -> Result<HttpResponse, Problem> {
    if !caller.principal.can_access_world(&body.world_id) {
        return Err(Problem::not_found("world").with_param("world_id"));
    }
    let command = NewConversation::from(body.value);
    let work = {
        let state = state.clone();
        let principal = caller.principal.clone();
        async move {
            let conversations = &state.sessions;
            let created = conversations.create_conversation(&principal.scope(), command).await?;
            let location = format!("/v1/npc-conversations/{}", created.id);
            IdempotentResponse::created(&ConversationView::for_caller(&state, created, &principal), location)
        }
    };
    idempotency::run_once(&state, &caller.principal, &request, &body.raw, work).await
}

list_query! {
    pub struct ConversationListQuery {
        #[param(value_type = Option<String>)]
        world_id: Option<WorldId>,
        /// Only conversations in which this NPC takes part.
        #[param(value_type = Option<String>)]
        npc_id: Option<NpcId>,
        /// Only conversations in which this NPC takes part or is a witness.
        #[param(value_type = Option<String>)]
        heard_by: Option<NpcId>,
        /// A paused conversation counts as open.
        #[param(inline)]
        status: Option<DialogueStatus>,
        /// A pattern of dialogue keys, as in directives: `world:vale:npc:guard-*`.
        #[param(value_type = Option<String>)]
        key: Option<KeyPattern>,
    }
}

/// Lists conversations, newest first.
#[utoipa::path(
    tag = "npc-conversations",
    params(ConversationListQuery),
    responses((status = 200, body = Items<ConversationView>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/npc-conversations")]
pub async fn list_conversations(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Author>>,
    query: QueryParams<ConversationListQuery>,
) -> Result<HttpResponse, Problem> {
    let kind = DialogueKind::NpcConversation;
    let principal = &caller.principal;
    let world = query.0.world_id.as_ref();
    if world.is_some_and(|world| !principal.can_access_world(world)) {
        return Ok(HttpResponse::Ok().json(Items::<ConversationView>::only_page([])));
    }
    let is_listed = |dialogue: &Dialogue| dialogue.id.kind() == kind && may_hear(principal, dialogue);
    let page = query.0.parse_page::<DialogueId>()?;
    pagination::check_dialogue_cursor(&state, &caller.scope, &page, is_listed).await?;
    let filter = DialogueFilter {
        kind: Some(kind),
        world: principal.world.clone().or(query.0.world_id),
        npc: query.0.npc_id,
        heard_by: query.0.heard_by,
        status: query.0.status,
        player: None,
        key: query.0.key,
        chat_key: None,
    };
    let dialogues = &state.services.ledger.dialogues;
    let conversations = dialogues.list_dialogues(&caller.scope, &filter, &page).await?;
    let view = |dialogue| ConversationView::for_caller(&state, dialogue, principal);
    Ok(HttpResponse::Ok().json(Items::from_page(conversations, view)))
}

/// Returns a conversation.
///
/// A self-paced conversation that a restart stopped continues.
#[utoipa::path(
    tag = "npc-conversations",
    params(("conversation" = String, Path)),
    responses((status = 200, body = ConversationView)),
    extensions(("x-roles" = json!(["admin", "backend", "player"]))),
)]
#[get("/v1/npc-conversations/{conversation}")]
pub async fn get_conversation(
    state: web::Data<AppState>,
    caller: Authorized<Talker>,
    path: Path<DialogueId>,
) -> Result<HttpResponse, Problem> {
    let dialogue = reachable_conversation(&state, &caller.principal, path.0).await?;
    // A viewer changes no state.
    let may_wake = caller.principal.role != Role::Viewer;
    if may_wake && dialogue.status == DialogueStatus::Open && dialogue.options.auto && !dialogue.options.paused {
        let conversations = &state.sessions;
        conversations.wake_conversation(&caller.scope, path.0).await;
    }
    Ok(HttpResponse::Ok().json(ConversationView::for_caller(&state, dialogue, &caller.principal)))
}

/// Lists the lines of a conversation, oldest first.
#[utoipa::path(
    tag = "npc-conversations",
    params(("conversation" = String, Path), TurnsQuery),
    responses((status = 200, body = Items<TurnView>)),
    extensions(("x-roles" = json!(["admin", "backend", "player"]))),
)]
#[get("/v1/npc-conversations/{conversation}/turns")]
pub async fn list_lines(
    state: web::Data<AppState>,
    caller: Authorized<Talker>,
    path: Path<DialogueId>,
    query: QueryParams<TurnsQuery>,
) -> Result<HttpResponse, Problem> {
    let dialogue = reachable_conversation(&state, &caller.principal, path.0).await?;
    turns::page_of_turns(&state, &caller.principal, &dialogue, query.0).await
}

/// Lists the stored summaries in time order.
#[utoipa::path(
    tag = "npc-conversations",
    params(("conversation" = String, Path)),
    responses((status = 200, body = Items<Summary>)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/npc-conversations/{conversation}/summaries")]
pub async fn list_conversation_summaries(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<DialogueId>,
) -> Result<HttpResponse, Problem> {
    reachable_conversation(&state, &caller.principal, path.0).await?;
    respond_with_summaries(&state, &caller.scope, path.0).await
}

/// Explains a line: as the trace of a turn of a session.
#[utoipa::path(
    tag = "npc-conversations",
    params(("conversation" = String, Path), ("turn" = u32, Path), TraceQuery),
    responses((status = 200, body = TraceView), (status = 404, description = "No such line stands, or its trace was removed")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[get("/v1/npc-conversations/{conversation}/turns/{turn}/trace")]
pub async fn get_line_trace(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<(DialogueId, u32)>,
    query: QueryParams<TraceQuery>,
) -> Result<HttpResponse, Problem> {
    let (id, number) = path.0;
    let dialogue = reachable_conversation(&state, &caller.principal, id).await?;
    turns::respond_with_trace(&state, &caller.principal, &dialogue, number, &query.0).await
}

/// Generates the next line now, and returns the line. The body may be omitted.
#[utoipa::path(
    tag = "npc-conversations",
    params(("conversation" = String, Path)),
    request_body = NoOptions,
    responses((status = 200, body = TurnView), (status = 404, description = "There is no such conversation"), (status = 409, description = "A line is being said, the conversation has ended, or somebody cut in before the line began"), (status = 502, description = "The language model failed"), (status = 504, description = "The language model did not answer in time")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/npc-conversations/{conversation}:step")]
pub async fn step_conversation(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<DialogueId>,
    _: OptionalBody<NoOptions>,
) -> Result<HttpResponse, Problem> {
    // The actor may not yet know that an NPC or the world was deleted.
    if reachable_conversation(&state, &caller.principal, path.0).await?.status == DialogueStatus::Closed {
        return Err(DialogueError::Ended.into());
    }
    let conversations = &state.sessions;
    let line = conversations.say_next_line(&caller.scope, path.0).await?;
    let turn = completed_turn(line.await)?;
    Ok(HttpResponse::Ok().json(TurnView::for_caller(&turn, &caller.principal)))
}

/// Cuts the running line, or rewinds to an earlier line.
///
/// A rewind takes all later lines back. The conversation pauses.
#[utoipa::path(
    tag = "npc-conversations",
    params(("conversation" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "The same as `key` in the body")),
    request_body = InterruptBody,
    responses((status = 200, body = InterruptView), (status = 409, description = "There is no such line to cut, the last one is another (`stale_head`), or the conversation has ended")),
    extensions(("x-roles" = json!(["admin", "backend", "player"]))),
)]
#[post("/v1/npc-conversations/{conversation}:interrupt")]
pub async fn interrupt_conversation(
    state: web::Data<AppState>,
    caller: Authorized<Talker>,
    path: Path<DialogueId>,
    request: HttpRequest,
    body: Body<InterruptBody>,
) -> Result<HttpResponse, Problem> {
    let body = body.value.with_header_key(&request)?;
    run_uncancelled(async move {
        interruptible_conversation(&state, &caller.principal, path.0).await?;
        let command = body.into_command(&caller.principal)?;
        if let Some(player) = &command.who.player {
            caller.count_cut(&state, player)?;
            state.check_player_share(&caller.scope, player).await?;
        }
        let conversations = &state.sessions;
        let outcome = conversations
            .interrupt_conversation(&caller.scope, path.0, command)
            .await?;
        Ok(HttpResponse::Ok().json(InterruptView::for_caller(outcome, &caller.principal)))
    })
    .await
}

/// Resumes a paused conversation. A recently cut line is continued, if no line was said since.
#[utoipa::path(
    tag = "npc-conversations",
    params(("conversation" = String, Path)),
    request_body = NoOptions,
    responses((status = 200, body = ConversationView), (status = 409, description = "The conversation has ended")),
    extensions(("x-roles" = json!(["admin", "backend", "player"]))),
)]
#[post("/v1/npc-conversations/{conversation}:resume")]
pub async fn resume_conversation(
    state: web::Data<AppState>,
    caller: Authorized<Talker>,
    path: Path<DialogueId>,
    _: OptionalBody<NoOptions>,
) -> Result<HttpResponse, Problem> {
    run_uncancelled(async move {
        interruptible_conversation(&state, &caller.principal, path.0).await?;
        if let Some(player) = &caller.principal.player {
            // A resume makes the model say a line.
            caller.count_turn(&state, player)?;
            state.check_player_share(&caller.scope, player).await?;
        }
        let conversations = &state.sessions;
        let view = conversations
            .resume_conversation(&caller.scope, path.0, &caller.principal)
            .await?;
        let dialogue = (*view.dialogue).clone();
        Ok(HttpResponse::Ok().json(ConversationView::for_caller(&state, dialogue, &caller.principal)))
    })
    .await
}

/// The player who joins.
#[derive(Debug, Default, Clone, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct JoinBody {
    /// A player's token may omit this field; the token's player is used.
    #[schema(value_type = Option<String>, pattern = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
    player_id: Option<PlayerId>,
}

/// Returns the player who joins.
///
/// # Errors
/// A player's token names another player, or another token names no player.
pub fn joining_player(principal: &Principal, requested: Option<PlayerId>) -> Result<PlayerId, Problem> {
    match (&principal.player, requested) {
        (Some(own_player), Some(requested)) if *own_player != requested => {
            Err(Problem::new(Code::Forbidden, "a player's token speaks for that player only").with_param("player_id"))
        }
        (Some(own_player), _) => Ok(own_player.clone()),
        (None, Some(requested)) => Ok(requested),
        (None, None) => Err(Problem::invalid_field("player_id", "is missing")),
    }
}

/// Opens a session of a player with all NPCs of the conversation.
///
/// The witnesses of the conversation also overhear the session. The conversation pauses, and a running line is cut.
#[utoipa::path(
    tag = "npc-conversations",
    params(("conversation" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key finds the session that the first made, as it is by now, with a new resume token in place of the first, which is void then")),
    request_body = JoinBody,
    responses((status = 201, body = NewSessionView), (status = 409, description = "The conversation has ended")),
    extensions(("x-roles" = json!(["admin", "backend", "player"]))),
)]
#[post("/v1/npc-conversations/{conversation}:join")]
pub async fn join_conversation(
    state: web::Data<AppState>,
    caller: Authorized<Talker>,
    path: Path<DialogueId>,
    request: HttpRequest,
    body: Body<JoinBody>,
) -> Result<HttpResponse, Problem> {
    let player = joining_player(&caller.principal, body.value.player_id.clone())?;
    caller.count_new_session(&state)?;
    // The key fixes the session, so a retry gets the same session even if this process dies before the answer.
    let caller_and_key = |key| format!(":join {:?} {key}", (&caller.principal.subject, caller.principal.role));
    let key = idempotency::idempotency_key(&request)?.map(caller_and_key);
    let work = {
        let state = state.clone();
        let principal = caller.principal.clone();
        async move {
            interruptible_conversation(&state, &principal, path.0).await?;
            let conversations = &state.sessions;
            let scope = principal.scope();
            let joined = conversations.join_conversation(&scope, path.0, player, key.as_deref());
            NewSessionView::for_caller(joined.await?, &principal).into_idempotent_response()
        }
    };
    let replay = |stored| NewSessionView::replay_response(state.clone(), caller.principal.clone(), stored);
    idempotency::run_once_with_replay(&state, &caller.principal, &request, &body.raw, work, replay).await
}

/// Ends a conversation.
///
/// The transcript and the learned facts stay. An ended conversation stays unchanged.
#[utoipa::path(
    tag = "npc-conversations",
    params(("conversation" = String, Path)),
    responses((status = 204)),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[delete("/v1/npc-conversations/{conversation}")]
pub async fn delete_conversation(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<DialogueId>,
) -> Result<HttpResponse, Problem> {
    run_uncancelled(async move {
        let dialogue = reachable_conversation(&state, &caller.principal, path.0).await?;
        if dialogue.status == DialogueStatus::Open {
            let conversations = &state.sessions;
            let closed = conversations.end_conversation(&caller.scope, path.0, "closed by request");
            match closed.await {
                // The conversation ended by itself meanwhile.
                Ok(()) | Err(DialogueError::Ended) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(HttpResponse::NoContent().finish())
    })
    .await
}
