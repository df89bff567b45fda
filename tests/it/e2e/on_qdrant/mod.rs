//! The core once more on all services, as in production: Postgres, Redis, and Qdrant for the index; and what an
//! outage of Qdrant does. On the tests' own double of it, or on the server that `QDRANT_URL` names.
#![allow(clippy::duplicate_mod, reason = "the same tests, from another beginning")]

#[path = "../conversation.rs"]
mod conversation;
#[path = "../crashes.rs"]
mod crashes;
#[path = "../in_flight.rs"]
mod in_flight;
#[path = "../npc_conversation.rs"]
mod npc_conversation;
mod outage;
#[path = "../rewinds.rs"]
mod rewinds;
#[path = "../saves.rs"]
mod saves;

use crate::support::Data;

/// What the core's tests start from.
fn fresh(env: &[(&str, &str)]) -> Data {
    Data::on_qdrant(env)
}
