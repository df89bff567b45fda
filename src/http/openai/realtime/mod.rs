//! `/v1/realtime`: OpenAI's Realtime API in text, over a WebSocket. A response is a turn, and the items are the words of
//! turns. `conversation.item.truncate` is the interrupt of this server.
//!
//! - `client_events`, `fields`, `item_fields`, `settings`: what a client asks;
//! - `server_events`, `errors`: what the server says;
//! - `items`: the items and their turns;
//! - `talk`: the session, and how its turns are made;
//! - `connection`: the task of a connection; `item_events`, `replies`, `session_events`: its work, by cause;
//! - `response`: a response under way;
//! - `relay`: a session on another node.

mod client_events;
mod connection;
mod errors;
mod fields;
mod item_events;
mod item_fields;
mod items;
mod relay;
mod replies;
mod response;
mod server_events;
mod session_events;
mod settings;
mod talk;

use std::{sync::Arc, time::Duration};

use actix_web::{
    HttpRequest, HttpResponse, get,
    http::header::{HeaderName, HeaderValue},
    web,
};
use serde::Deserialize;
use utoipa::IntoParams;

use self::{
    connection::{RealtimeSocket, error_message},
    errors::RealtimeError,
    talk::{OpenedTalk, SocketCaller, TalkRequest, TalkStart},
};
use super::{
    completions::{parse_name, session_name},
    prepared_talk::SESSION_HEADER,
};
use crate::{
    AppState,
    errors::{Code, Problem},
    extract::QueryParams,
    socket::{
        AdmittedSocket, RefusedSocket, admit_socket, is_upgrade, needs_refusal_on_socket, not_opened_error,
        player_socket::{OwnEvents, SocketOptions, SocketProtocol},
        token_in_subprotocols,
    },
};
use colloquy_core::scope::Role;

/// The subprotocol that clients of the Realtime API offer.
const SUBPROTOCOL: &str = "realtime";
/// The beginning of the subprotocol with the token of a web page.
const TOKEN_PREFIX: &str = "openai-insecure-api-key.";

/// What the address of a connection names.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RealtimeQuery {
    /// The NPC, as in chat completions.
    model: Option<String>,
    /// A session by its id, or a talk by its name, as the header `X-Colloquy-Session`.
    session: Option<String>,
    /// The same as `session`.
    conversation: Option<String>,
    /// The player, for tokens without a player.
    user: Option<String>,
    /// A ticket of `POST /v1/tickets`, for clients that cannot set headers.
    ticket: Option<String>,
    /// Only `realtime`.
    intent: Option<String>,
    /// Calls are not offered.
    call_id: Option<String>,
}

/// Opens a connection of the Realtime API.
#[get("")]
pub async fn open_realtime(
    state: web::Data<AppState>,
    request: HttpRequest,
    query: QueryParams<RealtimeQuery>,
    payload: web::Payload,
) -> Result<HttpResponse, actix_web::Error> {
    if !is_upgrade(&request) {
        let detail = "the Realtime API is a WebSocket: the request must ask for an upgrade";
        return Err(Problem::new(Code::MalformedRequest, detail).into());
    }
    let offered = token_in_subprotocols(&request, SUBPROTOCOL, TOKEN_PREFIX);
    let ticket = query.0.ticket.clone();
    let opened = async {
        let admitted = admit_socket(&state, &request, ticket.as_deref(), offered.as_deref()).await?;
        let opened = open_talk(&state, &request, &admitted, query.0).await?;
        Ok::<_, Problem>((admitted, opened))
    };
    let options = |tenant| SocketOptions {
        tenant,
        subprotocols: &[SUBPROTOCOL],
        coalesce: Duration::ZERO,
        max_message_bytes: Some(state.chat.max_event_bytes),
        own_events: own_events(),
    };
    match opened.await {
        Ok((admitted, opened)) => {
            let tenant = admitted.principal.tenant.clone();
            let session = match &opened.start {
                TalkStart::Open(talk) => Some(talk.session.to_string()),
                TalkStart::Later(_) => None,
            };
            let socket = RealtimeSocket::new(&state, admitted.principal, admitted.seat, opened, admitted.is_forwarded);
            let socket: Arc<dyn SocketProtocol> = Arc::new(socket);
            let mut response = state
                .sockets
                .serve_upgrade(&request, payload, socket, &options(Some(tenant)))
                .map_err(|error| not_opened_error(error, Problem::from))?;
            if let Some(session) = session.and_then(|session| HeaderValue::from_str(&session).ok()) {
                let name = HeaderName::from_static(SESSION_HEADER);
                response.headers_mut().insert(name, session);
            }
            Ok(response)
        }
        // Scripts of web pages cannot read why an upgrade failed.
        Err(problem) if needs_refusal_on_socket(&request, offered.is_some()) => {
            let event = error_message(&problem.clone().into(), None);
            let refused_socket: Arc<dyn SocketProtocol> = Arc::new(RefusedSocket::new(problem.code, event));
            let served = state
                .sockets
                .serve_upgrade(&request, payload, refused_socket, &options(None));
            served.map_err(|error| not_opened_error(error, |_| problem))
        }
        Err(problem) => Err(problem.into()),
    }
}

/// Finds or makes the session of a connection.
async fn open_talk(
    state: &AppState,
    request: &HttpRequest,
    admitted: &AdmittedSocket,
    query: RealtimeQuery,
) -> Result<OpenedTalk, Problem> {
    if !matches!(admitted.principal.role, Role::Admin | Role::Backend | Role::Player) {
        return Err(Problem::new(Code::Forbidden, "this token's role may not do that"));
    }
    if query.intent.is_some_and(|intent| intent != "realtime") {
        return Err(
            Problem::new(Code::NotSupported, "sessions are realtime sessions, without audio").with_param("intent"),
        );
    }
    if query.call_id.is_some() {
        return Err(Problem::new(Code::NotSupported, "this server takes no calls").with_param("call_id"));
    }
    let mut name = session_name(request)?;
    for (param, requested_name) in [("session", query.session), ("conversation", query.conversation)] {
        let Some(requested_name) = requested_name else { continue };
        let requested_name = parse_name(param, &requested_name)?;
        if !name.is_empty() && name != requested_name {
            return Err(Problem::invalid_field(
                param,
                "names another session than the request does elsewhere",
            ));
        }
        name = requested_name;
    }
    let talk_request = TalkRequest {
        model: query.model,
        name,
        user: query.user,
    };
    let caller = SocketCaller::on_socket(admitted.principal.clone());
    talk_request.open(state, &caller).await
}

/// The events that no event of the client caused.
fn own_events() -> OwnEvents {
    OwnEvents {
        write_error: |code, message| error_message(&RealtimeError::invalid(code, None, message), None),
        write_draining: Some(|| {
            let problem = Problem::new(Code::Draining, "the server is shutting down: connect again");
            error_message(&problem.into(), None)
        }),
    }
}
