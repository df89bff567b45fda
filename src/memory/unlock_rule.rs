//! The events that raise a player's progress with an NPC.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::keywords::normalise_text;
use colloquy_core::ids::NpcId;

/// A player's progress: 0 to 1,000,000 (`Progress::MAX`). Everybody begins at 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "u32", into = "u32")]
#[schema(value_type = u32, minimum = 0, maximum = 1_000_000)]
pub struct Progress(u32);

impl Progress {
    pub const MAX: u32 = 1_000_000;
    /// The progress at the beginning.
    pub const NONE: Self = Self(0);

    /// Returns `None` above `MAX`.
    #[must_use]
    pub const fn new(value: u32) -> Option<Self> {
        if value <= Self::MAX { Some(Self(value)) } else { None }
    }
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for Progress {
    type Error = String;
    fn try_from(value: u32) -> Result<Self, String> {
        Self::new(value).ok_or_else(|| format!("progress is 0 to {}, not {value}", Self::MAX))
    }
}

impl From<Progress> for u32 {
    fn from(progress: Progress) -> Self {
        progress.0
    }
}

/// Raises a player's progress with an NPC to `progress` after an event in the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnlockRule {
    #[schema(value_type = String)]
    pub npc: NpcId,
    pub progress: Progress,
    #[schema(inline)]
    pub when: UnlockWhen,
}

/// The event that has to happen to the player.
///
/// Names are compared without case, and must be the names in the world's state. Example: if a state block names an NPC
/// by id, a rule with the display name does not match. Only the first 512 names of each sort count for a player.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum UnlockWhen {
    /// The player received the item, even if the item is gone now.
    Item { item: String },
    /// The player was at the place.
    Location { location: String },
    /// The player and the person met.
    Met { met: String },
    /// The NPC's feeling for the player reached this strength, 1 to 100. The state knows the NPC by name or id. Two
    /// NPCs with one name share their feelings, and a renamed NPC starts again.
    Relationship { relationship: String, at_least: i32 },
}

/// The names of an NPC in rules and in the world's state.
#[derive(Debug, Clone)]
pub struct NpcNames<'a> {
    pub(super) id: &'a NpcId,
    /// Normalised for the comparison of names.
    name: String,
}

impl<'a> NpcNames<'a> {
    #[must_use]
    pub fn new(id: &'a NpcId, name: &str) -> Self {
        let name = normalised_name(name);
        Self { id, name }
    }
    /// True if `name`, a normalised name in the world's state, means this NPC.
    pub(super) fn is_named(&self, name: &str) -> bool {
        name == self.name || name == self.id.as_str()
    }
}

/// Names are compared without case.
pub(super) type NormalisedName = String;

pub(super) fn normalised_name(text: &str) -> NormalisedName {
    normalise_text(text.trim())
}
