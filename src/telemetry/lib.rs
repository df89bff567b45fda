//! Logs, metrics and traces of the process. Other modules own their metrics and spans. This module owns the logger,
//! the export of spans to a collector, and values that are read at a scrape.

#[cfg(feature = "otel")]
mod traces;

use std::io::IsTerminal;

use prometheus::{
    Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use secrecy::SecretString;
use tracing::Subscriber;
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, registry::LookupSpan, util::SubscriberInitExt};

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

/// The reason why logging cannot start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("telemetry.log is not a log filter such as `info,colloquy=debug`: {0}")]
pub struct InvalidFilter(String);

/// The target of traces.
#[derive(Debug, Clone)]
pub struct TraceExport {
    /// An endpoint for OTLP over HTTP, with its path: `http://collector:4318/v1/traces`.
    pub url: String,
    /// The value of the `Authorization` header.
    pub authorization: Option<SecretString>,
    /// The share of sent traces, 0–1. A caller's own sampling decision takes precedence.
    pub share: f64,
    /// The name of this server in traces.
    pub service: String,
}

/// True if this build can send traces.
pub const CAN_EXPORT: bool = cfg!(feature = "otel");

/// The reason why logging or tracing cannot start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Filter(#[from] InvalidFilter),
    #[error("telemetry.traces_url cannot be used: {0}")]
    Traces(String),
}

/// Background telemetry of the running server. Dropping the guard sends the remaining traces.
#[derive(Debug, Default)]
#[must_use = "traces are sent only for as long as this lives"]
pub struct TelemetryGuard {
    #[cfg(feature = "otel")]
    _traces: Option<traces::TraceExportGuard>,
}

/// Starts logging as [`start_logging`] does, and the export of traces.
///
/// # Errors
/// If `filter` is not a filter, or this build cannot send traces to this target.
pub fn start_telemetry(
    filter: &str,
    format: LogFormat,
    export: Option<&TraceExport>,
) -> Result<TelemetryGuard, StartError> {
    let Some(export) = export else {
        start_logging(filter, format)?;
        return Ok(TelemetryGuard::default());
    };
    #[cfg(feature = "otel")]
    {
        let (layer, exporting) = traces::trace_layer(export).map_err(StartError::Traces)?;
        // An error means that a test has already set a logger.
        let _ = tracing_subscriber::registry()
            .with(layer)
            .with(log_layer(filter, format)?)
            .try_init();
        Ok(TelemetryGuard {
            _traces: Some(exporting),
        })
    }
    #[cfg(not(feature = "otel"))]
    Err(StartError::Traces(format!(
        "{}: this build cannot send traces",
        export.url
    )))
}

/// Makes `span` a part of the trace in a caller's headers. Nobody may have entered the span yet.
pub fn continue_trace(span: &tracing::Span, traceparent: &str, tracestate: Option<&str>) {
    #[cfg(feature = "otel")]
    traces::continue_trace(span, traceparent, tracestate);
    #[cfg(not(feature = "otel"))]
    let _ = (span, traceparent, tracestate);
}

/// Returns the headers with which a called service continues the current span's trace; empty without trace export.
#[must_use]
pub fn outgoing_trace_headers() -> Vec<(String, String)> {
    #[cfg(feature = "otel")]
    return traces::outgoing_trace_headers();
    #[cfg(not(feature = "otel"))]
    Vec::new()
}

/// Starts logging to standard error, for the whole process. `RUST_LOG` overrides `filter`. Does nothing if a logger
/// is already set.
///
/// # Errors
/// If `filter` is not a filter.
pub fn start_logging(filter: &str, format: LogFormat) -> Result<(), InvalidFilter> {
    let registry = tracing_subscriber::registry().with(log_layer(filter, format)?);
    // An error means that a test has already set a logger.
    let _ = registry.try_init();
    Ok(())
}

/// Returns the layer that writes log lines. It has its own filter, because other layers need other spans.
fn log_layer<S>(filter: &str, format: LogFormat) -> Result<Box<dyn Layer<S> + Send + Sync>, InvalidFilter>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => text,
        _ => filter.to_owned(),
    };
    let filter = with_quiet_targets(&filter)?;
    Ok(match format {
        LogFormat::Text => tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(is_coloured(std::io::stderr().is_terminal()))
            .with_target(false)
            .with_filter(filter)
            .boxed(),
        LogFormat::Json => tracing_subscriber::fmt::layer()
            .json()
            .with_writer(std::io::stderr)
            .with_filter(filter)
            .boxed(),
    })
}

/// Adds filters that silence some targets. A configured filter can enable them again by name.
///
/// * `actix_server`: its messages about workers only repeat this server's own.
/// * The HTTP and WebSocket codecs: malformed input (an unescaped query, a ping in two frames) is the client's error
///   and is answered with 400.
/// * `async_openai`: it logs complete unreadable answers, including players' words.
fn with_quiet_targets(filter: &str) -> Result<EnvFilter, InvalidFilter> {
    let quiet = "actix_server=warn,actix_http::h1::dispatcher=off,actix_http::ws::codec=off,async_openai=off";
    let filter = format!("{quiet},{filter}");
    EnvFilter::try_new(filter).map_err(|error| InvalidFilter(error.to_string()))
}

/// True for a terminal, unless the user has declined colours (<https://no-color.org>).
fn is_coloured(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A value of a scraped family: the value of its label, and the number.
type MetricSample = (String, f64);

/// Whether a scraped value only rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    Gauge,
    Counter,
}

/// A family of values that are read at each scrape.
struct ScrapedMetric {
    kind: MetricKind,
    name: &'static str,
    help: &'static str,
    label: Option<&'static str>,
    desc: Desc,
    read_samples: Box<dyn Fn() -> Vec<MetricSample> + Send + Sync>,
}

impl Collector for ScrapedMetric {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }
    fn collect(&self) -> Vec<MetricFamily> {
        let labels: Vec<&str> = self.label.into_iter().collect();
        let opts = prometheus::Opts::new(self.name, self.help);
        // Registration has already checked the name and the label.
        let collected = match self.kind {
            MetricKind::Gauge => prometheus::GaugeVec::new(opts, &labels).map(|family| {
                for (label, value) in (self.read_samples)() {
                    family.with_label_values(&labels_of(self.label, &label)).set(value);
                }
                family.collect()
            }),
            MetricKind::Counter => prometheus::CounterVec::new(opts, &labels).map(|family| {
                for (label, value) in (self.read_samples)() {
                    family.with_label_values(&labels_of(self.label, &label)).inc_by(value);
                }
                family.collect()
            }),
        };
        collected.unwrap_or_default()
    }
}

fn labels_of<'a>(label: Option<&str>, value: &'a str) -> Vec<&'a str> {
    label.map(|_| value).into_iter().collect()
}

/// Registers a value that is read at each scrape.
///
/// # Errors
/// If the name is taken or is not a valid metric name.
pub fn register_metric(
    registry: &Registry,
    kind: MetricKind,
    name: &'static str,
    help: &'static str,
    read_value: impl Fn() -> f64 + Send + Sync + 'static,
) -> prometheus::Result<()> {
    let read_samples = move || vec![(String::new(), read_value())];
    register_family(registry, kind, name, help, None, Box::new(read_samples))
}

/// Registers a family of values, distinguished by `label`, that is read at each scrape.
///
/// # Errors
/// If the name is taken or is not a valid metric name.
pub fn register_labelled_metric<L: Into<String>, S: IntoIterator<Item = (L, f64)>>(
    registry: &Registry,
    kind: MetricKind,
    name: &'static str,
    help: &'static str,
    label: &'static str,
    read_labelled: impl Fn() -> S + Send + Sync + 'static,
) -> prometheus::Result<()> {
    let read_samples = move || {
        read_labelled()
            .into_iter()
            .map(|(label, value)| (label.into(), value))
            .collect()
    };
    register_family(registry, kind, name, help, Some(label), Box::new(read_samples))
}

/// Registers the usual process metrics of a Prometheus client, as far as the system provides them.
///
/// # Errors
/// If a name is taken.
pub fn register_process_metrics(registry: &Registry) -> prometheus::Result<()> {
    register_optional_metric(
        registry,
        MetricKind::Counter,
        "process_cpu_seconds_total",
        "Seconds of CPU used",
        cpu_seconds,
    )?;
    register_optional_metric(
        registry,
        MetricKind::Gauge,
        "process_resident_memory_bytes",
        "Resident memory",
        resident_bytes,
    )?;
    register_optional_metric(
        registry,
        MetricKind::Gauge,
        "process_open_fds",
        "Open descriptors",
        open_descriptors,
    )
}

fn register_optional_metric(
    registry: &Registry,
    kind: MetricKind,
    name: &'static str,
    help: &'static str,
    read_value: fn() -> Option<f64>,
) -> prometheus::Result<()> {
    let read_samples = move || read_value().map(|value| (String::new(), value)).into_iter().collect();
    register_family(registry, kind, name, help, None, Box::new(read_samples))
}

fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name before the parenthesis may contain any character. User and system time are fields 14 and 15.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    #[expect(clippy::cast_precision_loss, reason = "some hundred ticks a second")]
    Some((user + system) / rustix::param::clock_ticks_per_second() as f64)
}

fn resident_bytes() -> Option<f64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = statm.split(' ').nth(1)?.parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "a page is some thousand bytes")]
    Some(pages * rustix::param::page_size() as f64)
}

#[expect(clippy::cast_precision_loss, reason = "a count of descriptors")]
fn open_descriptors() -> Option<f64> {
    // The listing itself uses one descriptor.
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn register_family(
    registry: &Registry,
    kind: MetricKind,
    name: &'static str,
    help: &'static str,
    label: Option<&'static str>,
    read_samples: Box<dyn Fn() -> Vec<MetricSample> + Send + Sync>,
) -> prometheus::Result<()> {
    let labels = label.map(str::to_owned).into_iter().collect();
    let desc = Desc::new(name.into(), help.into(), labels, std::collections::HashMap::default())?;
    registry.register(Box::new(ScrapedMetric {
        kind,
        name,
        help,
        label,
        desc,
        read_samples,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use prometheus::TextEncoder;

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn process_metrics_are_readable() {
        assert!(resident_bytes().unwrap() > 1e6);
        assert!(open_descriptors().unwrap() >= 3.0);
        let before = cpu_seconds().unwrap();
        let mut sum = 0_u64;
        while cpu_seconds().unwrap() <= before {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
    }

    #[test]
    fn client_errors_are_not_logged_as_errors() {
        let logs = |filter: &str| {
            let logger = tracing_subscriber::registry().with(with_quiet_targets(filter).unwrap());
            tracing::subscriber::with_default(logger, || {
                [
                    tracing::enabled!(target: "actix_http::h1::dispatcher", tracing::Level::ERROR),
                    tracing::enabled!(target: "actix_http::ws::codec", tracing::Level::ERROR),
                    tracing::enabled!(target: "actix_http::h1::service", tracing::Level::ERROR),
                    tracing::enabled!(target: "colloquy::app", tracing::Level::INFO),
                ]
            })
        };
        assert_eq!(logs("info"), [false, false, true, true]);
        assert_eq!(logs("info,actix_http::h1::dispatcher=error"), [true, false, true, true]);
    }

    #[test]
    fn metric_callbacks_are_read_at_each_scrape() {
        let registry = Registry::new();
        let live = Arc::new(AtomicU32::new(3));
        let read = live.clone();
        register_metric(&registry, MetricKind::Gauge, "live", "How many live.", move || {
            f64::from(read.load(Ordering::Relaxed))
        })
        .unwrap();
        register_labelled_metric(
            &registry,
            MetricKind::Counter,
            "closed",
            "How many closed.",
            "code",
            || [("4430", 2.0), ("4503", 1.0)],
        )
        .unwrap();
        let scrape = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        assert!(scrape().contains("live 3"), "{}", scrape());
        live.store(5, Ordering::Relaxed);
        let text = scrape();
        assert!(text.contains("live 5") && text.contains("# TYPE live gauge"), "{text}");
        assert!(text.contains("closed{code=\"4430\"} 2"), "{text}");
        assert!(text.contains("# TYPE closed counter"), "{text}");
        assert!(register_metric(&registry, MetricKind::Gauge, "live", "Again.", || 0.0).is_err());
    }
}
