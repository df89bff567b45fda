//! Authentication: tokens in, principals out (docs/protocol.md#roles).
//!
//! Owns the verification keys, the claims, minting of tokens and the single-use tickets. Does not own the permissions
//! of a role: each route's extractor states its roles.

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
    tickets::{TICKET_TTL, Tickets},
};
use super::{Principal, Role, TokenIdentity};
use colloquy_core::ids::{PlayerId, TenantId, WorldId};
use colloquy_ports::{
    StoreError, StoreResult,
    clock::Clock,
    disabled_tenants::DisabledTenants,
    ledger::{
        revocations::{Revocation, RevocationStore},
        tenants::TenantStore,
    },
};

/// Accepted tokens and their keys. Defaults are in `config/default.toml`, section `[auth]`. At least one of the secret,
/// the public key, the JWKS file and the issuers must be set. The secret, the public key and the JWKS file belong to
/// the operator: their tokens may be for every tenant and role.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthSettings {
    /// Shared secret of HS256 tokens, at least 32 bytes; default unset.
    pub hs256_secret: Option<SecretString>,
    /// The previous shared secret: its tokens stay valid, and no new token is signed with it; default unset.
    pub hs256_previous_secret: Option<SecretString>,
    /// PEM file with one public key (RSA: RS256, Ed25519: EdDSA, P-256: ES256); default unset.
    pub public_key_file: Option<PathBuf>,
    /// `kid` of the public key; unset: tokens signed with this key must have no `kid`.
    pub public_key_kid: Option<String>,
    /// JWKS file; a token then names its key by `kid`. Read again when the file changes; default unset.
    pub jwks_file: Option<PathBuf>,
    /// Further issuers, by name. A token with the `iss` of an issuer is checked with the issuer's keys only; default
    /// none.
    #[serde(default)]
    pub issuers: BTreeMap<String, IssuerSettings>,
    /// Required `aud`; default `colloquy`.
    pub audience: String,
    /// Clock skew allowed for `exp` and `nbf`, in seconds; default 5.
    pub leeway_s: u64,
    /// Life of a token minted by `POST /v1/tokens` without `ttl_s`, in seconds; default 3,600.
    pub default_ttl_s: u64,
    /// Longest life that `POST /v1/tokens` may give, in seconds; default 86,400.
    pub max_ttl_s: u64,
    /// Maximum age of a token in days since its `iat`; default 3,650. Older tokens are refused. A revocation must be
    /// kept for this time if the expiry of its tokens is unknown.
    pub max_age_d: u32,
}

impl AuthSettings {
    /// True if no key for checking tokens is configured, so that a secret must be generated.
    #[must_use]
    pub fn needs_secret(&self) -> bool {
        self.hs256_secret.is_none()
            && self.public_key_file.is_none()
            && self.jwks_file.is_none()
            && self.issuers.is_empty()
    }
}

/// How long a tenant's status is cached: the longest delay after which a disabled tenant is refused on other nodes.
const TENANT_CACHE_TIME: Duration = Duration::from_secs(10);
/// Longest `sub` and `jti` of a token, in characters. Every audit row contains the `sub`.
const MAX_SUBJECT_CHARS: usize = 256;
/// Maximum revocations of one tenant at once: every node keeps all revocations in memory.
const MAX_REVOCATIONS: usize = 100_000;
/// How far before the newest known revocation the next read starts. Covers the longest transaction, and the clock lag
/// of a database after a failover.
const CATCH_UP_OVERLAP: TimeDelta = TimeDelta::seconds(120);

/// The claims of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenClaims {
    /// The recipient of the token, at most 256 characters; goes to the audit log.
    pub sub: String,
    /// The tenant.
    pub tid: TenantId,
    pub role: Role,
    /// The player, for role `player`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<PlayerId>,
    /// The only world of a backend's, a viewer's or a player's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wid: Option<WorldId>,
}

/// Claims with the fields that `mint_token` adds.
#[derive(Serialize)]
struct MintedClaims<'a> {
    #[serde(flatten)]
    claims: &'a TokenClaims,
    aud: &'a str,
    jti: String,
    /// In milliseconds: a token minted right after a revocation of its subject must count as newer.
    iat: f64,
    exp: i64,
}

/// Claims as read from a token.
#[derive(Deserialize)]
struct ReceivedClaims {
    #[serde(flatten)]
    claims: TokenClaims,
    exp: i64,
    nbf: Option<i64>,
    /// Seconds, perhaps with a fraction.
    iat: Option<f64>,
    jti: Option<String>,
}

/// Why a caller is rejected. The messages are safe to show and contain no secret.
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

/// Verifies and mints tokens, and stores the tickets.
pub struct Authenticator {
    settings: AuthSettings,
    keys: keys::VerificationKeys,
    clock: Arc<dyn Clock>,
    tenants: Arc<dyn TenantStore>,
    /// Whether a tenant exists and is enabled, cached for `TENANT_CACHE_TIME`.
    enabled_tenants: moka::future::Cache<TenantId, bool>,
    refusals: refusals::Refusals,
    /// When the newest revocation read from the ledger was written.
    caught_up: tokio::sync::Mutex<DateTime<Utc>>,
    tickets: Tickets,
}

impl Authenticator {
    /// Loads the keys.
    ///
    /// # Errors
    /// [`KeyError`] names the invalid setting.
    pub fn new(settings: AuthSettings, clock: Arc<dyn Clock>, tenants: Arc<dyn TenantStore>) -> Result<Self, KeyError> {
        let keys = keys::VerificationKeys::load_keys(&settings)?;
        Ok(Self {
            enabled_tenants: moka::future::Cache::builder()
                .max_capacity(10_000)
                .time_to_live(TENANT_CACHE_TIME)
                .build(),
            refusals: refusals::Refusals::default(),
            caught_up: tokio::sync::Mutex::new(DateTime::UNIX_EPOCH),
            tickets: Tickets::default(),
            settings,
            keys,
            clock,
            tenants,
        })
    }

    /// The settings of this authenticator.
    #[must_use]
    pub fn settings(&self) -> &AuthSettings {
        &self.settings
    }

    /// The tenants that this node knows to be disabled.
    #[must_use]
    pub fn disabled_tenants(&self) -> &DisabledTenants {
        &self.refusals.disabled
    }

    /// Verifies a token and returns its caller.
    ///
    /// # Errors
    /// [`AuthError`] unless the token is current, well signed and of an existing, enabled tenant.
    pub async fn verify_token(&self, token: &str) -> Result<Principal, AuthError> {
        let principal = self.check_token(token)?;
        debug_assert!(
            (principal.role == Role::Player) == principal.player.is_some(),
            "exactly the token of a player names a player"
        );
        self.check_tenant(&principal.tenant).await?;
        self.check_not_refused(&principal)?;
        Ok(principal)
    }

    /// Checks an admitted caller again, against the revocations that this node knows.
    ///
    /// # Errors
    /// The tenant is disabled, or the token was revoked.
    pub fn check_not_refused(&self, principal: &Principal) -> Result<(), AuthError> {
        self.refusals.check_principal(principal)
    }

    /// Records that a tenant was disabled or enabled, with immediate effect.
    pub async fn on_tenant_changed(&self, tenant: &TenantId, enabled: bool) {
        // Waits for a running `catch_up`, which may have read the earlier status.
        let _reading = self.caught_up.lock().await;
        self.enabled_tenants.insert(tenant.clone(), enabled).await;
        self.refusals.disabled.set_disabled(tenant, !enabled);
    }

    /// True if a tenant may have one more revocation.
    #[must_use]
    pub fn has_room_to_revoke(&self, tenant: &TenantId) -> bool {
        self.refusals.revocation_count(tenant) < MAX_REVOCATIONS
    }

    /// Adds a revocation, with immediate effect. Returns true if the revocation is new.
    pub fn on_revoked(&self, revocation: &Revocation) -> bool {
        self.refusals.add_revocation(revocation)
    }

    /// Until when a token that expires at `expires_at` is accepted.
    #[must_use]
    pub fn believed_until(&self, expires_at: DateTime<Utc>) -> DateTime<Utc> {
        expires_at
            .checked_add_signed(self.leeway())
            .unwrap_or(DateTime::<Utc>::MAX_UTC)
    }

    /// The latest time at which a revocation made `now` can matter.
    #[must_use]
    pub fn max_revocation_end(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        now + TimeDelta::days(i64::from(self.settings.max_age_d)) + self.leeway() * 2
    }

    /// Reads disabled tenants and revocations of other nodes and earlier processes. Returns true if open streams may
    /// have to close.
    ///
    /// # Errors
    /// The ledger could not answer: the known state stays.
    pub async fn catch_up(&self, revocations: &dyn RevocationStore) -> StoreResult<bool> {
        let mut caught_up = self.caught_up.lock().await;
        let disabled = self.tenants.list_disabled().await?.into_iter().collect();
        let changed = self.refusals.disabled.set_exactly(disabled);
        for (tenant, disabled) in &changed {
            self.enabled_tenants.insert(tenant.clone(), !disabled).await;
        }
        let mut is_new = !changed.is_empty();
        for revocation in revocations
            .list_revocations_since(*caught_up - CATCH_UP_OVERLAP)
            .await?
        {
            is_new |= self.refusals.add_revocation(&revocation);
            *caught_up = revocation.revoked_at.max(*caught_up);
        }
        self.refusals.drop_expired(self.clock.now());
        Ok(is_new)
    }

    /// Issues a single-use ticket for `principal`.
    pub fn issue_ticket(&self, principal: Principal) -> (String, DateTime<Utc>) {
        let expires = self.clock.now() + TICKET_TTL;
        // A ticket must not outlive the token that paid for the ticket.
        let expires = expires.min(principal.expires_at);
        (self.tickets.issue_ticket(principal, expires), expires)
    }

    /// Redeems a ticket. The ticket is gone afterwards.
    ///
    /// # Errors
    /// [`AuthError::NoTicket`] if the ticket is unknown, used or expired. Other errors if the tenant or the token was
    /// refused since.
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
    /// [`MintError::NoSecret`] if tokens are verified with public keys only.
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
        let claims = received.claims;
        let identity = TokenIdentity {
            id: received.jti,
            // A time in the future is no evidence, and is ignored.
            issued_at: received
                .iat
                .and_then(timestamp_of)
                .filter(|issued_at| *issued_at <= moment + self.leeway()),
        };
        let max_age = TimeDelta::days(i64::from(self.settings.max_age_d));
        // Without `iat`, only the expiry limits the token's age.
        let too_old = match identity.issued_at {
            Some(issued_at) => issued_at + max_age + self.leeway() <= moment,
            None => received.exp > (moment + max_age).timestamp(),
        };
        if too_old {
            return Err(AuthError::Invalid(
                "it was issued longer ago than tokens are believed, or expires later without saying when it was issued",
            ));
        }
        check_claims(identity.id.as_deref(), &claims)?;
        Ok(Principal {
            subject: claims.sub,
            tenant: claims.tid,
            role: claims.role,
            player: claims.pid,
            world: claims.wid,
            // A time beyond chrono's range means "never".
            expires_at: DateTime::from_timestamp(received.exp.saturating_add(leeway), 0)
                .unwrap_or(DateTime::<Utc>::MAX_UTC),
            issued: identity,
        })
    }

    fn leeway(&self) -> TimeDelta {
        TimeDelta::seconds(i64::try_from(self.settings.leeway_s).unwrap_or(0))
    }

    async fn check_tenant(&self, tenant: &TenantId) -> Result<(), AuthError> {
        let enabled = if let Some(enabled) = self.enabled_tenants.get(tenant).await {
            enabled
        } else {
            let enabled = self
                .tenants
                .load_tenant(tenant)
                .await?
                .is_some_and(|tenant| tenant.enabled);
            self.enabled_tenants.insert(tenant.clone(), enabled).await;
            enabled
        };
        if enabled { Ok(()) } else { Err(AuthError::NoTenant) }
    }
}

/// Checks the texts of a token, and that its role may name a player or a world. `id`: the `jti`.
fn check_claims(id: Option<&str>, claims: &TokenClaims) -> Result<(), AuthError> {
    if id.is_some_and(|id| !is_claim_text(id)) {
        return Err(AuthError::Invalid(
            "its id (jti) must be at most 256 characters, none of them a control character",
        ));
    }
    if !is_claim_text(&claims.sub) {
        return Err(AuthError::Invalid(
            "its subject (sub) must be at most 256 characters, none of them a control character",
        ));
    }
    match (claims.role, &claims.pid) {
        (Role::Player, None) => return Err(AuthError::Invalid("a player's token must name its player (pid)")),
        (Role::Player, Some(_)) | (_, None) => {}
        (_, Some(_)) => return Err(AuthError::Invalid("only a player's token may name a player (pid)")),
    }
    if matches!(claims.role, Role::Operator | Role::Admin) && claims.wid.is_some() {
        return Err(AuthError::Invalid(
            "only a backend's, a viewer's or a player's token may name a world (wid)",
        ));
    }
    Ok(())
}

/// True if a text may be the `sub` or the `jti` of a token.
fn is_claim_text(text: &str) -> bool {
    text.chars().count() <= MAX_SUBJECT_CHARS && !text.chars().any(char::is_control)
}

/// Converts seconds since 1970, with their fraction.
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
