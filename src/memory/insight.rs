//! Insights: one line about a person, a place or a thing, which a curation pass has learned from a dialogue
//! (docs/algorithms.md#insights).

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

use super::{
    disclosure::locks::DisclosureLocks,
    episode::clip_line,
    keywords::{informative_terms, short_names_of},
    lore::is_named_in,
    party::{bind_to_player, is_player, owner_id, subject_key},
};
use colloquy_core::ids::{DialogueId, InsightId, NpcId, PlayerId, TurnId, WorldId};

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

/// What an NPC has learned about an entity. Of a dialogue, an entity and a day, the newest insight counts, unless a
/// later one stands in its place. An insight with further locks only stands beside the earlier ones.
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
    /// `player:<id>`, or the name of an NPC, a place or another thing; at most [`MAX_ENTITY_CHARS`] characters for a
    /// name.
    pub entity: String,
    /// The day of the last turn, as in "0212-02-15": by the world's clock, or in UTC if the world has no clock.
    pub day: String,
    /// One sentence of at most [`MAX_INSIGHT_CHARS`] characters. Empty: the replaced insight does not hold.
    pub text: String,
    /// The numbers of the turns of the dialogue that the insight rests on. Empty: unknown.
    pub turns: Vec<u32>,
    /// The turn that caused the insight in whose place this one stands, then the turns on which that one rested. The
    /// insight counts while all of them stand. Empty: it replaces none.
    pub rests_on: Vec<TurnId>,
    /// Conditions for the disclosure of the insight.
    pub locks: DisclosureLocks,
    /// When the last turn was committed.
    pub last_turn_at: DateTime<Utc>,
}

/// An insight with the turn that caused it.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlierInsight {
    pub insight: Insight,
    pub cause: TurnId,
}

impl EarlierInsight {
    /// Returns [`Insight::rests_on`] of an insight that stands in the place of this one.
    #[must_use]
    pub fn bases_of_replacement(&self) -> Vec<TurnId> {
        [self.cause]
            .into_iter()
            .chain(self.insight.rests_on.iter().copied())
            .collect()
    }

    /// True if this insight stands in the place of one about the same entity: it replaces that one, directly or over
    /// others, or it is the later one of the same dialogue and day.
    fn replaces(&self, other: &Self) -> bool {
        let new = &self.insight;
        let old = &other.insight;
        let is_later = (new.last_turn_at, new.id) > (old.last_turn_at, old.id);
        let is_of_same_talk = new.dialogue == old.dialogue && new.day == old.day;
        new.rests_on.contains(&other.cause) || is_later && is_of_same_talk
    }
}

/// Removes the insights in whose place others of the list stand, whatever the locks of those are.
#[must_use]
pub fn without_replaced(insights: Vec<EarlierInsight>) -> Vec<EarlierInsight> {
    let keys: Vec<String> = insights.iter().map(|earlier| earlier.insight.entity_key()).collect();
    let is_replaced = |index: usize| {
        let same_entity = insights.iter().zip(&keys).filter(|(_, key)| **key == keys[index]);
        same_entity
            .map(|(other, _)| other)
            .any(|other| other.replaces(&insights[index]))
    };
    let replaced: Vec<bool> = (0..insights.len()).map(is_replaced).collect();
    let current = insights.into_iter().zip(replaced).filter(|(_, replaced)| !replaced);
    current.map(|(insight, _)| insight).collect()
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
    /// Returns the stored name of an entity that a model has named. `None`: the name is empty, or means a player where
    /// no player takes part.
    #[must_use]
    pub fn bind_entity(&self, name: &str) -> Option<String> {
        let name = clip_line(name, MAX_ENTITY_CHARS);
        let bound = bind_to_player(&name, self.player.as_ref());
        if bound.is_empty() || is_player(&bound) && self.player.is_none() {
            return None;
        }
        let key = subject_key(&bound);
        let own_name = self.npc_names.iter().find(|name| subject_key(name) == key);
        Some(own_name.cloned().unwrap_or(bound))
    }
}

/// How a turn is about an entity, the closest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Closeness {
    /// The line names it.
    Named,
    /// The player, and what belongs to the player.
    Player,
}

/// What a turn is about: the player, and the things that the line names.
#[derive(Debug)]
pub struct TurnSubjects<'a> {
    player: Option<&'a PlayerId>,
    npc_keys: [String; 2],
    line: &'a str,
    line_terms: BTreeSet<u32>,
    /// Short forms of names that only one entity has.
    short_names: BTreeSet<String>,
}

impl<'a> TurnSubjects<'a> {
    /// `entities` are the names among which short forms of names must be unambiguous.
    #[must_use]
    pub fn new<'e>(
        player: Option<&'a PlayerId>,
        npc: &NpcId,
        npc_name: &'e str,
        line: &'a str,
        entities: impl IntoIterator<Item = &'e str>,
    ) -> Self {
        let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for entity in entities.into_iter().chain([npc_name]) {
            for name in short_names_of(entity).chain([entity]) {
                owners.entry(subject_key(name)).or_default().insert(subject_key(entity));
            }
        }
        owners.retain(|_, owners| owners.len() == 1);
        Self {
            player,
            npc_keys: [subject_key(npc_name), subject_key(npc.as_str())],
            line,
            line_terms: informative_terms(line),
            short_names: owners.into_keys().collect(),
        }
    }

    /// Returns how the turn is about the entity. `None`: it is not. What belongs to the player counts as the player. A
    /// line names an entity by the name, by all informative words of the name, or by a given name that no other entity
    /// has. An NPC needs no insight about itself: such a line tells others how to get on with the NPC.
    #[must_use]
    pub fn closeness_of(&self, entity: &str) -> Option<Closeness> {
        if let Some(owner) = owner_id(entity) {
            let is_players = self.player.is_some_and(|player| player.as_str() == owner);
            return is_players.then_some(Closeness::Player);
        }
        if self.npc_keys.contains(&subject_key(entity)) {
            return None;
        }
        let terms = informative_terms(entity);
        let mut short = short_names_of(entity).filter(|name| self.short_names.contains(&subject_key(name)));
        let is_named = is_named_in(self.line, entity)
            || !terms.is_empty() && terms.is_subset(&self.line_terms)
            || short.any(|name| is_named_in(self.line, name));
        is_named.then_some(Closeness::Named)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use colloquy_core::ids::DialogueKind;

    fn participants(player: Option<&str>) -> Participants {
        Participants {
            player: player.map(|player| player.parse().unwrap()),
            npc_names: vec!["Old Mira".to_owned(), "미라".to_owned()],
        }
    }

    /// Returns an insight about the bells, from the pass over turn `turn` of a dialogue.
    fn of_bells(dialogue: u128, turn: u32, rests_on: &[u128]) -> EarlierInsight {
        let insight = Insight {
            id: InsightId::from_u128(u128::from(turn)),
            world: "vale".parse().unwrap(),
            npc: "mira".parse().unwrap(),
            player: Some("p1".parse().unwrap()),
            dialogue: DialogueId::new(DialogueKind::Session, ulid::Ulid(dialogue)),
            number: turn,
            entity: "the bells".to_owned(),
            day: "2026-03-01".to_owned(),
            text: format!("Bells {turn}."),
            turns: Vec::new(),
            rests_on: rests_on.iter().copied().map(TurnId::from_u128).collect(),
            locks: DisclosureLocks::default(),
            last_turn_at: DateTime::UNIX_EPOCH + chrono::TimeDelta::seconds(i64::from(turn)),
        };
        let cause = TurnId::from_u128(u128::from(turn));
        EarlierInsight { insight, cause }
    }

    #[test]
    fn insight_in_whose_place_another_stands_is_removed() {
        let numbers = |insights: &[&EarlierInsight]| -> Vec<u32> {
            let insights = insights.iter().copied().cloned().collect();
            let standing = without_replaced(insights).into_iter();
            standing.map(|earlier| earlier.insight.number).collect()
        };
        let first = of_bells(1, 1, &[]);
        let second = of_bells(2, 2, &[1]);
        let third = of_bells(3, 3, &[2, 1]);
        assert_eq!(numbers(&[&third, &second, &first]), [3]);
        assert_eq!(numbers(&[&third, &first]), [3], "over another one");
        assert_eq!(numbers(&[&first]), [1], "nobody here may hear the others");
        let unrelated = of_bells(4, 4, &[]);
        assert_eq!(numbers(&[&unrelated, &first]), [4, 1], "of another dialogue");
        assert_eq!(
            numbers(&[&of_bells(1, 5, &[]), &first]),
            [5],
            "of the same dialogue and day"
        );
        let mut of_ferry = second.clone();
        of_ferry.insight.entity = "the ferry".to_owned();
        assert_eq!(numbers(&[&of_ferry, &first]), [2, 1], "about something else");
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
    fn turn_is_about_the_player_and_what_the_line_names() {
        let player: PlayerId = "p1".parse().unwrap();
        let npc: NpcId = "baker".parse().unwrap();
        let entities = [
            "김민수",
            "최덕수",
            "Kim Minsu",
            "Dark Forest",
            "Dark Tower",
            "Captain Voss",
            "나루터",
        ];
        let about = |line: &str, entity: &str| {
            let subjects = TurnSubjects::new(Some(&player), &npc, "Mira", line, entities);
            subjects.closeness_of(entity)
        };
        let named = Some(Closeness::Named);
        let player = Some(Closeness::Player);
        for (line, entity, is_about) in [
            ("Hello.", "player:p1", player),
            ("Hello.", "player:p1's sister", player),
            ("Hello.", "player:p2", None),
            ("Hello, Mira.", "Mira", None),
            ("Hello.", "baker", None),
            ("Hello.", "the ferry", None),
            ("Is the ferry late?", "the ferry", named),
            ("Is the Ferry late?", "ferry", named),
            ("What is the price of the ferry?", "ferry price", named),
            ("What is the price?", "ferry price", None),
            ("나루터는 어디야?", "나루터", named),
            ("나루는 어디야?", "나루터", None),
            ("아까 민수한테 들켰어요", "김민수", named),
            ("덕수 아저씨는 어디 계세요?", "최덕수", named),
            ("이민수는 누구야?", "김민수", None),
            ("Where is Minsu?", "Kim Minsu", named),
            ("What of Voss?", "Captain Voss", named),
            ("Which captain?", "Captain Voss", None),
            ("It is dark.", "Dark Forest", None),
            ("In the forest.", "Dark Forest", named),
        ] {
            assert_eq!(about(line, entity), is_about, "{line} {entity}");
        }
    }

    #[test]
    fn given_name_of_two_people_names_neither() {
        let npc: NpcId = "baker".parse().unwrap();
        for (line, entities) in [
            ("민수한테 들켰어요", ["김민수", "박민수"]),
            ("민수한테 들켰어요", ["김민수", "민수"]),
            ("Where is Minsu?", ["Kim Minsu", "Park Minsu"]),
        ] {
            let subjects = TurnSubjects::new(None, &npc, "Mira", line, entities);
            assert_eq!(subjects.closeness_of(entities[0]), None, "{line} {entities:?}");
        }
        let subjects = TurnSubjects::new(None, &npc, "한민수", "민수한테 들켰어요", ["김민수"]);
        assert_eq!(subjects.closeness_of("김민수"), None, "the NPC has the name too");
    }
}
