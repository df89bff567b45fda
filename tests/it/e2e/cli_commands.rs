//! The manual commands, as separate processes.

use std::{
    io::Write,
    process::{Output, Stdio},
};

use crate::support::{RestClient, ServerData, run};

#[test]
fn chat_lines_from_a_pipe_are_said_in_order_and_awaited() {
    run(async {
        let server = ServerData::new(&[
            // The limit is so tight that some lines must also wait for the server.
            ("COLLOQUY__LIMITS__SOCKET_MESSAGES_PER_S", "2"),
            ("COLLOQUY__LIMITS__SOCKET_STRIKES", "100"),
        ])
        .start();
        let url = format!("http://{}", server.address);
        let data = server.data.clone();
        let chat = tokio::task::spawn_blocking(move || -> Output {
            let mut chat = data
                .command()
                .args(["chat", "--npc", "mira", "--url", &url])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            // All lines come at once, directly followed by the end of input.
            let mut lines = chat.stdin.take().unwrap();
            lines
                .write_all(b"I like grapes.\nThe weather is nice today.\n\nWhat fruit do I like?\n")
                .unwrap();
            drop(lines);
            chat.wait_with_output().unwrap()
        });
        let output = chat.await.unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}\n{errors}");
        let replies: Vec<&str> = said.lines().filter(|line| line.starts_with("mira> ")).collect();
        assert_eq!(replies.len(), 3, "{said}");
        assert!(replies[2].to_lowercase().contains("grapes"), "{said}");
        assert!(said.contains("too fast for this server"), "{said}");
        let page = server.backend().get("/v1/sessions").await;
        assert_eq!(page["items"][0]["head_turn"], 3, "every line is a turn: {page}");
    });
}

#[test]
fn token_for_an_unknown_tenant_prints_a_warning() {
    run(async {
        let data = ServerData::new(&[]);
        let token = |tenant: &str| {
            let output = data
                .command()
                .args(["token", "--role", "backend", "--tenant", tenant])
                .output()
                .unwrap();
            assert!(output.status.success());
            assert_eq!(
                String::from_utf8(output.stdout).unwrap().matches('.').count(),
                2,
                "a JWT"
            );
            String::from_utf8(output.stderr).unwrap()
        };
        assert_eq!(token("demo"), "", "without a ledger nothing is known");
        let server = data.start();
        assert_eq!(token("demo"), "");
        assert!(token("nope").contains("has no tenant nope"));
        // The running server and its ledger are unaffected.
        assert_eq!(server.backend().status("/v1/worlds/vale").await, 200);
    });
}

#[test]
fn token_in_a_folder_without_a_secret_says_that_it_makes_one() {
    let data = ServerData::new(&[("COLLOQUY__AUTH__HS256_SECRET", "")]);
    let token = || {
        let output = data
            .command()
            .args(["token", "--role", "backend", "--tenant", "demo"])
            .output()
            .unwrap();
        assert!(output.status.success());
        let token = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        (token, String::from_utf8(output.stderr).unwrap())
    };
    let (first, said) = token();
    let secret = data.folder().join("hs256_secret");
    assert!(said.contains(secret.to_str().unwrap()), "{said}");
    assert!(said.contains("same data_dir"), "{said}");
    let (_, said) = token();
    assert_eq!(said, "", "the secret is there now");
    // The secret of another folder.
    run(async {
        let server = ServerData::new(&[("COLLOQUY__AUTH__HS256_SECRET", "")]).start();
        let client = RestClient::new(server.address, first.clone());
        let (status, problem) = client.call(reqwest::Method::GET, "/v1/worlds", None).await;
        assert_eq!(status, 401, "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("data_dir"), "{detail}");
    });
}

#[test]
fn log_without_a_terminal_has_no_colours() {
    let data = ServerData::new(&[("COLLOQUY__TELEMETRY__LOG", "info")]);
    let mut server = data
        .command()
        .arg("serve")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut banner = std::io::BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("listens on") {
        line.clear();
        assert!(
            std::io::BufRead::read_line(&mut banner, &mut line).unwrap() > 0,
            "it ended early"
        );
    }
    let told = std::process::Command::new("kill").arg(server.id().to_string()).status();
    assert!(told.unwrap().success());
    // Reading the remaining output prevents the server from blocking.
    std::io::copy(&mut banner, &mut std::io::sink()).unwrap();
    let log = server.wait_with_output().unwrap().stderr;
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("shut down"), "{log}");
    assert!(!log.contains('\u{1b}'), "{log}");
    assert!(!log.contains("workers"), "{log}");
}

#[test]
fn health_command_reports_whether_new_work_is_accepted() {
    let server = ServerData::new(&[]).start();
    let url = format!("http://{}", server.address);
    let data = server.data.clone();
    let ask = |more: &[&str]| -> Output {
        let mut command = data.command();
        command.args(["health", "--url", &url, "--timeout", "60"]).args(more);
        command.output().unwrap()
    };
    for more in [&[][..], &["--live"][..]] {
        let asked = ask(more);
        assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
        assert!(asked.stdout.is_empty());
    }
    server.stop();
    let asked = ask(&[]);
    assert!(!asked.status.success());
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(said.contains("/readyz does not answer"), "{said}");
}

#[test]
fn ledger_file_has_one_server_by_any_path() {
    let server = ServerData::new(&[]).start();
    let file = server.data.folder().join("colloquy.db");
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link.db");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    // Every command runs in its own data folder.
    let refused = |path: &std::path::Path, command: &str| {
        let data = ServerData::new(&[]).with(&[("COLLOQUY__LEDGER__URL", &format!("sqlite://{}", path.display()))]);
        let output = data.command().arg(command).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{command} {}", path.display());
        assert!(said.contains("another colloquy process uses the database"), "{said}");
        assert!(said.contains(file.to_str().unwrap()), "{said}");
        assert!(said.contains("stop it first"), "{said}");
    };
    let relative = std::path::Path::new("..").join(file.strip_prefix(std::env::temp_dir()).unwrap());
    for path in [&*file, &link, &relative] {
        refused(path, "serve");
    }
    for command in ["migrate", "reindex"] {
        refused(&file, command);
    }
    // The running server and its ledger are unaffected. After the server stops, other processes may open the file.
    run(async { assert_eq!(server.backend().status("/v1/worlds/vale").await, 200) });
    let data = server.stop();
    for command in ["migrate", "reindex"] {
        assert!(
            data.command().arg(command).output().unwrap().status.success(),
            "{command}"
        );
    }
}
