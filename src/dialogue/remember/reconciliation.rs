//! Dedupe and conflict: what a memory comes to, decided by `memory::timeline` and written in one
//! transaction.
//!
//! No lock is held while a model is asked. The plan says where memory stood when it was made, and the
//! ledger refuses it if another node wrote meanwhile; then it is made again. What a plan turned out to
//! need, verdicts and the vectors of what was asked to be forgotten, is fetched between two plans.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};

use super::{
    extraction::FreshFact,
    judge::{Judge, KnownVerdicts},
    timeline_reading::{RequestVectors, TimelineRead},
};
use crate::{
    dialogue::{Services, jobs::JobError, models::tallied_usage},
    ids::{NpcId, WorldId},
    memory::{
        fact::{Audience, Cause, NewFact, NewInvalidation},
        timeline::{JudgeBudget, KnownFact, PreparedTimeline, Timeline, TimelineResolution, UnjudgedPair},
    },
    ports::{
        StoreError, StoreResult,
        ledger::facts::{Extraction, JudgedPair, ReconcileOutcome, ReconcileTrigger, Reconciliation},
    },
    tenancy::TenantScope,
};

/// How often somebody else may write meanwhile before the job is put off.
const MAX_PLANS: usize = 8;
/// For how long a judge is waited for before what a model said of the turn is kept: then it need not be asked for again, should
/// this process end. A judge that answers sooner costs one write less.
const KEEP_ANSWER_AFTER: Duration = Duration::from_millis(100);

/// Which memory is written to.
pub(super) struct AudienceMemory<'a> {
    pub services: &'a Services,
    pub scope: &'a TenantScope,
    pub world: WorldId,
    pub audience: Audience,
    /// Whose `memory_seq` guards it; sorted.
    pub npcs: Vec<NpcId>,
}

/// What one turn adds to a memory.
pub(super) struct TurnAddition {
    pub facts: Vec<NewFact>,
    pub extraction: Extraction,
    pub fresh: Vec<FreshFact>,
}

/// A memory, and what a turn adds to it.
pub(super) struct MemoryUpdate<'a> {
    pub memory: AudienceMemory<'a>,
    pub addition: Option<TurnAddition>,
}

/// Plans and writes until memory holds still: memories of the same NPCs, all at once or none. What each comes to, with what
/// was known of it; `None`: they may no longer be written. `answer`: what a model said, unless the ledger has it already.
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
    let (services, scope, facts) = (memory.services, memory.scope, &memory.services.ledger.facts);
    let mut requests = RequestVectors::new();
    let (mut moved, mut in_part) = (0, false);
    let room = Arc::new(judge.prompt_room()?);
    // What was read before somebody was asked is right for as long as nobody has written what it may touch.
    let mut before: Option<(u64, Vec<Arc<PreparedTimeline>>)> = None;
    while moved < MAX_PLANS {
        let mut guard = services
            .memory_cache
            .lock_writers(scope, &memory.world, &memory.npcs)
            .await;
        // What other nodes wrote, the ledger notices.
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
            match read_timelines(parts, since, &requests, position.is_indexed).await? {
                Ok(prepared) => (position.seq, prepared),
                Err(lacks) => {
                    drop(guard);
                    memory.embed_requests(lacks, &mut requests).await?;
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
                // What is known by now shows at once, however long a judge takes for the rest.
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
        let result = build_reconciliation(
            memory,
            parts,
            writing,
            expected_memory_seq,
            &prepared,
            &settled,
            &judge.unkept,
        );
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

/// The facts of a timeline; a copy of them where somebody else still holds the timeline.
fn unwrap_known_facts(prepared: Arc<PreparedTimeline>) -> Vec<KnownFact> {
    Arc::try_unwrap(prepared).map_or_else(|shared| shared.timeline().known.clone(), PreparedTimeline::into_known)
}

/// Asks the judge; where it takes its time, the answer that the turn was extracted from is kept meanwhile. `false`: the job is not
/// to write any more.
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

/// What each memory is planned from; or the requests whose vectors one of them takes.
async fn read_timelines(
    parts: &[MemoryUpdate<'_>],
    since: DateTime<Utc>,
    requests: &RequestVectors,
    is_indexed: bool,
) -> Result<Result<Vec<Arc<PreparedTimeline>>, Vec<String>>, JobError> {
    let mut prepared = Vec::with_capacity(parts.len());
    for MemoryUpdate { memory, addition } in parts {
        match memory
            .read_timeline(since, addition.as_ref(), requests, is_indexed)
            .await?
        {
            TimelineRead::Complete(timeline) => prepared.push(memory.prepare_timeline(timeline).await?),
            TimelineRead::MissingVectors(texts) => return Ok(Err(texts)),
        }
    }
    Ok(Ok(prepared))
}

/// All that is written, of every memory; `memory` is any of them.
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
    }
}

impl AudienceMemory<'_> {
    /// Goes through what was said since once more, and writes what it comes to.
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

    /// What the timeline comes to, with the verdicts that the ledger has; what is left unasked, nobody has
    /// judged yet.
    async fn resolve_timeline(
        &self,
        prepared: &Arc<PreparedTimeline>,
        room: &Arc<JudgeBudget>,
        judge: &mut Judge<'_>,
    ) -> Result<TimelineResolution, JobError> {
        let long = prepared.timeline().needs_own_thread();
        loop {
            let (again, room) = (Arc::clone(prepared), Arc::clone(room));
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

/// Runs `work`; where it is `long`, on a thread of its own, so that no dialogue waits for it.
async fn run_apart_if_long<T: Send + 'static>(long: bool, work: impl FnOnce() -> T + Send + 'static) -> StoreResult<T> {
    if !long {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| StoreError::Unavailable(format!("a memory was not gone through: {error}")))
}
