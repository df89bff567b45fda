//! The data folder: files that a server stores beside its ledger, and the lock that excludes a second server.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use secrecy::SecretString;

use colloquy_core::ids::NodeId;
use colloquy_ports::clock::IdSource;
use colloquy_stores::owner_only_files;

const LOCK_FILE: &str = "lock";
const NODE_ID_FILE: &str = "node_id";
const SECRET_FILE: &str = "hs256_secret";

/// A folder that belongs to this process alone while the value lives.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    /// The operating system releases the lock with the handle, also when the process is killed.
    _lock: File,
}

impl DataFolder {
    /// Creates the folder if needed, and locks it.
    pub fn lock_folder(path: &Path) -> anyhow::Result<Self> {
        create_folder(path)?;
        let lock_file = path.join(LOCK_FILE);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_file)
            .with_context(|| format!("cannot write to the data folder: {}", lock_file.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "another colloquy server uses the data folder {}; stop it, or set COLLOQUY__DATA_DIR to another folder",
                path.display()
            ),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", lock_file.display()));
            }
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Returns the node's id. The id survives restarts, so the node recognises jobs that it leased before a restart.
    pub fn node_id(&self, ids: &IdSource) -> anyhow::Result<NodeId> {
        let id_file = self.path.join(NODE_ID_FILE);
        if let Some(text) = read_if_exists(&id_file)? {
            return text.trim().parse().with_context(|| {
                format!(
                    "{} does not hold a node id; remove it to get a new one",
                    id_file.display()
                )
            });
        }
        let id: NodeId = ids.next_id();
        write_new(&id_file, &format!("{id}\n"))?;
        Ok(id)
    }
}

/// The path of the data folder's secret file.
pub fn secret_path(data_dir: &Path) -> PathBuf {
    data_dir.join(SECRET_FILE)
}

/// Returns the secret of the data folder. Creates the secret if missing. Only the file's owner may read the file.
pub fn load_or_create_secret(data_dir: &Path) -> anyhow::Result<SecretString> {
    create_folder(data_dir)?;
    let secret_file = secret_path(data_dir);
    // If two processes create the secret at once, the second reads the secret of the first.
    for _ in 0..2 {
        if let Some(text) = read_if_exists(&secret_file)? {
            let text = text.trim();
            if text.len() < 32 {
                bail!(
                    "{} is damaged; remove it to get a new secret (tokens made with it become invalid)",
                    secret_file.display()
                );
            }
            return Ok(text.into());
        }
        let hex = format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>());
        write_new(&secret_file, &format!("{hex}\n"))?;
    }
    bail!("cannot read {}", secret_file.display())
}

fn create_folder(path: &Path) -> anyhow::Result<()> {
    owner_only_files::create_folder(path).with_context(|| format!("cannot make the data folder {}", path.display()))
}

fn read_if_exists(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Writes a file atomically and readable only by its owner. An existing file is left unchanged.
fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let draft = folder.join(format!(".{}-{}", std::process::id(), rand::random::<u64>()));
    let result = owner_only_files::new_file_options()
        .open(&draft)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| match fs::hard_link(&draft, path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        });
    // A failure here leaves an unreadable stray file, which is harmless.
    let _ = fs::remove_file(&draft);
    result.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use secrecy::ExposeSecret;

    use super::*;
    use colloquy_ports::clock::SystemClock;

    #[test]
    fn data_folder_has_one_server_and_a_lasting_identity() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/data");
        let ids = IdSource::from_thread_rng(Arc::new(SystemClock));
        let folder = DataFolder::lock_folder(&path).unwrap();
        let refused = DataFolder::lock_folder(&path).unwrap_err().to_string();
        assert!(refused.contains("another colloquy server"), "{refused}");
        let id = folder.node_id(&ids).unwrap();
        drop(folder);
        assert_eq!(DataFolder::lock_folder(&path).unwrap().node_id(&ids).unwrap(), id);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
    }

    #[test]
    fn secret_is_created_once_and_readable_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let first = load_or_create_secret(dir.path()).unwrap();
        assert!(first.expose_secret().len() >= 64);
        assert_eq!(
            load_or_create_secret(dir.path()).unwrap().expose_secret(),
            first.expose_secret()
        );
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(dir.path().join(SECRET_FILE)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
        fs::write(dir.path().join(SECRET_FILE), "short").unwrap();
        assert!(load_or_create_secret(dir.path()).is_err());
    }

    #[test]
    fn secret_created_concurrently_is_the_same_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let secrets: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| load_or_create_secret(dir.path()).unwrap().expose_secret().to_owned()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(secrets.iter().all(|secret| *secret == secrets[0]));
    }
}
