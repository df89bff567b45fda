//! REST that came to the wrong node: sent to the owner as it was, and its answer handed back as it comes. A client
//! hears nothing of it if that owner stops or dies meanwhile, as long as it is known that nothing was done, or what was
//! may be asked for again.

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

use super::{Nodes, Unsent};
use crate::{
    http::{
        AppState,
        errors::{Code, Problem, ProblemBody},
        idempotency,
    },
    ids::{DialogueId, NodeId},
    tenancy::{Principal, TenantScope},
};

/// A request's body as it was read, for whoever has to send it on.
pub struct RawBody(pub Bytes);

/// Headers that change what is answered.
const SENT_ON: [&str; 8] = [
    "accept",
    "content-type",
    "idempotency-key",
    "if-match",
    "if-none-match",
    "traceparent",
    "tracestate",
    "x-request-id",
];
/// Headers of the answer that are about this connection, or made here.
const KEPT_BACK: [&str; 9] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "server",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-request-id",
];

/// On a refusal between nodes: who owns the dialogue by the ledger, as the node knows that refuses.
const OWNER: HeaderName = HeaderName::from_static("x-colloquy-owner");

/// How long a request waits for a dialogue that is between two nodes: its owner stops, and gives it up as soon as nothing
/// runs in it, or has just died, and is dead to the others after `node.lease_ms`. The client has waited as long by
/// asking again.
const BETWEEN_NODES: Duration = Duration::from_secs(15);
/// Between two tries.
const STEP: Duration = Duration::from_millis(100);

/// What came of one try.
enum Sent {
    /// It is this.
    Answered(HttpResponse),
    /// Nothing was done there, and this is what to say if nobody else does it; and who owns it, if that node knows.
    Refused(HttpResponse, Option<NodeId>),
    /// Nobody knows what was done there.
    Lost(Problem),
}

/// Another node's answer in place of this one, if this one says that the dialogue is another node's or that this
/// node stops, and the request has not been sent on before. Where that node stops, too, or does not answer, whoever
/// has the dialogue next is asked, which may be this node itself.
pub async fn instead<B: MessageBody>(response: &ServiceResponse<B>, id: &str) -> Option<HttpResponse> {
    let problem = response.response().error()?.as_error::<Problem>()?;
    if problem.owner.is_none() && problem.code != Code::Draining {
        return None;
    }
    let request = response.request();
    let state = request.app_data::<web::Data<AppState>>()?;
    let nodes = state.nodes.as_ref()?;
    if super::accepted(request).ok()?.is_some() {
        return None;
    }
    let who = request.extensions().get::<Principal>().cloned()?;
    let dialogue = dialogue_of(request);
    let mut target = match &problem.owner {
        Some(owner) => **owner,
        None => nodes.another(nodes.neighbours.own()).await?,
    };
    let began = state.services.clock.instant();
    loop {
        let sent = nodes.forward(target, request, id, &who).await;
        let outcome = match &sent {
            Sent::Answered(_) => "answered",
            Sent::Refused(..) => "refused",
            Sent::Lost(_) => "unreachable",
        };
        state.metrics.forwarded.with_label_values(&["request", outcome]).inc();
        let (failed, named) = match sent {
            Sent::Answered(answer) => return Some(answer),
            Sent::Refused(answer, named) => (answer, named),
            Sent::Lost(problem) if may_be_repeated(request) => (problem.response(Some(id)), None),
            Sent::Lost(problem) => {
                nodes.forget(&who, dialogue).await;
                return Some(problem.response(Some(id)));
            }
        };
        let now = state.services.clock.instant();
        if now.saturating_duration_since(began) >= BETWEEN_NODES {
            nodes.forget(&who, dialogue).await;
            return Some(failed);
        }
        target = nodes.next(target, named, state, &who, dialogue).await;
        tokio::time::sleep(STEP).await;
    }
}

/// `/v1/<kind>/<id>…`, the id perhaps with a verb.
pub fn dialogue_of(request: &HttpRequest) -> Option<DialogueId> {
    let segment = request.path().split('/').nth(3)?;
    segment.split(':').next()?.parse().ok()
}

/// Whether it comes to the same if it is done twice. Its handler was here before it was sent on, and took the key if
/// that route has one.
fn may_be_repeated(request: &HttpRequest) -> bool {
    request.method().is_safe() || idempotency::is_keyed(request)
}

/// Tells a node that sent this on who owns the dialogue. A client is not told.
pub fn name_owner(request: &HttpRequest, problem: &Problem, response: &mut HttpResponse) {
    if let Some(owner) = &problem.owner
        && matches!(super::accepted(request), Ok(Some(_)))
        && let Ok(value) = HeaderValue::from_str(&owner.to_string())
    {
        response.headers_mut().insert(OWNER, value);
    }
}

impl Nodes {
    async fn forward(&self, owner: NodeId, request: &HttpRequest, id: &str, who: &Principal) -> Sent {
        match self.send_on(owner, request, id, who).await {
            Ok(answer) if answer.status() == StatusCode::SERVICE_UNAVAILABLE.as_u16() => refused(answer).await,
            Ok(answer) => self.handed_back(owner, answer).map_or_else(Sent::Lost, Sent::Answered),
            Err(Unsent::Nothing(problem)) => Sent::Refused(problem.response(Some(id)), None),
            Err(Unsent::Unknown(problem)) => Sent::Lost(problem),
        }
    }

    async fn send_on(
        &self,
        owner: NodeId,
        request: &HttpRequest,
        id: &str,
        who: &Principal,
    ) -> Result<Response, Unsent> {
        let method = Method::from_bytes(request.method().as_str().as_bytes())
            .map_err(|error| Unsent::Nothing(Problem::internal(&error)))?;
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let body = request.extensions().get().map(|RawBody(body)| body.clone());
        let sent = self
            .request(owner, method, path, Some(who), body.unwrap_or_default())
            .await;
        let mut sent = sent.map_err(Unsent::Nothing)?;
        for name in SENT_ON {
            if let Some(value) = request.headers().get(name) {
                sent = sent.header(name, value.as_bytes());
            }
        }
        if !request.headers().contains_key("x-request-id") {
            sent = sent.header("x-request-id", id);
        }
        self.try_send(owner, sent).await
    }

    /// A node's answer as this one's, as it comes.
    fn handed_back(&self, owner: NodeId, answer: Response) -> Result<HttpResponse, Problem> {
        let status = StatusCode::from_u16(answer.status().as_u16()).map_err(|error| Problem::internal(&error))?;
        let mut response = HttpResponseBuilder::new(status);
        for (name, value) in answer.headers() {
            if !KEPT_BACK.contains(&name.as_str())
                && let Ok(name) = HeaderName::from_bytes(name.as_str().as_bytes())
            {
                response.append_header((name, value.as_bytes()));
            }
        }
        let neighbours = self.neighbours.clone();
        // A body that ends early would look whole: it breaks instead.
        let died = futures_util::stream::once(async move {
            if owner == neighbours.own() {
                std::future::pending::<()>().await;
            }
            neighbours.gone(owner).await;
            Err(std::io::Error::other("the node that answered died"))
        });
        let mut died = Box::pin(died);
        let mut body = Box::pin(answer.bytes_stream().map_err(std::io::Error::other));
        Ok(response.streaming(futures_util::stream::poll_fn(move |cx| {
            match body.poll_next_unpin(cx) {
                std::task::Poll::Pending => died.poll_next_unpin(cx),
                std::task::Poll::Ready(part) => std::task::Poll::Ready(part),
            }
        })))
    }

    /// Whom to ask after `last` has not answered: this node, which then asks the ledger, unless it stops; and whoever
    /// has the dialogue by that, which is `named` in the refusal.
    async fn next(
        &self,
        last: NodeId,
        named: Option<NodeId>,
        state: &AppState,
        who: &Principal,
        dialogue: Option<DialogueId>,
    ) -> NodeId {
        let own = self.neighbours.own();
        if last != own && !state.sessions.is_draining() {
            self.forget(who, dialogue).await;
            return own;
        }
        if let Some(named) = named.filter(|named| *named != own && *named != last) {
            return named;
        }
        if let (Some(owners), Some(dialogue)) = (&self.owners, dialogue)
            && let Ok(Some(owner)) = owners.owner(&who.scope(), dialogue).await
            && owner != own
            && owner != last
        {
            return owner;
        }
        if state.sessions.is_draining() {
            // Who was asked last stops too, or has died: nobody else corrects what is remembered.
            self.forget(who, dialogue).await;
            return self.another(last).await.unwrap_or(last);
        }
        own
    }

    /// Any other node that lives, but the one that was asked last.
    async fn another(&self, last: NodeId) -> Option<NodeId> {
        let mut others = self.neighbours.others().await.ok()?;
        others.retain(|node| node.id != last);
        let at = rand::random_range(0..others.len().max(1));
        others.get(at).map(|node| node.id)
    }

    async fn forget(&self, who: &Principal, dialogue: Option<DialogueId>) {
        if let Some(dialogue) = dialogue {
            self.forget_owner_of(&who.scope(), dialogue).await;
        }
    }

    /// Whoever comes next asks the ledger who owns it.
    pub(in crate::http) async fn forget_owner_of(&self, scope: &TenantScope, dialogue: DialogueId) {
        if let Some(owners) = &self.owners
            && let Err(error) = owners.forget(scope, dialogue).await
        {
            tracing::debug!(%error, "an owner could not be forgotten");
        }
    }
}

/// What a node says that does not do it. That it has not to, or stops, is no answer: somebody else will.
async fn refused(answer: Response) -> Sent {
    let wait = answer.headers().get("retry-after").cloned();
    let named = answer.headers().get(OWNER.as_str());
    let named = named.and_then(|owner| owner.to_str().ok()?.parse().ok());
    let Ok(body) = answer.bytes().await else {
        return Sent::Lost(Problem::wrong_node());
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
            Sent::Refused(response, named)
        }
        _ => Sent::Answered(response),
    }
}
