//! World state: typed changes with a cause. The current truth is the fold of the standing changes
//! (docs/algorithms.md#world-state-and-the-state-block). Sets replace, deltas add, and every step is clamped.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{milestones::Milestones, progress::Progress, vocabulary};
use colloquy_core::ids::NpcId;

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
}

impl StateChange {
    /// The people in a relation change: met, separated, or related.
    pub fn related_people(&self) -> impl Iterator<Item = &str> {
        let pair = match self {
            Self::Relationship { from, to, .. } => Some([from, to]),
            Self::Met { who, whom } | Self::Separated { who, whom } => Some([who, whom]),
            _ => None,
        };
        pair.into_iter().flatten().map(String::as_str)
    }
}

/// Most recent sentences in the folded state, in each of `events` and `notes`.
pub const MAX_RECENT_SENTENCES: usize = 20;
/// Hit points of a character without known changes, and the most hit points of a character.
pub const MAX_HP: i32 = 100;
/// The highest count of one item of a character.
pub const MAX_HELD: u32 = 9_999;

/// The current state of a character.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Character {
    pub location: Option<String>,
    /// 0 to [`MAX_HP`]; `None`: unchanged so far.
    pub hp: Option<i32>,
    pub status: Option<String>,
    pub mood: Option<String>,
    /// Items with their counts, 1 to [`MAX_HELD`].
    pub items: BTreeMap<String, u32>,
    /// The present companions, from `met` and `separated`.
    pub with: Vec<String>,
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
    /// Ordered by (from, to, kind).
    pub relationships: Vec<Relationship>,
    /// The last events, oldest first, at most [`MAX_RECENT_SENTENCES`].
    pub events: Vec<String>,
    /// The last notes, oldest first, at most [`MAX_RECENT_SENTENCES`].
    pub notes: Vec<String>,
    /// The first time of each player's milestones, which unlock scenarios.
    #[serde(skip)]
    pub milestones: Milestones,
}

/// Folds changes, oldest first, each with its time, into the current truth.
pub fn fold_changes<'a>(changes: impl Iterator<Item = (&'a StateChange, DateTime<Utc>)>) -> WorldState {
    let mut state = WorldState::default();
    for (change, at) in changes {
        state.apply_change(change, at);
    }
    state
}

impl WorldState {
    /// Applies one change at time `at`: sets replace, deltas add, and the result is clamped.
    pub fn apply_change(&mut self, change: &StateChange, at: DateTime<Utc>) {
        match change {
            StateChange::Location { who, to } => {
                self.character_mut(who).location = Some(to.clone());
                self.milestones.record_place(who, to, at);
            }
            StateChange::HpDelta { who, delta } => {
                let hp = &mut self.character_mut(who).hp;
                *hp = Some(hp.unwrap_or(MAX_HP).saturating_add(*delta).clamp(0, MAX_HP));
            }
            StateChange::Status { who, status } => self.character_mut(who).status = Some(status.clone()),
            StateChange::Mood { who, mood } => self.character_mut(who).mood = Some(mood.clone()),
            StateChange::ItemGained { who, item, count } => {
                if *count > 0 {
                    let held = self.character_mut(who).items.entry(item.clone()).or_default();
                    *held = held.saturating_add(*count).min(MAX_HELD);
                    self.milestones.record_item(who, item, at);
                }
            }
            StateChange::ItemLost { who, item, count } => {
                let items = &mut self.character_mut(who).items;
                if let Some(held) = items.get_mut(item) {
                    *held = held.saturating_sub(*count);
                    if *held == 0 {
                        items.remove(item);
                    }
                }
            }
            StateChange::Relationship { from, to, kind, delta } => {
                let kind = vocabulary::stored_kind(kind);
                let strength = self.add_relationship_delta(from, to, &kind, *delta);
                self.milestones.record_relationship(from, to, &kind, strength, at);
            }
            StateChange::Met { who, whom } => {
                let with = &mut self.character_mut(who).with;
                if !with.contains(whom) {
                    with.push(whom.clone());
                }
                self.milestones.record_meeting(who, whom, at);
            }
            StateChange::Separated { who, whom } => self.character_mut(who).with.retain(|name| name != whom),
            StateChange::Happened { text } => push_recent(&mut self.events, text),
            StateChange::Note { text } => push_recent(&mut self.notes, text),
            StateChange::Progress { who, npc, to } => self.milestones.record_backend_progress(who, npc, *to, at),
        }
    }

    fn character_mut(&mut self, who: &str) -> &mut Character {
        self.characters.entry(who.to_owned()).or_default()
    }

    /// Returns the new strength.
    fn add_relationship_delta(&mut self, from: &str, to: &str, kind: &str, delta: i32) -> i32 {
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
        *strength
    }
}

fn push_recent(list: &mut Vec<String>, text: &str) {
    list.push(text.to_owned());
    if list.len() > MAX_RECENT_SENTENCES {
        list.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn folded<'a>(changes: impl Iterator<Item = &'a StateChange>) -> WorldState {
        fold_changes(changes.map(|change| (change, DateTime::UNIX_EPOCH)))
    }
    fn hp(delta: i32) -> StateChange {
        StateChange::HpDelta {
            who: "player".into(),
            delta,
        }
    }
    fn relation(delta: i32) -> StateChange {
        StateChange::Relationship {
            from: "mira".into(),
            to: "player".into(),
            kind: "trust".into(),
            delta,
        }
    }
    fn gain(count: u32) -> StateChange {
        StateChange::ItemGained {
            who: "player".into(),
            item: "물약".into(),
            count,
        }
    }
    fn lose(count: u32) -> StateChange {
        StateChange::ItemLost {
            who: "player".into(),
            item: "물약".into(),
            count,
        }
    }
    fn player(state: &WorldState) -> &Character {
        &state.characters["player"]
    }

    #[test]
    fn relationship_kind_is_read_in_any_historical_spelling() {
        let of = |kind: &str| StateChange::Relationship {
            from: "mira".into(),
            to: "player".into(),
            kind: kind.into(),
            delta: 5,
        };
        let written = ["Trust", "trust", "신뢰", "blood oath", "Blood Oath"].map(of);
        let state = folded(written.iter());
        let kinds: Vec<_> = state
            .relationships
            .iter()
            .map(|r| (r.kind.as_str(), r.strength))
            .collect();
        assert_eq!(kinds, [("blood oath", 10), ("trust", 15)]);
    }

    #[test]
    fn item_count_is_capped() {
        let many = vec![gain(9_000); 3];
        let state = folded(many.iter());
        assert_eq!(player(&state).items["물약"], MAX_HELD);
    }

    #[test]
    fn sets_replace_and_deltas_add() {
        let to = |to: &str| StateChange::Location {
            who: "player".into(),
            to: to.into(),
        };
        let met = |whom: &str| StateChange::Met {
            who: "player".into(),
            whom: whom.into(),
        };
        let changes = [
            to("Vale"),
            hp(-30),
            to("어둠의 숲"),
            hp(10),
            gain(2),
            lose(1),
            relation(5),
            relation(-2),
            met("mira"),
            met("mira"),
            met("ergen"),
            StateChange::Separated {
                who: "player".into(),
                whom: "mira".into(),
            },
            StateChange::Mood {
                who: "mira".into(),
                mood: "calm".into(),
            },
            StateChange::Status {
                who: "player".into(),
                status: "wounded".into(),
            },
            StateChange::Happened {
                text: "it rained".into(),
            },
            StateChange::Note {
                text: "bring rope".into(),
            },
        ];
        let state = folded(changes.iter());
        let who = player(&state);
        assert_eq!(
            (who.location.as_deref(), who.hp, who.status.as_deref()),
            (Some("어둠의 숲"), Some(80), Some("wounded"))
        );
        assert_eq!(who.items["물약"], 1);
        assert_eq!(who.with, ["ergen"]);
        assert_eq!(state.relationships[0].strength, 3);
        assert_eq!(state.characters["mira"].mood.as_deref(), Some("calm"));
        assert_eq!(
            (state.events.as_slice(), state.notes.as_slice()),
            (&["it rained".to_owned()][..], &["bring rope".to_owned()][..])
        );
    }

    #[test]
    fn steps_are_clamped() {
        // Clamping only at the end would give 100 - 150 + 20 = 0.
        assert_eq!(player(&folded([hp(-150), hp(20)].iter())).hp, Some(20));
        assert_eq!(player(&folded([hp(50), hp(-20)].iter())).hp, Some(80));
        assert_eq!(
            folded([relation(150), relation(-10)].iter()).relationships[0].strength,
            90
        );
        assert_eq!(player(&folded([lose(5), gain(2)].iter())).items["물약"], 2);
        assert!(player(&folded([gain(2), lose(9)].iter())).items.is_empty());
    }

    #[test]
    fn relationships_are_directed_and_by_kind() {
        let back = StateChange::Relationship {
            from: "player".into(),
            to: "mira".into(),
            kind: "trust".into(),
            delta: 1,
        };
        let fear = StateChange::Relationship {
            from: "mira".into(),
            to: "player".into(),
            kind: "fear".into(),
            delta: 2,
        };
        let state = folded([relation(3), back, fear].iter());
        let strengths: Vec<_> = state
            .relationships
            .iter()
            .map(|r| (r.from.as_str(), r.kind.as_str(), r.strength))
            .collect();
        assert_eq!(
            strengths,
            [("mira", "fear", 2), ("mira", "trust", 3), ("player", "trust", 1)]
        );
    }

    #[test]
    fn events_are_limited_to_the_latest() {
        let events: Vec<_> = (0..50).map(|n| StateChange::Happened { text: n.to_string() }).collect();
        let state = folded(events.iter());
        assert_eq!(
            (state.events.len(), state.events[MAX_RECENT_SENTENCES - 1].as_str()),
            (MAX_RECENT_SENTENCES, "49")
        );
    }

    #[test]
    fn state_round_trips() {
        let state = folded([hp(-1), relation(2), gain(3)].iter());
        let text = serde_json::to_string(&state).unwrap_or_default();
        assert_eq!(serde_json::from_str::<WorldState>(&text).ok(), Some(state));
    }

    proptest! {
        #[test]
        fn state_bounds_hold_for_any_changes(deltas in prop::collection::vec((any::<i32>(), any::<u32>()), 0..40)) {
            let changes: Vec<_> = deltas.iter().flat_map(|&(delta, count)| [hp(delta), relation(delta), gain(count), lose(count / 2)]).collect();
            let state = folded(changes.iter());
            prop_assert!(state.characters.values().all(|who| who.hp.is_none_or(|hp| (0..=MAX_HP).contains(&hp))));
            prop_assert!(state.characters.values().flat_map(|who| who.items.values()).all(|count| *count > 0));
            prop_assert!(state.relationships.iter().all(|r| (-100..=100).contains(&r.strength)));
        }

        /// The base of every rewind: a fold of all standing changes is a fold of the first ones, continued with the
        /// last.
        #[test]
        fn fold_continues_from_a_fold(deltas in prop::collection::vec(any::<i32>(), 1..20)) {
            let changes: Vec<_> = deltas.iter().flat_map(|&delta| [hp(delta), relation(delta)]).collect();
            let (last, rest) = changes.split_last().ok_or_else(|| TestCaseError::reject("empty"))?;
            let mut state = folded(rest.iter());
            state.apply_change(last, DateTime::UNIX_EPOCH);
            prop_assert_eq!(state, folded(changes.iter()));
        }
    }
}
