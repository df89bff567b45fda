//! Model names of chat programs: further names for NPCs, and names for characters that the chat program describes.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::authored::WorldSettings;
use colloquy_core::ids::{NpcId, TenantId, WorldId};

/// A further model name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatModel {
    /// The name in requests.
    pub name: String,
    /// In the configuration: the tenant that has the name; unset: every tenant. Names that a tenant stores have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The world of the NPC. With `proxy`, the world of all characters; unset: a world for each player.
    #[serde(default)]
    pub world: Option<WorldId>,
    /// The NPC that answers.
    #[serde(default)]
    pub npc: Option<NpcId>,
    /// True for characters that the chat program describes.
    #[serde(default)]
    pub proxy: bool,
    /// With `proxy`: the model that answers; unset: the reply model of the server.
    #[serde(default)]
    pub upstream: Option<String>,
    /// With `proxy`: the settings of worlds that are made.
    #[serde(default)]
    pub settings: WorldSettings,
}

/// The model names of a tenant, as they are stored.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatModels {
    pub models: Vec<ChatModel>,
    /// The `ETag`, as a number; 0: the tenant has stored none.
    pub version: u32,
}

/// A fault of a model name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChatModelFault {
    /// The place in the list.
    pub index: usize,
    /// The field, as in [`ChatModel`].
    pub field: &'static str,
    pub problem: &'static str,
}

impl ChatModel {
    /// Returns the faulty field, and what is wrong with it.
    fn find_fault(&self) -> Option<(&'static str, &'static str)> {
        let is_npc = self.npc.is_some() && self.world.is_some() && !self.proxy;
        let is_proxy = self.proxy && self.npc.is_none();
        if self.name.trim().is_empty() {
            Some(("name", "is empty"))
        } else if !is_npc && !is_proxy {
            let field = if self.npc.is_some() && !self.proxy {
                "world"
            } else {
                "npc"
            };
            Some((field, "does not fit: a name has either a world and an NPC, or `proxy`"))
        } else if is_npc && self.upstream.is_some() {
            Some(("upstream", "is for `proxy` alone"))
        } else if is_npc && self.settings != WorldSettings::default() {
            Some(("settings", "is for `proxy` alone"))
        } else {
            None
        }
    }
}

/// Returns the faults of a list of model names, at most one for each name.
#[must_use]
pub fn find_faults(models: &[ChatModel]) -> Vec<ChatModelFault> {
    let mut names = HashSet::new();
    let mut faults = Vec::new();
    for (index, model) in models.iter().enumerate() {
        let is_new = names.insert((&model.tenant, &model.name));
        let twice = (!is_new).then_some(("name", "is there twice"));
        if let Some((field, problem)) = model.find_fault().or(twice) {
            faults.push(ChatModelFault { index, field, problem });
        }
    }
    faults
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn faults_name_their_field() {
        let models = json!([
            {"name": "a", "world": "vale", "npc": "mira"},
            {"name": "b", "proxy": true, "world": "stories", "upstream": "big", "settings": {"gossip": true}},
            {"name": "c", "proxy": true},
            {"name": "a", "tenant": "demo", "proxy": true},
            {"name": " ", "proxy": true},
            {"name": "d", "npc": "mira"},
            {"name": "e", "world": "vale"},
            {"name": "f", "world": "vale", "npc": "mira", "proxy": true},
            {"name": "g", "world": "vale", "npc": "mira", "upstream": "big"},
            {"name": "h", "world": "vale", "npc": "mira", "settings": {"gossip": true}},
            {"name": "a", "proxy": true},
        ]);
        let models: Vec<ChatModel> = serde_json::from_value(models).unwrap();
        let faults = find_faults(&models);
        let faults: Vec<_> = faults.iter().map(|fault| (fault.index, fault.field)).collect();
        assert_eq!(
            faults,
            [
                (4, "name"),
                (5, "world"),
                (6, "npc"),
                (7, "npc"),
                (8, "upstream"),
                (9, "settings"),
                (10, "name")
            ]
        );
    }
}
