//! The rules of NPC memory: values in, decisions out.
//!
//! This module is pure: no I/O, no clock, no random numbers, and no knowledge of stores, models or actors. From this
//! crate only `ids` may be imported.

pub mod action_rule;
pub mod actions;
pub mod agreement;
pub mod aliases;
pub mod attributes;
pub mod authored;
pub mod backend_names;
pub mod calendar;
pub mod calibration;
pub mod character_card;
pub mod chat_models;
pub mod chat_transcript;
pub mod claims;
pub mod clock_segments;
pub mod clock_settings;
pub mod condition;
pub mod consolidation;
pub mod curation;
pub mod directive;
pub mod disclosure;
pub mod embedded_text;
pub mod episode;
pub mod fact;
pub mod flags;
pub mod game_clock;
pub mod insight;
pub mod joined_lines;
pub mod keywords;
pub mod language;
pub mod lore;
pub mod milestones;
pub mod near_vectors;
pub mod packing;
pub mod party;
pub mod pii;
pub mod progress;
pub mod quantized_vectors;
pub mod reconcile;
pub mod scenario;
pub mod scoring;
pub mod sentences;
pub mod state;
pub mod state_block;
pub mod summary;
pub mod text;
pub mod tiers;
pub mod timeline;
pub mod tokens;
pub mod trace;
pub mod turn;
pub mod unlock_rule;
pub mod vocabulary;
pub mod world_event;
