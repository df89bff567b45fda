//! The events and notes of a reply's state block, as an extraction is shown them. So the facts and the episode of the
//! turn may hold them, and recall brings them into later prompts.

use std::collections::BTreeSet;

use colloquy_memory::{disclosure::audience::Knower, keywords, state::StateChange};
use colloquy_ports::ledger::jobs::JobInput;

/// The events and notes of a turn that may become memories.
#[derive(Debug, Default)]
pub(super) struct BlockSentences<'a> {
    pub events: Vec<&'a str>,
    pub notes: Vec<&'a str>,
}

impl<'a> BlockSentences<'a> {
    /// Returns the events and notes of the job's turn. A turn that asks to forget has none: they may tell in other words
    /// what is to be forgotten. Nobody said a note, so notes are left out if others than the NPC of the turn learn its
    /// facts, or if players share what the NPC knows.
    pub(super) fn of_turn(job_input: &'a JobInput) -> Self {
        let mut sentences = Self::default();
        if keywords::asks_to_forget(&job_input.turn.player_text) {
            return sentences;
        }
        let only_npc = BTreeSet::from([Knower::Npc(job_input.turn.npc.clone())]);
        let audience = job_input.audience();
        let is_only_learner = audience.knowers == only_npc && audience.private_to.is_some();
        for change in &job_input.block_sentences {
            match change {
                StateChange::Happened { text } => sentences.events.push(text),
                StateChange::Note { text } if is_only_learner => sentences.notes.push(text),
                _ => {}
            }
        }
        sentences
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.notes.is_empty()
    }

    /// Returns the events, and then the notes.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'a str> {
        self.events.iter().chain(&self.notes).copied()
    }
}
