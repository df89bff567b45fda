//! The forward token: a signed header by which one node trusts another. A token names both nodes, the request, its body
//! and the caller. A token is valid once, for a few seconds and for one node.

use actix_web::{HttpMessage, HttpRequest, web};

use super::{
    client::NodeClient,
    node_keys::{FORWARD_TOKEN_HEADER, ForwardToken, body_hash},
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

fn invalid_token_error(reason: &str) -> Problem {
    Problem::new(Code::Unauthenticated, format!("the hop is not valid: {reason}"))
}
