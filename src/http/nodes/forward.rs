//! Forwards a REST request that reached the wrong node, and streams the owner's answer back unchanged.
//! Clients do not notice an owner that stops or dies meanwhile. Two cases are covered: the owner did no work, or the
//! request is safe to repeat.

use std::time::Duration;

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse, HttpResponseBuilder,
    body::MessageBody,
    dev::ServiceResponse,
    http::{
        StatusCode,
        header::{HeaderName, HeaderValue},
    },
    web,
};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use reqwest::{Method, Response};

use super::client::{NodeClient, NodeSendError};
use crate::{
    AppState,
    errors::{Code, Problem, ProblemBody},
    idempotency,
};
use colloquy_core::{
    ids::{DialogueId, NodeId},
    scope::{Principal, TenantScope},
};

/// A request's body as the extractor read it, for forwarding.
pub struct RawBody(pub Bytes);

/// The dialogue of a request whose path does not name the dialogue.
pub struct DialogueOfRequest(DialogueId);

impl DialogueOfRequest {
    /// Notes the dialogue, for a forward to its owner.
    pub fn set(request: &HttpRequest, dialogue: DialogueId) {
        request.extensions_mut().insert(Self(dialogue));
    }
}

/// Request headers that influence the answer.
const FORWARDED_HEADERS: &str = "accept content-type idempotency-key if-match if-none-match origin traceparent tracestate x-colloquy-session x-request-id";
/// Answer headers that belong to this connection, or that this node sets.
const UNRELAYED_HEADERS: &str =
    "connection content-length date keep-alive server trailer transfer-encoding upgrade x-request-id";

/// Names the ledger's owner of the dialogue, as known to the refusing node. Set only on refusals between nodes.
const OWNER_HEADER: HeaderName = HeaderName::from_static("x-colloquy-owner");

/// How long a request waits for a dialogue that is between two nodes. A stopping owner releases the dialogue as soon as
/// no work runs in it. A dead owner counts as dead after `node.lease_ms`. A client that retried would wait equally
/// long.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(15);
/// The pause between two attempts.
const FORWARD_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The result of one attempt.
enum ForwardOutcome {
    /// The final answer.
    Answered(HttpResponse),
    /// The node did no work. Holds the answer for the client if every attempt fails, and the owner if that node knows
    /// the owner.
    NotHandled(HttpResponse, Option<NodeId>),
    /// The node may or may not have done the work.
    Unknown(Problem),
}

/// Returns another node's answer in place of this node's refusal.
/// Forwards if this node stops or does not own the dialogue, and the request was not forwarded before. If the target
/// stops too, or does not answer, the next owner gets the request. The next owner may be this node.
pub async fn forward_if_remote<B: MessageBody>(response: &ServiceResponse<B>, id: &str) -> Option<HttpResponse> {
    let problem = response.response().error()?.as_error::<Problem>()?;
    if problem.owner.is_none() && problem.code != Code::Draining {
        return None;
    }
    let request = response.request();
    let state = request.app_data::<web::Data<AppState>>()?;
    let nodes = state.nodes.as_ref()?;
    if super::forward_token(request).ok()?.is_some() {
        return None;
    }
    let principal = request.extensions().get::<Principal>().cloned()?;
    let dialogue = dialogue_of(request);
    let mut target = match &problem.owner {
        Some(owner) => **owner,
        None => nodes.random_other_node(nodes.neighbours.own_id()).await?,
    };
    let started_at = state.services.clock.monotonic_now();
    loop {
        let attempt = nodes.forward_once(target, request, id, &principal).await;
        let outcome = match &attempt {
            ForwardOutcome::Answered(_) => "answered",
            ForwardOutcome::NotHandled(..) => "refused",
            ForwardOutcome::Unknown(_) => "unreachable",
        };
        state.metrics.forwarded.with_label_values(&["request", outcome]).inc();
        let (response, named_owner) = match attempt {
            ForwardOutcome::Answered(answer) => return Some(answer),
            ForwardOutcome::NotHandled(answer, named_owner) => (answer, named_owner),
            ForwardOutcome::Unknown(problem) if is_repeatable(request) => (problem.to_response(Some(id)), None),
            ForwardOutcome::Unknown(problem) => {
                nodes.forget_owner(&principal, dialogue).await;
                return Some(problem.to_response(Some(id)));
            }
        };
        let now = state.services.clock.monotonic_now();
        if now.saturating_duration_since(started_at) >= HANDOVER_TIMEOUT {
            nodes.forget_owner(&principal, dialogue).await;
            return Some(response);
        }
        target = nodes
            .next_target(target, named_owner, state, &principal, dialogue)
            .await;
        tokio::time::sleep(FORWARD_RETRY_DELAY).await;
    }
}

/// Returns the dialogue that a handler noted, or parses the id in `/v1/<kind>/<id>…`; a verb may follow the id.
pub fn dialogue_of(request: &HttpRequest) -> Option<DialogueId> {
    if let Some(DialogueOfRequest(dialogue)) = request.extensions().get() {
        return Some(*dialogue);
    }
    let segment = request.path().split('/').nth(3)?;
    segment.split(':').next()?.parse().ok()
}

/// True if a second execution has the same result. The handler ran here before the forward, and accepted the
/// idempotency key if the route has a key.
fn is_repeatable(request: &HttpRequest) -> bool {
    request.method().is_safe() || idempotency::has_idempotency_key(request)
}

/// Names the dialogue's owner in the response to a node that forwarded the request. Clients do not get the header.
pub fn add_owner_header(request: &HttpRequest, problem: &Problem, response: &mut HttpResponse) {
    if let Some(owner) = &problem.owner
        && matches!(super::forward_token(request), Ok(Some(_)))
        && let Ok(value) = HeaderValue::from_str(&owner.to_string())
    {
        response.headers_mut().insert(OWNER_HEADER, value);
    }
}

impl NodeClient {
    async fn forward_once(
        &self,
        owner: NodeId,
        request: &HttpRequest,
        id: &str,
        principal: &Principal,
    ) -> ForwardOutcome {
        match self.send_to_owner(owner, request, id, principal).await {
            Ok(answer) if answer.status() == StatusCode::SERVICE_UNAVAILABLE.as_u16() => {
                classify_unavailable(answer).await
            }
            Ok(answer) => self
                .relay_response(owner, answer)
                .map_or_else(ForwardOutcome::Unknown, ForwardOutcome::Answered),
            Err(NodeSendError::NotSent(problem)) => ForwardOutcome::NotHandled(problem.to_response(Some(id)), None),
            Err(NodeSendError::MaybeSent(problem)) => ForwardOutcome::Unknown(problem),
        }
    }

    async fn send_to_owner(
        &self,
        owner: NodeId,
        request: &HttpRequest,
        id: &str,
        principal: &Principal,
    ) -> Result<Response, NodeSendError> {
        let method = Method::from_bytes(request.method().as_str().as_bytes())
            .map_err(|error| NodeSendError::NotSent(Problem::internal_error(&error)))?;
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let body = request.extensions().get().map(|RawBody(body)| body.clone());
        let forwarded = self
            .signed_request(owner, method, path, Some(principal), body.unwrap_or_default())
            .await;
        let mut forwarded = forwarded.map_err(NodeSendError::NotSent)?;
        for name in FORWARDED_HEADERS.split(' ') {
            if let Some(value) = request.headers().get(name) {
                forwarded = forwarded.header(name, value.as_bytes());
            }
        }
        if !request.headers().contains_key("x-request-id") {
            forwarded = forwarded.header("x-request-id", id);
        }
        self.try_send_request(owner, forwarded).await
    }

    /// Streams a node's answer to the client as the answer arrives.
    fn relay_response(&self, owner: NodeId, answer: Response) -> Result<HttpResponse, Problem> {
        let status = StatusCode::from_u16(answer.status().as_u16()).map_err(|error| Problem::internal_error(&error))?;
        let mut response = HttpResponseBuilder::new(status);
        for (name, value) in answer.headers() {
            if !UNRELAYED_HEADERS.split(' ').any(|header| header == name.as_str())
                && let Ok(name) = HeaderName::from_bytes(name.as_str().as_bytes())
            {
                response.append_header((name, value.as_bytes()));
            }
        }
        let neighbours = self.neighbours.clone();
        // A body that ends early would look complete, so the stream fails with an error instead.
        let death = futures_util::stream::once(async move {
            if owner == neighbours.own_id() {
                std::future::pending::<()>().await;
            }
            neighbours.wait_until_dead(owner).await;
            Err(std::io::Error::other("the node that answered died"))
        });
        let mut death = Box::pin(death);
        let mut body = Box::pin(answer.bytes_stream().map_err(std::io::Error::other));
        Ok(response.streaming(futures_util::stream::poll_fn(move |cx| {
            match body.poll_next_unpin(cx) {
                std::task::Poll::Pending => death.poll_next_unpin(cx),
                std::task::Poll::Ready(part) => std::task::Poll::Ready(part),
            }
        })))
    }

    /// Chooses the node for the next attempt after `last_target` did not answer.
    /// This node comes first and reads the owner from the ledger, unless this node stops. The `named_owner` of the
    /// refusal comes next.
    async fn next_target(
        &self,
        last_target: NodeId,
        named_owner: Option<NodeId>,
        state: &AppState,
        principal: &Principal,
        dialogue: Option<DialogueId>,
    ) -> NodeId {
        let own_id = self.neighbours.own_id();
        if last_target != own_id && !state.sessions.is_draining() {
            self.forget_owner(principal, dialogue).await;
            return own_id;
        }
        if let Some(named_owner) =
            named_owner.filter(|named_owner| *named_owner != own_id && *named_owner != last_target)
        {
            return named_owner;
        }
        if let (Some(owners), Some(dialogue)) = (&self.owners, dialogue)
            && let Ok(Some(owner)) = owners.load_owner(&principal.scope(), dialogue).await
            && owner != own_id
            && owner != last_target
        {
            return owner;
        }
        if state.sessions.is_draining() {
            // The last target stops too, or has died. No other node corrects the cached owner.
            self.forget_owner(principal, dialogue).await;
            return self.random_other_node(last_target).await.unwrap_or(last_target);
        }
        own_id
    }

    async fn random_other_node(&self, last_target: NodeId) -> Option<NodeId> {
        let mut neighbours = self.neighbours.refresh_others().await.ok()?;
        neighbours.retain(|node| node.id != last_target);
        let index = rand::random_range(0..neighbours.len().max(1));
        neighbours.get(index).map(|node| node.id)
    }

    async fn forget_owner(&self, principal: &Principal, dialogue: Option<DialogueId>) {
        if let Some(dialogue) = dialogue {
            self.forget_owner_of(&principal.scope(), dialogue).await;
        }
    }

    /// Drops the cached owner, and the next request reads the owner from the ledger.
    pub(crate) async fn forget_owner_of(&self, scope: &TenantScope, dialogue: DialogueId) {
        if let Some(owners) = &self.owners
            && let Err(error) = owners.forget_owner(scope, dialogue).await
        {
            tracing::debug!(%error, "a cached owner could not be removed");
        }
    }
}

/// Reads a 503. "Not the owner" and "stopping" are no final answers: another node will answer.
async fn classify_unavailable(answer: Response) -> ForwardOutcome {
    let wait = answer.headers().get("retry-after").cloned();
    let owner = answer.headers().get(OWNER_HEADER.as_str());
    let owner = owner.and_then(|owner| owner.to_str().ok()?.parse().ok());
    let Ok(body) = answer.bytes().await else {
        return ForwardOutcome::Unknown(Problem::wrong_node());
    };
    let code = serde_json::from_slice::<ProblemBody>(&body).map(|problem| problem.code);
    let mut response = HttpResponse::ServiceUnavailable();
    response.content_type("application/problem+json");
    if let Some(wait) = wait {
        response.insert_header(("retry-after", wait.as_bytes()));
    }
    let response = response.body(body);
    match code.as_deref() {
        Ok(code) if [Code::Draining.as_str(), Code::WrongNode.as_str()].contains(&code) => {
            ForwardOutcome::NotHandled(response, owner)
        }
        _ => ForwardOutcome::Answered(response),
    }
}
