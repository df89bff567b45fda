//! Interrupts and rewinds of a session: `:interrupt`, `:rewind`, `:regenerate`, `:resume`.

use actix_web::{HttpRequest, HttpResponse, post, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    awaited_turn::await_turn,
    errors::{Code, Problem},
    extract::{Author, Authorized, Body, OptionalBody, Path, Talker},
    idempotency,
    reachable_sessions::{reachable_open_session, reachable_session},
    sse,
    turn_view::TurnView,
    turns::accepts_event_stream,
    uncancelled::run_uncancelled,
};
use colloquy_actors::{HeardLength, InterruptCommand, InterruptOutcome, ResumeCommand};
use colloquy_core::{
    ids::{DialogueId, PlayerId},
    scope::{Principal, TenantScope},
};
use colloquy_dialogue::{disclosure::EventViewer, events::DialogueRewound};
use colloquy_ports::ledger::dialogues::Dialogue;

/// The reply to cut.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct InterruptBody {
    /// The turn with the reply to cut: the running turn, or an earlier turn. All turns after an earlier turn are taken
    /// back. Unset: the running turn. To take all turns back, name turn 1 with `heard_chars` 0.
    #[garde(inner(range(min = 1)))]
    #[schema(minimum = 1)]
    turn: Option<u32>,
    /// The heard part of the reply in Unicode scalar values; unset: all text that was sent. With 0, the turn itself is
    /// taken back.
    heard_chars: Option<usize>,
    /// The heard part in UTF-16 code units, as C# and JavaScript count. Not together with `heard_chars`.
    heard_utf16: Option<usize>,
    /// Makes a retry safe: the same key gets the same result, and no turn is taken back twice. Over REST,
    /// `Idempotency-Key` does the same.
    #[garde(inner(length(chars, min = 1, max = 128)))]
    #[schema(min_length = 1, max_length = 128)]
    key: Option<String>,
    /// The last turn that the client knows; `stale_head` if the head is another turn.
    if_head: Option<u32>,
    /// The player for whom the caller acts, for the audit log. A player's token can only name its own player.
    #[schema(value_type = Option<String>, pattern = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
    #[serde(rename = "by")]
    acting_player: Option<PlayerId>,
}

impl InterruptBody {
    /// Adds the key of the request's header if the body has no key.
    ///
    /// # Errors
    /// As [`idempotency::header_or_body_key`].
    pub(super) fn with_header_key(self, request: &HttpRequest) -> Result<Self, Problem> {
        let key = idempotency::header_or_body_key(request, self.key)?;
        Ok(Self { key, ..self })
    }

    /// Converts the body to a command of `principal`.
    ///
    /// # Errors
    /// The body has both heard lengths, or a player names another player.
    pub(super) fn into_command(self, principal: &Principal) -> Result<InterruptCommand, Problem> {
        let heard_length = parse_heard(self.heard_chars, self.heard_utf16)?;
        let mut principal = principal.clone();
        match (&principal.player, self.acting_player) {
            (Some(own_player), Some(acting_player)) if *own_player != acting_player => {
                let detail = "a player's token speaks for that player only";
                return Err(Problem::new(Code::Forbidden, detail).with_param("by"));
            }
            (None, acting_player) => principal.player = acting_player,
            (Some(_), _) => {}
        }
        Ok(InterruptCommand {
            turn: self.turn,
            heard_length,
            key: self.key,
            if_head: self.if_head,
            who: principal,
        })
    }
}

/// The result of an interrupt or a rewind.
#[derive(Debug, Serialize, ToSchema)]
pub struct InterruptView {
    /// True if a reply was cut or a turn was taken back.
    interrupted: bool,
    /// The turn that was cut, or the last turn that stands.
    turn: u32,
    /// The rewind, in the form of `dialogue.rewound`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    rewound: Option<DialogueRewound>,
    /// The turn that continues a resumed reply. The events of the turn follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    goes_on: Option<u32>,
}

impl InterruptView {
    pub(super) fn for_caller(outcome: InterruptOutcome, principal: &Principal) -> Self {
        match outcome {
            InterruptOutcome::Cut { turn } | InterruptOutcome::Dropped { turn } => Self {
                interrupted: true,
                turn,
                rewound: None,
                goes_on: None,
            },
            InterruptOutcome::Idle { head_turn } => Self {
                interrupted: false,
                turn: head_turn,
                rewound: None,
                goes_on: None,
            },
            InterruptOutcome::Rewound(rewound) => {
                let goes_on = rewound.replacing.map(|_| rewound.head_turn + 1);
                let viewer = EventViewer::of_role(principal.role);
                let rewound = viewer.show_rewind(DialogueRewound::from(&*rewound));
                Self {
                    interrupted: true,
                    turn: rewound.turn,
                    rewound: Some(rewound),
                    goes_on,
                }
            }
        }
    }
}

/// Cuts a reply where the player stopped hearing it.
///
/// Has no effect if no reply runs and no turn is named. The body may be omitted.
#[utoipa::path(
    tag = "turns",
    params(("session" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "The same as `key` in the body")),
    request_body = InterruptBody,
    responses((status = 200, body = InterruptView), (status = 409, description = "There is no such turn to cut, the last turn is another (`stale_head`), or the session is closed")),
    extensions(("x-roles" = json!(["admin", "backend", "player"]))),
)]
#[post("/v1/sessions/{session}:interrupt")]
pub async fn interrupt_turn(
    state: web::Data<AppState>,
    caller: Authorized<Talker>,
    path: Path<DialogueId>,
    request: HttpRequest,
    body: OptionalBody<InterruptBody>,
) -> Result<HttpResponse, Problem> {
    let body = body.0.with_header_key(&request)?;
    run_uncancelled(async move {
        let dialogue = reachable_session(&state, &caller.principal, path.0).await?;
        let command = body.into_command(&caller.principal)?;
        if let Some(player) = dialogue.player.filter(|_| is_limited_cut(&command)) {
            caller.count_cut(&state, &player)?;
        }
        let outcome = state
            .sessions
            .interrupt_dialogue(&caller.scope, path.0, command)
            .await?;
        Ok(HttpResponse::Ok().json(InterruptView::for_caller(outcome, &caller.principal)))
    })
    .await
}

/// True if an interrupt counts for the player's limit of cuts. Without a turn and a key, it only cuts the running reply,
/// which was counted as a line or as a resume.
pub(super) fn is_limited_cut(command: &InterruptCommand) -> bool {
    command.turn.is_some() || command.key.is_some()
}

/// Reads the heard length from the only unit that the client may use.
///
/// # Errors
/// The client sent both lengths.
pub(super) fn parse_heard(chars: Option<usize>, utf16: Option<usize>) -> Result<Option<HeardLength>, Problem> {
    match (chars, utf16) {
        (Some(_), Some(_)) => {
            let detail = "does not go together with heard_chars";
            Err(Problem::invalid_field("heard_utf16", detail))
        }
        (None, Some(units)) => Ok(Some(HeardLength::Utf16(units))),
        (chars, None) => Ok(chars.map(HeardLength::Chars)),
    }
}

/// The target of a rewind.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct RewindBody {
    /// The last turn that is to stand; 0: no turn.
    turn: u32,
    /// Makes a retry safe: the same key gets the same result, and no turn is taken back twice. `Idempotency-Key` does
    /// the same.
    #[garde(inner(length(chars, min = 1, max = 128)))]
    #[schema(min_length = 1, max_length = 128)]
    key: Option<String>,
    /// The last turn that the client knows; `stale_head` if the head is another turn.
    if_head: Option<u32>,
}

/// Rewinds a session to a turn.
///
/// All later turns are taken back, and a running reply is cancelled.
#[utoipa::path(
    tag = "turns",
    params(("session" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "The same as `key` in the body")),
    request_body = RewindBody,
    responses((status = 200, body = InterruptView), (status = 409, description = "The last turn is another (`stale_head`), or the session is closed")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/sessions/{session}:rewind")]
pub async fn rewind_session(
    state: web::Data<AppState>,
    caller: Authorized<Author>,
    path: Path<DialogueId>,
    request: HttpRequest,
    body: Body<RewindBody>,
) -> Result<HttpResponse, Problem> {
    let key = idempotency::header_or_body_key(&request, body.value.key)?;
    run_uncancelled(async move {
        reachable_session(&state, &caller.principal, path.0).await?;
        let command = InterruptCommand {
            turn: Some(body.value.turn),
            heard_length: None,
            key,
            if_head: body.value.if_head,
            who: caller.principal.clone(),
        };
        let outcome = state.sessions.rewind_dialogue(&caller.scope, path.0, command).await?;
        Ok(HttpResponse::Ok().json(InterruptView::for_caller(outcome, &caller.principal)))
    })
    .await
}

/// Options for a regenerated reply.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct RegenerateBody {
    /// Makes a retry safe; the new turn has this key. `Idempotency-Key` does the same.
    #[garde(inner(length(chars, min = 1, max = 128)))]
    #[schema(min_length = 1, max_length = 128)]
    key: Option<String>,
    /// The last turn that the client knows; `stale_head` if the head is another turn.
    if_head: Option<u32>,
}

/// Takes the last turn back and answers its line again.
///
/// Returns the finished turn. With `Accept: text/event-stream`, streams the events of the turn. The body may be
/// omitted.
#[utoipa::path(
    tag = "turns",
    params(("session" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "The same as `key` in the body")),
    request_body = RegenerateBody,
    responses((status = 200, content((TurnView = "application/json"), (String = "text/event-stream"))), (status = 409, description = "Nothing was said yet, a reply is running, or the last turn is another"), (status = 502, description = "The language model failed"), (status = 504, description = "The language model did not answer in time")),
    extensions(("x-roles" = json!(["admin", "backend", "player"]))),
)]
#[post("/v1/sessions/{session}:regenerate")]
pub async fn regenerate_turn(
    state: web::Data<AppState>,
    caller: Authorized<Talker>,
    path: Path<DialogueId>,
    request: HttpRequest,
    body: OptionalBody<RegenerateBody>,
) -> Result<HttpResponse, Problem> {
    let dialogue = reachable_open_session(&state, &caller.principal, path.0).await?;
    if let Some(player) = &dialogue.player {
        caller.count_turn(&state, player)?;
    }
    let key = idempotency::header_or_body_key(&request, body.0.key)?;
    let id = dialogue.id;
    let if_head = body.0.if_head;
    let regenerate = |mark| {
        let state = state.clone();
        let scope = caller.scope.clone();
        let principal = caller.principal.clone();
        async move {
            state
                .sessions
                .regenerate_reply(&scope, id, &principal, key, if_head, mark)
                .await
        }
    };
    if accepts_event_stream(&request) {
        return sse::stream_turn(&state, &caller.principal, id, |mark| regenerate(Some(mark))).await;
    }
    let turn = await_turn(regenerate(None).await?).await?;
    Ok(HttpResponse::Ok().json(TurnView::for_caller(&turn, &caller.principal)))
}

/// Options for a resumed reply.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct ResumeBody {
    /// Makes a retry safe: the same key gets the same result. `Idempotency-Key` does the same.
    #[garde(inner(length(chars, min = 1, max = 128)))]
    #[schema(min_length = 1, max_length = 128)]
    key: Option<String>,
}

/// Resumes a recently cut reply, if no line was said since.
///
/// A reply that was complete before the cut stands again, unchanged. A reply that was cut while running comes again as
/// turn `goes_on`: all earlier text, heard or not, and then the rest. This counts as a line. The body may be omitted.
#[utoipa::path(
    tag = "turns",
    params(("session" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "The same as `key` in the body")),
    request_body = ResumeBody,
    responses((status = 200, body = InterruptView), (status = 409, description = "No reply was cut a moment ago, or something was said since (`nothing_to_resume`)")),
    extensions(("x-roles" = json!(["admin", "backend", "player"]))),
)]
#[post("/v1/sessions/{session}:resume")]
pub async fn resume_turn(
    state: web::Data<AppState>,
    caller: Authorized<Talker>,
    path: Path<DialogueId>,
    request: HttpRequest,
    body: OptionalBody<ResumeBody>,
) -> Result<HttpResponse, Problem> {
    let key = idempotency::header_or_body_key(&request, body.0.key)?;
    run_uncancelled(async move {
        let dialogue = reachable_session(&state, &caller.principal, path.0).await?;
        let may_continue = needs_continuation(&state, &caller.scope, &dialogue).await?;
        match &dialogue.player {
            Some(player) if may_continue => caller.count_turn(&state, player)?,
            Some(player) => caller.count_cut(&state, player)?,
            None => {}
        }
        let command = ResumeCommand {
            key,
            re: None,
            who: caller.principal.clone(),
            may_continue,
        };
        let outcome = state.sessions.resume_dialogue(&caller.scope, path.0, command).await?;
        Ok(HttpResponse::Ok().json(InterruptView::for_caller(outcome, &caller.principal)))
    })
    .await
}

/// True if a resume makes the model continue the last reply, which was cut mid-stream. Such a resume counts as a line.
pub(super) async fn needs_continuation(
    state: &AppState,
    scope: &TenantScope,
    dialogue: &Dialogue,
) -> Result<bool, Problem> {
    let ledger = &state.services.ledger;
    let number = dialogue.head_turn;
    let last_turn = ledger.dialogues.load_turns(scope, dialogue.id, number, number).await?;
    let Some(last_turn) = last_turn.first() else {
        return Ok(false);
    };
    let now = state.services.clock.now();
    let sealed = ledger.rewinds.load_sealed_reply(scope, last_turn.id, now).await?;
    Ok(sealed.is_some_and(|sealed| sealed.whole.is_none()))
}
