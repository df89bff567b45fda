//! The server end to end: real sockets, with the scripted model or the mock model. The stores are the embedded ones.
//! Most tests also run on Postgres with Redis (`on_postgres`), and the core also with Qdrant (`on_qdrant`).

mod access;
mod actions;
mod adventure;
mod backups;
mod balancer;
mod chat;
mod clean_context;
mod cli_commands;
mod consolidation;
mod conversation;
mod corrections;
mod crashes;
mod curation;
#[cfg(feature = "failpoints")]
mod deaths;
mod directives;
mod disabled_tenant;
mod doctor;
mod drain;
mod episodes;
mod examples;
mod fairness;
mod flags;
mod game_time;
mod greeting;
mod in_flight;
mod insights;
mod interrupting_lines;
mod lines_in_flight;
mod logs;
mod lore;
mod metrics;
mod metrics_address;
mod model_faults;
mod nicknames;
mod npc_conversation;
mod npc_self_facts;
mod npc_usage;
mod on_postgres;
mod on_qdrant;
mod overheard_talk;
mod previews;
mod prompt_verification;
mod query_plans;
mod quoted_unsaid_text;
mod realtime;
mod rewinds;
mod saves;
mod scenarios;
mod slow_reader;
mod socket_frames;
mod spending;
mod store_round_trips;
mod three_facts;
mod tiers;
#[cfg(feature = "otel")]
mod traces;
mod turn_explanations;
mod unwritable_store;
mod webhooks;
mod world_state;

use crate::support::ServerData;

/// Creates the starting point of the tests for embedded stores.
fn fresh(env: &[(&str, &str)]) -> ServerData {
    ServerData::new(env)
}
