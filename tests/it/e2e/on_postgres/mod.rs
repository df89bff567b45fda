//! The same tests on the other column: the ledger on Postgres, the buffers in Redis. What has its own
//! column, or is about none (`terminal`, `trips`, `plans`, `on_qdrant`), is not here.
#![allow(clippy::duplicate_mod, reason = "the same tests, from another beginning")]

#[path = "../access.rs"]
mod access;
#[path = "../conversation.rs"]
mod conversation;
#[path = "../crashes.rs"]
mod crashes;
#[path = "../cutting_in.rs"]
mod cutting_in;
#[cfg(feature = "failpoints")]
#[path = "../deaths/mod.rs"]
mod deaths;
#[path = "../disabled.rs"]
mod disabled;
#[path = "../drain.rs"]
mod drain;
#[path = "../frames.rs"]
mod frames;
#[path = "../greeting.rs"]
mod greeting;
#[path = "../in_flight.rs"]
mod in_flight;
#[path = "../lines_in_flight.rs"]
mod lines_in_flight;
#[path = "../metrics.rs"]
mod metrics;
#[path = "../model_faults.rs"]
mod model_faults;
mod nodes;
mod not_writable;
#[path = "../npc_conversation.rs"]
mod npc_conversation;
pub(in crate::e2e) mod outages;
#[path = "../overheard.rs"]
mod overheard;
#[path = "../quoted.rs"]
mod quoted;
#[path = "../rewinds.rs"]
mod rewinds;
#[path = "../saves.rs"]
mod saves;
#[path = "../scenarios.rs"]
mod scenarios;
#[path = "../self_told.rs"]
mod self_told;
#[path = "../slow_reader.rs"]
mod slow_reader;
#[path = "../three_facts.rs"]
mod three_facts;
#[cfg(feature = "otel")]
#[path = "../traces.rs"]
mod traces;

use crate::support::Data;

/// What the tests of both columns start from.
fn fresh(env: &[(&str, &str)]) -> Data {
    Data::on_services(env)
}

/// What several nodes have in common: each of them has an index of its own.
fn in_common(data: Data) -> Data {
    data
}
