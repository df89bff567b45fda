//! The core once more, with the ledger on Postgres.
#![allow(clippy::duplicate_mod, reason = "the same tests, from another beginning")]

#[path = "../conversation.rs"]
mod conversation;
#[path = "../crashes.rs"]
mod crashes;
mod nodes;
#[path = "../npc_conversation.rs"]
mod npc_conversation;
mod outages;
#[path = "../rewinds.rs"]
mod rewinds;
#[path = "../saves.rs"]
mod saves;

use crate::support::Data;

/// What the core's tests start from.
fn fresh(env: &[(&str, &str)]) -> Data {
    Data::on_postgres(env)
}
