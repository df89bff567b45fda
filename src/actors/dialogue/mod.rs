//! The actor of a dialogue, for a player's session and for a conversation of NPCs.

pub(super) mod actor;
mod cuts;
pub(super) mod decisions;
pub(super) mod kind;
mod lifetime;
mod listeners;
pub(super) mod load;
pub(super) mod rewinds;
pub(super) mod turn_input;
pub(super) mod turns;
