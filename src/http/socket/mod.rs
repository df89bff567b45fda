//! `GET /v1/ws`: admission of sockets. The protocol is in `protocol`, `messages` and `events`.

mod connection;
mod conversations;
mod dialogues;
pub mod events;
pub mod message_schema;
pub mod messages;
pub mod player_socket;
mod protocol;
mod remote;
mod socket_state;
mod subscription;
#[cfg(test)]
mod tests;
mod world_changes;
mod worlds;

pub(super) use self::remote::without_expiry;
use std::{sync::Arc, time::Duration};

use actix_web::{HttpRequest, HttpResponse, get, http::header, web};
use serde::Deserialize;
use utoipa::IntoParams;

use self::protocol::Socket;
pub(super) use self::protocol::{MAX_EXPIRY_WATCH, MAX_INBOX, RefusedSocket};
use super::{
    AppState,
    errors::{Code, Problem},
    extract::{QueryParams, bearer_token},
    nodes,
    socket::player_socket::{OwnEvents, SocketOptions, SocketProtocol, UpgradeError},
};
use colloquy_core::{
    scope::{Principal, Role},
    shares::NoCapacity,
};
use colloquy_tenancy::limits::SocketSeat;

/// The subprotocol of this server.
const SUBPROTOCOL: &str = "colloquy.v1";

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SocketQuery {
    /// A ticket of `POST /v1/tickets`, for clients that cannot set headers.
    ticket: Option<String>,
    /// The server joins deltas of one reply for up to this many milliseconds; 0–1,000, default 0.
    coalesce_ms: Option<u64>,
}

/// Opens the socket. `/asyncapi.json` describes its messages.
#[utoipa::path(
    tag = "socket",
    params(SocketQuery, ("Sec-WebSocket-Protocol" = Option<String>, Header, description = "`colloquy.v1, bearer.<jwt>` in place of the Authorization header")),
    responses(
        (status = 101, description = "The connection is a WebSocket from here on"),
        (status = 400, description = "The request does not ask for an upgrade to a WebSocket"),
    ),
    extensions(("x-roles" = json!(["admin", "backend", "player"]))),
)]
#[get("/v1/ws")]
pub async fn open_socket(
    state: web::Data<AppState>,
    request: HttpRequest,
    query: QueryParams<SocketQuery>,
    payload: web::Payload,
) -> Result<HttpResponse, actix_web::Error> {
    let coalesce = query.0.coalesce_ms.unwrap_or(0);
    if coalesce > 1_000 {
        return Err(Problem::invalid_field("coalesce_ms", "must be 0 to 1000").into());
    }
    let serve = |protocol: Arc<dyn SocketProtocol>, tenant| {
        let options = SocketOptions {
            tenant,
            subprotocols: &[SUBPROTOCOL],
            coalesce: Duration::from_millis(coalesce),
            max_message_bytes: None,
            own_events: OwnEvents::default(),
        };
        state.sockets.serve_upgrade(&request, payload, protocol, &options)
    };
    let offered = offered_token(&request);
    match admit_socket(&state, &request, query.0.ticket.as_deref(), offered.as_deref()).await {
        Ok(admitted) => {
            let tenant = admitted.principal.tenant.clone();
            let AdmittedSocket {
                principal,
                seat,
                is_forwarded,
            } = admitted;
            let socket = Socket::new(state.clone(), principal, seat, coalesce, is_forwarded);
            serve(Arc::new(socket), Some(tenant)).map_err(|error| not_opened_error(error, Problem::from))
        }
        // Browser scripts cannot read why an upgrade failed. They get the refusal on the socket. A client that can set
        // headers can also read a status.
        Err(problem) if is_upgrade(&request) && needs_refusal_on_socket(&request, offered.is_some()) => {
            let refused_socket = RefusedSocket::new(problem.code, events::error_event(&problem, None, None));
            serve(Arc::new(refused_socket), None).map_err(|error| not_opened_error(error, |_| problem))
        }
        Err(problem) => Err(problem.into()),
    }
}

/// True if the request asks for a socket at all: any other gets its refusal as a status.
pub(super) fn is_upgrade(request: &HttpRequest) -> bool {
    let upgrade = request.headers().get(header::UPGRADE);
    upgrade.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

pub(super) fn not_opened_error(error: UpgradeError, no_place: impl FnOnce(NoCapacity) -> Problem) -> actix_web::Error {
    match error {
        UpgradeError::Handshake(error) => error,
        UpgradeError::NoPlace(no_capacity) => no_place(no_capacity).into(),
    }
}

/// The caller of a socket.
pub(super) struct AdmittedSocket {
    pub principal: Principal,
    /// The socket's seat among the sockets of its player.
    pub seat: Option<SocketSeat>,
    /// True for a tunnel of another node. That node has verified the caller and counted the request for the tenant.
    pub is_forwarded: bool,
}

/// Checks who opens a socket, and counts the socket. `offered` is the token of a subprotocol.
///
/// # Errors
/// No valid token, an operator's token, or too many requests or sockets.
pub(super) async fn admit_socket(
    state: &AppState,
    request: &HttpRequest,
    ticket: Option<&str>,
    offered: Option<&str>,
) -> Result<AdmittedSocket, Problem> {
    if let Some(hop) = nodes::forward_token(request)? {
        let nobody = || Problem::new(Code::Forbidden, "a node opens sockets for callers only");
        let principal = hop.principal.ok_or_else(nobody)?;
        let tenant = &principal.tenant;
        let player = principal.player.as_ref();
        state.limits.check_forwarded_request(tenant, player)?;
        let seat = player.map(|player| state.limits.acquire_socket_seat(tenant, player));
        return Ok(AdmittedSocket {
            seat: seat.transpose()?,
            principal,
            is_forwarded: true,
        });
    }
    let principal = if let Some(ticket) = ticket {
        nodes::redeem_any_ticket(state, ticket).await?
    } else if let Some(token) = offered {
        state.auth.verify_token(token).await?
    } else {
        state.auth.verify_token(bearer_token(request)?).await?
    };
    if principal.role == Role::Operator {
        return Err(Problem::new(Code::Forbidden, "an operator takes part in no dialogue"));
    }
    state
        .limits
        .check_request(&principal.tenant, principal.player.as_ref())?;
    let seat = match &principal.player {
        Some(player) => Some(state.limits.acquire_socket_seat(&principal.tenant, player)?),
        None => None,
    };
    Ok(AdmittedSocket {
        principal,
        seat,
        is_forwarded: false,
    })
}

/// True for clients that cannot read the status of a refused upgrade: scripts of web pages.
pub(super) fn needs_refusal_on_socket(request: &HttpRequest, offers_token: bool) -> bool {
    !request.headers().contains_key(header::AUTHORIZATION)
        && (request.query_string().contains("ticket=") || offers_token)
}

/// Reads the token of `Sec-WebSocket-Protocol: colloquy.v1, bearer.<jwt>`.
fn offered_token(request: &HttpRequest) -> Option<String> {
    token_in_subprotocols(request, SUBPROTOCOL, "bearer.")
}

/// Returns the token behind `prefix` among the offered subprotocols, if `subprotocol` is one of them.
pub(super) fn token_in_subprotocols(request: &HttpRequest, subprotocol: &str, prefix: &str) -> Option<String> {
    let offers: Vec<&str> = request
        .headers()
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    if !offers.contains(&subprotocol) {
        return None;
    }
    offers
        .iter()
        .find_map(|offer| offer.strip_prefix(prefix))
        .map(str::to_owned)
}
