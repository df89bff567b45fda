//! Redacts summaries and episodes: removes statements that a player asked to forget, or that a person removed from memory.

use chrono::{DateTime, Utc};

use colloquy_memory::{
    episode::Episode,
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
pub(super) fn redact_meeting(all: &[RemovedStatement], meeting: Meeting) -> Meeting {
    let told = |recap: MeetingRecap| {
        let text = summary::without_content(&recap.text, &removed_since(all, recap.since))?;
        Some(MeetingRecap { text, ..recap })
    };
    Meeting {
        summary: meeting.summary.and_then(told),
        ..meeting
    }
}

/// Returns the episodes in the form that the NPC may tell. As in a summary, a statement is also cut from the lines of the
/// same dialogue that came after the request: they may speak of it. An episode that told nothing else is left out.
pub(super) fn redact_episodes(all: &[RemovedStatement], episodes: Vec<Episode>) -> Vec<Episode> {
    let told = |episode: Episode| {
        let text = summary::without_content(&episode.text, &removed_since(all, episode.dialogue.created_at()))?;
        Some(Episode { text, ..episode })
    };
    episodes.into_iter().filter_map(told).collect()
}
