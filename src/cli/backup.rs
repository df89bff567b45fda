//! `colloquy backup` and `colloquy restore`: the embedded ledger as one file.

use std::path::PathBuf;

use anyhow::Context as _;

use super::process::block_on;
use crate::{
    app::backup::{self, RestoredBackup},
    config::Config,
};

#[derive(Debug, clap::Args)]
pub(super) struct BackupArgs {
    /// The file to write the copy to. Its folder must exist.
    file: PathBuf,
    /// Replace an existing file of this name.
    #[arg(long)]
    overwrite: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct RestoreArgs {
    /// A file written by `colloquy backup`.
    file: PathBuf,
}

pub(super) fn run_backup(args: &BackupArgs, config: &Config) -> anyhow::Result<()> {
    let path = args.file.display();
    let bytes = block_on(backup::back_up_ledger(config, &args.file, args.overwrite))
        .with_context(|| format!("cannot back up {} to {path}", config.ledger_name()))?;
    println!(
        "wrote {path}: {bytes} bytes, all that {} had at one moment",
        config.ledger_name()
    );
    if let Some(secret) = backup::secret_to_back_up(config) {
        println!(
            "keep the settings as well, and {}: without it every token that was given out is invalid",
            secret.display()
        );
    } else {
        println!("keep the settings as well: the secrets are in them");
    }
    Ok(())
}

pub(super) fn run_restore(args: &RestoreArgs, config: &Config) -> anyhow::Result<()> {
    let path = args.file.display();
    let RestoredBackup { previous_ledger } =
        block_on(backup::restore_ledger(config, &args.file)).with_context(|| {
            format!(
                "cannot restore {} from {path}; nothing was changed",
                config.ledger_name()
            )
        })?;
    println!("{} is what {path} has", config.ledger_name());
    if let Some(previous_ledger) = previous_ledger {
        println!(
            "what it was before is kept as {}; remove it when it is not needed",
            previous_ledger.display()
        );
    }
    if let Some(secret) = backup::secret_to_back_up(config) {
        println!(
            "tokens of before are valid if {} is the one of before, too",
            secret.display()
        );
    }
    if config.vectors.is_embedded() {
        println!("the search index is made from it when the server starts");
    } else {
        println!("the search index at vectors.url has what was there before: run `colloquy reindex`");
    }
    Ok(())
}
