//! A turn's knowledge of scenarios before the line is classified, and the scenarios that the turn may tell.

use chrono::{DateTime, Utc};

use crate::disclosure::Disclosable;
use colloquy_core::ids::{NpcId, ScenarioId};
use colloquy_memory::{
    progress::{Progress, ProgressState},
    scenario::{Scenario, ScenarioNews, ScenarioScore},
    trace::CandidateFate,
    turn::Checkpoint,
};
use colloquy_ports::ledger::scenarios::ScenarioTitle;

/// The player's progress and the NPC's recent scenarios, read before the line is classified.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownScenarios {
    pub(super) standing: ProgressState,
    /// The recent scenarios, latest first.
    pub(super) recent: Vec<RecentScenario>,
    /// The titles of all open scenarios. `None`: nothing could be recent, so no titles were read.
    pub(super) open_titles: Option<Vec<Disclosable<ScenarioTitle>>>,
}

/// A scenario that was unlocked or told lately.
#[derive(Debug, Clone)]
pub(super) struct RecentScenario {
    pub id: ScenarioId,
    pub title: Disclosable<String>,
    pub latest_at: DateTime<Utc>,
    /// True if the scenario was unlocked lately.
    pub opened: bool,
    /// True if a reply of the dialogue told the scenario.
    pub is_told: bool,
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
            .filter(move |recent| last.is_some_and(|last| recent.latest_at >= last));
        new.map(|recent| &recent.id)
    }

    /// Returns what is new about a scenario: a reply of the dialogue told it, or the last turns opened it.
    pub(super) fn news_of(&self, checkpoint: &Checkpoint, scenario: &Scenario) -> Option<ScenarioNews> {
        let required = scenario.required_progress;
        if is_told(checkpoint, &self.standing, &scenario.npc, &scenario.id, required) {
            return Some(ScenarioNews::Told);
        }
        let mut opened = self.recent.iter().filter(|recent| recent.opened);
        opened
            .any(|recent| recent.id == scenario.id)
            .then_some(ScenarioNews::Opened)
    }

    /// Returns the scenarios that opened in the last turns and were not told since, latest first.
    pub(crate) fn opened(&self) -> Vec<OpenedScenario> {
        let untold = self.recent.iter().filter(|recent| recent.opened && !recent.is_told);
        let opened = untold.map(|recent| OpenedScenario {
            id: recent.id.clone(),
            title: recent.title.clone(),
        });
        opened.collect()
    }

    /// Returns the titles of recently told scenarios, or else of recently unlocked, untold scenarios. Locked titles are
    /// absent.
    pub(crate) fn recent_titles(&self, is_told: bool) -> impl Iterator<Item = &str> {
        let recent = self.recent.iter();
        let recent = recent.filter(move |recent| recent.is_told == is_told && (is_told || recent.opened));
        recent.map(|recent| recent.title.as_str())
    }
}

/// True if a reply of the dialogue told the scenario, and the scenario has been open since before that reply. A turn
/// opens a scenario after its reply.
pub(super) fn is_told(
    checkpoint: &Checkpoint,
    standing: &ProgressState,
    npc: &NpcId,
    scenario: &ScenarioId,
    required: Progress,
) -> bool {
    let told_at = checkpoint.told_at(npc, scenario);
    told_at.is_some_and(|told_at| standing.enough_since(required).is_none_or(|since| since < told_at))
}

/// A scenario that has just opened to the player.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenedScenario {
    pub id: ScenarioId,
    pub title: Disclosable<String>,
}

impl From<Disclosable<Scenario>> for OpenedScenario {
    fn from(scenario: Disclosable<Scenario>) -> Self {
        Self {
            id: scenario.id.clone(),
            title: scenario.map(|scenario| scenario.title),
        }
    }
}

/// A scenario that the NPC keeps to itself, and what it shows of the scenario.
#[derive(Debug, Clone)]
pub(crate) struct GuardedScenario {
    pub id: ScenarioId,
    /// For a trace. No prompt has the title.
    pub title: String,
    pub tell: Disclosable<String>,
}

/// A scenario that may be told.
#[derive(Debug, Clone)]
pub(crate) struct ScenarioHit {
    pub scenario: Disclosable<Scenario>,
    pub score: ScenarioScore,
    pub recent: bool,
    pub news: Option<ScenarioNews>,
    /// True if only its meaning bears on the line.
    pub by_meaning: bool,
    /// `TooWeak`, or `BeyondTopK` until the prompt's assembly decides.
    pub fate: CandidateFate,
}

/// The NPC's past in a turn that is about the past.
#[derive(Debug, Clone)]
pub(crate) struct NpcPast {
    /// The player's progress.
    pub progress: Progress,
    /// True if the line asks for the past.
    pub is_asked: bool,
    /// The scenarios, best first.
    pub hits: Vec<ScenarioHit>,
}

impl NpcPast {
    /// Leaves out what only its meaning brings: the line names something else, which the NPC keeps to itself.
    pub(crate) fn leave_out_found_by_meaning(&mut self) {
        for hit in self.hits.iter_mut().filter(|hit| hit.by_meaning) {
            hit.fate = CandidateFate::TooWeak;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
impl ScenarioHit {
    /// Returns an untold scenario that needs progress 3, with `news`.
    pub(crate) fn sample(id: &str, news: Option<ScenarioNews>) -> Self {
        Self {
            scenario: Disclosable::sample(Scenario {
                world: "vale".parse().unwrap(),
                npc: "mira".parse().unwrap(),
                id: id.parse().unwrap(),
                title: format!("The {id}"),
                content: "It burnt.".to_owned(),
                keywords: vec![],
                synonyms: vec![],
                required_progress: Progress::new(3).unwrap(),
                when: vec![],
                tell: None,
                version: 1,
                updated_at: DateTime::UNIX_EPOCH,
            }),
            score: ScenarioScore::default(),
            recent: news.is_some(),
            news,
            by_meaning: false,
            fate: CandidateFate::BeyondTopK,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn scenario_is_news_until_it_is_told() {
        let mut checkpoint = Checkpoint::default();
        let told = ["well", "mill"].map(|id| id.parse().unwrap());
        checkpoint.record_told_scenarios(&"mira".parse().unwrap(), DateTime::UNIX_EPOCH, told);
        let recent = |id: &str, opened: bool, told: bool| RecentScenario {
            id: id.parse().unwrap(),
            title: Disclosable::default(),
            latest_at: DateTime::UNIX_EPOCH,
            opened,
            is_told: told,
        };
        let known = KnownScenarios {
            recent: vec![
                recent("well", true, true),
                recent("tower", true, false),
                recent("ford", false, false),
            ],
            ..KnownScenarios::default()
        };
        let news = ["well", "mill", "tower", "ford", "barn"]
            .map(|id| known.news_of(&checkpoint, &ScenarioHit::sample(id, None).scenario));
        let told = Some(ScenarioNews::Told);
        let opened = Some(ScenarioNews::Opened);
        assert_eq!(news, [told, told, opened, None, None]);
    }
}
