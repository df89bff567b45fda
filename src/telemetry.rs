//! Logs and metrics of the process. Other rooms own their metrics; this owns the registry, the
//! logger, and values that are read at the moment of a scrape.

use std::{fmt, io::IsTerminal};

use prometheus::{
    Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};
use tracing_subscriber::{EnvFilter, layer::SubscriberExt, util::SubscriberInitExt};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Text,
    Json,
}

/// Why logging cannot start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("telemetry.log is not a log filter such as `info,colloquy=debug`: {0}")]
pub struct InvalidFilter(String);

/// Starts logging to standard error, for the whole process. `RUST_LOG` goes over `filter`. Does
/// nothing if a logger is set already.
///
/// # Errors
/// If `filter` is not one.
pub fn start_logging(filter: &str, format: Format) -> Result<(), InvalidFilter> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => text,
        _ => filter.to_owned(),
    };
    // The server's own account of its workers says nothing that ours does not; a filter that names it
    // brings it back.
    let filter = format!("actix_server=warn,{filter}");
    let filter = EnvFilter::try_new(filter).map_err(|error| InvalidFilter(error.to_string()))?;
    let registry = tracing_subscriber::registry().with(filter);
    // An error means that another logger was set first: a test's.
    let _ = match format {
        Format::Text => registry
            .with(
                tracing_subscriber::fmt::layer()
                    .with_writer(std::io::stderr)
                    .with_ansi(is_coloured(std::io::stderr().is_terminal()))
                    .with_target(false),
            )
            .try_init(),
        Format::Json => registry
            .with(tracing_subscriber::fmt::layer().json().with_writer(std::io::stderr))
            .try_init(),
    };
    Ok(())
}

/// Colours are for terminals, and there only for who has not declined them (<https://no-color.org>).
fn is_coloured(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// One value of an observed family: its label's value, and the value.
pub type Sample = (String, f64);

/// Whether an observed value only rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    Counter,
}

/// A family of values that are read when the registry is scraped.
struct Observed {
    kind: Kind,
    name: &'static str,
    help: &'static str,
    label: Option<&'static str>,
    desc: Desc,
    read: Box<dyn Fn() -> Vec<Sample> + Send + Sync>,
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Collector for Observed {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }
    fn collect(&self) -> Vec<MetricFamily> {
        let labels: Vec<&str> = self.label.into_iter().collect();
        let opts = prometheus::Opts::new(self.name, self.help);
        // The name and label were checked when the family was registered.
        match self.kind {
            Kind::Gauge => prometheus::GaugeVec::new(opts, &labels).map_or_else(
                |_| Vec::new(),
                |family| {
                    for (label, value) in (self.read)() {
                        family.with_label_values(&labels_of(self.label, &label)).set(value);
                    }
                    family.collect()
                },
            ),
            Kind::Counter => prometheus::CounterVec::new(opts, &labels).map_or_else(
                |_| Vec::new(),
                |family| {
                    for (label, value) in (self.read)() {
                        family.with_label_values(&labels_of(self.label, &label)).inc_by(value);
                    }
                    family.collect()
                },
            ),
        }
    }
}

fn labels_of<'a>(label: Option<&str>, value: &'a str) -> Vec<&'a str> {
    label.map(|_| value).into_iter().collect()
}

/// Registers a value that is read at each scrape.
///
/// # Errors
/// When the name is taken or not a metric's name.
pub fn observe(
    registry: &Registry,
    kind: Kind,
    name: &'static str,
    help: &'static str,
    read: impl Fn() -> f64 + Send + Sync + 'static,
) -> prometheus::Result<()> {
    register(
        registry,
        kind,
        name,
        help,
        None,
        Box::new(move || vec![(String::new(), read())]),
    )
}

/// Registers a family of values, told apart by `label`, that is read at each scrape.
///
/// # Errors
/// When the name is taken or not a metric's name.
pub fn observe_by(
    registry: &Registry,
    kind: Kind,
    name: &'static str,
    help: &'static str,
    label: &'static str,
    read: impl Fn() -> Vec<Sample> + Send + Sync + 'static,
) -> prometheus::Result<()> {
    register(registry, kind, name, help, Some(label), Box::new(read))
}

fn register(
    registry: &Registry,
    kind: Kind,
    name: &'static str,
    help: &'static str,
    label: Option<&'static str>,
    read: Box<dyn Fn() -> Vec<Sample> + Send + Sync>,
) -> prometheus::Result<()> {
    let labels = label.map(str::to_owned).into_iter().collect();
    let desc = Desc::new(name.into(), help.into(), labels, std::collections::HashMap::default())?;
    registry.register(Box::new(Observed {
        kind,
        name,
        help,
        label,
        desc,
        read,
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

    #[test]
    fn observed_values_are_read_at_each_scrape() {
        let registry = Registry::new();
        let live = Arc::new(AtomicU32::new(3));
        let read = live.clone();
        observe(&registry, Kind::Gauge, "live", "How many live.", move || {
            f64::from(read.load(Ordering::Relaxed))
        })
        .unwrap();
        observe_by(&registry, Kind::Counter, "closed", "How many closed.", "code", || {
            vec![("4430".into(), 2.0), ("4503".into(), 1.0)]
        })
        .unwrap();
        let scrape = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        assert!(scrape().contains("live 3"), "{}", scrape());
        live.store(5, Ordering::Relaxed);
        let text = scrape();
        assert!(text.contains("live 5") && text.contains("# TYPE live gauge"), "{text}");
        assert!(text.contains("closed{code=\"4430\"} 2"), "{text}");
        assert!(text.contains("# TYPE closed counter"), "{text}");
        assert!(observe(&registry, Kind::Gauge, "live", "Again.", || 0.0).is_err());
    }
}
