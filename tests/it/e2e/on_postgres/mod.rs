//! The end-to-end tests with the ledger on Postgres and buffers in Redis. Tests with their own stores, or without any,
//! are left out (`cli_commands`, `store_round_trips`, `query_plans`, `on_qdrant`).
#![allow(clippy::duplicate_mod, reason = "the same tests, from another beginning")]

#[path = "../access.rs"]
mod access;
#[path = "../actions.rs"]
mod actions;
#[path = "../adventure.rs"]
mod adventure;
#[path = "../consolidation.rs"]
mod consolidation;
#[path = "../conversation.rs"]
mod conversation;
#[path = "../crashes.rs"]
mod crashes;
#[path = "../curation.rs"]
mod curation;
#[cfg(feature = "failpoints")]
#[path = "../deaths/mod.rs"]
mod deaths;
#[path = "../directives.rs"]
mod directives;
#[path = "../disabled_tenant.rs"]
mod disabled_tenant;
#[path = "../drain.rs"]
mod drain;
#[path = "../episodes.rs"]
mod episodes;
#[path = "../flags.rs"]
mod flags;
#[path = "../game_time.rs"]
mod game_time;
#[path = "../greeting.rs"]
mod greeting;
#[path = "../in_flight.rs"]
mod in_flight;
#[path = "../insights.rs"]
mod insights;
#[path = "../interrupting_lines.rs"]
mod interrupting_lines;
#[path = "../lines_in_flight.rs"]
mod lines_in_flight;
#[path = "../lore.rs"]
mod lore;
#[path = "../metrics.rs"]
mod metrics;
#[path = "../model_faults.rs"]
mod model_faults;
mod nodes;
#[path = "../npc_conversation.rs"]
mod npc_conversation;
#[path = "../npc_self_facts.rs"]
mod npc_self_facts;
pub(in crate::e2e) mod outages;
#[path = "../overheard_talk.rs"]
mod overheard_talk;
#[path = "../prompt_verification.rs"]
mod prompt_verification;
#[path = "../quoted_unsaid_text.rs"]
mod quoted_unsaid_text;
#[path = "../rewinds.rs"]
mod rewinds;
#[path = "../saves.rs"]
mod saves;
#[path = "../scenarios.rs"]
mod scenarios;
#[path = "../slow_reader.rs"]
mod slow_reader;
#[path = "../socket_frames.rs"]
mod socket_frames;
#[path = "../three_facts.rs"]
mod three_facts;
#[cfg(feature = "otel")]
#[path = "../traces.rs"]
mod traces;
mod unwritable_store;
#[path = "../webhooks.rs"]
mod webhooks;
#[path = "../world_state.rs"]
mod world_state;

use crate::support::ServerData;

/// Creates the starting point of the tests for these stores.
fn fresh(env: &[(&str, &str)]) -> ServerData {
    ServerData::on_services(env)
}

/// Returns the stores shared by all nodes. Every node has its own index.
fn in_common(data: ServerData) -> ServerData {
    data
}
