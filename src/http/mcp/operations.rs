//! Operations of REST, called inside the process. Routes, middleware and extractors are those of a request over
//! TCP, so a caller can do neither more nor less.

use std::{net::SocketAddr, rc::Rc};

use actix_http::{BoxedPayloadStream, Method, Payload, Request, StatusCode, error::PayloadError};
use actix_service::{
    IntoServiceFactory as _, Service as _, ServiceExt as _, ServiceFactory as _,
    boxed::{self, BoxService},
    map_config,
};
use actix_web::{
    App, HttpMessage as _, HttpRequest,
    body::{self, BoxBody},
    dev::{AppConfig, ServiceResponse},
    http::header::{self, HeaderName, HeaderValue},
    web,
};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::{AppState, context, errors::Problem, extract::CountedRequest};

/// The largest answer of an operation that becomes a result, in bytes.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// The operations of REST, as a service of one worker.
pub type LocalOperations = BoxService<Request, ServiceResponse<BoxBody>, actix_web::Error>;

/// Builds the routes of REST once more, for calls without a connection.
///
/// # Errors
/// The routes cannot be built: a defect.
pub async fn build_operations(state: web::Data<AppState>) -> Result<LocalOperations, Problem> {
    let app = App::new().app_data(state).configure(crate::configure_operations);
    let factory = map_config(app.into_factory(), |()| AppConfig::default());
    let service = factory
        .new_service(())
        .await
        .map_err(|()| Problem::internal_error(&"the operations of REST could not be built"))?;
    Ok(boxed::service(service.map(ServiceResponse::map_into_boxed_body)))
}

/// A request to an operation.
#[derive(Debug)]
pub struct OperationRequest {
    pub method: Method,
    /// The path and the query, percent-encoded.
    pub uri: String,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// JSON.
    pub body: Option<Bytes>,
}

impl OperationRequest {
    /// A request that reads.
    pub fn get(uri: String) -> Self {
        Self {
            method: Method::GET,
            uri,
            headers: Vec::new(),
            body: None,
        }
    }
}

/// The answer of an operation.
#[derive(Debug)]
pub struct OperationAnswer {
    pub status: StatusCode,
    pub etag: Option<String>,
    /// Null without a body.
    pub body: Value,
}

struct OperationCall {
    request: OperationRequest,
    answer: oneshot::Sender<Result<OperationAnswer, Problem>>,
}

/// Calls operations with the token of one request. The calls run on the worker of the request.
#[derive(Clone)]
pub struct OperationClient {
    calls: mpsc::UnboundedSender<OperationCall>,
}

/// What the calls of a request have in common.
struct CallFrame {
    authorization: Option<HeaderValue>,
    request_id: Option<HeaderValue>,
    peer: Option<SocketAddr>,
}

impl OperationClient {
    /// Starts to take calls for `request`, until the last clone is dropped.
    pub fn start(operations: Rc<LocalOperations>, request: &HttpRequest) -> Self {
        let frame = Rc::new(CallFrame {
            authorization: request.headers().get(header::AUTHORIZATION).cloned(),
            request_id: context::request_id(request).and_then(|id| id.try_into().ok()),
            peer: request.peer_addr(),
        });
        let (calls, mut queue) = mpsc::unbounded_channel::<OperationCall>();
        actix_web::rt::spawn(async move {
            while let Some(OperationCall { request, mut answer }) = queue.recv().await {
                let operations = Rc::clone(&operations);
                let frame = Rc::clone(&frame);
                actix_web::rt::spawn(async move {
                    let outcome = tokio::select! {
                        // As for a connection that the client closes: handlers finish what must be finished.
                        () = answer.closed() => return,
                        outcome = perform(&operations, &frame, request) => outcome,
                    };
                    // The receiver may be gone; then nobody needs the answer.
                    let _ = answer.send(outcome);
                });
            }
        });
        Self { calls }
    }

    /// Calls an operation. A refusal of the operation is an answer too.
    ///
    /// # Errors
    /// The operation gave no answer that can be read.
    pub async fn call(&self, request: OperationRequest) -> Result<OperationAnswer, Problem> {
        let (sender, receiver) = oneshot::channel();
        let worker_ended = || Problem::internal_error(&"the worker of a request to /mcp ended");
        self.calls
            .send(OperationCall {
                request,
                answer: sender,
            })
            .map_err(|_| worker_ended())?;
        receiver.await.map_err(|_| worker_ended())?
    }
}

async fn perform(
    operations: &LocalOperations,
    frame: &CallFrame,
    call: OperationRequest,
) -> Result<OperationAnswer, Problem> {
    let body = call.body.clone().map(Ok::<_, PayloadError>);
    let mut request = Request::with_payload(Payload::Stream {
        payload: Box::pin(stream::iter(body)) as BoxedPayloadStream,
    });
    let head = request.head_mut();
    head.method = call.method;
    head.uri = call.uri.parse().map_err(|_| Problem::not_found("resource"))?;
    head.peer_addr = frame.peer;
    let headers = &mut head.headers;
    let caller_headers = [
        (header::AUTHORIZATION, &frame.authorization),
        (context::REQUEST_ID, &frame.request_id),
    ];
    for (name, value) in caller_headers {
        if let Some(value) = value {
            headers.insert(name, value.clone());
        }
    }
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(body) = &call.body {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    for (name, value) in call.headers {
        headers.insert(name, value);
    }
    request.extensions_mut().insert(CountedRequest);
    let response = match operations.call(request).await {
        Ok(response) => response,
        Err(error) => return Err(context::problem_of_error(&error)),
    };
    let status = response.status();
    let header = |name| {
        response
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok().map(str::to_owned))
    };
    let etag = header(header::ETAG);
    let retry_after = header(header::RETRY_AFTER);
    let bytes = body::to_bytes_limited(response.into_body(), MAX_ANSWER_BYTES)
        .await
        .map_err(|_| Problem::internal_error(&"the answer of an operation is too large"))?
        .map_err(|error| Problem::internal_error(&error))?;
    let mut body = if bytes.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&bytes).map_err(|error| Problem::internal_error(&error))?
    };
    if let Some(seconds) = retry_after.and_then(|text| text.parse::<u64>().ok()) {
        body["retry_after_s"] = json!(seconds);
    }
    Ok(OperationAnswer { status, etag, body })
}
