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
    ids::{FactId, NpcId},
    memory::{
        fact::{Audience, Knower, Statement},
        keywords::{self, TermWeights},
        party,
        trace::{CandidateFate, ScenarioTrace},
    },
    ports::ledger::jobs::Job,
    tenancy::TenantScope,
};

/// Share of the informative words of a statement that an NPC's past must have for it to be told from there. A single mention
/// covers five sixths of a word.
const TELLS_COVERAGE: f64 = 0.5;

/// What the turn had in its prompt from memory: must not come back as new.
#[derive(Debug, Default)]
pub(super) struct Injected {
    pub ids: Vec<FactId>,
    /// With what one NPC told others from its own memory.
    pub quoted: Vec<FactId>,
    /// Those of `ids` as the prompt had them: each says who said it, and what is about another player says so.
    pub texts: Vec<String>,
    /// The words of what was shown of the NPC's past, in this turn or in one of the five before.
    pub past: Vec<TermWeights>,
}

impl Injected {
    /// Whether a statement only tells what the NPC was shown of its past. What is about a player is none of it, and what
    /// the player's own line says is the player's word, unless it is said to be the NPC's.
    fn tells(&self, statement: &Statement, npc: &str, line: &str) -> bool {
        if self.past.is_empty() || party::is_player(&statement.subject) || party::owner(&statement.subject).is_some() {
            return false;
        }
        // That it is the NPC's says nothing of what it is.
        let name = keywords::query_terms(npc);
        let mut terms = keywords::query_terms(&statement.content);
        terms
            .0
            .retain(|(term, _)| name.0.binary_search_by_key(term, |of_name| of_name.0).is_err());
        let has = |words: &TermWeights| keywords::coverage(&terms, words) >= TELLS_COVERAGE;
        let is_theirs = statement.speaker != npc && has(&keywords::document_terms(line, &[]));
        !is_theirs && self.past.iter().any(has)
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
        injected.past.push(keywords::document_terms(text, &[]));
        injected.texts.push(text.to_owned());
    }
    // It may be locked again by now, so that no model is shown it.
    for earlier in trace.told_in {
        let told = services.ledger.dialogues.trace(scope, dialogue, earlier).await?;
        let told = told.iter().flat_map(|told| shown(&told.scenarios));
        let told = told.map(|text| keywords::document_terms(text, &[]));
        injected.past.extend(told);
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
fn shown(scenarios: &[ScenarioTrace]) -> impl Iterator<Item = &str> {
    scenarios.iter().filter_map(|traced| traced.shown.as_deref())
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_told_of_a_past_is_told_from_what_is_news() {
        let past = [
            "The dry well: My brother Anselm fell into the dry well.",
            "마른 우물: 내 동생 안셀름은 마른 우물에 빠졌다.",
        ];
        let injected = Injected {
            past: past.map(|text| keywords::document_terms(text, &[])).to_vec(),
            ..Injected::default()
        };
        let (mira, the_player) = ("Mira", "player:p1");
        for (npc, subject, speaker, line, content, is_told) in [
            (
                mira,
                mira,
                mira,
                "And?",
                "Mira's brother Anselm fell into the well.",
                true,
            ),
            (mira, "Anselm", mira, "And?", "Anselm is Mira's brother.", true),
            (
                "미라",
                "미라",
                "미라",
                "그래서?",
                "미라의 동생 안셀름은 우물에 빠졌다.",
                true,
            ),
            // Whoever a model says it was, the player's line has nothing of it.
            (
                mira,
                mira,
                the_player,
                "And?",
                "Mira's brother Anselm fell into the well.",
                true,
            ),
            (
                mira,
                "Anselm",
                the_player,
                "Your brother Anselm fell into the well?",
                "Mira's brother Anselm fell into the well.",
                false,
            ),
            // About the player.
            (
                mira,
                the_player,
                mira,
                "And?",
                "The player's brother fell into the well.",
                false,
            ),
            // A name is no news, and no past either.
            (mira, mira, mira, "And?", "Mira loves the player.", false),
            (mira, mira, mira, "And?", "Mira likes the player's name.", false),
            (
                "Mira Vale",
                "Mira Vale",
                "Mira Vale",
                "And?",
                "Mira Vale hates wolves.",
                false,
            ),
            (
                "Captain Elara Voss",
                "Captain Elara Voss",
                "Captain Elara Voss",
                "And?",
                "Captain Elara Voss promises the player a ship.",
                false,
            ),
            (
                "에르겐",
                "에르겐",
                "에르겐",
                "그래서?",
                "에르겐은 플레이어를 좋아한다.",
                false,
            ),
            (
                "대장장이 에르겐",
                "대장장이 에르겐",
                "대장장이 에르겐",
                "그래서?",
                "대장장이 에르겐은 포도를 싫어한다.",
                false,
            ),
        ] {
            let statement: Statement = serde_json::from_value(json!({
                "subject": subject, "predicate": "", "object": "", "content": content, "keywords": [], "speaker": speaker,
                "kind": "other", "importance": 5, "polarity": "positive", "tense": "past", "pinned": false,
            }))
            .unwrap();
            assert_eq!(injected.tells(&statement, npc, line), is_told, "{content}");
        }
    }
}
