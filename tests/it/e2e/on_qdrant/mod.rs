//! The core tests on Postgres, Redis and Qdrant, as in production, including several nodes, an outage of Qdrant, and
//! index repair. Qdrant is the tests' double, or the server in `QDRANT_URL`.
#![allow(clippy::duplicate_mod, reason = "the same tests, from another beginning")]

#[path = "../conversation.rs"]
mod conversation;
#[path = "../crashes.rs"]
mod crashes;
#[path = "../in_flight.rs"]
mod in_flight;
#[path = "../lines_in_flight.rs"]
mod lines_in_flight;
#[path = "../on_postgres/nodes/mod.rs"]
mod nodes;
#[path = "../npc_conversation.rs"]
mod npc_conversation;
mod outage;
#[path = "../overheard_talk.rs"]
mod overheard_talk;
#[path = "../quoted_unsaid_text.rs"]
mod quoted_unsaid_text;
mod reindex;
#[path = "../rewinds.rs"]
mod rewinds;
#[path = "../saves.rs"]
mod saves;
#[path = "../scenarios.rs"]
mod scenarios;
mod taught_meanwhile;
#[path = "../three_facts.rs"]
mod three_facts;

use crate::support::ServerData;

/// Creates the starting point of the core tests.
fn fresh(env: &[(&str, &str)]) -> ServerData {
    ServerData::on_qdrant(env)
}

/// Returns the stores shared by all nodes, including the index.
fn in_common(data: ServerData) -> ServerData {
    data.with_qdrant()
}
