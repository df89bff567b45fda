//! Cutting a reply and taking a session back: `:interrupt`, `:rewind`, `:regenerate`, `:resume`.

use actix_web::{HttpRequest, HttpResponse, post, web};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    errors::{Code, Problem},
    extract::{Author, Authorized, Body, OptionalBody, Path, Talker},
    idempotency, run_uncancelled, sessions, sse,
    turns::{TurnView, accepts_event_stream, completed_turn},
};
use crate::{
    actors::{AcceptedLine, HeardLength, InterruptCommand, InterruptOutcome, ResumeCommand},
    dialogue::events::DialogueRewound,
    ids::{DialogueId, PlayerId},
    tenancy::{Principal, Role, TenantScope},
};

/// What to cut.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct InterruptBody {
    /// The turn whose reply is cut: the running one, or one that was said already; then what followed
    /// it never happened. Unset: the running one. Of the first one, nothing may have been heard.
    #[garde(inner(range(min = 1)))]
    #[schema(minimum = 1)]
    turn: Option<u32>,
    /// How much of the reply was heard, in Unicode scalar values; unset: all that was sent. With nothing
    /// heard the turn never happened.
    heard_chars: Option<usize>,
    /// The same in UTF-16 code units, as C# and JavaScript count. Not together with `heard_chars`.
    heard_utf16: Option<usize>,
    /// Makes a retry safe: the same key is told what it came to, and nothing is taken back twice. Over REST
    /// `Idempotency-Key` does the same.
    #[garde(inner(length(chars, min = 1, max = 128)))]
    #[schema(min_length = 1, max_length = 128)]
    key: Option<String>,
    /// The last turn as the client knows it; if it is another, `stale_head`.
    if_head: Option<u32>,
    /// The player for whom it is asked, for the audit log. A player's token can only name itself.
    #[schema(value_type = Option<String>, pattern = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
    by: Option<PlayerId>,
}

impl InterruptBody {
    /// The same with the key of the request's header, where the body names none.
    ///
    /// # Errors
    /// As [`idempotency::header_or_body_key`].
    pub(super) fn with_header_key(self, request: &HttpRequest) -> Result<Self, Problem> {
        let key = idempotency::header_or_body_key(request, self.key)?;
        Ok(Self { key, ..self })
    }

    /// What is asked of the dialogue `id`.
    ///
    /// # Errors
    /// If it says twice how much was heard, or a player asks for another.
    pub(super) async fn into_command(
        self,
        state: &AppState,
        who: &Principal,
        id: DialogueId,
    ) -> Result<InterruptCommand, Problem> {
        let counted = (self.heard_chars, self.heard_utf16);
        let heard = resolve_heard(state, &who.scope(), id, self.turn, counted).await?;
        let mut who = who.clone();
        match (&who.player, self.by) {
            (Some(own), Some(by)) if *own != by => {
                let why = "a player's token speaks for that player only";
                return Err(Problem::new(Code::Forbidden, why).with_param("by"));
            }
            (None, by) => who.player = by,
            (Some(_), _) => {}
        }
        Ok(InterruptCommand {
            turn: self.turn,
            heard,
            key: self.key,
            if_head: self.if_head,
            who,
        })
    }
}

/// What an interrupt or a rewind did.
#[derive(Debug, Serialize, ToSchema)]
pub struct InterruptView {
    /// Whether anything was cut or taken back.
    interrupted: bool,
    /// The turn that was cut, or the last one that stands.
    turn: u32,
    /// What was taken back, as `dialogue.rewound` tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    rewound: Option<DialogueRewound>,
    /// The turn that a reply which was taken up again is gone on with in. Its events follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    goes_on: Option<u32>,
}

impl InterruptView {
    pub(super) fn for_caller(done: InterruptOutcome, who: &Principal) -> Self {
        match done {
            InterruptOutcome::Cut { turn } => Self {
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
                let mut rewound = DialogueRewound::from(&*rewound);
                if who.role == Role::Player {
                    rewound = rewound.for_players();
                }
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

/// Cuts a reply where it was heard. Harmless when nothing runs and no turn is named. The body may be
/// left out.
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
        sessions::reachable_session(&state, &caller.principal, path.0).await?;
        let wish = body.into_command(&state, &caller.principal, path.0).await?;
        let done = state.sessions.interrupt_dialogue(&caller.scope, path.0, wish).await?;
        Ok(HttpResponse::Ok().json(InterruptView::for_caller(done, &caller.principal)))
    })
    .await
}

/// How much a client heard, in the one unit it may count in. A reply that was said already is counted in
/// its own text; one that runs, where its text is.
///
/// # Errors
/// Two counts.
pub(super) async fn resolve_heard(
    state: &AppState,
    scope: &TenantScope,
    id: DialogueId,
    turn: Option<u32>,
    counted: (Option<usize>, Option<usize>),
) -> Result<Option<HeardLength>, Problem> {
    let units = match counted {
        (Some(_), Some(_)) => {
            return Err(Problem::invalid_field(
                "heard_utf16",
                "does not go together with heard_chars",
            ));
        }
        (chars, None) => return Ok(chars.map(HeardLength::Chars)),
        (None, Some(units)) => HeardLength::Utf16(units),
    };
    let Some(number) = turn else {
        return Ok(Some(units));
    };
    let turns = state
        .services
        .ledger
        .dialogues
        .load_turns(scope, id, number, number)
        .await?;
    Ok(Some(match turns.first() {
        Some(turn) => HeardLength::Chars(units.to_scalar_count(&turn.reply_text)),
        None => units,
    }))
}

/// Where to go back to.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct RewindBody {
    /// The last turn that is to stand; 0: none.
    turn: u32,
    /// Makes a retry safe: the same key is told what it came to, and nothing is taken back twice.
    /// `Idempotency-Key` does the same.
    #[serde(default)]
    #[garde(inner(length(chars, min = 1, max = 128)))]
    #[schema(min_length = 1, max_length = 128)]
    key: Option<String>,
    /// The last turn as the client knows it; if it is another, `stale_head`.
    #[serde(default)]
    if_head: Option<u32>,
}

/// Takes a session back to a turn: what followed never happened, whatever was under way.
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
        sessions::reachable_session(&state, &caller.principal, path.0).await?;
        let wish = InterruptCommand {
            turn: Some(body.value.turn),
            heard: None,
            key,
            if_head: body.value.if_head,
            who: caller.principal.clone(),
        };
        let done = state.sessions.rewind_dialogue(&caller.scope, path.0, wish).await?;
        Ok(HttpResponse::Ok().json(InterruptView::for_caller(done, &caller.principal)))
    })
    .await
}

/// Which reply to say anew.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct RegenerateBody {
    /// Makes a retry safe; the new turn has it. `Idempotency-Key` does the same.
    #[garde(inner(length(chars, min = 1, max = 128)))]
    #[schema(min_length = 1, max_length = 128)]
    key: Option<String>,
    /// The last turn as the client knows it; if it is another, `stale_head`.
    if_head: Option<u32>,
}

/// Takes the last turn back and answers its line anew: with the finished turn, or with
/// `Accept: text/event-stream` with its events as they happen. The body may be left out.
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
    let dialogue = sessions::reachable_open_session(&state, &caller.principal, path.0).await?;
    if let Some(player) = &dialogue.player {
        caller.count_turn(&state, player)?;
    }
    let key = idempotency::header_or_body_key(&request, body.0.key)?;
    let (id, if_head) = (dialogue.id, body.0.if_head);
    let again = |mark| {
        let (state, scope, who) = (state.clone(), caller.scope.clone(), caller.principal.clone());
        async move {
            state
                .sessions
                .regenerate_reply(&scope, id, &who, key, if_head, mark)
                .await
        }
    };
    if accepts_event_stream(&request) {
        return sse::stream_turn(&state, &caller.principal, id, |mark| again(Some(mark))).await;
    }
    let turn = match again(None).await? {
        AcceptedLine::Repeated(turn) => turn,
        AcceptedLine::Turn { done } => completed_turn(done.await)?,
    };
    Ok(HttpResponse::Ok().json(TurnView::for_caller(&turn, &caller.principal)))
}

/// What is taken up again.
#[derive(Debug, Default, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(default, deny_unknown_fields)]
pub struct ResumeBody {
    /// Makes a retry safe: the same key is told what it came to. `Idempotency-Key` does the same.
    #[garde(inner(length(chars, min = 1, max = 128)))]
    #[schema(min_length = 1, max_length = 128)]
    key: Option<String>,
}

/// Takes a reply up again that was cut a moment ago, if nothing was said since. One that had been said to
/// its end stands again as it was. One that was cut while it was being said comes again as the turn
/// `goes_on`: all that had been said of it, heard or not, and then the rest. The body may be left out.
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
        sessions::reachable_session(&state, &caller.principal, path.0).await?;
        let wish = ResumeCommand {
            key,
            re: None,
            who: caller.principal.clone(),
        };
        let done = state.sessions.resume_dialogue(&caller.scope, path.0, wish).await?;
        Ok(HttpResponse::Ok().json(InterruptView::for_caller(done, &caller.principal)))
    })
    .await
}
