//! A prompt as a turn sends and traces it.

use colloquy_core::ids::ScenarioId;
use colloquy_memory::{
    disclosure::secrecy::Secrecy,
    trace::{CandidateFate, TurnTrace},
};
use colloquy_ports::llm::ChatMessage;

/// A prompt within its budgets.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Prompt {
    pub messages: Vec<ChatMessage>,
    /// The tokens of each message with its frame.
    pub message_tokens: Vec<u32>,
    /// The content of the prompt: its sections, its size, its hash, and what became of all considered knowledge. The rest
    /// of the trace is empty.
    pub trace: TurnTrace,
}

impl Prompt {
    /// Returns the scenarios whose content is in the prompt.
    pub(crate) fn shown_scenarios(&self) -> impl Iterator<Item = ScenarioId> {
        let used = self
            .trace
            .scenarios
            .iter()
            .filter(|traced| traced.fate == CandidateFate::Used && traced.secrecy == Secrecy::Open);
        used.map(|traced| traced.scenario.clone())
    }
}
