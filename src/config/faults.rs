//! Faults of the configuration.

use std::fmt;

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
