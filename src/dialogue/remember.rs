//! Long-term memory: extraction after a turn, duplicates and conflicts, and manual edits by people.

mod block_sentences;
mod consolidation;
mod corrections;
mod dirty_memories;
mod embedding;
mod extraction;
mod judge;
mod known_texts;
mod manual_edits;
mod reconcile_backoff;
mod reconciliation;
mod retelling;
mod self_told;
mod statements;
mod timeline_reading;
mod turn_facts;

use chrono::{DateTime, Utc};
use minijinja::context;

pub(super) use self::consolidation::consolidate_facts;
pub(super) use self::extraction::parse_number;
pub use self::{
    consolidation::{queue_consolidations, queue_due_consolidations},
    corrections::{FactCorrection, FlagVerdict, correct_fact, decide_flag},
    manual_edits::{ManualEditError, ManualFact, write_manual_fact},
};
pub use self::{dirty_memories::reconcile_dirty_memories, reconcile_backoff::ReconcileBackoff};
use super::{
    Services,
    jobs::{JobError, JobInput, JobReport, outbox::relay_or_log},
    locks::LocksByWords,
    models::tallied_usage,
    prompt::{PromptReader, Template, attribute_statement, escape_untrusted},
    recall,
};
use colloquy_core::{
    ids::{FactId, PlayerId},
    scope::TenantScope,
};
use colloquy_memory::{
    agreement,
    aliases::NameAliases,
    fact::Statement,
    locks::DisclosureLocks,
    party,
    secrecy::Secrecy,
    trace::{CandidateTrace, ScenarioTrace},
};
use colloquy_ports::ledger::jobs::Job;

/// The maximum number of names shown to models for reuse.
const MAX_SUBJECTS: usize = 16;

/// The memory that the turn's prompt had, and that must not come back as new facts.
#[derive(Debug, Default)]
pub(super) struct InjectedMemory {
    pub ids: Vec<FactId>,
    /// `ids`, and also facts that an NPC told other NPCs from its own memory.
    pub quoted: Vec<FactId>,
    /// The texts of `ids` without `promises`, as the prompt had them. Each text names its speaker, and also another
    /// player if the text is about that player.
    pub texts: Vec<String>,
    /// The lore and the NPC's past of the prompt, which the NPC may retell.
    pub world: Vec<String>,
    /// The locks of what several listeners may hear: the locks of all prompts of the dialogue so far.
    pub locks: DisclosureLocks,
    /// The locks of what only the player of the turn hears: those of content that the dialogue may have disclosed, and of
    /// locked memories of the prompt.
    private_locks: LocksByWords,
    /// True if the facts are private to the player.
    is_private: bool,
    /// True if no prompt of the dialogue had locked content.
    is_free: bool,
    /// The NPC's past, as the prompt had it.
    past: Vec<String>,
    /// The check for players' statements about themselves that retell locked content. `None`: no retelling is possible.
    told: Option<retelling::RetellingCheck>,
    /// The aliases of all persons, read if a prompt had locked content.
    names: NameAliases,
    /// The open promises and goals among `ids`, in the order in which models see them.
    pub promises: Vec<OpenPromise>,
    /// The subjects of memories near the turn, in the wording for models, without the player and the NPC.
    pub subjects: Vec<String>,
}

/// An open promise or goal that the turn's prompt had.
#[derive(Debug)]
pub(super) struct OpenPromise {
    pub fact: FactId,
    pub text: String,
    /// When the promise was made. `None`: its text names no day, or the fact was removed.
    pub made_at: Option<DateTime<Utc>>,
}

impl InjectedMemory {
    fn locks_of(&self, statement: &Statement) -> DisclosureLocks {
        if !self.is_private {
            return self.locks.clone();
        }
        let keywords = statement.keywords.iter().map(String::as_str);
        let texts = [statement.content.as_str(), &statement.object]
            .into_iter()
            .chain(keywords);
        self.private_locks.locks_of(&texts.collect::<Vec<_>>())
    }
    /// Records a subject under a single name. A relative of another player is not recorded.
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

/// Extracts the facts of a turn, reconciles and indexes the facts, and then returns. The next turn finds the facts.
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
    let is_locked = !injected.locks.is_empty();
    if !learned.facts.is_empty() && is_locked && said.turn.player.is_some() {
        let viewpoint = said.dialogue.viewpoint_for(&said.npc, said.turn.player.clone());
        let at = said.turn.committed_at;
        injected.names = recall::read_names(services, scope, &said.world, &viewpoint, at).await?;
        injected.told = retelling::build_retelling_check(services, scope, said, &injected).await?;
    }
    let lacks_vectors = learned.lacks_vectors();
    let memory = turn_facts::reconcile_turn(services, scope, job, said, &injected, learned).await?;
    if lacks_vectors {
        services.memory_cache.unembedded.record_tenant(scope);
    }
    failpoint!("facts.durable");
    if memory.is_some() {
        relay_or_log(services).await;
    }
    Ok(JobReport {
        memory: memory.unwrap_or_default(),
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
    for text in trace.scenarios.iter().filter_map(ScenarioTrace::shown_content) {
        injected.past.push(text.to_owned());
        let values = context! { name => escape_untrusted(&said.npc.name), text };
        let text = services.prompts.render(said.npc.language, Template::Past, values)?;
        injected.world.push(text);
    }
    if said.turn.player.is_some() {
        injected.is_private = audience.private_to.is_some();
        let told = trace.told_locks.as_ref().unwrap_or(&injected.locks);
        injected.private_locks = LocksByWords::load(services, scope, &said.world, told, &said.npc.name).await?;
        injected.private_locks.by_words.extend(trace.locked.iter().cloned());
    }
    let open = trace.lore.iter().filter(|traced| traced.secrecy == Secrecy::Open);
    let shown: Vec<String> = open.filter_map(|traced| traced.shown_text.clone()).collect();
    if !injected.locks.is_empty() {
        injected.past.extend(shown.iter().cloned());
    }
    // What an NPC knows is news to the other NPCs.
    if said.turn.player.is_some() {
        injected.world.extend(shown);
    }
    for candidate in &trace.candidates {
        if said.turn.player.is_some() {
            injected.record_subject(&candidate.subject, said);
        }
        if candidate.fate.is_in_prompt() {
            injected.quoted.push(candidate.fact);
            if candidate.over {
                continue;
            }
            // An NPC's own memory is news to the other NPCs.
            if said.turn.player.is_none() {
                let fact = services.ledger.facts.load_fact(scope, candidate.fact).await?;
                if fact.is_none_or(|fact| fact.audience != audience) {
                    continue;
                }
            }
            injected.ids.push(candidate.fact);
            injected.record_subject(&candidate.subject, said);
            // The extraction model takes no part in the turn, so the NPC appears by name.
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
                let made_at = load_time_of_dated(services, scope, candidate).await?;
                let fact = candidate.fact;
                injected.promises.push(OpenPromise { fact, text, made_at });
            } else {
                injected.texts.push(text);
            }
        }
    }
    Ok(injected)
}

/// Returns when a promise was made whose text names a day. Without a day, no promise is overdue.
async fn load_time_of_dated(
    services: &Services,
    scope: &TenantScope,
    promise: &CandidateTrace,
) -> Result<Option<DateTime<Utc>>, JobError> {
    if agreement::days_in(&promise.content).next().is_none() {
        return Ok(None);
    }
    let fact = services.ledger.facts.load_fact(scope, promise.fact).await?;
    Ok(fact.map(|fact| fact.valid_at))
}

/// Returns the locks of a fact of a turn: the locks of all prompts so far, because a model may retell content in any words.
/// For a fact private to the player: the locks of what the dialogue may have told, of lore only with a word of the fact.
///
/// A player's statement about itself has no locks, unless it retells locked content to others.
fn locks_of(said: &JobInput, statement: &Statement, injected: &InjectedMemory) -> DisclosureLocks {
    let own = is_of_players(said, &statement.subject, &injected.names);
    let is_told = || injected.told.as_ref().is_some_and(|told| told.is_retold_by(statement));
    let mut locks = if own && party::is_player(&statement.speaker) && !is_told() {
        DisclosureLocks::default()
    } else {
        injected.locks_of(statement)
    };
    if said.turn.player.is_none() {
        locks.0.extend(said.dialogue.options.watchers().hearers_lock());
    }
    locks
}

/// True if a subject is a player or belongs to a player, by any of its names. Never true for the NPC.
fn is_of_players(said: &JobInput, subject: &str, names: &NameAliases) -> bool {
    let npc = party::subject_key(&said.npc.name);
    let known: Vec<&str> = std::iter::once(subject).chain(names.other_names(subject)).collect();
    let is_players = |name: &&str| party::is_player(name) || party::owner_id(name).is_some();
    known.iter().any(is_players) && known.iter().all(|name| party::subject_key(name) != npc)
}
