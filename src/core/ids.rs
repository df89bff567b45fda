//! Identifiers, parsed once at the edge.
//!
//! There are two families. People choose *authored* ids (`TenantId`, `WorldId`, `NpcId`, …), which match
//! `^[a-z0-9][a-z0-9_-]{0,63}$`. *Generated* ids (`FactId`, `TurnId`, …) are a prefix and a ULID (`fact_01J…`). They
//! are `Copy`, sort by creation time and are never reused.
//!
//! This module does not read the clock. A generated id is made from a time and 80 random bits of the caller (see
//! `ports::clock`).

use std::{fmt, str::FromStr, sync::Arc};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use ulid::Ulid;

/// The reason why a text is not an id. The message is safe to show to a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    #[error("{what} must match ^[a-z0-9][a-z0-9_-]{{0,63}}$")]
    Authored { what: &'static str },
    #[error("a player id is 1 to 128 characters: letters, digits and . _ : @ -, starting with a letter or digit")]
    Player,
    #[error("{what} must be `{prefix}_` followed by a 26-character ULID")]
    Generated { what: &'static str, prefix: &'static str },
}

macro_rules! serde_as_text {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                text.parse().map_err(D::Error::custom)
            }
        }
    };
}

macro_rules! authored_ids {
    ($($(#[$doc:meta])* $name:ident = $what:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The id as its author wrote it.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                if is_slug(text) { Ok(Self(text.into())) } else { Err(InvalidId::Authored { what: $what }) }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        serde_as_text!($name);
    )+};
}

authored_ids! {
    /// A studio. Tenants are fully isolated from each other.
    TenantId = "a tenant id";
    /// A game, or a save universe, of a tenant.
    WorldId = "a world id";
    /// An NPC, unique inside its world.
    NpcId = "an NPC id";
    /// An authored memory of an NPC.
    ScenarioId = "a scenario id";
    /// An entry of a world's lore.
    LoreId = "a lore id";
    /// A directive of a world.
    DirectiveId = "a directive id";
    /// A group of NPCs that may share knowledge.
    FactionId = "a faction id";
}

fn is_slug(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_first = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=64).contains(&bytes.len())
        && is_first(&bytes[0])
        && bytes.iter().all(|b| is_first(b) || matches!(b, b'_' | b'-'))
}

/// A player, named by the game's own account system.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlayerId(Arc<str>);

impl PlayerId {
    /// The id as the game wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PlayerId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let bytes = text.as_bytes();
        let is_valid = (1..=128).contains(&bytes.len())
            && bytes[0].is_ascii_alphanumeric()
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"._:@-".contains(b));
        is_valid.then(|| Self(text.into())).ok_or(InvalidId::Player)
    }
}
impl fmt::Display for PlayerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
serde_as_text!(PlayerId);

/// A generated id: a prefix that names its kind, and a ULID.
pub trait GeneratedId: Copy {
    /// Wraps a ULID made by `ports::clock::IdSource`.
    fn from_ulid(ulid: Ulid) -> Self;
}

macro_rules! generated_ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal, $what:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Ulid);

        impl $name {
            /// The text form's prefix, without the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// The 128 bits behind the text form, for dense in-memory keys.
            #[must_use]
            pub fn as_u128(self) -> u128 {
                self.0.0
            }
            /// The creation time, to the millisecond.
            #[must_use]
            pub fn made_at(self) -> chrono::DateTime<chrono::Utc> {
                // 48 bits of milliseconds are well within chrono's range.
                let ms = i64::try_from(self.0.timestamp_ms()).unwrap_or_default();
                chrono::DateTime::from_timestamp_millis(ms).unwrap_or_default()
            }
            /// The inverse of [`Self::as_u128`].
            #[must_use]
            pub fn from_u128(bits: u128) -> Self {
                Self(Ulid(bits))
            }
        }
        impl GeneratedId for $name {
            fn from_ulid(ulid: Ulid) -> Self {
                Self(ulid)
            }
        }
        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                parse_ulid(text, Self::PREFIX)
                    .map(Self)
                    .ok_or(InvalidId::Generated { what: $what, prefix: Self::PREFIX })
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0)
            }
        }
        serde_as_text!($name);
    )+};
}

generated_ids! {
    /// A turn of a dialogue. Never reused: an unsaid turn keeps its id.
    TurnId = "turn", "a turn id";
    /// A subject–predicate–object statement.
    FactId = "fact", "a fact id";
    /// A reason why a fact is not valid.
    InvalidationId = "inv", "an invalidation id";
    /// A dated digest of older turns.
    SummaryId = "sum", "a summary id";
    /// A finding of a curation pass.
    FindingId = "find", "a finding id";
    /// A curation pass over a dialogue.
    PassId = "pass", "a pass id";
    /// An insight of a curation pass.
    InsightId = "ins", "an insight id";
    /// A durable after-turn job.
    JobId = "job", "a job id";
    /// An edit made by a person over REST.
    EditId = "edit", "an edit id";
    /// An authoritative event reported by a game backend.
    EventId = "evt", "an event id";
    /// An action that an NPC asked the backend for.
    ActionId = "act", "an action id";
    /// A typed change of world state.
    StateEventId = "ste", "a state event id";
    /// A running server process.
    NodeId = "node", "a node id";
    /// A rewind: a move of a dialogue's head that makes turns unsaid, or restores them.
    RewindId = "rew", "a rewind id";
    /// A save slot of a world.
    SaveId = "save", "a save id";
    /// An entry of the audit log.
    AuditId = "aud", "an audit id";
    /// A webhook: an address of a tenant's backend that is told of events.
    WebhookId = "whk", "a webhook id";
    /// An event for webhooks. The same in all attempts, and for all webhooks of the tenant.
    MessageId = "msg", "a message id";
    /// An attempt to deliver a message.
    AttemptId = "att", "an attempt id";
}

fn parse_ulid(text: &str, prefix: &str) -> Option<Ulid> {
    let body = text.strip_prefix(prefix)?.strip_prefix('_')?;
    // `Ulid` also parses lower case. A single spelling per id keeps look-ups by text exact.
    let ulid = Ulid::from_string(body).ok()?;
    (ulid.to_string() == body).then_some(ulid)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DialogueKind {
    /// A player with one or more NPCs (`ses_…`).
    Session,
    /// NPCs with each other (`con_…`).
    NpcConversation,
}

impl DialogueKind {
    /// The prefix of the ids of such dialogues, without the underscore.
    #[must_use]
    pub const fn id_prefix(self) -> &'static str {
        match self {
            Self::Session => "ses",
            Self::NpcConversation => "con",
        }
    }
}

/// A dialogue: `ses_…` for a session, `con_…` for an NPC conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DialogueId {
    kind: DialogueKind,
    ulid: Ulid,
}

impl DialogueId {
    /// Creates the id of a dialogue of `kind` with a fresh ULID.
    #[must_use]
    pub fn new(kind: DialogueKind, ulid: Ulid) -> Self {
        Self { kind, ulid }
    }
    #[must_use]
    pub fn kind(self) -> DialogueKind {
        self.kind
    }
    /// The 128 bits behind the text form, for placement on an arbiter.
    #[must_use]
    pub fn as_u128(self) -> u128 {
        self.ulid.0
    }
    /// The id of another dialogue of the same kind and time, with the lower 80 of `bits`.
    #[must_use]
    pub fn with_random_bits(self, bits: u128) -> Self {
        let random = (1 << Ulid::RAND_BITS) - 1;
        let ulid = Ulid(self.ulid.0 & !random | bits & random);
        debug_assert!(
            ulid.timestamp_ms() == self.ulid.timestamp_ms(),
            "other random bits leave the time of an id"
        );
        Self { ulid, ..self }
    }
    /// The time when the dialogue was made, in milliseconds.
    #[must_use]
    pub fn created_at(self) -> DateTime<Utc> {
        let milliseconds = i64::try_from(self.ulid.timestamp_ms()).unwrap_or(i64::MAX);
        DateTime::from_timestamp_millis(milliseconds).unwrap_or(DateTime::UNIX_EPOCH)
    }
}
impl FromStr for DialogueId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let kinds = [DialogueKind::Session, DialogueKind::NpcConversation];
        let parsed = kinds.map(|kind| Some(Self::new(kind, parse_ulid(text, kind.id_prefix())?)));
        parsed.into_iter().flatten().next().ok_or(InvalidId::Generated {
            what: "a dialogue id",
            prefix: "ses_` or `con",
        })
    }
}
impl fmt::Display for DialogueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.kind.id_prefix(), self.ulid)
    }
}
serde_as_text!(DialogueId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authored_ids_follow_the_documented_pattern() {
        for good in ["vale", "a", "0-x_y", &"a".repeat(64)] {
            assert!(good.parse::<WorldId>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "_a", "Vale", "a b", "포도", &"a".repeat(65)] {
            assert!(bad.parse::<WorldId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn generated_ids_round_trip_and_have_one_spelling() {
        let id = FactId::from_u128(0x0190_0000_0000_0000_0000_0000_0000_002a);
        let text = id.to_string();
        assert!(text.starts_with("fact_"));
        assert_eq!(text.parse::<FactId>(), Ok(id));
        assert!(text.to_lowercase().parse::<FactId>().is_err());
        assert!(text.replace("fact_", "turn_").parse::<FactId>().is_err());
    }

    #[test]
    fn dialogue_id_carries_its_kind() {
        let id = DialogueId::new(DialogueKind::NpcConversation, Ulid(7));
        assert_eq!(id.to_string().parse::<DialogueId>(), Ok(id));
        assert!(id.to_string().starts_with("con_"));
        let refused = "con_7".parse::<DialogueId>().map_err(|error| error.to_string());
        let why = "a dialogue id must be `ses_` or `con_` followed by a 26-character ULID";
        assert_eq!(refused, Err(why.to_owned()));
    }
}
