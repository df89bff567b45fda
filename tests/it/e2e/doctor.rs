//! `colloquy doctor` against the mock model, with the faults of real endpoints, and without a model.

use std::process::Output;

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use serde_json::Value;

use crate::support::ServerData;

/// A reply as a model writes it that knows the form.
const REPLY_WITH_BLOCK: &str =
    "Thank you, friend, the lantern will hang by the door.\n```state\nitems_gained: lantern\n```";

fn mock(faults: &[&str]) -> MockHandle {
    mock_with(faults, |_| {})
}

fn mock_with(faults: &[&str], change: impl FnOnce(&mut MockOptions)) -> MockHandle {
    let mut options = MockOptions {
        reply: REPLY_WITH_BLOCK.to_owned(),
        dimensions: 64,
        faults: faults.iter().map(|fault| fault.parse().unwrap()).collect(),
        ..MockOptions::default()
    };
    change(&mut options);
    mock_llm::start_on_thread(options).unwrap()
}

fn settings(server: &MockHandle) -> ServerData {
    ServerData::new(&[]).with_mock(&server.base_url())
}

fn run_doctor(data: &ServerData, more: &[&str]) -> Output {
    let mut command = data.command();
    command.current_dir(data.folder());
    command.args(["doctor", "--timeout", "20", "--quick"]).args(more);
    command.output().unwrap()
}

/// Returns the report, and whether the command succeeded.
fn report(data: &ServerData, more: &[&str]) -> (Value, bool) {
    let output = run_doctor(data, &[&["--json"], more].concat());
    let told = String::from_utf8(output.stdout).unwrap();
    let report = serde_json::from_str(&told).unwrap_or_else(|error| {
        panic!("{error}: {told}\n{}", String::from_utf8_lossy(&output.stderr));
    });
    (report, output.status.success())
}

/// Returns the only check of this name.
fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    let found: Vec<&Value> = checks.iter().filter(|check| check["check"] == name).collect();
    assert_eq!(found.len(), 1, "{name} in {report:#}");
    found[0]
}

fn change_of<'a>(report: &'a Value, name: &str, key: &str) -> &'a Value {
    let changes = check(report, name)["changes"].as_array().unwrap();
    let found = changes.iter().find(|change| change["key"] == key);
    &found.unwrap_or_else(|| panic!("{key} in {changes:?}"))["value"]
}

#[test]
fn server_without_a_model_is_in_order() {
    let data = ServerData::new(&[]);
    let (report, succeeded) = report(&data, &[]);
    assert!(succeeded, "{report:#}");
    assert_eq!(check(&report, "model")["verdict"], "warn");
    assert_eq!(check(&report, "embedder")["verdict"], "warn");
    for name in ["settings", "data folder", "ledger", "clock"] {
        assert_eq!(check(&report, name)["verdict"], "ok", "{report:#}");
    }
    // Nothing was made in the folder.
    assert_eq!(std::fs::read_dir(data.folder()).unwrap().count(), 0);
    let text = String::from_utf8(run_doctor(&data, &[]).stdout).unwrap();
    assert!(
        text.contains("warn  model (scripted)") && text.contains("0 failed"),
        "{text}"
    );
}

#[test]
fn good_endpoint_passes_every_check() {
    let server = mock(&[]);
    let (report, succeeded) = report(&settings(&server), &[]);
    assert!(succeeded, "{report:#}");
    for name in [
        "answer",
        "listed",
        "stream",
        "first word",
        "language en",
        "JSON",
        "intent",
        "state block",
        "thoughts",
    ] {
        assert_eq!(check(&report, name)["verdict"], "ok", "{report:#}");
        assert_eq!(check(&report, name)["subject"], "mock", "{report:#}");
    }
    // The mock's reply is English, whatever is asked.
    assert_eq!(check(&report, "language ko")["verdict"], "warn");
    // The prompts of the demo's NPCs ask for the block.
    let asked = server.requests_of("reply");
    assert!(
        asked
            .iter()
            .any(|request| request["messages"].to_string().contains("Mira")),
        "{asked:?}"
    );
}

#[test]
fn faults_of_an_endpoint_are_found_with_the_setting_that_mends_them() {
    for (fault, name, verdict, key, value) in [
        ("one-piece", "stream", "warn", None, Value::Null),
        (
            "no-stream-options",
            "stream",
            "fail",
            Some("llm.stream_usage"),
            false.into(),
        ),
        (
            "no-schema",
            "JSON",
            "fail",
            Some("llm.supports_json_schema"),
            false.into(),
        ),
        (
            "no-schema",
            "JSON",
            "fail",
            Some("llm.supports_json_object"),
            true.into(),
        ),
        (
            "no-format",
            "JSON",
            "fail",
            Some("llm.supports_json_schema"),
            false.into(),
        ),
        (
            "ignore-schema",
            "JSON",
            "warn",
            Some("llm.supports_json_schema"),
            false.into(),
        ),
        ("think", "thoughts", "warn", None, Value::Null),
        ("reasoning", "thoughts", "warn", None, Value::Null),
        (
            "think-closing",
            "thoughts",
            "warn",
            Some("llm.reasoning_prefilled"),
            true.into(),
        ),
        ("think-unclosed", "answer", "fail", None, Value::Null),
        ("500", "answer", "fail", None, Value::Null),
    ] {
        let server = mock(&[fault]);
        let (report, succeeded) = report(&settings(&server), &[]);
        assert_eq!(check(&report, name)["verdict"], verdict, "{fault}: {report:#}");
        assert_eq!(succeeded, verdict != "fail", "{fault}: {report:#}");
        if let Some(key) = key {
            assert_eq!(*change_of(&report, name, key), value, "{fault}");
        }
    }
}

#[test]
fn slow_first_word_and_missing_block_are_told() {
    let server = mock_with(&[], |options| {
        options.latency_ms = 1_700;
        options.reply = "Thank you, friend, the lantern will hang by the door.".to_owned();
    });
    let (report, succeeded) = report(&settings(&server), &[]);
    assert!(succeeded, "{report:#}");
    assert_eq!(check(&report, "first word")["verdict"], "warn");
    let block = check(&report, "state block");
    assert_eq!(block["verdict"], "warn");
    assert!(block["finding"].as_str().unwrap().contains("0 of 2"), "{block}");
}

#[test]
fn wrong_length_of_vectors_is_mended_in_the_settings_file() {
    let server = mock(&["no-schema"]);
    let data = settings(&server);
    let file = data.folder().join("colloquy.toml");
    let text = format!(
        "# Mine.\n[embedder]\nbase_url = \"{}\" # here\nmodel = \"text-embedding-3-small\"\ndimensions = 768\n\n\
         [turn]\nmax_queued = 7\n",
        server.base_url()
    );
    std::fs::write(&file, &text).unwrap();
    let (found, succeeded) = report(&data, &[]);
    assert!(!succeeded);
    assert_eq!(check(&found, "dimensions")["verdict"], "fail");
    assert_eq!(*change_of(&found, "dimensions", "embedder.dimensions"), 64);
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        text,
        "nothing is written unasked"
    );

    let output = run_doctor(&data, &["--fix"]);
    assert!(!output.status.success(), "the checks came before the change");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("-dimensions = 768") && told.contains("+dimensions = 64"),
        "{told}"
    );
    let written = std::fs::read_to_string(&file).unwrap();
    for part in [
        "# Mine.\n",
        " # here\n",
        "dimensions = 64\n",
        "max_queued = 7\n",
        "supports_json_schema = false\n",
    ] {
        assert!(written.contains(part), "{part}: {written}");
    }
    let (mended, _) = report(&data, &[]);
    assert_eq!(check(&mended, "dimensions")["verdict"], "ok");
    assert_eq!(check(&mended, "JSON")["verdict"], "ok", "{mended:#}");
}

#[test]
fn faults_of_the_settings_are_a_failed_check() {
    let data = ServerData::new(&[("COLLOQUY__LLM__PRESET", "olama")]);
    let (report, succeeded) = report(&data, &[]);
    assert!(!succeeded);
    let found = check(&report, "settings");
    assert_eq!(found["verdict"], "fail");
    assert!(found["finding"].as_str().unwrap().contains("llm.preset"), "{found}");
}
