//! What a turn has read before its prompt.

use std::sync::Arc;

use crate::{
    actions::TurnActions,
    episodes::EpisodeHit,
    intent::ClassifiedIntent,
    lore::FoundLore,
    overheard,
    recall::{RecallHit, StatePosition},
    scenarios::{NpcPast, OpenedScenario},
    scene::{Scene, SceneMember},
};
use colloquy_core::ids::FactId;
use colloquy_memory::{
    fact::Fact,
    insight::Insight,
    locks::DisclosureLocks,
    state::WorldState,
    summary::{Meeting, Summary},
    tokens::TokenCounter,
    trace::{CallTrace, Timings, TopicGate},
};
use colloquy_ports::ledger::{facts::RemovedStatement, scenarios::ScenarioTell};

pub(crate) struct GatheredContext {
    /// The scene of a dialogue with several NPCs, with the dead among them.
    pub scene: Option<Scene>,
    /// The living NPCs that overhear the session.
    pub witnesses: Vec<SceneMember>,
    pub intent: ClassifiedIntent,
    /// See [`TurnTrace::not_searched`](colloquy_memory::trace::TurnTrace::not_searched).
    pub not_searched: Vec<String>,
    pub query: String,
    pub hits: Vec<RecallHit>,
    /// The number of found facts, of which `hits` may have only the best.
    pub found_facts: usize,
    /// How closely the hits must match the line.
    pub gate: TopicGate,
    pub standing: Vec<Fact>,
    pub world_lines: Vec<String>,
    /// The state of the world, which has its clock.
    pub state: Arc<WorldState>,
    pub state_position: StatePosition,
    pub actions: TurnActions,
    /// The NPC's last talk with the player in another session.
    pub meeting: Option<Meeting>,
    /// The summaries of turns before the history, in the form that the NPC may tell.
    pub summaries: Vec<Summary>,
    /// What the history says, and no longer holds.
    pub outdated: Vec<RemovedStatement>,
    /// The facts that were removed from memory, if the removal changed a summary or an episode, or outdated the history.
    pub redacted: Vec<FactId>,
    /// The lines that NPCs said to each other, if the turn needs them.
    pub overheard: overheard::OverheardLines,
    /// The locked content that earlier prompts of the dialogue had: content that some players may not hear.
    pub locks_before: DisclosureLocks,
    /// The NPC's own past, as far as the NPC may tell it, if the turn needs it.
    pub past: Option<NpcPast>,
    /// The scenarios that have just opened to the player.
    pub opened: Vec<OpenedScenario>,
    /// What the NPC shows of the parts of its past that it keeps to itself.
    pub tells: Vec<ScenarioTell>,
    /// The lore that the turn found, if the world has lore.
    pub lore: Option<FoundLore>,
    /// The episodes that the prompt may have.
    pub episodes: Vec<EpisodeHit>,
    /// The insights that the prompt may have, closest first.
    pub insights: Vec<Insight>,
    /// Where the player is, or else the NPC.
    pub place: Option<String>,
    pub counter: TokenCounter,
    pub calls: Vec<CallTrace>,
    pub notes: Vec<String>,
    /// Only `embed`, `recall` and `intent` are set.
    pub timings: Timings,
}
