//! Long-term memory: extraction after a turn, dedupe and conflict, and what people write by hand.

mod dirty_memories;
mod extraction;
mod judge;
mod manual_edits;
mod reconcile_backoff;
mod reconciliation;
mod retelling;
mod self_told;
mod timeline_reading;
mod turn_facts;

use minijinja::context;

pub(super) use self::extraction::{parse_number, weekday_name};
pub use self::manual_edits::{FactCorrection, ManualEditError, ManualFact, correct_fact, write_manual_fact};
pub use self::{dirty_memories::reconcile_dirty_memories, reconcile_backoff::ReconcileBackoff};
use super::{
    Services,
    jobs::{JobError, JobInput, JobReport, outbox::relay_or_log},
    models::tallied_usage,
    prompt::{PromptReader, Template, attribute_statement, escape_untrusted},
    recall,
};
use crate::{
    ids::{FactId, NpcId, PlayerId, ScenarioId},
    memory::{
        aliases::NameAliases,
        fact::{Audience, Knower, Statement},
        locks::{DisclosureLock, DisclosureLocks},
        party,
        trace::{LockedWords, ScenarioTrace},
    },
    ports::ledger::jobs::Job,
    tenancy::TenantScope,
};

/// Names that models are shown, to use them again.
const MAX_SUBJECTS: usize = 16;

/// What the turn had in its prompt from memory: must not come back as new.
#[derive(Debug, Default)]
pub(super) struct InjectedMemory {
    pub ids: Vec<FactId>,
    /// With what one NPC told others from its own memory.
    pub quoted: Vec<FactId>,
    /// Those of `ids` but for `promises`, as the prompt had them: each says who said it, and what is about another player
    /// says so.
    pub texts: Vec<String>,
    /// What the dialogue had had in its prompts by then that not every player may hear of, and what is learned rests on: of what
    /// is private to the player, that of which the dialogue may have told.
    pub locks: DisclosureLocks,
    /// Where that is not all: the memories in the prompt of which nothing was told.
    locked: Vec<LockedWords>,
    /// The dialogue had nothing in its prompts that not every player may hear of.
    is_free: bool,
    /// Of the NPC's past, as the prompt had it.
    past: Vec<String>,
    /// What a player's word of itself may tell of that not every player may hear of; `None`: of nothing.
    told: Option<retelling::RetellingCheck>,
    /// Who is who, where something in the prompts was locked.
    names: NameAliases,
    /// Open promises and goals among `ids`, each with its text, in the order in which models are shown them.
    pub promises: Vec<(FactId, String)>,
    /// Whom and what the memories near the turn are about, as models call them, but for the player and the NPC.
    pub subjects: Vec<String>,
}

impl InjectedMemory {
    fn locks_of(&self, statement: &Statement) -> DisclosureLocks {
        let mut locks = self.locks.clone();
        let keywords = statement.keywords.iter().map(String::as_str);
        let texts: Vec<&str> = [statement.content.as_str(), &statement.object]
            .into_iter()
            .chain(keywords)
            .collect();
        for text in self.locked.iter().filter(|text| text.words.may_be_told_by(&texts)) {
            locks.extend_with(&text.locks);
        }
        locks
    }
    /// Under one name each is to be spoken of again. Another player's sister is not the player's.
    fn record_subject(&mut self, subject: &str, said: &JobInput) {
        let owner = party::owner_id(subject);
        let of_another = owner.is_some() && owner != said.turn.player.as_ref().map(PlayerId::as_str);
        if self.subjects.len() == MAX_SUBJECTS || of_another || party::is_player(subject) || subject == said.npc.name {
            return;
        }
        let name = escape_untrusted(&party::plain_name(subject));
        let key = party::subject_key(&name);
        if !name.is_empty() && self.subjects.iter().all(|other| party::subject_key(other) != key) {
            self.subjects.push(name);
        }
    }
}

/// Extracts what a turn taught, reconciles it with what is known, and has it indexed before it
/// returns, so that the next turn finds it.
pub(super) async fn extract_facts(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    said: &JobInput,
) -> Result<JobReport, JobError> {
    let mut injected = collect_injected(services, scope, said).await?;
    let learned = extraction::extract_learned(services, scope, said, &injected, job.answer.as_deref()).await?;
    failpoint!("facts.extracted");
    if learned.is_empty() && injected.quoted.is_empty() {
        services.ledger.jobs.finish_job(scope, job.id, &tallied_usage()).await?;
        return Ok(JobReport::default());
    }
    let is_locked = !injected.locks.is_empty() || !injected.locked.is_empty();
    if !learned.facts.is_empty() && is_locked && said.turn.player.is_some() {
        let viewpoint = said.dialogue.viewpoint_for(&said.npc, said.turn.player.clone());
        let at = said.turn.committed_at;
        injected.names = recall::read_names(services, scope, &said.world, &viewpoint, at).await?;
        injected.told = retelling::build_retelling_check(services, scope, said, &injected).await?;
    }
    let memory = turn_facts::reconcile_turn(services, scope, job, said, &injected, learned).await?;
    failpoint!("facts.durable");
    relay_or_log(services).await;
    Ok(JobReport {
        memory,
        ..JobReport::default()
    })
}

async fn collect_injected(
    services: &Services,
    scope: &TenantScope,
    said: &JobInput,
) -> Result<InjectedMemory, JobError> {
    let mut injected = InjectedMemory::default();
    let audience = said.audience();
    let Some(trace) = &said.trace else { return Ok(injected) };
    injected.is_free = trace.locks.is_empty();
    injected.locks = trace.locks.clone();
    // Nobody else is told what is private, so words may tell what it rests on.
    if let Some(told) = trace.told_locks.as_ref().filter(|_| audience.private_to.is_some()) {
        injected.locks.clone_from(told);
        injected.locked.clone_from(&trace.locked);
    }
    for (scenario, text) in shown_scenarios(&trace.scenarios) {
        injected.is_free = false;
        injected.locks.0.insert(DisclosureLock::Scenario {
            npc: said.turn.npc.clone(),
            scenario: scenario.clone(),
        });
        injected.past.push(text.to_owned());
        let values = context! { name => escape_untrusted(&said.npc.name), text };
        let text = services.prompts.render(said.npc.language, Template::Past, values)?;
        injected.texts.push(text);
    }
    for candidate in &trace.candidates {
        if said.turn.player.is_some() {
            injected.record_subject(&candidate.subject, said);
        }
        if candidate.fate.is_in_prompt() {
            injected.quoted.push(candidate.fact);
            // What one NPC tells others from its own memory is news to them.
            if said.turn.player.is_none() {
                let fact = services.ledger.facts.load_fact(scope, candidate.fact).await?;
                if fact.is_none_or(|fact| fact.audience != audience) {
                    continue;
                }
            }
            injected.ids.push(candidate.fact);
            injected.record_subject(&candidate.subject, said);
            // Whoever reads a turn is nobody in it: the NPC goes by its name.
            let reader = PromptReader {
                language: said.npc.language,
                npc: "",
                player: said.turn.player.as_ref(),
            };
            let text = attribute_statement(
                &services.prompts,
                reader,
                &candidate.subject,
                &candidate.speaker,
                &candidate.content,
            )?;
            if candidate.promise && injected.promises.len() < extraction::MAX_PROMISES {
                injected.promises.push((candidate.fact, text));
            } else {
                injected.texts.push(text);
            }
        }
    }
    Ok(injected)
}

/// What a prompt had of the NPC's past.
fn shown_scenarios(scenarios: &[ScenarioTrace]) -> impl Iterator<Item = (&ScenarioId, &str)> {
    scenarios
        .iter()
        .filter_map(|traced| Some((&traced.scenario, traced.shown.as_deref()?)))
}

impl JobInput {
    /// Everybody who took part or overheard.
    fn learner_npcs(&self) -> Vec<NpcId> {
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
            knowers: self
                .learner_npcs()
                .into_iter()
                .map(Knower::Npc)
                .chain(factions)
                .collect(),
            private_to: if shared { None } else { self.turn.player.clone() },
        }
    }
    /// What a fact of this turn rests on that not every player may hear of: all of the past that was in the prompt, since in what words a
    /// model tells of it nobody knows, and those memories of which it has a word. What players say of themselves is their own, but where others would hear of it.
    fn locks_of(&self, statement: &Statement, injected: &InjectedMemory) -> DisclosureLocks {
        let own = self.is_of_players(&statement.subject, &injected.names);
        let is_told = || injected.told.as_ref().is_some_and(|told| told.is_retold_by(statement));
        let mut locks = if own && party::is_player(&statement.speaker) && !is_told() {
            DisclosureLocks::default()
        } else {
            injected.locks_of(statement)
        };
        if self.turn.player.is_none() {
            locks.0.extend(self.dialogue.options.watchers().hearers_lock());
        }
        locks
    }
    /// Whether a subject is a player, or somebody of a player's, by any of the names that it has. The NPC never is.
    fn is_of_players(&self, subject: &str, names: &NameAliases) -> bool {
        let npc = party::subject_key(&self.npc.name);
        let known: Vec<&str> = std::iter::once(subject).chain(names.other_names(subject)).collect();
        let is_players = |name: &&str| party::is_player(name) || party::owner_id(name).is_some();
        known.iter().any(is_players) && known.iter().all(|name| party::subject_key(name) != npc)
    }
}
