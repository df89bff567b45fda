//! What a turn gathered for a prompt.

use chrono::{DateTime, Utc};

use super::{action_lines::ActionLines, ages::AgeFormatter, attribution::PromptReader, dead_character::DeadCharacter};
use crate::{
    episodes::EpisodeHit,
    lore::FoundLore,
    npc_conversation::Scene,
    overheard::OverheardLine,
    recall::RecallHit,
    scenarios::{NpcPast, OpenedScenario},
    scene::SceneMember,
    turn::OwnPrompt,
};
use colloquy_core::ids::{DialogueId, PlayerId};
use colloquy_memory::{
    authored::{Npc, World},
    directive::SelectedDirectives,
    fact::Fact,
    game_clock::GameClock,
    insight::Insight,
    summary::{Meeting, Summary},
    tokens::TokenCounter,
    trace::TopicGate,
};
use colloquy_ports::{
    buffer::BufferedTurn,
    ledger::{facts::RemovedStatement, scenarios::ScenarioTell},
};

pub(crate) struct PromptMaterial<'a> {
    pub world: &'a World,
    pub npc: &'a Npc,
    pub directives: &'a SelectedDirectives,
    pub dialogue: DialogueId,
    /// The player in the dialogue; `None` in an NPC conversation.
    pub player: Option<&'a PlayerId>,
    /// The other NPCs who are present.
    pub scene: Option<&'a Scene>,
    /// The living NPCs that overhear the session.
    pub witnesses: &'a [SceneMember],
    /// Lines that NPCs said to each other, oldest first.
    pub overheard: &'a [OverheardLine],
    /// The part of the NPC's past that may be told, if the turn is about the past.
    pub past: Option<&'a NpcPast>,
    /// The scenarios that have just opened to the player.
    pub opened: &'a [OpenedScenario],
    /// What the NPC shows of the parts of its past that it keeps to itself.
    pub tells: &'a [ScenarioTell],
    /// The lore that the turn found, if the world has lore.
    pub lore: Option<&'a FoundLore>,
    /// The episodes that the prompt may have, in no particular order.
    pub episodes: &'a [EpisodeHit],
    /// The insights that the prompt may have, closest first.
    pub insights: &'a [Insight],
    /// Notes of a chat program about the scene, oldest first.
    pub scene_notes: &'a [String],
    /// The messages of a chat program that describes the character.
    pub own_prompt: Option<&'a OwnPrompt>,
    pub line: &'a str,
    /// True if the line has words of others than the player.
    pub hears_others: bool,
    /// The beginning of a cut reply that this turn continues.
    pub continued_text: Option<&'a str>,
    /// True if that text is a whole reply, and not one that was cut.
    pub continues_whole: bool,
    pub history: &'a [BufferedTurn],
    pub summaries: &'a [Summary],
    /// What the history says, and no longer holds; latest first.
    pub outdated: &'a [RemovedStatement],
    /// Pinned facts and facts of mutable-state kinds, most important first.
    pub standing: &'a [Fact],
    /// The dead of the world at the turn.
    pub dead: Vec<DeadCharacter<'a>>,
    /// World state, one line per item, already escaped.
    pub world_lines: Vec<String>,
    pub action_lines: &'a ActionLines,
    /// Found facts, scored and confirmed, best first.
    pub hits: &'a [RecallHit],
    /// The raw cosine at which two hits, or two episodes, may count as duplicates.
    pub near_duplicate_cosine: f32,
    /// The required relation between a hit and the line.
    pub gate: TopicGate,
    pub counter: TokenCounter,
    /// The start of the turn. Ages are relative to this time.
    pub now: DateTime<Utc>,
    /// The clock of the world; `None`: dates and ages follow real time.
    pub clock: Option<GameClock<'a>>,
    /// The NPC's last meeting with the player in another session.
    pub meeting: Option<&'a Meeting>,
}

impl PromptMaterial<'_> {
    pub(super) fn reader(&self) -> PromptReader<'_> {
        PromptReader {
            language: self.npc.language,
            npc: &self.npc.name,
            player: self.player,
        }
    }
    pub(super) fn ages(&self) -> AgeFormatter<'_> {
        AgeFormatter {
            language: self.npc.language,
            now: self.now,
            clock: self.clock,
        }
    }
}
