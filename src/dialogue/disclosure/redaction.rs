//! Redacts summaries, episodes and insights: removes statements that a player asked to forget, or that a person removed
//! from memory or corrected. Marks what was corrected since the history of a running session was said, and masks it in
//! lines that are read for a summary or by a curation pass.

use std::collections::{BTreeSet, HashSet};

use chrono::{DateTime, Utc};

use super::disclosable::{Disclosable, Unlocked};
use crate::Services;
use colloquy_core::{
    ids::{DialogueId, FactId},
    planted_leak,
    scope::TenantScope,
};
use colloquy_memory::{
    episode::Episode,
    fact::Fact,
    insight::Insight,
    keywords::{TermWeights, document_terms, informative_terms},
    summary::{Meeting, MeetingRecap, RemovedText, RemovedWords, Summary, without_removed},
    trace::{CandidateFate, StoryPart, StoryTrace},
    turn::Turn,
};
use colloquy_ports::{
    StoreResult,
    buffer::BufferedTurn,
    ledger::{curation::StoryRow, dialogues::Dialogue, facts::RemovedStatement, jobs::JobInput},
};

/// The limit of standing facts per sort (more than any budget takes), and of statements that were removed from memory.
pub(crate) const MAX_STANDING_FACTS: u32 = 50;

/// Returns what was removed by `moment` from the memory that a job's dialogue reads, whoever removed it.
pub(crate) async fn load_removed(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    moment: DateTime<Utc>,
) -> StoreResult<Vec<RemovedStatement>> {
    let viewpoint = job_input
        .dialogue
        .viewpoint_for(&job_input.npc, job_input.turn.player.clone());
    let facts = &services.ledger.facts;
    let gossip = job_input.world.settings.allows_gossip();
    let standing = facts
        .load_standing(scope, &viewpoint, gossip, moment, MAX_STANDING_FACTS)
        .await?;
    Ok(standing.taken_out)
}

/// What was removed from memory. The words of the statements are prepared once for all texts of a turn.
pub(crate) struct PreparedRemovals<'a> {
    prepared: Vec<PreparedRemoval<'a>>,
}

struct PreparedRemoval<'a> {
    removed: &'a RemovedStatement,
    /// The words of the statement. `None`: the correction still says everything that the statement said.
    statement: Option<RemovedWords>,
    /// The words of the requests to forget the statement, without those that an earlier removal of the same time has:
    /// all statements that a turn forgets share its requests.
    requests: Vec<RemovedWords>,
}

impl<'a> PreparedRemovals<'a> {
    pub(crate) fn new(statements: &'a [RemovedStatement]) -> Self {
        let mut prepared_requests: HashSet<(&str, DateTime<Utc>)> = HashSet::new();
        let removals = statements.iter().map(|removed| {
            let statement = RemovedWords::of_text(&RemovedText {
                content: &removed.content,
                correction: removed.correction.as_deref(),
            });
            let requests = removed.requests.iter().filter(|words| {
                let is_new = prepared_requests.insert((words.as_str(), removed.removed_at));
                // Stop words alone would be in every sentence.
                is_new && !informative_terms(words).is_empty()
            });
            let requests = requests.filter_map(|words| {
                RemovedWords::of_text(&RemovedText {
                    content: words,
                    correction: None,
                })
            });
            PreparedRemoval {
                removed,
                statement,
                requests: requests.collect(),
            }
        });
        Self {
            prepared: removals.collect(),
        }
    }

    /// Returns a text of a dialogue that began at `start`, without what was removed since, by the words of the
    /// statements and of the requests to forget. `None`: nothing is left.
    fn redact_since(&self, start: DateTime<Utc>, text: &str) -> Option<String> {
        let later_removals = self
            .prepared
            .iter()
            .filter(|removal| removal.removed.removed_at >= start);
        without_removed(
            text,
            later_removals.flat_map(|removal| removal.statement.iter().chain(&removal.requests)),
        )
    }

    /// Returns the numbers of the turns of a dialogue that taught a statement which was removed, and not corrected. What
    /// was made of such a turn may tell the statement in other words.
    pub(crate) fn removed_turns(&self, dialogue: DialogueId) -> impl Iterator<Item = u32> {
        let removed = self.prepared.iter().map(|removal| removal.removed);
        let sources = removed.filter(|removed| removed.correction.is_none());
        let sources = sources.filter_map(|removed| removed.source);
        sources
            .filter(move |(source, _)| *source == dialogue)
            .map(|(_, turn)| turn)
    }

    /// Returns a line of a dialogue without what people removed or corrected after the line was said. Facts that other
    /// dialogues taught do not count: a rewind of those takes the facts back, and would not take back what was made of
    /// this line.
    fn mask_line(&self, dialogue: DialogueId, said_at: DateTime<Utc>, line: &str) -> String {
        let later_removals = self.prepared.iter().filter(|removal| {
            let removed = removal.removed;
            let is_of_dialogue = removed.source.is_none_or(|(source, _)| source == dialogue);
            is_of_dialogue && !removed.is_forgotten && removed.removed_at >= said_at
        });
        let line = line.trim();
        mask_rest(
            line,
            without_removed(line, later_removals.filter_map(|removal| removal.statement.as_ref())),
        )
    }
}

/// In the place of what is left out of a line.
const MASK: &str = "…";

/// Returns what is left of a line, with a mask for the rest.
pub(crate) fn mask_rest(line: &str, remainder: Option<String>) -> String {
    match remainder {
        _ if line.is_empty() => String::new(),
        Some(remainder) if remainder == line => remainder,
        Some(remainder) => format!("{remainder} {MASK}"),
        None => MASK.to_owned(),
    }
}

/// Masks in turns what people removed or corrected after a turn was said.
pub(crate) fn mask_corrected_lines(removals: &PreparedRemovals<'_>, turns: &mut [Turn]) {
    for turn in turns {
        for text in [&mut turn.player_text, &mut turn.reply_text] {
            *text = removals.mask_line(turn.dialogue, turn.committed_at, text);
        }
    }
}

/// Returns a row of the story without what was removed since its dialogue began: each line by itself, the last line
/// first. A row that may tell in other words what was removed has no lines. Notes name no turns.
pub(crate) fn redact_story(removals: &PreparedRemovals<'_>, row: &Unlocked<StoryRow>) -> Vec<Disclosable<StoryTrace>> {
    let mut removed_turns = removals.removed_turns(row.dialogue);
    if removed_turns.any(|turn| row.part == StoryPart::Note || row.turns.contains(&turn)) {
        return Vec::new();
    }
    let texts = row.text.lines().rev().filter(|text| !text.trim().is_empty());
    let lines = texts.filter_map(|text| {
        Some(Disclosable::new(StoryTrace {
            part: row.part,
            dialogue_id: row.dialogue,
            noted_at: row.noted_at,
            text: removals.redact_since(row.dialogue.created_at(), text)?,
            fate: CandidateFate::OverBudget,
        }))
    });
    lines.collect()
}

/// Returns the text without what was removed, whenever it was said. `None`: nothing is left.
pub(crate) fn redact_text(removals: &PreparedRemovals<'_>, text: &str) -> Option<String> {
    removals.redact_since(DateTime::UNIX_EPOCH, text)
}

/// The most corrections that a prompt marks.
const MAX_MARKED: usize = 8;

/// Returns the statements of the history that a person has removed or corrected since the dialogue began, latest first.
/// The history shows turns whole, so the prompt must say what no longer holds. A locked statement is among them only if a
/// turn of the history taught the fact, because the player may not hear other locked statements.
fn outdated_in_history(
    removals: &PreparedRemovals<'_>,
    dialogue: &Dialogue,
    history: &[BufferedTurn],
) -> Vec<Disclosable<RemovedStatement>> {
    let of_dialogue = removals.prepared.iter().filter(|removal| {
        let removed = removal.removed;
        !removed.is_forgotten && removed.removed_at >= dialogue.created_at
    });
    let mut of_dialogue = of_dialogue.peekable();
    if of_dialogue.peek().is_none() {
        return Vec::new();
    }
    let lines = history.iter().flat_map(|turn| [&turn.player_text, &turn.reply_text]);
    let history_terms: Vec<TermWeights> = lines.map(|text| document_terms(text, &[])).collect();
    let is_in_history = |removal: &&PreparedRemoval<'_>| {
        let removed = removal.removed;
        let is_source = |turn: &BufferedTurn| removed.source == Some((dialogue.id, turn.number));
        let are_told = |words: &RemovedWords| history_terms.iter().any(|terms| words.are_told_by(terms));
        let is_taught = history.iter().any(is_source);
        if removed.is_locked && !is_taught {
            return false;
        }
        removed.is_original && is_taught || removal.statement.as_ref().is_some_and(are_told)
    };
    of_dialogue
        .filter(is_in_history)
        .take(MAX_MARKED)
        .map(|removal| open_correction(removal.removed.clone()))
        .collect()
}

/// Returns a statement of the history that a person has removed or corrected. The correction of a locked statement is left
/// out: in the prompt, it would lock what the session teaches.
pub(crate) fn open_correction(removed: RemovedStatement) -> Disclosable<RemovedStatement> {
    let correction = removed.correction.filter(|_| !removed.is_locked);
    Disclosable::new(RemovedStatement { correction, ..removed })
}

/// Leaves out ended promises of whose matter something was removed from memory.
pub(crate) fn retain_unforgotten(removals: &PreparedRemovals<'_>, mut promises: Vec<Fact>) -> Vec<Fact> {
    promises.retain(|promise| {
        let content = &promise.view.content;
        removals.redact_since(promise.valid_at, content).as_ref() == Some(content)
    });
    promises
}

/// Returns the summaries of a dialogue that began at `began`, in the form that the NPC may tell.
pub(crate) fn redact_summaries(
    removals: &PreparedRemovals<'_>,
    began: DateTime<Utc>,
    summaries: &[Summary],
) -> Vec<Disclosable<Summary>> {
    let redact = |summary: &Summary| {
        let text = removals.redact_since(began, &summary.text)?;
        Some(Disclosable::new(Summary {
            text,
            ..summary.clone()
        }))
    };
    summaries.iter().filter_map(redact).collect()
}

/// Returns the meeting, with its summary in the form that the NPC may tell.
fn redact_meeting(removals: &PreparedRemovals<'_>, meeting: Meeting) -> Meeting {
    let redact = |recap: MeetingRecap| {
        let text = removals.redact_since(recap.since, &recap.text)?;
        Some(MeetingRecap { text, ..recap })
    };
    Meeting {
        summary: meeting.summary.and_then(redact),
        ..meeting
    }
}

/// An episode in the form that the NPC may tell.
pub(crate) struct RedactedEpisode {
    pub episode: Disclosable<Episode>,
    /// True if a statement was cut from the text.
    pub is_changed: bool,
}

/// Returns the episodes in the form that the NPC may tell, each with whether its text was changed. As in a summary, a
/// statement is also cut from the lines of the same dialogue that came after the request: they may speak of it. An
/// episode that told nothing else is left out, and so is the episode of a turn that taught a forgotten statement: it may
/// tell the statement in other words.
pub(crate) fn redact_episodes(
    removals: &PreparedRemovals<'_>,
    episodes: Vec<Unlocked<Episode>>,
) -> Vec<RedactedEpisode> {
    let is_forgotten = |episode: &Episode| {
        let turn = Some((episode.dialogue, episode.number));
        let mut removed = removals.prepared.iter().map(|removal| removal.removed);
        removed.any(|removed| removed.is_forgotten && removed.source == turn)
    };
    let redact = |episode: Unlocked<Episode>| {
        if is_forgotten(&episode) {
            return None;
        }
        let text = match removals.redact_since(episode.dialogue.created_at(), &episode.text) {
            _ if planted_leak!("episodes.removed") => episode.text.clone(),
            text => text?,
        };
        Some(RedactedEpisode {
            is_changed: text != episode.text,
            episode: Disclosable::new(Episode {
                text,
                ..episode.into_inner()
            }),
        })
    };
    episodes.into_iter().filter_map(redact).collect()
}

/// Returns the insights in the form that the NPC may tell, as [`redact_episodes`] does. An insight that rests on a turn
/// is left out with every forgotten or removed statement that the turn taught: it may tell what follows from the
/// statement in other words.
pub(crate) fn redact_insights(
    removals: &PreparedRemovals<'_>,
    insights: Vec<Unlocked<Insight>>,
) -> Vec<Disclosable<Insight>> {
    let insights = insights.into_iter().map(Unlocked::into_inner);
    let redacted = insights.filter_map(|insight| redact_insight(removals, insight));
    redacted.map(Disclosable::new).collect()
}

/// Returns an insight without what was removed. `None`: nothing is left, or the insight may follow from what was removed.
pub(crate) fn redact_insight(removals: &PreparedRemovals<'_>, insight: Insight) -> Option<Insight> {
    let rests_on = |insight: &Insight, removed: &RemovedStatement| {
        let source = removed.source.filter(|(dialogue, _)| *dialogue == insight.dialogue);
        removed.correction.is_none() && source.is_some_and(|(_, turn)| insight.turns.contains(&turn))
    };
    let mut removed = removals.prepared.iter().map(|removal| removal.removed);
    if removed.any(|removed| rests_on(&insight, removed)) {
        return None;
    }
    let text = removals.redact_since(insight.dialogue.created_at(), &insight.text)?;
    Some(Insight { text, ..insight })
}

/// The summaries of a dialogue and the last meeting, in the form that the NPC may tell.
pub(crate) struct ToldTexts {
    pub summaries: Vec<Disclosable<Summary>>,
    pub meeting: Option<Disclosable<Meeting>>,
    /// What the history says, and no longer holds.
    pub outdated: Vec<Disclosable<RemovedStatement>>,
    /// True if a text differs from the stored text.
    changed: bool,
}

impl ToldTexts {
    /// Returns the removed facts, if a removal changed one of these texts or an episode, or outdated the history.
    pub(crate) fn redacting_facts(&self, removals: &PreparedRemovals<'_>, is_episode_changed: bool) -> Vec<FactId> {
        let is_needed = self.changed || !self.outdated.is_empty() || is_episode_changed;
        let needed = removals.prepared.iter().filter(|_| is_needed);
        let facts: BTreeSet<FactId> = needed.map(|removal| removal.removed.fact).collect();
        facts.into_iter().collect()
    }
}

/// Redacts the summaries of a dialogue, and the last meeting. Finds what no longer holds of the history.
pub(crate) fn redact_texts(
    removals: &PreparedRemovals<'_>,
    dialogue: &Dialogue,
    history: &[BufferedTurn],
    summaries: &[Summary],
    meeting: Option<&Unlocked<Meeting>>,
) -> ToldTexts {
    let redacted_summaries = redact_summaries(removals, dialogue.created_at, summaries);
    let redacted_meeting =
        meeting.map(|meeting| Disclosable::new(redact_meeting(removals, meeting.clone().into_inner())));
    ToldTexts {
        changed: !redacted_summaries.iter().map(|summary| &**summary).eq(summaries)
            || redacted_meeting.as_deref() != meeting.map(|meeting| &**meeting),
        summaries: redacted_summaries,
        meeting: redacted_meeting,
        outdated: outdated_in_history(removals, dialogue, history),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use colloquy_core::ids::{DialogueKind, TurnId};
    use colloquy_memory::{disclosure::locks::DisclosureLocks, fact::Importance};
    use colloquy_ports::ledger::dialogues::{DialogueOptions, DialogueStatus};

    fn forgotten(content: &str, requests: &[&str]) -> RemovedStatement {
        RemovedStatement {
            fact: FactId::from_u128(1),
            content: content.to_owned(),
            requests: requests.iter().map(|words| (*words).to_owned()).collect(),
            removed_at: DateTime::UNIX_EPOCH,
            correction: None,
            source: None,
            is_original: true,
            is_forgotten: true,
            is_locked: false,
        }
    }

    #[test]
    fn request_of_several_statements_is_prepared_once() {
        let requests = ["all talk of plums", "the fair in Oakford"];
        let removed = ["The player likes plums.", "The player was at the fair."];
        let mut removed = removed.map(|content| forgotten(content, &requests));
        let prepared = |removed: &[RemovedStatement]| -> Vec<usize> {
            let removals = PreparedRemovals::new(removed).prepared;
            removals.iter().map(|removal| removal.requests.len()).collect()
        };
        assert_eq!(prepared(&removed), [2, 0]);
        // A text that began between the two requests is compared with the later one alone.
        removed[0].removed_at += TimeDelta::seconds(1);
        assert_eq!(prepared(&removed), [2, 2]);
    }

    #[test]
    fn locked_statement_is_outdated_only_where_it_was_taught() {
        let session = |number: u128| DialogueId::new(DialogueKind::Session, ulid::Ulid(number));
        let dialogue = Dialogue {
            id: session(1),
            world: "vale".parse().unwrap(),
            npcs: vec!["mira".parse().unwrap()],
            player: Some("p2".parse().unwrap()),
            witnesses: Vec::new(),
            resume_token_hash: Vec::new(),
            status: DialogueStatus::Open,
            options: DialogueOptions::default(),
            cause: None,
            created_at: DateTime::UNIX_EPOCH,
            updated_at: DateTime::UNIX_EPOCH,
            head_turn: 1,
        };
        let turn = BufferedTurn {
            id: TurnId::from_u128(1),
            number: 1,
            player_text: "Who stole the ledger? Was it Ida?".to_owned(),
            npc: "mira".parse().unwrap(),
            reply_text: "Ask the guard.".to_owned(),
            committed_at: None,
        };
        for (is_locked, source, is_outdated) in [
            (false, None, true),
            (false, Some((session(2), 1)), true),
            (true, None, false),
            (true, Some((session(2), 1)), false),
            (true, Some((session(1), 2)), false),
            (true, Some((session(1), 1)), true),
        ] {
            let corrected = [RemovedStatement {
                correction: Some("Tom stole the ledger.".to_owned()),
                source,
                is_forgotten: false,
                is_locked,
                ..forgotten("Ida stole the ledger.", &[])
            }];
            let removals = PreparedRemovals::new(&corrected);
            let outdated = outdated_in_history(&removals, &dialogue, std::slice::from_ref(&turn));
            assert_eq!(!outdated.is_empty(), is_outdated, "{is_locked} {source:?}");
        }
    }

    #[test]
    fn line_from_before_a_correction_loses_the_old_words() {
        let [own, other] = [1, 2].map(|id| DialogueId::new(DialogueKind::Session, ulid::Ulid(id)));
        let second = |second| DateTime::UNIX_EPOCH + TimeDelta::seconds(second);
        let moved = RemovedStatement {
            fact: FactId::from_u128(1),
            content: "The player's sister lives in Oakford.".to_owned(),
            requests: Vec::new(),
            removed_at: second(10),
            correction: Some("The player's sister lives in Greystone.".to_owned()),
            source: Some((own, 1)),
            is_original: true,
            is_forgotten: false,
            is_locked: false,
        };
        let forgotten = RemovedStatement {
            is_forgotten: true,
            ..moved.clone()
        };
        let line = "My sister lives in Oakford. It rains.";
        let masked = "It rains. …";
        for (removed, dialogue, said_at, shown) in [
            (&moved, own, 5, masked),
            (&moved, own, 20, line),
            (&moved, other, 5, line),
            (&forgotten, own, 5, line),
        ] {
            let removed = [removed.clone()];
            let found = PreparedRemovals::new(&removed).mask_line(dialogue, second(said_at), line);
            assert_eq!(found, shown, "{removed:?} / {said_at}");
        }
    }

    #[test]
    fn episode_of_a_turn_that_taught_a_forgotten_statement_is_left_out() {
        let dialogue = DialogueId::new(DialogueKind::Session, ulid::Ulid(1));
        let episode = Episode {
            turn: TurnId::from_u128(1),
            dialogue,
            number: 10,
            world: "vale".parse().unwrap(),
            npc: "mira".parse().unwrap(),
            player: "p1".parse().unwrap(),
            place: None,
            text: "They spoke of an old wound, and of needles.".to_owned(),
            importance: Importance::from_clamped(4.0),
            locks: DisclosureLocks::default(),
            committed_at: DateTime::UNIX_EPOCH,
        };
        for (turn, is_forgotten, is_told) in [(10, true, false), (10, false, true), (9, true, true)] {
            let removed = [RemovedStatement {
                source: Some((dialogue, turn)),
                is_forgotten,
                ..forgotten("The player's left knee aches since a fall on the ice.", &[])
            }];
            let told = redact_episodes(&PreparedRemovals::new(&removed), vec![Unlocked::new(episode.clone())]);
            assert_eq!(!told.is_empty(), is_told, "{turn} {is_forgotten}");
        }
    }

    #[test]
    fn words_of_a_request_are_left_out_beside_those_of_the_fact() {
        let content = "The player borrowed money of a usurer in Harrow Fen for a passage and a coat.";
        let removed = |requests: &[&str]| [forgotten(content, requests)];
        let summary =
            "They spoke of maps. The player owes forty shillings to a moneylender called Corbin and has told nobody.";
        let request = ["a debt of forty shillings to the moneylender Corbin"];
        assert_eq!(
            redact_text(&PreparedRemovals::new(&removed(&request)), summary).as_deref(),
            Some("They spoke of maps.")
        );
        for requests in [&[][..], &["what the player said"]] {
            assert_eq!(
                redact_text(&PreparedRemovals::new(&removed(requests)), summary).as_deref(),
                Some(summary),
                "{requests:?}"
            );
        }
    }
}
