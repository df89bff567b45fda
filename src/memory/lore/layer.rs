//! The layers of lore.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::condition::Condition;

/// The layer of an entry decides how long the entry stays without a mention, and how much it weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema)]
pub enum LoreLayer {
    /// The core of the world, main places, history. Never decays.
    A1,
    /// Main items, active places. Never decays.
    A2,
    /// Factions, background. Decays after 7 turns without a mention.
    #[default]
    A3,
    /// Secrets, spoilers. Decays after 3 turns without a mention.
    A4,
}

impl LoreLayer {
    /// The part of the score.
    #[must_use]
    pub const fn weight(self) -> f64 {
        match self {
            Self::A1 => 2.0,
            Self::A2 => 1.5,
            Self::A3 => 0.5,
            Self::A4 => 0.0,
        }
    }
    /// The turns without a mention after which the entry is left out; `None`: never.
    #[must_use]
    pub const fn decay_turns(self) -> Option<u32> {
        match self {
            Self::A1 | Self::A2 => None,
            Self::A3 => Some(7),
            Self::A4 => Some(3),
        }
    }
}

/// Another layer of an entry while conditions hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerRule {
    pub layer: LoreLayer,
    /// 1 to 8 conditions; all must hold.
    #[schema(min_items = 1, max_items = 8)]
    pub when: Vec<Condition>,
}
