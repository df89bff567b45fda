//! `colloquy backup` while the server runs, and `colloquy restore`: an NPC knows what it knew then.

use std::{fs, path::Path, process::Output};

use sqlx::{ConnectOptions as _, sqlite::SqliteConnectOptions};

use crate::support::{Data, Server, run};

fn done(data: &Data, args: &[&str]) -> Output {
    data.command().args(args).output().unwrap()
}

/// What it printed, as it went well.
fn went_well(data: &Data, args: &[&str]) -> String {
    let output = done(data, args);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Why it was refused.
fn refused(data: &Data, args: &[&str]) -> String {
    let output = done(data, args);
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

async fn fruit(server: &Server) -> Vec<String> {
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
fn an_npc_knows_what_it_knew_at_the_backup() {
    run(async {
        let server = Data::new(&[]).spawn();
        let backups = tempfile::tempdir().unwrap();
        let file = backups.path().join("then.db");
        let file = file.to_str().unwrap();
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        socket.say(&session, "I like grapes.").await;
        server.backend().idle().await;

        // While others talk.
        let data = server.data.clone();
        let (of, to) = (data.clone(), file.to_owned());
        let backing_up = tokio::task::spawn_blocking(move || went_well(&of, &["backup", &to]));
        let mut other = server.player("p2").await;
        let talk = other.session("ergen", "p2").await;
        for number in 0..10 {
            other.say(&talk, &format!("나는 사과 {number}개를 샀어.")).await;
        }
        let told = backing_up.await.unwrap();
        assert!(told.contains("then.db") && told.contains("keep the settings"), "{told}");
        assert_eq!(names(backups.path()), ["then.db"], "nothing is left behind");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }

        socket.say(&session, "I like pears.").await;
        server.backend().idle().await;
        assert_eq!(fruit(&server).await, ["grapes.", "pears."]);
        let whole = fs::read(file).unwrap();
        assert!(refused(&data, &["backup", file]).contains("--overwrite"));
        assert_eq!(fs::read(file).unwrap(), whole, "it is left alone");
        let own = data.folder().join("colloquy.db");
        let own = own.to_str().unwrap();
        assert!(refused(&data, &["backup", "--overwrite", own]).contains("is the database itself"));
        let why = refused(&data, &["restore", file]);
        assert!(why.contains("another colloquy"), "{why}");
        // Killed, it leaves a log that must not be read into what is restored.
        let data = server.kill();
        assert!(data.folder().join("colloquy.db-wal").metadata().unwrap().len() > 0);
        let told = went_well(&data, &["restore", file]);
        assert!(!data.folder().join("colloquy.db-wal").exists());
        let kept = names(data.folder())
            .into_iter()
            .find(|name| name.contains(".before-"))
            .unwrap();
        assert!(told.contains(&kept), "{told}");

        let server = data.spawn();
        assert_eq!(fruit(&server).await, ["grapes."]);
        let turns = server.backend().get(&format!("/v1/sessions/{session}/turns")).await;
        assert_eq!(turns["items"].as_array().unwrap().len(), 1);
        let mut socket = server.player("p1").await;
        let session = socket.session("mira", "p1").await;
        let answer = socket.say(&session, "What fruit do I like?").await.text;
        assert!(answer.contains("grapes") && !answer.contains("pears"), "{answer}");
        server.stop();

        // What was there before is as whole, with what its log had.
        let kept = data.folder().join(kept);
        let before = data.beside();
        went_well(&before, &["restore", kept.to_str().unwrap()]);
        let server = before.spawn();
        assert_eq!(fruit(&server).await, ["grapes.", "pears."]);
    });
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn what_is_no_whole_ledger_is_refused_and_changes_nothing() {
    run(async {
        let data = Data::new(&[]).start().stop();
        let ledger = data.folder().join("colloquy.db");
        let backups = tempfile::tempdir().unwrap();
        let good = backups.path().join("good.db");
        went_well(&data, &["backup", good.to_str().unwrap()]);
        let (whole, before) = (fs::read(&good).unwrap(), fs::read(&ledger).unwrap());
        let files = names(data.folder());

        let mut torn = whole.clone();
        torn[8_192..12_288].fill(0x5a);
        let bad = |name: &str, bytes: &[u8]| {
            let path = backups.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let newer = bad("newer.db", &whole);
        changed(
            &newer,
            "INSERT INTO _sqlx_migrations VALUES (9999, 'later', CURRENT_TIMESTAMP, 1, x'00', 0)",
        )
        .await;
        let edited = bad("edited.db", &whole);
        changed(
            &edited,
            "UPDATE _sqlx_migrations SET checksum = x'00' WHERE version = 1",
        )
        .await;
        let other = bad("other.db", &[]);
        changed(&other, "CREATE TABLE notes (n INTEGER)").await;
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
            let said = refused(&data, &["restore", file.to_str().unwrap()]);
            assert!(said.contains(why), "{}: {said}", file.display());
            assert!(said.contains("nothing was changed"), "{said}");
            assert!(fs::read(&ledger).unwrap() == before, "{}", file.display());
            let mut now = names(data.folder());
            let mut files = files.clone();
            files.sort();
            now.sort();
            assert_eq!(now, files, "{}", file.display());
        }
        // A machine that has nothing yet.
        let fresh = data.beside();
        let told = went_well(&fresh, &["restore", good.to_str().unwrap()]);
        assert!(!told.contains("before is kept"), "{told}");
        went_well(&fresh, &["migrate"]);
        went_well(&fresh, &["backup", "--overwrite", good.to_str().unwrap()]);
    });
}

async fn changed(file: &Path, sql: &'static str) {
    let mut database = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
    sqlx::raw_sql(sql).execute(&mut database).await.unwrap();
    sqlx::Connection::close(database).await.unwrap();
}

#[test]
fn a_ledger_on_postgres_is_left_to_its_own_programs() {
    let data = Data::new(&[("COLLOQUY__LEDGER__URL", "postgres://nobody@127.0.0.1:1/none")]);
    assert!(refused(&data, &["backup", "x.db"]).contains("pg_dump"));
    assert!(refused(&data, &["restore", "x.db"]).contains("pg_restore"));
}
