//! REST that came to the wrong node: sent to the owner as it was, and its answer handed back as it comes.

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse, HttpResponseBuilder,
    body::MessageBody,
    dev::ServiceResponse,
    http::{StatusCode, header::HeaderName},
    web,
};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use reqwest::Method;

use super::Nodes;
use crate::{
    http::{AppState, errors::Problem},
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

/// The owner's answer in place of this one, if this one says that the dialogue is another node's and the
/// request has not been sent on before.
pub async fn instead<B: MessageBody>(response: &ServiceResponse<B>, id: &str) -> Option<HttpResponse> {
    let problem = response.response().error()?.as_error::<Problem>()?;
    let owner = *problem.owner.as_deref()?;
    let request = response.request();
    let state = request.app_data::<web::Data<AppState>>()?;
    let nodes = state.nodes.as_ref()?;
    if super::accepted(request).ok()?.is_some() {
        return None;
    }
    let who = request.extensions().get::<Principal>().cloned()?;
    let answer = nodes.forward(owner, request, id, &who).await;
    let outcome = match &answer {
        Ok(answer) if answer.status() == StatusCode::SERVICE_UNAVAILABLE => "refused",
        Ok(_) => "answered",
        Err(_) => "unreachable",
    };
    state.metrics.forwarded.with_label_values(&["request", outcome]).inc();
    if outcome != "answered" {
        nodes.forget_owner(&who, request).await;
    }
    Some(answer.unwrap_or_else(|problem| problem.response(Some(id))))
}

impl Nodes {
    async fn forward(
        &self,
        owner: NodeId,
        request: &HttpRequest,
        id: &str,
        who: &Principal,
    ) -> Result<HttpResponse, Problem> {
        let method =
            Method::from_bytes(request.method().as_str().as_bytes()).map_err(|error| Problem::internal(&error))?;
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let mut sent = self.request(owner, method, path, Some(who)).await?;
        for name in SENT_ON {
            if let Some(value) = request.headers().get(name) {
                sent = sent.header(name, value.as_bytes());
            }
        }
        if !request.headers().contains_key("x-request-id") {
            sent = sent.header("x-request-id", id);
        }
        if let Some(RawBody(body)) = request.extensions().get::<RawBody>() {
            sent = sent.body(body.clone());
        }
        let answer = self.send(owner, sent).await?;
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

    async fn forget_owner(&self, who: &Principal, request: &HttpRequest) {
        // `/v1/<kind>/<id>…`, the id perhaps with a verb.
        let dialogue = request.path().split('/').nth(3).and_then(|segment| {
            let id = segment.split(':').next()?;
            id.parse::<DialogueId>().ok()
        });
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
