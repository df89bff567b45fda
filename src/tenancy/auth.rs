//! Who is asking: tokens in, principals out (docs/protocol.md#roles).
//!
//! Owns the verification keys, the claims, minting of tokens and the single-use tickets. Does not
//! own what a role may do: that is stated by each route's extractor.

mod issuers;
mod keys;
mod refusals;
mod tickets;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

pub use self::{
    issuers::{ALL_TENANTS, IssuerSettings},
    keys::KeyError,
    tickets::Tickets,
};
use super::{Principal, Role, TokenIdentity};
use crate::{
    ids::{PlayerId, TenantId, WorldId},
    ports::{
        StoreError, StoreResult,
        clock::Clock,
        disabled_tenants::DisabledTenants,
        ledger::{
            revocations::{Revocation, RevocationStore},
            tenants::TenantStore,
        },
    },
};

/// Where tokens come from. Defaults are in `config/default.toml`, section `[auth]`.
/// At least one of the secret, the public key, the JWKS file and the issuers must be set. The secret, the public key and
/// the JWKS file are the operator's own: tokens checked with them may be for every tenant and role.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthSettings {
    /// Shared secret of HS256 tokens, at least 32 bytes; unset.
    #[serde(default)]
    pub hs256_secret: Option<SecretString>,
    /// The shared secret before that one: its tokens are still believed, and none is signed with it; unset.
    #[serde(default)]
    pub hs256_previous_secret: Option<SecretString>,
    /// PEM file with one public key (RSA: RS256, Ed25519: EdDSA, P-256: ES256); unset.
    #[serde(default)]
    pub public_key_file: Option<PathBuf>,
    /// `kid` of that key; unset: tokens signed with it must name none.
    #[serde(default)]
    pub public_key_kid: Option<String>,
    /// JWKS file; a token then names its key by `kid`. Read again when the file changes; unset.
    #[serde(default)]
    pub jwks_file: Option<PathBuf>,
    /// Further issuers, by name. A token whose `iss` is one of theirs is checked with that one's keys alone; none.
    #[serde(default)]
    pub issuers: BTreeMap<String, IssuerSettings>,
    /// What `aud` must be; `colloquy`.
    pub audience: String,
    /// Clock skew allowed for `exp` and `nbf`, in seconds; 5.
    pub leeway_s: u64,
    /// Life of a token minted by `POST /v1/tokens` without `ttl_s`, in seconds; 3,600.
    pub default_ttl_s: u64,
    /// Longest life `POST /v1/tokens` may give, in seconds; 86,400.
    pub max_ttl_s: u64,
    /// Tokens older than this are refused, in days since their `iat`; 3,650. So long a revocation matters whose tokens
    /// nobody knows the end of.
    pub max_age_d: u32,
    /// Life of a ticket, in seconds; 30.
    pub ticket_ttl_s: u64,
    /// Tickets that may be open at once; 100,000.
    pub max_tickets: u64,
    /// How long a tenant that was looked up is believed, in seconds; 10.
    pub tenant_cache_s: u64,
}

/// Longest `sub` and `jti` of a token, in characters. The first goes into every audit row.
const MAX_SUBJECT_CHARS: usize = 256;
/// Revocations that one tenant may have at once: every node keeps them in memory.
const MAX_REVOCATIONS: usize = 100_000;
/// How long before the newest revocation known others may still come to light: as long as a transaction may take, and as the
/// clock of a database that takes over may be behind.
const CATCH_UP_OVERLAP: TimeDelta = TimeDelta::seconds(120);

/// The claims of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenClaims {
    /// Whom the token was given to, at most 256 characters; goes to the audit log.
    pub sub: String,
    /// The tenant.
    pub tid: TenantId,
    pub role: Role,
    /// The player, for role `player`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<PlayerId>,
    /// The one world that a backend's, a viewer's or a player's token is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wid: Option<WorldId>,
}

/// Claims with what `mint` adds.
#[derive(Serialize)]
struct MintedClaims<'a> {
    #[serde(flatten)]
    claims: &'a TokenClaims,
    aud: &'a str,
    jti: String,
    /// To the millisecond: what is minted right after its subject's tokens were revoked is none of them.
    iat: f64,
    exp: i64,
}

/// Claims as a token carries them.
#[derive(Deserialize)]
struct ReceivedClaims {
    #[serde(flatten)]
    claims: TokenClaims,
    exp: i64,
    #[serde(default)]
    nbf: Option<i64>,
    /// Seconds, perhaps with a fraction.
    #[serde(default)]
    iat: Option<f64>,
    #[serde(default)]
    jti: Option<String>,
}

/// Why a caller is not let in. The messages are safe to show and name no secret.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuthError {
    #[error("no token: send `Authorization: Bearer <JWT>`")]
    Missing,
    #[error("the token is not valid: {0}")]
    Invalid(&'static str),
    #[error("the token has expired")]
    Expired,
    #[error("the token's tenant is unknown or disabled")]
    NoTenant,
    #[error("the token was revoked")]
    Revoked,
    #[error("the ticket is unknown, used or expired")]
    NoTicket,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why no token was minted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    #[error("this server has no shared secret to sign tokens with (auth.hs256_secret)")]
    NoSecret,
    #[error("a player's token needs a player, and only a player's token has one")]
    PlayerMismatch,
    #[error("the token could not be signed")]
    Signing,
}

/// A signed token.
#[derive(Debug, Clone)]
pub struct Token {
    pub text: String,
    pub expires_at: DateTime<Utc>,
}

/// Verifies and mints tokens, and keeps the tickets.
pub struct Authenticator {
    settings: AuthSettings,
    keys: keys::VerificationKeys,
    clock: Arc<dyn Clock>,
    tenants: Arc<dyn TenantStore>,
    /// Whether a tenant may come in, for `tenant_cache_s`.
    known: moka::future::Cache<TenantId, bool>,
    refusals: refusals::Refusals,
    /// When the newest revocation was written that came from the ledger.
    caught_up: tokio::sync::Mutex<DateTime<Utc>>,
    tickets: Tickets,
}

impl Authenticator {
    /// Reads the keys.
    ///
    /// # Errors
    /// [`KeyError`] names the setting that cannot be used.
    pub fn new(settings: AuthSettings, clock: Arc<dyn Clock>, tenants: Arc<dyn TenantStore>) -> Result<Self, KeyError> {
        let keys = keys::VerificationKeys::load_keys(&settings)?;
        Ok(Self {
            known: moka::future::Cache::builder()
                .max_capacity(10_000)
                .time_to_live(Duration::from_secs(settings.tenant_cache_s))
                .build(),
            refusals: refusals::Refusals::default(),
            caught_up: tokio::sync::Mutex::new(DateTime::UNIX_EPOCH),
            tickets: Tickets::new(settings.max_tickets, Duration::from_secs(settings.ticket_ttl_s)),
            settings,
            keys,
            clock,
            tenants,
        })
    }

    /// The settings it was made with.
    #[must_use]
    pub fn settings(&self) -> &AuthSettings {
        &self.settings
    }

    /// The tenants that this node knows to be disabled.
    #[must_use]
    pub fn disabled_tenants(&self) -> &DisabledTenants {
        &self.refusals.disabled
    }

    /// The caller a token stands for.
    ///
    /// # Errors
    /// [`AuthError`] for anything but a current, well-signed token of a live tenant.
    pub async fn verify_token(&self, token: &str) -> Result<Principal, AuthError> {
        let principal = self.check_token(token)?;
        self.check_tenant(&principal.tenant).await?;
        self.check_not_refused(&principal)?;
        Ok(principal)
    }

    /// Whether a caller who was let in may stay, as far as this node knows.
    ///
    /// # Errors
    /// The tenant is disabled, or the token was revoked.
    pub fn check_not_refused(&self, principal: &Principal) -> Result<(), AuthError> {
        self.refusals.check_principal(principal)
    }

    /// A tenant was disabled or enabled: known from now on.
    pub async fn on_tenant_changed(&self, tenant: &TenantId, enabled: bool) {
        // Whoever catches up has read what was before.
        let _reading = self.caught_up.lock().await;
        self.known.insert(tenant.clone(), enabled).await;
        self.refusals.disabled.set_disabled(tenant, !enabled);
    }

    /// Whether one more revocation of a tenant would be too many.
    #[must_use]
    pub fn has_room_to_revoke(&self, tenant: &TenantId) -> bool {
        self.refusals.revocation_count(tenant) < MAX_REVOCATIONS
    }

    /// Tokens were revoked: refused from now on. Returns whether that is new.
    pub fn on_revoked(&self, revocation: &Revocation) -> bool {
        self.refusals.add_revocation(revocation)
    }

    /// Until when a token that expires at `at` is believed.
    #[must_use]
    pub fn believed_until(&self, at: DateTime<Utc>) -> DateTime<Utc> {
        at.checked_add_signed(self.leeway()).unwrap_or(DateTime::<Utc>::MAX_UTC)
    }

    /// Until when a revocation matters, at most, that is made `now`.
    #[must_use]
    pub fn max_revocation_end(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        now + TimeDelta::days(i64::from(self.settings.max_age_d)) + self.leeway() * 2
    }

    /// Reads what other nodes, and processes before this one, have disabled and revoked. Returns whether anybody may have
    /// to go.
    ///
    /// # Errors
    /// The ledger could not answer: what is known stays.
    pub async fn catch_up(&self, revocations: &dyn RevocationStore) -> StoreResult<bool> {
        let mut caught_up = self.caught_up.lock().await;
        let disabled = self.tenants.list_disabled().await?.into_iter().collect();
        let changed = self.refusals.disabled.set_exactly(disabled);
        for (tenant, disabled) in &changed {
            self.known.insert(tenant.clone(), !disabled).await;
        }
        let mut is_new = !changed.is_empty();
        for revocation in revocations
            .list_revocations_since(*caught_up - CATCH_UP_OVERLAP)
            .await?
        {
            is_new |= self.refusals.add_revocation(&revocation);
            *caught_up = revocation.at.max(*caught_up);
        }
        self.refusals.drop_expired(self.clock.now());
        Ok(is_new)
    }

    /// Gives out a ticket that stands for `principal` once.
    pub fn issue_ticket(&self, principal: Principal) -> (String, DateTime<Utc>) {
        let expires = self.clock.now() + self.tickets.ttl();
        // A ticket must not outlive the token it was bought with.
        let expires = expires.min(principal.expires_at);
        (self.tickets.issue_ticket(principal, expires), expires)
    }

    /// Takes a ticket. It is gone afterwards.
    ///
    /// # Errors
    /// [`AuthError::NoTicket`] when it is unknown, used or expired; or the tenant is gone since.
    pub async fn redeem_ticket(&self, ticket: &str) -> Result<Principal, AuthError> {
        let principal = self
            .tickets
            .redeem_ticket(ticket, self.clock.now())
            .ok_or(AuthError::NoTicket)?;
        self.check_tenant(&principal.tenant).await?;
        self.check_not_refused(&principal)?;
        Ok(principal)
    }

    /// Signs a token that lives for `ttl`.
    ///
    /// # Errors
    /// [`MintError::NoSecret`] where tokens are verified with public keys only.
    pub fn mint_token(&self, claims: &TokenClaims, ttl: Duration) -> Result<Token, MintError> {
        mint_token(&self.settings, claims, ttl, self.clock.now())
    }

    fn check_token(&self, token: &str) -> Result<Principal, AuthError> {
        let (received, issuer): (ReceivedClaims, _) = self.keys.verify_token(token)?;
        if let Some(issuer) = issuer {
            issuer.check_claims(&received.claims)?;
        }
        let moment = self.clock.now();
        let now = moment.timestamp();
        let leeway = self.leeway().num_seconds();
        if received.exp.saturating_add(leeway) <= now {
            return Err(AuthError::Expired);
        }
        if received.nbf.is_some_and(|from| from > now.saturating_add(leeway)) {
            return Err(AuthError::Invalid("it is not valid yet"));
        }
        let TokenClaims {
            sub,
            tid,
            role,
            pid,
            wid,
        } = received.claims;
        let mark = TokenIdentity {
            id: received.jti,
            // One that is to come tells nothing.
            at: received
                .iat
                .and_then(timestamp_of)
                .filter(|at| *at <= moment + self.leeway()),
        };
        let oldest = TimeDelta::days(i64::from(self.settings.max_age_d));
        // Without `iat` nothing but its end bounds its age.
        let too_old = match mark.at {
            Some(at) => at + oldest + self.leeway() <= moment,
            None => received.exp > (moment + oldest).timestamp(),
        };
        if too_old {
            return Err(AuthError::Invalid(
                "it was issued longer ago than tokens are believed, or expires later without saying when it was issued",
            ));
        }
        if mark.id.as_deref().is_some_and(|id| !is_claim_text(id)) {
            return Err(AuthError::Invalid(
                "its id (jti) must be at most 256 characters, none of them a control character",
            ));
        }
        if !is_claim_text(&sub) {
            return Err(AuthError::Invalid(
                "its subject (sub) must be at most 256 characters, none of them a control character",
            ));
        }
        match (role, &pid) {
            (Role::Player, None) => return Err(AuthError::Invalid("a player's token must name its player (pid)")),
            (Role::Player, Some(_)) | (_, None) => {}
            (_, Some(_)) => return Err(AuthError::Invalid("only a player's token may name a player (pid)")),
        }
        if matches!(role, Role::Operator | Role::Admin) && wid.is_some() {
            return Err(AuthError::Invalid(
                "only a backend's, a viewer's or a player's token may name a world (wid)",
            ));
        }
        Ok(Principal {
            subject: sub,
            tenant: tid,
            role,
            player: pid,
            world: wid,
            // Beyond what chrono can say is as good as never.
            expires_at: DateTime::from_timestamp(received.exp.saturating_add(leeway), 0)
                .unwrap_or(DateTime::<Utc>::MAX_UTC),
            issued: mark,
        })
    }

    fn leeway(&self) -> TimeDelta {
        TimeDelta::seconds(i64::try_from(self.settings.leeway_s).unwrap_or(0))
    }

    async fn check_tenant(&self, tenant: &TenantId) -> Result<(), AuthError> {
        let live = if let Some(live) = self.known.get(tenant).await {
            live
        } else {
            let live = self
                .tenants
                .load_tenant(tenant)
                .await?
                .is_some_and(|found| found.enabled);
            self.known.insert(tenant.clone(), live).await;
            live
        };
        if live { Ok(()) } else { Err(AuthError::NoTenant) }
    }
}

/// Whether a text may be the `sub` or the `jti` of a token.
fn is_claim_text(text: &str) -> bool {
    text.chars().count() <= MAX_SUBJECT_CHARS && !text.chars().any(char::is_control)
}

/// Seconds since 1970 with their fraction.
fn timestamp_of(seconds: f64) -> Option<DateTime<Utc>> {
    const FAR: f64 = 8.0e12;
    #[expect(clippy::cast_possible_truncation, reason = "within a range that chrono has")]
    (seconds.abs() < FAR)
        .then(|| DateTime::from_timestamp_millis((seconds * 1_000.0).round() as i64))
        .flatten()
}

/// Signs a token with the shared secret, for `POST /v1/tokens` and for the command line.
///
/// # Errors
/// As [`Authenticator::mint_token`].
pub fn mint_token(
    settings: &AuthSettings,
    claims: &TokenClaims,
    ttl: Duration,
    now: DateTime<Utc>,
) -> Result<Token, MintError> {
    let secret = settings.hs256_secret.as_ref().ok_or(MintError::NoSecret)?;
    if (claims.role == Role::Player) != claims.pid.is_some() {
        return Err(MintError::PlayerMismatch);
    }
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are exact for long")]
    let iat = now.timestamp_millis() as f64 / 1_000.0;
    let exp = now
        .timestamp()
        .saturating_add(i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX));
    let minted = MintedClaims {
        claims,
        aud: &settings.audience,
        jti: format!("{:032x}", rand::random::<u128>()),
        iat,
        exp,
    };
    let key = EncodingKey::from_secret(secret.expose_secret().as_bytes());
    let text = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &minted, &key).map_err(|_| MintError::Signing)?;
    Ok(Token {
        text,
        expires_at: DateTime::from_timestamp(exp, 0).unwrap_or(DateTime::<Utc>::MAX_UTC),
    })
}

#[cfg(test)]
mod tests;
