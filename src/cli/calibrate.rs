//! `colloquy calibrate`: the meaning of the configured embedder's cosines.

use std::path::PathBuf;

use anyhow::Context;

use super::process::block_on;
use crate::{app, config::Config};
use colloquy_models::calibration;

#[derive(Debug, clap::Args)]
pub(super) struct CalibrateArgs {
    /// Your own labelled pairs, in the format of config/calibration/pairs.tsv.
    #[arg(long, value_name = "FILE")]
    pairs: Option<PathBuf>,
}

pub(super) fn run(args: &CalibrateArgs, config: &Config) -> anyhow::Result<()> {
    block_on(async {
        let embedder = app::uncalibrated_embedder(config).await?;
        let report = match &args.pairs {
            Some(path) => {
                let pairs = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
                calibration::measure_pairs(embedder.as_ref(), &pairs).await?
            }
            None => calibration::measure_shipped_pairs(embedder.as_ref()).await?,
        };
        println!("{report}");
        Ok(())
    })
}
