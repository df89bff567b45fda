//! Backups of the embedded ledger. A Postgres ledger is backed up with the tools of Postgres.

use std::path::{Path, PathBuf};

use anyhow::bail;
use secrecy::ExposeSecret as _;

use super::{data_folder, ledger};
use crate::config::Config;
use colloquy_ports::clock::{Clock as _, SystemClock};
use colloquy_stores::sqlite;

/// The outcome of [`restore_ledger`].
#[derive(Debug)]
pub struct RestoredBackup {
    /// The path of the previous ledger, if there was one.
    pub previous_ledger: Option<PathBuf>,
}

/// Copies the ledger to a file while servers use the ledger. Returns the file's length in bytes.
///
/// # Errors
/// Describes the fault and its remedy.
pub async fn back_up_ledger(config: &Config, to: &Path, overwrite: bool) -> anyhow::Result<u64> {
    if ledger::is_postgres(config) {
        bail!(
            "the ledger is on Postgres: use `pg_dump`, as a role that is a superuser or has BYPASSRLS \
             (row-level security binds this server's own)"
        );
    }
    if !overwrite && to.exists() {
        bail!("{} is there already; --overwrite replaces it", to.display());
    }
    Ok(sqlite::back_up_database(config.ledger_url().expose_secret(), to, overwrite).await?)
}

/// Replaces the ledger with a backup. No server may use the ledger meanwhile.
///
/// # Errors
/// Describes the fault and its remedy. The ledger is then unchanged.
pub async fn restore_ledger(config: &Config, from: &Path) -> anyhow::Result<RestoredBackup> {
    if ledger::is_postgres(config) {
        bail!(
            "the ledger is on Postgres: restore what `pg_dump` wrote with `pg_restore` or `psql`, into an empty database"
        );
    }
    // Servers that ignore other locks still respect the lock of the data folder.
    let _folder = data_folder::DataFolder::lock_folder(&config.data_dir)?;
    let url = config.ledger_url();
    let previous_ledger = sqlite::restore_backup(url.expose_secret(), from, SystemClock.now()).await?;
    Ok(RestoredBackup { previous_ledger })
}

/// The path of the generated secret, if this server signs tokens with it.
#[must_use]
pub fn secret_to_back_up(config: &Config) -> Option<PathBuf> {
    (config.auth.needs_secret()).then(|| data_folder::secret_path(&config.data_dir))
}
