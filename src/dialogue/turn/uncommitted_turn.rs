//! A turn between its reply and its commit.

use super::{gathered_context::GatheredContext, speak::Reply};
use crate::{prompt::Prompt, requester::Requester};
use colloquy_memory::trace::Timings;

/// The gathered context and the spoken reply, after `reply.done` went out.
pub(super) struct UncommittedTurn {
    /// The requesters of the cut, if the reply was cut.
    pub cuts: Vec<Requester>,
    pub gathered: GatheredContext,
    pub prompt: Prompt,
    pub reply: Reply,
    pub done_seq: u64,
    pub timings: Timings,
}
