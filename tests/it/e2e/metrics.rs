//! `/metrics` matches `docs/metrics.md`, and the dashboard uses no other metrics.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use colloquy::mock_llm::{self, MockOptions};
use figment::{
    Figment,
    providers::{Format as _, Toml},
};
use regex::Regex;
use reqwest::Method;
use serde_json::{Value, json};

use super::fresh;
use crate::support::{eventually, run};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A metric family: its type and labels.
type MetricFamily = (String, BTreeSet<String>);

/// Returns the families in the document's tables.
fn documented_metrics() -> BTreeMap<String, MetricFamily> {
    let mut families = BTreeMap::new();
    for line in read("docs/metrics.md").lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let name = cells[0].trim_matches('`');
        if !name.starts_with("colloquy_") && !name.starts_with("process_") {
            continue;
        }
        // An empty cell is one space wide.
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let labels = cells[2].split(',').map(|label| label.trim().trim_matches('`'));
        let labels = labels.filter(|label| !label.is_empty()).map(str::to_owned).collect();
        let twice = families.insert(name.to_owned(), (cells[1].to_owned(), labels));
        assert!(twice.is_none(), "{name} is documented twice");
        assert!(!cells[3].is_empty(), "{name} is not explained");
    }
    families
}

/// Returns the families exposed by a server.
fn exposed_metrics(text: &str) -> BTreeMap<String, MetricFamily> {
    let label = Regex::new(r#"([a-z_]+)="(?:[^"\\]|\\.)*""#).unwrap();
    let mut families: BTreeMap<String, MetricFamily> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            families.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if !line.starts_with('#') {
            let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
            let base = ["_bucket", "_sum", "_count"].into_iter().find_map(|end| {
                let base = name.strip_suffix(end)?;
                families
                    .get(base)
                    .is_some_and(|(kind, _)| kind == "histogram")
                    .then_some(base)
            });
            let (_, labels) = families.get_mut(base.unwrap_or(name)).unwrap();
            let found = label.captures_iter(rest).map(|found| found[1].to_owned());
            labels.extend(found.filter(|label| label != "le"));
        }
    }
    families
}

/// The phases of a turn.
const PHASES: [&str; 9] = [
    "queue",
    "memory_wait",
    "embed",
    "recall",
    "intent",
    "assemble",
    "first_token",
    "reply",
    "commit",
];

/// Returns the value of the sample with the given name and labels.
fn sample(text: &str, of: &str) -> f64 {
    let shown = text.lines().find_map(|line| line.strip_prefix(of));
    let figure = shown.unwrap_or_else(|| panic!("{of} is not in\n{text}"));
    figure.trim().parse().unwrap()
}

#[test]
fn metrics_and_their_documentation_match() {
    let mock = mock_llm::start_on_thread(MockOptions::default()).unwrap();
    run(async {
        let server = fresh(&[("COLLOQUY__LLM__PRICES", "mock=1/0.5/4")])
            .with_mock(&mock.base_url())
            .start();
        let rest = server.backend();
        let mut socket = server.player("anna").await;
        let session = socket.session("mira", "anna").await;
        assert_eq!(socket.say_line(&session, "I like grapes.").await.status, "completed");
        assert_eq!(rest.call(Method::GET, "/v1/worlds/none", None).await.0, 404);
        // The message is too large, so the server closes the socket.
        socket
            .send(&json!({"type": "ping", "event_id": "x".repeat(100_000)}))
            .await;
        let documented = documented_metrics();
        eventually("every documented metric is shown", || {
            let (rest, documented) = (rest.clone(), &documented);
            async move {
                let shown = exposed_metrics(&rest.text("/metrics").await);
                let missing: Vec<_> = documented.keys().filter(|name| !shown.contains_key(*name)).collect();
                if !missing.is_empty() {
                    eprintln!("not yet: {missing:?}");
                    return None;
                }
                assert_eq!(&shown, documented);
                Some(())
            }
        })
        .await;
        let text = rest.text("/metrics").await;
        // The turn and the work afterwards gave one sample per phase.
        for (family, label, values) in [
            ("colloquy_turn_phase_seconds", "phase", &PHASES[..]),
            ("colloquy_job_lag_seconds", "kind", &["extract_facts"]),
            ("colloquy_job_seconds", "kind", &["extract_facts"]),
        ] {
            for value in values {
                let count = sample(&text, &format!("{family}_count{{{label}=\"{value}\"}}"));
                assert!((count - 1.0).abs() < f64::EPSILON, "{family} of {value}: {count}");
                // The queue was empty and no memory was pending, so these waits may be zero.
                let took = sample(&text, &format!("{family}_sum{{{label}=\"{value}\"}}"));
                assert!(
                    took > 0.0 || ["queue", "memory_wait"].contains(value),
                    "{family} of {value}: {took}"
                );
            }
        }
        for task in ["intent", "reply", "extraction", "embedding"] {
            let calls = format!("colloquy_model_call_seconds_count{{outcome=\"ok\",task=\"{task}\"}}");
            assert!(sample(&text, &calls) > 0.5, "no call of {task}");
        }
        for kind in ["session", "npc_conversation", "npc", "curator"] {
            assert!(
                text.contains(&format!("colloquy_mailbox_messages{{kind=\"{kind}\"}} 0")),
                "{kind}"
            );
        }
        for write in ["turn", "line", "move", "pause", "close", "renew"] {
            let refused = format!("colloquy_fenced_writes_total{{write=\"{write}\"}} 0");
            assert!(text.contains(&refused), "{write}");
        }
        for line in [
            r#"colloquy_model_tokens_total{kind="prompt",task="reply",tenant="demo"}"#,
            r#"colloquy_model_cost_total{task="reply",tenant="demo"}"#,
            r#"colloquy_model_attempts_total{model="mock",outcome="ok",task="reply"} 1"#,
            r#"colloquy_turn_phase_seconds_count{phase="commit"} 1"#,
            r#"colloquy_actors{kind="session"} 1"#,
            "colloquy_takeovers_total 0",
            "colloquy_turns_running 0",
            "colloquy_lines_waiting 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    });
}

/// Returns the files below `docker/` whose names have one of these endings.
fn deployment_files(ends: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("docker")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if ends.iter().any(|end| path.to_str().unwrap().ends_with(end)) {
                found.push(path);
            }
        }
    }
    found
}

fn collect_queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "expr" || name == "query" => found.push(text.clone()),
                    _ => collect_queries(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_queries(item, found)),
        _ => {}
    }
}

#[test]
fn dashboard_and_alerts_use_existing_metrics() {
    let documented = documented_metrics();
    let prose = read("docs/metrics.md");
    let metric = Regex::new(r"\b(?:colloquy|process)_[a-z_]+\b").unwrap();
    let mut dashboard = Vec::new();
    collect_queries(
        &serde_json::from_str(&read("docker/grafana/colloquy.json")).unwrap(),
        &mut dashboard,
    );
    assert!(dashboard.len() > 20, "{}", dashboard.len());
    let mut asked = BTreeSet::new();
    let alerts = read("docker/prometheus/alerts.yaml");
    for text in dashboard.iter().map(String::as_str).chain([alerts.as_str()]) {
        for found in metric.find_iter(text) {
            let name = found.as_str();
            let base = ["_bucket", "_sum", "_count"].into_iter().find_map(|end| {
                let base = name.strip_suffix(end)?;
                documented
                    .get(base)
                    .is_some_and(|(kind, _)| kind == "histogram")
                    .then_some(base)
            });
            let name = base.unwrap_or(name);
            // Metrics exposed only by clusters have no row in the tables.
            let is_known = documented.contains_key(name) || prose.contains(&format!("`{name}`"));
            assert!(is_known, "there is no {name}: {text}");
            asked.insert(name.to_owned());
        }
    }
    // Every metric must be in a panel or an alert.
    let unseen: Vec<_> = documented.keys().filter(|name| !asked.contains(*name)).collect();
    assert!(unseen.is_empty(), "no panel and no alert shows {unseen:?}");
}

#[test]
fn settings_named_in_deployments_exist() {
    let known = Figment::from(Toml::string(colloquy::config::DEFAULTS));
    let name = Regex::new(r"COLLOQUY__[A-Z0-9_]+").unwrap();
    let mut checked = 0;
    for path in deployment_files(&[".yaml", ".yml", ".md", "Dockerfile", ".cfg"]) {
        let text = std::fs::read_to_string(&path).unwrap();
        for found in name.find_iter(&text) {
            let key = found.as_str().trim_start_matches("COLLOQUY__").to_lowercase();
            let key = key.replace("__", ".");
            // Deployments set up several nodes. A single server's configuration has no such section.
            if key.starts_with("node.") && known.find_value("node").is_err() {
                continue;
            }
            let setting = known.find_value(&key);
            assert!(
                setting.is_ok(),
                "{} names {}, which is no setting",
                path.display(),
                found.as_str()
            );
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
}
