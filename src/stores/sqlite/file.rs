//! The database file: name, creation, and the lock of the owning process.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use crate::owner_only_files;
use colloquy_ports::{StoreError, StoreResult};

/// Checks that the text names a database file, without creating the file.
///
/// # Errors
/// [`StoreError::Rejected`].
pub fn check_path(path_or_url: &str) -> StoreResult<()> {
    database_path(path_or_url).map(drop)
}

/// Returns the path in a URL. In-memory databases and parameters are rejected.
pub(super) fn database_path(path_or_url: &str) -> StoreResult<PathBuf> {
    let path = path_or_url
        .strip_prefix("sqlite://")
        .or_else(|| path_or_url.strip_prefix("sqlite:"))
        .unwrap_or(path_or_url);
    if path.is_empty() || path.contains(":memory:") || path.contains('?') {
        return Err(StoreError::Rejected(format!(
            "`{path_or_url}` does not name a database file: use sqlite://<path> without parameters"
        )));
    }
    Ok(path.into())
}

/// A database file that only this process may use while the value lives.
#[derive(Debug)]
pub(super) struct LockedFile {
    /// The path without symbolic links.
    pub(super) path: PathBuf,
    /// The lock ends with the handle, even if the process is killed. The lock file stays: its removal could let a
    /// second process in while another is taking the lock.
    _lock: File,
}

impl LockedFile {
    /// Creates the folder and the file if they are missing, and locks the file. The lock is next to the resolved file,
    /// so all paths to the file share a single lock.
    ///
    /// # Errors
    /// Another process has the lock, or a file cannot be created.
    pub(super) fn create_and_lock(path_or_url: &str) -> StoreResult<Self> {
        let path = database_path(path_or_url)?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let created = owner_only_files::create_folder(folder);
            created.map_err(|error| io_error("create the folder", folder, &error))?;
        }
        create_if_missing(&path).map_err(|error| io_error("create the file", &path, &error))?;
        let path = path
            .canonicalize()
            .map_err(|error| io_error("find the file", &path, &error))?;
        reject_hard_links(&path)?;
        let lock = sibling_path(&path, "-lock");
        let file = create_if_missing(&lock).and_then(|()| OpenOptions::new().write(true).open(&lock));
        let file = file.map_err(|error| io_error("create the file", &lock, &error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path, _lock: file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Unavailable(format!(
                "another colloquy process uses the database {}: stop it first, or name another file (ledger.url)",
                path.display()
            ))),
            Err(TryLockError::Error(error)) => Err(io_error("lock the file", &lock, &error)),
        }
    }
}

/// Returns the path with `suffix` appended to the file name.
pub(super) fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(super) fn io_error(action: &str, path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("cannot {action} {}: {error}", path.display()))
}

/// SQLite creates the files beside a new database with the same permissions.
fn create_if_missing(path: &Path) -> io::Result<()> {
    match owner_only_files::new_file_options().open(path) {
        Ok(_) => Ok(()),
        // A link to a missing file also reports `AlreadyExists`.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => match path.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => owner_only_files::new_file_options()
                .create_new(false)
                .create(true)
                .open(path)
                .map(drop),
            other => other.map(drop),
        },
        Err(error) => Err(error),
    }
}

/// SQLite names the log by the path, so a second name of the file would have a second log, and a second lock.
fn reject_hard_links(path: &Path) -> StoreResult<()> {
    #[cfg(unix)]
    {
        let metadata = path
            .metadata()
            .map_err(|error| io_error("read the file", path, &error))?;
        let names = std::os::unix::fs::MetadataExt::nlink(&metadata);
        if names > 1 {
            return Err(StoreError::Rejected(format!(
                "the database {} has {names} names (hard links): remove the others, or copy the file",
                path.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn database_file_has_one_process_by_any_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/ledger.db");
        let held = LockedFile::create_and_lock(file.to_str().unwrap()).unwrap();
        let mut paths = vec![
            file.clone(),
            folder.path().join("deep/../deep/./ledger.db"),
            // Relative to the working directory of the tests.
            std::iter::repeat_n("..", std::env::current_dir().unwrap().components().count())
                .collect::<PathBuf>()
                .join(file.strip_prefix("/").unwrap()),
        ];
        #[cfg(unix)]
        {
            let (link, linked) = (folder.path().join("link.db"), folder.path().join("linked"));
            std::os::unix::fs::symlink(&file, &link).unwrap();
            std::os::unix::fs::symlink(folder.path().join("deep"), &linked).unwrap();
            paths.extend([link, linked.join("ledger.db")]);
        }
        for path in &paths {
            for url in [
                path.display().to_string(),
                format!("sqlite:{}", path.display()),
                format!("sqlite://{}", path.display()),
            ] {
                let refused = LockedFile::create_and_lock(&url).unwrap_err().to_string();
                assert!(refused.contains("another colloquy process uses"), "{url}: {refused}");
            }
        }
        drop(held);
        for path in &paths {
            LockedFile::create_and_lock(path.to_str().unwrap()).unwrap();
        }
    }

    #[cfg(unix)]
    #[test]
    fn database_file_is_created_behind_a_symlink_and_rejected_with_a_hard_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("ledger.db"), folder.path().join("link.db"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let held = LockedFile::create_and_lock(link.to_str().unwrap()).unwrap();
        assert_eq!(held.path, file.canonicalize().unwrap());
        let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        drop(held);
        std::fs::hard_link(&file, folder.path().join("second.db")).unwrap();
        let refused = LockedFile::create_and_lock(link.to_str().unwrap())
            .unwrap_err()
            .to_string();
        assert!(refused.contains("has 2 names"), "{refused}");
    }
}
