//! The forward token, and the keys that sign it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use moka::sync::Cache;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::errors::Problem;
use colloquy_core::{ids::NodeId, scope::Principal};
use colloquy_memory::text::to_hexadecimal;

/// The header that carries the token.
pub const FORWARD_TOKEN_HEADER: &str = "x-colloquy-hop";
/// The lifetime of a token in seconds, and the permitted difference between clocks.
const TOKEN_TTL_S: i64 = 10;
/// How long used tokens are remembered: until the token ends on the clock that is furthest behind.
const REPLAY_WINDOW: Duration = Duration::from_secs(3 * TOKEN_TTL_S as u64);
/// Separates forward tokens from all other tokens, in case a secret is used twice.
const NODE_AUDIENCE: &str = "colloquy-nodes";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardToken {
    pub from: NodeId,
    pub to: NodeId,
    /// Method, a space, path and query.
    pub request: String,
    /// SHA-256 of the body, in hexadecimal digits.
    pub body: String,
    /// The caller. The first node verified the caller and counted the request for the tenant. `None`: the node itself.
    #[serde(rename = "who")]
    pub principal: Option<Principal>,
}

impl ForwardToken {
    /// True if this node sent the request to itself; the request was counted here before.
    pub fn is_to_itself(&self) -> bool {
        self.from == self.to
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct ForwardClaims {
    #[serde(flatten)]
    pub(super) hop: ForwardToken,
    aud: String,
    /// A random id, to detect a second use.
    jti: String,
    iat: i64,
    exp: i64,
}

/// Hashes a body for [`ForwardToken::body`].
pub(super) fn body_hash(body: &[u8]) -> String {
    to_hexadecimal(&Sha256::digest(body))
}

/// The keys made from the shared secret.
pub(super) struct NodeKeys {
    sign: EncodingKey,
    /// The keys of the current and of the previous secret.
    verify: Vec<DecodingKey>,
    /// For requests of a node to itself, which are not counted again. Random per process; no other node knows the key.
    sign_own: EncodingKey,
    verify_own: DecodingKey,
    rules: Validation,
    /// Ids of used tokens. Only nodes can add entries.
    used_ids: Cache<String, ()>,
}

impl NodeKeys {
    pub(super) fn new(secret: &[u8], previous: Option<&[u8]>) -> Self {
        let mut rules = Validation::new(Algorithm::HS256);
        rules.set_audience(&[NODE_AUDIENCE]);
        rules.set_required_spec_claims(&["exp", "aud"]);
        // `verify_token` checks the expiry by the clock passed in.
        rules.validate_exp = false;
        let own_secret: [u8; 32] = rand::random();
        Self {
            sign_own: EncodingKey::from_secret(&own_secret),
            verify_own: DecodingKey::from_secret(&own_secret),
            sign: EncodingKey::from_secret(secret),
            verify: [secret]
                .into_iter()
                .chain(previous)
                .map(DecodingKey::from_secret)
                .collect(),
            rules,
            used_ids: Cache::builder().time_to_live(REPLAY_WINDOW).build(),
        }
    }

    pub(super) fn sign_token(&self, hop: &ForwardToken, now: DateTime<Utc>) -> Result<String, Problem> {
        let claims = ForwardClaims {
            hop: hop.clone(),
            aud: NODE_AUDIENCE.to_owned(),
            jti: format!("{:032x}", rand::random::<u128>()),
            iat: now.timestamp(),
            exp: now.timestamp() + TOKEN_TTL_S,
        };
        let key = if hop.is_to_itself() { &self.sign_own } else { &self.sign };
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, key)
            .map_err(|error| Problem::internal_error(&error))
    }

    pub(super) fn verify_token(&self, text: &str, now: DateTime<Utc>) -> Result<ForwardClaims, &'static str> {
        let decode = |key| jsonwebtoken::decode::<ForwardClaims>(text, key, &self.rules).ok();
        let by_another = |hop: &ForwardToken| !hop.is_to_itself();
        let claims = match decode(&self.verify_own) {
            Some(token) => token.claims,
            None => self
                .verify
                .iter()
                .find_map(decode)
                .map(|token| token.claims)
                .filter(|claims| by_another(&claims.hop))
                .ok_or("it is not signed by a node")?,
        };
        let now = now.timestamp();
        let lives = claims.exp.saturating_sub(claims.iat);
        if claims.exp <= now || claims.iat > now + TOKEN_TTL_S || lives > TOKEN_TTL_S {
            return Err("it has expired");
        }
        Ok(claims)
    }

    /// True if the token is new; marks the token as used.
    pub(super) fn is_first_use(&self, claims: &ForwardClaims) -> bool {
        self.used_ids.entry_by_ref(&claims.jti).or_insert(()).is_fresh()
    }
}

/// Verifies a token as [`verify_forwarded`](super::node_auth::verify_forwarded) does, without the checks against a request.
#[cfg(feature = "fuzzing")]
pub fn decode_forward_token(text: &str, secret: &[u8], now: DateTime<Utc>) -> Result<ForwardToken, &'static str> {
    NodeKeys::new(secret, None)
        .verify_token(text, now)
        .map(|claims| claims.hop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn forward_token_is_accepted_briefly_and_only_from_a_node() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let keys = NodeKeys::new(b"a secret that all of the nodes know", None);
        let hop = ForwardToken {
            from: NodeId::from_u128(1),
            to: NodeId::from_u128(2),
            request: "POST /v1/sessions/ses_1/turns".to_owned(),
            body: body_hash(b"{}"),
            principal: None,
        };
        let signed = keys.sign_token(&hop, now).unwrap();
        let claims = keys.verify_token(&signed, now).unwrap();
        assert_eq!(claims.hop, hop);
        assert!(keys.is_first_use(&claims) && !keys.is_first_use(&claims));
        let again = keys.verify_token(&keys.sign_token(&hop, now).unwrap(), now).unwrap();
        assert!(keys.is_first_use(&again), "it is another one of the same request");
        assert!(
            keys.verify_token(&signed, now + TimeDelta::seconds(TOKEN_TTL_S))
                .is_err()
        );
        assert!(
            keys.verify_token(&signed, now - TimeDelta::seconds(TOKEN_TTL_S + 1))
                .is_err()
        );
        assert!(
            NodeKeys::new(b"another secret of somebody else, long", None)
                .verify_token(&signed, now)
                .is_err()
        );
        let mut forged = signed.into_bytes();
        let middle = forged.len() / 2;
        forged[middle] = if forged[middle] == b'A' { b'B' } else { b'A' };
        assert!(keys.verify_token(std::str::from_utf8(&forged).unwrap(), now).is_err());
    }

    #[test]
    fn own_forward_token_cannot_be_forged_by_another_node() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let secret = b"a secret that all of the nodes know";
        let keys = NodeKeys::new(secret, None);
        let other_keys = NodeKeys::new(secret, None);
        let hop = ForwardToken {
            from: NodeId::from_u128(1),
            to: NodeId::from_u128(1),
            request: "GET /v1/worlds".to_owned(),
            body: body_hash(b""),
            principal: None,
        };
        assert!(keys.verify_token(&keys.sign_token(&hop, now).unwrap(), now).is_ok());
        assert!(
            keys.verify_token(&other_keys.sign_token(&hop, now).unwrap(), now)
                .is_err()
        );
        // A signature with the shared secret is not accepted either.
        let shared = NodeKeys {
            sign_own: EncodingKey::from_secret(secret),
            ..NodeKeys::new(secret, None)
        };
        assert!(keys.verify_token(&shared.sign_token(&hop, now).unwrap(), now).is_err());
    }

    #[test]
    fn cluster_secret_is_rotated_node_by_node() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let first = b"the secret that all of the nodes had";
        let second = b"the secret that all nodes are given";
        let hop = ForwardToken {
            from: NodeId::from_u128(1),
            to: NodeId::from_u128(2),
            request: "GET /v1/worlds".to_owned(),
            body: body_hash(b""),
            principal: None,
        };
        let believes =
            |other: &NodeKeys, keys: &NodeKeys| other.verify_token(&keys.sign_token(&hop, now).unwrap(), now).is_ok();
        let old_keys = NodeKeys::new(first, None);
        let new_keys = NodeKeys::new(second, None);
        // All nodes know the new secret before a node signs with the new secret.
        let prepared = NodeKeys::new(first, Some(second));
        let changed = NodeKeys::new(second, Some(first));
        assert!(believes(&prepared, &old_keys) && believes(&old_keys, &prepared));
        assert!(believes(&changed, &prepared) && believes(&prepared, &changed));
        assert!(believes(&changed, &new_keys) && believes(&new_keys, &changed));
        assert!(!believes(&new_keys, &old_keys) && !believes(&old_keys, &changed));
    }
}
