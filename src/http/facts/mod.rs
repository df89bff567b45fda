//! Facts: the knowledge of an NPC, for authors of worlds. Never for players.

mod edit;
mod find;
mod flags;
mod view;

pub use edit::{create_fact, edit_fact, remove_fact, restore_fact};
#[cfg(feature = "fuzzing")]
pub use find::FactsQuery;
pub use find::{fact_history, get_fact, list_facts};
pub use flags::{decide_flag, list_flags};
