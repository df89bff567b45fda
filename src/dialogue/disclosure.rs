//! The gate: what may be told to those who hear a dialogue, and what a reply may pass on. The pure rules are in
//! `colloquy_memory::disclosure`.

mod authored;
mod disclosable;
mod event_viewer;
mod gate;
mod hearers;
mod locked_row;
mod locks_by_words;
mod own_content;
mod pass_gate;
mod prompt_disclosures;
mod redaction;
mod retelling;
mod retelling_check;
mod shown_before;
mod taught_locks;
mod turn_disclosures;

#[cfg(test)]
pub(crate) use self::redaction::open_correction;
pub(crate) use self::{
    authored::{LoreVerdict, OpenLore, open_lore, open_scenarios, open_tell},
    disclosable::{Disclosable, Unlocked},
    gate::{Gate, Hearing},
    locks_by_words::{LocksByWords, has_hangul, silent_terms},
    own_content::{own_actions, scene_notes, seen_world, seen_world_again},
    pass_gate::PassGate,
    prompt_disclosures::Disclosures,
    redaction::{
        MAX_STANDING_FACTS, PreparedRemovals, RedactedEpisode, ToldTexts, load_removed, mask_corrected_lines,
        mask_rest, redact_episodes, redact_insight, redact_insights, redact_story, redact_summaries, redact_text,
        redact_texts, retain_unforgotten,
    },
    shown_before::{scene_notes_before, shown_before, unlocked_before},
    taught_locks::TaughtLocks,
    turn_disclosures::{TurnDisclosures, locks_before_turn, told_scenarios},
};
pub use self::{
    event_viewer::{EventVerdict, EventViewer, OptionalEvents},
    hearers::may_hear,
};
