//! Redacts summaries, episodes and insights: removes statements that a player asked to forget, or that a person removed from memory.

use chrono::{DateTime, Utc};

use super::episodes::EpisodeHit;
use colloquy_core::ids::FactId;
use colloquy_memory::{
    episode::Episode,
    insight::Insight,
    summary::{self, Meeting, MeetingRecap, Summary},
};
use colloquy_ports::ledger::facts::RemovedStatement;

fn removed_since(all: &[RemovedStatement], began: DateTime<Utc>) -> Vec<&str> {
    let gone = all.iter().filter(|gone| gone.at >= began);
    gone.map(|gone| gone.content.as_str()).collect()
}

/// Returns the summaries of a dialogue that began at `began`, in the form that the NPC may tell.
pub(super) fn redact_summaries(all: &[RemovedStatement], began: DateTime<Utc>, summaries: &[Summary]) -> Vec<Summary> {
    let gone = removed_since(all, began);
    let told = |summary: &Summary| {
        let text = summary::without_content(&summary.text, &gone)?;
        Some(Summary {
            text,
            ..summary.clone()
        })
    };
    summaries.iter().filter_map(told).collect()
}

/// Returns the meeting, with its summary in the form that the NPC may tell.
fn redact_meeting(all: &[RemovedStatement], meeting: Meeting) -> Meeting {
    let told = |recap: MeetingRecap| {
        let text = summary::without_content(&recap.text, &removed_since(all, recap.since))?;
        Some(MeetingRecap { text, ..recap })
    };
    Meeting {
        summary: meeting.summary.and_then(told),
        ..meeting
    }
}

/// Returns the episodes in the form that the NPC may tell, each with whether its text was changed. As in a summary, a
/// statement is also cut from the lines of the same dialogue that came after the request: they may speak of it. An episode
/// that told nothing else is left out.
pub(super) fn redact_episodes(all: &[RemovedStatement], episodes: Vec<Episode>) -> Vec<(Episode, bool)> {
    let told = |episode: Episode| {
        let text = summary::without_content(&episode.text, &removed_since(all, episode.dialogue.created_at()))?;
        let changed = text != episode.text;
        Some((Episode { text, ..episode }, changed))
    };
    episodes.into_iter().filter_map(told).collect()
}

/// Returns the insights in the form that the NPC may tell, as [`redact_episodes`] does.
pub(super) fn redact_insights(all: &[RemovedStatement], insights: Vec<Insight>) -> Vec<Insight> {
    let told = |insight: Insight| {
        let text = summary::without_content(&insight.text, &removed_since(all, insight.dialogue.created_at()))?;
        Some(Insight { text, ..insight })
    };
    insights.into_iter().filter_map(told).collect()
}

/// The summaries of a dialogue and the last meeting, in the form that the NPC may tell.
pub(super) struct ToldTexts {
    pub summaries: Vec<Summary>,
    pub meeting: Option<Meeting>,
    /// True if a text differs from the stored text.
    changed: bool,
}

impl ToldTexts {
    /// Returns the removed facts, if a removal changed one of these texts or an episode.
    pub(super) fn redacting_facts(&self, all: &[RemovedStatement], episodes: &[EpisodeHit]) -> Vec<FactId> {
        let has_cuts = self.changed || episodes.iter().any(|hit| hit.redacted);
        all.iter().filter(|_| has_cuts).map(|gone| gone.fact).collect()
    }
}

/// Redacts the summaries of a dialogue that began at `began`, and the last meeting.
pub(super) fn redact_texts(
    all: &[RemovedStatement],
    began: DateTime<Utc>,
    summaries: &[Summary],
    meeting: Option<&Meeting>,
) -> ToldTexts {
    let told = (
        redact_summaries(all, began, summaries),
        meeting.map(|meeting| redact_meeting(all, meeting.clone())),
    );
    ToldTexts {
        changed: told.0 != summaries || told.1.as_ref() != meeting,
        summaries: told.0,
        meeting: told.1,
    }
}
