//! Traces for an OpenTelemetry collector: the sent spans, and the context in requests.
//!
//! Only spans of this crate are sent, never log events. The fields of a span are ids and figures, but an event at
//! `debug` may contain a player's words.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use opentelemetry::{
    Context, KeyValue,
    propagation::{Extractor, Injector, TextMapPropagator as _},
    trace::{TraceContextExt as _, TracerProvider as _},
};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{Sampler, SdkTracerProvider},
};
use secrecy::ExposeSecret as _;
use tracing::{Level, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{Layer, filter::FilterFn, registry::LookupSpan};

use super::TraceExport;

/// The time limit of one export, and of the last export at the end of the process.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// The number of bytes read of a collector's answer, which is normally a few bytes long.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Ends the export when dropped, after sending the remaining spans.
#[derive(Debug)]
pub struct TraceExportGuard(SdkTracerProvider);

impl Drop for TraceExportGuard {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(EXPORT_TIMEOUT) {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// Returns the layer that sends spans, and the guard that ends the export.
///
/// # Errors
/// Describes an unusable URL in `export`.
pub(super) fn trace_layer<S>(export: &TraceExport) -> Result<(impl Layer<S> + use<S>, TraceExportGuard), String>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(TraceSender::new(export)?)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(&export.url)
        .with_timeout(EXPORT_TIMEOUT)
        .build()
        .map_err(|error| error.to_string())?;
    let resource = Resource::builder_empty()
        .with_service_name(export.service.clone())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let provider = SdkTracerProvider::builder()
        .with_resource(resource)
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(export.share))))
        .with_batch_exporter(exporter)
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("colloquy"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(
            FilterFn::new(|metadata| {
                metadata.is_span() && *metadata.level() <= Level::DEBUG && metadata.target().starts_with("colloquy")
            })
            .with_max_level_hint(Level::DEBUG),
        );
    Ok((layer, TraceExportGuard(provider)))
}

/// Makes `span` a part of the caller's trace. Nobody may have entered the span yet.
pub(super) fn continue_trace(span: &Span, traceparent: &str, tracestate: Option<&str>) {
    let context = TraceContextPropagator::new().extract_with_context(
        &Context::new(),
        &IncomingTraceHeaders {
            traceparent,
            tracestate,
        },
    );
    if context.span().span_context().is_valid() {
        // An error means that this span is not collected.
        let _ = span.set_parent(context);
    }
}

/// Returns the headers with which a called service continues the trace of the current span.
pub(super) fn outgoing_trace_headers() -> Vec<(String, String)> {
    let mut headers = OutgoingTraceHeaders(Vec::new());
    let context = Span::current().context();
    if context.span().span_context().is_valid() {
        TraceContextPropagator::new().inject_context(&context, &mut headers);
    }
    headers.0.retain(|(_, value)| !value.is_empty());
    headers.0
}

struct IncomingTraceHeaders<'a> {
    traceparent: &'a str,
    tracestate: Option<&'a str>,
}

impl Extractor for IncomingTraceHeaders<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => Some(self.traceparent),
            "tracestate" => self.tracestate,
            _ => None,
        }
    }
    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

struct OutgoingTraceHeaders(Vec<(String, String)>);

impl Injector for OutgoingTraceHeaders {
    fn set(&mut self, key: &str, value: String) {
        self.0.push((key.to_owned(), value));
    }
}

/// Sends batches. The exporter calls it on a thread without a runtime, which may block.
#[derive(Debug)]
struct TraceSender {
    client: reqwest::Client,
    authorization: Option<reqwest::header::HeaderValue>,
    /// Created on the exporter's thread, and dropped there too.
    runtime: OnceLock<Arc<tokio::runtime::Runtime>>,
}

impl TraceSender {
    fn new(export: &TraceExport) -> Result<Self, String> {
        // See `adapters::openai::install_crypto`: the first call wins, and both install the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(EXPORT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| error.to_string())?;
        let authorization = match &export.authorization {
            None => None,
            Some(text) => {
                let mut value = reqwest::header::HeaderValue::from_str(text.expose_secret())
                    .map_err(|_| "telemetry.traces_authorization has characters that a header cannot carry")?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self {
            client,
            authorization,
            runtime: OnceLock::new(),
        })
    }

    fn runtime(&self) -> Result<Arc<tokio::runtime::Runtime>, HttpError> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime.clone());
        }
        let new_runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(self.runtime.get_or_init(|| Arc::new(new_runtime)).clone())
    }

    async fn send_batch(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let mut outgoing = self.client.post(head.uri.to_string()).headers(head.headers).body(body);
        if let Some(authorization) = &self.authorization {
            outgoing = outgoing.header(reqwest::header::AUTHORIZATION, authorization);
        }
        let mut answer = outgoing.send().await?;
        let mut response = Response::builder().status(answer.status().as_u16());
        if let Some(headers) = response.headers_mut() {
            headers.clone_from(answer.headers());
        }
        let mut body_bytes = Vec::new();
        while let Some(piece) = answer.chunk().await? {
            body_bytes.extend_from_slice(&piece);
            if body_bytes.len() > MAX_ANSWER_BYTES {
                return Err("the collector's answer is too long".into());
            }
        }
        Ok(response.body(body_bytes.into())?)
    }
}

#[async_trait::async_trait]
impl HttpClient for TraceSender {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        self.runtime()?.block_on(self.send_batch(request))
    }
}
