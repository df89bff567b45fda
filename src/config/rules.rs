//! Rules for a valid configuration: ranges of numbers, choices of enumerations, and consistency between settings.

mod auth;
mod mcp;
mod models;
mod values;

use figment::value::{Num, Value};
use reqwest::Url;
use secrecy::ExposeSecret as _;

use self::values::{MIN_SECRET_BYTES, is_http};
use super::{
    faults::ConfigFault,
    layers::{MergedConfig, matches_pattern},
    presets::{PRESET_NAMES, ReasoningLevel, TokenizerName},
    ranges::RANGES,
    removed,
    sections::{Config, ListenAddress},
};
use colloquy_memory::chat_models::find_faults;
use colloquy_telemetry::CAN_EXPORT;

/// The choices of texts. `*` stands for any name.
const SETTING_CHOICES: &[(&str, &[&str])] = &[
    ("recall.preset", &["", "four_factor", "rag"]),
    ("ledger.synchronous", &["normal", "full"]),
    ("embedder.input_type", &["none", "field", "prefix"]),
    ("telemetry.format", &["text", "json"]),
    ("llm.tokenizer", &TokenizerName::NAMES),
    ("llm.endpoints.*.tokenizer", &TokenizerName::NAMES),
];
/// The same for texts that may be empty.
const OPTIONAL_CHOICES: &[(&str, &[&str])] = &[
    ("llm.preset", &PRESET_NAMES),
    ("llm.endpoints.*.preset", &PRESET_NAMES),
    ("llm.reasoning", &ReasoningLevel::NAMES),
    ("llm.endpoints.*.reasoning", &ReasoningLevel::NAMES),
];

/// Returns the range of the numeric setting `key`.
pub(super) fn range_of(key: &str) -> Option<(f64, f64)> {
    let starred = ["llm.tasks.", "llm.endpoints."].into_iter().find_map(|group| {
        let (_, field) = key.strip_prefix(group)?.split_once('.')?;
        Some(format!("{group}*.{field}"))
    });
    RANGES
        .iter()
        .find(|(name, ..)| *name == key || Some(*name) == starred.as_deref())
        .map(|(_, low, high)| (*low, *high))
}

/// Checks each key alone: known, of the right type, in range.
pub(super) fn check_keys(merged: &MergedConfig) -> Vec<ConfigFault> {
    let mut faults = Vec::new();
    for leaf in &merged.leaves {
        let mut fault = |demand: String| {
            faults.push(ConfigFault {
                key: leaf.key.clone(),
                source: leaf.source.clone(),
                message: demand,
            });
        };
        let Some(kind) = merged.kind_of(&leaf.key) else {
            fault(match removed::constant_of(&leaf.key) {
                Some(value) => format!("this setting was removed, and {value} always holds; delete the key"),
                None => unknown_key_message(merged, &leaf.key),
            });
            continue;
        };
        match leaf.kind {
            Some(given) if kind.accepts_kind(given) => {}
            _ => {
                fault(format!("must be {}", kind.describe_kind()));
                continue;
            }
        }
        if let (Some((low, high)), Some(number)) = (range_of(&leaf.key), as_f64(&leaf.value))
            && !(low..=high).contains(&number)
        {
            fault(format!("must be from {low} to {high}, not {number}"));
        }
        let text = leaf.value.as_str().unwrap_or_default();
        let is_optional = |choices: &[&str]| text.trim().is_empty() || choices.contains(&text.trim());
        let choices_in = |all: &'static [(&'static str, &'static [&'static str])]| {
            let entry = all.iter().find(|(key, _)| matches_pattern(key, &leaf.key));
            entry.map(|(_, choices)| *choices)
        };
        if let Some(choices) = choices_in(SETTING_CHOICES).filter(|choices| !choices.contains(&text)) {
            fault(format!("must be one of: {}", choices.join(", ")));
        } else if let Some(choices) = choices_in(OPTIONAL_CHOICES).filter(|choices| !is_optional(choices)) {
            fault(format!("`{text}` is unknown; there are: {}", choices.join(", ")));
        }
    }
    faults
}

fn as_f64(value: &Value) -> Option<f64> {
    match value {
        Value::Num(_, Num::F32(n)) => Some(f64::from(*n)),
        Value::Num(_, Num::F64(n)) => Some(*n),
        #[expect(clippy::cast_precision_loss, reason = "ranges end far below 2^53")]
        Value::Num(_, n) => n.to_i128().map(|n| n as f64).or_else(|| n.to_u128().map(|n| n as f64)),
        _ => None,
    }
}

fn unknown_key_message(merged: &MergedConfig, key: &str) -> String {
    let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
    let elsewhere: Vec<&str> = merged
        .known_settings
        .keys()
        .filter(|k| k.rsplit('.').next() == Some(name))
        .map(String::as_str)
        .collect();
    if !elsewhere.is_empty() && elsewhere.len() <= 3 {
        return format!("there is no such setting; did you mean {}?", elsewhere.join(" or "));
    }
    let siblings: Vec<&str> = merged
        .known_settings
        .keys()
        .filter_map(|k| k.strip_prefix(section)?.strip_prefix('.'))
        .filter(|rest| !section.is_empty() && !rest.contains('.'))
        .collect();
    if siblings.is_empty() {
        "there is no such setting; `colloquy config` prints all of them".to_owned()
    } else {
        format!("there is no such setting; [{section}] has: {}", siblings.join(", "))
    }
}

/// Checks the model names of chat programs.
fn check_chat_models(config: &Config, faults: &mut Vec<ConfigFault>) {
    let models = &config.chat.models;
    faults.extend(find_faults(models).into_iter().map(|fault| ConfigFault {
        key: "chat.models".to_owned(),
        source: None,
        message: format!(
            "the model `{}`: `{}` {}",
            models[fault.index].name, fault.field, fault.problem
        ),
    }));
}

/// Checks the consistency between settings.
pub(super) fn check_consistency(config: &Config, faults: &mut Vec<ConfigFault>) {
    check_chat_models(config, faults);
    let mut fault = |key: &str, demand: String| {
        faults.push(ConfigFault {
            key: key.to_owned(),
            source: None,
            message: demand,
        });
    };
    check_stores(config, &mut fault);
    check_built(config, StoresBuilt::IN_THIS_BUILD, &mut fault);
    check_node(config, &mut fault);
    auth::check_auth(config, &mut fault);
    models::check_models(config, &mut fault);
    check_numbers(config, &mut fault);
    check_traces(config, &mut fault);
    mcp::check_mcp(config, &mut fault);
}

fn check_traces(config: &Config, fault: &mut impl FnMut(&str, String)) {
    if let Some(Err(demand)) = config
        .telemetry
        .metrics_listen
        .as_deref()
        .map(str::parse::<ListenAddress>)
    {
        fault("telemetry.metrics_listen", demand);
    }
    let Some(url) = &config.telemetry.traces_url else {
        return;
    };
    if !CAN_EXPORT {
        let demand = "this build cannot send traces: build it with `--features otel`, or leave it empty";
        fault("telemetry.traces_url", demand.into());
    } else if !is_http(url) {
        let demand = "must be a URL that starts with http:// or https://";
        fault("telemetry.traces_url", demand.into());
    }
    if config.telemetry.service_name.trim().is_empty() {
        fault("telemetry.service_name", "must not be empty".into());
    }
}

fn check_stores(config: &Config, fault: &mut impl FnMut(&str, String)) {
    // The URL parser's error may quote the URL with its password, so the error is not shown.
    let url = config.ledger_url();
    let url = url.expose_secret();
    if !url.starts_with("sqlite:") {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            fault("ledger.url", "must start with sqlite: or postgres://".into());
        } else if Url::parse(url).is_err() {
            let demand = "cannot be read: must be postgres://user:password@host:port/database, with everything in \
                        user and password escaped that is neither a letter nor a digit";
            fault("ledger.url", demand.into());
        }
    }
    if !config.buffer.is_in_process() {
        let url = config.buffer.url.expose_secret();
        if !url.starts_with("redis://") && !url.starts_with("rediss://") {
            fault(
                "buffer.url",
                "must be memory: or start with redis:// or rediss://".into(),
            );
        } else if Url::parse(url).is_err() {
            let demand = "cannot be read: must be redis://user:password@host:port/database";
            fault("buffer.url", demand.into());
        }
    }
    let vectors = &config.vectors;
    if !vectors.is_embedded() && !is_http(&vectors.url) {
        fault(
            "vectors.url",
            "must be embedded: or a URL that starts with http:// or https://".into(),
        );
    } else if vectors.url.contains('@') {
        // Errors would show the password.
        fault("vectors.url", "must hold no password; set vectors.api_key".into());
    }
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"_-".contains(&b);
    if vectors.collection.is_empty() || vectors.collection.len() > 64 || !vectors.collection.bytes().all(is_allowed) {
        fault(
            "vectors.collection",
            "must have 1 to 64 letters, digits, _ and -".into(),
        );
    }
}

/// The stores that a build has besides the embedded ones (features of the same names).
#[derive(Debug, Clone, Copy)]
pub(super) struct StoresBuilt {
    pub postgres: bool,
    pub redis: bool,
    pub qdrant: bool,
}

impl StoresBuilt {
    const IN_THIS_BUILD: Self = Self {
        postgres: cfg!(feature = "postgres"),
        redis: cfg!(feature = "redis"),
        qdrant: cfg!(feature = "qdrant"),
    };
}

#[cfg(test)]
impl StoresBuilt {
    pub(super) const fn with_all(built: bool) -> Self {
        Self {
            postgres: built,
            redis: built,
            qdrant: built,
        }
    }
}

/// Refuses the URL of a store that this build does not have.
pub(super) fn check_built(config: &Config, built: StoresBuilt, fault: &mut impl FnMut(&str, String)) {
    let sqlite = config.ledger_url().expose_secret().starts_with("sqlite:");
    let stores = [
        ("ledger.url", "Postgres", built.postgres || sqlite),
        ("buffer.url", "Redis", built.redis || config.buffer.is_in_process()),
        ("vectors.url", "Qdrant", built.qdrant || config.vectors.is_embedded()),
    ];
    for (key, store, fits) in stores {
        if !fits {
            fault(
                key,
                format!("this build has no {store}: use `cargo run --release`, or leave the setting out"),
            );
        }
    }
}

/// Checks the settings of a cluster node.
fn check_node(config: &Config, fault: &mut impl FnMut(&str, String)) {
    let node = &config.node;
    if node.lease_ms < node.heartbeat_ms * 2 {
        fault(
            "node.lease_ms",
            "must be at least twice node.heartbeat_ms, or one late heartbeat makes a node dead to the others".into(),
        );
    }
    if node.lease_ms > config.actors.ownership_s * 1000 {
        fault("node.lease_ms", "must not be longer than actors.ownership_s".into());
    }
    let Some(url) = &node.url else {
        if node.secret.is_some() {
            fault("node.secret", "is of no use without node.url".into());
        }
        return;
    };
    auth::check_previous_secret("node", node.secret.as_ref(), node.previous_secret.as_ref(), fault);
    let plain = url.split_once("://").map_or("", |(_, rest)| rest);
    if !is_http(url) || plain.contains(['/', '?', '#', '@']) {
        fault(
            "node.url",
            format!("must be http(s)://host:port and nothing behind it, such as http://10.0.0.7:8080, not `{url}`"),
        );
    }
    if node
        .secret
        .as_ref()
        .is_none_or(|secret| secret.expose_secret().len() < MIN_SECRET_BYTES)
    {
        fault(
            "node.secret",
            format!(
                "must have at least {MIN_SECRET_BYTES} bytes, the same on every node: nodes sign what they tell each other with it"
            ),
        );
    }
    if config.ledger_url().expose_secret().starts_with("sqlite:") {
        fault(
            "node.url",
            "several nodes share one ledger, which must be a Postgres (ledger.url)".into(),
        );
    }
    if config.auth.needs_secret() {
        fault(
            "node.url",
            "every node must believe the same tokens: set auth.hs256_secret, auth.public_key_file or auth.jwks_file"
                .into(),
        );
    }
}

fn check_numbers(config: &Config, fault: &mut impl FnMut(&str, String)) {
    let w = &config.recall.weights;
    let sum = w.recency + w.importance + w.relevance + w.keyword;
    if (sum - 1.0).abs() > 1e-6 {
        fault("recall.weights", format!("must sum to 1, not {sum}"));
    }
    let prompt = &config.prompt;
    for (name, tokens) in [
        ("pinned", prompt.pinned_tokens),
        ("summary", prompt.summary_tokens),
        ("history", prompt.history_tokens),
        ("memory", prompt.memory_tokens),
    ] {
        if tokens > prompt.total_tokens {
            fault(
                &format!("prompt.{name}_tokens"),
                "must not be above prompt.total_tokens".into(),
            );
        }
    }
    if config.summaries.force_tokens > prompt.history_tokens {
        fault(
            "summaries.force_tokens",
            "must not be above prompt.history_tokens, or turns would leave the prompt before a summary has them".into(),
        );
    }
    if config.summaries.buffer_min_turns >= config.summaries.force_turns {
        fault(
            "summaries.buffer_min_turns",
            "must be below summaries.force_turns".into(),
        );
    }
    if config.turn.timeout_ms < u64::from(config.llm.tasks.reply.timeout_ms) {
        fault("turn.timeout_ms", "must not be below llm.tasks.reply.timeout_ms".into());
    }
    if (1..30).contains(&config.retention.audit_d) {
        let demand = "must be 0 or at least 30: newer lines of the audit log cannot be deleted";
        fault("retention.audit_d", demand.into());
    }
    check_lease(config, fault);
    check_retries(config, fault);
    check_sizes(config, fault);
}

/// A delay is at most a week, so that a message ends.
fn check_retries(config: &Config, fault: &mut impl FnMut(&str, String)) {
    const WEEK_MS: u64 = 7 * 24 * 3_600 * 1_000;
    let delays = &config.webhooks.retry_delays_ms;
    if delays.len() > 50 || delays.iter().any(|delay| *delay > WEEK_MS) {
        let demand = format!("must be at most 50 delays, each of at most {WEEK_MS}");
        fault("webhooks.retry_delays_ms", demand);
    }
}

/// Checks the lease of jobs: another node takes over a job that runs longer than its lease.
fn check_lease(config: &Config, fault: &mut impl FnMut(&str, String)) {
    let tasks = &config.llm.tasks;
    let lease_ms = config.jobs.lease_s * 1000;
    // An unreadable answer is requested once more, and the extracted statements go to the judge.
    let extraction_ms = 2 * (u64::from(tasks.extraction.timeout_ms) + u64::from(tasks.judge.timeout_ms));
    if lease_ms < extraction_ms {
        fault(
            "jobs.lease_s",
            format!(
                "must be at least {}, twice the time-outs of llm.tasks.extraction and llm.tasks.judge, or another \
                 node takes a job that still runs",
                extraction_ms.div_ceil(1000)
            ),
        );
    }
    if lease_ms <= u64::from(tasks.summary.timeout_ms) {
        fault(
            "jobs.lease_s",
            "must be longer than llm.tasks.summary.timeout_ms, or another node takes a job that still runs".into(),
        );
    }
    // A pass begins its last step in the first third of the lease.
    let curation_ms = 2 * u64::from(tasks.curation.timeout_ms);
    if config.curation.is_on() && lease_ms < curation_ms {
        fault(
            "jobs.lease_s",
            format!(
                "must be at least {}, twice llm.tasks.curation.timeout_ms, or another node takes a job that still runs",
                curation_ms.div_ceil(1000)
            ),
        );
    }
}

/// The bytes of a message besides its line.
const ENVELOPE_BYTES: usize = 1_024;

/// Checks that the input limits of each part fit into the limits of the next part.
fn check_sizes(config: &Config, fault: &mut impl FnMut(&str, String)) {
    let replayed = config.actors.replay_events;
    if replayed >= config.socket.max_queued {
        let demand = format!("must be above {replayed}, or a client that resumes is cut as too slow");
        fault("socket.max_queued", demand);
    }
    let line = config
        .turn
        .max_line_chars
        .saturating_mul(4)
        .saturating_add(ENVELOPE_BYTES);
    for (key, bytes) in [
        ("socket.max_message_bytes", config.socket.max_message_bytes),
        ("http.max_body_bytes", config.http.max_body_bytes),
    ] {
        if bytes < line {
            fault(
                key,
                format!("must be at least {line}: turn.max_line_chars at 4 bytes each, and what is around a line"),
            );
        }
    }
}
