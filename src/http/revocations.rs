//! `POST /v1/tokens:revoke`: revocation of tokens.

use actix_web::{HttpResponse, post, web};
use chrono::{DateTime, Utc};
use garde::Validate;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    AppState,
    errors::{Code, Problem},
    extract::{Administrator, Authorized, Body},
    refusals::publish_revocation,
    uncancelled::run_uncancelled,
};
use colloquy_core::ids::PlayerId;
use colloquy_ports::ledger::revocations::{Revocation, Revoked};

/// The tokens to revoke: exactly one of `jti`, `subject` and `player_id`.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[garde(allow_unvalidated)]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// Revokes the token with this `jti`.
    #[garde(inner(length(chars, min = 1, max = 256)))]
    #[schema(min_length = 1, max_length = 256)]
    jti: Option<String>,
    /// With `jti`: the token's expiry (`exp`), if known. The revocation is stored until then.
    expires_at: Option<DateTime<Utc>>,
    /// Revokes all tokens of this `sub`.
    #[garde(inner(length(chars, max = 256)))]
    #[schema(max_length = 256)]
    subject: Option<String>,
    /// Revokes all tokens of this player (`pid`).
    #[schema(value_type = Option<String>, pattern = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
    player_id: Option<PlayerId>,
    /// With `subject` or `player_id`: revokes only tokens issued (`iat`) at this moment or before; default now. A token
    /// without `iat` counts as older.
    before: Option<DateTime<Utc>>,
}

impl RevokeRequest {
    /// Returns the revoked tokens, their name in the audit log, and the end of the revocation, if known.
    fn into_revoked(self, now: DateTime<Utc>) -> Result<(Revoked, String, Option<DateTime<Utc>>), Problem> {
        let of_one = |param: &str| Problem::invalid_field(param, "does not go together with what is revoked");
        if self.before.is_some_and(|issued_before| issued_before > now) {
            return Err(Problem::invalid_field("before", "must not be in the future"));
        }
        let issued_before = self.before.unwrap_or(now);
        match (self.jti, self.subject, self.player_id) {
            (Some(_), None, None) if self.before.is_some() => Err(of_one("before")),
            (Some(jti), None, None) => {
                let object = format!("jti:{jti}");
                Ok((Revoked::Token(jti), object, self.expires_at))
            }
            (None, Some(_), None) | (None, None, Some(_)) if self.expires_at.is_some() => Err(of_one("expires_at")),
            (None, Some(subject), None) => {
                let object = format!("subject:{subject}");
                Ok((Revoked::Subject(subject, issued_before), object, None))
            }
            (None, None, Some(player)) => {
                let object = format!("player:{player}");
                Ok((Revoked::Player(player, issued_before), object, None))
            }
            _ => Err(Problem::invalid_field("jti", "name one of jti, subject and player_id")),
        }
    }
}

/// Revokes tokens of the caller's tenant.
///
/// The tokens are refused from now on, on other nodes within two seconds. Sockets and streams opened with the tokens
/// close with 4401. Tokens minted afterwards stay valid. A repeated revocation changes nothing.
#[utoipa::path(
    tag = "access",
    request_body = RevokeRequest,
    responses((status = 204), (status = 409, description = "The tenant has the maximum number of revoked tokens (`too_many_revocations`)")),
    extensions(("x-roles" = json!(["admin"]))),
)]
#[post("/v1/tokens:revoke")]
pub async fn revoke_tokens(
    state: web::Data<AppState>,
    caller: Authorized<Administrator>,
    body: Body<RevokeRequest>,
) -> Result<HttpResponse, Problem> {
    let now = state.services.clock.now();
    let (revoked, object, expires_at) = body.value.into_revoked(now)?;
    // A subject or a player counts as one revocation, and is therefore allowed at the limit.
    if matches!(revoked, Revoked::Token(_)) && !state.auth.has_room_to_revoke(caller.scope.tenant()) {
        return Err(Problem::new(
            Code::TooManyRevocations,
            "too many tokens are revoked; revoke by subject or player, and name when a token expires",
        ));
    }
    let latest_end = state.auth.max_revocation_end(now);
    let edit = caller.new_edit(&state, "token.revoke", object);
    let revocation = Revocation {
        tenant: caller.scope.tenant().clone(),
        revoked,
        matters_until: expires_at.map_or(latest_end, |expiry| state.auth.believed_until(expiry).min(latest_end)),
        revoked_at: edit.made_at,
    };
    run_uncancelled(async move {
        let store = &state.services.ledger.revocations;
        store.add_revocation(&caller.scope, &revocation, &edit).await?;
        publish_revocation(&state, revocation).await;
        Ok(HttpResponse::NoContent().finish())
    })
    .await
}
