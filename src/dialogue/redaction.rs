//! Summaries without what was taken out of memory since: what a player asked to forget, or a person removed.

use chrono::{DateTime, Utc};

use crate::{
    memory::summary::{self, Meeting, MeetingRecap, Summary},
    ports::ledger::facts::RemovedStatement,
};

fn removed_since(all: &[RemovedStatement], began: DateTime<Utc>) -> Vec<&str> {
    let gone = all.iter().filter(|gone| gone.at >= began);
    gone.map(|gone| gone.content.as_str()).collect()
}

/// The summaries of a dialogue that began at `began`, as they may be told.
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

/// A meeting, with its summary as it may be told.
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
