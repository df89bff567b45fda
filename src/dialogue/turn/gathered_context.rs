//! What a turn has read before its prompt.

use std::sync::Arc;

use crate::{
    intent::ClassifiedIntent,
    knowledge::GatheredKnowledge,
    recall::StatePosition,
    scene::{Scene, SceneMember},
};
use colloquy_core::ids::FactId;
use colloquy_memory::{
    disclosure::locks::DisclosureLocks,
    state::WorldState,
    tokens::TokenCounter,
    trace::{CallTrace, Timings},
};

pub(crate) struct GatheredContext {
    /// The scene of a dialogue with several NPCs, with the dead among them.
    pub scene: Option<Scene>,
    /// The living NPCs that overhear the session.
    pub witnesses: Vec<SceneMember>,
    pub intent: ClassifiedIntent,
    /// See [`TurnTrace::not_searched`](colloquy_memory::trace::TurnTrace::not_searched).
    pub not_searched: Vec<String>,
    pub query: String,
    /// What the prompt may have.
    pub knowledge: GatheredKnowledge,
    /// The state of the world, which has its clock.
    pub state: Arc<WorldState>,
    pub state_position: StatePosition,
    /// The facts that were removed from memory, if the removal changed a summary or an episode, or outdated the history.
    pub redacted: Vec<FactId>,
    /// The locked content that earlier prompts of the dialogue had: content that some players may not hear.
    pub locks_before: DisclosureLocks,
    /// Where the player is, or else the NPC.
    pub place: Option<String>,
    pub counter: TokenCounter,
    pub calls: Vec<CallTrace>,
    pub notes: Vec<String>,
    /// Only `embed`, `recall` and `intent` are set.
    pub timings: Timings,
}
