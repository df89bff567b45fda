//! The parts that both actors of a dialogue use: a session and an NPC conversation.

pub(super) mod load;
pub(super) mod turn_input;
