//! A prompt as a turn sends and traces it.

use colloquy_core::ids::{ScenarioId, SummaryId};
use colloquy_memory::{
    directive::DirectiveTrace,
    secrecy::Secrecy,
    trace::{CandidateFate, CandidateTrace, EpisodeTrace, InsightTrace, LoreTrace, ScenarioTrace, SectionTrace},
};
use colloquy_ports::llm::ChatMessage;

/// A prompt within its budgets.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Prompt {
    pub messages: Vec<ChatMessage>,
    /// The tokens of each message with its frame.
    pub message_tokens: Vec<u32>,
    pub sections: Vec<SectionTrace>,
    /// Tokens of all messages, frames included. At most `prompt.total_tokens`.
    pub tokens: u32,
    /// SHA-256 of the messages, hexadecimal.
    pub hash: String,
    /// The fates of all considered facts, best first, at most [`MAX_TRACED`](crate::recall::MAX_TRACED).
    pub candidates: Vec<CandidateTrace>,
    /// The number of found facts in `candidates`.
    pub listed_hits: usize,
    /// The fates of all considered scenarios, best first.
    pub scenarios: Vec<ScenarioTrace>,
    /// The scenarios that have just opened to the player, and whose titles are in the prompt.
    pub opened: Vec<ScenarioId>,
    /// The fates of all considered entries of the lore, best first.
    pub lore: Vec<LoreTrace>,
    /// The positions of the shown [`offers`](super::ActionLines::offers) and
    /// [`outcomes`](super::ActionLines::outcomes).
    pub offers: Vec<usize>,
    pub outcomes: Vec<usize>,
    /// The lines about actions that did not fit.
    pub actions_left_out: usize,
    /// The summaries of the dialogue in the prompt, oldest first.
    pub summaries: Vec<SummaryId>,
    /// The considered episodes; first those to use.
    pub episodes: Vec<EpisodeTrace>,
    /// The directives for the dialogue, best first.
    pub directives: Vec<DirectiveTrace>,
    /// The considered insights, closest first.
    pub insights: Vec<InsightTrace>,
    pub notes: Vec<String>,
}

impl Prompt {
    /// Returns the scenarios whose content is in the prompt.
    pub(crate) fn shown_scenarios(&self) -> impl Iterator<Item = ScenarioId> {
        let used = self
            .scenarios
            .iter()
            .filter(|traced| traced.fate == CandidateFate::Used && traced.secrecy == Secrecy::Open);
        used.map(|traced| traced.scenario.clone())
    }
}
