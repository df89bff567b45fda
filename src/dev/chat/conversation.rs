//! A watched conversation, and its end.

use serde_json::Value;

use super::{commands::Command, events::event_type, playback::Playback};

/// Why NPCs are no longer watched.
pub(super) enum WatchEnd {
    /// The conversation ended, or the player cut in or left.
    Ended,
    /// The player typed this command.
    Command(Command),
    /// The server refused the conversation or a line.
    Failed,
}

/// A watched conversation.
pub(super) struct Conversation {
    pub(super) id: String,
    pub npcs: Vec<String>,
    pub(super) playback: Playback,
    /// True if the player has interrupted it.
    pub(super) is_cut: bool,
}

impl Conversation {
    /// Takes in an event, if it is one of the conversation. `caused`: the player's line caused it. Returns false for
    /// another dialogue.
    pub(super) fn on_event(&mut self, event: &Value, caused: bool) -> bool {
        let of_this = event["dialogue_id"] == self.id.as_str();
        if of_this {
            self.playback.on_event(event);
            self.is_cut |= caused && matches!(event_type(event), "dialogue.rewound" | "interrupt.done");
        }
        of_this
    }
}
