//! The messages of clients: flat objects without unknown fields. The server reads each message in two passes (type,
//! then fields), to build no tree of values for a line.

use std::borrow::Cow;

use garde::Validate;
use serde::{Deserialize, de::IgnoredAny};
use utoipa::ToSchema;

use crate::{
    errors::{Code, Problem},
    validate,
};
use colloquy_actors::OnBusy;
use colloquy_core::ids::{ActionId, DialogueId, NpcId, PlayerId, WorldId};
use colloquy_ports::ledger::dialogues::Playback;

/// The fields of every message.
#[derive(Debug, Deserialize)]
pub struct Envelope<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub event_id: Option<Cow<'a, str>>,
}

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident = $kind:literal $(in $dialogue:ident)? {
        $($(#[$field:meta])* $member:ident : $type:ty,)*
    })+) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Deserialize, Validate, ToSchema)]
            #[garde(allow_unvalidated)]
            #[serde(deny_unknown_fields)]
            pub struct $name {
                #[serde(rename = "type")]
                #[schema(value_type = String)]
                #[allow(dead_code)]
                kind: IgnoredAny,
                /// The server repeats this id as `re` in the results of this message. At most 128 characters.
                #[serde(default, rename = "event_id")]
                #[schema(value_type = Option<String>)]
                #[allow(dead_code)]
                event_id: Option<IgnoredAny>,
                $($(#[$field])* pub $member: $type,)*
            }
        )+
        /// A message of a client.
        #[derive(Debug)]
        pub enum ClientMessage {
            $($name($name),)+
        }
        impl ClientMessage {
            /// Parses a message of the type `kind`.
            ///
            /// # Errors
            /// An unknown type, or every fault of the fields.
            pub fn parse(kind: &str, text: &str) -> Result<Self, Problem> {
                match kind {
                    $($kind => validate::read_json(text.as_bytes()).map(Self::$name),)+
                    _ => Err(Problem::new(Code::UnknownType, "there is no such message type").with_param("type")),
                }
            }
            /// Returns the dialogue of the message, to which an error belongs.
            pub fn dialogue_id(&self) -> Option<DialogueId> {
                match self {
                    $($(Self::$name(message) => Some(message.$dialogue),)?)+
                    _ => None,
                }
            }
        }
        /// Lists every client message: type and schema.
        pub fn message_schemas() -> Vec<super::message_schema::MessageSchema> {
            vec![$(super::message_schema::MessageSchema::for_type::<$name>($kind),)+]
        }
        /// The type as a metric label, from a fixed set, for all client input.
        pub fn metric_label(kind: &str) -> &'static str {
            match kind {
                $($kind => $kind,)+
                _ => "unknown",
            }
        }
    };
}

messages! {
    /// Opens a session. The answer is `session.created`.
    SessionCreate = "session.create" {
        // Optional, so that one error names all missing fields.
        #[schema(value_type = String, required = true, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
        world_id: Option<WorldId>,
        /// The NPC of the session, if there is only one.
        #[schema(value_type = Option<String>, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
        npc_id: Option<NpcId>,
        /// The NPCs of a session with several NPCs, in place of `npc_id`.
        #[serde(default)]
        #[garde(length(max = 8))]
        #[schema(value_type = Vec<String>, max_items = 8)]
        npc_ids: Vec<NpcId>,
        /// A player's token may omit this field; the token's player is used.
        #[schema(value_type = Option<String>, pattern = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
        player_id: Option<PlayerId>,
        /// NPCs that overhear the session. Not for players.
        #[serde(default)]
        #[garde(length(max = 16))]
        #[schema(value_type = Vec<String>, max_items = 16)]
        witnesses: Vec<NpcId>,
        /// `ack`: NPCs learn from a turn only after `reply.played`, the next line, or a while.
        #[serde(default)]
        playback: Playback,
        /// The NPC speaks first: after `session.created` come the events of a turn without a player's line. On the
        /// first meeting with a player, the NPC says its `persona.greeting`. Without a `persona.greeting`, and at later
        /// meetings unless `settings.greeting` is `always`, the model writes the greeting.
        #[serde(default)]
        greeting: bool,
        /// Optional events to receive. Not for players.
        #[serde(default)]
        include: Vec<Include>,
    }
    /// Resumes a session. The server sends the events after `last_seq`, then the text so far of a running reply, then
    /// `session.resumed`. The text so far is one `reply.delta` from offset 0. With `resume_token`, this socket takes
    /// over the session. An older socket gets the error `replaced`, loses the session, and closes with 4409 if no other
    /// session is open there. Without `resume_token`, no socket is replaced.
    SessionResume = "session.resume" in session_id {
        #[schema(value_type = String)]
        session_id: DialogueId,
        /// The server checks the token if it is given.
        #[garde(length(max = 256))]
        resume_token: Option<String>,
        last_seq: Option<u64>,
        /// Optional events to receive. Not for players.
        #[serde(default)]
        include: Vec<Include>,
    }
    /// A line of the player.
    PlayerSay = "player.say" in session_id {
        #[schema(value_type = String)]
        session_id: DialogueId,
        text: String,
        /// The NPC that answers, in a session with several NPCs. Unset: the living NPC named in the line, otherwise
        /// the last speaker, or another living NPC if that one is dead.
        #[schema(value_type = Option<String>)]
        to: Option<NpcId>,
        /// Makes a retry safe: the same key is the same turn.
        #[garde(length(chars, min = 1, max = 128))]
        #[schema(min_length = 1, max_length = 128)]
        key: Option<String>,
        /// `interrupt` cuts the running reply at its current position and says the line in its place. The line is
        /// accepted even if the queue is full for other lines. Lines that wait are said before this line.
        #[serde(default)]
        on_busy: OnBusy,
    }
    /// Cuts a reply where the player stopped hearing it. The results depend on the turn:
    ///
    /// - The running turn: `reply.done` with status `interrupted`, then `turn.committed`. A reply cut before its first
    ///   character makes no turn; an `error` with code `turn_cut` follows.
    /// - An earlier turn: `dialogue.rewound`. All later turns are taken back.
    ///
    /// With an `event_id`, the answer carries the id as `re`. A repeated interrupt or key gets an answer too:
    /// `dialogue.rewound` again, or `interrupt.done`.
    PlayerInterrupt = "player.interrupt" in session_id {
        #[schema(value_type = String)]
        session_id: DialogueId,
        /// The turn with the reply to cut; unset: the running turn.
        #[garde(inner(range(min = 1)))]
        #[schema(minimum = 1)]
        turn: Option<u32>,
        /// The heard part in Unicode scalar values; unset: all text that was sent.
        heard_chars: Option<usize>,
        /// The heard part in UTF-16 code units, as C# and JavaScript count. Not together with `heard_chars`.
        heard_utf16: Option<usize>,
        /// Makes a retry safe: no turn is taken back twice.
        #[garde(length(chars, min = 1, max = 128))]
        #[schema(min_length = 1, max_length = 128)]
        key: Option<String>,
        /// The last turn that the client knows; `stale_head` if the head is another turn.
        if_head: Option<u32>,
    }
    /// Takes the last turn back and answers its line again: `dialogue.rewound`, then the events of the new turn.
    PlayerRegenerate = "player.regenerate" in session_id {
        #[schema(value_type = String)]
        session_id: DialogueId,
        /// Makes a retry safe; the new turn has this key.
        #[garde(length(chars, min = 1, max = 128))]
        #[schema(min_length = 1, max_length = 128)]
        key: Option<String>,
        /// The last turn that the client knows; `stale_head` if the head is another turn.
        if_head: Option<u32>,
    }
    /// Resumes a reply that was cut a moment ago. A reply that was complete before the cut stands again, named in
    /// `dialogue.rewound`. A reply that was cut while running is continued: `dialogue.rewound` takes the reply back.
    /// Then the reply comes again, with all earlier text and the rest.
    PlayerResume = "player.resume" in session_id {
        #[schema(value_type = String)]
        session_id: DialogueId,
        /// Makes a retry safe: the same key gets the same result.
        #[garde(length(chars, min = 1, max = 128))]
        #[schema(min_length = 1, max_length = 128)]
        key: Option<String>,
    }
    /// The client has played a reply to its end. In a session with `playback: "ack"`, NPCs learn from the reply from
    /// now on.
    ReplyPlayed = "reply.played" in session_id {
        #[schema(value_type = String)]
        session_id: DialogueId,
        turn: u32,
    }
    /// Ends a session. `session.closed` follows.
    SessionClose = "session.close" in session_id {
        #[schema(value_type = String)]
        session_id: DialogueId,
    }
    /// Watches an NPC conversation: `npc_conversation.created` shows its state, and its events follow. A player may
    /// watch a conversation only with access to it. A self-paced conversation that a restart stopped continues, except
    /// for a viewer. A viewer gets events after another caller has resumed the conversation.
    ConversationWatch = "npc_conversation.watch" in conversation_id {
        #[schema(value_type = String)]
        conversation_id: DialogueId,
        /// The events after this sequence number are sent again first.
        last_seq: Option<u64>,
        /// Optional events to receive. Not for players.
        #[serde(default)]
        include: Vec<Include>,
    }
    /// Stops watching a conversation.
    ConversationUnwatch = "npc_conversation.unwatch" in conversation_id {
        #[schema(value_type = String)]
        conversation_id: DialogueId,
    }
    /// Cuts the running line, or rewinds to an earlier line, and pauses the conversation. A rewind takes later lines
    /// back and sends `dialogue.rewound`. With `text`, the player joins at once: `session.created` follows, and the
    /// line is the first turn of that session. With an `event_id`, the answer carries the id as `re`. A repeated
    /// interrupt or key gets an answer too: `dialogue.rewound` again, or `interrupt.done`.
    ConversationInterrupt = "npc_conversation.interrupt" in conversation_id {
        #[schema(value_type = String)]
        conversation_id: DialogueId,
        /// The last line that is to stand; unset: the running line. To take all lines back, name line 1 with
        /// `heard_chars` 0.
        #[garde(inner(range(min = 1)))]
        #[schema(minimum = 1)]
        turn: Option<u32>,
        /// The heard part in Unicode scalar values; unset: all text that was sent.
        heard_chars: Option<usize>,
        /// The heard part in UTF-16 code units, as C# and JavaScript count. Only while watching.
        heard_utf16: Option<usize>,
        /// Makes a retry safe: no line is taken back twice. With `text`, a retry gets the same session and turn again.
        /// A refused message changes nothing.
        #[garde(length(chars, min = 1, max = 128))]
        #[schema(min_length = 1, max_length = 128)]
        key: Option<String>,
        /// The last line that the client knows; `stale_head` if the head is another line.
        if_head: Option<u32>,
        /// The player's line.
        text: Option<String>,
        /// The player who joins with `text`. A player's token may omit this field; the token's player is used.
        #[schema(value_type = Option<String>, pattern = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
        player_id: Option<PlayerId>,
    }
    /// Watches a world. The answer is `world.watched`; then each change comes as `world.changed`, each action as
    /// `action.requested`, and each undone action as `action.undone`. Not for players.
    WorldWatch = "world.watch" {
        #[schema(value_type = String, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
        world_id: WorldId,
        /// Actions that the client has seen and not settled, after a lost connection. Those that were undone meanwhile
        /// follow as `action.undone`. Open actions that are not listed follow as `action.requested`. Unknown ids are
        /// ignored.
        #[garde(length(max = 100))]
        #[schema(value_type = Vec<String>, max_items = 100)]
        #[serde(default)]
        actions: Vec<ActionId>,
    }
    /// Stops watching a world. No answer follows.
    WorldUnwatch = "world.unwatch" {
        #[schema(value_type = String, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
        world_id: WorldId,
    }
    /// Sends a newer token before the old token expires. The answer is `auth.refreshed`.
    AuthRefresh = "auth.refresh" {
        #[garde(length(max = 8192))]
        token: String,
    }
    /// Keeps the connection alive. The answer is `pong`.
    Ping = "ping" {
        /// Returned unchanged in `pong`.
        #[schema(value_type = Option<f64>)]
        t: Option<serde_json::Number>,
    }
}

/// An optional event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
pub enum Include {
    #[serde(rename = "memory.updated")]
    Memory,
    #[serde(rename = "state.changed")]
    State,
    #[serde(rename = "scenario.unlocked")]
    Scenarios,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn protocol_examples_are_parsed() {
        let say: PlayerSay = serde_json::from_str(
            r#"{"type":"player.say","event_id":"c2","session_id":"ses_00000000000000000000000001","key":"9f","text":"hi","on_busy":"interrupt"}"#,
        )
        .unwrap();
        assert_eq!((say.text.as_str(), say.on_busy), ("hi", OnBusy::Interrupt));
        let create: SessionCreate = serde_json::from_str(
            r#"{"type":"session.create","event_id":"c1","world_id":"vale","npc_id":"ergen","player_id":"p7"}"#,
        )
        .unwrap();
        assert_eq!(create.npc_id.unwrap().as_str(), "ergen");
        let envelope: Envelope<'_> = serde_json::from_str(r#"{"event_id":"a\"b","type":"ping","t":1.5}"#).unwrap();
        assert_eq!(envelope.event_id.as_deref(), Some("a\"b"));
    }

    #[test]
    fn invalid_message_names_its_fields() {
        let text = r#"{"type":"player.say","session_id":5,"loud":true}"#;
        let problem = validate::read_json::<PlayerSay>(text.as_bytes()).unwrap_err();
        let mut params: Vec<_> = problem.errors.iter().map(|error| error.param.as_str()).collect();
        params.sort_unstable();
        assert_eq!(params, ["loud", "session_id", "text"]);
    }

    #[test]
    fn unknown_types_share_one_label() {
        assert_eq!(metric_label("player.say"), "player.say");
        assert_eq!(metric_label("whatever"), "unknown");
    }
}
