//! The signed header by which one node believes another: from which node to which, for which request,
//! and for whom. It is good for a few seconds, for one path and for one node.

use actix_web::{HttpRequest, web};
use chrono::{DateTime, Utc};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

use crate::{
    http::{
        AppState,
        errors::{Code, Problem},
    },
    ids::NodeId,
    tenancy::Principal,
};

/// Where it is sent.
pub const HEADER: &str = "x-colloquy-hop";
/// How long it is good for, in seconds; clocks may differ by as much.
const LIFE_S: i64 = 30;
/// Keeps it apart from every other token, should a secret be used twice.
const AUDIENCE: &str = "colloquy-nodes";

/// What a hop says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    pub from: NodeId,
    pub to: NodeId,
    /// Method, a space, path and query.
    pub request: String,
    /// Whose request it is: verified, and counted against its limits, by the first node. `None`: the
    /// node's own.
    pub who: Option<Principal>,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    #[serde(flatten)]
    hop: Hop,
    aud: String,
    iat: i64,
    exp: i64,
}

/// The shared secret as keys.
pub(super) struct Keys {
    sign: EncodingKey,
    /// The secret's, and that of the one before.
    verify: Vec<DecodingKey>,
    rules: Validation,
}

impl Keys {
    pub(super) fn new(secret: &[u8], previous: Option<&[u8]>) -> Self {
        let mut rules = Validation::new(Algorithm::HS256);
        rules.set_audience(&[AUDIENCE]);
        rules.set_required_spec_claims(&["exp", "aud"]);
        // By the clock that is handed in.
        rules.validate_exp = false;
        Self {
            sign: EncodingKey::from_secret(secret),
            verify: [secret]
                .into_iter()
                .chain(previous)
                .map(DecodingKey::from_secret)
                .collect(),
            rules,
        }
    }

    pub(super) fn sign(&self, hop: &Hop, now: DateTime<Utc>) -> Result<String, Problem> {
        let claims = Claims {
            hop: hop.clone(),
            aud: AUDIENCE.to_owned(),
            iat: now.timestamp(),
            exp: now.timestamp() + LIFE_S,
        };
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &self.sign)
            .map_err(|error| Problem::internal(&error))
    }

    fn verify(&self, text: &str, now: DateTime<Utc>) -> Result<Hop, &'static str> {
        let read = |key| jsonwebtoken::decode::<Claims>(text, key, &self.rules).ok();
        let claims = self
            .verify
            .iter()
            .find_map(read)
            .ok_or("it is not signed by a node")?
            .claims;
        if claims.exp <= now.timestamp() || claims.iat > now.timestamp() + LIFE_S {
            return Err("it has expired");
        }
        Ok(claims.hop)
    }
}

/// The hop a request came by. `None`: it came from a client.
///
/// # Errors
/// A hop that no node signed for this request and this node: 401.
pub fn accepted(request: &HttpRequest) -> Result<Option<Hop>, Problem> {
    let Some(value) = request.headers().get(HEADER) else {
        return Ok(None);
    };
    let refuse = |why: &str| Problem::new(Code::Unauthenticated, format!("the hop is not valid: {why}"));
    let nodes = request
        .app_data::<web::Data<AppState>>()
        .and_then(|state| state.nodes.as_ref())
        .ok_or_else(|| refuse("this server is alone"))?;
    let text = value.to_str().map_err(|_| refuse("it is not signed by a node"))?;
    let hop = nodes.keys.verify(text, nodes.clock.now()).map_err(refuse)?;
    if hop.to != nodes.neighbours.own() {
        return Err(refuse("it is meant for another node"));
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    if hop.request != format!("{} {path}", request.method()) {
        return Err(refuse("it is meant for another request"));
    }
    Ok(Some(hop))
}

/// Reads a hop as [`accepted`] does, but for what the request itself has to say.
#[cfg(feature = "fuzzing")]
pub(crate) fn read(text: &str, secret: &[u8], now: DateTime<Utc>) -> Result<Hop, &'static str> {
    Keys::new(secret, None).verify(text, now)
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
            who: None,
        };
        let signed = keys.sign(&hop, now).unwrap();
        assert_eq!(keys.verify(&signed, now), Ok(hop));
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
