//! The server end to end: real sockets, the scripted model or the mock one. The stores are the embedded ones;
//! the core happens on Postgres and with Qdrant, too.

mod access;
mod balancer;
mod conversation;
mod crashes;
mod cutting_in;
#[cfg(feature = "failpoints")]
mod deaths;
mod drain;
mod frames;
mod greeting;
mod in_flight;
mod metrics;
mod model_faults;
mod npc_conversation;
mod on_postgres;
mod on_qdrant;
mod rewinds;
mod saves;
mod slow_reader;
mod terminal;
#[cfg(feature = "otel")]
mod traces;
mod trips;

use crate::support::Data;

/// What the core's tests start from.
fn fresh(env: &[(&str, &str)]) -> Data {
    Data::new(env)
}
