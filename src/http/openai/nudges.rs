//! System messages by which chat programs ask for a certain reply. They are no notes about the scene.

use super::request::{InputMessage, InputRole};
use colloquy_memory::joined_lines::MAX_NAME_BYTES;

/// The beginnings of messages that ask for more of the last reply.
const GO_ON_OPENINGS: [&str; 2] = ["[Continue your last message", "[Continue the following message"];
/// The end of a message that asks for more of the last reply.
const GO_ON_ENDING: &str = "[Continue the last response]";
/// The beginning of a note that names the next speaker of a group, up to the name.
const SPEAKER_MARK: &str = "[Write the next reply only as ";

/// True if the text asks for more of the last reply. A program may have joined several system messages.
pub fn asks_to_go_on(text: &str) -> bool {
    let opens = |line: &str| {
        GO_ON_OPENINGS
            .iter()
            .any(|opening| line.trim_start().starts_with(opening))
    };
    text.lines().any(opens) || text.trim_end().ends_with(GO_ON_ENDING)
}

/// A line or a reply of a talk. Its white space counts as one space.
pub struct SpokenText(String);

impl SpokenText {
    pub fn new(text: &str) -> Self {
        Self(join_words(text))
    }

    /// True if `text` only asks for more of this reply. Other words in the text would make it a note too.
    pub fn is_only_to_go_on(&self, text: &str) -> bool {
        is_in_brackets(text) && (asks_to_go_on(text) || self.is_quoted_in(text))
    }

    /// True if `text` repeats this text, with any white space.
    pub fn is_quoted_in(&self, text: &str) -> bool {
        text.len() >= self.0.len() && join_words(text).contains(&self.0)
    }
}

fn join_words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// True if the text only names the next speaker of a group.
pub fn only_names_speaker(text: &str) -> bool {
    is_in_brackets(text) && text.trim().starts_with(SPEAKER_MARK) && !text.trim().contains('\n')
}

fn is_in_brackets(text: &str) -> bool {
    let text = text.trim();
    text.starts_with('[') && text.ends_with(']')
}

/// Returns the member of a group that shall speak, if the messages name one.
pub fn named_speaker(messages: &[InputMessage]) -> Option<&str> {
    let mut notes = messages
        .iter()
        .rev()
        .filter(|message| message.role == InputRole::System);
    notes.find_map(|note| speaker_in(&note.text))
}

/// True if the text names the next speaker of a group.
pub fn names_speaker(text: &str) -> bool {
    speaker_in(text).is_some()
}

fn speaker_in(text: &str) -> Option<&str> {
    let rest = &text[text.find(SPEAKER_MARK)? + SPEAKER_MARK.len()..];
    let name = rest[..rest.find(']')?].trim_end_matches('.').trim();
    (!name.is_empty() && name.len() <= MAX_NAME_BYTES).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_to_go_on_are_told_from_notes() {
        for (text, asks) in [
            (
                "[Continue your last message without repeating its original content.]",
                true,
            ),
            (
                "[Continue the following message. Do not include ANY parts of it: Well,]",
                true,
            ),
            (
                "Keep it short.\n[Continue your last message without repeating its original content.]",
                true,
            ),
            ("Lore. [Continue the last response]\n", true),
            ("[Continue the story in the inn.]", false),
            ("Never write: [Continue your last message", false),
        ] {
            assert_eq!(asks_to_go_on(text), asks, "{text}");
        }
    }

    #[test]
    fn messages_with_further_words_are_notes_too() {
        let reply = "Well,  yes.";
        let reply = SpokenText::new(reply);
        assert!(reply.is_only_to_go_on("[Go on from here: Well, yes.]"));
        assert!(reply.is_only_to_go_on("[Continue your last message.]"));
        assert!(!reply.is_only_to_go_on("[Continue your last message.]\nIt rains."));
        assert!(!reply.is_only_to_go_on("[It rains.]"));
        assert!(only_names_speaker("[Write the next reply only as Tom.]"));
        assert!(!only_names_speaker("[Write the next reply only as Tom.]\n[It rains.]"));
    }
}
