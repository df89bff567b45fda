//! What an NPC remembers and how that is decided: values in, decisions out.
//!
//! Pure. Nothing here does I/O, reads a clock or draws a random number, and nothing here knows of
//! a store, a model or an actor. It may import `ids` and nothing else of ours.

pub mod agreement;
pub mod aliases;
pub mod authored;
pub mod calibration;
pub mod claims;
pub mod fact;
pub mod keywords;
pub mod locks;
pub mod milestones;
pub mod packing;
pub mod party;
pub mod pii;
pub mod private_terms;
pub mod progress;
pub mod reconcile;
pub mod scenario;
pub mod scoring;
pub mod state;
pub mod state_block;
pub mod summary;
pub mod text;
pub mod timeline;
pub mod tokens;
pub mod trace;
pub mod turn;
pub mod vocabulary;
