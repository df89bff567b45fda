//! Configuration: embedded defaults, then a file, then the environment; checked as a whole, with
//! every fault named at once.
//!
//! `config/default.toml` is the list of what can be set. Owns reading and checking; what a setting
//! does belongs to the module it configures. An empty text means "not set". Secrets are wrapped as
//! soon as they are read and never printed.

mod layers;
mod ranges;
mod rules;
mod sections;

use std::{fmt, path::PathBuf};

pub use sections::{
    AuthSection, BreakerSection, BufferSection, Config, DemoSection, EmbedderSection, EndpointSection, InputTypeName,
    LedgerSection, ListenAddress, LlmSection, NodeSection, PromptSection, RecallSection, RetrySection, ServerSection,
    Synchronous, TaskSection, TasksSection, TelemetrySection, VectorsSection,
};

/// The documented defaults, compiled in.
pub const DEFAULTS: &str = include_str!("../../config/default.toml");

/// What every environment variable of ours starts with.
pub const ENV_PREFIX: &str = "COLLOQUY__";

/// Where settings come from besides the defaults.
#[derive(Debug, Clone, Default)]
pub struct ConfigSources {
    /// A file that must be there.
    pub file: Option<PathBuf>,
    /// A file that may be there.
    pub optional_file: Option<PathBuf>,
    /// Variables of the environment; others than `COLLOQUY__…` are ignored.
    pub env: Vec<(String, String)>,
    /// A file that must be there, over everything else: settings to try out.
    pub override_file: Option<PathBuf>,
}

impl ConfigSources {
    /// `--config` or `COLLOQUY_CONFIG` (the argument has both), else `./colloquy.toml`, and the
    /// environment of this process.
    #[must_use]
    pub fn from_process(file: Option<PathBuf>) -> Self {
        Self {
            file,
            optional_file: Some(PathBuf::from("colloquy.toml")),
            // `vars` would panic on another program's variable that is not UTF-8.
            env: std::env::vars_os()
                .map(|(name, value)| {
                    (
                        name.to_string_lossy().into_owned(),
                        value.to_string_lossy().into_owned(),
                    )
                })
                .collect(),
            override_file: None,
        }
    }
}

/// One thing that is wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// Dotted key, such as `recall.top_k`; empty when no key is to blame.
    pub key: String,
    /// Where the value came from: the defaults, a file, the environment.
    pub source: Option<String>,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Everything that is wrong with the configuration. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigFaults(pub Vec<ConfigFault>);

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => write!(f, "the configuration has a fault:")?,
            n => write!(f, "the configuration has {n} faults:")?,
        }
        for fault in &self.0 {
            write!(f, "\n  ")?;
            if !fault.key.is_empty() {
                write!(f, "{}", fault.key)?;
                if let Some(source) = &fault.source {
                    write!(f, " (from {source})")?;
                }
                write!(f, ": ")?;
            }
            write!(f, "{}", fault.message)?;
        }
        Ok(())
    }
}

impl Config {
    /// Reads and checks the configuration.
    ///
    /// # Errors
    /// Every fault at once: unknown keys, wrong types, values out of range, contradictions.
    pub fn load(sources: &ConfigSources) -> Result<Self, ConfigFaults> {
        let merged = layers::merge_layers(sources).map_err(|fault| ConfigFaults(vec![fault]))?;
        let mut faults = rules::check_keys(&merged);
        // What is wrong by itself is left out here, so that contradictions among the rest show too.
        let wrong: Vec<String> = faults.iter().map(|fault| fault.key.clone()).collect();
        match merged.without_keys(&wrong).extract::<Self>() {
            Ok(config) => {
                let mut contradictions = Vec::new();
                rules::check_consistency(&config, &mut contradictions);
                contradictions.retain(|fault| !wrong.iter().any(|key| key.starts_with(&fault.key)));
                faults.append(&mut contradictions);
                if faults.is_empty() {
                    Ok(config)
                } else {
                    Err(ConfigFaults(faults))
                }
            }
            Err(error) => {
                faults.extend(error.into_iter().map(|e| ConfigFault {
                    key: e.path.join("."),
                    source: e.metadata.as_ref().map(layers::source_of),
                    message: e.kind.to_string(),
                }));
                Err(ConfigFaults(faults))
            }
        }
    }

    /// The defaults alone, for tests.
    ///
    /// # Panics
    /// Never: a test loads them.
    #[must_use]
    pub fn embedded_defaults() -> Self {
        #[expect(clippy::expect_used, reason = "the defaults are compiled in and a test loads them")]
        Self::load(&ConfigSources::default()).expect("the embedded defaults are valid")
    }
}

#[cfg(test)]
mod tests;
