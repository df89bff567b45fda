//! The messages of a request as a transcript: the head, the turns of the talk, and the notes around them.

use super::request::{InputMessage, InputRole};
use colloquy_memory::chat_transcript::{Transcript, TranscriptEnd, TranscriptTurn};
use colloquy_ports::llm::{ChatMessage, ChatRole};

/// The messages of a request, sorted by their purpose.
#[derive(Debug, Clone, PartialEq)]
pub struct SortedMessages {
    /// System messages before the talk: the character, its world, the rules.
    pub head: Vec<ChatMessage>,
    pub transcript: Transcript,
    /// Texts of the system messages within and after the talk.
    pub notes: Vec<String>,
    /// The messages of the talk, each with the position of its turn in the transcript. Messages at the position after the
    /// last turn belong to the answered line.
    pub talk: Vec<(usize, ChatMessage)>,
}

/// Names of speakers in the examples of chat programs, which are no part of the talk.
const EXAMPLE_NAMES: [&str; 2] = ["example_user", "example_assistant"];

/// Sorts the messages.
pub fn sort_messages(messages: &[InputMessage]) -> SortedMessages {
    let speaks = |message: &InputMessage| matches!(message.role, InputRole::User | InputRole::Assistant);
    let first = messages.iter().position(speaks).unwrap_or(messages.len());
    let mut turns: Vec<TranscriptTurn> = Vec::new();
    let mut line = String::new();
    let mut has_line = false;
    let mut notes = Vec::new();
    let mut talk = Vec::new();
    for message in &messages[first..] {
        let text = message.text.trim();
        let turn = turns.len();
        match message.role {
            InputRole::User => {
                if has_line && !text.is_empty() {
                    line.push_str("\n\n");
                }
                line.push_str(text);
                has_line |= !text.is_empty();
            }
            InputRole::Assistant if !text.is_empty() => {
                turns.push(TranscriptTurn {
                    player_text: std::mem::take(&mut line),
                    reply_text: text.to_owned(),
                });
                has_line = false;
            }
            InputRole::System if !is_example(message) && !text.is_empty() => notes.push(text.to_owned()),
            InputRole::System | InputRole::Assistant | InputRole::Tool => {}
        }
        talk.push((turn, to_chat_message(message)));
    }
    SortedMessages {
        head: messages[..first].iter().map(to_chat_message).collect(),
        transcript: Transcript {
            turns,
            end: if has_line {
                TranscriptEnd::Line(line)
            } else {
                TranscriptEnd::Reply
            },
        },
        notes,
        talk,
    }
}

fn is_example(message: &InputMessage) -> bool {
    message
        .name
        .as_deref()
        .is_some_and(|name| EXAMPLE_NAMES.contains(&name))
}

fn to_chat_message(message: &InputMessage) -> ChatMessage {
    let role = match message.role {
        InputRole::System => ChatRole::System,
        InputRole::User => ChatRole::User,
        InputRole::Assistant | InputRole::Tool => ChatRole::Assistant,
    };
    ChatMessage {
        as_sent: message.as_sent.clone().map(Into::into),
        ..ChatMessage::new(role, message.text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: InputRole, text: &str) -> InputMessage {
        InputMessage {
            role,
            text: text.to_owned(),
            name: None,
            as_sent: None,
        }
    }

    #[test]
    fn talk_begins_with_the_first_spoken_message() {
        use InputRole::{Assistant, System, User};
        let example = InputMessage {
            name: Some("example_user".to_owned()),
            ..message(System, "Buy herbs?")
        };
        let sorted = sort_messages(&[
            message(System, "You are Mira."),
            example,
            message(Assistant, "Welcome."),
            message(User, "Hi"),
            message(User, "Anybody here?"),
            message(Assistant, "Yes."),
            message(System, "It rains."),
            message(User, " Good. "),
        ]);
        assert_eq!(sorted.head.len(), 2);
        let turns = sorted.transcript.turns.iter();
        let turns: Vec<_> = turns
            .map(|turn| (turn.player_text.as_str(), turn.reply_text.as_str()))
            .collect();
        assert_eq!(turns, [("", "Welcome."), ("Hi\n\nAnybody here?", "Yes.")]);
        assert_eq!(sorted.transcript.end, TranscriptEnd::Line("Good.".to_owned()));
        assert_eq!(sorted.notes, ["It rains."]);
        let of_turns: Vec<_> = sorted.talk.iter().map(|(turn, _)| *turn).collect();
        assert_eq!(of_turns, [0, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn lone_system_message_asks_the_npc_to_speak_first() {
        let sorted = sort_messages(&[message(InputRole::System, "Be kind.")]);
        assert_eq!((sorted.head.len(), sorted.transcript.turns.len()), (1, 0));
        assert_eq!(sorted.transcript.end, TranscriptEnd::Reply);
    }
}
