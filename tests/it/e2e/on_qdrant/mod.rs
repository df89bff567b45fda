//! The core once more on all services, as in production: Postgres, Redis, and Qdrant for the index; several nodes on
//! them; what an outage of Qdrant does, and how an index that differs is put right. On the tests' own double of it, or on the server that `QDRANT_URL` names.
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
#[path = "../three_facts.rs"]
mod three_facts;

use crate::support::ServerData;

/// What the core's tests start from.
fn fresh(env: &[(&str, &str)]) -> ServerData {
    ServerData::on_qdrant(env)
}

/// What several nodes have in common: the index, too.
fn in_common(data: ServerData) -> ServerData {
    data.with_qdrant()
}
