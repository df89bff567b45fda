//! Summaries of older turns (docs/algorithms.md#summaries). A job writes summaries; the pure rules of `memory::summary`
//! decide which summaries stay.

mod silence;

use std::time::Duration;

use chrono::{DateTime, Utc};
use minijinja::context;
use serde::Deserialize;

pub use self::silence::{SilenceReport, last_mark_to_check, queue_jobs_after_silence};
use super::{
    Services,
    disclosure::{self, Disclosable, PreparedRemovals},
    game_time::WorldDays,
    jobs::{JobError, JobReport, ask_json_or_salvage, cast_members},
    models::{salvage_sentences, tallied_usage},
    npc_conversation::Scene,
    prompt::{Template, escape_untrusted},
};
use colloquy_core::scope::TenantScope;
use colloquy_memory::{
    fact::Importance,
    summary::{self, Summary},
    turn::Turn,
};
use colloquy_ports::{
    StoreError,
    buffer::mark_if_interrupted,
    ledger::{
        dialogues::DialogueStatus,
        jobs::{Job, JobInput},
        summaries::SummaryCommit,
    },
    llm::{JsonSchema, Task},
};

/// The maximum length of a summary, in characters.
const MAX_SUMMARY_CHARS: usize = 2_000;
/// The maximum number of turns in one summary. A backlog takes several summaries.
const MAX_TURNS_COVERED: u32 = 60;

#[derive(Deserialize)]
struct SummaryAnswer {
    summary: String,
    importance: Option<serde_json::Value>,
}

/// Summarises all turns up to the job's turn that have no summary yet. Does nothing if a summary is no longer due,
/// because an earlier job may have written it.
pub(super) async fn summarise_turns(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    job_input: &JobInput,
) -> Result<JobReport, JobError> {
    let dialogue = job_input.dialogue.id;
    let backlog = load_backlog(services, scope, job_input).await?;
    if !is_due(services, scope, job_input, &backlog).await? {
        services.ledger.jobs.finish_job(scope, job.id, &tallied_usage()).await?;
        return Ok(JobReport::default());
    }
    let Backlog {
        summaries,
        mut turns,
        sizes,
        ..
    } = backlog;
    let oldest = count_within_budget(&sizes, services.settings.summaries.force_tokens);
    let removed = disclosure::load_removed(services, scope, job_input, job_input.turn.committed_at).await?;
    let removals = PreparedRemovals::new(&removed);
    let previous = disclosure::redact_summaries(&removals, job_input.dialogue.created_at, &summaries);
    turns.truncate(oldest);
    disclosure::mask_corrected_lines(&removals, &mut turns);
    // The requests' own words are used, because the facts that a request ended depend on other sessions. A rewind of
    // the request also removes this summary.
    let from = backlog.through + 1;
    let to = last_to_summarise(job_input, backlog.through);
    let forgotten = services
        .ledger
        .facts
        .list_forget_requests(scope, dialogue, from, to)
        .await?;
    let new = write_summary(services, scope, job_input, &previous, &forgotten, &turns).await?;
    debug_assert!(
        new.from_turn > backlog.through && new.to_turn <= job_input.turn.number,
        "a summary covers turns without a summary, up to the turn of its job"
    );
    let admission = summary::admit_summary(&summaries, &new, services.settings.summaries.keep);
    let evict = if admission.evict == Some(new.id) {
        // The newest summary stays at any importance: its turns leave the buffer, and no other summary covers them yet.
        let least_important = summaries
            .iter()
            .min_by_key(|summary| (summary.importance, summary.created_at));
        least_important.map(|summary| summary.id)
    } else {
        admission.evict
    };
    let commit = SummaryCommit {
        fence: job.fence(),
        calls: tallied_usage(),
        summary: new,
        evict,
        fade: admission.fade.filter(|faded| Some(*faded) != evict),
    };
    failpoint!("summary.made");
    let landed = services.ledger.summaries.commit_summary(scope, &commit).await?;
    failpoint!("summary.durable");
    Ok(JobReport {
        summaries_changed: landed,
        ..JobReport::default()
    })
}

/// The turns of a dialogue without a summary, up to the turn of a job.
struct Backlog {
    summaries: Vec<Summary>,
    /// The last turn with a summary.
    through: u32,
    /// When the last summary was stored.
    since: Option<DateTime<Utc>>,
    turns: Vec<Turn>,
    /// The tokens of each turn.
    sizes: Vec<u32>,
}

/// Returns the last turn for a summary that follows turn `through`.
fn last_to_summarise(job_input: &JobInput, through: u32) -> u32 {
    job_input.turn.number.min(through.saturating_add(MAX_TURNS_COVERED))
}

async fn load_backlog(services: &Services, scope: &TenantScope, job_input: &JobInput) -> Result<Backlog, StoreError> {
    let ledger = &services.ledger;
    let dialogue = job_input.dialogue.id;
    let (summaries, checkpoint) = tokio::try_join!(
        ledger.summaries.load_summaries(scope, dialogue),
        ledger.dialogues.load_checkpoint(scope, dialogue)
    )?;
    let checkpoint = checkpoint.unwrap_or_default();
    // The latest summary may have been evicted, so the checkpoint counts too.
    let through = summaries
        .iter()
        .map(|summary| summary.to_turn)
        .max()
        .unwrap_or_default();
    let through = through.max(checkpoint.summarised_through);
    let stored = summaries.iter().map(|summary| summary.created_at).max();
    let last = last_to_summarise(job_input, through);
    let turns = ledger.dialogues.load_turns(scope, dialogue, through + 1, last).await?;
    let counter = services.models.counter_for_task(Task::Reply);
    let count = |text: &str| services.prompts.count_tokens(counter, text);
    let sizes = turns
        .iter()
        .map(|turn| count(&turn.player_text) + count(&turn.reply_text));
    Ok(Backlog {
        through,
        since: stored.max(checkpoint.summarised_at),
        sizes: sizes.collect(),
        summaries,
        turns,
    })
}

/// True if a summary is due: after the commit of the job's turn, or after the silence that followed the turn.
async fn is_due(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    backlog: &Backlog,
) -> Result<bool, StoreError> {
    let rules = services.settings.summaries.rules();
    let turn = &job_input.turn;
    let unsummarised = u32::try_from(backlog.turns.len()).unwrap_or(u32::MAX);
    let tokens = backlog.sizes.iter().fold(0_u32, |sum, size| sum.saturating_add(*size));
    let since = backlog
        .since
        .and_then(|summarised_at| (turn.committed_at - summarised_at).to_std().ok());
    if summary::is_due(&rules, turn.number, unsummarised, tokens, backlog.through, since) {
        return Ok(true);
    }
    let next = turn.number.saturating_add(1);
    let dialogues = &services.ledger.dialogues;
    let following = dialogues.load_turns(scope, turn.dialogue, next, next).await?;
    let spoken_at = following
        .first()
        .map_or_else(|| services.clock.now(), |turn| turn.started_at);
    let silence = match job_input.dialogue.status {
        DialogueStatus::Closed => Duration::MAX,
        DialogueStatus::Open => (spoken_at - turn.committed_at).to_std().unwrap_or_default(),
    };
    Ok(summary::is_due_after_silence(&rules, unsummarised, silence))
}

/// Returns how many of the oldest turns fit into `budget`, given their sizes in tokens; at least one turn. The other
/// turns wait for the next summary.
pub(super) fn count_within_budget(sizes: &[u32], budget: u32) -> usize {
    let mut sum = 0_u32;
    let fit = sizes.iter().take_while(|size| {
        sum = sum.saturating_add(**size);
        sum <= budget
    });
    let count = fit.count().max(1).min(sizes.len());
    debug_assert!((count == 0) == sizes.is_empty(), "a summary takes at least one turn");
    count
}

async fn render_summary_prompt(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    previous: &[Disclosable<Summary>],
    forgotten: &[String],
    turns: &[Turn],
) -> Result<String, JobError> {
    let scene = Scene {
        cast: cast_members(services, scope, job_input).await?,
        ..Scene::default()
    };
    let days = WorldDays::load(services, scope, &job_input.world).await?;
    let turn_values: Vec<_> = turns
        .iter()
        .map(|turn| {
            let (date, weekday) = days.day_of(job_input.npc.language, turn.started_at);
            context! {
                number => turn.number,
                date, weekday,
                player => escape_untrusted(&turn.player_text),
                npc => escape_untrusted(&mark_if_interrupted(turn.reply_text.clone(), turn.status)),
                name => scene.name_of(&turn.npc),
            }
        })
        .collect();
    let previous: Vec<String> = previous.iter().map(|summary| escape_untrusted(&summary.text)).collect();
    let left_out: Vec<String> = forgotten.iter().map(|content| escape_untrusted(content)).collect();
    let template = match job_input.turn.player {
        Some(_) => Template::Summary,
        None => Template::ConversationSummary,
    };
    let listeners: Vec<String> = scene.cast.iter().map(|member| escape_untrusted(&member.name)).collect();
    let npc_name = job_input.npc.name.as_str();
    let calendar = days.calendar_text();
    let values = context! { npc_name, listeners, turns => turn_values, previous, forgotten => left_out, calendar };
    Ok(services.prompts.render(job_input.npc.language, template, values)?)
}

async fn write_summary(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    previous: &[Disclosable<Summary>],
    forgotten: &[String],
    turns: &[Turn],
) -> Result<Summary, JobError> {
    let prompt = render_summary_prompt(services, scope, job_input, previous, forgotten, turns).await?;
    let properties = serde_json::json!({
        "summary": { "type": "string", "maxLength": MAX_SUMMARY_CHARS },
        "importance": { "type": "integer", "minimum": 1, "maximum": 10 },
    });
    let schema = JsonSchema::for_object("summary", properties);
    // A cut answer is requested again with more room. If the second answer is cut too, its whole sentences are used.
    let salvage = |text: &str| {
        Some(SummaryAnswer {
            summary: salvage_sentences(text, "summary")?,
            importance: None,
        })
    };
    let (answer, _): (SummaryAnswer, _) =
        ask_json_or_salvage(services, scope, Task::Summary, prompt, schema, salvage).await?;
    let text: String = answer.summary.trim().chars().take(MAX_SUMMARY_CHARS).collect();
    let (Some(first), Some(last)) = (turns.first(), turns.last()) else {
        return Err(JobError::Unusable("there is nothing to sum up".to_owned()));
    };
    if text.is_empty() {
        return Err(JobError::Unusable("the summary is empty".to_owned()));
    }
    Ok(Summary {
        id: services.ids.next_id(),
        dialogue: job_input.dialogue.id,
        from_turn: first.number,
        to_turn: last.number,
        // The text may become empty. An empty summary is never shown.
        text: summary::without_content(&text, forgotten).unwrap_or_default(),
        importance: answer
            .importance
            .as_ref()
            .and_then(super::remember::parse_number)
            .map_or(Importance::DEFAULT, Importance::from_clamped),
        // The turn's time, not the time of the write. A history must not depend on the speed of the model.
        created_at: job_input.turn.committed_at,
    })
}

#[cfg(test)]
mod tests {
    use super::count_within_budget;

    #[test]
    fn summary_takes_the_oldest_turns_that_fit() {
        assert_eq!(count_within_budget(&[10, 10, 10], 30), 3);
        assert_eq!(count_within_budget(&[10, 10, 10], 29), 2);
        assert_eq!(count_within_budget(&[50, 10], 30), 1, "one is always taken");
        assert_eq!(count_within_budget(&[10, 50, 10], 30), 1);
        assert_eq!(count_within_budget(&[u32::MAX, 10], 30), 1);
        assert_eq!(count_within_budget(&[], 30), 0);
    }
}
