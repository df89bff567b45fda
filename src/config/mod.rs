//! Configuration: embedded defaults, then a file, then the environment. The result is checked as a whole, and all
//! faults are reported at once.
//!
//! `config/default.toml` lists all settings. This module owns reading and checking; the effect of a setting belongs
//! to the module of that setting. An empty text means "not set". Secrets are wrapped immediately after reading and
//! never printed.

mod faults;
mod layers;
pub mod presets;
mod ranges;
mod removed;
mod rules;
mod sections;
mod sources;

pub use self::{
    faults::{ConfigFault, ConfigFaults},
    sources::{ConfigSources, DEFAULTS, ENV_PREFIX},
};
pub use sections::{
    BufferSection, Config, DemoSection, EmbedderSection, EndpointSection, InputTypeName, LedgerSection, ListenAddress,
    LlmEndpoint, LlmSection, NodeSection, ServerSection, Synchronous, TaskSection, TasksSection, TelemetrySection,
    VectorsSection,
};

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
