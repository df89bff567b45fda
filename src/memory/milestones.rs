//! The first time a player reached each milestone in a world: a part of the fold of the world's state.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};

use super::{
    party,
    unlock_rule::{NormalisedName, NpcNames, Progress, UnlockWhen, normalised_name},
    vocabulary,
};
use colloquy_core::ids::{NpcId, PlayerId};

/// Most remembered things and people of one player (the first ones stay); and most levels of one rising number.
pub const MAX_NAMES_PER_PLAYER: usize = 512;
const MAX_LEVELS: usize = 128;

/// The milestones of all players. Changes that involve no player are not recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Milestones {
    /// Shared with the states that turns hold: a change copies only the changed players.
    players: BTreeMap<String, Arc<PlayerMilestones>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlayerMilestones {
    items: BTreeMap<NormalisedName, DateTime<Utc>>,
    places: BTreeMap<NormalisedName, DateTime<Utc>>,
    people: BTreeMap<NormalisedName, DateTime<Utc>>,
    /// The greatest strength of each feeling towards the player, by NPC and kind.
    bonds: BTreeMap<(NormalisedName, NormalisedName), LevelHistory<i32>>,
    /// The backend's values by NPC, and the time of the last value.
    set: BTreeMap<NpcId, (LevelHistory<Progress>, DateTime<Utc>)>,
}

/// The history of a number as rising levels. Each level has the moment since which the number has never been lower.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LevelHistory<T>(Vec<(T, DateTime<Utc>)>);

impl<T: Copy + Ord> LevelHistory<T> {
    /// Sets the number to `value`. Higher levels no longer count.
    fn set_level(&mut self, value: T, moment: DateTime<Utc>) {
        let mut since = moment;
        while let Some((_, reached)) = self.0.pop_if(|(level, _)| *level >= value) {
            since = reached;
        }
        self.0.push((value, since));
        self.limit_levels();
    }
    /// Raises the number to `value`. Earlier higher levels stay.
    fn raise_level(&mut self, value: T, moment: DateTime<Utc>) {
        if self.0.last().is_none_or(|(level, _)| *level < value) {
            self.0.push((value, moment));
            self.limit_levels();
        }
    }
    /// Above the limit, the lowest level is dropped, and the next level takes over its moment.
    fn limit_levels(&mut self) {
        if self.0.len() > MAX_LEVELS {
            let (_, moment) = self.0.remove(0);
            self.0[0].1 = moment;
        }
        debug_assert!(self.0.len() <= MAX_LEVELS, "a history has a bounded number of levels");
        debug_assert!(
            self.0.is_sorted_by(|(lower, _), (higher, _)| lower < higher),
            "the levels of a history rise"
        );
    }
    fn reached_at(&self, value: T) -> Option<DateTime<Utc>> {
        self.0
            .iter()
            .find(|(level, _)| *level >= value)
            .map(|(_, moment)| *moment)
    }
}

impl<T> Default for LevelHistory<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

fn record_first(first_moments: &mut BTreeMap<NormalisedName, DateTime<Utc>>, name: &str, moment: DateTime<Utc>) {
    if first_moments.len() < MAX_NAMES_PER_PLAYER {
        first_moments.entry(normalised_name(name)).or_insert(moment);
    }
}

impl Milestones {
    /// The milestones of `name`; `None`: `name` is no player.
    fn player_mut(&mut self, name: &str) -> Option<&mut PlayerMilestones> {
        let plays = party::is_player(name) && party::owner_id(name).is_some();
        plays.then(|| Arc::make_mut(self.players.entry(name.to_owned()).or_default()))
    }

    pub(super) fn record_item(&mut self, name: &str, item: &str, moment: DateTime<Utc>) {
        if let Some(player) = self.player_mut(name) {
            record_first(&mut player.items, item, moment);
        }
    }
    pub(super) fn record_place(&mut self, name: &str, place: &str, moment: DateTime<Utc>) {
        if let Some(player) = self.player_mut(name) {
            record_first(&mut player.places, place, moment);
        }
    }
    pub(super) fn record_meeting(&mut self, first: &str, second: &str, moment: DateTime<Utc>) {
        for (name, other) in [(first, second), (second, first)] {
            if let Some(player) = self.player_mut(name) {
                record_first(&mut player.people, other, moment);
            }
        }
    }
    /// Records the present strength of a feeling of `from` towards `to`.
    pub(super) fn record_relationship(
        &mut self,
        from: &str,
        to: &str,
        kind: &str,
        strength: i32,
        moment: DateTime<Utc>,
    ) {
        let Some(player) = self.player_mut(to) else { return };
        let key = (normalised_name(from), normalised_name(kind));
        if player.bonds.len() < MAX_NAMES_PER_PLAYER || player.bonds.contains_key(&key) {
            player.bonds.entry(key).or_default().raise_level(strength, moment);
        }
    }
    pub(super) fn record_backend_progress(&mut self, name: &str, npc: &NpcId, to: Progress, moment: DateTime<Utc>) {
        if let Some(player) = self.player_mut(name) {
            let (levels, last) = player.set.entry(npc.clone()).or_default();
            levels.set_level(to, moment);
            *last = moment;
        }
    }

    /// The milestones of `player`; `None`: no milestones yet.
    #[must_use]
    pub fn of_player(&self, player: &PlayerId) -> Option<&PlayerMilestones> {
        self.players.get(&party::player_key(player)).map(Arc::as_ref)
    }
}

impl PlayerMilestones {
    /// When the player first met the condition of a rule of `npc`.
    #[must_use]
    pub fn first_reached_at(&self, condition: &UnlockWhen, npc: &NpcNames<'_>) -> Option<DateTime<Utc>> {
        match condition {
            UnlockWhen::Relationship { relationship, at_least } => self
                .relationship_moments(relationship, *at_least, |from| npc.is_named(from))
                .min(),
            _ => self.simple_condition_met_at(condition),
        }
    }

    /// True if `moment` is the moment when the player first met the condition, for a rule of any NPC.
    #[must_use]
    pub fn is_first_reached_at(&self, condition: &UnlockWhen, moment: DateTime<Utc>) -> bool {
        match condition {
            UnlockWhen::Relationship { relationship, at_least } => self
                .relationship_moments(relationship, *at_least, |_| true)
                .any(|reached| reached == moment),
            _ => self.simple_condition_met_at(condition) == Some(moment),
        }
    }

    /// True if the player ever met this person. Case does not matter.
    #[must_use]
    pub fn has_met(&self, name: &str) -> bool {
        self.people.contains_key(&normalised_name(name))
    }

    /// When a condition that does not depend on the rule's NPC was first met.
    fn simple_condition_met_at(&self, condition: &UnlockWhen) -> Option<DateTime<Utc>> {
        let (moments, name) = match condition {
            UnlockWhen::Item { item } => (&self.items, item),
            UnlockWhen::Location { location } => (&self.places, location),
            UnlockWhen::Met { met } => (&self.people, met),
            UnlockWhen::Relationship { .. } => return None,
        };
        moments.get(&normalised_name(name)).copied()
    }

    /// When the feeling of each matching NPC first had this strength.
    fn relationship_moments(
        &self,
        kind: &str,
        at_least: i32,
        is_whom: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = DateTime<Utc>> {
        // Uses the stored kind, so that a rule on `신뢰` also means `trust`.
        let kind = normalised_name(&vocabulary::stored_kind(kind));
        let bonds = self.bonds.iter();
        let bonds = bonds.filter(move |((from, bond_kind), _)| *bond_kind == kind && is_whom(from));
        bonds.filter_map(move |(_, strength)| strength.reached_at(at_least))
    }

    /// The backend's values for `npc`, rising, each with the moment since which the value was at least as high.
    pub fn backend_progress(&self, npc: &NpcId) -> impl Iterator<Item = (Progress, DateTime<Utc>)> {
        let levels = self.set.get(npc).map(|(levels, _)| levels);
        levels.into_iter().flat_map(|levels| levels.0.iter().copied())
    }

    /// The moment of a new backend value: `now`, or 1 µs after the last value if another clock was ahead. The later
    /// value counts.
    #[must_use]
    pub fn next_backend_moment(&self, npc: &NpcId, now: DateTime<Utc>) -> DateTime<Utc> {
        let last = self.set.get(npc).map(|(_, last)| *last + TimeDelta::microseconds(1));
        last.map_or(now, |after| now.max(after))
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
    fn milestones_of_one_player_are_bounded() {
        let mut milestones = Milestones::default();
        let mira: NpcId = "mira".parse().unwrap();
        for n in 0..2_000_u32 {
            let then = at(n.into());
            milestones.record_item("player:p7", &format!("item {n}"), then);
            milestones.record_relationship(&format!("npc {n}"), "player:p7", "trust", 1, then);
            milestones.record_backend_progress("player:p7", &mira, Progress::new(1 + n).unwrap(), then);
        }
        milestones.record_relationship("npc 3", "player:p7", "trust", 9, at(5_000));
        let reached = &milestones.players["player:p7"];
        assert_eq!(
            (reached.items.len(), reached.bonds.len()),
            (MAX_NAMES_PER_PLAYER, MAX_NAMES_PER_PLAYER)
        );
        assert_eq!(
            reached.bonds[&("npc 3".to_owned(), "trust".to_owned())].reached_at(9),
            Some(at(5_000))
        );
        let set: Vec<_> = reached.backend_progress(&mira).collect();
        assert_eq!(
            (set.len(), set[0].1, set[MAX_LEVELS - 1].0.get()),
            (MAX_LEVELS, at(0), 2_000)
        );
    }

    #[test]
    fn relationship_milestones_are_reached_by_strength_and_rules_use_their_own_kind() {
        let mut milestones = Milestones::default();
        milestones.record_relationship("Mira", "player:p7", "trust", 40, at(1));
        milestones.record_relationship("Ergen", "player:p7", "trust", 40, at(2));
        milestones.record_relationship("ergen", "player:p7", "fear", 40, at(3));
        let reached = milestones.of_player(&"p7".parse().unwrap()).unwrap();
        let trust = |at_least| UnlockWhen::Relationship {
            relationship: "Trust".to_owned(),
            at_least,
        };
        let crossed = [1, 2, 3].map(|moment| reached.is_first_reached_at(&trust(40), at(moment)));
        assert_eq!(crossed, [true, true, false]);
        assert!(!reached.is_first_reached_at(&trust(41), at(1)));
        let smith: NpcId = "smith".parse().unwrap();
        let of = |name| reached.first_reached_at(&trust(40), &NpcNames::new(&smith, name));
        let found = ["Mira", "Ergen", "Bram"].map(of);
        assert_eq!(found, [Some(at(1)), Some(at(2)), None], "by the name that it has now");
    }

    #[test]
    fn backend_milestones_written_later_count_whatever_their_clock() {
        let mut milestones = Milestones::default();
        let mira = "mira".parse().unwrap();
        milestones.record_backend_progress("player:p7", &mira, Progress::new(3).unwrap(), at(9));
        let player = "p7".parse().unwrap();
        let next = |npc: &str, now| {
            milestones
                .of_player(&player)
                .unwrap()
                .next_backend_moment(&npc.parse().unwrap(), now)
        };
        assert_eq!(next("mira", at(10)), at(10));
        let behind = next("mira", at(5));
        assert_eq!(behind, at(9) + TimeDelta::microseconds(1));
        assert_eq!(next("ergen", at(5)), at(5));
        milestones.record_backend_progress("player:p7", &mira, Progress::new(1).unwrap(), behind);
        let set = milestones.of_player(&player).unwrap().backend_progress(&mira).last();
        assert_eq!(set.map(|(progress, _)| progress.get()), Some(1));
    }

    #[test]
    fn milestone_snapshot_shares_unchanged_players() {
        let mut milestones = Milestones::default();
        milestones.record_item("player:p7", "key", at(1));
        milestones.record_item("player:p8", "key", at(1));
        let held = milestones.clone();
        milestones.record_item("player:p8", "lamp", at(2));
        let shared = |who: &str| Arc::ptr_eq(&held.players[who], &milestones.players[who]);
        assert!(shared("player:p7") && !shared("player:p8"));
        assert_eq!(held.players["player:p8"].items.len(), 1);
    }
}
