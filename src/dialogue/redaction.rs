//! Redacts summaries, episodes and insights: removes statements that a player asked to forget, or that a person removed
//! from memory or corrected. Marks what was corrected since the history of a running session was said.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};

use super::episodes::EpisodeHit;
use colloquy_core::ids::FactId;
use colloquy_memory::{
    episode::Episode,
    fact::Fact,
    insight::Insight,
    keywords::informative_terms,
    summary::{Meeting, MeetingRecap, RemovedText, Summary, tells_removed, without_removed},
};
use colloquy_ports::{
    buffer::BufferedTurn,
    ledger::{dialogues::Dialogue, facts::RemovedStatement},
};

/// Returns what was removed since a dialogue began: the statements, and the words of the requests to forget them.
fn removed_since(all: &[RemovedStatement], began: DateTime<Utc>) -> Vec<RemovedText<'_>> {
    let removed = all.iter().filter(|removed| removed.at >= began);
    let texts = removed.flat_map(|removed| {
        // Stop words alone would be in every sentence.
        let requests = removed
            .requests
            .iter()
            .filter(|words| !informative_terms(words).is_empty());
        let requests = requests.map(|words| RemovedText {
            content: words,
            correction: None,
        });
        [removed_text(removed)].into_iter().chain(requests)
    });
    texts.collect()
}

/// Returns the text without what was removed, by the words of the statements and of the requests to forget, whenever it
/// was said. `None`: nothing is left.
pub(super) fn redact_text(all: &[RemovedStatement], text: &str) -> Option<String> {
    without_removed(text, &removed_since(all, DateTime::UNIX_EPOCH))
}

fn removed_text(removed: &RemovedStatement) -> RemovedText<'_> {
    RemovedText {
        content: &removed.content,
        correction: removed.correction.as_deref(),
    }
}

/// The most corrections that a prompt marks.
const MAX_MARKED: usize = 8;

/// Returns the statements of the history that a person has removed or corrected since the dialogue began, latest first.
/// The history shows turns whole, so the prompt must say what no longer holds.
fn outdated_in_history(
    all: &[RemovedStatement],
    dialogue: &Dialogue,
    history: &[BufferedTurn],
) -> Vec<RemovedStatement> {
    let is_in_history = |removed: &&RemovedStatement| {
        let text = removed_text(removed);
        history.iter().any(|turn| {
            removed.is_original && removed.source == Some((dialogue.id, turn.number))
                || [&turn.player_text, &turn.reply_text]
                    .into_iter()
                    .any(|said| tells_removed(said, &text))
        })
    };
    all.iter()
        .filter(|removed| !removed.is_forgotten && removed.at >= dialogue.created_at)
        .filter(is_in_history)
        .take(MAX_MARKED)
        .cloned()
        .collect()
}

/// Leaves out ended promises of whose matter something was removed from memory.
pub(super) fn retain_unforgotten(all: &[RemovedStatement], mut promises: Vec<Fact>) -> Vec<Fact> {
    promises.retain(|promise| {
        let content = &promise.view.content;
        without_removed(content, &removed_since(all, promise.valid_at)).as_ref() == Some(content)
    });
    promises
}

/// Returns the summaries of a dialogue that began at `began`, in the form that the NPC may tell.
pub(super) fn redact_summaries(all: &[RemovedStatement], began: DateTime<Utc>, summaries: &[Summary]) -> Vec<Summary> {
    let removed = removed_since(all, began);
    let told = |summary: &Summary| {
        let text = without_removed(&summary.text, &removed)?;
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
        let text = without_removed(&recap.text, &removed_since(all, recap.since))?;
        Some(MeetingRecap { text, ..recap })
    };
    Meeting {
        summary: meeting.summary.and_then(told),
        ..meeting
    }
}

/// Returns the episodes in the form that the NPC may tell, each with whether its text was changed. As in a summary, a
/// statement is also cut from the lines of the same dialogue that came after the request: they may speak of it. An
/// episode that told nothing else is left out.
pub(super) fn redact_episodes(all: &[RemovedStatement], episodes: Vec<Episode>) -> Vec<(Episode, bool)> {
    let told = |episode: Episode| {
        let text = without_removed(&episode.text, &removed_since(all, episode.dialogue.created_at()))?;
        let changed = text != episode.text;
        Some((Episode { text, ..episode }, changed))
    };
    episodes.into_iter().filter_map(told).collect()
}

/// Returns the insights in the form that the NPC may tell, as [`redact_episodes`] does. An insight that rests on a turn
/// is left out with every forgotten or removed statement that the turn taught: it may tell what follows from the
/// statement in other words.
pub(super) fn redact_insights(all: &[RemovedStatement], insights: Vec<Insight>) -> Vec<Insight> {
    let rests_on = |insight: &Insight, removed: &RemovedStatement| {
        let source = removed.source.filter(|(dialogue, _)| *dialogue == insight.dialogue);
        removed.correction.is_none() && source.is_some_and(|(_, turn)| insight.turns.contains(&turn))
    };
    let told = |insight: Insight| {
        if all.iter().any(|removed| rests_on(&insight, removed)) {
            return None;
        }
        let text = without_removed(&insight.text, &removed_since(all, insight.dialogue.created_at()))?;
        Some(Insight { text, ..insight })
    };
    insights.into_iter().filter_map(told).collect()
}

/// The summaries of a dialogue and the last meeting, in the form that the NPC may tell.
pub(super) struct ToldTexts {
    pub summaries: Vec<Summary>,
    pub meeting: Option<Meeting>,
    /// What the history says, and no longer holds.
    pub outdated: Vec<RemovedStatement>,
    /// True if a text differs from the stored text.
    changed: bool,
}

impl ToldTexts {
    /// Returns the removed facts, if a removal changed one of these texts or an episode, or outdated the history.
    pub(super) fn redacting_facts(&self, all: &[RemovedStatement], episodes: &[EpisodeHit]) -> Vec<FactId> {
        let is_needed = self.changed || !self.outdated.is_empty() || episodes.iter().any(|hit| hit.redacted);
        let facts: BTreeSet<FactId> = all.iter().filter(|_| is_needed).map(|removed| removed.fact).collect();
        facts.into_iter().collect()
    }
}

/// Redacts the summaries of a dialogue, and the last meeting. Finds what no longer holds of the history.
pub(super) fn redact_texts(
    all: &[RemovedStatement],
    (dialogue, history): (&Dialogue, &[BufferedTurn]),
    summaries: &[Summary],
    meeting: Option<&Meeting>,
) -> ToldTexts {
    let told = (
        redact_summaries(all, dialogue.created_at, summaries),
        meeting.map(|meeting| redact_meeting(all, meeting.clone())),
    );
    ToldTexts {
        changed: told.0 != summaries || told.1.as_ref() != meeting,
        summaries: told.0,
        meeting: told.1,
        outdated: outdated_in_history(all, dialogue, history),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_request_are_left_out_beside_those_of_the_fact() {
        let removed = |requests: &[&str]| {
            [RemovedStatement {
                fact: FactId::from_u128(1),
                content: "The player borrowed money of a usurer in Harrow Fen for a passage and a coat.".to_owned(),
                requests: requests.iter().map(|words| (*words).to_owned()).collect(),
                at: DateTime::UNIX_EPOCH,
                correction: None,
                source: None,
                is_original: true,
                is_forgotten: true,
                is_locked: false,
            }]
        };
        let summary =
            "They spoke of maps. The player owes forty shillings to a moneylender called Corbin and has told nobody.";
        let request = ["a debt of forty shillings to the moneylender Corbin"];
        assert_eq!(
            redact_text(&removed(&request), summary).as_deref(),
            Some("They spoke of maps.")
        );
        for requests in [&[][..], &["what the player said"]] {
            assert_eq!(
                redact_text(&removed(requests), summary).as_deref(),
                Some(summary),
                "{requests:?}"
            );
        }
    }
}
