//! World state: typed changes with a cause. The current truth is the fold of the standing changes
//! (docs/algorithms.md#world-state-and-the-state-block). Sets replace, deltas add, and every step is clamped.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{
    attributes::AttributeValue,
    calendar::GameTime,
    clock_segments::ClockSegments,
    keywords::normalise_text,
    milestones::Milestones,
    party,
    unlock_rule::Progress,
    vocabulary::{self, DEAD},
};
use colloquy_core::ids::{DialogueId, NpcId};

/// One typed change. Entities have the names that people in the world use; `player` is the player.
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
    /// Hit points from the backend.
    Hp {
        who: String,
        to: i32,
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
    /// The count of an item from the backend; 0: the item is gone.
    ItemCount {
        who: String,
        item: String,
        to: u32,
    },
    Relationship {
        from: String,
        to: String,
        kind: String,
        delta: i32,
    },
    /// The strength of a relationship from the backend.
    RelationshipStrength {
        from: String,
        to: String,
        kind: String,
        strength: i32,
    },
    /// The value of an attribute of a character, or of the world if `who` is `None`.
    Attribute {
        who: Option<String>,
        name: String,
        to: AttributeValue,
    },
    /// A change of an attribute's number, with `start` (the number before the first change) and the bounds of the
    /// attribute's rule. Later edits of the rule do not change the past.
    AttributeDelta {
        who: Option<String>,
        name: String,
        delta: f64,
        start: f64,
        min: f64,
        max: f64,
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
    /// An event, in one sentence.
    Happened {
        text: String,
    },
    /// A note, in one sentence.
    Note {
        text: String,
    },
    /// The backend's value for a player's progress with an NPC. State blocks never contain this change.
    Progress {
        who: String,
        npc: NpcId,
        to: Progress,
    },
    /// The clock of the world is set, with game seconds per real second from then on. Later edits of the settings do
    /// not change the past. State blocks never contain this change, and not the next one.
    Time {
        to: GameTime,
        ratio: f64,
    },
    /// Seconds of the game that pass at once. `start` and `ratio` are for a clock that was never set.
    TimePassed {
        seconds: i64,
        start: GameTime,
        ratio: f64,
    },
}

impl StateChange {
    /// True for items gained and lost, and for a new place.
    #[must_use]
    pub const fn is_of_item_or_place(&self) -> bool {
        matches!(
            self,
            Self::Location { .. } | Self::ItemGained { .. } | Self::ItemLost { .. }
        )
    }

    /// The people in a relation change: met, separated, or related.
    pub fn related_people(&self) -> impl Iterator<Item = &str> {
        let pair = match self {
            Self::Relationship { from, to, .. } => Some([from, to]),
            Self::Met { who, whom } | Self::Separated { who, whom } => Some([who, whom]),
            _ => None,
        };
        pair.into_iter().flatten().map(String::as_str)
    }

    /// The names of characters in the change, to be replaced by the names in the state.
    pub fn names_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let names: [Option<&mut String>; 2] = match self {
            Self::Location { who, .. }
            | Self::HpDelta { who, .. }
            | Self::Hp { who, .. }
            | Self::Status { who, .. }
            | Self::ItemGained { who, .. }
            | Self::ItemLost { who, .. }
            | Self::ItemCount { who, .. }
            | Self::Mood { who, .. }
            | Self::Progress { who, .. } => [Some(who), None],
            Self::Attribute { who, .. } | Self::AttributeDelta { who, .. } => [who.as_mut(), None],
            Self::Relationship { from, to, .. } | Self::RelationshipStrength { from, to, .. } => [Some(from), Some(to)],
            Self::Met { who, whom } | Self::Separated { who, whom } => [Some(who), Some(whom)],
            Self::Happened { .. } | Self::Note { .. } | Self::Time { .. } | Self::TimePassed { .. } => [None, None],
        };
        names.into_iter().flatten()
    }

    /// The part of the state that the change sets; `None`: no part that can be read.
    #[must_use]
    pub fn changed_part(&self) -> Option<StatePart> {
        Some(match self.clone() {
            Self::Location { who, .. } => StatePart::Location(who),
            Self::HpDelta { who, .. } | Self::Hp { who, .. } => StatePart::Hp(who),
            Self::Status { who, .. } => StatePart::Status(who),
            Self::Mood { who, .. } => StatePart::Mood(who),
            Self::ItemGained { who, item, .. }
            | Self::ItemLost { who, item, .. }
            | Self::ItemCount { who, item, .. } => StatePart::Item(who, item),
            Self::Relationship { from, to, kind, .. } | Self::RelationshipStrength { from, to, kind, .. } => {
                StatePart::Relationship(from, to, vocabulary::stored_kind(&kind))
            }
            Self::Attribute { who, name, .. } | Self::AttributeDelta { who, name, .. } => {
                StatePart::Attribute(who, name)
            }
            Self::Met { who, whom } | Self::Separated { who, whom } => StatePart::With(who, whom),
            Self::Happened { text } => StatePart::Event(text),
            Self::Note { text } => StatePart::Note(text),
            Self::Time { .. } | Self::TimePassed { .. } => StatePart::Time,
            Self::Progress { .. } => return None,
        })
    }
}

/// A value in the state, by its owner. Character names are those of the state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatePart {
    Location(String),
    Hp(String),
    Status(String),
    Mood(String),
    /// Who, and the item.
    Item(String, String),
    /// Who, and the companion.
    With(String, String),
    /// Who (`None`: the world), and the attribute's name.
    Attribute(Option<String>, String),
    /// From, to, and the stored kind.
    Relationship(String, String, String),
    /// The sentence.
    Event(String),
    Note(String),
    /// The clock of the world.
    Time,
}

/// Most recent sentences in the folded state, in each of `events` and `notes`.
pub const MAX_RECENT_SENTENCES: usize = 20;
/// Hit points of a character without known changes, and the most hit points of a character.
pub const MAX_HP: i32 = 100;
/// The highest count of one item of a character.
pub const MAX_HELD: u32 = 9_999;
/// Most dialogues that are known to have set the same place or companion of a character.
const MAX_SETTING_DIALOGUES: usize = 16;

/// The current state of a character.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Character {
    pub location: Option<String>,
    /// When the place was last set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location_since: Option<DateTime<Utc>>,
    /// The latest dialogues whose turns set the place, oldest first; none: the backend did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub location_set_in: Vec<DialogueId>,
    /// 0 to [`MAX_HP`]; `None`: unchanged so far.
    pub hp: Option<i32>,
    pub status: Option<String>,
    /// When the status was last set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_since: Option<DateTime<Utc>>,
    pub mood: Option<String>,
    /// When the mood was last set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mood_since: Option<DateTime<Utc>>,
    /// Items with their counts, 1 to [`MAX_HELD`].
    pub items: BTreeMap<String, u32>,
    /// The present companions, from `met` and `separated`.
    pub with: Vec<String>,
    /// The latest dialogues whose turns set a companion, oldest first. A companion that the backend set has no entry.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub met_in: BTreeMap<String, Vec<DialogueId>>,
    /// Attributes of the studio by name, as far as they were changed.
    #[serde(default)]
    pub attributes: BTreeMap<String, AttributeValue>,
}

impl Character {
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.status.as_deref() == Some(DEAD)
    }

    /// The place, as far as it still holds in a dialogue: unless a turn of another dialogue set it at a moment that is
    /// not recent.
    #[must_use]
    pub fn known_location(&self, dialogue: DialogueId, is_recent: impl FnOnce(DateTime<Utc>) -> bool) -> Option<&str> {
        let place = self.location.as_deref()?;
        (!self.is_location_of_others(dialogue) || self.location_since.is_none_or(is_recent)).then_some(place)
    }

    /// True if only turns of other dialogues set the place.
    #[must_use]
    pub fn is_location_of_others(&self, dialogue: DialogueId) -> bool {
        !self.location_set_in.is_empty() && !self.location_set_in.contains(&dialogue)
    }

    /// Sets the place. A place that the backend set remains the backend's.
    fn set_location(&mut self, to: &str, moment: DateTime<Utc>, dialogue: Option<DialogueId>) {
        let before = self.location.replace(to.to_owned());
        let is_new = before.is_none_or(|before| normalise_text(&before) != normalise_text(to));
        self.location_since = Some(moment);
        if is_new || dialogue.is_none() {
            self.location_set_in.clear();
        }
        if let Some(dialogue) = dialogue
            && (is_new || !self.location_set_in.is_empty())
        {
            push_dialogue(&mut self.location_set_in, dialogue);
        }
    }

    fn add_hp(&mut self, delta: i32) {
        let before = self.hp.unwrap_or(MAX_HP);
        self.hp = Some(before.saturating_add(delta).clamp(0, MAX_HP));
    }

    fn set_status(&mut self, status: &str, moment: DateTime<Utc>) {
        self.status = Some(status.to_owned());
        self.status_since = Some(moment);
    }

    fn set_mood(&mut self, mood: &str, moment: DateTime<Utc>) {
        self.mood = Some(mood.to_owned());
        self.mood_since = Some(moment);
    }

    fn add_items(&mut self, item: &str, count: u32) {
        let item_count = self.items.entry(item.to_owned()).or_default();
        *item_count = item_count.saturating_add(count).min(MAX_HELD);
    }

    fn remove_items(&mut self, item: &str, count: u32) {
        let item_count = self.items.get(item).copied().unwrap_or_default();
        self.set_item_count(item, item_count.saturating_sub(count));
    }

    fn set_item_count(&mut self, item: &str, count: u32) {
        if count == 0 {
            self.items.remove(item);
        } else {
            self.items.insert(item.to_owned(), count.min(MAX_HELD));
        }
    }

    /// The companions whom the backend or a turn of the dialogue set.
    pub fn companions_in(&self, dialogue: DialogueId) -> impl Iterator<Item = &str> {
        let names = self.with.iter().map(String::as_str);
        names.filter(move |name| self.met_in.get(*name).is_none_or(|met_in| met_in.contains(&dialogue)))
    }

    /// Adds a companion. One that the backend set remains the backend's.
    fn add_companion(&mut self, companion: &str, dialogue: Option<DialogueId>) {
        let is_new = !self.with.iter().any(|name| name == companion);
        if is_new {
            self.with.push(companion.to_owned());
        }
        match dialogue {
            None => {
                self.met_in.remove(companion);
            }
            Some(dialogue) if is_new || self.met_in.contains_key(companion) => {
                push_dialogue(self.met_in.entry(companion.to_owned()).or_default(), dialogue);
            }
            Some(_) => {}
        }
        debug_assert!(
            self.met_in.len() <= self.with.len(),
            "only present companions have dialogues that set them"
        );
    }

    fn remove_companion(&mut self, companion: &str) {
        self.with.retain(|name| name != companion);
        self.met_in.remove(companion);
    }
}

/// A directed relationship.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Relationship {
    pub from: String,
    pub to: String,
    /// A word of the world's list, in lower case; see [`vocabulary::stored_kind`].
    pub kind: String,
    /// -100 to 100.
    pub strength: i32,
}

/// The current truth of a world.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorldState {
    pub characters: BTreeMap<String, Character>,
    /// Attributes of the world by name, as far as they were changed.
    #[serde(default)]
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Ordered by (from, to, kind).
    pub relationships: Vec<Relationship>,
    /// The last events, oldest first, at most [`MAX_RECENT_SENTENCES`].
    pub events: Vec<String>,
    /// The last notes, oldest first, at most [`MAX_RECENT_SENTENCES`].
    pub notes: Vec<String>,
    /// The clock of the world.
    #[serde(default)]
    pub clock: ClockSegments,
    /// The first time of each player's milestones, which unlock scenarios.
    #[serde(skip)]
    pub milestones: Milestones,
}

/// Folds changes, oldest first, each with its time, into the current truth, as if the backend had made all of them.
pub fn fold_changes<'a>(changes: impl Iterator<Item = (&'a StateChange, DateTime<Utc>)>) -> WorldState {
    let mut state = WorldState::default();
    for (change, moment) in changes {
        state.apply_change(change, moment, None);
    }
    state
}

impl WorldState {
    /// Applies one change at time `moment`: sets replace, deltas add, and the result is clamped. `dialogue` is that of
    /// the turn behind the change; `None`: the backend made the change.
    pub fn apply_change(&mut self, change: &StateChange, moment: DateTime<Utc>, dialogue: Option<DialogueId>) {
        match change {
            StateChange::Location { who, to } => {
                self.character_mut(who).set_location(to, moment, dialogue);
                self.milestones.record_place(who, to, moment);
            }
            StateChange::HpDelta { who, delta } => self.character_mut(who).add_hp(*delta),
            StateChange::Hp { who, to } => self.character_mut(who).hp = Some((*to).clamp(0, MAX_HP)),
            StateChange::Status { who, status } => self.character_mut(who).set_status(status, moment),
            StateChange::Mood { who, mood } => self.character_mut(who).set_mood(mood, moment),
            StateChange::ItemGained { count: 0, .. } => {}
            StateChange::ItemGained { who, item, count } => {
                self.character_mut(who).add_items(item, *count);
                self.milestones.record_item(who, item, moment);
            }
            StateChange::ItemLost { who, item, count } => self.character_mut(who).remove_items(item, *count),
            StateChange::ItemCount { who, item, to } => {
                self.character_mut(who).set_item_count(item, *to);
                if *to > 0 {
                    self.milestones.record_item(who, item, moment);
                }
            }
            StateChange::Relationship { from, to, kind, delta } => {
                self.set_relationship(from, to, kind, moment, |before| before.saturating_add(*delta));
            }
            StateChange::RelationshipStrength {
                from,
                to,
                kind,
                strength,
            } => self.set_relationship(from, to, kind, moment, |_| *strength),
            StateChange::Attribute { who, name, to } => {
                self.attributes_mut(who.as_deref()).insert(name.clone(), to.clone());
            }
            StateChange::AttributeDelta {
                who,
                name,
                delta,
                start,
                min,
                max,
            } => {
                let attributes = self.attributes_mut(who.as_deref());
                let before = attributes.get(name).and_then(AttributeValue::as_number);
                // `f64::clamp` panics on bounds in the wrong order.
                let after = (before.unwrap_or(*start) + delta).max(*min).min(*max);
                attributes.insert(name.clone(), AttributeValue::Number(after));
            }
            StateChange::Met { who, whom } => {
                self.character_mut(who).add_companion(whom, dialogue);
                self.milestones.record_meeting(who, whom, moment);
            }
            StateChange::Separated { who, whom } => self.character_mut(who).remove_companion(whom),
            StateChange::Happened { text } => push_recent(&mut self.events, text),
            StateChange::Note { text } => push_recent(&mut self.notes, text),
            StateChange::Time { to, ratio } => self.clock.set_time(moment, *to, *ratio),
            StateChange::TimePassed { seconds, start, ratio } => self.clock.pass_time(moment, *seconds, *start, *ratio),
            StateChange::Progress { who, npc, to } => self.milestones.record_backend_progress(who, npc, *to, moment),
        }
    }

    fn character_mut(&mut self, name: &str) -> &mut Character {
        self.characters.entry(name.to_owned()).or_default()
    }

    fn attributes_mut(&mut self, character: Option<&str>) -> &mut BTreeMap<String, AttributeValue> {
        match character {
            Some(character) => &mut self.character_mut(character).attributes,
            None => &mut self.attributes,
        }
    }

    fn set_relationship(
        &mut self,
        from: &str,
        to: &str,
        kind: &str,
        moment: DateTime<Utc>,
        change: impl FnOnce(i32) -> i32,
    ) {
        let kind = vocabulary::stored_kind(kind);
        let key = |r: &Relationship| (r.from.clone(), r.to.clone(), r.kind.clone());
        let wanted_key = (from.to_owned(), to.to_owned(), kind.clone());
        let index = match self.relationships.binary_search_by_key(&wanted_key, key) {
            Ok(index) => index,
            Err(index) => {
                let (from, to, kind) = wanted_key;
                let strength = 0;
                let relationship = Relationship {
                    from,
                    to,
                    kind,
                    strength,
                };
                self.relationships.insert(index, relationship);
                index
            }
        };
        let strength = &mut self.relationships[index].strength;
        *strength = change(*strength).clamp(-100, 100);
        let strength = *strength;
        debug_assert!(
            self.relationships[index.saturating_sub(1)..]
                .iter()
                .take(3)
                .is_sorted_by_key(key),
            "relationships stay in the order of their keys"
        );
        self.milestones.record_relationship(from, to, &kind, strength, moment);
    }

    /// The character that an NPC is in the state, by its name or its id.
    #[must_use]
    pub fn npc_character(&self, name: &str, id: &NpcId) -> Option<&Character> {
        [name, id.as_str()]
            .into_iter()
            .find_map(|name| self.characters.get(name))
    }

    #[must_use]
    pub fn is_npc_dead(&self, name: &str, id: &NpcId) -> bool {
        self.npc_character(name, id).is_some_and(Character::is_dead)
    }

    /// The names of the dead who are no players.
    pub fn dead_names(&self) -> impl Iterator<Item = &str> {
        let dead_characters = self.characters.iter().filter(|(_, character)| character.is_dead());
        dead_characters
            .map(|(name, _)| name.as_str())
            .filter(|name| !party::is_player(name))
    }

    /// The characters at a place, without case, in the order of their names. The dead are not among them.
    pub fn people_at<'s>(&'s self, place: &str) -> impl Iterator<Item = (&'s str, &'s Character)> + use<'s> {
        let place = normalise_text(place);
        let is_there = move |character: &Character| {
            let location = character.location.as_deref();
            !character.is_dead() && location.is_some_and(|location| normalise_text(location) == place)
        };
        let people = self.characters.iter().filter(move |(_, character)| is_there(character));
        people.map(|(name, character)| (name.as_str(), character))
    }
}

/// Makes a dialogue the latest of those that set a value.
fn push_dialogue(list: &mut Vec<DialogueId>, dialogue: DialogueId) {
    list.retain(|earlier| *earlier != dialogue);
    list.push(dialogue);
    if list.len() > MAX_SETTING_DIALOGUES {
        list.remove(0);
    }
    debug_assert!(
        list.len() <= MAX_SETTING_DIALOGUES,
        "a value has a bounded number of dialogues"
    );
}

fn push_recent(list: &mut Vec<String>, text: &str) {
    list.push(text.to_owned());
    if list.len() > MAX_RECENT_SENTENCES {
        list.remove(0);
    }
    debug_assert!(
        list.len() <= MAX_RECENT_SENTENCES,
        "the state has a bounded number of sentences"
    );
}

#[cfg(test)]
mod tests;
