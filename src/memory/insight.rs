//! Insights: one line about a person, a place or a thing, which a curation pass has learned from a dialogue
//! (docs/algorithms.md#insights).

use std::collections::BTreeSet;

use chrono::{DateTime, NaiveDate, Utc};

use super::{
    episode::clip_line,
    keywords::informative_terms,
    locks::DisclosureLocks,
    lore::is_named_in,
    party::{bind_to_player, is_player, owner_id, subject_key},
};
use colloquy_core::ids::{DialogueId, InsightId, NpcId, PlayerId, WorldId};

/// Longest text of an insight, in characters.
pub const MAX_INSIGHT_CHARS: usize = 200;
/// Longest name of an entity, in characters.
pub const MAX_ENTITY_CHARS: usize = 80;
/// The most insights of a pass.
pub const MAX_INSIGHTS_PER_PASS: usize = 5;
/// The most insights that an NPC has from its sessions with one player, and from its talks with other NPCs: the newest.
pub const MAX_INSIGHTS: u32 = 50;
/// The most insights that a prompt considers: the newest.
pub const MAX_INSIGHT_LINES: usize = 200;

/// What an NPC has learned about an entity. Of the same entity and day, the newest insight counts; in a prompt, of the same
/// entity.
#[derive(Debug, Clone, PartialEq)]
pub struct Insight {
    pub id: InsightId,
    pub world: WorldId,
    /// The NPC that uses the insight. Each NPC of a dialogue has its own row.
    pub npc: NpcId,
    /// The player of the session, the only one with whom the NPC uses the insight. `None`: from an NPC conversation.
    pub player: Option<PlayerId>,
    pub dialogue: DialogueId,
    /// The number of the last turn that the pass read. The turn is the cause.
    pub number: u32,
    /// `player:<id>`, or the name of an NPC, a place or another thing; at most [`MAX_ENTITY_CHARS`] characters for a name.
    pub entity: String,
    /// The day (UTC) on which the last turn was committed.
    pub day: NaiveDate,
    /// One sentence of at most [`MAX_INSIGHT_CHARS`] characters. Empty: what the dialogue had shown of the entity does not hold.
    pub text: String,
    /// Conditions for the disclosure of the insight.
    pub locks: DisclosureLocks,
    /// When the last turn was committed.
    pub at: DateTime<Utc>,
}

impl Insight {
    /// Returns the key by which insights about the same entity are compared.
    #[must_use]
    pub fn entity_key(&self) -> String {
        subject_key(&self.entity)
    }
}

/// The names of those who take part in a dialogue.
#[derive(Debug, Clone, Default)]
pub struct Participants {
    pub player: Option<PlayerId>,
    pub npc_names: Vec<String>,
}

impl Participants {
    /// Returns the stored name of an entity that a model has named. `None`: the name is empty, or means a player where no
    /// player takes part.
    #[must_use]
    pub fn bind_entity(&self, named: &str) -> Option<String> {
        let named = clip_line(named, MAX_ENTITY_CHARS);
        let bound = bind_to_player(&named, self.player.as_ref());
        if bound.is_empty() || is_player(&bound) && self.player.is_none() {
            return None;
        }
        let key = subject_key(&bound);
        let own = self.npc_names.iter().find(|name| subject_key(name) == key);
        Some(own.cloned().unwrap_or(bound))
    }
}

/// How a turn is about an entity, the closest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closeness {
    /// The line names it.
    Named,
    /// The player, and what belongs to the player.
    Player,
    /// The NPC itself.
    Npc,
}

/// What a turn is about: the player, the NPC, and the things that the line names.
#[derive(Debug)]
pub struct TurnSubjects<'a> {
    player: Option<&'a PlayerId>,
    npc_keys: [String; 2],
    line: &'a str,
    line_terms: BTreeSet<u32>,
}

impl<'a> TurnSubjects<'a> {
    #[must_use]
    pub fn new(player: Option<&'a PlayerId>, (npc, npc_name): (&NpcId, &str), line: &'a str) -> Self {
        Self {
            player,
            npc_keys: [subject_key(npc_name), subject_key(npc.as_str())],
            line,
            line_terms: informative_terms(line),
        }
    }

    /// Returns how the turn is about the entity. `None`: it is not. What belongs to the player counts as the player. A line
    /// names an entity by the name, or by all informative words of the name.
    #[must_use]
    pub fn closeness_of(&self, entity: &str) -> Option<Closeness> {
        if let Some(owner) = owner_id(entity) {
            let is_players = self.player.is_some_and(|player| player.as_str() == owner);
            return is_players.then_some(Closeness::Player);
        }
        let terms = informative_terms(entity);
        let is_named = is_named_in(self.line, entity) || !terms.is_empty() && terms.is_subset(&self.line_terms);
        if self.npc_keys.contains(&subject_key(entity)) {
            Some(Closeness::Npc)
        } else {
            is_named.then_some(Closeness::Named)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn participants(player: Option<&str>) -> Participants {
        Participants {
            player: player.map(|player| player.parse().unwrap()),
            npc_names: vec!["Old Mira".to_owned(), "미라".to_owned()],
        }
    }

    #[test]
    fn entity_is_bound_to_the_player_or_an_npc() {
        let of_p1 = participants(Some("p1"));
        for (named, bound) in [
            ("the player", Some("player:p1")),
            ("Player's sister", Some("player:p1's sister")),
            ("old mira", Some("Old Mira")),
            ("미라", Some("미라")),
            ("  the\nferry ", Some("the ferry")),
            ("player:p2", Some("player p2")),
            (" ", None),
        ] {
            assert_eq!(of_p1.bind_entity(named).as_deref(), bound, "{named}");
        }
        let long = of_p1.bind_entity(&"x".repeat(500)).unwrap();
        assert_eq!(long.chars().count(), MAX_ENTITY_CHARS);
        let among_npcs = participants(None);
        assert_eq!(among_npcs.bind_entity("player"), None);
        assert_eq!(among_npcs.bind_entity("the ferry").as_deref(), Some("the ferry"));
    }

    #[test]
    fn turn_is_about_its_speakers_and_what_the_line_names() {
        let player: PlayerId = "p1".parse().unwrap();
        let npc: NpcId = "baker".parse().unwrap();
        let about = |line: &str, entity: &str| {
            let subjects = TurnSubjects::new(Some(&player), (&npc, "Mira"), line);
            subjects.closeness_of(entity)
        };
        let (named, player, npc) = (Some(Closeness::Named), Some(Closeness::Player), Some(Closeness::Npc));
        for (line, entity, is_about) in [
            ("Hello.", "player:p1", player),
            ("Hello.", "player:p1's sister", player),
            ("Hello.", "player:p2", None),
            ("Hello, Mira.", "Mira", npc),
            ("Hello.", "baker", npc),
            ("Hello.", "the ferry", None),
            ("Is the ferry late?", "the ferry", named),
            ("Is the Ferry late?", "ferry", named),
            ("What is the price of the ferry?", "ferry price", named),
            ("What is the price?", "ferry price", None),
            ("나루터는 어디야?", "나루터", named),
            ("나루는 어디야?", "나루터", None),
        ] {
            assert_eq!(about(line, entity), is_about, "{line} {entity}");
        }
    }
}
