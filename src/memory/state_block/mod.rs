//! The state block at the end of a reply: cut out of the stream, then read
//! (docs/algorithms.md#world-state-and-the-state-block).
//!
//! Text of players never gets here. The world's rules bound the text of the NPC's side.

mod actions;
mod cutter;
mod flow;
mod reader;
mod rules;
mod values;

pub use cutter::{CutReply, StreamCutter};
pub use reader::parse_closed;
pub use rules::{MAX_NAME_CHARS, ParsedStateBlock, StateBlockError, StateRules};

/// The inside of a block, as in the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateBlock {
    pub text: String,
    /// True if the block ended with its fence. Otherwise the model's limit cut the block off, or the model never closed
    /// it.
    pub closed: bool,
}

impl StateBlock {
    /// Reads the block with [`parse_closed`].
    ///
    /// # Errors
    /// The block was not closed, or as [`parse_closed`].
    pub fn parse_changes(&self, speaker_npc: &str, rules: &StateRules) -> Result<ParsedStateBlock, StateBlockError> {
        if !self.closed {
            return Err(StateBlockError::NotClosed);
        }
        parse_closed(&self.text, speaker_npc, rules)
    }
}

/// Longest readable block, in bytes.
const MAX_BLOCK_BYTES: usize = 8 * 1024;
