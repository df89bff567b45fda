//! `colloquy config`: the settings there are, and whether those given are right.

use crate::config::{Config, DEFAULTS, Sources};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only check the settings of this environment.
    #[arg(long)]
    check: bool,
}

pub(super) fn run(args: &Args, sources: &Sources) -> anyhow::Result<()> {
    if args.check {
        Config::load(sources)?;
        println!("the configuration is valid");
    } else {
        super::print_text(DEFAULTS)?;
    }
    Ok(())
}
