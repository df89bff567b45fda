//! Directives: what authors tell NPCs to do in some dialogues of a world (docs/guides/directives.md).

use std::{fmt, str::FromStr};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use utoipa::ToSchema;
use wildmatch::WildMatch;

use colloquy_core::ids::{DialogueId, DialogueKind, DirectiveId, NpcId, WorldId};

/// Most directives of one world.
pub const MAX_DIRECTIVES_PER_WORLD: u32 = 200;
/// Most patterns of one directive.
pub const MAX_KEYS: usize = 16;
/// Longest text of a directive, in characters.
pub const MAX_TEXT_CHARS: usize = 500;
/// Longest instruction or failure condition, in characters.
pub const MAX_LINE_CHARS: usize = 100;
/// Most instructions, and most failure conditions, of one directive.
pub const MAX_LINES: usize = 5;
/// Most texts of directives in one prompt.
pub const MAX_TEXTS_IN_PROMPT: usize = 3;
/// Most instructions in one prompt.
pub const MAX_INSTRUCTIONS_IN_PROMPT: usize = 5;
/// Most failure conditions of directives in one prompt.
pub const MAX_FAILURES_IN_PROMPT: usize = 10;

/// The key of an NPC in a dialogue: `world:<world>:npc:<npc>:session:<id>`, or `…:conversation:<id>` in an NPC
/// conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialogueKey {
    pub world: WorldId,
    pub npc: NpcId,
    pub dialogue: DialogueId,
}

impl fmt::Display for DialogueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = kind_name(self.dialogue.kind());
        write!(f, "world:{}:npc:{}:{kind}:{}", self.world, self.npc, self.dialogue)
    }
}

const fn kind_name(kind: DialogueKind) -> &'static str {
    match kind {
        DialogueKind::Session => "session",
        DialogueKind::NpcConversation => "conversation",
    }
}

/// The reason why a text is no [`KeyPattern`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be `world:<world>`, then `:npc:<npc>`, then `:session:<id>` or `:conversation:<id>`, with * and ? in the ids"
)]
pub struct InvalidKeyPattern;

/// Selects keys of dialogues: `world:vale:npc:guard-*`. In an id, `*` stands for any characters and `?` for one
/// character. A pattern without its last parts selects all dialogues below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern {
    /// A pattern of the world's id.
    pub world: String,
    /// A pattern of the NPC's id. `None`: every NPC.
    pub npc: Option<String>,
    /// The kind of the dialogue, and a pattern of its id. `None`: every dialogue.
    pub dialogue: Option<(DialogueKind, String)>,
}

impl KeyPattern {
    /// True if the pattern selects a dialogue of the NPC, or could select one.
    #[must_use]
    pub fn matches_npc(&self, world: &WorldId, npc: &NpcId) -> bool {
        let of_npc = |pattern: &String| WildMatch::new(pattern).matches(npc.as_str());
        self.matches_world(world) && self.npc.as_ref().is_none_or(of_npc)
    }
    /// True if the pattern could select a dialogue of the world.
    #[must_use]
    pub fn matches_world(&self, world: &WorldId) -> bool {
        WildMatch::new(&self.world).matches(world.as_str())
    }
    /// True if the pattern selects the key.
    #[must_use]
    pub fn matches_key(&self, key: &DialogueKey) -> bool {
        let of_dialogue = |(kind, pattern): &(DialogueKind, String)| {
            *kind == key.dialogue.kind() && WildMatch::new(pattern).matches(&key.dialogue.to_string())
        };
        self.matches_npc(&key.world, &key.npc) && self.dialogue.as_ref().is_none_or(of_dialogue)
    }
}

impl FromStr for KeyPattern {
    type Err = InvalidKeyPattern;
    fn from_str(text: &str) -> Result<Self, InvalidKeyPattern> {
        let is_id = |part: &&str| {
            let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'*' | b'?');
            (1..=64).contains(&part.len()) && part.bytes().all(is_allowed)
        };
        let mut parts = text.split(':');
        let mut next_pair = || match (parts.next(), parts.next()) {
            (None, _) => Ok(None),
            (Some(name), Some(id)) if is_id(&id) => Ok(Some((name, id.to_owned()))),
            _ => Err(InvalidKeyPattern),
        };
        let Some(("world", world)) = next_pair()? else {
            return Err(InvalidKeyPattern);
        };
        let npc = match next_pair()? {
            None => None,
            Some(("npc", npc)) => Some(npc),
            Some(_) => return Err(InvalidKeyPattern),
        };
        let dialogue = match next_pair()? {
            None => None,
            Some(("session", id)) => Some((DialogueKind::Session, id)),
            Some(("conversation", id)) => Some((DialogueKind::NpcConversation, id)),
            Some(_) => return Err(InvalidKeyPattern),
        };
        if next_pair()?.is_some() {
            return Err(InvalidKeyPattern);
        }
        // As ids are written: names in lower case, and after `ses_` or `con_` in upper case.
        let has_upper = |id: &String| id.bytes().any(|b| b.is_ascii_uppercase());
        let is_other_case = |id: &String| {
            let rest = id.split_once('_').map_or(id.as_str(), |(_, rest)| rest);
            id.contains('_') && rest.bytes().any(|b| b.is_ascii_lowercase())
        };
        let is_wrong = has_upper(&world)
            || npc.as_ref().is_some_and(has_upper)
            || dialogue
                .as_ref()
                .is_some_and(|(_, id): &(DialogueKind, String)| is_other_case(id));
        if is_wrong {
            return Err(InvalidKeyPattern);
        }
        Ok(Self { world, npc, dialogue })
    }
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "world:{}", self.world)?;
        if let Some(npc) = &self.npc {
            write!(f, ":npc:{npc}")?;
        }
        if let Some((kind, id)) = &self.dialogue {
            write!(f, ":{}:{id}", kind_name(*kind))?;
        }
        Ok(())
    }
}

impl Serialize for KeyPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// A directive as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = DirectiveView)]
pub struct Directive {
    #[serde(rename = "world_id")]
    #[schema(value_type = String)]
    pub world: WorldId,
    #[schema(value_type = String)]
    pub id: DirectiveId,
    /// The dialogues that the directive is for. One matching pattern is enough.
    #[schema(value_type = Vec<String>)]
    pub keys: Vec<KeyPattern>,
    /// What the NPC keeps to; may have several lines. At most three texts are in one prompt.
    pub text: String,
    /// Instructions of one line. At most five are in one prompt.
    pub instructions: Vec<String>,
    /// What makes a reply fail: each completes "A reply fails if it …". At most ten are in one prompt.
    pub fails_if: Vec<String>,
    /// Directives with a higher priority come first. Equal priorities are in the order of the ids.
    pub priority: i32,
    /// The `ETag`, without its quotes.
    pub version: u32,
    pub updated_at: DateTime<Utc>,
}

/// The parts of a directive in a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirectiveTrace {
    #[schema(value_type = String)]
    pub directive: DirectiveId,
    /// True if the prompt has the directive's text.
    pub text: bool,
    /// Instructions and failure conditions in the prompt.
    pub instructions: usize,
    pub fails_if: usize,
    /// Texts, instructions and failure conditions left out, because better directives filled the places.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The directives of one prompt, within the limits of a prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectedDirectives {
    pub texts: Vec<String>,
    pub instructions: Vec<String>,
    pub fails_if: Vec<String>,
    /// All matching directives, best first.
    pub traces: Vec<DirectiveTrace>,
}

impl SelectedDirectives {
    /// Selects from the directives of a world those for `key`, as many as a prompt may have.
    #[must_use]
    pub fn select_for(directives: &[Directive], key: &DialogueKey) -> Self {
        let is_for = |directive: &&Directive| directive.keys.iter().any(|pattern| pattern.matches_key(key));
        let mut matching: Vec<&Directive> = directives.iter().filter(is_for).collect();
        matching.sort_by_key(|directive| (std::cmp::Reverse(directive.priority), directive.id.clone()));
        let mut selected = Self::default();
        for directive in matching {
            let has_text = !directive.text.is_empty();
            let text = has_text && selected.texts.len() < MAX_TEXTS_IN_PROMPT;
            if text {
                selected.texts.push(directive.text.clone());
            }
            let instructions = append_some(
                &mut selected.instructions,
                &directive.instructions,
                MAX_INSTRUCTIONS_IN_PROMPT,
            );
            let fails_if = append_some(&mut selected.fails_if, &directive.fails_if, MAX_FAILURES_IN_PROMPT);
            let line_count = usize::from(has_text) + directive.instructions.len() + directive.fails_if.len();
            selected.traces.push(DirectiveTrace {
                directive: directive.id.clone(),
                text,
                instructions,
                fails_if,
                left_out: line_count - usize::from(text) - instructions - fails_if,
            });
        }
        selected
    }
}

/// Appends lines up to `max` lines in all. Returns the number of appended lines.
fn append_some(lines: &mut Vec<String>, new_lines: &[String], max: usize) -> usize {
    let fitting = new_lines.len().min(max.saturating_sub(lines.len()));
    lines.extend_from_slice(&new_lines[..fitting]);
    fitting
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn key(npc: &str, kind: DialogueKind) -> DialogueKey {
        DialogueKey {
            world: "vale".parse().unwrap(),
            npc: npc.parse().unwrap(),
            dialogue: DialogueId::new(kind, ulid::Ulid(7)),
        }
    }

    fn directive(id: &str, keys: &[&str]) -> Directive {
        Directive {
            world: "vale".parse().unwrap(),
            id: id.parse().unwrap(),
            keys: keys.iter().map(|key| key.parse().unwrap()).collect(),
            text: format!("Text of {id}."),
            instructions: vec![format!("Do {id}."), format!("Do {id} again.")],
            fails_if: vec![format!("forgets {id}"); 4],
            priority: 0,
            version: 1,
            updated_at: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn key_patterns_select_their_dialogues_and_all_below() {
        let guard = key("guard-north", DialogueKind::Session);
        let talk = key("guard-north", DialogueKind::NpcConversation);
        for (pattern, of_session, of_talk) in [
            ("world:vale", true, true),
            ("world:*", true, true),
            ("world:va?e:npc:guard-*", true, true),
            ("world:vale:npc:guard-*:session:*", true, false),
            ("world:vale:npc:guard-*:conversation:con_*", false, true),
            ("world:vale:npc:guard", false, false),
            ("world:dale:npc:guard-*", false, false),
            ("world:vale:npc:*:session:ses_00000000000000000000000007", true, false),
            ("world:vale:npc:*:session:ses_00000000000000000000000008", false, false),
        ] {
            let parsed: KeyPattern = pattern.parse().unwrap();
            assert_eq!(parsed.to_string(), pattern);
            assert_eq!(parsed.matches_key(&guard), of_session, "{pattern}");
            assert_eq!(parsed.matches_key(&talk), of_talk, "{pattern}");
        }
        assert_eq!(
            guard.to_string(),
            "world:vale:npc:guard-north:session:ses_00000000000000000000000007"
        );
        for wrong in [
            "",
            "vale",
            "world",
            "world:",
            "npc:guard-*",
            "world:vale:mira",
            "world:vale:session:*",
            "world:vale:npc:mira:session",
            "world:vale:npc:mira:room:*",
            "world:vale:npc:mira:session:*:more:x",
            "world:vale:npc:mi ra",
            "world:vale:npc:미라",
            "World:vale",
            "world:Vale",
            "world:vale:npc:Mira",
            "world:vale:npc:mira:session:ses_01arz*",
        ] {
            assert_eq!(wrong.parse::<KeyPattern>(), Err(InvalidKeyPattern), "{wrong}");
        }
    }

    #[test]
    fn directives_fill_a_prompt_by_priority_up_to_its_limits() {
        let mut all: Vec<Directive> = ["a", "b", "c", "d"]
            .iter()
            .map(|id| directive(id, &["world:vale"]))
            .collect();
        all.push(directive("elsewhere", &["world:vale:npc:bram", "world:dale"]));
        all[3].priority = 5;
        let selected = SelectedDirectives::select_for(&all, &key("mira", DialogueKind::Session));
        assert_eq!(selected.texts, ["Text of d.", "Text of a.", "Text of b."]);
        let expected = ["Do d.", "Do d again.", "Do a.", "Do a again.", "Do b."];
        assert_eq!(selected.instructions, expected);
        assert_eq!(selected.fails_if.len(), MAX_FAILURES_IN_PROMPT);
        let traced: Vec<_> = selected
            .traces
            .iter()
            .map(|it| {
                (
                    it.directive.as_str(),
                    it.text,
                    it.instructions,
                    it.fails_if,
                    it.left_out,
                )
            })
            .collect();
        assert_eq!(
            traced,
            [
                ("d", true, 2, 4, 0),
                ("a", true, 2, 4, 0),
                ("b", true, 1, 2, 3),
                ("c", false, 0, 0, 7)
            ]
        );
        assert_eq!(
            SelectedDirectives::select_for(&all[4..], &key("mira", DialogueKind::Session)),
            SelectedDirectives::default()
        );
    }
}
