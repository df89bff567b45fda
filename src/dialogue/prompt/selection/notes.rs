//! The notes of a prompt in its trace: what did not fit, in words.

use super::{super::material::PromptMaterial, PromptSelection};

impl PromptSelection {
    /// Returns notes for a person who asks why content is missing.
    pub(in super::super) fn collect_notes(&self, material: &PromptMaterial<'_>) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some((from, to)) = self.history.dropped_turns() {
            notes.push(format!("turns {from} to {to} did not fit the history budget"));
        }
        for summary in material.summaries.iter().filter(|summary| self.shows_turns_of(summary)) {
            let from = summary.from_turn;
            let to = summary.to_turn;
            notes.push(format!(
                "the summary of turns {from} to {to} was left out: the history has these turns"
            ));
        }
        if self.standing.facts.pinned_dropped > 0 {
            notes.push(format!(
                "{} pinned facts did not fit their slot",
                self.standing.facts.pinned_dropped
            ));
        }
        if self.standing.world_dropped > 0 {
            let dropped = self.standing.world_dropped;
            notes.push(format!("{dropped} lines about the world did not fit"));
        }
        let scene_notes = self.standing.scene_notes.dropped_count();
        if scene_notes > 0 {
            notes.push(format!(
                "{scene_notes} notes of the chat program did not fit their slot"
            ));
        }
        let actions = self.standing.actions.dropped_count();
        if actions > 0 {
            notes.push(format!("{actions} lines about actions did not fit"));
        }
        notes
    }
}
