//! The knowledge that a turn taught, before the write.

use colloquy_core::ids::FactId;
use colloquy_memory::{
    fact::{Importance, Statement},
    timeline::PromiseEnd,
};

/// A new fact before the write.
#[derive(Debug, Clone)]
pub(super) struct FreshFact {
    pub id: FactId,
    pub statement: Statement,
    pub pii: Vec<String>,
    /// A unit vector; empty if the embedder was away.
    pub embedding: Vec<f32>,
}

/// The episode of the turn before the write.
#[derive(Debug, Clone)]
pub(super) struct FreshEpisode {
    pub text: String,
    pub importance: Importance,
    /// A unit vector; empty if the embedder was away.
    pub embedding: Vec<f32>,
}

/// The knowledge that a turn taught.
#[derive(Debug, Clone, Default)]
pub(super) struct LearnedFacts {
    pub facts: Vec<FreshFact>,
    /// The player's requests to forget, in words.
    pub forget: Vec<String>,
    /// The promises and goals that are over.
    pub ends: Vec<PromiseEnd>,
    /// The episode of a turn with a player.
    pub episode: Option<FreshEpisode>,
    /// The model's answer, for a later attempt of the job.
    pub answer: String,
}

impl LearnedFacts {
    pub(super) fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.forget.is_empty() && self.ends.is_empty() && self.episode.is_none()
    }
}
