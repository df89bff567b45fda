//! What people write: worlds and the NPCs in them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{progress::UnlockRule, scoring::RecallPreset};
use crate::ids::{FactionId, NpcId, WorldId};

/// The language an NPC speaks; picks the prompt templates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    #[default]
    En,
    Ko,
}

impl Language {
    /// `en` or `ko`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Ko => "ko",
        }
    }
}

/// One game, or one save universe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct World {
    pub id: WorldId,
    pub name: String,
    /// What everybody in it takes for granted; in every prompt. At most 4,000 characters.
    pub premise: String,
    pub language: Language,
    /// Rules no NPC may break, one a line; at most 20 of 200 characters.
    pub rules: Vec<String>,
    pub settings: WorldSettings,
    /// Rises with every edit; the `ETag` over REST.
    pub version: u32,
    pub updated_at: DateTime<Utc>,
}

/// What a world may set for itself, and an NPC over its world; unset values come from the tier before:
/// configuration, world, NPC.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorldSettings {
    /// Recency decay λ per day, 0–10; default 0.002. Game time may run differently.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recency_lambda_per_day: Option<f64>,
    /// How memories are weighed and chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub recall: Option<WorldRecall>,
    /// What one player tells an NPC in private may be used with other players. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_between_players: Option<bool>,
    /// NPCs tell any player what they said to each other in conversations that are not open to that player. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gossip: Option<bool>,
    /// With whom an NPC shares what it told one player of itself. Default `shared`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_told: Option<SelfTold>,
    /// Most that one turn may change a relationship; default 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_relationship_delta: Option<i32>,
    /// Most that one turn may change hit points; default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hp_delta: Option<i32>,
    /// When an NPC greets with the words of its persona; default `first`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub greeting: Option<Greeting>,
    /// The language that an NPC answers in; default `own`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub reply_language: Option<ReplyLanguage>,
    /// Most of one item that one turn may give or take; default 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_item_delta: Option<u32>,
    /// Moods that NPCs of this world can be in; what a model writes is mapped to one of them, or left out. Default: 20
    /// words, such as `calm`, `happy`, `worried`. Of a world alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moods: Option<Vec<String>>,
    /// Kinds of relationships, in ASCII; other kinds are refused. Default `trust`, `affection`, `respect`, `fear`, `debt`,
    /// `loyalty`, `rivalry`, `hostility`. Of a world alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relationship_kinds: Option<Vec<String>>,
    /// Further words for moods and kinds: from the word to the mood or the kind. Common English and Korean ones are known.
    /// Of a world alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synonyms: Option<BTreeMap<String, String>>,
    /// All items that there are; others are refused. Default: any. Of a world alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<String>>,
    /// All places that there are; others are refused. Default: any. Of a world alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub places: Option<Vec<String>>,
    /// What raises a player's progress with an NPC; at most 50. Default none. Of a world alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlocks: Option<Vec<UnlockRule>>,
}

/// With whom an NPC shares what it told one player of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SelfTold {
    /// With every player, as long as it names no player and rests on nothing private or locked.
    Shared,
    /// With nobody else, as whatever else is said in private.
    Private,
}

/// When an NPC greets with the words of its persona, where it has any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Greeting {
    /// When it meets a player for the first time. Later the model greets, with what it remembers.
    First,
    /// Always.
    Always,
}

/// The language that an NPC answers in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReplyLanguage {
    /// Its own, whatever it is spoken to in.
    Own,
    /// The one in which the player speaks; among NPCs that of the world.
    Player,
}

/// How a world's memories are weighed and chosen; unset values come from the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorldRecall {
    /// `four_factor`: relevance .5, keywords .2, recency .15, importance .15. `rag`: relevance .7,
    /// recency .2, importance .1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub preset: Option<RecallPreset>,
    /// How much a memory that resembles a better one gives way to one that does not, 0 (not at all) to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diversity: Option<f64>,
}

impl World {
    /// The world as it is for `npc`: with the NPC's own settings over the world's.
    #[must_use]
    pub fn for_npc(mut self, npc: &Npc) -> Self {
        self.settings = self.settings.overridden_by(&npc.settings);
        self
    }
}

impl WorldSettings {
    /// Whether NPCs tell any player what they said to each other.
    #[must_use]
    pub fn allows_gossip(&self) -> bool {
        self.gossip.unwrap_or(false)
    }
    /// These settings with `own` over them. What raises progress, and the words and things that there are, are for the
    /// world to say alone.
    #[must_use]
    pub fn overridden_by(&self, own: &Self) -> Self {
        Self {
            recency_lambda_per_day: own.recency_lambda_per_day.or(self.recency_lambda_per_day),
            share_between_players: own.share_between_players.or(self.share_between_players),
            gossip: own.gossip.or(self.gossip),
            self_told: own.self_told.or(self.self_told),
            max_relationship_delta: own.max_relationship_delta.or(self.max_relationship_delta),
            max_hp_delta: own.max_hp_delta.or(self.max_hp_delta),
            max_item_delta: own.max_item_delta.or(self.max_item_delta),
            moods: self.moods.clone(),
            relationship_kinds: self.relationship_kinds.clone(),
            synonyms: self.synonyms.clone(),
            items: self.items.clone(),
            places: self.places.clone(),
            recall: own.recall.or(self.recall),
            greeting: own.greeting.or(self.greeting),
            reply_language: own.reply_language.or(self.reply_language),
            unlocks: self.unlocks.clone(),
        }
    }

    /// What raises a player's progress.
    #[must_use]
    pub fn unlock_rules(&self) -> &[UnlockRule] {
        self.unlocks.as_deref().unwrap_or_default()
    }
}

/// A fixed character: never changed by play.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Persona {
    /// Who the NPC is: role, history, looks. At most 4,000 characters.
    pub description: String,
    /// How the NPC speaks. At most 1,000 characters.
    pub speech_style: String,
    /// What the NPC will not do or say, one a line; at most 20 of 200 characters.
    pub boundaries: Vec<String>,
    /// Emotion and gesture tags the NPC may use as `<cue>`; at most 32 of 32 characters.
    pub cues: Vec<String>,
    /// Said first when a session asks for a greeting, to a player who is met for the first time. At most 1,000 characters.
    pub greeting: String,
}

/// An NPC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Npc {
    pub world: WorldId,
    pub id: NpcId,
    pub name: String,
    pub persona: Persona,
    pub language: Language,
    pub factions: Vec<FactionId>,
    /// Replaces the configured reply model.
    pub model: Option<String>,
    /// Over those of its world.
    pub settings: WorldSettings,
    /// Whether anything of its past is written: else no turn looks for it. The store tells; no put changes it.
    pub has_scenarios: bool,
    pub version: u32,
    pub updated_at: DateTime<Utc>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::memory::progress::{Progress, UnlockWhen};

    #[test]
    fn npc_settings_override_only_what_they_set_of_the_world() {
        let world = WorldSettings {
            recency_lambda_per_day: Some(0.5),
            share_between_players: Some(true),
            gossip: Some(true),
            self_told: Some(SelfTold::Private),
            max_relationship_delta: Some(10),
            greeting: Some(Greeting::Always),
            unlocks: Some(vec![]),
            moods: Some(vec!["calm".into()]),
            items: Some(vec!["rope".into()]),
            ..WorldSettings::default()
        };
        let npc = WorldSettings {
            share_between_players: Some(false),
            max_hp_delta: Some(0),
            greeting: Some(Greeting::First),
            reply_language: Some(ReplyLanguage::Player),
            moods: Some(vec!["rage".into()]),
            places: Some(Vec::new()),
            unlocks: Some(vec![UnlockRule {
                npc: "mira".parse().unwrap(),
                progress: Progress::NONE,
                when: UnlockWhen::Met { met: "Bram".into() },
            }]),
            ..WorldSettings::default()
        };
        let both = WorldSettings {
            recency_lambda_per_day: Some(0.5),
            share_between_players: Some(false),
            gossip: Some(true),
            self_told: Some(SelfTold::Private),
            max_relationship_delta: Some(10),
            max_hp_delta: Some(0),
            greeting: Some(Greeting::First),
            reply_language: Some(ReplyLanguage::Player),
            unlocks: Some(vec![]),
            moods: Some(vec!["calm".into()]),
            items: Some(vec!["rope".into()]),
            ..WorldSettings::default()
        };
        assert_eq!(world.overridden_by(&npc), both);
    }
}
