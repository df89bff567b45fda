//! The state block a reply may end with: cut out of the stream, then read
//! (docs/algorithms.md#world-state-and-the-state-block).
//!
//! What a player types never gets here. What the NPC's side says is bounded by the world's rules.

mod cutter;
mod flow;
mod reader;

pub use cutter::{CutReply, StreamCutter};
pub use reader::{MAX_NAME_CHARS, ParsedStateBlock, StateBlockError, StateRules, parse_closed, parse_unclosed};

/// The inside of a block as a reply had it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateBlock {
    pub text: String,
    /// It ended with its fence. One that did not was cut off by the model's limit, or never ended by the model.
    pub closed: bool,
}

impl StateBlock {
    /// Reads it, with [`parse_closed`] or [`parse_unclosed`].
    ///
    /// # Errors
    /// As [`parse_closed`].
    pub fn parse_changes(&self, speaker_npc: &str, rules: &StateRules) -> Result<ParsedStateBlock, StateBlockError> {
        if self.closed {
            parse_closed(&self.text, speaker_npc, rules)
        } else {
            parse_unclosed(&self.text, speaker_npc, rules)
        }
    }
}

/// Longest block that is read.
const MAX_BLOCK_BYTES: usize = 8 * 1024;
