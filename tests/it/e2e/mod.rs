//! The server end to end: real sockets, the embedded stores, the scripted model or the mock one.

mod access;
mod conversation;
mod crashes;
mod cutting_in;
#[cfg(feature = "failpoints")]
mod deaths;
mod drain;
mod frames;
mod model_faults;
mod npc_conversation;
mod rewinds;
mod saves;
mod slow_reader;
mod terminal;
