//! What the sections of a prompt are rendered for: the turn, those who hear it, and the time.

use std::borrow::Cow;

use super::{ages::AgeFormatter, attribution::PromptReader, dead_character::DeadCharacter, templates::Templates};
use crate::{
    disclosure::Disclosable,
    scene::{Scene, SceneMember},
    settings::DialogueSettings,
    turn::TurnInput,
};
use colloquy_core::ids::DialogueId;
use colloquy_memory::{authored::Language, fact::Fact, game_clock::GameClock, summary::Summary, tokens::TokenCounter};

/// The turn of a prompt, as its sections need it.
pub(crate) struct PromptContext<'a> {
    pub templates: &'a Templates,
    /// The settings, with room for the messages of a chat program.
    pub settings: Cow<'a, DialogueSettings>,
    pub input: &'a TurnInput,
    /// The other NPCs who are present, with the dead among them.
    pub scene: Option<&'a Scene>,
    /// The living NPCs that overhear the session.
    pub witnesses: &'a [SceneMember],
    /// Pinned facts and facts of mutable-state kinds, most important first.
    pub standing: &'a [Disclosable<Fact>],
    /// The summaries of the dialogue, in the form that the NPC may tell.
    pub summaries: &'a [Disclosable<Summary>],
    /// The dead of the world at the turn.
    pub dead: Vec<DeadCharacter<'a>>,
    /// The clock of the world; `None`: dates and ages follow real time.
    pub clock: Option<GameClock<'a>>,
    /// Counts the tokens of the model that answers.
    pub counter: TokenCounter,
    /// The raw cosine at which two facts, or two episodes, may count as duplicates.
    pub near_duplicate_cosine: f32,
}

impl PromptContext<'_> {
    pub(crate) fn dialogue(&self) -> DialogueId {
        self.input.dialogue.id
    }
    pub(crate) fn language(&self) -> Language {
        self.input.npc.language
    }
    pub(crate) fn reader(&self) -> PromptReader<'_> {
        PromptReader {
            language: self.language(),
            npc: &self.input.npc.name,
            player: self.input.player.as_ref(),
        }
    }
    pub(crate) fn ages(&self) -> AgeFormatter<'_> {
        AgeFormatter {
            language: self.language(),
            now: self.input.started_at,
            clock: self.clock,
        }
    }
    /// Returns the tokens of a text, for the model that answers.
    pub(crate) fn count(&self, text: &str) -> u32 {
        self.templates.count_tokens(self.counter, text)
    }
}
