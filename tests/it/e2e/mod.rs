//! The server end to end: real sockets, the scripted model or the mock one. The stores are the embedded ones;
//! most of it happens on Postgres with Redis, too (`on_postgres`), and the core on these with Qdrant (`on_qdrant`).

mod access;
mod backups;
mod balancer;
mod conversation;
mod crashes;
mod cutting_in;
#[cfg(feature = "failpoints")]
mod deaths;
mod disabled;
mod drain;
mod explained;
mod fairness;
mod frames;
mod greeting;
mod in_flight;
mod lines_in_flight;
mod logs;
mod metrics;
mod metrics_apart;
mod model_faults;
mod not_writable;
mod npc_conversation;
mod on_postgres;
mod on_qdrant;
mod overheard;
mod plans;
mod quoted;
mod rewinds;
mod saves;
mod scenarios;
mod self_told;
mod slow_reader;
mod terminal;
mod three_facts;
#[cfg(feature = "otel")]
mod traces;
mod trips;

use crate::support::Data;

/// What the tests of both columns start from.
fn fresh(env: &[(&str, &str)]) -> Data {
    Data::new(env)
}
