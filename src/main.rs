//! The `colloquy` binary.

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

/// A turn makes thousands of allocations on several threads; see docs/internals/turn-costs.md#memory-and-index.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match colloquy::cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("colloquy: {error:#}");
            ExitCode::FAILURE
        }
    }
}
