//! The signed header by which one node believes another: from which node to which, for which request
//! with which body, and for whom. It is good once, for a few seconds and for one node.

use std::time::Duration;

use actix_web::{HttpMessage, HttpRequest, web};
use chrono::{DateTime, Utc};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use moka::sync::Cache;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::Nodes;
use crate::{
    http::{
        AppState,
        errors::{Code, Problem},
    },
    ids::NodeId,
    memory::text::hexadecimal,
    tenancy::Principal,
};

/// Where it is sent.
pub const HEADER: &str = "x-colloquy-hop";
/// How long it is good for, in seconds; clocks may differ by as much.
const LIFE_S: i64 = 10;
/// How long it is remembered that a hop came: until its end, by the clock that is furthest behind.
const SEEN_FOR: Duration = Duration::from_secs(3 * LIFE_S as u64);
/// Keeps it apart from every other token, should a secret be used twice.
const AUDIENCE: &str = "colloquy-nodes";

/// What a hop says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    pub from: NodeId,
    pub to: NodeId,
    /// Method, a space, path and query.
    pub request: String,
    /// SHA-256 of the body, in hexadecimal digits.
    pub body: String,
    /// Whose request it is: verified by the first node, and counted there for its tenant. `None`: the
    /// node's own.
    pub who: Option<Principal>,
}

impl Hop {
    /// Whether the request came to this very node before, and was counted here.
    pub fn is_to_itself(&self) -> bool {
        self.from == self.to
    }
}

#[derive(Serialize, Deserialize)]
struct Claims {
    #[serde(flatten)]
    hop: Hop,
    aud: String,
    /// Random, so that it is known when it comes a second time.
    jti: String,
    iat: i64,
    exp: i64,
}

/// A hop that was believed: of a request that is being handled.
struct Accepted(Hop);

/// As [`Hop::body`].
pub(super) fn hash_of(body: &[u8]) -> String {
    hexadecimal(&Sha256::digest(body))
}

/// The shared secret as keys.
pub(super) struct Keys {
    sign: EncodingKey,
    /// The secret's, and that of the one before.
    verify: Vec<DecodingKey>,
    /// For what a node sends itself, which is not counted again: no other node knows this one.
    sign_own: EncodingKey,
    verify_own: DecodingKey,
    rules: Validation,
    /// Those that came. Only nodes can add to it.
    seen: Cache<String, ()>,
}

impl Keys {
    pub(super) fn new(secret: &[u8], previous: Option<&[u8]>) -> Self {
        let mut rules = Validation::new(Algorithm::HS256);
        rules.set_audience(&[AUDIENCE]);
        rules.set_required_spec_claims(&["exp", "aud"]);
        // By the clock that is handed in.
        rules.validate_exp = false;
        let own: [u8; 32] = rand::random();
        Self {
            sign_own: EncodingKey::from_secret(&own),
            verify_own: DecodingKey::from_secret(&own),
            sign: EncodingKey::from_secret(secret),
            verify: [secret]
                .into_iter()
                .chain(previous)
                .map(DecodingKey::from_secret)
                .collect(),
            rules,
            seen: Cache::builder().time_to_live(SEEN_FOR).build(),
        }
    }

    pub(super) fn sign(&self, hop: &Hop, now: DateTime<Utc>) -> Result<String, Problem> {
        let claims = Claims {
            hop: hop.clone(),
            aud: AUDIENCE.to_owned(),
            jti: format!("{:032x}", rand::random::<u128>()),
            iat: now.timestamp(),
            exp: now.timestamp() + LIFE_S,
        };
        let key = if hop.is_to_itself() { &self.sign_own } else { &self.sign };
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, key).map_err(|error| Problem::internal(&error))
    }

    fn verify(&self, text: &str, now: DateTime<Utc>) -> Result<Claims, &'static str> {
        let read = |key| jsonwebtoken::decode::<Claims>(text, key, &self.rules).ok();
        let by_another = |hop: &Hop| !hop.is_to_itself();
        let claims = match read(&self.verify_own) {
            Some(own) => own.claims,
            None => self
                .verify
                .iter()
                .find_map(read)
                .map(|read| read.claims)
                .filter(|claims| by_another(&claims.hop))
                .ok_or("it is not signed by a node")?,
        };
        let (now, lives) = (now.timestamp(), claims.exp.saturating_sub(claims.iat));
        if claims.exp <= now || claims.iat > now + LIFE_S || lives > LIFE_S {
            return Err("it has expired");
        }
        Ok(claims)
    }

    /// Whether a hop comes for the first time.
    fn is_new(&self, claims: &Claims) -> bool {
        self.seen.entry_by_ref(&claims.jti).or_insert(()).is_fresh()
    }
}

/// The hop a request came by. `None`: it came from a client. Its body is [`check_body`]'s.
///
/// # Errors
/// A hop that no node signed for this request and this node, or that came before: 401.
pub fn accepted(request: &HttpRequest) -> Result<Option<Hop>, Problem> {
    if let Some(Accepted(hop)) = request.extensions().get() {
        return Ok(Some(hop.clone()));
    }
    let nodes = request
        .app_data::<web::Data<AppState>>()
        .and_then(|state| state.nodes.as_ref());
    match nodes {
        Some(nodes) => verified(nodes, request),
        None if request.headers().contains_key(HEADER) => Err(refuse("this server is alone")),
        None => Ok(None),
    }
}

/// As [`accepted`], of a request that has not been looked at before.
pub(super) fn verified(nodes: &Nodes, request: &HttpRequest) -> Result<Option<Hop>, Problem> {
    let Some(value) = request.headers().get(HEADER) else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| refuse("it is not signed by a node"))?;
    let claims = nodes.keys.verify(text, nodes.clock.now()).map_err(refuse)?;
    let hop = &claims.hop;
    if hop.to != nodes.neighbours.own() {
        return Err(refuse("it is meant for another node"));
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    if hop.request != format!("{} {path}", request.method()) {
        return Err(refuse("it is meant for another request"));
    }
    if !nodes.keys.is_new(&claims) {
        return Err(refuse("it was used before"));
    }
    request.extensions_mut().insert(Accepted(claims.hop.clone()));
    Ok(Some(claims.hop))
}

/// Whether the body of a request is the one that its hop was signed for. Without a hop any is.
///
/// # Errors
/// It is another: 401.
pub fn check_body(request: &HttpRequest, body: &[u8]) -> Result<(), Problem> {
    match accepted(request)? {
        Some(hop) if hop.body != hash_of(body) => Err(refuse("it is meant for another body")),
        _ => Ok(()),
    }
}

fn refuse(why: &str) -> Problem {
    Problem::new(Code::Unauthenticated, format!("the hop is not valid: {why}"))
}

/// Reads a hop as [`accepted`] does, but for what the request itself has to say.
#[cfg(feature = "fuzzing")]
pub(crate) fn read(text: &str, secret: &[u8], now: DateTime<Utc>) -> Result<Hop, &'static str> {
    Keys::new(secret, None).verify(text, now).map(|claims| claims.hop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn a_hop_is_believed_for_a_moment_and_from_a_node_only() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let keys = Keys::new(b"a secret that all of the nodes know", None);
        let hop = Hop {
            from: NodeId::from_u128(1),
            to: NodeId::from_u128(2),
            request: "POST /v1/sessions/ses_1/turns".to_owned(),
            body: hash_of(b"{}"),
            who: None,
        };
        let signed = keys.sign(&hop, now).unwrap();
        let claims = keys.verify(&signed, now).unwrap();
        assert_eq!(claims.hop, hop);
        assert!(keys.is_new(&claims) && !keys.is_new(&claims));
        let again = keys.verify(&keys.sign(&hop, now).unwrap(), now).unwrap();
        assert!(keys.is_new(&again), "it is another one of the same request");
        assert!(keys.verify(&signed, now + TimeDelta::seconds(LIFE_S)).is_err());
        assert!(keys.verify(&signed, now - TimeDelta::seconds(LIFE_S + 1)).is_err());
        assert!(
            Keys::new(b"another secret of somebody else, long", None)
                .verify(&signed, now)
                .is_err()
        );
        let mut forged = signed.into_bytes();
        let at = forged.len() / 2;
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        assert!(keys.verify(std::str::from_utf8(&forged).unwrap(), now).is_err());
    }

    #[test]
    fn no_other_node_can_say_that_a_request_was_here_before() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let secret = b"a secret that all of the nodes know";
        let (keys, others) = (Keys::new(secret, None), Keys::new(secret, None));
        let hop = Hop {
            from: NodeId::from_u128(1),
            to: NodeId::from_u128(1),
            request: "GET /v1/worlds".to_owned(),
            body: hash_of(b""),
            who: None,
        };
        assert!(keys.verify(&keys.sign(&hop, now).unwrap(), now).is_ok());
        assert!(keys.verify(&others.sign(&hop, now).unwrap(), now).is_err());
        // Nor with the secret itself.
        let shared = Keys {
            sign_own: EncodingKey::from_secret(secret),
            ..Keys::new(secret, None)
        };
        assert!(keys.verify(&shared.sign(&hop, now).unwrap(), now).is_err());
    }

    #[test]
    fn a_secret_is_replaced_node_by_node() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let (first, second) = (
            b"the secret that all of the nodes had",
            b"the secret that all nodes are given",
        );
        let hop = Hop {
            from: NodeId::from_u128(1),
            to: NodeId::from_u128(2),
            request: "GET /v1/worlds".to_owned(),
            body: hash_of(b""),
            who: None,
        };
        let believes = |other: &Keys, keys: &Keys| other.verify(&keys.sign(&hop, now).unwrap(), now).is_ok();
        let (old, new) = (Keys::new(first, None), Keys::new(second, None));
        // The new secret is known to all before any signs with it.
        let told = Keys::new(first, Some(second));
        let changed = Keys::new(second, Some(first));
        assert!(believes(&told, &old) && believes(&old, &told));
        assert!(believes(&changed, &told) && believes(&told, &changed));
        assert!(believes(&changed, &new) && believes(&new, &changed));
        assert!(!believes(&new, &old) && !believes(&old, &changed));
    }
}
