//! Long-term memory: extraction after a turn, dedupe and conflict, and what people write by hand.

mod by_hand;
mod extraction;
mod judge;
mod reconciling;

pub use self::by_hand::{Correction, HandError, HandWritten, correct, write_by_hand};
pub(super) use self::extraction::number;
pub use self::reconciling::settle_all;
use super::{
    Services,
    jobs::{JobError, JobReport, Said, outbox::relay_or_log},
    prompt::told,
};
use crate::{
    ids::{FactId, NpcId},
    memory::{
        fact::{Audience, Knower},
        keywords::{self, TermWeights},
        trace::{CandidateFate, ScenarioTrace},
    },
    ports::ledger::jobs::Job,
    tenancy::TenantScope,
};

/// Share of the informative words of what an NPC said that its past must have for it to be told from there. A single
/// mention covers five sixths of a word.
const TELLS_COVERAGE: f64 = 0.5;

/// What the turn had in its prompt from memory: must not come back as new.
#[derive(Debug, Default)]
pub(super) struct Injected {
    pub ids: Vec<FactId>,
    /// With what one NPC told others from its own memory.
    pub quoted: Vec<FactId>,
    /// Those of `ids` as the prompt had them: what is about another player says so.
    pub texts: Vec<String>,
    /// The words of what was shown of the NPC's past, in this turn or in one of the five before.
    pub past: Vec<TermWeights>,
}

impl Injected {
    /// Whether the NPC only tells what it was shown of its past.
    fn tells(&self, content: &str) -> bool {
        let terms = keywords::query_terms(content);
        self.past
            .iter()
            .any(|shown| keywords::coverage(&terms, shown) >= TELLS_COVERAGE)
    }
}

/// Extracts what a turn taught, reconciles it with what is known, and has it indexed before it
/// returns, so that the next turn finds it.
pub(super) async fn extract(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    said: &Said,
) -> Result<JobReport, JobError> {
    let injected = injected(services, scope, said).await?;
    let learned = extraction::extract(services, scope, said, &injected, job.answer.as_deref()).await?;
    failpoint!("facts.extracted");
    if learned.is_empty() && injected.quoted.is_empty() {
        services.ledger.jobs.finish(scope, job.id).await?;
        return Ok(JobReport::default());
    }
    let memory = reconciling::reconcile(services, scope, job, said, &injected, learned).await?;
    failpoint!("facts.durable");
    relay_or_log(services).await;
    Ok(JobReport {
        memory,
        ..JobReport::default()
    })
}

async fn injected(services: &Services, scope: &TenantScope, said: &Said) -> Result<Injected, JobError> {
    let (dialogue, number) = (said.turn.dialogue, said.turn.number);
    let trace = services.ledger.dialogues.trace(scope, dialogue, number).await?;
    let in_prompt = |fate| {
        matches!(
            fate,
            CandidateFate::Used | CandidateFate::Pinned | CandidateFate::InStateBlock
        )
    };
    let mut injected = Injected::default();
    let audience = said.audience();
    let Some(trace) = trace else { return Ok(injected) };
    // What an NPC tells of its own past stays where it is, and as locked as it is: a fact is not locked.
    for text in shown(&trace.scenarios) {
        injected.past.push(past_terms(said, text));
        injected.texts.push(text.to_owned());
    }
    // It may be locked again by now, so that no model is shown it.
    for earlier in trace.told_in {
        let told = services.ledger.dialogues.trace(scope, dialogue, earlier).await?;
        let told = told.iter().flat_map(|told| shown(&told.scenarios));
        injected.past.extend(told.map(|text| past_terms(said, text)));
    }
    for candidate in trace.candidates {
        if in_prompt(candidate.fate) {
            injected.quoted.push(candidate.fact);
            // What one NPC tells others from its own memory is news to them.
            if said.turn.player.is_none() {
                let fact = services.ledger.facts.get(scope, candidate.fact).await?;
                if fact.is_none_or(|fact| fact.audience != audience) {
                    continue;
                }
            }
            injected.ids.push(candidate.fact);
            injected.texts.push(told(
                &services.prompts,
                said.npc.language,
                said.turn.player.as_ref(),
                &candidate.subject,
                &candidate.content,
            )?);
        }
    }
    Ok(injected)
}

/// What a prompt had of the NPC's past.
fn shown(scenarios: &[ScenarioTrace]) -> impl Iterator<Item = &str> {
    scenarios.iter().filter_map(|traced| traced.shown.as_deref())
}

/// The words of what an NPC may have told of itself. Its name is none of the news.
fn past_terms(said: &Said, text: &str) -> TermWeights {
    keywords::document_terms(text, std::slice::from_ref(&said.npc.name))
}

impl Said {
    /// Everybody who took part or overheard.
    fn learners(&self) -> Vec<NpcId> {
        let mut npcs: Vec<NpcId> = self
            .dialogue
            .npcs
            .iter()
            .chain(&self.dialogue.witnesses)
            .cloned()
            .collect();
        npcs.sort();
        npcs.dedup();
        npcs
    }
    /// Who may know what was said: those who heard it, and only while talking with this player,
    /// unless the world shares.
    fn audience(&self) -> Audience {
        let shared = self.world.settings.share_between_players.unwrap_or(false);
        let factions = self.dialogue.options.factions.iter().cloned().map(Knower::Faction);
        Audience {
            knowers: self.learners().into_iter().map(Knower::Npc).chain(factions).collect(),
            private_to: if shared { None } else { self.turn.player.clone() },
        }
    }
}
