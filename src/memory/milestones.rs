//! What players have reached in a world, and when first: a part of the fold of its state.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::{
    party,
    progress::{Progress, UnlockWhen, Whom},
};
use crate::ids::{NpcId, PlayerId};

/// Things and people of one player that are remembered, the first ones; and levels of one rising number.
const MOST: usize = 512;
const MOST_LEVELS: usize = 128;

/// Names are compared without their case.
type Name = String;

/// What players have reached. What is about nobody that plays is not in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Milestones {
    players: BTreeMap<String, Reached>,
}

/// What one player has reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Reached {
    items: BTreeMap<Name, DateTime<Utc>>,
    places: BTreeMap<Name, DateTime<Utc>>,
    people: BTreeMap<Name, DateTime<Utc>>,
    /// How strong what somebody feels towards the player ever was, by who and what.
    bonds: BTreeMap<(Name, Name), Levels<i32>>,
    /// What the backend set, by NPC.
    set: BTreeMap<NpcId, Levels<Progress>>,
}

/// A number by what it has never been below since: rising values, each with the moment from which on it has been
/// at least that.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Levels<T>(Vec<(T, DateTime<Utc>)>);

impl<T: Copy + Ord> Levels<T> {
    /// The number is `value` now. What it was above that counts no more.
    fn set(&mut self, value: T, at: DateTime<Utc>) {
        let mut since = at;
        while let Some((_, reached)) = self.0.pop_if(|(level, _)| *level >= value) {
            since = reached;
        }
        self.0.push((value, since));
        self.bound();
    }
    /// The number is `value` now; what it was once it stays.
    fn raise(&mut self, value: T, at: DateTime<Utc>) {
        if self.0.last().is_none_or(|(level, _)| *level < value) {
            self.0.push((value, at));
            self.bound();
        }
    }
    /// Of very many the lowest were reached long ago: the next one stands for them.
    fn bound(&mut self) {
        if self.0.len() > MOST_LEVELS {
            let (_, at) = self.0.remove(0);
            self.0[0].1 = at;
        }
    }
    fn since(&self, value: T) -> Option<DateTime<Utc>> {
        self.0.iter().find(|(level, _)| *level >= value).map(|(_, at)| *at)
    }
}

impl<T> Default for Levels<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

fn named(text: &str) -> Name {
    text.trim().to_lowercase()
}

fn keep_first(of: &mut BTreeMap<Name, DateTime<Utc>>, name: &str, at: DateTime<Utc>) {
    if of.len() < MOST {
        of.entry(named(name)).or_insert(at);
    }
}

impl Milestones {
    /// What is kept of `who`; `None`: that is no player.
    fn player(&mut self, who: &str) -> Option<&mut Reached> {
        let plays = party::is_player(who) && party::owner(who).is_some();
        plays.then(|| self.players.entry(who.to_owned()).or_default())
    }

    pub(super) fn gained(&mut self, who: &str, item: &str, at: DateTime<Utc>) {
        if let Some(player) = self.player(who) {
            keep_first(&mut player.items, item, at);
        }
    }
    pub(super) fn came_to(&mut self, who: &str, place: &str, at: DateTime<Utc>) {
        if let Some(player) = self.player(who) {
            keep_first(&mut player.places, place, at);
        }
    }
    pub(super) fn met(&mut self, who: &str, whom: &str, at: DateTime<Utc>) {
        for (one, other) in [(who, whom), (whom, who)] {
            if let Some(player) = self.player(one) {
                keep_first(&mut player.people, other, at);
            }
        }
    }
    /// What `from` feels towards `to` is so strong now.
    pub(super) fn related(&mut self, from: &str, to: &str, kind: &str, strength: i32, at: DateTime<Utc>) {
        let Some(player) = self.player(to) else { return };
        let key = (named(from), named(kind));
        if player.bonds.len() < MOST || player.bonds.contains_key(&key) {
            player.bonds.entry(key).or_default().raise(strength, at);
        }
    }
    pub(super) fn was_set(&mut self, who: &str, npc: &NpcId, to: Progress, at: DateTime<Utc>) {
        if let Some(player) = self.player(who) {
            player.set.entry(npc.clone()).or_default().set(to, at);
        }
    }

    /// When `player` first reached what a rule of `npc` asks for; without an NPC, of whichever.
    #[must_use]
    pub fn reached(&self, player: &PlayerId, when: &UnlockWhen, npc: Option<Whom<'_>>) -> Option<DateTime<Utc>> {
        let reached = self.players.get(&party::key_of(player))?;
        match when {
            UnlockWhen::Item { item } => reached.items.get(&named(item)).copied(),
            UnlockWhen::Location { location } => reached.places.get(&named(location)).copied(),
            UnlockWhen::Met { met } => reached.people.get(&named(met)).copied(),
            UnlockWhen::Relationship { relationship, at_least } => {
                let kind = named(relationship);
                let is_whom = |from: &Name| npc.is_none_or(|npc| *from == named(npc.name) || from == npc.id.as_str());
                let bonds = reached
                    .bonds
                    .iter()
                    .filter(|((from, of), _)| *of == kind && is_whom(from));
                bonds.filter_map(|(_, strength)| strength.since(*at_least)).min()
            }
        }
    }

    /// What the backend has set for `player` with `npc`, rising, each with the moment since when it was at least that.
    pub fn set(&self, player: &PlayerId, npc: &NpcId) -> impl Iterator<Item = (Progress, DateTime<Utc>)> {
        let reached = self.players.get(&party::key_of(player));
        let levels = reached.and_then(|reached| reached.set.get(npc));
        levels.into_iter().flat_map(|levels| levels.0.iter().copied())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    #[test]
    fn what_one_player_reaches_is_bounded() {
        let mut milestones = Milestones::default();
        let mira: NpcId = "mira".parse().unwrap();
        for n in 0..2_000_u32 {
            let then = at(n.into());
            milestones.gained("player:p7", &format!("item {n}"), then);
            milestones.related(&format!("npc {n}"), "player:p7", "trust", 1, then);
            milestones.was_set("player:p7", &mira, Progress::new(1 + n).unwrap(), then);
        }
        milestones.related("npc 3", "player:p7", "trust", 9, at(5_000));
        let reached = &milestones.players["player:p7"];
        assert_eq!((reached.items.len(), reached.bonds.len()), (MOST, MOST));
        assert_eq!(
            reached.bonds[&("npc 3".to_owned(), "trust".to_owned())].since(9),
            Some(at(5_000))
        );
        let player = "p7".parse().unwrap();
        let set: Vec<_> = milestones.set(&player, &mira).collect();
        assert_eq!(
            (set.len(), set[0].1, set[MOST_LEVELS - 1].0.get()),
            (MOST_LEVELS, at(0), 2_000)
        );
    }
}
