//! The talk that a chat program shows, as its requests tell.

use std::mem;

use serde::Deserialize;
use serde_json::Value;

/// What RisuAI sends for a player who says nothing. Words after it are the end of the reply before.
const SILENT_LINE: &str = "*says nothing*";

/// What a recorded request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Turn,
    Variant,
    Continue,
    Unprompted,
    Aside,
    Models,
    Preflight,
}

/// A player's line and the NPC's reply, with single spaces.
pub type ShownTurn = (String, String);

/// The talk that a chat program shows: finished turns, and a line without a reply.
#[derive(Default)]
pub struct ShownTalk {
    turns: Vec<ShownTurn>,
    line: String,
}

pub fn normalized(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn append(text: &mut String, more: &str) {
    *text = normalized(&format!("{text} {more}"));
}

/// Returns the spoken messages, without the examples of the character.
pub fn spoken_messages(body: &Value) -> impl Iterator<Item = (&str, &str)> {
    let messages = body["messages"].as_array().unwrap().iter();
    let spoken = messages.filter(|message| {
        !message["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("example_"))
    });
    spoken
        .map(|message| (message["role"].as_str().unwrap(), message["content"].as_str().unwrap()))
        .filter(|(role, _)| *role != "system")
}

impl ShownTalk {
    /// Reads the messages of a request. The lines of the player between two replies are one line.
    pub fn from_body(body: &Value) -> Self {
        let mut talk = Self::default();
        for (role, text) in spoken_messages(body) {
            let text = normalized(text);
            if role == "user" {
                talk.add_line(&text);
            } else if text != "..." {
                // Three dots stand for a reply that was stopped before its first word.
                talk.turns.push((mem::take(&mut talk.line), text));
            }
        }
        talk
    }

    fn add_line(&mut self, text: &str) {
        let rest = text.strip_prefix(SILENT_LINE).unwrap_or_default();
        match self
            .turns
            .last_mut()
            .filter(|_| self.line.is_empty() && !rest.is_empty())
        {
            Some(last) => append(&mut last.1, rest),
            None => append(&mut self.line, text),
        }
    }

    /// Returns the turns with the new reply.
    pub fn with_reply(mut self, kind: Kind, reply: &str) -> Vec<ShownTurn> {
        if kind == Kind::Continue {
            append(&mut self.turns.last_mut().unwrap().1, reply);
        } else {
            self.turns.push((self.line, normalized(reply)));
        }
        self.turns
    }
}

/// True if the turns of the session are those of the program. With a cut front, the session may begin earlier.
pub fn has_turns(session: &[ShownTurn], shown: &[ShownTurn], is_cut: bool) -> bool {
    let Some(skipped) = session.len().checked_sub(shown.len()) else {
        return false;
    };
    let mut pairs = session[skipped..].iter().zip(shown).enumerate();
    (is_cut || skipped == 0)
        && pairs.all(|(at, (stored, shown))| {
            // The line of the first shown reply may be cut away.
            let is_line_cut = is_cut && at == 0 && shown.0.is_empty();
            (is_line_cut || stored.0 == shown.0) && stored.1 == shown.1
        })
}
