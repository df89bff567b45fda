//! The forward token: a signed header by which one node trusts another. A token names both nodes, the request, its body
//! and the caller. A token is valid once, for a few seconds and for one node.

use actix_web::{HttpMessage, HttpRequest, web};
use chrono::{DateTime, Utc};

use super::{
    client::NodeClient,
    node_keys::{FORWARD_TOKEN_HEADER, ForwardToken, NodeKeys, body_hash},
};
use crate::{
    AppState,
    errors::{Code, Problem},
};

/// The verified token of a request in progress.
struct AcceptedToken(ForwardToken);

/// Returns the forward token of a request; `None` if the request came from a client. [`check_body_hash`] checks the
/// body.
///
/// # Errors
/// 401 if no node signed the token for this request and this node, or if the token was used before.
pub fn forward_token(request: &HttpRequest) -> Result<Option<ForwardToken>, Problem> {
    if let Some(AcceptedToken(hop)) = request.extensions().get() {
        return Ok(Some(hop.clone()));
    }
    let nodes = request
        .app_data::<web::Data<AppState>>()
        .and_then(|state| state.nodes.as_ref());
    match nodes {
        Some(nodes) => verify_forwarded(nodes, request),
        None if request.headers().contains_key(FORWARD_TOKEN_HEADER) => {
            Err(invalid_token_error("this server is alone"))
        }
        None => Ok(None),
    }
}

/// Verifies the token of a new request; see [`forward_token`].
pub(super) fn verify_forwarded(nodes: &NodeClient, request: &HttpRequest) -> Result<Option<ForwardToken>, Problem> {
    let Some(value) = request.headers().get(FORWARD_TOKEN_HEADER) else {
        return Ok(None);
    };
    let text = value
        .to_str()
        .map_err(|_| invalid_token_error("it is not signed by a node"))?;
    let claims = nodes
        .keys
        .verify_token(text, nodes.clock.now())
        .map_err(invalid_token_error)?;
    let hop = &claims.hop;
    if hop.to != nodes.neighbours.own_id() {
        return Err(invalid_token_error("it is meant for another node"));
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    if hop.request != format!("{} {path}", request.method()) {
        return Err(invalid_token_error("it is meant for another request"));
    }
    if !nodes.keys.is_first_use(&claims) {
        return Err(invalid_token_error("it was used before"));
    }
    request.extensions_mut().insert(AcceptedToken(claims.hop.clone()));
    Ok(Some(claims.hop))
}

/// Checks the body against the hash in the forward token. A request without a token passes.
///
/// # Errors
/// 401 if the body differs.
pub fn check_body_hash(request: &HttpRequest, body: &[u8]) -> Result<(), Problem> {
    match forward_token(request)? {
        Some(hop) if hop.body != body_hash(body) => Err(invalid_token_error("it is meant for another body")),
        _ => Ok(()),
    }
}

fn invalid_token_error(why: &str) -> Problem {
    Problem::new(Code::Unauthenticated, format!("the hop is not valid: {why}"))
}

/// Verifies a token as [`verify_forwarded`] does, without the checks against a request.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_forward_token(
    text: &str,
    secret: &[u8],
    now: DateTime<Utc>,
) -> Result<ForwardToken, &'static str> {
    NodeKeys::new(secret, None)
        .verify_token(text, now)
        .map(|claims| claims.hop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use chrono::TimeDelta;

    use super::{super::node_keys::TOKEN_TTL_S, *};
    use colloquy_core::ids::NodeId;
    use jsonwebtoken::EncodingKey;

    #[test]
    fn forward_token_is_accepted_briefly_and_only_from_a_node() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let keys = NodeKeys::new(b"a secret that all of the nodes know", None);
        let hop = ForwardToken {
            from: NodeId::from_u128(1),
            to: NodeId::from_u128(2),
            request: "POST /v1/sessions/ses_1/turns".to_owned(),
            body: body_hash(b"{}"),
            who: None,
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
        let at = forged.len() / 2;
        forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
        assert!(keys.verify_token(std::str::from_utf8(&forged).unwrap(), now).is_err());
    }

    #[test]
    fn own_forward_token_cannot_be_forged_by_another_node() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let secret = b"a secret that all of the nodes know";
        let (keys, others) = (NodeKeys::new(secret, None), NodeKeys::new(secret, None));
        let hop = ForwardToken {
            from: NodeId::from_u128(1),
            to: NodeId::from_u128(1),
            request: "GET /v1/worlds".to_owned(),
            body: body_hash(b""),
            who: None,
        };
        assert!(keys.verify_token(&keys.sign_token(&hop, now).unwrap(), now).is_ok());
        assert!(keys.verify_token(&others.sign_token(&hop, now).unwrap(), now).is_err());
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
        let (first, second) = (
            b"the secret that all of the nodes had",
            b"the secret that all nodes are given",
        );
        let hop = ForwardToken {
            from: NodeId::from_u128(1),
            to: NodeId::from_u128(2),
            request: "GET /v1/worlds".to_owned(),
            body: body_hash(b""),
            who: None,
        };
        let believes =
            |other: &NodeKeys, keys: &NodeKeys| other.verify_token(&keys.sign_token(&hop, now).unwrap(), now).is_ok();
        let (old, new) = (NodeKeys::new(first, None), NodeKeys::new(second, None));
        // All nodes know the new secret before a node signs with the new secret.
        let told = NodeKeys::new(first, Some(second));
        let changed = NodeKeys::new(second, Some(first));
        assert!(believes(&told, &old) && believes(&old, &told));
        assert!(believes(&changed, &told) && believes(&told, &changed));
        assert!(believes(&changed, &new) && believes(&new, &changed));
        assert!(!believes(&new, &old) && !believes(&old, &changed));
    }
}
