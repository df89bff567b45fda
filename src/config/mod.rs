//! Configuration: embedded defaults, then a file, then the environment. The result is checked as a whole, and all
//! faults are reported at once.
//!
//! `config/default.toml` lists all settings. This module owns reading and checking; the effect of a setting belongs
//! to the module of that setting. An empty text means "not set". Secrets are wrapped immediately after reading and
//! never printed.

mod layers;
pub mod presets;
mod ranges;
mod rules;
mod sections;

use std::{fmt, path::PathBuf};

pub use sections::{
    BreakerSection, BufferSection, Config, DemoSection, EmbedderSection, EndpointSection, InputTypeName, LedgerSection,
    ListenAddress, LlmEndpoint, LlmSection, NodeSection, RetrySection, ServerSection, Synchronous, TaskSection,
    TasksSection, TelemetrySection, VectorsSection,
};

/// The documented defaults, compiled in.
pub const DEFAULTS: &str = include_str!("../../config/default.toml");

/// The common prefix of Colloquy's environment variables.
pub const ENV_PREFIX: &str = "COLLOQUY__";

/// The sources of settings besides the defaults.
#[derive(Debug, Clone, Default)]
pub struct ConfigSources {
    /// A required file.
    pub file: Option<PathBuf>,
    pub optional_file: Option<PathBuf>,
    /// Environment variables; only `COLLOQUY__…` variables count.
    pub env: Vec<(String, String)>,
    /// A required file with the highest precedence, for trying out settings.
    pub override_file: Option<PathBuf>,
}

impl ConfigSources {
    /// Returns the sources of this process: the environment, and a settings file. The file is `--config` or
    /// `COLLOQUY_CONFIG` (the argument covers both), else `./colloquy.toml`.
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

/// One fault of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// The dotted key, such as `recall.top_k`; empty if the fault concerns no single key.
    pub key: String,
    /// The source of the value: the defaults, a file or the environment.
    pub source: Option<String>,
    /// The fault, and a valid alternative.
    pub message: String,
}

/// All faults of the configuration. Contains no secrets.
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
    /// All faults at once: unknown keys, wrong types, values out of range, contradictions.
    pub fn load(sources: &ConfigSources) -> Result<Self, ConfigFaults> {
        let merged = layers::merge_layers(sources).map_err(|fault| ConfigFaults(vec![fault]))?;
        let mut faults = rules::check_keys(&merged);
        // Invalid keys fall back to their defaults here, so that contradictions among the other keys are found too.
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

    /// Returns the defaults alone, for tests.
    ///
    /// # Panics
    /// Never: a test loads the defaults.
    #[must_use]
    pub fn embedded_defaults() -> Self {
        #[expect(clippy::expect_used, reason = "the defaults are compiled in and a test loads them")]
        Self::load(&ConfigSources::default()).expect("the embedded defaults are valid")
    }
}

#[cfg(test)]
mod preset_tests;
#[cfg(test)]
mod tests;
