//! Verdicts on content of an earlier prompt, for those who read the prompt again.

use super::disclosable::{Disclosable, Unlocked};
use colloquy_memory::{
    episode::Episode,
    fact::Fact,
    insight::Insight,
    scenario::Scenario,
    summary::Meeting,
    trace::{CandidateFate, OverheardTrace, StoryTrace, TurnTrace},
};

/// A row that the trace of a turn names.
pub(crate) trait TracedRow {
    /// True if the trace names the row as considered for the prompt.
    fn is_traced(&self, trace: &TurnTrace) -> bool;
}

impl TracedRow for Fact {
    fn is_traced(&self, trace: &TurnTrace) -> bool {
        trace.candidates.iter().any(|traced| traced.fact == self.id)
    }
}
impl TracedRow for Scenario {
    fn is_traced(&self, trace: &TurnTrace) -> bool {
        let mut scenarios = trace.scenarios.iter();
        let sources = trace.sources.as_ref();
        scenarios.any(|traced| traced.scenario == self.id)
            || sources.is_some_and(|sources| sources.opened.contains(&self.id))
    }
}
impl TracedRow for Episode {
    fn is_traced(&self, trace: &TurnTrace) -> bool {
        trace.episodes.iter().any(|traced| traced.turn_id == self.turn)
    }
}
impl TracedRow for Insight {
    fn is_traced(&self, trace: &TurnTrace) -> bool {
        trace.insights.iter().any(|traced| traced.insight == self.id)
    }
}
impl TracedRow for StoryTrace {
    fn is_traced(&self, trace: &TurnTrace) -> bool {
        self.fate == CandidateFate::Used && trace.story.contains(self)
    }
}
impl TracedRow for Meeting {
    fn is_traced(&self, trace: &TurnTrace) -> bool {
        let traced = trace.sources.as_ref().and_then(|sources| sources.meeting.as_ref());
        traced.is_some_and(|traced| (traced.since, traced.last_turn_at) == (self.since, self.last_turn_at))
    }
}
/// Lines that an NPC heard, with the turns that they are from.
impl<L> TracedRow for (Option<OverheardTrace>, L) {
    fn is_traced(&self, trace: &TurnTrace) -> bool {
        let traced = trace.sources.as_ref().and_then(|sources| sources.overheard);
        let dialogue = |source: OverheardTrace| source.dialogue;
        traced.is_some() && self.0.map(dialogue) == traced.map(dialogue)
    }
}

/// Gives a row the verdict if the turn with this trace considered the row for its prompt.
pub(crate) fn shown_before<R: TracedRow>(trace: &TurnTrace, row: R) -> Option<Disclosable<R>> {
    row.is_traced(trace).then_some(Disclosable::new(row))
}

/// As [`shown_before`], for a row from which removed statements are cut again.
pub(crate) fn unlocked_before<R: TracedRow>(trace: &TurnTrace, row: R) -> Option<Unlocked<R>> {
    row.is_traced(trace).then_some(Unlocked::new(row))
}

/// Returns the notes of a chat program in the prompt with this trace.
pub(crate) fn scene_notes_before(trace: &TurnTrace) -> Disclosable<Vec<String>> {
    let sources = trace.sources.as_ref();
    Disclosable::new(sources.map_or_else(Vec::new, |sources| sources.scene_notes.clone()))
}
