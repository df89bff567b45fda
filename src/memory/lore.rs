//! Lore: what is known of a world, written by authors. A prompt gets the entries that a line is about
//! (docs/algorithms.md#lore).

mod activity;
mod deaths;
mod layer;
mod names;
mod score;
mod sentences;

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::{
    activity::{Mentions, is_in_cooldown, is_sticky},
    deaths::speaks_of_death,
    layer::{LayerRule, LoreLayer},
    names::{NameIndex, NameLookup, has_short_name, is_named_in, names_person},
    score::{LORE_CANDIDATES, LoreScore, LoreTies},
    sentences::SentenceIndex,
};
use super::{
    authored::Npc,
    condition::{Condition, ConditionContext},
    disclosure::{
        audience::Knower,
        secrecy::{Secrecy, Tell, fault_of_conditions, fault_of_label, fault_of_length, fault_of_prose},
    },
    embedded_text::embedded_text,
    keywords::normalise_text,
    state::StateChange,
};
use colloquy_core::ids::{FactionId, LoreId, NpcId, WorldId};

/// Most entries of a world.
pub const MAX_LORE_PER_WORLD: u32 = 10_000;
/// Most turns of `sticky` and `cooldown` together: turns that the buffer always has.
pub const MAX_STAY_TURNS: u32 = 8;

/// The NPCs that know an entry: those listed, and those of a listed faction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KnownBy {
    /// At most 100 ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 100)]
    pub npcs: Vec<NpcId>,
    /// At most 32 ids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 32)]
    pub factions: Vec<FactionId>,
}

impl KnownBy {
    fn is_everybody(&self) -> bool {
        self.npcs.is_empty() && self.factions.is_empty()
    }

    /// Returns the knowers in the form of a fact's knowers.
    #[must_use]
    pub fn knowers(&self) -> BTreeSet<Knower> {
        if self.is_everybody() {
            return BTreeSet::from([Knower::World]);
        }
        let npcs = self.npcs.iter().cloned().map(Knower::Npc);
        npcs.chain(self.factions.iter().cloned().map(Knower::Faction)).collect()
    }

    fn includes(&self, npc: &Npc) -> bool {
        self.is_everybody()
            || self.npcs.contains(&npc.id)
            || npc.factions.iter().any(|faction| self.factions.contains(faction))
    }
}

/// An entry as its author writes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoreText {
    /// The name under which people speak of it; one line.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
    /// Other names. A name or an alias in a line is a mention.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub aliases: Vec<String>,
    /// Other words of lines for which the entry is found. They are no mentions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub keywords: Vec<String>,
    /// What is known, as the NPC reads it.
    #[schema(min_length = 1, max_length = 4000)]
    pub content: String,
    /// Default `A3`.
    #[serde(default)]
    pub layer: LoreLayer,
    /// Other layers under conditions; the first whose conditions hold counts. At most 4.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 4)]
    pub layers: Vec<LayerRule>,
    /// The place of the entry: weighs more while the player is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64)]
    pub place: Option<String>,
    /// Characters of the entry, by their names in the world's state: weighs more while one is near. The prompt says
    /// where they are, and their status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8)]
    pub characters: Vec<String>,
    /// Items of the entry. The prompt says who has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8)]
    pub items: Vec<String>,
    /// Entries that this entry leads to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 16)]
    pub related: Vec<LoreId>,
    /// Who knows the entry. Default: every NPC.
    #[serde(default, skip_serializing_if = "KnownBy::is_everybody")]
    pub known_by: KnownBy,
    /// The conditions under which the entry may be told; all must hold. At most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8)]
    pub when: Vec<Condition>,
    /// What the NPC shows while it knows the entry and `when` does not hold. Without a tell, no prompt has any of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tell: Option<Tell>,
    /// True: in every prompt in which it may be told, before all others. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub always: bool,
    /// Turns for which the entry stays after a line named it, 0 to 8. Default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(minimum = 0, maximum = 8)]
    pub sticky: u32,
    /// Turns for which the entry is left out after it stayed; with `sticky` 0 to 8. Default 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(minimum = 0, maximum = 8)]
    pub cooldown: u32,
    /// Of the entries of one group, a prompt has only the best.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64)]
    pub group: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(turns: &u32) -> bool {
    *turns == 0
}

/// An entry as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = LoreView)]
pub struct LoreEntry {
    #[serde(rename = "world_id")]
    #[schema(value_type = String)]
    pub world: WorldId,
    #[schema(value_type = String)]
    pub id: LoreId,
    #[serde(flatten)]
    pub text: LoreText,
    /// The `ETag`, without its quotes.
    pub version: u32,
    pub updated_at: DateTime<Utc>,
}

impl LoreText {
    /// What the NPC may say of the entry.
    #[must_use]
    pub fn secrecy(&self, npc: &Npc, context: &ConditionContext<'_>) -> Secrecy {
        if !self.known_by.includes(npc) {
            return Secrecy::Locked;
        }
        Secrecy::decide(context.all_hold(&self.when), self.tell.as_ref(), context)
    }

    /// True if the NPC knows the entry and may tell of it in every state of the world.
    #[must_use]
    pub fn is_always_open_to(&self, npc: &Npc) -> bool {
        self.when.is_empty() && self.known_by.includes(npc)
    }

    /// The layer in this state of the world.
    #[must_use]
    pub fn layer_now(&self, context: &ConditionContext<'_>) -> LoreLayer {
        let rule = self.layers.iter().find(|rule| context.all_hold(&rule.when));
        rule.map_or(self.layer, |rule| rule.layer)
    }

    /// True if the prompt's sentence about the entry follows the change: the place or the status of a character of the
    /// entry, or who has an item of it.
    #[must_use]
    pub fn follows_change(&self, change: &StateChange) -> bool {
        let is_among = |names: &[String], name: &str| {
            let normalised = normalise_text(name.trim());
            names.iter().any(|name| normalise_text(name.trim()) == normalised)
        };
        match change {
            StateChange::Location { who, .. } | StateChange::Status { who, .. } => is_among(&self.characters, who),
            StateChange::ItemGained { item, .. }
            | StateChange::ItemLost { item, .. }
            | StateChange::ItemCount { item, .. } => is_among(&self.items, item),
            _ => false,
        }
    }

    /// The text of the entry's vector.
    #[must_use]
    pub fn embedded_text(&self) -> String {
        let names: Vec<String> = self.aliases.iter().chain(&self.keywords).cloned().collect();
        embedded_text(&format!("{}. {}", self.name, self.content), &names)
    }

    /// All faults, each with its field.
    #[must_use]
    pub fn find_faults(&self) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        let mut check =
            |field: &str, fault: Option<String>| faults.extend(fault.map(|fault| (field.to_owned(), fault)));
        check("name", fault_of_label(&self.name, 100));
        let lists: [(&str, &[String], usize); 4] = [
            ("aliases", &self.aliases, 16),
            ("keywords", &self.keywords, 32),
            ("characters", &self.characters, 8),
            ("items", &self.items, 8),
        ];
        for (field, list, max) in lists {
            check(field, fault_of_length(list.len(), max));
            for (nth, label) in list.iter().take(max).enumerate() {
                check(&format!("{field}[{nth}]"), fault_of_label(label, 64));
            }
        }
        check("content", fault_of_prose(&self.content, 4_000));
        for (field, label) in [("place", &self.place), ("group", &self.group)] {
            check(field, label.as_deref().and_then(|label| fault_of_label(label, 64)));
        }
        check("related", fault_of_length(self.related.len(), 16));
        check("known_by.npcs", fault_of_length(self.known_by.npcs.len(), 100));
        check("known_by.factions", fault_of_length(self.known_by.factions.len(), 32));
        check("layers", fault_of_length(self.layers.len(), 4));
        for (nth, rule) in self.layers.iter().take(4).enumerate() {
            let fault = rule.when.is_empty().then(|| "needs a condition".to_owned());
            check(
                &format!("layers[{nth}].when"),
                fault.or_else(|| fault_of_conditions(&rule.when)),
            );
        }
        check("when", fault_of_conditions(&self.when));
        if let Some(tell) = &self.tell {
            let pointless = "a tell needs `when`: without conditions, the entry is always told";
            check("tell", self.when.is_empty().then(|| pointless.to_owned()));
            for (field, fault) in tell.find_faults() {
                check(field, Some(fault));
            }
        }
        let is_too_long = self.sticky.saturating_add(self.cooldown) > MAX_STAY_TURNS;
        let fault = format!("`sticky` and `cooldown` together must be 0 to {MAX_STAY_TURNS}");
        check("sticky", is_too_long.then_some(fault));
        faults
    }
}
