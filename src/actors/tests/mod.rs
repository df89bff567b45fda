//! The actors over a real ledger, with turns and jobs that tests hold and release.

#![allow(clippy::unwrap_used)]

mod after_turn;
mod asleep;
mod both_kinds;
mod budgets;
mod conversation;
mod conversation_memory;
mod cuts;
mod cuts_that_fail;
mod disabled;
mod eviction;
mod fake;
mod heard;
mod idle;
mod life;
mod owed;
mod regenerating;
mod restored;
mod resume;
mod rewinding;
mod saves;
mod silence;
mod speaking;
pub(super) mod world;
