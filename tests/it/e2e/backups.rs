//! `colloquy backup` on a running server, and `colloquy restore`: an NPC knows the facts of that moment.

use std::{fs, path::Path, process::Output};

use sqlx::{ConnectOptions as _, sqlite::SqliteConnectOptions};

use crate::support::{ServerData, TestServer, run};

fn run_command(data: &ServerData, args: &[&str]) -> Output {
    data.command().args(args).output().unwrap()
}

/// Returns the output of a successful command.
fn run_successfully(data: &ServerData, args: &[&str]) -> String {
    let output = run_command(data, args);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the error of a rejected command.
fn run_rejected(data: &ServerData, args: &[&str]) -> String {
    let output = run_command(data, args);
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

async fn remembered_fruit(server: &TestServer) -> Vec<String> {
    let facts = server.backend().facts("mira").await;
    let mut fruit: Vec<String> = facts
        .iter()
        .filter_map(|fact| fact["content"].as_str()?.strip_prefix("The player likes "))
        .map(str::to_owned)
        .collect();
    fruit.sort();
    fruit
}

#[test]
fn backup_restores_the_memory_of_its_moment() {
    run(async {
        let server = ServerData::new(&[]).spawn();
        let backups = tempfile::tempdir().unwrap();
        let file = backups.path().join("then.db");
        let file = file.to_str().unwrap();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.say_line(&session, "I like grapes.").await;
        server.backend().idle().await;

        // Other players talk meanwhile.
        let data = server.data.clone();
        let (of, to) = (data.clone(), file.to_owned());
        let backing_up = tokio::task::spawn_blocking(move || run_successfully(&of, &["backup", &to]));
        let mut other = server.player("p2").await;
        let talk = other.session("ergen", "p2").await;
        for number in 0..10 {
            other.say_line(&talk, &format!("나는 사과 {number}개를 샀어.")).await;
        }
        let told = backing_up.await.unwrap();
        assert!(told.contains("then.db") && told.contains("keep the settings"), "{told}");
        assert_eq!(file_names(backups.path()), ["then.db"], "nothing is left behind");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }

        socket.say_line(&session, "I like pears.").await;
        server.backend().idle().await;
        assert_eq!(remembered_fruit(&server).await, ["grapes.", "pears."]);
        let whole = fs::read(file).unwrap();
        assert!(run_rejected(&data, &["backup", file]).contains("--overwrite"));
        assert_eq!(fs::read(file).unwrap(), whole, "it is left alone");
        let own = data.folder().join("colloquy.db");
        let own = own.to_str().unwrap();
        assert!(run_rejected(&data, &["backup", "--overwrite", own]).contains("is the database itself"));
        let why = run_rejected(&data, &["restore", file]);
        assert!(why.contains("another colloquy"), "{why}");
        // A killed server leaves a write-ahead log, which must not leak into the restored ledger.
        let data = server.kill();
        assert!(data.folder().join("colloquy.db-wal").metadata().unwrap().len() > 0);
        let told = run_successfully(&data, &["restore", file]);
        assert!(!data.folder().join("colloquy.db-wal").exists());
        let kept = file_names(data.folder())
            .into_iter()
            .find(|name| name.contains(".before-"))
            .unwrap();
        assert!(told.contains(&kept), "{told}");

        let server = data.spawn();
        assert_eq!(remembered_fruit(&server).await, ["grapes."]);
        let turns = server.backend().get(&format!("/v1/sessions/{session}/turns")).await;
        assert_eq!(turns["items"].as_array().unwrap().len(), 1);
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        let answer = socket.say_line(&session, "What fruit do I like?").await.text;
        assert!(answer.contains("grapes") && !answer.contains("pears"), "{answer}");
        server.stop();

        // The previous ledger is kept whole, with the contents of its log.
        let kept = data.folder().join(kept);
        let before = data.with_own_folder();
        run_successfully(&before, &["restore", kept.to_str().unwrap()]);
        let server = before.spawn();
        assert_eq!(remembered_fruit(&server).await, ["grapes.", "pears."]);
    });
}

fn file_names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn backup_that_is_no_whole_ledger_is_rejected_without_changes() {
    run(async {
        let data = ServerData::new(&[]).start().stop();
        let ledger = data.folder().join("colloquy.db");
        let backups = tempfile::tempdir().unwrap();
        let good = backups.path().join("good.db");
        run_successfully(&data, &["backup", good.to_str().unwrap()]);
        let (whole, before) = (fs::read(&good).unwrap(), fs::read(&ledger).unwrap());
        let files = file_names(data.folder());

        let mut torn = whole.clone();
        torn[8_192..12_288].fill(0x5a);
        let bad = |name: &str, bytes: &[u8]| {
            let path = backups.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let newer = bad("newer.db", &whole);
        change_database(
            &newer,
            "INSERT INTO _sqlx_migrations VALUES (9999, 'later', CURRENT_TIMESTAMP, 1, x'00', 0)",
        )
        .await;
        let edited = bad("edited.db", &whole);
        change_database(
            &edited,
            "UPDATE _sqlx_migrations SET checksum = x'00' WHERE version = 1",
        )
        .await;
        let other = bad("other.db", &[]);
        change_database(&other, "CREATE TABLE notes (n INTEGER)").await;
        let in_use = bad("in_use.db", &whole);
        bad("in_use.db-wal", b"something");
        for (file, why) in [
            (backups.path().join("none.db"), "cannot read"),
            (bad("empty.db", &[]), "is no SQLite database"),
            (bad("text.db", b"somebody's notes"), "is no SQLite database"),
            (bad("short.db", &whole[..whole.len() / 2]), "is damaged"),
            (bad("torn.db", &torn), "is damaged"),
            (newer, "newer version"),
            (edited, "another build"),
            (other, "no ledger"),
            (in_use, "has a log beside it"),
            (ledger.clone(), "is the database itself"),
        ] {
            let said = run_rejected(&data, &["restore", file.to_str().unwrap()]);
            assert!(said.contains(why), "{}: {said}", file.display());
            assert!(said.contains("nothing was changed"), "{said}");
            assert!(fs::read(&ledger).unwrap() == before, "{}", file.display());
            let mut now = file_names(data.folder());
            let mut files = files.clone();
            files.sort();
            now.sort();
            assert_eq!(now, files, "{}", file.display());
        }
        // A new machine without data.
        let fresh = data.with_own_folder();
        let told = run_successfully(&fresh, &["restore", good.to_str().unwrap()]);
        assert!(!told.contains("before is kept"), "{told}");
        run_successfully(&fresh, &["migrate"]);
        run_successfully(&fresh, &["backup", "--overwrite", good.to_str().unwrap()]);
    });
}

async fn change_database(file: &Path, sql: &'static str) {
    let mut database = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
    sqlx::raw_sql(sql).execute(&mut database).await.unwrap();
    sqlx::Connection::close(database).await.unwrap();
}

#[test]
fn backup_of_postgres_is_left_to_its_own_tools() {
    let data = ServerData::new(&[("COLLOQUY__LEDGER__URL", "postgres://nobody@127.0.0.1:1/none")]);
    assert!(run_rejected(&data, &["backup", "x.db"]).contains("pg_dump"));
    assert!(run_rejected(&data, &["restore", "x.db"]).contains("pg_restore"));
}
