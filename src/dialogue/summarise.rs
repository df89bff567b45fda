//! Summaries of older turns (ALGORITHMS §5): made by a job, kept by the pure rules of
//! `memory::summary`.

use minijinja::context;
use serde::Deserialize;

use super::{
    Services,
    jobs::{JobError, JobReport, Said, ask_json_or},
    models::{salvage_sentences, spent},
    npc_conversation::Scene,
    prompt::{Template, untrusted},
    taken_out,
    turn::{gather::STANDING, summary_rules},
};
use crate::{
    memory::{
        fact::Importance,
        summary::{self, Summary},
        turn::Turn,
    },
    ports::{
        ledger::{jobs::Job, summaries::SummaryCommit},
        llm::{JsonSchema, Task},
    },
    tenancy::TenantScope,
};

/// Longest summary kept, in characters.
const MAX_CHARS: usize = 2_000;
/// Turns that one summary covers at most; a backlog takes several.
const MAX_TURNS: u32 = 60;

#[derive(Deserialize)]
struct Answer {
    summary: String,
    #[serde(default)]
    importance: Option<serde_json::Value>,
}

/// Summarises every turn up to the job's that no summary covers yet, if that is still due: an
/// earlier job may have done it meanwhile.
pub(super) async fn summarise(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    said: &Said,
) -> Result<JobReport, JobError> {
    let dialogue = said.dialogue.id;
    let (kept, checkpoint) = tokio::try_join!(
        services.ledger.summaries.kept(scope, dialogue),
        services.ledger.dialogues.checkpoint(scope, dialogue)
    )?;
    let checkpoint = checkpoint.unwrap_or_default();
    // The latest summary may have been pushed out again, so the checkpoint knows too.
    let through = kept
        .iter()
        .map(|summary| summary.to_turn)
        .max()
        .unwrap_or_default()
        .max(checkpoint.summarised_through);
    let since = kept
        .iter()
        .map(|summary| summary.created_at)
        .max()
        .max(checkpoint.summarised_at);
    let to = said.turn.number.min(through.saturating_add(MAX_TURNS));
    let turns = services
        .ledger
        .dialogues
        .turns(scope, dialogue, through + 1, to)
        .await?;
    let counter = services.models.counter(Task::Reply);
    let sizes: Vec<u32> = turns
        .iter()
        .map(|turn| {
            services.prompts.count(counter, &turn.player_text) + services.prompts.count(counter, &turn.reply_text)
        })
        .collect();
    let tokens = sizes.iter().fold(0_u32, |sum, size| sum.saturating_add(*size));
    let due = summary::is_due(
        &summary_rules(&services.settings.summaries),
        said.turn.number,
        u32::try_from(turns.len()).unwrap_or(u32::MAX),
        tokens,
        through,
        since.and_then(|at| (said.turn.committed_at - at).to_std().ok()),
    );
    if !due {
        services.ledger.jobs.finish(scope, job.id, &spent()).await?;
        return Ok(JobReport::default());
    }
    let oldest = within(&sizes, services.settings.summaries.force_tokens);
    let (viewpoint, began) = (
        said.dialogue.viewpoint(&said.npc, said.turn.player.clone()),
        said.dialogue.created_at,
    );
    let facts = &services.ledger.facts;
    let standing = facts
        .standing(
            scope,
            &viewpoint,
            said.world.settings.gossips(),
            said.turn.committed_at,
            STANDING,
        )
        .await?;
    let previous = taken_out::of_summaries(&standing.taken_out, began, &kept);
    // In the words of the requests: what each ended depends on other sessions, and whoever takes a request back takes the
    // summary back as well.
    let forgotten = facts.asked_to_forget(scope, dialogue, through + 1, to).await?;
    let new = write(services, scope, said, &previous, &forgotten, &turns[..oldest]).await?;
    let admission = summary::admit(&kept, &new, services.settings.summaries.keep);
    let evict = if admission.evict == Some(new.id) {
        // The newest stays whatever it weighs: its turns leave the buffer, and nothing else covers
        // them yet.
        let least = kept
            .iter()
            .min_by_key(|summary| (summary.importance, summary.created_at));
        least.map(|summary| summary.id)
    } else {
        admission.evict
    };
    let commit = SummaryCommit {
        fence: job.fence(),
        calls: spent(),
        summary: new,
        evict,
        fade: admission.fade.filter(|faded| Some(*faded) != evict),
    };
    failpoint!("summary.made");
    let landed = services.ledger.summaries.commit(scope, &commit).await?;
    failpoint!("summary.durable");
    Ok(JobReport {
        summaries_changed: landed,
        ..JobReport::default()
    })
}

/// How many of the oldest turns, of these sizes in tokens, one summary takes: what fits into
/// `budget`, and never none. The others wait for the next summary.
fn within(sizes: &[u32], budget: u32) -> usize {
    let mut sum = 0_u32;
    let fit = sizes.iter().take_while(|size| {
        sum = sum.saturating_add(**size);
        sum <= budget
    });
    fit.count().max(1).min(sizes.len())
}

async fn write(
    services: &Services,
    scope: &TenantScope,
    said: &Said,
    previous: &[Summary],
    forgotten: &[String],
    turns: &[Turn],
) -> Result<Summary, JobError> {
    let scene = Scene {
        cast: said.cast(services, scope).await?,
        ..Scene::default()
    };
    let shown: Vec<_> = turns
        .iter()
        .map(|turn| {
            context! {
                number => turn.number,
                date => turn.started_at.format("%Y-%m-%d").to_string(),
                weekday => super::remember::weekday(said.npc.language, turn.started_at),
                player => untrusted(&turn.player_text),
                npc => untrusted(&turn.reply_text),
                name => scene.name_of(&turn.npc),
            }
        })
        .collect();
    let previous: Vec<String> = previous.iter().map(|summary| untrusted(&summary.text)).collect();
    let left_out: Vec<String> = forgotten.iter().map(|content| untrusted(content)).collect();
    let template = match said.turn.player {
        Some(_) => Template::Summary,
        None => Template::ConversationSummary,
    };
    let listeners: Vec<String> = scene.cast.iter().map(|member| untrusted(&member.name)).collect();
    let npc_name = said.npc.name.as_str();
    let values = context! { npc_name, listeners, turns => shown, previous, forgotten => left_out };
    let prompt = services.prompts.render(said.npc.language, template, values)?;
    let schema = JsonSchema {
        name: "summary",
        schema: serde_json::json!({
            "type": "object",
            "properties": {
                "summary": { "type": "string", "maxLength": MAX_CHARS },
                "importance": { "type": "integer", "minimum": 1, "maximum": 10 },
            },
            "required": ["summary", "importance"],
            "additionalProperties": false,
        }),
    };
    // Asked once more with more room; of an answer that is cut then too, its whole sentences.
    let salvage = |text: &str| {
        Some(Answer {
            summary: salvage_sentences(text, "summary")?,
            importance: None,
        })
    };
    let (answer, _): (Answer, _) = ask_json_or(services, scope, Task::Summary, prompt, schema, salvage).await?;
    let text: String = answer.summary.trim().chars().take(MAX_CHARS).collect();
    let (Some(first), Some(last)) = (turns.first(), turns.last()) else {
        return Err(JobError::Unusable("there is nothing to sum up".to_owned()));
    };
    if text.is_empty() {
        return Err(JobError::Unusable("the summary is empty".to_owned()));
    }
    Ok(Summary {
        id: services.ids.next(),
        dialogue: said.dialogue.id,
        from_turn: first.number,
        to_turn: last.number,
        // Of which nothing may be left: nobody is shown such a summary.
        text: summary::without(&text, forgotten).unwrap_or_default(),
        importance: answer
            .importance
            .as_ref()
            .and_then(super::remember::number)
            .map_or(Importance::DEFAULT, Importance::clamped),
        // Not the moment it lands, so that a history does not depend on how fast the model was.
        created_at: said.turn.committed_at,
    })
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn a_summary_takes_the_oldest_turns_that_fit() {
        assert_eq!(within(&[10, 10, 10], 30), 3);
        assert_eq!(within(&[10, 10, 10], 29), 2);
        assert_eq!(within(&[50, 10], 30), 1, "one is always taken");
        assert_eq!(within(&[10, 50, 10], 30), 1);
        assert_eq!(within(&[u32::MAX, 10], 30), 1);
        assert_eq!(within(&[], 30), 0);
    }
}
