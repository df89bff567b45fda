//! Names of speakers before lines. Some programs write them, always or in groups.

use super::{
    examples::is_example,
    nudges::names_speaker,
    request::{InputMessage, InputRole},
};
use colloquy_memory::joined_lines::split_name;

/// Whether lines begin with the names of their speakers.
pub struct NamesInLines<'a> {
    /// The character's name; `None`: lines have no names.
    speaker: Option<&'a str>,
    /// The name before each line of the user.
    user: Option<&'a str>,
}

impl<'a> NamesInLines<'a> {
    /// Finds the names in the talk of a character. `head` has the messages before the talk.
    pub fn find(head: &[InputMessage], messages: &'a [InputMessage], speaker: Option<&'a str>) -> Self {
        let replies = messages
            .iter()
            .filter(|message| message.role == InputRole::Assistant && !is_example(message));
        let mut names = replies.map(|message| split_name(&message.text).map(|(name, _)| name));
        // A group, or a program that adds names: each reply has a name, and the speaker's is one of them or asked for.
        let is_group = messages
            .iter()
            .any(|message| message.role == InputRole::System && names_speaker(&message.text));
        let has_reply = names.clone().next().is_some();
        let all_named = names.clone().all(|name| name.is_some());
        let has_speaker = names.any(|name| name.is_some() && name == speaker);
        let mut users = messages
            .iter()
            .filter(|message| message.role == InputRole::User && !message.text.trim().is_empty());
        let first_name = users
            .clone()
            .next()
            .and_then(|message| split_name(&message.text).map(|(name, _)| name));
        let shared_name = first_name.filter(|first_name| {
            users.all(|message| split_name(&message.text).is_some_and(|(name, _)| name == *first_name))
        });
        // Before the first reply, the name counts if the program's description has it.
        let is_described = |name: &str| head.iter().any(|message| message.text.contains(name));
        let have_names = if has_reply {
            all_named && (is_group || has_speaker)
        } else {
            shared_name.is_some_and(|user| is_group || is_described(user))
        };
        Self {
            speaker: speaker.filter(|_| have_names),
            user: shared_name.filter(|_| have_names),
        }
    }

    /// Returns the words of a message, without the name of the character or of the user before.
    pub fn without_name<'m>(&self, message: &'m InputMessage) -> &'m str {
        let text = message.text.trim();
        let expected_name = match message.role {
            InputRole::Assistant => self.speaker,
            InputRole::User => self.user,
            InputRole::System | InputRole::Tool => None,
        };
        match (split_name(text), expected_name) {
            (Some((name, rest)), Some(expected_name)) if name == expected_name => rest,
            _ => text,
        }
    }

    /// True if the message of a reply is the line of another member of a group.
    pub fn is_of_another(&self, message: &InputMessage) -> bool {
        let name = split_name(&message.text).map(|(name, _)| name);
        self.speaker.is_some() && name.is_some() && name != self.speaker
    }
}
