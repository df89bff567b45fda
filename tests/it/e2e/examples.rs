//! The clients of `examples/` against a server: the Rust one in this process, the others where their language is installed.

use std::{fs, path::Path, process::Command};

use colloquy::{
    mock_llm::{self, MockOptions},
    tenancy::Role,
};
use regex::Regex;

use super::fresh;
use crate::support::{TestServer, run};

#[allow(dead_code, reason = "`main` and its settings are for those who run it as a program")]
#[path = "../../../examples/chat.rs"]
mod chat;

/// Long enough at 20 words a second for an interrupt to come while it is said.
const SLOW_REPLY: &str = "Grapes are for those who have the time to tread them, and I have beds to make, a cellar to sweep and \
     a roof that lets in more of the night than I would like, so you will have to ask somebody else about that.";

/// Returns the address to which an example connects.
fn url(server: &TestServer) -> String {
    format!("ws://{}/v1/ws", server.address)
}

fn token(server: &TestServer) -> String {
    server.token("demo", Role::Player, Some("p7"))
}

/// The part of `printed` that the group of `pattern` matches.
fn find<'a>(printed: &'a str, pattern: &str) -> &'a str {
    let found = Regex::new(pattern).unwrap().captures(printed);
    let found = found.unwrap_or_else(|| panic!("no `{pattern}` in:\n{printed}"));
    found.get(1).unwrap().as_str()
}

/// Asserts that a streamed reply, a cut and a resume were printed, and that the ledger has the printed texts. Returns
/// the event of the cut.
fn assert_conversation_was_held(server: &TestServer, printed: &str) -> String {
    let pieces: u32 = find(printed, r"(?m)^mira> .+ \((\d+) pieces\)$").parse().unwrap();
    assert!(pieces > 2, "{printed}");
    let heard = find(printed, r"(?m)^mira> (.+)\.\.\.$");
    let cut = find(printed, r#"(?m)^cut: turn 2 is now "(.+)" "#);
    assert!(!cut.is_empty() && heard.starts_with(cut), "{printed}");
    let resumed = find(printed, r"(?m)^resumed: \d+ missed events\nmira> (.+)$");
    find(printed, r"(?m)^closed: (.+)$");

    let session = find(printed, r"(?m)^session \W?(ses_\w+)");
    let turns = run(async { server.backend().get(&format!("/v1/sessions/{session}/turns")).await });
    let replies: Vec<&str> = turns["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| turn["reply_text"].as_str().unwrap())
        .collect();
    assert_eq!(replies.len(), 3, "{turns}");
    assert_eq!(&replies[1..], [cut, resumed], "{printed}");
    find(printed, r#"(?m)^cut: .* \("?([a-z.]+)"?\)$"#).to_owned()
}

/// Checks the output of `chat` for three servers: one with replies that end at once, one with the pace of the demo, twice as
/// fast, and one with a slow model. The last two replies are cut mid-stream.
fn assert_client_holds_a_conversation(chat: impl Fn(&TestServer) -> String) {
    let server = fresh(&[]).start();
    assert_conversation_was_held(&server, &chat(&server));

    let server = fresh(&[("COLLOQUY__DEMO__WORDS_PER_S", "8")]).start();
    assert_eq!(assert_conversation_was_held(&server, &chat(&server)), "interrupt.done");

    let options = MockOptions {
        tokens_per_s: 20,
        reply: SLOW_REPLY.to_owned(),
        ..MockOptions::default()
    };
    let mock = mock_llm::start_on_thread(options).unwrap();
    let server = fresh(&[]).with_mock(&mock.base_url()).start();
    assert_eq!(assert_conversation_was_held(&server, &chat(&server)), "interrupt.done");
}

/// Runs a program, asserts its success, and returns its output.
fn printed_by(command: &mut Command, server: &TestServer) -> String {
    let output = command
        .env("COLLOQUY_URL", url(server))
        .env("COLLOQUY_TOKEN", token(server))
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{printed}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    printed
}

/// Whether a program of this major version or a later one is installed. If not, says that its test is skipped.
fn is_installed(program: &str, major: u32) -> bool {
    let version = Command::new(program).arg("--version").output().ok().and_then(|output| {
        let text = String::from_utf8(output.stdout).ok()?;
        text.trim()
            .trim_start_matches('v')
            .split('.')
            .next()?
            .parse::<u32>()
            .ok()
    });
    let is_there = version.is_some_and(|version| version >= major);
    if !is_there {
        eprintln!("skipped: {program} {major} or later is not installed");
    }
    is_there
}

fn example(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(path)
}

#[test]
fn example_in_rust_streams_cuts_and_resumes() {
    assert_client_holds_a_conversation(|server| {
        let mut printed = Vec::new();
        run(chat::chat(&url(server), &token(server), &mut printed)).unwrap();
        String::from_utf8(printed).unwrap()
    });
}

#[test]
fn example_in_javascript_streams_cuts_and_resumes() {
    if is_installed("node", 22) {
        let script = example("javascript/chat.mjs");
        assert_client_holds_a_conversation(|server| printed_by(Command::new("node").arg(&script), server));
    }
}

#[test]
fn example_in_csharp_streams_cuts_and_resumes() {
    if is_installed("dotnet", 8) {
        // A copy, since `dotnet` builds beside the sources.
        let folder = tempfile::tempdir().unwrap();
        for file in ["Chat.cs", "chat.csproj"] {
            fs::copy(example("csharp").join(file), folder.path().join(file)).unwrap();
        }
        assert_client_holds_a_conversation(|server| {
            printed_by(
                Command::new("dotnet").args(["run", "--project"]).arg(folder.path()),
                server,
            )
        });
    }
}
