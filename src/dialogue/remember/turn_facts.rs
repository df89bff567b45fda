//! Writes the episode and the facts of one turn: facts private to the player, facts for all hearers, and the NPC's facts about itself.

use chrono::{DateTime, Days, Utc};

use super::{
    decisions::{TurnWrite, decide_turn_write},
    injected_memory::InjectedMemory,
    judge::Judge,
    learned::{FreshEpisode, FreshFact, LearnedFacts},
    memory_update::{AudienceMemory, MemoryUpdate, TurnAddition},
    reconciliation::{WrittenUpdate, write_updates},
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
    disclosure::audience::Audience,
    episode::Episode,
    fact::{Cause, NewFact, Statement},
    timeline::FlaggedFact,
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
    let (shared_facts, private_facts) = self_told::split_shared(services, scope, job_input, learned.facts).await?;
    let may_end_facts = !(learned.forget.is_empty() && learned.ends.is_empty());
    let write = decide_turn_write(!private_facts.is_empty(), !shared_facts.is_empty(), may_end_facts);
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
        room: write.judge_share(),
    };
    let episode = learned
        .episode
        .and_then(|fresh| new_episode(services, job_input, injected, fresh));
    let trigger = ReconcileTrigger::Job(job.fence());
    if write == TurnWrite::RecordOnly {
        commit_without_facts(services, scope, job_input, trigger, extraction, episode).await?;
        return Ok(None);
    }
    let shared_extraction = (write == TurnWrite::BothMemories).then(|| self_told::shared_extraction(&extraction));
    let writer = TurnWriter {
        services,
        scope,
        job_input,
        injected,
    };
    let mut updates = vec![writer.update_with(private_facts, extraction, episode)];
    updates.extend(shared_extraction.map(|extraction| writer.update_with(shared_facts, extraction, None)));
    let mut judge = Judge::new(services, scope, job_input.npc.language, MAX_CALLS_PER_TURN);
    let answer = job.answer.is_none().then_some(learned.answer.as_str());
    let written_updates = write_updates(&updates, job_input.turn.committed_at, &trigger, answer, &mut judge).await?;
    debug_assert!(
        written_updates
            .as_ref()
            .is_none_or(|written| written.len() == updates.len()),
        "all memories of a turn are written, or none"
    );
    let outcomes = updates.iter().zip(written_updates.into_iter().flatten());
    let added = outcomes.filter_map(|(update, outcome)| Some((update.addition.as_ref()?, outcome)));
    let changes = added.flat_map(|(addition, outcome)| memory_changes(&outcome, addition));
    Ok(Some(changes.collect()))
}

/// Builds the updates of the memories of one turn.
struct TurnWriter<'a> {
    services: &'a Services,
    scope: &'a TenantScope,
    job_input: &'a JobInput,
    injected: &'a InjectedMemory,
}

impl<'a> TurnWriter<'a> {
    fn update_with(
        &self,
        fresh_facts: Vec<FreshFact>,
        extraction: Extraction,
        episode: Option<EmbeddedEpisode>,
    ) -> MemoryUpdate<'a> {
        let facts = fresh_facts
            .iter()
            .map(|fresh_fact| new_fact(self.job_input, &extraction.audience, self.injected, fresh_fact));
        MemoryUpdate {
            memory: AudienceMemory {
                services: self.services,
                scope: self.scope,
                world: self.job_input.world.id.clone(),
                npcs: self.job_input.learner_npcs(),
                audience: extraction.audience.clone(),
            },
            addition: Some(TurnAddition {
                facts: facts.collect(),
                fresh_facts,
                extraction,
                episode,
            }),
        }
    }
}

/// Writes the record of a turn without new facts. It ends no fact, so a plan is unnecessary.
async fn commit_without_facts(
    services: &Services,
    scope: &TenantScope,
    job_input: &JobInput,
    trigger: ReconcileTrigger,
    extraction: Extraction,
    episode: Option<EmbeddedEpisode>,
) -> Result<(), JobError> {
    let result = empty_reconciliation(job_input.world.id.clone(), trigger, extraction, episode);
    match services.ledger.facts.commit_reconciliation(scope, &result).await? {
        ReconcileOutcome::Committed | ReconcileOutcome::Fenced => Ok(()),
        ReconcileOutcome::MemoryMoved => {
            Err(StoreError::Corrupt(format!("the end of {} depends on a memory", job_input.turn.id)).into())
        }
    }
}

/// Returns the record of a turn that taught nothing. It changes no memory and depends on no memory.
fn empty_reconciliation(
    world: WorldId,
    trigger: ReconcileTrigger,
    extraction: Extraction,
    episode: Option<EmbeddedEpisode>,
) -> Reconciliation {
    Reconciliation {
        trigger,
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
    fresh_episode: FreshEpisode,
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
        locks: injected.locks.of_episode(&fresh_episode.text),
        text: fresh_episode.text,
        importance: fresh_episode.importance,
        // The time of the line, not the time of the job.
        committed_at: turn.committed_at,
    };
    Some(EmbeddedEpisode {
        episode,
        // Without a vector, the episode is found by its age and importance until the embedder is back.
        vector: if fresh_episode.embedding.is_empty() {
            EpisodeVector::Missing
        } else {
            EpisodeVector::Stored(Embedding {
                model: services.embedder.info().model.clone(),
                vector: fresh_episode.embedding,
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

fn new_fact(job_input: &JobInput, audience: &Audience, injected: &InjectedMemory, fresh_fact: &FreshFact) -> NewFact {
    NewFact {
        id: fresh_fact.id,
        world: job_input.world.id.clone(),
        audience: audience.clone(),
        locks: injected.locks.of_fact(job_input, &fresh_fact.statement),
        statement: fresh_fact.statement.clone(),
        // The time of the line, not the time of the job.
        valid_at: job_input.turn.committed_at,
        expires_at: expiry_of(job_input, &fresh_fact.statement),
        cause: Cause::Turn(job_input.turn.id),
        source: Some((job_input.turn.dialogue, job_input.turn.number)),
        derived_from: Vec::new(),
        pii: fresh_fact.pii.clone(),
        authored: false,
        embedding: fresh_fact.embedding.clone(),
    }
}

/// Returns the changes for the dialogue's listeners: new standing facts, ended facts and contradicted facts.
fn memory_changes(written_update: &WrittenUpdate, addition: &TurnAddition) -> Vec<MemoryChange> {
    let WrittenUpdate {
        known_facts,
        resolution,
    } = written_update;
    let is_ended = |fact: FactId| {
        resolution
            .ends
            .iter()
            .any(|end| end.fact == fact && end.restored_at.is_none())
    };
    let added = addition
        .fresh_facts
        .iter()
        .filter(|fresh| !is_ended(fresh.id))
        .map(|fresh| MemoryChange {
            id: fresh.id,
            content: fresh.statement.content.clone(),
            op: MemoryOp::Added,
        });
    let earlier_facts = known_facts.iter().filter(|known| {
        let mut fresh_facts = addition.fresh_facts.iter();
        fresh_facts.all(|fresh| fresh.id != known.fact.id)
    });
    let other_changes = earlier_facts.filter_map(|known| {
        let id = known.fact.id;
        let is_flag_of_turn = |flag: &FlaggedFact| flag.fact == id && flag.turn == addition.extraction.turn;
        let op = if known.fact.invalid.is_none() && is_ended(id) {
            MemoryOp::Invalidated
        } else if resolution.flags.iter().any(is_flag_of_turn) {
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
    added.chain(other_changes).collect()
}
