//! A session of the player.

use anyhow::Context as _;
use serde_json::Value;

/// A session of the player.
pub(super) struct Session {
    pub id: String,
    pub npcs: Vec<String>,
    /// The number of the last turn; 0 before the first.
    pub head_turn: u64,
}

impl Session {
    /// Reads `session.created`.
    pub(super) fn from_event(event: &Value, npcs: Vec<String>) -> anyhow::Result<Self> {
        Ok(Self {
            id: event["session_id"]
                .as_str()
                .context("the server sent no session id")?
                .to_owned(),
            npcs,
            head_turn: event["head_turn"].as_u64().unwrap_or_default(),
        })
    }
}
