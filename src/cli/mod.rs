//! The commands of the `colloquy` binary, one file each.
//!
//! A command reads the configuration, does its work through the library and prints for a person. Errors reach `main`
//! with the fault and its remedy.

mod backup;
mod banner;
mod calibrate;
#[cfg(feature = "dev-commands")]
mod chat;
mod config;
mod doctor;
#[cfg(feature = "dev-commands")]
mod eval;
mod health;
mod migrate;
#[cfg(feature = "dev-commands")]
mod mock_llm;
mod openapi;
mod process;
mod reindex;
mod serve;
mod token;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::config::{Config, ConfigSources};
use colloquy_telemetry as telemetry;

/// A server for NPC dialogue that remembers.
///
/// Without a command, the server runs. Settings come from the built-in defaults, a file, and variables such as
/// COLLOQUY__SERVER__LISTEN; `colloquy config` prints all settings.
#[derive(Debug, Parser)]
#[command(name = "colloquy", version)]
pub struct Cli {
    /// The settings file. Without it, ./colloquy.toml is read if present.
    #[arg(long, global = true, env = "COLLOQUY_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the server (the default).
    Serve,
    /// Checks whether a server accepts new work; fails if not.
    Health(health::HealthArgs),
    /// Migrates the ledger's schema to this version and exits.
    Migrate,
    /// Copies the embedded ledger to a file while servers use the ledger.
    Backup(backup::BackupArgs),
    /// Replaces the embedded ledger with a backup. Stop all servers first. The old ledger is kept beside the new one.
    Restore(backup::RestoreArgs),
    /// Prints a token signed with the server's secret.
    Token(token::TokenArgs),
    /// Talks with an NPC in this terminal.
    #[cfg(feature = "dev-commands")]
    Chat(chat::ChatArgs),
    /// Rebuilds the search index from the ledger, or checks the index for missing facts.
    Reindex(reindex::ReindexArgs),
    /// Measures the meaning of an embedder's similarities and prints matching settings.
    Calibrate(calibrate::CalibrateArgs),
    /// Measures how well facts are found, on a set of facts and questions.
    #[cfg(feature = "dev-commands")]
    Eval(eval::EvalArgs),
    /// Runs an OpenAI-compatible mock server without a model, for tests and load tests.
    #[cfg(feature = "dev-commands")]
    MockLlm(colloquy_mock_llm::MockOptions),
    /// Prints the REST API as OpenAPI, or the socket's API as AsyncAPI.
    Openapi(openapi::OpenapiArgs),
    /// Checks the settings, or prints every setting with its default and meaning.
    Config(config::ConfigArgs),
    /// Asks the model, the embedder and the stores real questions, and says what to change. Fails if a check fails.
    Doctor(doctor::DoctorArgs),
}

impl Cli {
    /// Runs the command to completion.
    pub fn run(self) -> anyhow::Result<()> {
        let sources = ConfigSources::from_process(self.config);
        match self.command.unwrap_or(Command::Serve) {
            // These commands do not need a valid configuration.
            #[cfg(feature = "dev-commands")]
            Command::MockLlm(options) => mock_llm::run(options),
            Command::Openapi(args) => openapi::run(&args),
            Command::Config(args) => config::run(&args, &sources),
            Command::Doctor(args) => doctor::run(&args, &sources),
            Command::Serve => serve::run(&Config::load(&sources)?),
            Command::Health(args) => health::run(&args, &Config::load(&sources)?),
            Command::Migrate => migrate::run(&load_config(&sources)?),
            Command::Backup(args) => backup::run_backup(&args, &load_config(&sources)?),
            Command::Restore(args) => backup::run_restore(&args, &load_config(&sources)?),
            Command::Token(args) => token::run(&args, &load_config(&sources)?),
            #[cfg(feature = "dev-commands")]
            Command::Chat(args) => chat::run(args, &load_config(&sources)?),
            Command::Reindex(args) => reindex::run(&args, &load_config(&sources)?),
            #[cfg(feature = "dev-commands")]
            Command::Eval(args) => eval::run(&args, &sources),
            Command::Calibrate(args) => calibrate::run(&args, &load_config(&sources)?),
        }
    }
}

fn load_config(sources: &ConfigSources) -> anyhow::Result<Config> {
    let config = Config::load(sources)?;
    telemetry::start_logging(&config.telemetry.log, config.telemetry.format)?;
    Ok(config)
}
