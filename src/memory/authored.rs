//! Authored content: worlds and their NPCs.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use super::{
    language::Language,
    settings::{Greeting, IntentClassification, ReplyLanguage, SelfTold, TierSettings, WorldSettings},
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

impl World {
    /// The world as `npc` sees it: the NPC's settings override the world's settings, and these the tenant's.
    #[must_use]
    pub fn for_npc(self: Arc<Self>, npc: &Npc) -> Arc<Self> {
        let defaults = TierSettings::default();
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
    pub fn for_session(self: Arc<Self>, session: Option<&TierSettings>) -> Arc<Self> {
        let Some(session) = session else {
            return self;
        };
        Arc::new(Self {
            settings: self.settings.overridden_by(session),
            ..Arc::unwrap_or_clone(self)
        })
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
    pub settings: TierSettings,
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
    pub settings: TierSettings,
    /// Counts edits; 0: the tenant has no settings.
    pub version: u32,
}
