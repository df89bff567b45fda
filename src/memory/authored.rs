//! Authored content: worlds and their NPCs.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use super::language::Language;
use super::{
    action_rule::ActionRule,
    attributes::{AttributeAuthor, AttributeRule},
    clock_settings::ClockSettings,
    keywords::normalise_text,
    tiers::{CurationTuning, PromptTuning, RetentionTuning, SummaryTuning, TaskModels, WorldRecall},
    unlock_rule::UnlockRule,
};
use colloquy_core::ids::{FactionId, NpcId, WorldId};

/// A world as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = WorldView)]
pub struct World {
    #[schema(value_type = String)]
    pub id: WorldId,
    pub name: String,
    /// The common knowledge of the world; in every prompt. At most 4,000 characters.
    pub premise: String,
    pub language: Language,
    /// Rules no NPC may break, one a line; at most 20 of 200 characters.
    pub rules: Vec<String>,
    pub settings: WorldSettings,
    /// Raised by every change of the world's lore; 0: the world never had lore. Read from the store; updates do not
    /// change it.
    #[serde(skip)]
    pub lore_version: u32,
    /// The settings of the tenant. Read from the store; updates do not change them.
    #[serde(skip)]
    pub tenant: TenantTier,
    /// The `ETag`, without its quotes.
    pub version: u32,
    pub updated_at: DateTime<Utc>,
}

/// Settings of a tenant, a world, an NPC, or a session. Precedence: session, NPC, world, tenant, configuration. Unset
/// values come from the next tier.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorldSettings {
    /// Recency decay λ per day, 0–10; default 0.002. For games whose time runs at another speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recency_lambda_per_day: Option<f64>,
    /// How long a line that points at the previous turn waits for what that turn taught, in ms, 0 to 10,000; default
    /// 1,500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_wait_for_memory_ms: Option<u32>,
    /// How memories are weighed and chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub recall: Option<WorldRecall>,
    /// If true, private lines of one player to an NPC may be used with other players. Default false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_between_players: Option<bool>,
    /// If true, NPCs tell every player about their conversations with each other, even closed conversations. Default
    /// false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gossip: Option<bool>,
    /// Who else may hear what an NPC told one player about itself. Default `private`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub self_told: Option<SelfTold>,
    /// The largest change of a relationship in one turn; default 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_relationship_delta: Option<i32>,
    /// The largest change of hit points in one turn; default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hp_delta: Option<i32>,
    /// When an NPC greets with the greeting of its persona; default `first`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub greeting: Option<Greeting>,
    /// The language of an NPC's answers; default `own`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub reply_language: Option<ReplyLanguage>,
    /// The largest change of the count of one item in one turn; default 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_item_delta: Option<u32>,
    /// Moods of NPCs in this world. The mood of a model's answer is mapped to a listed mood, or left out. Default: 20
    /// words, such as `calm`, `happy`, `worried`. Worlds only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moods: Option<Vec<String>>,
    /// Kinds of relationships, in ASCII; other kinds are refused. Default `trust`, `affection`, `respect`, `fear`,
    /// `debt`, `loyalty`, `rivalry`, `hostility`. Worlds only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relationship_kinds: Option<Vec<String>>,
    /// Further words for moods and kinds: from the word to the mood or kind. Common English and Korean words are built
    /// in. Worlds only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synonyms: Option<BTreeMap<String, String>>,
    /// All items of the world; other items are refused. Default: any item. Worlds only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<String>>,
    /// All places of the world; other places are refused. Default: any place. Worlds only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub places: Option<Vec<String>>,
    /// Who changes an item, or brings somebody to a place: by name. Default: `backend` for the items and places that
    /// conditions of lore, scenarios or actions name, or rules of progress; `replies` for all others. Worlds only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<BTreeMap<String, AttributeAuthor>>,
    /// The places next to a place. A link holds in both directions. In a state block, a character with a known place
    /// moves to linked places only, if its place has links. Default: no links. Worlds only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adjacent: Option<BTreeMap<String, Vec<String>>>,
    /// Statuses of characters; other statuses are refused. `dead` is always a status. Default `alive`, `dead`,
    /// `wounded`, `unconscious`, `asleep`, `away`, `captive`, `hidden`. Worlds only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statuses: Option<Vec<String>>,
    /// If true, dead NPCs answer and act. Default false. Worlds only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ghosts_speak: Option<bool>,
    /// Attributes of the studio's own, tracked in the world's state; at most 40. Default: none. Worlds only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Vec<AttributeRule>>,
    /// The clock of the world. Default: no clock; dates and ages follow real time. Worlds only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub clock: Option<ClockSettings>,
    /// Actions that NPCs may ask the backend for; at most 40. Default: none. Worlds only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<ActionRule>>,
    /// Rules that raise a player's progress with an NPC; at most 50. Default: no rules. Worlds only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unlocks: Option<Vec<UnlockRule>>,
    /// Budgets of prompts' sections, and the state block.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub prompt: Option<PromptTuning>,
    /// When a summary is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub summaries: Option<SummaryTuning>,
    /// Curation passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub curation: Option<CurationTuning>,
    /// Models per task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub models: Option<TaskModels>,
    /// How long NPCs remember what they learn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub retention: Option<RetentionTuning>,
}

/// Who may hear what an NPC told one player about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SelfTold {
    /// Every player may, unless the statement names a player or rests on private or locked content.
    Shared,
    /// Only the same player may, as with other private statements.
    Private,
}

/// When an NPC greets with the greeting of its persona, if the persona has a greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Greeting {
    /// At the first meeting with a player. Later greetings come from the model, with the NPC's memories.
    First,
    /// At every greeting.
    Always,
}

/// The language of an NPC's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReplyLanguage {
    /// The NPC's own language, whatever language the player speaks.
    Own,
    /// The language of the player's line; in NPC conversations the language of the world.
    Player,
}

impl World {
    /// The world as `npc` sees it: the NPC's settings override the world's settings, and these the tenant's.
    #[must_use]
    pub fn for_npc(self: Arc<Self>, npc: &Npc) -> Arc<Self> {
        let defaults = WorldSettings::default();
        if npc.settings == defaults && self.tenant.settings == defaults {
            return self;
        }
        let settings = self
            .settings
            .with_defaults(&self.tenant.settings)
            .overridden_by(&npc.settings);
        Arc::new(Self {
            settings,
            ..Arc::unwrap_or_clone(self)
        })
    }
    /// The world of [`Self::for_npc`] in a session: the session's settings override all others.
    #[must_use]
    pub fn for_session(self: Arc<Self>, session: Option<&WorldSettings>) -> Arc<Self> {
        let Some(session) = session else {
            return self;
        };
        Arc::new(Self {
            settings: self.settings.overridden_by(session),
            ..Arc::unwrap_or_clone(self)
        })
    }
}

impl WorldSettings {
    /// True if NPCs tell any player about their conversations with each other.
    #[must_use]
    pub fn allows_gossip(&self) -> bool {
        self.gossip.unwrap_or(false)
    }
    /// These settings, overridden by `overrides`. Unlock rules, lists of words, items and places always come from the
    /// world.
    #[must_use]
    pub fn overridden_by(&self, overrides: &Self) -> Self {
        Self::merge_tiers(self, overrides, self)
    }

    /// These settings of a world, with the tenant's settings where the world has none.
    #[must_use]
    pub fn with_defaults(&self, tenant: &Self) -> Self {
        Self::merge_tiers(tenant, self, self)
    }

    /// `lower` overrides `upper`. The values that only worlds have come from `world`.
    fn merge_tiers(upper: &Self, lower: &Self, world: &Self) -> Self {
        Self {
            recency_lambda_per_day: lower.recency_lambda_per_day.or(upper.recency_lambda_per_day),
            longest_wait_for_memory_ms: lower.longest_wait_for_memory_ms.or(upper.longest_wait_for_memory_ms),
            share_between_players: lower.share_between_players.or(upper.share_between_players),
            gossip: lower.gossip.or(upper.gossip),
            self_told: lower.self_told.or(upper.self_told),
            max_relationship_delta: lower.max_relationship_delta.or(upper.max_relationship_delta),
            max_hp_delta: lower.max_hp_delta.or(upper.max_hp_delta),
            max_item_delta: lower.max_item_delta.or(upper.max_item_delta),
            greeting: lower.greeting.or(upper.greeting),
            reply_language: lower.reply_language.or(upper.reply_language),
            recall: merge_groups(upper.recall.as_ref(), lower.recall.as_ref(), WorldRecall::overridden_by),
            prompt: merge_groups(
                upper.prompt.as_ref(),
                lower.prompt.as_ref(),
                PromptTuning::overridden_by,
            ),
            summaries: merge_groups(
                upper.summaries.as_ref(),
                lower.summaries.as_ref(),
                SummaryTuning::overridden_by,
            ),
            curation: merge_groups(
                upper.curation.as_ref(),
                lower.curation.as_ref(),
                CurationTuning::overridden_by,
            ),
            models: merge_groups(upper.models.as_ref(), lower.models.as_ref(), TaskModels::overridden_by),
            retention: merge_groups(
                upper.retention.as_ref(),
                lower.retention.as_ref(),
                RetentionTuning::overridden_by,
            ),
            moods: world.moods.clone(),
            relationship_kinds: world.relationship_kinds.clone(),
            synonyms: world.synonyms.clone(),
            items: world.items.clone(),
            places: world.places.clone(),
            changed_by: world.changed_by.clone(),
            adjacent: world.adjacent.clone(),
            statuses: world.statuses.clone(),
            ghosts_speak: world.ghosts_speak,
            state: world.state.clone(),
            clock: world.clock.clone(),
            actions: world.actions.clone(),
            unlocks: world.unlocks.clone(),
        }
    }

    /// The attributes of the studio's own.
    #[must_use]
    pub fn attribute_rules(&self) -> &[AttributeRule] {
        self.state.as_deref().unwrap_or_default()
    }

    /// The actions that NPCs may ask for.
    #[must_use]
    pub fn action_rules(&self) -> &[ActionRule] {
        self.actions.as_deref().unwrap_or_default()
    }

    /// True if dead NPCs answer and act.
    #[must_use]
    pub fn lets_ghosts_speak(&self) -> bool {
        self.ghosts_speak.unwrap_or(false)
    }

    /// True if the world has a list of its items.
    #[must_use]
    pub const fn lists_items(&self) -> bool {
        self.items.is_some()
    }

    /// The places next to `place`, in the spelling of the settings; empty: no links are known. Case does not matter.
    #[must_use]
    pub fn places_next_to(&self, place: &str) -> Vec<&str> {
        let is_place = |name: &str| normalise_text(name) == normalise_text(place);
        let links = self.adjacent.iter().flatten();
        let mut places: Vec<&str> = links
            .flat_map(|(from, neighbours)| neighbours.iter().map(move |to| (from.as_str(), to.as_str())))
            .filter_map(|(from, to)| match (is_place(from), is_place(to)) {
                (true, false) => Some(to),
                (false, true) => Some(from),
                _ => None,
            })
            .collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// The rules that raise a player's progress.
    #[must_use]
    pub fn unlock_rules(&self) -> &[UnlockRule] {
        self.unlocks.as_deref().unwrap_or_default()
    }
}

fn merge_groups<T: Clone>(upper: Option<&T>, lower: Option<&T>, merge: fn(&T, &T) -> T) -> Option<T> {
    match (upper, lower) {
        (Some(upper), Some(lower)) => Some(merge(upper, lower)),
        (upper, lower) => lower.or(upper).cloned(),
    }
}

/// The fixed character of an NPC. Play never changes the persona.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Persona {
    /// Role, history and looks of the NPC. At most 4,000 characters.
    pub description: String,
    /// How the NPC speaks. At most 1,000 characters.
    pub speech_style: String,
    /// Limits on the NPC's actions and words, one a line; at most 20 of 200 characters.
    pub boundaries: Vec<String>,
    /// Emotion and gesture tags the NPC may use as `<cue>`; at most 32 of 32 characters.
    pub cues: Vec<String>,
    /// The NPC's first line in a session that asks for a greeting; see `greeting` in the settings. At most 1,000
    /// characters.
    pub greeting: String,
}

/// An NPC as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = NpcView)]
pub struct Npc {
    #[serde(rename = "world_id")]
    #[schema(value_type = String)]
    pub world: WorldId,
    #[schema(value_type = String)]
    pub id: NpcId,
    pub name: String,
    pub persona: Persona,
    pub language: Language,
    #[schema(value_type = Vec<String>)]
    pub factions: Vec<FactionId>,
    /// Replaces the configured reply model.
    pub model: Option<String>,
    /// The NPC's own settings; the world's settings apply to the rest.
    pub settings: WorldSettings,
    /// True if the NPC has scenarios. Otherwise no turn searches for scenarios. Read from the store; updates do not
    /// change it.
    #[serde(skip)]
    pub has_scenarios: bool,
    /// True if a scenario of the NPC has a tell. Read from the store, as above.
    #[serde(skip)]
    pub has_tells: bool,
    /// The `ETag`, without its quotes.
    pub version: u32,
    pub updated_at: DateTime<Utc>,
}

/// The settings of a tenant for all its worlds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TenantTier {
    pub settings: WorldSettings,
    /// Counts edits; 0: the tenant has no settings.
    pub version: u32,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::unlock_rule::{Progress, UnlockWhen};

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
