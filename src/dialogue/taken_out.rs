//! Summaries without what was taken out of memory since: what a player asked to forget, or a person removed.

use chrono::{DateTime, Utc};

use crate::{
    memory::summary::{self, Meeting, Recap, Summary},
    ports::ledger::facts::TakenOut,
};

fn since(all: &[TakenOut], began: DateTime<Utc>) -> Vec<&str> {
    let gone = all.iter().filter(|gone| gone.at >= began);
    gone.map(|gone| gone.content.as_str()).collect()
}

/// The summaries of a dialogue that began at `began`, as they may be told.
pub(super) fn of_summaries(all: &[TakenOut], began: DateTime<Utc>, summaries: &[Summary]) -> Vec<Summary> {
    let gone = since(all, began);
    let told = |summary: &Summary| {
        let text = summary::without(&summary.text, &gone)?;
        Some(Summary {
            text,
            ..summary.clone()
        })
    };
    summaries.iter().filter_map(told).collect()
}

/// A meeting, with its summary as it may be told.
pub(super) fn of_meeting(all: &[TakenOut], meeting: Meeting) -> Meeting {
    let told = |recap: Recap| {
        let text = summary::without(&recap.text, &since(all, recap.since))?;
        Some(Recap { text, ..recap })
    };
    Meeting {
        summary: meeting.summary.and_then(told),
        ..meeting
    }
}
