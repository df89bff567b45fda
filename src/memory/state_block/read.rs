//! Reads a state block leniently and turns it into bounded state changes.

use crate::memory::state::StateChange;

/// Bounds of what one block may change.
#[derive(Debug, Clone, PartialEq)]
pub struct StateRules {
    /// Most that one turn may change a relationship; 20.
    pub max_relationship_delta: i32,
    /// Most that one turn may change hit points; 100.
    pub max_hp_delta: i32,
    /// Longest name, place, item or mood, in Unicode scalar values; 64.
    pub max_name_chars: usize,
    /// Longest sentence in events and notes; 200.
    pub max_text_chars: usize,
    /// Most entries of one list; 16.
    pub max_list: usize,
}

impl Default for StateRules {
    fn default() -> Self {
        Self {
            max_relationship_delta: 20,
            max_hp_delta: 100,
            max_name_chars: 64,
            max_text_chars: 200,
            max_list: 16,
        }
    }
}

/// What a block says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parsed {
    pub changes: Vec<StateChange>,
    /// What was left out and why, in words, for the trace.
    pub rejected: Vec<String>,
}

/// Why a block cannot be read at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateBlockError {
    #[error("the state block is longer than {max} bytes")]
    TooLong { max: usize },
    #[error("the state block has no `key: value` line and is not a JSON object")]
    NotABlock,
}

/// Reads a block. `speaker_npc` names the NPC that spoke: `mood` is its own, the rest is the player's.
///
/// # Errors
/// When the block is too long or nothing in it can be read; single bad entries are in `rejected`.
pub fn parse(block: &str, speaker_npc: &str, rules: &StateRules) -> Result<Parsed, StateBlockError> {
    const MAX: usize = 8 * 1024;
    if block.len() > MAX {
        return Err(StateBlockError::TooLong { max: MAX });
    }
    let clip = |text: &str| text.trim().chars().take(rules.max_name_chars).collect::<String>();
    let mut parsed = Parsed::default();
    let mut read = 0;
    for (key, value) in block.lines().filter_map(|line| line.split_once(':')) {
        read += 1;
        match key.trim() {
            "mood" => parsed.changes.push(StateChange::Mood {
                who: speaker_npc.to_owned(),
                mood: clip(value),
            }),
            "location" => parsed.changes.push(StateChange::Location {
                who: "player".to_owned(),
                to: clip(value),
            }),
            other => parsed.rejected.push(format!("unknown key `{other}`")),
        }
    }
    if read == 0 {
        Err(StateBlockError::NotABlock)
    } else {
        Ok(parsed)
    }
}
