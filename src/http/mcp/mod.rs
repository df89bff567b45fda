//! The Model Context Protocol at `/mcp`: tools, resources and prompts for the agents of designers.
//!
//! No engine of its own: each tool and each resource is an operation of REST, called inside the process with the
//! caller's token ([`operations`]). Roles, bounds, budgets and limits are those of the operation.
//!
//! `rmcp` reads and writes the protocol. Each request stands alone: no sessions, so every node answers every request.
//! A revision before 2026-07-28 is negotiated by `initialize`; the newest one needs no handshake.

mod arguments;
mod errors;
#[cfg(feature = "mcp-fixtures")]
mod fixtures;
mod operations;
mod resources;
mod reviews;
mod schemas;
mod server;
mod settings;
mod tools;

use std::{convert::Infallible, rc::Rc, sync::Arc};

use actix_web::{
    HttpRequest, HttpResponse, guard,
    http::StatusCode,
    web::{self, ServiceConfig},
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
};
use tokio::sync::OnceCell;

pub use self::settings::McpSettings;
use self::{
    operations::{LocalOperations, OperationClient, build_operations},
    server::{Caller, McpServer},
};
use super::{
    AppState,
    errors::Problem,
    extract::{Anyone, Authorized, InWorld, UnreadBody},
};

/// The endpoint of a worker, made with its first request.
#[derive(Default)]
struct Endpoint {
    parts: OnceCell<Rc<EndpointParts>>,
}

struct EndpointParts {
    transport: StreamableHttpService<McpServer, NeverSessionManager>,
    #[cfg(feature = "mcp-fixtures")]
    fixture_transport: fixtures::FixtureTransport,
    operations: Rc<LocalOperations>,
}

impl Endpoint {
    async fn parts(&self, state: &web::Data<AppState>) -> Result<Rc<EndpointParts>, Problem> {
        let parts = self.parts.get_or_try_init(|| async {
            Ok(Rc::new(EndpointParts {
                transport: StreamableHttpService::new(|| Ok(McpServer), Arc::default(), transport_config(state)),
                #[cfg(feature = "mcp-fixtures")]
                fixture_transport: fixtures::new_fixture_transport(transport_config(state)),
                operations: Rc::new(build_operations(state.clone()).await?),
            }))
        });
        parts.await.cloned()
    }
}

fn transport_config(state: &AppState) -> StreamableHttpServerConfig {
    let settings = &state.mcp;
    StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(state.settings.max_body_bytes)
        .with_allowed_hosts(settings.allowed_hosts.clone())
        .with_allowed_origins(settings.allowed_origins.clone())
        .enforce_origin_validation()
}

fn is_enabled(context: &guard::GuardContext<'_>) -> bool {
    let state = context.app_data::<web::Data<AppState>>();
    state.is_some_and(|state| state.mcp.enabled)
}

/// Registers the endpoint. With `mcp.enabled` off, the route answers 404.
pub(super) fn configure(cfg: &mut ServiceConfig) {
    let endpoint = web::resource("/mcp").guard(guard::fn_guard(is_enabled));
    cfg.app_data(Rc::new(Endpoint::default()))
        .service(endpoint.route(web::route().to(serve)));
    #[cfg(feature = "mcp-fixtures")]
    {
        let fixtures = web::resource("/mcp/fixtures").guard(guard::fn_guard(is_enabled));
        cfg.service(fixtures.route(web::route().to(serve_fixtures)));
    }
}

/// Answers a message of the protocol. The message counts as a request of the caller; the operations that it calls
/// count no further.
async fn serve(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Anyone>>,
    request: HttpRequest,
    body: UnreadBody,
) -> Result<HttpResponse, Problem> {
    let (parts, message) = read_message(&state, &caller, &request, body).await?;
    Ok(from_transport(parts.transport.handle(message).await).await)
}

#[cfg(feature = "mcp-fixtures")]
async fn serve_fixtures(
    state: web::Data<AppState>,
    caller: Authorized<InWorld<Anyone>>,
    request: HttpRequest,
    body: UnreadBody,
) -> Result<HttpResponse, Problem> {
    let (parts, message) = read_message(&state, &caller, &request, body).await?;
    Ok(from_transport(parts.fixture_transport.handle(message).await).await)
}

/// Reads a message for the transport, with its caller.
async fn read_message(
    state: &web::Data<AppState>,
    caller: &Authorized<InWorld<Anyone>>,
    request: &HttpRequest,
    body: UnreadBody,
) -> Result<(Rc<EndpointParts>, http::Request<Full<Bytes>>), Problem> {
    let endpoint = request
        .app_data::<Rc<Endpoint>>()
        .ok_or_else(|| Problem::internal_error(&"the application was built without /mcp"))?;
    let parts = endpoint.parts(state).await?;
    let body = body.read(state.settings.max_body_bytes).await?;
    let caller = Caller {
        role: caller.principal.role,
        operations: OperationClient::start(Rc::clone(&parts.operations), request),
    };
    let message = to_transport(request, body, caller)?;
    Ok((parts, message))
}

/// Converts a request to the types of the transport.
fn to_transport(request: &HttpRequest, body: Bytes, caller: Caller) -> Result<http::Request<Full<Bytes>>, Problem> {
    let mut message = http::Request::builder()
        .method(request.method().as_str())
        .uri(request.uri().to_string());
    for (name, value) in request.headers() {
        message = message.header(name.as_str(), value.as_bytes());
    }
    message
        .extension(caller)
        .body(Full::new(body))
        .map_err(|error| Problem::internal_error(&error))
}

/// Converts an answer of the transport: one JSON text, or a stream of events.
async fn from_transport(answer: http::Response<BoxBody<Bytes, Infallible>>) -> HttpResponse {
    let status = StatusCode::from_u16(answer.status().as_u16()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = HttpResponse::build(status);
    for (name, value) in answer.headers() {
        response.append_header((name.as_str(), value.as_bytes()));
    }
    let kind = answer.headers().get(http::header::CONTENT_TYPE);
    let is_stream = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if is_stream {
        return response.streaming(answer.into_body().into_data_stream());
    }
    let Ok(body) = answer.into_body().collect().await;
    response.body(body.to_bytes())
}
