//! World state: typed changes with a cause, and the current truth as a fold over those that stand
//! (ALGORITHMS §6). Sets replace, deltas add, and every step is clamped.

use serde::{Deserialize, Serialize};

/// One typed change. Entities are named as people in the world name them; `player` is the player.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum StateChange {
    Location {
        who: String,
        to: String,
    },
    HpDelta {
        who: String,
        delta: i32,
    },
    Status {
        who: String,
        status: String,
    },
    ItemGained {
        who: String,
        item: String,
        count: u32,
    },
    ItemLost {
        who: String,
        item: String,
        count: u32,
    },
    Relationship {
        from: String,
        to: String,
        kind: String,
        delta: i32,
    },
    Mood {
        who: String,
        mood: String,
    },
    Met {
        who: String,
        whom: String,
    },
    Separated {
        who: String,
        whom: String,
    },
    /// Something that happened, in one sentence.
    Happened {
        text: String,
    },
    /// Worth noting, in one sentence.
    Note {
        text: String,
    },
}
