//! The sources of settings.

use std::path::PathBuf;

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
