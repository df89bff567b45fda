//! Long-term memory: extraction after a turn, dedupe and conflict, and what people write by hand.

mod by_hand;
mod extraction;
mod judge;
mod reconciling;
mod resting;
mod settling;

pub use self::by_hand::{Correction, HandError, HandWritten, correct, write_by_hand};
pub(super) use self::extraction::number;
pub use self::{resting::Resting, settling::settle_all};
use super::{
    Services,
    jobs::{JobError, JobReport, Said, outbox::relay_or_log},
    prompt::{Reader, attributed},
};
use crate::{
    ids::{FactId, NpcId, ScenarioId},
    memory::{
        fact::{Audience, Knower, Statement},
        locks::{Lock, Locks},
        party,
        trace::ScenarioTrace,
    },
    ports::ledger::jobs::Job,
    tenancy::TenantScope,
};

/// What the turn had in its prompt from memory: must not come back as new.
#[derive(Debug, Default)]
pub(super) struct Injected {
    pub ids: Vec<FactId>,
    /// With what one NPC told others from its own memory.
    pub quoted: Vec<FactId>,
    /// Those of `ids` as the prompt had them: each says who said it, and what is about another player says so.
    pub texts: Vec<String>,
    /// What the dialogue had had in its prompts by then that not every player may hear of.
    pub locks: Locks,
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
    let mut injected = Injected::default();
    let audience = said.audience();
    let Some(trace) = trace else { return Ok(injected) };
    injected.locks = trace.locks;
    for (scenario, text) in shown(&trace.scenarios) {
        injected.locks.0.insert(Lock::Scenario {
            npc: said.turn.npc.clone(),
            scenario: scenario.clone(),
        });
        injected.texts.push(text.to_owned());
    }
    for candidate in trace.candidates {
        if candidate.fate.is_in_prompt() {
            injected.quoted.push(candidate.fact);
            // What one NPC tells others from its own memory is news to them.
            if said.turn.player.is_none() {
                let fact = services.ledger.facts.get(scope, candidate.fact).await?;
                if fact.is_none_or(|fact| fact.audience != audience) {
                    continue;
                }
            }
            injected.ids.push(candidate.fact);
            let reader = Reader {
                language: said.npc.language,
                npc: &said.npc.name,
                player: said.turn.player.as_ref(),
            };
            injected.texts.push(attributed(
                &services.prompts,
                reader,
                &candidate.subject,
                &candidate.speaker,
                &candidate.content,
            )?);
        }
    }
    Ok(injected)
}

/// What a prompt had of the NPC's past.
fn shown(scenarios: &[ScenarioTrace]) -> impl Iterator<Item = (&ScenarioId, &str)> {
    scenarios
        .iter()
        .filter_map(|traced| Some((&traced.scenario, traced.shown.as_deref()?)))
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
    /// What a fact of this turn rests on that not every player may hear of: all that was in the prompt, since in what words a
    /// model tells of it nobody knows. What players say of themselves is their own.
    fn locks_of(&self, statement: &Statement, injected: &Injected) -> Locks {
        let own = party::is_player(&statement.subject) || party::owner(&statement.subject).is_some();
        let mut locks = if own && party::is_player(&statement.speaker) {
            Locks::default()
        } else {
            injected.locks.clone()
        };
        if self.turn.player.is_none() {
            locks.0.extend(self.dialogue.options.watchers().lock());
        }
        locks
    }
}
