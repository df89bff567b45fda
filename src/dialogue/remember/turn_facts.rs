//! Writes the episode and the facts of one turn: facts private to the player, facts for all hearers, and the NPC's facts about itself.

use chrono::{DateTime, Days, Utc};

use super::{
    fact_locks::locks_of,
    injected_memory::InjectedMemory,
    judge::Judge,
    learned::{FreshEpisode, FreshFact, LearnedFacts},
    memory_update::{AudienceMemory, MemoryUpdate, TurnAddition},
    reconciliation::write_updates,
    self_told,
};
use crate::{
    Services,
    events::{MemoryChange, MemoryOp},
    jobs::JobError,
    models::tallied_usage,
};
use colloquy_core::{
    ids::{FactId, WorldId},
    scope::TenantScope,
};
use colloquy_memory::{
    episode::Episode,
    fact::{Audience, Cause, NewFact, Statement},
    timeline::{FlaggedFact, JudgeBudgetShare, KnownFact, TimelineResolution},
};
use colloquy_ports::{
    StoreError,
    ledger::{
        episodes::{EmbeddedEpisode, EpisodeVector},
        facts::{Extraction, ReconcileOutcome, ReconcileTrigger, Reconciliation},
        jobs::{Job, JobInput},
        scenarios::Embedding,
    },
};

/// The maximum number of judge calls for the job of one turn. The facts of a turn need one call. A late job needs more,
/// for the lines after its turn.
const MAX_CALLS_PER_TURN: usize = 4;

/// Writes the learned facts. Returns the changes, or an empty list if the turn was unsaid meanwhile. `None`: the turn changes
/// no memory, and the index needs no news.
///
/// Every player may hear the facts that the NPC told of itself, so their memory differs from the memory of the player's
/// own facts. The plans of the two memories are made separately and written at once.
pub(super) async fn reconcile_turn(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    job_input: &JobInput,
    injected: &InjectedMemory,
    learned: LearnedFacts,
) -> Result<Option<Vec<MemoryChange>>, JobError> {
    let (for_all, own) = self_told::split_shared(services, scope, job_input, injected, learned.facts).await?;
    let extraction = Extraction {
        turn: job_input.turn.id,
        dialogue: job_input.turn.dialogue,
        number: job_input.turn.number,
        npc: job_input.turn.npc.clone(),
        said_at: job_input.turn.committed_at,
        player: job_input.turn.player.clone(),
        forget: learned.forget,
        ends: learned.ends,
        injected: injected.ids.clone(),
        quoted: injected.quoted.clone(),
        audience: job_input.audience(),
        room: if for_all.is_empty() {
            JudgeBudgetShare::WHOLE
        } else {
            JudgeBudgetShare::GREATER
        },
    };
    let writing = ReconcileTrigger::Job(job.fence());
    if for_all.is_empty() && own.is_empty() && !extraction.may_end_facts() {
        // A turn without new facts ends no fact, so a plan is unnecessary.
        let episode = learned
            .episode
            .and_then(|fresh| new_episode(services, job_input, injected, fresh));
        let result = empty_reconciliation(job_input.world.id.clone(), writing, extraction, episode);
        return match services.ledger.facts.commit_reconciliation(scope, &result).await? {
            ReconcileOutcome::Committed | ReconcileOutcome::Fenced => Ok(None),
            ReconcileOutcome::MemoryMoved => {
                Err(StoreError::Corrupt(format!("the end of {} depends on a memory", job_input.turn.id)).into())
            }
        };
    }
    let part = |fresh: Vec<FreshFact>, extraction: Extraction, episode: Option<EmbeddedEpisode>| MemoryUpdate {
        memory: AudienceMemory {
            services,
            scope,
            world: job_input.world.id.clone(),
            npcs: job_input.learner_npcs(),
            audience: extraction.audience.clone(),
        },
        addition: Some(TurnAddition {
            facts: fresh
                .iter()
                .map(|fresh| new_fact(job_input, &extraction.audience, injected, fresh))
                .collect(),
            fresh,
            extraction,
            episode,
        }),
    };
    let beside = (!for_all.is_empty()).then(|| self_told::shared_extraction(&extraction));
    let episode = learned
        .episode
        .and_then(|fresh| new_episode(services, job_input, injected, fresh));
    let mut parts = vec![part(own, extraction, episode)];
    parts.extend(beside.map(|extraction| part(for_all, extraction, None)));
    let mut judge = Judge::new(services, scope, job_input.npc.language, MAX_CALLS_PER_TURN);
    let answer = job.answer.is_none().then_some(learned.answer.as_str());
    let written = write_updates(&parts, job_input.turn.committed_at, &writing, answer, &mut judge).await?;
    let outcomes = parts.iter().zip(written.into_iter().flatten());
    let added = outcomes.filter_map(|(part, outcome)| Some((part.addition.as_ref()?, outcome)));
    let changes = added.flat_map(|(addition, (known, settled))| memory_changes(&known, &settled, addition));
    Ok(Some(changes.collect()))
}

/// Returns the record of a turn that taught nothing. It changes no memory and depends on no memory.
fn empty_reconciliation(
    world: WorldId,
    writing: ReconcileTrigger,
    extraction: Extraction,
    episode: Option<EmbeddedEpisode>,
) -> Reconciliation {
    Reconciliation {
        trigger: writing,
        calls: tallied_usage(),
        world,
        npcs: Vec::new(),
        expected_memory_seq: 0,
        extractions: vec![extraction],
        facts: Vec::new(),
        episode,
        invalidations: Vec::new(),
        lifts: Vec::new(),
        flags: Vec::new(),
        flagging: Vec::new(),
        flagging_by: Vec::new(),
        flags_kept: Vec::new(),
        replaced: Vec::new(),
        verdicts: Vec::new(),
        lacks_vectors: false,
    }
}

/// Returns the episode of a turn with a player.
fn new_episode(
    services: &Services,
    job_input: &JobInput,
    injected: &InjectedMemory,
    fresh: FreshEpisode,
) -> Option<EmbeddedEpisode> {
    let turn = &job_input.turn;
    let trace = job_input.trace.as_ref();
    let episode = Episode {
        turn: turn.id,
        dialogue: turn.dialogue,
        number: turn.number,
        world: job_input.world.id.clone(),
        npc: turn.npc.clone(),
        player: turn.player.clone()?,
        place: trace.and_then(|trace| trace.place.clone()),
        locks: injected.private_locks.locks_of(&[&fresh.text]),
        text: fresh.text,
        importance: fresh.importance,
        // The time of the line, not the time of the job.
        at: turn.committed_at,
    };
    Some(EmbeddedEpisode {
        episode,
        // Without a vector, the episode is found by its age and importance until the embedder is back.
        vector: if fresh.embedding.is_empty() {
            EpisodeVector::Missing
        } else {
            EpisodeVector::Stored(Embedding {
                model: services.embedder.info().model.clone(),
                vector: fresh.embedding,
            })
        },
    })
}

/// Returns the end of retention of a new fact, by its kind. Pinned facts, among them limits of safety, do not expire.
fn expiry_of(job_input: &JobInput, statement: &Statement) -> Option<DateTime<Utc>> {
    let retention = job_input
        .world
        .settings
        .retention
        .as_ref()
        .filter(|_| !statement.pinned)?;
    let days = retention.days_of(statement.kind)?;
    job_input.turn.committed_at.checked_add_days(Days::new(days.into()))
}

fn new_fact(job_input: &JobInput, audience: &Audience, injected: &InjectedMemory, fresh: &FreshFact) -> NewFact {
    NewFact {
        id: fresh.id,
        world: job_input.world.id.clone(),
        audience: audience.clone(),
        locks: locks_of(job_input, &fresh.statement, injected),
        statement: fresh.statement.clone(),
        // The time of the line, not the time of the job.
        valid_at: job_input.turn.committed_at,
        expires_at: expiry_of(job_input, &fresh.statement),
        cause: Cause::Turn(job_input.turn.id),
        source: Some((job_input.turn.dialogue, job_input.turn.number)),
        derived_from: Vec::new(),
        pii: fresh.pii.clone(),
        authored: false,
        embedding: fresh.embedding.clone(),
    }
}

/// Returns the changes for the dialogue's listeners: new standing facts, ended facts and contradicted facts.
fn memory_changes(known: &[KnownFact], settled: &TimelineResolution, addition: &TurnAddition) -> Vec<MemoryChange> {
    let ended = |fact: FactId| {
        settled
            .ends
            .iter()
            .any(|end| end.fact == fact && end.restored_at.is_none())
    };
    let added = addition
        .fresh
        .iter()
        .filter(|fresh| !ended(fresh.id))
        .map(|fresh| MemoryChange {
            id: fresh.id,
            content: fresh.statement.content.clone(),
            op: MemoryOp::Added,
        });
    let known = known.iter().filter(|known| {
        let new = addition.fresh.iter().any(|fresh| fresh.id == known.fact.id);
        !new
    });
    let others = known.filter_map(|known| {
        let id = known.fact.id;
        let flagged = |flag: &FlaggedFact| flag.fact == id && flag.turn == addition.extraction.turn;
        let op = if known.fact.invalid.is_none() && ended(id) {
            MemoryOp::Invalidated
        } else if settled.flags.iter().any(flagged) {
            MemoryOp::Flagged
        } else {
            return None;
        };
        Some(MemoryChange {
            id,
            content: known.fact.view.content.clone(),
            op,
        })
    });
    added.chain(others).collect()
}
