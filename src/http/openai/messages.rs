//! The messages of a request as a transcript: the head, the turns of the talk, and what the request asks for.
//!
//! Programs differ in how they ask, and say so only by the shape of the messages. A wrong guess heals with the next request,
//! whose transcript shows what its user sees.

use super::{
    examples::is_example,
    heard_line::HeardLine,
    names_in_lines::NamesInLines,
    nudges::{SpokenText, asks_to_go_on, only_names_speaker},
    request::{InputMessage, InputRole},
};
use colloquy_dialogue::turn::ToolExchange;
use colloquy_memory::{
    chat_transcript::{SILENT_REPLIES, Transcript, TranscriptEnd, TranscriptTurn},
    joined_lines::split_name,
};
use colloquy_ports::{
    buffer::BufferedTurn,
    llm::{ChatMessage, ChatRole},
};

/// The messages of a request, sorted by their purpose.
#[derive(Debug, Clone, PartialEq)]
pub struct SortedMessages {
    /// System messages before the talk: the character, its world, the rules.
    pub head: Vec<ChatMessage>,
    pub transcript: Transcript,
    /// Texts of the system messages within and after the talk.
    pub notes: Vec<String>,
    /// The system messages after the last spoken message, if that is a reply. They may ask for something beside the talk.
    pub trailing: Vec<String>,
    /// The messages of the talk, each with the position of its turn in the transcript. Messages at the position after the
    /// last turn belong to the answered line.
    pub talk: Vec<(usize, ChatMessage)>,
    /// The calls of tools after the answered line, and their results. `None`: no tool was called since.
    pub tools: Option<ToolExchange>,
}

/// A line that a program sends for a user who says nothing. Text after it is the end of the last reply.
const SILENT_LINE: &str = "*says nothing*";

/// Sorts the messages for the character `speaker`. Lines of other members of a group are what the speaker hears.
pub fn sort_messages(messages: &[InputMessage], speaker: Option<&str>) -> SortedMessages {
    let is_talk = |message: &InputMessage| message.role.speaks() && !is_example(message);
    let first_line = messages.iter().position(is_talk).unwrap_or(messages.len());
    let names = NamesInLines::find(&messages[..first_line], &messages[first_line..], speaker);
    let mut builder = TranscriptBuilder::default();
    let mut notes = Vec::new();
    let mut trailing: Vec<String> = Vec::new();
    let mut talk = Vec::new();
    for message in messages[first_line..].iter().filter(|message| !is_example(message)) {
        let text = names.without_name(message);
        let is_line = message.role.speaks() && (message.role == InputRole::User || names.is_of_another(message));
        if message.calls_tools {
            builder.reopen_last_reply();
        } else if !text.is_empty() && is_line {
            builder.finish_begun_reply();
        }
        let turn = builder.turns.len();
        if message.role == InputRole::Assistant && !message.calls_tools && SILENT_REPLIES.contains(&text) {
            // The user stopped the reply before its first word, or the NPC said no word.
            continue;
        }
        if message.role == InputRole::System && !text.is_empty() {
            if !only_names_speaker(text) {
                notes.push(text.to_owned());
            }
            trailing.push(text.to_owned());
        }
        let has_words = match message.role {
            InputRole::User => builder.add_line_of_user(text),
            InputRole::Assistant if message.calls_tools => builder.begin_reply(text),
            InputRole::Assistant if is_line => builder.add_line_of_another(&message.text),
            InputRole::Assistant => builder.add_reply(text),
            InputRole::System | InputRole::Tool => false,
        };
        if has_words {
            trailing.clear();
        }
        talk.push((turn, to_chat_message(message)));
    }
    let end = builder.end_with(&trailing);
    if let (TranscriptEnd::Reply, Some(last_turn)) = (&end, builder.turns.last()) {
        leave_out_nudges(&last_turn.reply_text, &mut notes, &mut talk);
    }
    let ends_with_reply = builder.line.is_empty() && !builder.turns.is_empty() && !builder.calls_tools;
    let tools = builder.calls_tools.then(|| ToolExchange {
        begun_reply: builder.begun_reply,
        messages: messages_after_line(&talk, builder.turns.len()),
    });
    SortedMessages {
        head: messages[..first_line].iter().map(to_chat_message).collect(),
        transcript: Transcript {
            turns: builder.turns,
            end,
        },
        notes,
        trailing: if ends_with_reply { trailing } else { Vec::new() },
        talk,
        tools,
    }
}

/// Leaves out the notes and system messages that only ask to go on with the last reply.
fn leave_out_nudges(last_reply: &str, notes: &mut Vec<String>, talk: &mut Vec<(usize, ChatMessage)>) {
    let last_reply = SpokenText::new(last_reply);
    notes.retain(|note| !last_reply.is_only_to_go_on(note));
    talk.retain(|(_, message)| message.role != ChatRole::System || !last_reply.is_only_to_go_on(&message.content));
}

/// Returns the replies, calls and results after the line at the position `turn`.
fn messages_after_line(talk: &[(usize, ChatMessage)], turn: usize) -> Vec<ChatMessage> {
    let tail = talk
        .iter()
        .rev()
        .take_while(|(message_turn, message)| *message_turn == turn && message.role != ChatRole::User);
    let mut messages: Vec<_> = tail
        .filter(|(_, message)| message.role == ChatRole::Assistant)
        .map(|(_, message)| message.clone())
        .collect();
    messages.reverse();
    messages
}

#[derive(Default)]
struct TranscriptBuilder {
    turns: Vec<TranscriptTurn>,
    /// The words since the last reply.
    line: HeardLine,
    /// What the NPC said before it called tools. The words after the results belong to the same reply.
    begun_reply: String,
    /// True if tools were called since the line.
    calls_tools: bool,
}

impl TranscriptBuilder {
    /// Adds words of the player. True if there were words.
    fn add_line(&mut self, text: &str) -> bool {
        if let Some(rest) = text.strip_prefix(SILENT_LINE)
            && let Some(last_turn) = self
                .turns
                .last_mut()
                .filter(|_| self.line.is_empty() && !rest.trim().is_empty())
        {
            last_turn.reply_text.push(' ');
            last_turn.reply_text.push_str(rest.trim());
            return true;
        }
        self.line.add(text.to_owned(), false);
        !text.is_empty()
    }

    /// Adds words of the player, or of another member of a group in the player's message. True if there were words.
    fn add_line_of_user(&mut self, text: &str) -> bool {
        match unwrap_speech(text) {
            Some(speech) if split_name(&speech).is_some() => self.add_line_of_another(&speech),
            Some(speech) => self.add_line(&speech),
            None => self.add_line(text),
        }
    }

    /// Adds words of somebody else whom the NPC hears, with the name before. True if there were words.
    fn add_line_of_another(&mut self, text: &str) -> bool {
        let words: Vec<&str> = text.split_whitespace().filter(|word| *word != "/").collect();
        let words = words.join(" ");
        let has_words = !words.is_empty();
        self.line.add(words, true);
        has_words
    }

    fn add_reply(&mut self, text: &str) -> bool {
        if text.is_empty() {
            return false;
        }
        self.begin_reply(text);
        self.finish_begun_reply();
        true
    }

    /// Takes the last reply up again if no line follows: its calls of tools came as a message of their own.
    fn reopen_last_reply(&mut self) {
        if self.line.is_empty()
            && !self.calls_tools
            && let Some(last_turn) = self.turns.pop()
        {
            self.line = HeardLine::from_player(last_turn.player_text);
            self.begun_reply = last_turn.reply_text;
        }
        self.calls_tools = true;
    }

    /// Adds words to a reply that is not complete. True if there were words.
    fn begin_reply(&mut self, text: &str) -> bool {
        if !text.is_empty() {
            if !self.begun_reply.is_empty() {
                self.begun_reply.push_str("\n\n");
            }
            self.begun_reply.push_str(text);
        }
        !text.is_empty()
    }

    /// Makes the words of a begun reply a turn.
    fn finish_begun_reply(&mut self) {
        self.calls_tools = false;
        let reply_text = std::mem::take(&mut self.begun_reply);
        if !reply_text.is_empty() {
            self.turns.push(TranscriptTurn {
                player_text: std::mem::take(&mut self.line).join(),
                reply_text,
            });
        }
    }

    /// Returns what the request asks for, by the system messages after the last spoken one.
    fn end_with(&mut self, trailing: &[String]) -> TranscriptEnd {
        if self.calls_tools {
            return TranscriptEnd::Line(self.line.join());
        }
        let goes_on = trailing.iter().any(|text| asks_to_go_on(text));
        if goes_on && (self.line.is_empty() || self.line.is_only(SILENT_LINE)) {
            self.line = HeardLine::default();
            return TranscriptEnd::Reply;
        }
        if !self.line.is_empty() {
            return TranscriptEnd::Line(self.line.join());
        }
        let Some(last_turn) = self.turns.last() else {
            return TranscriptEnd::Line(String::new());
        };
        let last_reply = SpokenText::new(&last_turn.reply_text);
        if trailing.is_empty() || trailing.iter().any(|text| last_reply.is_quoted_in(text)) {
            TranscriptEnd::Reply
        } else {
            TranscriptEnd::Line(String::new())
        }
    }
}

/// Takes the words out of `<Mira's Message>…</Mira's Message>`, in which programs put lines of other members of a group.
/// `None`: the text is a line of the user.
fn unwrap_speech(text: &str) -> Option<String> {
    let (mark, rest) = text.strip_prefix('<')?.split_once("'s Message>")?;
    let words = rest.strip_suffix(&format!("</{mark}'s Message>"))?.trim();
    Some(if mark.starts_with("Unknown") {
        words.to_owned()
    } else {
        format!("{mark}: {words}")
    })
}

/// Converts a message to the form of the model port.
pub fn to_chat_message(message: &InputMessage) -> ChatMessage {
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

/// The line and the reply of a turn as messages, without empty ones.
pub fn messages_of_turn(turn: &BufferedTurn) -> impl Iterator<Item = ChatMessage> {
    let lines = [
        (ChatRole::User, &turn.player_text),
        (ChatRole::Assistant, &turn.reply_text),
    ];
    let lines = lines.into_iter().filter(|(_, text)| !text.is_empty());
    lines.map(|(role, text)| ChatMessage::new(role, text.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openai::nudges::named_speaker;
    use InputRole::{Assistant, System, Tool, User};

    fn message(role: InputRole, text: &str) -> InputMessage {
        InputMessage {
            role,
            text: text.to_owned(),
            name: None,
            calls_tools: false,
            as_sent: None,
        }
    }

    fn sort(messages: &[(InputRole, &str)], speaker: Option<&str>) -> SortedMessages {
        let messages: Vec<_> = messages.iter().map(|(role, text)| message(*role, text)).collect();
        sort_messages(&messages, speaker)
    }

    fn texts(sorted_messages: &SortedMessages) -> Vec<(&str, &str)> {
        let turns = sorted_messages.transcript.turns.iter();
        turns
            .map(|turn| (turn.player_text.as_str(), turn.reply_text.as_str()))
            .collect()
    }

    #[test]
    fn talk_begins_with_the_first_spoken_message() {
        let example = InputMessage {
            name: Some("example_user".to_owned()),
            ..message(User, "Buy herbs?")
        };
        let sorted_messages = sort_messages(
            &[
                message(System, "You are Mira."),
                example,
                message(Assistant, "Welcome."),
                message(User, "Hi"),
                message(User, "Anybody here?"),
                message(Assistant, "Yes."),
                message(System, "It rains."),
                message(User, " Good. "),
            ],
            None,
        );
        assert_eq!(sorted_messages.head.len(), 2);
        assert_eq!(
            texts(&sorted_messages),
            [("", "Welcome."), ("Hi\n\nAnybody here?", "Yes.")]
        );
        assert_eq!(sorted_messages.transcript.end, TranscriptEnd::Line("Good.".to_owned()));
        assert_eq!(
            (sorted_messages.notes, sorted_messages.trailing.len()),
            (vec!["It rains.".to_owned()], 0)
        );
        let of_turns: Vec<_> = sorted_messages.talk.iter().map(|(turn, _)| *turn).collect();
        assert_eq!(of_turns, [0, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn lone_system_message_asks_the_npc_to_speak_first() {
        let sorted_messages = sort(&[(System, "Be kind.")], None);
        assert_eq!(
            (sorted_messages.head.len(), sorted_messages.transcript.turns.len()),
            (1, 0)
        );
        assert_eq!(sorted_messages.transcript.end, TranscriptEnd::Line(String::new()));
    }

    #[test]
    fn last_reply_goes_on_by_itself_by_a_quote_or_by_a_mark() {
        for trailing in [
            vec![],
            vec![(System, "Keep it short."), (System, "Go on after: Well,  yes.")],
            vec![(User, "*says nothing*"), (System, "Lore. [Continue the last response]")],
            vec![
                (
                    System,
                    "[Continue your last message without repeating its original content.]",
                ),
                (System, "Keep it short."),
            ],
        ] {
            let talk = [&[(User, "Hi"), (Assistant, "Well, yes.")][..], &trailing].concat();
            let sorted_messages = sort(&talk, None);
            assert_eq!(sorted_messages.transcript.end, TranscriptEnd::Reply, "{trailing:?}");
            assert_eq!(texts(&sorted_messages), [("Hi", "Well, yes.")]);
        }
        let nudge = "[Continue your last message without repeating its original content.]";
        let talk = [(User, "Hi"), (Assistant, "Well,"), (System, nudge), (System, "Rain.")];
        let noted = sort(&talk, None);
        assert_eq!((noted.notes, noted.talk.len()), (vec!["Rain.".to_owned()], 3));
        let prefilled = sort(&[(User, "Hi"), (System, "Note."), (Assistant, "Well,")], None);
        assert_eq!(prefilled.transcript.end, TranscriptEnd::Reply);
        let later = sort(
            &[
                (User, "Hi"),
                (Assistant, "Well,"),
                (User, "*says nothing*yes."),
                (User, "So?"),
            ],
            None,
        );
        assert_eq!(texts(&later), [("Hi", "Well, yes.")]);
    }

    #[test]
    fn reply_with_other_system_messages_after_it_may_be_an_aside() {
        let sorted_messages = sort(
            &[(User, "Hi"), (Assistant, "Yes."), (System, "Summarize the talk.")],
            None,
        );
        assert_eq!(sorted_messages.transcript.end, TranscriptEnd::Line(String::new()));
        assert_eq!(sorted_messages.trailing, ["Summarize the talk."]);
    }

    #[test]
    fn group_member_hears_the_others() {
        let nudge = "[Write the next reply only as Bran.]";
        let talk = [(User, "Hi all"), (Assistant, "Mira: Good day."), (System, nudge)];
        let messages: Vec<_> = talk.iter().map(|(role, text)| message(*role, text)).collect();
        assert_eq!(named_speaker(&messages), Some("Bran"));
        let sorted_messages = sort(&talk, Some("Bran"));
        assert_eq!(
            sorted_messages.transcript.end,
            TranscriptEnd::Line("Hi all / Mira: Good day. /".to_owned())
        );
        let again = [
            &talk[..2],
            &[(Assistant, "Bran: Hm."), (User, "Well?"), (System, nudge)],
        ]
        .concat();
        assert_eq!(
            texts(&sort(&again, Some("Bran"))),
            [("Hi all / Mira: Good day. /", "Hm.")]
        );
        let wrapped = sort(
            &[(User, "<Mira's Message>\nGood day.\n</Mira's Message>")],
            Some("Bran"),
        );
        assert_eq!(
            wrapped.transcript.end,
            TranscriptEnd::Line("Mira: Good day. /".to_owned())
        );
    }

    #[test]
    fn words_of_another_end_where_the_players_begin() {
        let talk = [
            (User, "Ann: Hello."),
            (User, "Ann: Both of you."),
            (Assistant, "Tom: Geese are\n\nweather / with teeth."),
            (User, "Ann: Mira, what am I afraid of?"),
            (System, "[Write the next reply only as Mira.]"),
        ];
        let line = "Hello.\n\nBoth of you. / Tom: Geese are weather with teeth. / Mira, what am I afraid of?";
        let sorted_messages = sort(&talk, Some("Mira"));
        assert_eq!(sorted_messages.transcript.end, TranscriptEnd::Line(line.to_owned()));
        let later = [&talk[..4], &[(Assistant, "Mira: Geese."), (User, "Ann: Ha.")]].concat();
        assert_eq!(texts(&sort(&later, Some("Mira"))), [(line, "Geese.")]);
    }

    #[test]
    fn names_before_lines_are_no_part_of_them() {
        let talk = [
            (Assistant, "Mira: Herbs?"),
            (User, "Ann: Yes."),
            (Assistant, "Mira: Here."),
            (User, "Ann: Thanks."),
        ];
        let sorted_messages = sort(&talk, Some("Mira"));
        assert_eq!(texts(&sorted_messages), [("", "Herbs?"), ("Yes.", "Here.")]);
        assert_eq!(
            sorted_messages.transcript.end,
            TranscriptEnd::Line("Thanks.".to_owned())
        );
        let first = sort(&[(System, "Mira talks with Ann."), (User, "Ann: Yes.")], Some("Mira"));
        assert_eq!(first.transcript.end, TranscriptEnd::Line("Yes.".to_owned()));
        let note = sort(&[(System, "Mira."), (User, "Note: closed.")], Some("Mira"));
        assert_eq!(note.transcript.end, TranscriptEnd::Line("Note: closed.".to_owned()));
        let unnamed = sort(&[(Assistant, "Note: closed."), (User, "Oh.")], Some("Mira"));
        assert_eq!(texts(&unnamed), [("", "Note: closed.")]);
    }

    fn calling(text: &str) -> InputMessage {
        InputMessage {
            calls_tools: true,
            ..message(Assistant, text)
        }
    }

    fn begun(sorted_messages: &SortedMessages) -> Option<(&str, usize)> {
        let tools = sorted_messages.tools.as_ref()?;
        Some((&tools.begun_reply, tools.messages.len()))
    }

    #[test]
    fn words_around_tool_calls_are_one_reply() {
        let mut talk = vec![
            message(User, "Rain?"),
            calling("Let me look."),
            message(Tool, "clouds"),
            calling(""),
            message(Tool, "drops"),
        ];
        let unfinished = sort_messages(&talk, None);
        assert_eq!(unfinished.transcript.end, TranscriptEnd::Line("Rain?".to_owned()));
        assert_eq!(begun(&unfinished), Some(("Let me look.", 4)));
        assert!(unfinished.transcript.turns.is_empty());
        let of_turns: Vec<_> = unfinished.talk.iter().map(|(turn, _)| *turn).collect();
        assert_eq!(of_turns, [0; 5]);

        talk.push(message(Assistant, "Yes."));
        let answered = sort_messages(&talk, None);
        assert_eq!(texts(&answered), [("Rain?", "Let me look.\n\nYes.")]);
        assert_eq!(
            (begun(&answered), &answered.transcript.end),
            (None, &TranscriptEnd::Reply)
        );

        talk.push(message(User, "Oh."));
        let next = sort_messages(&talk, None);
        assert_eq!(texts(&next), [("Rain?", "Let me look.\n\nYes.")]);
        assert_eq!(next.transcript.end, TranscriptEnd::Line("Oh.".to_owned()));
        assert_eq!(next.talk.last().map(|(turn, _)| *turn), Some(1));
    }

    #[test]
    fn line_ends_a_reply_that_called_tools() {
        let with_words = sort_messages(
            &[message(User, "Rain?"), calling("Let me look."), message(User, "Well?")],
            None,
        );
        assert_eq!(texts(&with_words), [("Rain?", "Let me look.")]);
        assert_eq!(begun(&with_words), None);
        let of_turns: Vec<_> = with_words.talk.iter().map(|(turn, _)| *turn).collect();
        assert_eq!(of_turns, [0, 0, 1]);
        let without = sort_messages(&[message(User, "Rain?"), calling(""), message(User, "Well?")], None);
        assert_eq!(without.transcript.end, TranscriptEnd::Line("Rain?\n\nWell?".to_owned()));
        assert_eq!((begun(&without), texts(&without).len()), (None, 0));
    }

    #[test]
    fn calls_in_a_message_of_their_own_belong_to_the_reply_before() {
        let talk = [
            message(User, "Rain?"),
            message(Assistant, "Let me look."),
            calling(""),
            message(Tool, "drops"),
        ];
        let sorted_messages = sort_messages(&talk, None);
        assert_eq!(sorted_messages.transcript.end, TranscriptEnd::Line("Rain?".to_owned()));
        assert_eq!(
            (begun(&sorted_messages), texts(&sorted_messages).len()),
            (Some(("Let me look.", 3)), 0)
        );
    }

    #[test]
    fn reply_without_a_word_is_no_reply() {
        let sorted_messages = sort(&[(User, "Hi"), (Assistant, "..."), (User, "Hello?")], None);
        assert_eq!(
            sorted_messages.transcript.end,
            TranscriptEnd::Line("Hi\n\nHello?".to_owned())
        );
    }
}
