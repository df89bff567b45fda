//! Copies of the whole database, made during use, and their restoration.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read as _},
    path::{Path, PathBuf},
};

use chrono::{DateTime, Utc};
use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::NamedTempFile;

use super::{
    connection::{connect_to, run_migrations},
    errors::store_error,
    file::{LockedFile, database_path, io_error, sibling_path},
};
use crate::migrations;
use colloquy_ports::{StoreError, StoreResult};

/// The files that SQLite keeps beside a database.
const SIDECAR_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Copies the database to a file, consistent as of one moment, during reads and writes. The copy gets its name only
/// when it is complete, checked and synced. Returns its length in bytes.
///
/// # Errors
/// The database is missing, the file exists (without `replace`), or the file cannot be written.
pub async fn back_up_database(path_or_url: &str, to: &Path, replace: bool) -> StoreResult<u64> {
    let database = database_path(path_or_url)?;
    let database = database
        .canonicalize()
        .map_err(|error| io_error("read the database", &database, &error))?;
    if let Ok(target) = to.canonicalize() {
        let is_sidecar = |suffix: &&str| sibling_path(&database, suffix) == target;
        if target == database || SIDECAR_SUFFIXES.iter().chain(&["-lock"]).any(is_sidecar) {
            return Err(rejected_error(to, "is the database itself"));
        }
        if !replace {
            return Err(rejected_error(to, "is there already"));
        }
    }
    let draft = create_draft_in(folder_of(to)?)?;
    let text = draft
        .path()
        .to_str()
        .ok_or_else(|| rejected_error(to, "has a name that is no text"))?;

    let reading = SqliteConnectOptions::new().filename(&database).read_only(true);
    let mut connection = connect_to(reading).await.map_err(store_error)?;
    // Into an empty file. The source is locked no longer than by any reader.
    let copied = sqlx::query("VACUUM INTO $1").bind(text).execute(&mut connection).await;
    connection.close().await.map_err(store_error)?;
    copied.map_err(store_error)?;

    let mut copy = open_copy(draft.path()).await?;
    let checked = check_integrity(&mut copy, to).await;
    copy.close().await.map_err(store_error)?;
    checked?;
    publish_draft(draft, to, replace)?;
    to.metadata()
        .map(|metadata| metadata.len())
        .map_err(|error| io_error("read", to, &error))
}

/// Replaces the database with a backup. The last step is a rename; until then the database is unchanged. Returns the
/// path of the previous database, if there was one.
///
/// # Errors
/// Another process uses the database; or the file is not a complete ledger, or belongs to a newer program. In all cases
/// the database is unchanged.
pub async fn restore_backup(path_or_url: &str, from: &Path, now: DateTime<Utc>) -> StoreResult<Option<PathBuf>> {
    let file = LockedFile::create_and_lock(path_or_url)?;
    let path = &file.path;
    let draft = copy_beside_database(from, path)?;
    let mut copy = open_copy(draft.path())
        .await
        .map_err(|_| rejected_error(from, "is no SQLite database"))?;
    let adopted = adopt_as_ledger(&mut copy, from).await;
    copy.close().await.map_err(store_error)?;
    adopted?;
    let previous = keep_previous_database(path, now).await?;
    match publish_draft(draft, path, true) {
        Ok(()) => Ok(previous.name),
        Err(error) => {
            previous.move_back();
            Err(error)
        }
    }
}

/// Copies `from` into the folder of `database`, readable only by the owner.
fn copy_beside_database(from: &Path, database: &Path) -> StoreResult<NamedTempFile> {
    const SQLITE_HEADER: &[u8] = b"SQLite format 3\0";
    let mut source = File::open(from).map_err(|error| io_error("read", from, &error))?;
    if from.canonicalize().is_ok_and(|from| from == database) {
        return Err(rejected_error(from, "is the database itself"));
    }
    for log in ["-wal", "-journal"] {
        if sibling_path(from, log).metadata().is_ok_and(|log| log.len() > 0) {
            let reason =
                format!("has a log beside it ({log}), so it is a copy of a database in use: use `colloquy backup`");
            return Err(rejected_error(from, &reason));
        }
    }
    let mut header = Vec::new();
    let header_read = source
        .by_ref()
        .take(SQLITE_HEADER.len() as u64)
        .read_to_end(&mut header);
    header_read.map_err(|error| io_error("read", from, &error))?;
    if header != SQLITE_HEADER {
        return Err(rejected_error(from, "is no SQLite database"));
    }
    let mut draft = create_draft_in(folder_of(database)?)?;
    let mut content = header.chain(source);
    io::copy(&mut content, draft.as_file_mut()).map_err(|error| io_error("copy", from, &error))?;
    Ok(draft)
}

/// Checks that the copy is undamaged and a ledger of this program or an older version, then migrates the copy.
async fn adopt_as_ledger(copy: &mut SqliteConnection, from: &Path) -> StoreResult<()> {
    check_integrity(copy, from).await?;
    run_migrations(copy, from).await?;
    // A single file, without a log.
    let mode = sqlx::query("PRAGMA journal_mode = DELETE").execute(copy).await;
    mode.map(drop).map_err(store_error)
}

/// Checks that every page is readable and that the file is a ledger.
async fn check_integrity(copy: &mut SqliteConnection, path: &Path) -> StoreResult<()> {
    let damaged = |reason: &str| rejected_error(path, &format!("is damaged: {reason}"));
    let problems: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(1)")
        .fetch_all(&mut *copy)
        .await
        .map_err(|error| damaged(&error.to_string()))?;
    if problems != ["ok"] {
        return Err(damaged(&problems.join("; ")));
    }
    let versions: Result<Vec<i64>, sqlx::Error> = sqlx::query_scalar("SELECT version FROM _sqlx_migrations")
        .fetch_all(copy)
        .await;
    let is_first = |version: &i64| {
        migrations::SQLITE
            .iter()
            .next()
            .is_some_and(|first| first.version == *version)
    };
    if versions.is_ok_and(|versions| versions.iter().any(is_first)) {
        Ok(())
    } else {
        Err(rejected_error(path, "is a database, but no ledger"))
    }
}

/// The previous database under its second name, with its moved logs.
#[derive(Default)]
struct PreviousDatabase {
    name: Option<PathBuf>,
    /// From, to.
    moved_logs: Vec<(PathBuf, PathBuf)>,
}

impl PreviousDatabase {
    /// Restores all previous names.
    fn move_back(self) {
        for (from, to) in self.moved_logs {
            if let Err(error) = fs::rename(&to, &from) {
                tracing::error!(%error, log = %to.display(), "move this log back to {}", from.display());
            }
        }
        if let Some(name) = self.name {
            let _ = fs::remove_file(name);
        }
    }
}

/// Gives the database a second name beside the first, without a log; for a moment both names exist.
async fn keep_previous_database(path: &Path, now: DateTime<Utc>) -> StoreResult<PreviousDatabase> {
    let length = path.metadata().map_err(|error| io_error("read", path, &error))?.len();
    if length == 0 {
        return Ok(PreviousDatabase::default());
    }
    let name = sibling_path(path, &format!(".before-{}", now.format("%Y%m%dT%H%M%SZ")));
    // The log is folded into the database. A database too damaged for folding keeps its log under the new name.
    let folded = async {
        let mut database = open_copy(path).await?;
        let folded = sqlx::query("PRAGMA journal_mode = DELETE").execute(&mut database).await;
        database.close().await.map_err(store_error)?;
        folded.map(drop).map_err(store_error)
    };
    match folded.await {
        Ok(()) => {}
        // Another process reads the database, such as a backup.
        Err(StoreError::Unavailable(reason)) => return Err(StoreError::Unavailable(reason)),
        Err(error) => tracing::warn!(%error, "the database that is replaced is kept with its log"),
    }
    // On a file system without hard links, the file is copied.
    match fs::hard_link(path, &name) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => fs::copy(path, &name).map(drop),
        linked => linked,
    }
    .map_err(|error| io_error("keep the database as", &name, &error))?;
    let mut previous = PreviousDatabase {
        name: Some(name.clone()),
        moved_logs: Vec::new(),
    };
    for suffix in SIDECAR_SUFFIXES {
        let log = sibling_path(path, suffix);
        let its_name = sibling_path(&name, suffix);
        let renamed = if suffix == "-shm" {
            fs::remove_file(&log)
        } else {
            fs::rename(&log, &its_name)
        };
        match renamed {
            Ok(()) if suffix == "-shm" => {}
            Ok(()) => previous.moved_logs.push((log, its_name)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                previous.move_back();
                return Err(io_error("move", &log, &error));
            }
        }
    }
    Ok(previous)
}

/// Opens a copy without changing its journal mode.
async fn open_copy(path: &Path) -> StoreResult<SqliteConnection> {
    let options = SqliteConnectOptions::new().filename(path).foreign_keys(false);
    connect_to(options).await.map_err(store_error)
}

fn folder_of(path: &Path) -> StoreResult<&Path> {
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Ok(Path::new(".")),
        Some(folder) => Ok(folder),
        None => Err(rejected_error(path, "is no file")),
    }
}

/// Creates a temporary file that only the owner can read. The file is deleted unless [`publish_draft`] names it.
fn create_draft_in(folder: &Path) -> StoreResult<NamedTempFile> {
    let draft = tempfile::Builder::new()
        .prefix(".colloquy-")
        .suffix(".part")
        .tempfile_in(folder);
    draft.map_err(|error| io_error("write to the folder", folder, &error))
}

/// Syncs a draft, gives it its name, and syncs the folder.
fn publish_draft(draft: NamedTempFile, to: &Path, replace: bool) -> StoreResult<()> {
    let folder = folder_of(to)?;
    // Opened by name, because another handle may have written the file.
    let synced = File::open(draft.path()).and_then(|file| file.sync_all());
    synced.map_err(|error| io_error("sync", draft.path(), &error))?;
    let persisted = if replace {
        draft.persist(to)
    } else {
        draft.persist_noclobber(to)
    };
    persisted.map_err(|error| io_error("write", to, &error.error))?;
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // The rename is done, and the previous database no longer has the name.
        Err(error) if replace => tracing::warn!(%error, "the folder could not be synced: keep what was restored from"),
        synced => synced.map_err(|error| io_error("sync the folder", folder, &error))?,
    }
    Ok(())
}

fn rejected_error(file: &Path, reason: &str) -> StoreError {
    StoreError::Rejected(format!("{} {reason}", file.display()))
}
