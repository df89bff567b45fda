//! Duplicates and conflicts. `memory::timeline` decides the new state of a memory, and one transaction writes it.
//!
//! No lock is held during a model call. A plan records the memory position at its start. If another node wrote
//! meanwhile, the ledger refuses the plan, and a new plan is made. Verdicts and vectors of requests to forget, if
//! missing, are fetched between two plans.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};

use super::{
    judge::{Judge, KnownVerdicts},
    memory_update::{AudienceMemory, MemoryUpdate},
    timeline_reading::{MissingVectors, RequestVectors, TimelineRead},
};
use crate::{
    jobs::{JobError, embed_listed_facts},
    models::tallied_usage,
};
use colloquy_memory::{
    fact::{Audience, Cause, NewInvalidation},
    timeline::{JudgeBudget, KnownFact, PreparedTimeline, Timeline, TimelineResolution, UnjudgedPair},
};
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::facts::{JudgedPair, ReconcileOutcome, ReconcileTrigger, Reconciliation},
};

/// The maximum number of plans that other writers may overtake before the job is postponed.
const MAX_PLANS: usize = 8;
/// The wait for the judge before the extraction's model answer is stored. With a stored answer, a restarted process
/// need not ask again. A faster judge saves a write.
const KEEP_ANSWER_AFTER: Duration = Duration::from_millis(100);

/// Plans and writes until no other writer interferes. Memories of the same NPCs are written together or not at all.
/// Returns each memory's known facts and resolution. `None`: the write is no longer allowed. `answer`: the model's
/// answer, unless the ledger has stored it.
pub(super) async fn write_updates(
    parts: &[MemoryUpdate<'_>],
    since: DateTime<Utc>,
    writing: &ReconcileTrigger,
    answer: Option<&str>,
    judge: &mut Judge<'_>,
) -> Result<Option<Vec<(Vec<KnownFact>, TimelineResolution)>>, JobError> {
    let written = plan_and_write(parts, since, writing, answer, judge).await;
    judge.store_verdicts().await;
    written
}

#[expect(clippy::too_many_lines, reason = "the attempts of one write share their state")]
async fn plan_and_write(
    parts: &[MemoryUpdate<'_>],
    since: DateTime<Utc>,
    writing: &ReconcileTrigger,
    mut answer: Option<&str>,
    judge: &mut Judge<'_>,
) -> Result<Option<Vec<(Vec<KnownFact>, TimelineResolution)>>, JobError> {
    let Some(memory) = parts.first().map(|part| &part.memory) else {
        return Ok(None);
    };
    let services = memory.services;
    let scope = memory.scope;
    let facts = &memory.services.ledger.facts;
    let mut requests = RequestVectors::new();
    let mut moved = 0;
    let mut in_part = false;
    // A job stores facts without vectors, and its memory is marked. The marked memory then waits for the embedder.
    let is_job = matches!(writing, ReconcileTrigger::Job(_));
    let mut embeds_facts = !is_job;
    let room = Arc::new(judge.prompt_room()?);
    // The timelines from before the judge was asked. They stay valid until a writer touches an overlapping audience.
    let mut before: Option<(u64, Vec<Arc<PreparedTimeline>>)> = None;
    while moved < MAX_PLANS {
        let mut guard = services
            .memory_cache
            .lock_writers(scope, &memory.world, &memory.npcs)
            .await;
        // The ledger detects the writes of other nodes.
        let kept = before.take().and_then(|(seq, prepared)| {
            let now = match guard.as_slice() {
                [writes] => writes.position_if_disjoint(&audiences_of(parts), seq)?,
                _ => seq,
            };
            Some((now, prepared))
        });
        let (expected_memory_seq, prepared) = if let Some(kept) = kept {
            kept
        } else {
            let position = facts.memory_position(scope, &memory.world, &memory.npcs).await?;
            match read_timelines(parts, since, &requests, position.is_indexed, embeds_facts).await? {
                Ok(prepared) => (position.seq, prepared),
                Err(MissingVectors::NewRequests(texts)) => {
                    drop(guard);
                    memory.embed_requests(texts, &mut requests, is_job).await?;
                    continue;
                }
                Err(MissingVectors::StoredRequests(texts)) => {
                    drop(guard);
                    // Without a vector, what a request ended would be valid again.
                    let outcome = memory.embed_requests(texts, &mut requests, false).await;
                    outcome.inspect_err(|_| services.memory_cache.unembedded.record_tenant(scope))?;
                    continue;
                }
                Err(MissingVectors::Facts(facts)) => {
                    drop(guard);
                    let outcome = embed_listed_facts(services, scope, facts).await;
                    outcome.inspect_err(|_| services.memory_cache.unembedded.record_tenant(scope))?;
                    // A text that the embedder refuses stays without a vector.
                    embeds_facts = false;
                    continue;
                }
            }
        };
        let mut settled = Vec::with_capacity(parts.len());
        for (part, prepared) in parts.iter().zip(&prepared) {
            settled.push(part.memory.resolve_timeline(prepared, &room, judge).await?);
        }
        let unasked: Vec<UnjudgedPair> = settled
            .iter_mut()
            .flat_map(|settled| settled.unjudged.drain(..))
            .collect();
        if !unasked.is_empty() {
            let shows = settled.iter().any(TimelineResolution::has_changes);
            if !in_part && matches!(writing, ReconcileTrigger::DirtyMemory { .. }) && shows {
                // The known part becomes visible at once, because the judge may take long for the rest.
                in_part = true;
                let known = build_reconciliation(
                    memory,
                    parts,
                    writing.as_partial(),
                    expected_memory_seq,
                    &prepared,
                    &settled,
                    &judge.unkept,
                );
                match facts.commit_reconciliation(scope, &known).await? {
                    ReconcileOutcome::Committed => judge.unkept.clear(),
                    ReconcileOutcome::Fenced => return Ok(None),
                    ReconcileOutcome::MemoryMoved => moved += 1,
                }
                continue;
            }
            drop(guard);
            if !ask_judge(memory, judge, unasked, &room, writing, &mut answer).await? {
                return Ok(None);
            }
            before = Some((expected_memory_seq, prepared));
            continue;
        }
        let writing = match judge.away_reason() {
            Some(_) => writing.as_partial(),
            None => writing.clone(),
        };
        let mut result = build_reconciliation(
            memory,
            parts,
            writing,
            expected_memory_seq,
            &prepared,
            &settled,
            &judge.unkept,
        );
        let has_no_vector = |text: &String| requests.get(text).is_some_and(Vec::is_empty);
        result.lacks_vectors = result.facts.iter().any(|fact| fact.embedding.is_empty())
            || result
                .extractions
                .iter()
                .any(|extraction| extraction.forget.iter().any(has_no_vector));
        match facts.commit_reconciliation(scope, &result).await? {
            ReconcileOutcome::Committed => {
                judge.unkept.clear();
                services.memory_cache.cache_written(&result.facts);
                if let ([writes], false) = (guard.as_mut_slice(), result.facts.is_empty()) {
                    writes.record_write(expected_memory_seq, audiences_of(parts));
                }
                let known = prepared.into_iter().map(unwrap_known_facts);
                return Ok(Some(known.zip(settled).collect()));
            }
            ReconcileOutcome::Fenced => return Ok(None),
            ReconcileOutcome::MemoryMoved => moved += 1,
        }
    }
    Err(StoreError::Unavailable("this memory is written to all the time".to_owned()).into())
}

/// Returns the facts of a timeline. Copies the facts if the timeline is still shared.
fn unwrap_known_facts(prepared: Arc<PreparedTimeline>) -> Vec<KnownFact> {
    Arc::try_unwrap(prepared).map_or_else(|shared| shared.timeline().known.clone(), PreparedTimeline::into_known)
}

/// Asks the judge. If the judge is slow, stores the model answer of the extraction meanwhile. `false`: the job must not
/// write.
async fn ask_judge(
    memory: &AudienceMemory<'_>,
    judge: &mut Judge<'_>,
    unasked: Vec<UnjudgedPair>,
    room: &JudgeBudget,
    writing: &ReconcileTrigger,
    answer: &mut Option<&str>,
) -> Result<bool, JobError> {
    let mut asked = Box::pin(judge.ask_pairs(unasked, room));
    if let Ok(asked) = tokio::time::timeout(KEEP_ANSWER_AFTER, &mut asked).await {
        return asked.map(|()| true);
    }
    let jobs = &memory.services.ledger.jobs;
    if let (Some(answer), ReconcileTrigger::Job(fence)) = (answer.take(), writing)
        && !jobs.store_answer(memory.scope, fence, answer).await?
    {
        return Ok(false);
    }
    asked.await.map(|()| true)
}

fn audiences_of(parts: &[MemoryUpdate<'_>]) -> Vec<Audience> {
    parts.iter().map(|part| part.memory.audience.clone()).collect()
}

/// Reads the timeline of each memory, or returns what lacks vectors.
async fn read_timelines(
    parts: &[MemoryUpdate<'_>],
    since: DateTime<Utc>,
    requests: &RequestVectors,
    is_indexed: bool,
    embeds_facts: bool,
) -> Result<Result<Vec<Arc<PreparedTimeline>>, MissingVectors>, JobError> {
    let mut prepared = Vec::with_capacity(parts.len());
    for MemoryUpdate { memory, addition } in parts {
        match memory
            .read_timeline(since, addition.as_ref(), requests, is_indexed, embeds_facts)
            .await?
        {
            TimelineRead::Complete(timeline) => prepared.push(memory.prepare_timeline(timeline).await?),
            TimelineRead::Incomplete(missing) => return Ok(Err(missing)),
        }
    }
    Ok(Ok(prepared))
}

/// Collects the writes of all memories. `memory` may be each of the memories.
fn build_reconciliation(
    memory: &AudienceMemory<'_>,
    parts: &[MemoryUpdate<'_>],
    writing: ReconcileTrigger,
    expected_memory_seq: u64,
    prepared: &[Arc<PreparedTimeline>],
    settled: &[TimelineResolution],
    verdicts: &[JudgedPair],
) -> Reconciliation {
    let additions = || parts.iter().filter_map(|part| part.addition.as_ref());
    let timelines = || prepared.iter().map(|prepared| prepared.timeline());
    let ends = settled.iter().flat_map(|settled| &settled.ends);
    Reconciliation {
        trigger: writing,
        calls: tallied_usage(),
        world: memory.world.clone(),
        npcs: memory.npcs.clone(),
        expected_memory_seq,
        extractions: additions().map(|addition| addition.extraction.clone()).collect(),
        facts: additions().flat_map(|addition| addition.facts.clone()).collect(),
        episode: additions().find_map(|addition| addition.episode.clone()),
        invalidations: ends
            .map(|end| NewInvalidation {
                id: memory.services.ids.next_id(),
                fact: end.fact,
                reason: end.reason,
                by: end.by,
                cause: Cause::Turn(end.turn),
                at: end.at,
                restored_at: end.restored_at,
            })
            .collect(),
        lifts: settled.iter().flat_map(|settled| settled.lifts.clone()).collect(),
        flags: settled.iter().flat_map(|settled| settled.flags.clone()).collect(),
        flagging: timelines()
            .flat_map(|timeline| timeline.turns.iter().map(|said| said.turn))
            .collect(),
        flagging_by: timelines().flat_map(Timeline::facts_said_since).collect(),
        flags_kept: settled
            .iter()
            .flat_map(|settled| settled.undecided_pairs.iter().copied())
            .collect(),
        replaced: settled.iter().flat_map(|settled| settled.replaced.clone()).collect(),
        verdicts: verdicts.to_vec(),
        lacks_vectors: false,
    }
}

impl AudienceMemory<'_> {
    /// Processes the facts and requests since `since` again, and writes the result.
    pub(super) async fn reconcile_since(
        self,
        since: DateTime<Utc>,
        writing: &ReconcileTrigger,
        judge: &mut Judge<'_>,
    ) -> Result<(), JobError> {
        let part = MemoryUpdate {
            memory: self,
            addition: None,
        };
        write_updates(&[part], since, writing, None, judge).await.map(drop)
    }

    async fn prepare_timeline(&self, timeline: Timeline) -> StoreResult<Arc<PreparedTimeline>> {
        let calibration = self.services.embedder.info().calibration;
        let long = timeline.needs_own_thread();
        run_apart_if_long(long, move || Arc::new(PreparedTimeline::new(&calibration, timeline))).await
    }

    /// Resolves the timeline with the verdicts in the ledger. The remaining unjudged pairs have no verdict yet.
    async fn resolve_timeline(
        &self,
        prepared: &Arc<PreparedTimeline>,
        room: &Arc<JudgeBudget>,
        judge: &mut Judge<'_>,
    ) -> Result<TimelineResolution, JobError> {
        let long = prepared.timeline().needs_own_thread();
        loop {
            let again = Arc::clone(prepared);
            let room = Arc::clone(room);
            let answers: KnownVerdicts = std::mem::take(&mut judge.answers);
            let (mut settled, answers) = run_apart_if_long(long, move || {
                let settled = again.reconcile_timeline(&room, |older, newer| answers.verdict_of(older, newer));
                (settled, answers)
            })
            .await?;
            judge.answers = answers;
            let asked = settled.unjudged.len();
            settled.unjudged = judge.look_up_verdicts(std::mem::take(&mut settled.unjudged)).await?;
            if settled.unjudged.len() == asked {
                return Ok(settled);
            }
        }
    }
}

/// Runs `work`; if it is `long`, on a thread of its own, so that no dialogue waits for it.
async fn run_apart_if_long<T: Send + 'static>(long: bool, work: impl FnOnce() -> T + Send + 'static) -> StoreResult<T> {
    if !long {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| StoreError::Unavailable(format!("a memory was not gone through: {error}")))
}
