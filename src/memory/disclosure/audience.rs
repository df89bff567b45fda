//! Who knows a fact, and who hears a dialogue (ARCHITECTURE.md#invariants).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::locks::DisclosureLock;
use colloquy_core::ids::{FactionId, NpcId, PlayerId, WorldId};

/// An NPC, a faction or a world that knows a fact. Each knower has one search partition of the index.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Knower {
    /// One NPC that took part or was named as a witness.
    Npc(NpcId),
    /// Every NPC of a faction.
    Faction(FactionId),
    /// Everybody in the world.
    World,
}

impl Knower {
    /// The key in stores: `npc:ergen`, `faction:guild` or `world`.
    #[must_use]
    pub fn store_key(&self) -> String {
        match self {
            Self::Npc(id) => format!("npc:{id}"),
            Self::Faction(id) => format!("faction:{id}"),
            Self::World => "world".to_owned(),
        }
    }
    /// The inverse of [`Self::store_key`].
    #[must_use]
    pub fn parse(key: &str) -> Option<Self> {
        match key.split_once(':') {
            Some(("npc", id)) => id.parse().ok().map(Self::Npc),
            Some(("faction", id)) => id.parse().ok().map(Self::Faction),
            None if key == "world" => Some(Self::World),
            _ => None,
        }
    }
}
impl Serialize for Knower {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.store_key())
    }
}
impl<'de> Deserialize<'de> for Knower {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let key = String::deserialize(d)?;
        Self::parse(&key).ok_or_else(|| serde::de::Error::custom("a knower is npc:<id>, faction:<id> or world"))
    }
}

/// The knowers of a fact (the witness rule, ARCHITECTURE.md#invariants).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Audience {
    /// The knowers. Never empty.
    pub knowers: BTreeSet<Knower>,
    /// Set: the player told the fact in private. Only dialogues with this player use the fact.
    pub private_to: Option<PlayerId>,
}

impl Audience {
    /// True if at least one reader may know facts of both audiences.
    #[must_use]
    pub fn overlaps_audience(&self, other: &Self) -> bool {
        let may_meet = match (&self.private_to, &other.private_to) {
            (Some(player), Some(another)) => player == another,
            _ => true,
        };
        may_meet && !self.knowers.is_disjoint(&other.knowers)
    }

    /// A stable text of the whole audience. Facts are compared only if their audience keys are equal.
    #[must_use]
    pub fn audience_key(&self) -> String {
        let mut text: String = self.knowers.iter().map(Knower::store_key).collect::<Vec<_>>().join("|");
        if let Some(player) = &self.private_to {
            text.push('@');
            text.push_str(player.as_str());
        }
        text
    }
}

/// The reader of a search: an NPC, its factions, and the player who talks with the NPC.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Viewpoint {
    pub world: WorldId,
    pub npc: NpcId,
    pub factions: Vec<FactionId>,
    /// `None` in an NPC conversation (only facts without `private_to` are usable) and for a designer
    /// ([`Viewpoint::sees_all_players`]).
    pub player: Option<PlayerId>,
    /// The other listeners.
    pub watchers: Watchers,
    /// A designer's view over REST: includes the private facts of all players.
    pub sees_all_players: bool,
}

/// The players who may listen to NPCs that talk with each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Watchers {
    pub players: BTreeSet<PlayerId>,
    /// True if every player of the world may listen.
    pub everyone: bool,
}

impl Watchers {
    #[must_use]
    pub fn includes_player(&self, player: &PlayerId) -> bool {
        self.everyone || self.players.contains(player)
    }
    /// The lock that hides the conversation's facts from all other players. `None`: every player may hear.
    #[must_use]
    pub fn hearers_lock(&self) -> Option<DisclosureLock> {
        (!self.everyone).then(|| DisclosureLock::Hearers(self.players.clone()))
    }
}

impl Viewpoint {
    /// The partitions that this viewpoint may read.
    pub fn knowers(&self) -> impl Iterator<Item = Knower> + '_ {
        std::iter::once(Knower::Npc(self.npc.clone()))
            .chain(self.factions.iter().cloned().map(Knower::Faction))
            .chain(std::iter::once(Knower::World))
    }
    /// True if the NPC knows what `audience` knows, and may use it with the player.
    #[must_use]
    pub fn may_know(&self, audience: &Audience) -> bool {
        let is_players = |private_to: &PlayerId| self.sees_all_players || self.player.as_ref() == Some(private_to);
        let is_knower = |knower: &Knower| match knower {
            Knower::Npc(npc) => *npc == self.npc,
            Knower::Faction(faction) => self.factions.contains(faction),
            Knower::World => true,
        };
        audience.private_to.as_ref().is_none_or(is_players) && audience.knowers.iter().any(is_knower)
    }
    /// True if no player outside `players` hears the dialogue.
    #[must_use]
    pub fn is_heard_only_by(&self, players: &BTreeSet<PlayerId>) -> bool {
        !self.watchers.everyone
            && self
                .player
                .iter()
                .chain(&self.watchers.players)
                .all(|player| players.contains(player))
    }
}
