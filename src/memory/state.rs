//! World state: typed changes with a cause, and the current truth as a fold over those that stand
//! (ALGORITHMS §6). Sets replace, deltas add, and every step is clamped.

use std::collections::BTreeMap;

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

/// Recent sentences that the folded state keeps of each of `events` and `notes`.
pub const RECENT: usize = 20;
/// Hit points of somebody nothing is known about, and the most anybody has.
pub const MAX_HP: i32 = 100;

/// How somebody stands now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Character {
    pub location: Option<String>,
    /// 0 to [`MAX_HP`]; `None`: nothing has changed them yet.
    pub hp: Option<i32>,
    pub status: Option<String>,
    pub mood: Option<String>,
    /// Items and how many, never 0.
    pub items: BTreeMap<String, u32>,
    /// Who is with them now, as `met` and `separated` say.
    pub with: Vec<String>,
}

/// A directed relationship.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Relationship {
    pub from: String,
    pub to: String,
    pub kind: String,
    /// -100 to 100.
    pub strength: i32,
}

/// The current truth of a world.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorldState {
    pub characters: BTreeMap<String, Character>,
    /// Ordered by (from, to, kind).
    pub relationships: Vec<Relationship>,
    /// The last things that happened, oldest first, at most [`RECENT`].
    pub events: Vec<String>,
    /// Likewise.
    pub notes: Vec<String>,
}

/// Folds changes, oldest first, into the current truth.
pub fn fold<'a>(changes: impl Iterator<Item = &'a StateChange>) -> WorldState {
    let mut state = WorldState::default();
    for change in changes {
        state.apply(change);
    }
    state
}

impl WorldState {
    /// Applies one change: sets replace, deltas add, and the result is clamped.
    pub fn apply(&mut self, change: &StateChange) {
        match change {
            StateChange::Location { who, to } => self.character(who).location = Some(to.clone()),
            StateChange::HpDelta { who, delta } => {
                let hp = &mut self.character(who).hp;
                *hp = Some(hp.unwrap_or(MAX_HP).saturating_add(*delta).clamp(0, MAX_HP));
            }
            StateChange::Status { who, status } => self.character(who).status = Some(status.clone()),
            StateChange::Mood { who, mood } => self.character(who).mood = Some(mood.clone()),
            StateChange::ItemGained { who, item, count } => {
                if *count > 0 {
                    let held = self.character(who).items.entry(item.clone()).or_default();
                    *held = held.saturating_add(*count);
                }
            }
            StateChange::ItemLost { who, item, count } => {
                let items = &mut self.character(who).items;
                if let Some(held) = items.get_mut(item) {
                    *held = held.saturating_sub(*count);
                    if *held == 0 {
                        items.remove(item);
                    }
                }
            }
            StateChange::Relationship { from, to, kind, delta } => self.relate(from, to, kind, *delta),
            StateChange::Met { who, whom } => {
                let with = &mut self.character(who).with;
                if !with.contains(whom) {
                    with.push(whom.clone());
                }
            }
            StateChange::Separated { who, whom } => self.character(who).with.retain(|name| name != whom),
            StateChange::Happened { text } => remember(&mut self.events, text),
            StateChange::Note { text } => remember(&mut self.notes, text),
        }
    }

    fn character(&mut self, who: &str) -> &mut Character {
        self.characters.entry(who.to_owned()).or_default()
    }

    fn relate(&mut self, from: &str, to: &str, kind: &str, delta: i32) {
        let key = |r: &Relationship| (r.from.clone(), r.to.clone(), r.kind.clone());
        let wanted = (from.to_owned(), to.to_owned(), kind.to_owned());
        let at = match self.relationships.binary_search_by_key(&wanted, key) {
            Ok(at) => at,
            Err(at) => {
                let (from, to, kind) = wanted;
                self.relationships.insert(
                    at,
                    Relationship {
                        from,
                        to,
                        kind,
                        strength: 0,
                    },
                );
                at
            }
        };
        let strength = &mut self.relationships[at].strength;
        *strength = strength.saturating_add(delta).clamp(-100, 100);
    }
}

fn remember(list: &mut Vec<String>, text: &str) {
    list.push(text.to_owned());
    if list.len() > RECENT {
        list.remove(0);
    }
}
