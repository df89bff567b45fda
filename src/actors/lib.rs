//! The actix actors, and the handle through which the rest of the server talks to the actors.
//!
//! An actor is a thin state machine. The actor owns a queue, a buffer or a schedule, and runs plain async functions of
//! `dialogue`. Outside this module, only `app` and `lifecycle` import `actix`.

#[macro_use(failpoint)]
extern crate colloquy_core;

mod api;
mod authored_npc;
mod chores;
pub mod curator;
mod dialogue;
mod disabled_tenants;
mod event_log;
mod eviction;
pub mod handle;
mod heartbeat;
mod mailbox;
pub mod membership;
mod memory_wait;
mod messages;
pub mod metrics;
mod node;
mod npc;
pub mod npc_conversation;
mod participants;
mod registry;
mod restore_notices;
pub mod resume_token;
mod rewind_notices;
mod rewind_queue;
mod running_turn;
mod session;
#[cfg(test)]
mod tests;
mod use_cases;

pub use api::{
    AcceptedLine, ActorSettings, DialogueError, InterruptCommand, Listener, ListenerGone, NewConversation, NewSession,
    OnBusy, PlayerLine, PublishedEvent, RegenerateCommand, ResumeCommand, VisibleEvent,
};
pub use event_log::{event_of_rewind, events_of_turn};

pub use colloquy_dialogue::heard::HeardLength;
pub use colloquy_ports::ledger::rewinds::InterruptOutcome;
