//! `colloquy migrate`.

use anyhow::Context;

use super::process::block_on;
use crate::{app, config::Config};

pub(super) fn run(config: &Config) -> anyhow::Result<()> {
    let url = config.ledger_name();
    let version = block_on(app::migrate_ledger(config)).with_context(|| format!("cannot migrate {url}"))?;
    println!("{url} is at schema version {version}");
    Ok(())
}
