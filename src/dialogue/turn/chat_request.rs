//! What the request of a chat program adds to a player's line.

use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tokio::sync::mpsc;

use colloquy_core::ids::TurnId;
use colloquy_memory::turn::Usage;
use colloquy_ports::llm::{ChatMessage, ChatRole, ClientFields};

use super::continuation::ReplyBeginning;

/// What the request of a chat program adds to a player's line.
#[derive(Debug, Default)]
pub struct ChatRequest {
    /// The reply, if the chat program has shown the turn before: the turn is stored as it was said, without a model.
    pub given_reply: Option<GivenReply>,
    /// Notes of the chat program about the scene, oldest first. A note is no instruction.
    pub scene_notes: Vec<String>,
    /// What the chat program asked of the reply model.
    pub client: Option<Arc<ClientFields>>,
    /// The prompt of a character that the chat program describes. `None`: the persona of the NPC counts.
    pub own_prompt: Option<Arc<OwnPrompt>>,
    /// The calls of the client's tools that belong to the line, with their results.
    pub tools: ToolExchange,
    /// Gets the pieces of tool calls as the model sends them. `None`: nobody reads the pieces.
    pub tool_calls: Option<mpsc::UnboundedSender<Vec<Value>>>,
    /// The id that the turn gets. `None`: the session makes an id.
    pub turn_id: Option<TurnId>,
    /// The last turn that the request knows. If another turn is the last one when the line would be said, the line is
    /// refused: the request was read before. `None`: the line follows any turn.
    pub if_head: Option<u32>,
    /// Set when the reply ends.
    end: OnceLock<ReplyEnd>,
}

/// A reply that was said before, and that this server did not see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenReply {
    pub text: String,
    /// True if a job shall read the turn for changes of the world's state.
    pub extract_state: bool,
}

/// The calls of the client's tools since a line, and their results. The reply of the line is not complete yet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolExchange {
    /// What the NPC said before the calls: the beginning of the reply.
    pub begun_reply: String,
    /// The calls and results, which follow the line in the prompt. Empty with an [`OwnPrompt`], which has the messages.
    pub messages: Vec<ChatMessage>,
}

/// The blank line between the words before a tool call and the words after the results.
const AFTER_TOOLS: &str = "\n\n";

impl ToolExchange {
    /// Returns the length of the reply that the client has already, in Unicode scalar values.
    #[must_use]
    pub fn known_chars(&self) -> usize {
        match self.begun_reply.chars().count() {
            0 => 0,
            begun => begun + AFTER_TOOLS.len(),
        }
    }

    /// Returns the beginning of the reply, for the text that follows. `None`: the reply has not begun.
    pub(super) fn beginning(&self) -> Option<ReplyBeginning<'_>> {
        (!self.begun_reply.is_empty()).then(|| ReplyBeginning::with_gap(&self.begun_reply, AFTER_TOOLS))
    }
}

/// A reply that called tools of the client. The reply is no turn: the turn comes with the results.
#[derive(Debug, Clone, PartialEq)]
pub struct CalledTools {
    /// The reply up to the calls, with the part that was said before earlier calls.
    pub text: String,
    /// The pieces of the calls, as they came.
    pub pieces: Vec<Value>,
    pub usage: Usage,
    /// True if the answer ended at a limit, so the last call may be incomplete.
    pub at_limit: bool,
}

/// The messages of a chat program around a line, as they came.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnPrompt {
    /// The messages before the first line of the talk: the character, its world, the rules.
    pub head: Vec<ChatMessage>,
    /// The messages of earlier turns, each with the number of its turn.
    pub history: Vec<(u32, ChatMessage)>,
    /// The answered line, with the notes around it.
    pub last: Vec<ChatMessage>,
}

impl OwnPrompt {
    /// True if the messages have a line to answer.
    pub(crate) fn has_line(&self) -> bool {
        self.last.iter().any(|message| message.role == ChatRole::User)
    }

    /// Returns the last messages, with `context` before the last line among them.
    pub(crate) fn last_after(&self, context: &str) -> Vec<ChatMessage> {
        let mut last = self.last.clone();
        let line = last.iter().rposition(|message| message.role == ChatRole::User);
        match line {
            Some(index) if !context.is_empty() && last[index].as_sent.is_none() => {
                last[index].content = format!("{context}\n\n{}", last[index].content);
            }
            // A message in its own form stays as it is.
            Some(index) if !context.is_empty() => last.insert(index, ChatMessage::new(ChatRole::User, context)),
            _ => {}
        }
        last
    }
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyEnd {
    /// The model had finished.
    Finished,
    /// The reply reached a limit of its length.
    AtLimit,
}

impl ReplyEnd {
    pub(super) const fn of_limit(at_limit: bool) -> Self {
        if at_limit { Self::AtLimit } else { Self::Finished }
    }
}

impl ChatRequest {
    /// The request for a turn that was said before.
    #[must_use]
    pub fn with_given_reply(text: String, extract_state: bool) -> Self {
        Self {
            given_reply: Some(GivenReply { text, extract_state }),
            ..Self::default()
        }
    }

    /// The request for a reply of the model.
    #[must_use]
    pub fn for_reply(scene_notes: Vec<String>, client: Arc<ClientFields>, own_prompt: Option<Arc<OwnPrompt>>) -> Self {
        Self {
            scene_notes,
            client: Some(client),
            own_prompt,
            ..Self::default()
        }
    }

    /// Continues a reply after calls of tools.
    #[must_use]
    pub fn after_tools(self, tools: ToolExchange) -> Self {
        Self { tools, ..self }
    }

    /// Sends the pieces of tool calls to `reader`.
    #[must_use]
    pub fn with_tool_calls_for(self, reader: Option<mpsc::UnboundedSender<Vec<Value>>>) -> Self {
        Self {
            tool_calls: reader,
            ..self
        }
    }

    /// Names the id of the turn before the turn exists. The id must be new.
    #[must_use]
    pub fn with_turn_id(self, id: TurnId) -> Self {
        Self {
            turn_id: Some(id),
            ..self
        }
    }

    /// Refuses the line unless turn `head` is the last one.
    #[must_use]
    pub fn with_if_head(self, head: u32) -> Self {
        Self {
            if_head: Some(head),
            ..self
        }
    }

    /// The request for a line with notes about the scene.
    #[must_use]
    pub fn with_scene_notes(scene_notes: Vec<String>) -> Self {
        Self {
            scene_notes,
            ..Self::default()
        }
    }

    /// Returns why the reply ended; `None`: the reply has not ended, or was cut.
    #[must_use]
    pub fn reply_end(&self) -> Option<ReplyEnd> {
        self.end.get().copied()
    }

    pub(super) fn set_reply_end(&self, end: ReplyEnd) {
        // A reply ends once. A line that is said again after a lost race keeps the first end.
        let _ = self.end.set(end);
    }
}

impl PartialEq for ChatRequest {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}
