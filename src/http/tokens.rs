//! `POST /v1/tokens`: a backend issues a token for a player.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, post, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AppState,
    errors::Problem,
    extract::{Author, Authorized, Body, InWorld},
    idempotency,
};
use colloquy_core::{
    ids::{PlayerId, WorldId},
    scope::Role,
};
use colloquy_tenancy::auth::TokenClaims;

#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    #[schema(value_type = String, pattern = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
    player_id: PlayerId,
    /// The only world of the token. Unset: every world of the tenant, or the world of the caller's own token.
    #[schema(value_type = Option<String>, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    world_id: Option<WorldId>,
    /// Life of the token in seconds.
    #[garde(inner(range(min = 1)))]
    #[schema(minimum = 1)]
    ttl_s: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct TokenAnswer {
    token: String,
    expires_at: DateTime<Utc>,
}

/// Issues a short-lived token for a player.
///
/// The server stores no token, so a repetition is harmless. A repeated request gets a new token, with or without an
/// `Idempotency-Key`.
#[utoipa::path(
    tag = "access",
    params(("Idempotency-Key" = Option<String>, Header, description = "Accepted, and of no effect: a repeated request gets a fresh token")),
    request_body = TokenRequest,
    responses((status = 201, body = TokenAnswer), (status = 404, description = "The caller's token is bound to another world"), (status = 501, description = "The server has no shared secret to sign with")),
    extensions(("x-roles" = json!(["admin", "backend"]))),
)]
#[post("/v1/tokens")]
pub async fn create_token(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Author>>,
    request: HttpRequest,
    body: Body<TokenRequest>,
) -> Result<HttpResponse, Problem> {
    idempotency::idempotency_key(&request)?;
    let auth = state.auth.settings();
    let ttl = body.ttl_s.unwrap_or(auth.default_ttl_s);
    if ttl > auth.max_ttl_s {
        return Err(Problem::invalid_field(
            "ttl_s",
            format!("must be at most {}", auth.max_ttl_s),
        ));
    }
    let principal = &caller.principal;
    if body
        .world_id
        .as_ref()
        .is_some_and(|world| !principal.can_access_world(world))
    {
        return Err(Problem::not_found("world").with_param("world_id"));
    }
    let claims = TokenClaims {
        sub: format!("player:{}", body.player_id),
        tid: caller.principal.tenant.clone(),
        role: Role::Player,
        pid: Some(body.player_id.clone()),
        wid: body.world_id.clone().or_else(|| principal.world.clone()),
    };
    let token = state.auth.mint_token(&claims, Duration::from_secs(ttl))?;
    Ok(HttpResponse::Created().json(TokenAnswer {
        token: token.text,
        expires_at: token.expires_at,
    }))
}
