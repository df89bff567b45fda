//! `colloquy chat` as a separate process: its commands from a pipe, and the tour of the README.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use colloquy::mock_llm::{self, MockHandle, MockOptions};
use serde_json::json;

use super::fresh;
use crate::support::{TestServer, run};

/// Starts `colloquy chat` with a pipe.
fn spawn_chat(server: &TestServer, args: &[&str]) -> Child {
    server
        .data
        .command()
        .args(["chat", "--url", &format!("http://{}", server.address)])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs `colloquy chat` with all lines at once, directly followed by the end of input. Returns the output.
fn chat(server: &TestServer, args: &[&str], lines: &str) -> (Output, String) {
    let mut chat = spawn_chat(server, args);
    chat.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = chat.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(!printed.contains('\u{1b}'), "a pipe gets no escape codes: {printed}");
    assert!(!printed.contains("thinks"), "a pipe gets no sign: {printed}");
    (output, printed)
}

/// Asserts that the texts were printed in this order.
fn assert_in_order(printed: &str, texts: &[&str]) {
    let mut rest = printed;
    for text in texts {
        rest = rest
            .split_once(text)
            .unwrap_or_else(|| panic!("no `{text}` in its place in:\n{printed}"))
            .1;
    }
}

/// Returns the lines that the README gives to `colloquy chat`, one text for each chat.
fn readme_tour() -> Vec<String> {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let heredocs = readme.split("colloquy chat --npc mira <<'END'\n").skip(1);
    heredocs
        .map(|rest| rest.split_once("END\n").unwrap().0.to_owned())
        .collect()
}

#[test]
fn readme_tour_prints_what_the_readme_says() {
    let server = fresh(&[]).start();
    let mut printed = String::new();
    for lines in readme_tour() {
        let (output, of_chat) = chat(&server, &["--npc", "mira"], &lines);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{of_chat}\n{errors}");
        printed += &of_chat;
    }
    assert_in_order(
        &printed,
        &[
            "you> What fruit do I like?\nmira> You like grapes.",
            "you> /facts\nThe player likes grapes.  [",
            "you> /watch mira tom about the silver key\n",
            "\nmira> ",
            "\ntom> ",
            "—\nyou> Wait, which key?\n(taken back: the rest of line 2",
            "\ntom> ",
            "(you are with mira and tom now",
            "you> What were you two just talking about?\n",
            "—”",
            "you> I like figs.\n",
            "tom:\nThe player likes figs.  [",
            "you> /rewind 2\n(taken back: turn 3, 1 fact; the last turn is 2)\n",
            "tom:\n(nothing)\n",
            "(saved “before”: ",
            "you> I like pears.\n",
            "you> /again\n(taken back: turn 1",
            "\nmira> ",
            "The player likes pears.  [",
            "(loaded “before”; taken back: 1 turn, 1 fact)\nyou> /facts\nThe player likes grapes.  [",
        ],
    );
}

/// Starts a model with one reply.
fn start_model() -> MockHandle {
    let options = MockOptions {
        reply: "The silver key lies under the old mill.".to_owned(),
        ..MockOptions::default()
    };
    mock_llm::start_on_thread(options).unwrap()
}

#[test]
fn line_from_a_pipe_cuts_in_on_npcs_at_the_word_that_was_shown() {
    run(async {
        let mock = start_model();
        let env = [
            ("COLLOQUY__CONVERSATION__PAUSE_MS", "50"),
            ("COLLOQUY__CONVERSATION__READING_MS_PER_CHAR", "0"),
            ("COLLOQUY__CONVERSATION__MAX_TURNS", "100"),
        ];
        let server = fresh(&env).with_mock(&mock.base_url()).start();
        let lines = "/watch mira tom about the silver key\nWait, which key?\nAnd now?\n\nHello, Mira.\n";
        let (server, (output, printed)) = tokio::task::spawn_blocking(move || {
            let printed = chat(&server, &["--npc", "mira", "--ms-per-char", "8"], lines);
            (server, printed)
        })
        .await
        .unwrap();
        assert!(output.status.success(), "{printed}");
        assert_in_order(
            &printed,
            &[
                "mira> The silver key lies under the old mill.\n",
                "tom> The silver key —\nyou> Wait, which key?\n",
                "(taken back: the rest of line 2, line",
                "; the last line is 2)\n",
                "(you are with mira and tom now; an empty line or /leave goes back)\n",
                "you> And now?\n",
                "(you are with mira again)\n",
                "you> Hello, Mira.\nmira> ",
            ],
        );
        let backend = server.backend();
        let conversations = backend.get("/v1/npc-conversations").await;
        let id = conversations["items"][0]["id"].as_str().unwrap();
        let turns = backend.get(&format!("/v1/npc-conversations/{id}/turns")).await;
        let said: Vec<&str> = turns["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|turn| turn["reply_text"].as_str().unwrap().trim_end())
            .collect();
        assert_eq!(said, ["The silver key lies under the old mill.", "The silver key"]);
        let sessions = backend.get("/v1/sessions").await;
        let mut heads: Vec<(usize, u64)> = sessions["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| {
                (
                    one["npc_ids"].as_array().unwrap().len(),
                    one["head_turn"].as_u64().unwrap(),
                )
            })
            .collect();
        heads.sort_unstable();
        assert_eq!(
            heads,
            [(1, 1), (2, 2)],
            "each line is a turn of its session: {sessions}"
        );
    });
}

/// The NPCs say their last lines while the chat waits for the rate limit.
#[test]
fn watched_npcs_talk_to_their_end_after_a_refused_line() {
    let mock = start_model();
    let env = [
        ("COLLOQUY__LIMITS__PLAYER_TURNS_PER_MIN", "20"),
        ("COLLOQUY__HTTP__MAX_SESSIONS_PER_SOCKET", "2"),
        ("COLLOQUY__CONVERSATION__PAUSE_MS", "400"),
        ("COLLOQUY__CONVERSATION__READING_MS_PER_CHAR", "0"),
        ("COLLOQUY__CONVERSATION__MAX_TURNS", "4"),
    ];
    let server = fresh(&env).with_mock(&mock.base_url()).start();
    let lines = "/again\n".repeat(20) + "/watch mira tom about the silver key\nWait, which key?\n";
    let (output, printed) = chat(&server, &["--npc", "mira", "--ms-per-char", "8"], &lines);
    assert!(!output.status.success(), "a line failed: {printed}");
    assert_in_order(
        &printed,
        &[
            "tom> The silver key —\nyou> Wait, which key?\n",
            "[too_many_sessions])\n(your line was not said)\n",
            "mira> The silver key lies under the old mill.\n",
            "tom> The silver key lies under the old mill.\n",
            "(their conversation has ended)\n",
        ],
    );
}

/// The budget has a place for the first session and the NPCs' conversation.
#[test]
fn chat_tells_that_npcs_were_cut_although_the_line_was_not_said() {
    let mock = start_model();
    let env = [
        ("COLLOQUY__BUDGETS__DIALOGUES", "2"),
        ("COLLOQUY__CONVERSATION__PAUSE_MS", "50"),
        ("COLLOQUY__CONVERSATION__READING_MS_PER_CHAR", "0"),
        ("COLLOQUY__CONVERSATION__MAX_TURNS", "100"),
    ];
    let server = fresh(&env).with_mock(&mock.base_url()).start();
    let lines = "/watch mira tom about the silver key\nWait, which key?\nHello, Mira.\n";
    let (output, printed) = chat(&server, &["--npc", "mira", "--ms-per-char", "8"], lines);
    assert!(!output.status.success(), "a line failed: {printed}");
    assert_in_order(
        &printed,
        &[
            "tom> The silver key —\nyou> Wait, which key?\n",
            "(taken back: the rest of line 2, line",
            "; the last line is 2)\n",
            "[budget_spent])\n(your line was not said, and their conversation is paused)\n",
            "you> Hello, Mira.\nmira> ",
        ],
    );
}

#[test]
fn chat_commands_tell_what_was_taken_back_and_what_is_valid_again() {
    let server = fresh(&[]).start();
    let lines = "I like grapes.\n/save grapes\nForget that I like grapes.\n/facts\n/rewind 1\n/facts\n\
         I like figs.\n/facts\n/save\n/again\n/facts\n/load grapes\n/facts\n/load\n/facts figs\n/trace\n/rewind 0\n/facts\n";
    let (output, printed) = chat(&server, &["--npc", "mira"], lines);
    assert!(
        output.status.success(),
        "{printed}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_in_order(
        &printed,
        &[
            "(saved “grapes”: 1 dialogue; /load brings this moment back)\n",
            "you> Forget that I like grapes.\nmira> ",
            "you> /facts\n(nothing)\n",
            "(taken back: turn 2; valid again: 1 fact; the last turn is 1)\n",
            "you> /facts\nThe player likes grapes.  [preference, importance 5, said by player:you]\nyou> ",
            "The player likes figs.",
            "(saved save_",
            "you> /again\n(taken back: turn 2, 1 fact; the last turn is 1)\nmira> ",
            "(loaded “grapes”; taken back: 1 turn, 1 fact)\nyou> /facts\nThe player likes grapes.  [preference, importance 5, said by player:you]\nyou> ",
            "(loaded save_",
            "valid again: 1 turn, 1 fact)\nyou> /facts figs\n",
            "  The player likes figs.",
            "turn 2: intent ",
            "(taken back: turns 1 and 2, 2 facts; no turn is left)\n",
            "you> /facts\n(nothing)\n",
        ],
    );
}

#[test]
fn chat_knows_the_last_turn_after_a_reply_that_no_other_replaced() {
    let mock = start_model();
    let server = fresh(&[]).with_mock(&mock.base_url()).start();
    let mut chat = spawn_chat(&server, &["--npc", "mira"]);
    let (mut lines, mut screen) = (chat.stdin.take().unwrap(), BufReader::new(chat.stdout.take().unwrap()));
    lines.write_all(b"Hello.\nHello again.\n").unwrap();
    let replies = screen
        .by_ref()
        .lines()
        .filter(|line| line.as_ref().unwrap().starts_with("mira> "));
    assert_eq!(replies.take(2).count(), 2);
    mock.apply_settings(&json!({"faults": ["reply=500"]})).unwrap();
    lines.write_all(b"/again\n/rewind 1\n").unwrap();
    drop(lines);
    let mut printed = String::new();
    screen.read_to_string(&mut printed).unwrap();
    assert!(!chat.wait().unwrap().success(), "a line failed: {printed}");
    assert_in_order(
        &printed,
        &[
            "you> /again\n(taken back: turn 2; the last turn is 1)\n(no reply: ",
            "(taken back: nothing; valid again: turn 2; the last turn is 2)\n",
            "you> /rewind 1\n(taken back: turn 2; the last turn is 1)\n",
        ],
    );
}

#[test]
fn chat_goes_on_in_a_new_session_if_the_save_is_older() {
    let server = fresh(&[]).start();
    let (output, printed) = chat(&server, &["--npc", "mira", "--player", "p1"], "Hello.\n/save before\n");
    assert!(output.status.success(), "{printed}");
    let lines = "I like figs.\n/facts\n/load before\nWhat fruit do I like?\n/rewind 0\n";
    let (output, printed) = chat(&server, &["--npc", "mira"], lines);
    assert!(output.status.success(), "{printed}");
    assert_in_order(
        &printed,
        &[
            "(loaded “before”; taken back: 1 turn, 1 fact; ended: 1 dialogue)\n",
            "(the session with mira is closed (it is not in this save); a new one begins)\n",
            "you> What fruit do I like?\nmira> ",
            "(taken back: turn 1; no turn is left)\n",
        ],
    );
}

#[test]
fn chat_explains_refusals_and_loses_nothing() {
    let server = fresh(&[]).start();
    let lines = "Hello.\n/dance\n/rewind\n/rewind 7\n/load\n/load figs\n/watch mira\n/watch mira nobody\n/leave\n/help\n/rewind 1\n\
         And hello again.\n";
    let (output, printed) = chat(&server, &["--npc", "mira"], lines);
    assert!(!output.status.success(), "a line failed: {printed}");
    assert_in_order(
        &printed,
        &[
            "(there is no command /dance; /help lists them)\n",
            "(/rewind needs the number of the turn",
            "you> /rewind 7\n(nothing to take back: the last turn is 1)\n",
            "(there is no save yet; /save makes one)\n",
            "(there is no save “figs”; /save makes one)\n",
            "(/watch needs at least two NPCs",
            "(there is no NPC nobody in this world [not_found])\n",
            "(you are in your session with mira; /quit ends the chat)\n",
            "/watch NPC NPC [about TOPIC]",
            "you> /rewind 1\n(nothing to take back: the last turn is 1)\n",
            "you> And hello again.\nmira> ",
        ],
    );
    run(async {
        let page = server.backend().get("/v1/sessions").await;
        assert_eq!(page["items"][0]["head_turn"], 2, "{page}");
    });
}

/// Runs `colloquy chat` on a terminal of `script`. `None` where `script` is not installed.
fn chat_on_terminal(server: &TestServer, env: &[(&str, &str)], lines: &str) -> Option<String> {
    let script = Path::new("/usr/bin/script");
    if !script.exists() {
        return None;
    }
    let program = server.data.command();
    let chat = format!(
        "{} chat --npc mira --url http://{}",
        program.get_program().to_str().unwrap(),
        server.address
    );
    let mut terminal = Command::new(script)
        .args(["-qec", &chat, "/dev/null"])
        .env_clear()
        .envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))))
        .env("TERM", "xterm")
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    terminal.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = terminal.wait_with_output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    Some(printed)
}

#[test]
fn chat_on_a_terminal_has_colours_and_shows_that_the_model_thinks() {
    let server = fresh(&[]).start();
    let lines = "I like grapes.\n/quit\n";
    let Some(printed) = chat_on_terminal(&server, &[], lines) else {
        return;
    };
    for sign in ["\u{1b}[36mmira>\u{1b}[0m ", "mira thinks …"] {
        assert!(printed.contains(sign), "no {sign:?} in {printed:?}");
    }
    let printed = chat_on_terminal(&server, &[("NO_COLOR", "1")], lines).unwrap();
    assert!(printed.contains("mira thinks …"), "{printed:?}");
    assert!(!printed.contains('\u{1b}'), "{printed:?}");
}
