//! The `colloquy` binary.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match colloquy::cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("colloquy: {error:#}");
            ExitCode::FAILURE
        }
    }
}
