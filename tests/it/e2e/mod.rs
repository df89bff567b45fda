//! The server end to end: real sockets, the embedded stores, the scripted model or the mock one.

mod access;
mod conversation;
mod crashes;
#[cfg(feature = "failpoints")]
mod deaths;
mod drain;
mod frames;
mod in_flight;
mod model_faults;
mod npc_conversation;
mod rewinds;
mod saves;
mod slow_reader;
mod terminal;
