//! A turn's knowledge of scenarios before the line is classified, and the scenarios that the turn may tell.

use chrono::{DateTime, Utc};

use colloquy_core::ids::ScenarioId;
use colloquy_memory::{
    progress::{Progress, ProgressState},
    scenario::{Scenario, ScenarioScore},
    trace::CandidateFate,
    turn::Checkpoint,
};

/// The player's progress and the NPC's recent scenarios, read before the line is classified.
#[derive(Debug, Default)]
pub(crate) struct KnownScenarios {
    pub(super) standing: ProgressState,
    /// The recent scenarios, latest first.
    pub(super) recent: Vec<RecentScenario>,
}

/// A scenario that was unlocked or told lately.
#[derive(Debug)]
pub(super) struct RecentScenario {
    pub id: ScenarioId,
    pub title: String,
    pub at: DateTime<Utc>,
    /// True if the scenario was told; false if it was only unlocked.
    pub told: bool,
}

impl KnownScenarios {
    /// Returns the player's progress with the NPC.
    pub(crate) fn progress(&self) -> Progress {
        self.standing.progress()
    }

    /// Returns the scenarios that the last turn told, or that were unlocked by it or since.
    pub(super) fn since_last_turn(&self, checkpoint: &Checkpoint) -> impl Iterator<Item = &ScenarioId> {
        let last = checkpoint.commits.last().copied();
        let new = self
            .recent
            .iter()
            .filter(move |recent| last.is_some_and(|last| recent.at >= last));
        new.map(|recent| &recent.id)
    }

    /// Returns the titles of recently told scenarios, or else of recently unlocked, untold scenarios. Locked titles are
    /// absent.
    pub(crate) fn recent_titles(&self, told: bool) -> impl Iterator<Item = &str> {
        let recent = self.recent.iter().filter(move |recent| recent.told == told);
        recent.map(|recent| recent.title.as_str())
    }
}

/// A scenario that may be told.
#[derive(Debug, Clone)]
pub(crate) struct ScenarioHit {
    pub scenario: Scenario,
    pub score: ScenarioScore,
    pub recent: bool,
    /// `TooWeak`, or `BeyondTopK` until the prompt's assembly decides.
    pub fate: CandidateFate,
}

/// The NPC's past in a turn that is about the past.
#[derive(Debug)]
pub(crate) struct NpcPast {
    /// The player's progress.
    pub progress: Progress,
    /// True if the line asks for the past.
    pub asked: bool,
    /// The scenarios, best first.
    pub hits: Vec<ScenarioHit>,
}
