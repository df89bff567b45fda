//! The scene of a dialogue with several NPCs: the cast, the topic, and the cue that asks for a line.

use std::collections::BTreeSet;

use minijinja::context;

use super::prompt::{Template, TemplateError, Templates, escape_untrusted};
use colloquy_core::ids::{FactionId, NpcId};
use colloquy_memory::{authored::Npc, disclosure::audience::Knower, state::WorldState};
use colloquy_ports::buffer::BufferedTurn;

/// The tag with which a speaker ends the conversation. Removed from the line like a cue.
pub const END_MARK: &str = "end_conversation";

/// An NPC that takes part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SceneMember {
    pub id: NpcId,
    pub name: String,
    pub factions: Vec<FactionId>,
}

impl SceneMember {
    #[must_use]
    pub fn of_npc(npc: &Npc) -> Self {
        Self {
            id: npc.id.clone(),
            name: npc.name.clone(),
            factions: npc.factions.clone(),
        }
    }

    /// True if the NPC is among the knowers of a fact.
    pub(crate) fn is_among(&self, knowers: &BTreeSet<Knower>) -> bool {
        knowers.iter().any(|knower| match knower {
            Knower::Npc(id) => *id == self.id,
            Knower::Faction(faction) => self.factions.contains(faction),
            Knower::World => true,
        })
    }
}

/// The cast and the topic of a dialogue with more participants than one NPC and one player.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scene {
    /// All participating NPCs with the speaker, in the order in which the request named them.
    pub cast: Vec<SceneMember>,
    /// The NPCs of the cast who are dead, and do not answer.
    pub dead: Vec<NpcId>,
    pub topic: Option<String>,
    /// True for the last line: the speaker should end the conversation.
    pub last: bool,
}

impl Scene {
    /// Returns the name of an NPC, or the id of an NPC outside the cast.
    #[must_use]
    pub fn name_of(&self, npc: &NpcId) -> String {
        let member = self.cast.iter().find(|member| member.id == *npc);
        escape_untrusted(member.map_or(npc.as_str(), |member| &member.name))
    }

    /// Sets who of the cast is dead.
    pub fn set_dead(&mut self, state: &WorldState) {
        let is_dead = |member: &&SceneMember| state.is_npc_dead(&member.name, &member.id);
        self.dead = self
            .cast
            .iter()
            .filter(is_dead)
            .map(|member| member.id.clone())
            .collect();
    }

    /// Returns the other living participants.
    pub(crate) fn living_others(&self, npc: &NpcId) -> impl Iterator<Item = &SceneMember> {
        let is_other = move |member: &&SceneMember| member.id != *npc && !self.dead.contains(&member.id);
        self.cast.iter().filter(is_other)
    }

    /// Returns the names of the other living participants.
    #[must_use]
    pub fn other_names(&self, npc: &NpcId) -> Vec<String> {
        self.living_others(npc)
            .map(|member| escape_untrusted(&member.name))
            .collect()
    }

    /// Returns the text that a speaker answers: the topic, and the lines since the speaker's last line.
    #[must_use]
    pub fn heard_by(&self, npc: &NpcId, history: &[BufferedTurn]) -> String {
        let since = history
            .iter()
            .rposition(|turn| turn.npc == *npc)
            .map_or(0, |index| index + 1);
        self.topic
            .as_deref()
            .into_iter()
            .chain(history[since..].iter().map(|turn| turn.reply_text.as_str()))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Renders the message that asks a speaker for the next line.
    pub(super) fn render_next_cue(
        &self,
        templates: &Templates,
        npc: &Npc,
        history: &[BufferedTurn],
    ) -> Result<String, TemplateError> {
        self.render_cue(templates, npc, history.is_empty(), self.last)
    }

    /// Renders the message that asked a speaker for line `number`, as later prompts repeat it.
    pub(super) fn render_earlier_cue(
        &self,
        templates: &Templates,
        npc: &Npc,
        number: u32,
    ) -> Result<String, TemplateError> {
        self.render_cue(templates, npc, number == 1, false)
    }

    fn render_cue(&self, templates: &Templates, npc: &Npc, opening: bool, last: bool) -> Result<String, TemplateError> {
        let values = context! {
            npc_name => npc.name.as_str(),
            others => self.other_names(&npc.id),
            topic => self.topic.as_deref().map(escape_untrusted).unwrap_or_default(),
            opening,
            last,
        };
        templates.render(npc.language, Template::ConversationCue, values)
    }
}
