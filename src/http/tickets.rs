//! `POST /v1/tickets`: tickets for sockets of clients that cannot set headers.

use actix_web::{HttpRequest, HttpResponse, post, web};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    AppState,
    errors::Problem,
    extract::{Anyone, Authorized, InWorld},
    idempotency,
};

#[derive(Debug, Serialize, ToSchema)]
pub struct TicketAnswer {
    /// For `GET /v1/ws?ticket=…`; works once.
    ticket: String,
    expires_at: DateTime<Utc>,
}

/// Issues a single-use ticket that replaces the caller's token on the socket.
///
/// A repeated request gets a new ticket, with or without an `Idempotency-Key`. An unused ticket expires within
/// 30 seconds.
#[utoipa::path(
    tag = "access",
    params(("Idempotency-Key" = Option<String>, Header, description = "Accepted, and of no effect: a repeated request gets a fresh ticket")),
    responses((status = 201, body = TicketAnswer)),
    extensions(("x-roles" = json!(["operator", "admin", "backend", "viewer", "player"]))),
)]
#[post("/v1/tickets")]
pub async fn create_ticket(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Anyone>>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    idempotency::idempotency_key(&request)?;
    let (mut ticket, expires_at) = state.auth.issue_ticket(caller.principal);
    if let Some(nodes) = &state.nodes {
        // The node that opens the socket sends the ticket to this node.
        ticket = nodes.qualify_ticket(&ticket);
    }
    Ok(HttpResponse::Created().json(TicketAnswer { ticket, expires_at }))
}
