//! The core once more, with the ledger on Postgres and the buffers in Redis.
#![allow(clippy::duplicate_mod, reason = "the same tests, from another beginning")]

#[path = "../conversation.rs"]
mod conversation;
#[path = "../crashes.rs"]
mod crashes;
#[cfg(feature = "failpoints")]
#[path = "../deaths/mod.rs"]
mod deaths;
mod nodes;
#[path = "../npc_conversation.rs"]
mod npc_conversation;
#[path = "../rewinds.rs"]
mod rewinds;
#[path = "../saves.rs"]
mod saves;

use crate::support::Data;

/// What the tests of both columns start from.
fn fresh(env: &[(&str, &str)]) -> Data {
    Data::on_services(env)
}
