//! Disclosure locks: the sources of a fact that some players may not hear.
//!
//! A fact inherits the locks of its turn's prompt. A lock names its source, not whether the source is open. Each use
//! decides anew whether a lock is open, so lost progress locks the fact again.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::audience::Viewpoint;
use colloquy_core::{
    ids::{LoreId, NpcId, PlayerId, ScenarioId},
    planted_leak,
};

/// One condition that has to be open.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DisclosureLock {
    /// A memory of an NPC's past. Open to players with enough progress with the NPC.
    Scenario { npc: NpcId, scenario: ScenarioId },
    /// An entry of the lore with conditions. Open to players for whom the conditions hold with the NPC.
    Lore { npc: NpcId, entry: LoreId },
    /// Lines between NPCs. Only the listed players could hear the lines.
    Hearers(BTreeSet<PlayerId>),
}

/// All conditions that have to be open. Empty: the fact is not locked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct DisclosureLocks(pub BTreeSet<DisclosureLock>);

/// A scenario of an NPC: the question of one lock.
pub type ScenarioKey<'a> = (&'a NpcId, &'a ScenarioId);
/// An entry of the lore and the NPC that told of it: the question of one lock.
pub type LoreKey<'a> = (&'a NpcId, &'a LoreId);

impl DisclosureLocks {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// True if the locks are a subset of `superset`: readers of content with the locks `superset` may also hear content
    /// with fewer locks.
    #[must_use]
    pub fn are_subset_of(&self, superset: &Self) -> bool {
        self.0.is_subset(&superset.0)
    }
    /// The scenarios among the locks.
    pub fn scenario_keys(&self) -> impl Iterator<Item = ScenarioKey<'_>> {
        self.0.iter().filter_map(|lock| match lock {
            DisclosureLock::Scenario { npc, scenario } => Some((npc, scenario)),
            DisclosureLock::Lore { .. } | DisclosureLock::Hearers(_) => None,
        })
    }
    /// The entries of the lore among the locks.
    pub fn lore_keys(&self) -> impl Iterator<Item = LoreKey<'_>> {
        self.0.iter().filter_map(|lock| match lock {
            DisclosureLock::Lore { npc, entry } => Some((npc, entry)),
            DisclosureLock::Scenario { .. } | DisclosureLock::Hearers(_) => None,
        })
    }
    /// The only players who could hear every source. `None`: no lock comes from a conversation between NPCs.
    #[must_use]
    pub fn common_hearers(&self) -> Option<BTreeSet<PlayerId>> {
        let mut hearer_sets = self.0.iter().filter_map(|lock| match lock {
            DisclosureLock::Hearers(players) => Some(players),
            DisclosureLock::Scenario { .. } | DisclosureLock::Lore { .. } => None,
        });
        let first = hearer_sets.next()?.clone();
        Some(hearer_sets.fold(first, |common, players| &common & players))
    }
    /// True if all locks are open to every listener of the dialogue at `viewpoint`.
    ///
    /// * `gossip`: NPCs repeat to players what NPCs said to each other.
    /// * `is_unlocked`: whether the player may hear of a scenario. Without a player: whether everybody may.
    /// * `is_open`: the same for an entry of the lore.
    pub fn are_open_to(
        &self,
        viewpoint: &Viewpoint,
        gossip: bool,
        is_unlocked: impl Fn(ScenarioKey<'_>) -> bool,
        is_open: impl Fn(LoreKey<'_>) -> bool,
    ) -> bool {
        viewpoint.sees_all_players
            || self.0.iter().all(|lock| match lock {
                DisclosureLock::Scenario { npc, scenario } => is_unlocked((npc, scenario)),
                DisclosureLock::Lore { npc, entry } => is_open((npc, entry)),
                DisclosureLock::Hearers(players) => {
                    gossip || viewpoint.is_heard_only_by(players) || planted_leak!("locks.hearers")
                }
            })
    }
    /// Adds the locks of `added`.
    pub fn extend_with(&mut self, added: &Self) {
        self.0.extend(added.0.iter().cloned());
    }
}

impl FromIterator<DisclosureLock> for DisclosureLocks {
    fn from_iter<I: IntoIterator<Item = DisclosureLock>>(locks: I) -> Self {
        Self(locks.into_iter().collect())
    }
}

/// `scenario:mira/well;lore:mira/ruin;hearers:p1+p2`, as stored. An id contains no such sign, no comma and no space.
impl fmt::Display for DisclosureLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, lock) in self.0.iter().enumerate() {
            if nth > 0 {
                f.write_str(";")?;
            }
            match lock {
                DisclosureLock::Scenario { npc, scenario } => write!(f, "scenario:{npc}/{scenario}")?,
                DisclosureLock::Lore { npc, entry } => write!(f, "lore:{npc}/{entry}")?,
                DisclosureLock::Hearers(players) => {
                    f.write_str("hearers:")?;
                    for (nth, player) in players.iter().enumerate() {
                        write!(f, "{}{player}", if nth > 0 { "+" } else { "" })?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A text that is no lock. An unreadable lock is never taken as open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no lock")]
pub struct LockParseError(String);

impl FromStr for DisclosureLocks {
    type Err = LockParseError;
    fn from_str(text: &str) -> Result<Self, LockParseError> {
        let parts = text.split(';').filter(|part| !part.is_empty());
        parts
            .map(|part| parse_lock(part).ok_or_else(|| LockParseError(part.to_owned())))
            .collect()
    }
}

fn parse_lock(text: &str) -> Option<DisclosureLock> {
    let (kind, target) = text.split_once(':')?;
    match kind {
        "scenario" => {
            let (npc, scenario) = target.split_once('/')?;
            Some(DisclosureLock::Scenario {
                npc: npc.parse().ok()?,
                scenario: scenario.parse().ok()?,
            })
        }
        "lore" => {
            let (npc, entry) = target.split_once('/')?;
            Some(DisclosureLock::Lore {
                npc: npc.parse().ok()?,
                entry: entry.parse().ok()?,
            })
        }
        "hearers" => {
            let players = target.split('+').filter(|player| !player.is_empty());
            players
                .map(|player| player.parse().ok())
                .collect::<Option<_>>()
                .map(DisclosureLock::Hearers)
        }
        _ => None,
    }
}

impl Serialize for DisclosureLocks {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for DisclosureLocks {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d)?
            .parse()
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::disclosure::audience::Watchers;

    fn locks(text: &str) -> DisclosureLocks {
        text.parse().unwrap()
    }

    fn viewpoint(player: Option<&str>, watchers: &[&str], everyone: bool) -> Viewpoint {
        Viewpoint {
            world: "vale".parse().unwrap(),
            npc: "mira".parse().unwrap(),
            factions: vec![],
            player: player.map(|player| player.parse().unwrap()),
            watchers: Watchers {
                players: watchers.iter().map(|player| player.parse().unwrap()).collect(),
                everyone,
            },
            sees_all_players: false,
        }
    }

    #[test]
    fn locks_round_trip() {
        for text in [
            "",
            "scenario:mira/well",
            "hearers:",
            "hearers:p1+p:2@x.y",
            "scenario:ergen/fire;scenario:mira/well;lore:mira/ruin;hearers:p1",
        ] {
            assert_eq!(locks(text).to_string(), text);
        }
        for text in [
            "well",
            "scenario:mira",
            "scenario:Mira/well",
            "hearers:p 1",
            "key:mira/well",
        ] {
            assert!(text.parse::<DisclosureLocks>().is_err(), "{text}");
        }
        assert_eq!(
            locks("hearers:p1+p2;hearers:p2+p3").common_hearers(),
            Some(["p2".parse().unwrap()].into())
        );
        assert_eq!(locks("scenario:mira/well").common_hearers(), None);
    }

    #[test]
    fn locked_fact_is_used_only_when_all_its_locks_are_open() {
        let p1 = viewpoint(Some("p1"), &[], false);
        let nobody = viewpoint(None, &[], false);
        let designer = Viewpoint {
            sees_all_players: true,
            ..viewpoint(None, &[], false)
        };
        for (text, who, gossip, unlocked, open) in [
            ("", &p1, false, "", true),
            ("scenario:mira/well", &p1, false, "", false),
            ("scenario:mira/well", &p1, false, "mira/well", true),
            ("scenario:mira/well", &p1, true, "", false),
            ("scenario:ergen/fire;scenario:mira/well", &p1, false, "mira/well", false),
            ("scenario:mira/well", &nobody, true, "", false),
            ("scenario:mira/well", &designer, false, "", true),
            ("hearers:", &p1, false, "", false),
            ("hearers:", &p1, true, "", true),
            ("hearers:", &nobody, false, "", true),
            ("hearers:", &designer, false, "", true),
            ("hearers:p1", &p1, false, "", true),
            ("hearers:p2", &p1, false, "", false),
            ("hearers:p1;scenario:mira/well", &p1, false, "", false),
            // NPC conversations, with other watchers.
            ("hearers:p1", &viewpoint(None, &["p1"], false), false, "", true),
            ("hearers:p1", &viewpoint(None, &["p1", "p2"], false), false, "", false),
            ("hearers:p1", &viewpoint(None, &[], true), false, "", false),
        ] {
            let is_unlocked = |(npc, scenario): ScenarioKey<'_>| format!("{npc}/{scenario}") == unlocked;
            let found = locks(text).are_open_to(who, gossip, is_unlocked, |_| false);
            assert_eq!(found, open, "{text} {who:?} {gossip}");
        }
    }
}
