//! `POST /v1/tickets`: for sockets of clients that cannot set headers.

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

/// A single-use ticket that stands for the caller's token on the socket.
///
/// A repeated request gets a fresh ticket, with or without an `Idempotency-Key`; one that is not
/// used is gone within `auth.ticket_ttl_s`.
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
        // Whichever node the socket is opened at asks this one for it.
        ticket = nodes.qualify_ticket(&ticket);
    }
    Ok(HttpResponse::Created().json(TicketAnswer { ticket, expires_at }))
}
