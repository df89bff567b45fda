//! What clients send. Flat, without unknown fields; read in two passes (the type, then its fields)
//! so that no tree of values is ever built for a line.

use std::borrow::Cow;

use garde::Validate;
use serde::{Deserialize, de::IgnoredAny};
use utoipa::ToSchema;

use crate::{
    actors::OnBusy,
    ids::{DialogueId, NpcId, PlayerId, WorldId},
    ports::ledger::dialogues::Playback,
};

/// What every message has.
#[derive(Debug, Deserialize)]
pub struct Envelope<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub event_id: Option<Cow<'a, str>>,
}

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident = $kind:literal { $($(#[$field:meta])* $member:ident : $type:ty,)* })+) => {
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
                /// Echoed as `re` in what this message causes. At most 128 characters.
                #[serde(default, rename = "event_id")]
                #[schema(value_type = Option<String>)]
                #[allow(dead_code)]
                event_id: Option<IgnoredAny>,
                $($(#[$field])* pub $member: $type,)*
            }
        )+
        /// Every message a client may send: its type and its schema.
        pub fn message_schemas() -> Vec<super::events::MessageSchema> {
            vec![$(super::events::MessageSchema::for_type::<$name>($kind),)+]
        }
        /// Reads a message of this type as a socket does; `None`: there is no such type.
        #[cfg(any(test, feature = "fuzzing"))]
        pub(crate) fn check_message(kind: &str, text: &str) -> Option<Result<(), crate::http::errors::Problem>> {
            match kind {
                $($kind => Some(crate::http::validate::read_json::<$name>(text.as_bytes()).map(|_| ())),)+
                _ => None,
            }
        }
        /// The type as a metric label: one of a few, whatever a client sends.
        pub fn metric_label(kind: &str) -> &'static str {
            match kind {
                $($kind => $kind,)+
                _ => "unknown",
            }
        }
    };
}

messages! {
    /// Opens a session. Answered with `session.created`.
    SessionCreate = "session.create" {
        // Optional so that whoever leaves it out is told of all that is missing.
        #[serde(default)]
        #[schema(value_type = String, required = true, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
        world_id: Option<WorldId>,
        /// Who takes part, where that is one NPC.
        #[serde(default)]
        #[schema(value_type = Option<String>, pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
        npc_id: Option<NpcId>,
        /// Who takes part, where that are several; in place of `npc_id`.
        #[serde(default)]
        #[garde(length(max = 8))]
        #[schema(value_type = Vec<String>, max_items = 8)]
        npc_ids: Vec<NpcId>,
        /// A player's token may leave it out: it can only be itself.
        #[serde(default)]
        #[schema(value_type = Option<String>, pattern = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
        player_id: Option<PlayerId>,
        /// NPCs that overhear the session. Not for players.
        #[serde(default)]
        #[garde(length(max = 16))]
        #[schema(value_type = Vec<String>, max_items = 16)]
        witnesses: Vec<NpcId>,
        /// `ack`: nothing is learned from a turn before `reply.played`, the next line, or a while.
        #[serde(default)]
        playback: Playback,
        /// The NPC speaks first: after `session.created` come the events of a turn that has no line of the
        /// player's. To a player whom it meets for the first time it says its `persona.greeting`; where it has none,
        /// and later, the model is asked.
        #[serde(default)]
        greeting: bool,
        /// Optional events to get. Not for players.
        #[serde(default)]
        include: Vec<Include>,
    }
    /// Takes up a session: the events after `last_seq` come again, then what a running reply has said
    /// so far as one `reply.delta` from offset 0, then `session.resumed`. With `resume_token` this
    /// socket becomes the session's own: an older one is told `replaced` and loses the session, and
    /// is closed with 4409 if it has no other. Without it nobody is replaced.
    SessionResume = "session.resume" {
        #[schema(value_type = String)]
        session_id: DialogueId,
        /// Checked when given.
        #[serde(default)]
        #[garde(length(max = 256))]
        resume_token: Option<String>,
        #[serde(default)]
        last_seq: Option<u64>,
        /// Optional events to get. Not for players.
        #[serde(default)]
        include: Vec<Include>,
    }
    /// A line of the player.
    PlayerSay = "player.say" {
        #[schema(value_type = String)]
        session_id: DialogueId,
        text: String,
        /// Who is to answer, in a session with several NPCs; unset: whoever the line names, or else the
        /// one who spoke last.
        #[serde(default)]
        #[schema(value_type = Option<String>)]
        to: Option<NpcId>,
        /// Makes a retry safe: the same key is the same turn.
        #[serde(default)]
        #[garde(length(chars, min = 1, max = 128))]
        #[schema(min_length = 1, max_length = 128)]
        key: Option<String>,
        /// `interrupt` cuts the running reply where it is; the line takes its place, also where the queue
        /// is full for other lines, and lines that wait are said before it.
        #[serde(default)]
        on_busy: OnBusy,
    }
    /// Cuts a reply where it was heard. Of the running turn, `reply.done` with status `interrupted`
    /// follows, then `turn.committed`; a reply cut before its first character is no turn: an `error` with
    /// code `turn_cut` follows. Of an earlier turn `dialogue.rewound` follows, and what was said after it
    /// never happened. With an `event_id` the answer carries it as `re`, also where the interrupt was made
    /// before or a key is repeated: `dialogue.rewound` once more, or `interrupt.done`.
    PlayerInterrupt = "player.interrupt" {
        #[schema(value_type = String)]
        session_id: DialogueId,
        /// The turn whose reply is cut; unset: the running one.
        #[serde(default)]
        #[garde(inner(range(min = 1)))]
        #[schema(minimum = 1)]
        turn: Option<u32>,
        /// How much was heard, in Unicode scalar values; unset: all that was sent.
        #[serde(default)]
        heard_chars: Option<usize>,
        /// The same in UTF-16 code units, as C# and JavaScript count. Not together with `heard_chars`.
        #[serde(default)]
        heard_utf16: Option<usize>,
        /// Makes a retry safe: nothing is taken back twice.
        #[serde(default)]
        #[garde(length(chars, min = 1, max = 128))]
        #[schema(min_length = 1, max_length = 128)]
        key: Option<String>,
        /// The last turn as the client knows it; if it is another, `stale_head`.
        #[serde(default)]
        if_head: Option<u32>,
    }
    /// Takes the last turn back and answers its line anew: `dialogue.rewound`, then its events.
    PlayerRegenerate = "player.regenerate" {
        #[schema(value_type = String)]
        session_id: DialogueId,
        /// Makes a retry safe; the new turn has it.
        #[serde(default)]
        #[garde(length(chars, min = 1, max = 128))]
        #[schema(min_length = 1, max_length = 128)]
        key: Option<String>,
        /// The last turn as the client knows it; if it is another, `stale_head`.
        #[serde(default)]
        if_head: Option<u32>,
    }
    /// Takes a reply up again that was cut a moment ago. One that had been said to its end stands again:
    /// `dialogue.rewound` names it. One that was cut while it was being said is gone on with:
    /// `dialogue.rewound` takes it back, and it comes again with all that had been said of it and the rest.
    PlayerResume = "player.resume" {
        #[schema(value_type = String)]
        session_id: DialogueId,
        /// Makes a retry safe: the same key is told what it came to.
        #[serde(default)]
        #[garde(length(chars, min = 1, max = 128))]
        #[schema(min_length = 1, max_length = 128)]
        key: Option<String>,
    }
    /// The client has played a reply to its end: in a session with `playback: "ack"` it is learned from now.
    ReplyPlayed = "reply.played" {
        #[schema(value_type = String)]
        session_id: DialogueId,
        turn: u32,
    }
    /// Ends a session. `session.closed` follows.
    SessionClose = "session.close" {
        #[schema(value_type = String)]
        session_id: DialogueId,
    }
    /// Watches NPCs talk: `npc_conversation.created` tells how it stands, and its events follow. A player
    /// may watch what it was let into. A conversation that paces itself goes on, should a restart have stopped it; not for a
    /// viewer, who hears of it once somebody else has it go on.
    ConversationWatch = "npc_conversation.watch" {
        #[schema(value_type = String)]
        conversation_id: DialogueId,
        /// The events after it come again first.
        #[serde(default)]
        last_seq: Option<u64>,
        /// Optional events to get. Not for players.
        #[serde(default)]
        include: Vec<Include>,
    }
    /// Watches it no more.
    ConversationUnwatch = "npc_conversation.unwatch" {
        #[schema(value_type = String)]
        conversation_id: DialogueId,
    }
    /// Cuts the line that is being said, or goes back to an earlier one (what followed it never happened,
    /// and `dialogue.rewound` tells of it), and pauses the conversation. With `text` the player joins at once:
    /// `session.created` follows, and the line is the first turn of that session. With an `event_id` the
    /// answer carries it as `re`, also where the interrupt was made before or a key is repeated:
    /// `dialogue.rewound` once more, or `interrupt.done`.
    ConversationInterrupt = "npc_conversation.interrupt" {
        #[schema(value_type = String)]
        conversation_id: DialogueId,
        /// The last line that is to stand; unset: the one that is being said. Of the first one, nothing may have been heard.
        #[serde(default)]
        #[garde(inner(range(min = 1)))]
        #[schema(minimum = 1)]
        turn: Option<u32>,
        /// How much was heard, in Unicode scalar values; unset: all that was sent.
        #[serde(default)]
        heard_chars: Option<usize>,
        /// The same in UTF-16 code units, as C# and JavaScript count. Only while watching.
        #[serde(default)]
        heard_utf16: Option<usize>,
        /// Makes a retry safe: nothing is taken back twice, and with `text` the same session and turn are told
        /// again. A message that is refused changes nothing.
        #[serde(default)]
        #[garde(length(chars, min = 1, max = 128))]
        #[schema(min_length = 1, max_length = 128)]
        key: Option<String>,
        /// The last line as the client knows it; another answers `stale_head`.
        #[serde(default)]
        if_head: Option<u32>,
        /// What the player says.
        #[serde(default)]
        text: Option<String>,
        /// Who joins with it; a player's token may leave it out.
        #[serde(default)]
        #[schema(value_type = Option<String>, pattern = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$")]
        player_id: Option<PlayerId>,
    }
    /// A newer token, before the old one expires. Answered with `auth.refreshed`.
    AuthRefresh = "auth.refresh" {
        #[garde(length(max = 8192))]
        token: String,
    }
    /// Answered with `pong`.
    Ping = "ping" {
        /// Comes back as it is.
        #[serde(default)]
        #[schema(value_type = Option<f64>)]
        t: Option<serde_json::Number>,
    }
}

/// Messages that are reserved and not offered yet (docs/protocol.md#messages-of-clients).
pub const UNSUPPORTED_MESSAGES: [&str; 1] = ["world.watch"];

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

impl Include {
    pub(super) const ALL: [Self; 3] = [Self::Memory, Self::State, Self::Scenarios];
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::http::validate;

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
