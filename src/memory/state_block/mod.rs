//! The state block a reply may end with: cut out of the stream, then read (ALGORITHMS §6).
//!
//! What a player types never gets here. What the NPC's side says is bounded by the world's rules.

mod cutter;
mod flow;
mod read;

pub use cutter::{Ended, StreamCutter};
pub use read::{MAX_NAME_CHARS, Parsed, StateBlockError, StateRules, parse, parse_unclosed};

/// The inside of a block as a reply had it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateBlock {
    pub text: String,
    /// It ended with its fence. One that did not was cut off by the model's limit, or never ended by the model.
    pub closed: bool,
}

impl StateBlock {
    /// Reads it, with [`parse`] or [`parse_unclosed`].
    ///
    /// # Errors
    /// As [`parse`].
    pub fn read(&self, speaker_npc: &str, rules: &StateRules) -> Result<Parsed, StateBlockError> {
        if self.closed {
            parse(&self.text, speaker_npc, rules)
        } else {
            parse_unclosed(&self.text, speaker_npc, rules)
        }
    }
}

/// Longest block that is read.
const MAX_BLOCK_BYTES: usize = 8 * 1024;
