//! `POST /v1/tickets`: for sockets of clients that cannot set headers.

use actix_web::{HttpResponse, post, web};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    AppState,
    extract::{Anyone, Caller},
};

#[derive(Debug, Serialize, ToSchema)]
pub struct TicketAnswer {
    /// For `GET /v1/ws?ticket=…`; works once.
    ticket: String,
    expires_at: DateTime<Utc>,
}

/// A single-use ticket that stands for the caller's token on the socket.
#[utoipa::path(
    tag = "access",
    responses((status = 201, body = TicketAnswer)),
    extensions(("x-roles" = json!(["operator", "admin", "backend", "player"]))),
)]
#[post("/v1/tickets")]
pub async fn create_ticket(state: web::Data<AppState>, caller: Caller<Anyone>) -> HttpResponse {
    let (ticket, expires_at) = state.auth.issue_ticket(caller.principal);
    HttpResponse::Created().json(TicketAnswer { ticket, expires_at })
}
