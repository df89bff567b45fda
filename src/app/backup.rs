//! Copies of the embedded ledger. One on Postgres is backed up by Postgres's own programs.

use std::path::{Path, PathBuf};

use anyhow::bail;
use secrecy::ExposeSecret as _;

use super::{data_folder, ledger};
use crate::{
    adapters::sqlite,
    config::Config,
    ports::clock::{Clock as _, SystemClock},
};

/// What came of a [`restore_ledger`].
#[derive(Debug)]
pub struct RestoredBackup {
    /// Where what was there before is kept, if there was anything.
    pub kept: Option<PathBuf>,
}

/// Copies the ledger to a file while servers use it. Returns its length in bytes.
///
/// # Errors
/// With what is wrong and what to do.
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

/// Puts a backup in the place of the ledger, which no server may use.
///
/// # Errors
/// With what is wrong and what to do. The ledger is then what it was.
pub async fn restore_ledger(config: &Config, from: &Path) -> anyhow::Result<RestoredBackup> {
    if ledger::is_postgres(config) {
        bail!(
            "the ledger is on Postgres: restore what `pg_dump` wrote with `pg_restore` or `psql`, into an empty database"
        );
    }
    // Servers that know of no other lock have at least this one.
    let _folder = data_folder::DataFolder::lock_folder(&config.data_dir)?;
    let url = config.ledger_url();
    let kept = sqlite::restore_backup(url.expose_secret(), from, SystemClock.now()).await?;
    Ok(RestoredBackup { kept })
}

/// The secret that this server made for itself, if it signs with that.
#[must_use]
pub fn secret_to_back_up(config: &Config) -> Option<PathBuf> {
    (config.auth.needs_secret()).then(|| data_folder::secret_path(&config.data_dir))
}
