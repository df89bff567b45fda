//! The actor of a dialogue, for a player's session and for a conversation of NPCs.

pub(super) mod actor;
mod cuts;
pub(super) mod decisions;
pub(super) mod due_jobs;
pub(super) mod kind;
mod lifetime;
mod listeners;
pub(super) mod load;
mod outcome_records;
pub(super) mod pending_cut;
pub(super) mod rewind_run;
mod rewind_state;
pub(super) mod rewinds;
pub(super) mod turn_input;
pub(super) mod turns;
