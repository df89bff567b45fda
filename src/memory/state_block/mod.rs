//! The state block a reply may end with: cut out of the stream, then read (ALGORITHMS §6).
//!
//! What a player types never gets here. What the NPC's side says is bounded by the world's rules.

mod cutter;
mod flow;
mod read;

pub use cutter::{Ended, StreamCutter};
pub use read::{MAX_NAME_CHARS, Parsed, StateBlockError, StateRules, parse};

/// Longest block that is read.
const MAX_BLOCK_BYTES: usize = 8 * 1024;
