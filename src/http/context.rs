//! The frame of every request: its id, its span, its metrics, and the final form of errors outside the handlers.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use actix_web::{
    Error, HttpMessage, HttpRequest, HttpResponse,
    body::{BodySize, BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        ConnectionType, Method,
        header::{HeaderName, HeaderValue, VARY},
    },
    middleware::Next,
    web,
};
use bytes::Bytes;
use tracing::Span;
use tracing_actix_web::RootSpanBuilder;

use super::{
    AppState,
    errors::{Code, Problem},
    extract, method_not_allowed, nodes,
    openai::{
        errors::{to_openai_response, translate_forwarded},
        is_openai_path,
    },
    openapi,
};
use colloquy_core::scope::Role;
use colloquy_telemetry as telemetry;
use colloquy_tenancy::limits::RequestInFlight;
use colloquy_transport::{RequestGuard, TcpConnection};

/// The header with the id of a request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a request: the client's `X-Request-Id`, or a generated id.
#[derive(Debug, Clone)]
struct RequestId(String);

/// The id of a request that has passed [`with_request_context`].
pub fn request_id(request: &HttpRequest) -> Option<String> {
    request.extensions().get::<RequestId>().map(|id| id.0.clone())
}

/// The refusal of a method that a verb such as `…:import` does not offer. The pattern of the object's route matches the
/// path of the verb too, and would take the verb for a part of the id.
fn method_of_verb_problem(request: &ServiceRequest) -> Option<Problem> {
    let path = request.path();
    // A POST is for a verb, as no route of an object offers POST.
    let is_of_object = !matches!(*request.method(), Method::HEAD | Method::POST);
    if !is_of_object
        || !path
            .rsplit('/')
            .next()
            .is_some_and(|last_segment| last_segment.contains(':'))
    {
        return None;
    }
    let methods = openapi::methods_of(path)?;
    let is_offered = methods.split(", ").any(|method| method == request.method().as_str());
    (!is_offered).then(|| method_not_allowed(&methods))
}

/// Assigns the request id, counts the request, and adds the id to problem documents.
pub async fn with_request_context<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let state = request.app_data::<web::Data<AppState>>().cloned();
    let id = client_request_id(&request).unwrap_or_else(|| format!("req_{:032x}", rand::random::<u128>()));
    request.extensions_mut().insert(RequestId(id.clone()));
    let started = state.as_ref().map(|state| state.services.clock.monotonic_now());
    let connection = request.request().conn_data::<Arc<TcpConnection>>().cloned();
    let answering = connection.as_ref().map(TcpConnection::begin_request);
    let in_reserve = connection.is_some_and(|connection| connection.is_in_reserve());

    // Errors of handlers are already responses here. An `Err` comes from a middleware and no longer has its request.
    let result = if in_reserve && !may_use_reserve(&request).await {
        let full = Problem::new(Code::Overloaded, "this server has as many connections as it can have");
        Ok(request.error_response(full))
    } else if let Some(problem) = method_of_verb_problem(&request) {
        Ok(request.error_response(problem))
    } else {
        next.call(request).await.map(ServiceResponse::map_into_boxed_body)
    };
    let mut response = match result {
        Ok(response) => match nodes::forward_if_remote(&response, &id).await {
            Some(answer) => with_forwarded_answer(response, answer).await,
            None => with_problem_body(response, &id),
        },
        Err(error) => return Err(problem_of_error(&error).into()),
    };
    if in_reserve {
        response
            .response_mut()
            .head_mut()
            .set_connection_type(ConnectionType::Close);
    }
    if matches!(response.response().body().size(), BodySize::Stream) {
        // A stream counts as a running request, and its connection is not idle, even while no bytes come.
        let under_way = response.request().extensions_mut().remove::<RequestInFlight>();
        let request_guards = (answering, under_way);
        response = response.map_body(|_, body| {
            StreamedBody {
                body,
                _held: request_guards,
            }
            .boxed()
        });
    }
    if let Ok(request_id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, request_id);
    }
    if let (Some(state), Some(started)) = (state, started) {
        count_request(&state, &response, started);
    }
    Ok(response)
}

/// Replaces the response by the answer of another node.
async fn with_forwarded_answer(response: ServiceResponse<BoxBody>, answer: HttpResponse) -> ServiceResponse<BoxBody> {
    let (request, _) = response.into_parts();
    let answer = if is_openai_path(request.path()) {
        translate_forwarded(answer).await
    } else {
        answer
    };
    ServiceResponse::new(request, answer)
}

/// Counts a request that began at `started`, and its time.
fn count_request(state: &AppState, response: &ServiceResponse<BoxBody>, started: Instant) {
    let route = response
        .request()
        .match_pattern()
        .unwrap_or_else(|| "unmatched".to_owned());
    let method = response.request().method().as_str();
    // Clients choose method names freely, but labels must stay few.
    let method = if matches!(method, "GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD" | "OPTIONS") {
        method
    } else {
        "other"
    };
    let status = response.status();
    state
        .metrics
        .requests
        .with_label_values(&[method, &route, status.as_str()])
        .inc();
    let elapsed = state.services.clock.monotonic_now().duration_since(started);
    state
        .metrics
        .latency
        .with_label_values(&[route.as_str()])
        .observe(elapsed.as_secs_f64());
}

struct StreamedBody {
    body: BoxBody,
    _held: (Option<RequestGuard>, Option<RequestInFlight>),
}

impl MessageBody for StreamedBody {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(cx)
    }
}

/// True for requests of probes and operators, which may use the connection reserve.
async fn may_use_reserve(request: &ServiceRequest) -> bool {
    if matches!(request.path(), "/healthz" | "/readyz" | "/metrics") {
        return true;
    }
    let Some(state) = request.app_data::<web::Data<AppState>>() else {
        return false;
    };
    let Ok(token) = extract::bearer_token(request.request()) else {
        return false;
    };
    state
        .auth
        .verify_token(token)
        .await
        .is_ok_and(|principal| principal.role == Role::Operator)
}

/// Reads the client's request id, if safe to echo and to log.
fn client_request_id(request: &ServiceRequest) -> Option<String> {
    let text = request.headers().get(REQUEST_ID)?.to_str().ok()?;
    let ok = (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    ok.then(|| text.to_owned())
}

fn with_problem_body<B: MessageBody + 'static>(response: ServiceResponse<B>, id: &str) -> ServiceResponse<BoxBody> {
    let Some(error) = response.response().error() else {
        return response.map_into_boxed_body();
    };
    let problem = problem_of(error, response.status().as_u16());
    if let Some(state) = response.request().app_data::<web::Data<AppState>>() {
        state.metrics.errors.with_label_values(&[problem.code.as_str()]).inc();
    }
    let mut body = problem.to_response(Some(id));
    if is_openai_path(response.request().path())
        && nodes::forward_token(response.request()).is_ok_and(|hop| hop.is_none())
    {
        body = to_openai_response(&problem, &body);
    }
    // The origins that may read the answer.
    for (name, value) in response.headers() {
        if name.as_str().starts_with("access-control-") || name == VARY {
            body.headers_mut().append(name.clone(), value.clone());
        }
    }
    let (request, _) = response.into_parts();
    nodes::add_owner_header(&request, &problem, &mut body);
    ServiceResponse::new(request, body)
}

/// The problem of an error that reached the outside of the application.
pub fn problem_of_error(error: &Error) -> Problem {
    problem_of(error, error.as_response_error().status_code().as_u16())
}

/// Returns a `Problem` unchanged; maps actix's errors by their status.
fn problem_of(error: &Error, status: u16) -> Problem {
    if let Some(problem) = error.as_error::<Problem>() {
        return problem.clone();
    }
    match status {
        404 => Problem::new(Code::NotFound, "there is nothing here"),
        405 => Problem::new(Code::MethodNotAllowed, "this method is not offered here"),
        413 => Problem::new(Code::PayloadTooLarge, "the body is too large"),
        415 => Problem::new(Code::UnsupportedMediaType, "the body must be application/json"),
        503 => Problem::new(Code::Overloaded, error.to_string()),
        400..=499 => Problem::new(Code::MalformedRequest, error.to_string()),
        _ => Problem::internal_error(error),
    }
}

/// Creates one span per request. The query string is left out: the query may contain a ticket.
pub struct RequestSpans;

impl RootSpanBuilder for RequestSpans {
    fn on_request_start(request: &ServiceRequest) -> Span {
        let id = request
            .extensions()
            .get::<RequestId>()
            .map_or_else(String::new, |id| id.0.clone());
        let (trace, parent) = trace_context(request).unwrap_or_default();
        let span = tracing::info_span!(
            "http.request",
            request_id = %id,
            trace_id = %trace,
            parent_span_id = %parent,
            http.method = %request.method(),
            http.path = %request.path(),
            http.status_code = tracing::field::Empty,
            tenant = tracing::field::Empty,
        );
        if let Some(traceparent) = header_text(request, "traceparent") {
            telemetry::continue_trace(&span, traceparent, header_text(request, "tracestate"));
        }
        span
    }
    fn on_request_end<B: MessageBody>(span: Span, outcome: &Result<ServiceResponse<B>, Error>) {
        let status = match outcome {
            Ok(response) => response.status(),
            Err(error) => error.as_response_error().status_code(),
        };
        span.record("http.status_code", status.as_u16());
    }
}

/// The trace and parent span of a well-formed W3C `traceparent` header (version 00).
fn trace_context(request: &ServiceRequest) -> Option<(String, String)> {
    parse_traceparent(header_text(request, "traceparent")?)
}

fn header_text<'a>(request: &'a ServiceRequest, name: &str) -> Option<&'a str> {
    request.headers().get(name)?.to_str().ok()
}

fn parse_traceparent(text: &str) -> Option<(String, String)> {
    let mut parts = text.split('-');
    let version = parts.next()?;
    let trace = parts.next()?;
    let parent = parts.next()?;
    let flags = parts.next()?;
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let zero = |part: &str| part.bytes().all(|b| b == b'0');
    let version_is_known = hex(version, 2) && version != "ff" && (version != "00" || parts.next().is_none());
    (version_is_known && hex(trace, 32) && !zero(trace) && hex(parent, 16) && !zero(parent) && hex(flags, 2))
        .then(|| (trace.to_owned(), parent.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::parse_traceparent;

    #[test]
    fn traceparent_is_parsed_when_well_formed() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(
            parse_traceparent(good),
            Some(("0af7651916cd43dd8448eb211c80319c".into(), "b7ad6b7169203331".into()))
        );
        for bad in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-extra",
        ] {
            assert_eq!(parse_traceparent(bad), None, "{bad}");
        }
    }
}
