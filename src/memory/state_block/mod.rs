//! The state block a reply may end with: cut out of the stream, then read (ALGORITHMS §6).

mod cutter;
mod read;

pub use cutter::{Ended, StreamCutter};
pub use read::{Parsed, StateBlockError, StateRules, parse};
