//! Dedupe and conflict: what a memory comes to, decided by `memory::timeline` and written in one
//! transaction.
//!
//! No lock is held while a model is asked. The plan says where memory stood when it was made, and the
//! ledger refuses it if another node wrote meanwhile; then it is made again. What a plan turned out to
//! need, verdicts and the vectors of what was asked to be forgotten, is fetched between two plans.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};

use super::{
    extraction::Fresh,
    judge::{Answers, Judge},
    reading::{Read, Requests},
};
use crate::{
    dialogue::{Services, jobs::JobError, models::spent},
    ids::{NpcId, WorldId},
    memory::{
        fact::{Audience, Cause, NewFact, NewInvalidation},
        timeline::{Known, Prepared, Room, Settled, Timeline, Unasked},
    },
    ports::{
        StoreError, StoreResult,
        ledger::facts::{Extraction, JudgedPair, ReconcileOutcome, Reconciliation, Writing},
    },
    tenancy::TenantScope,
};

/// How often somebody else may write meanwhile before the job is put off.
const MAX_PLANS: usize = 8;
/// For how long a judge is waited for before what a model said of the turn is kept: then it need not be asked for again, should
/// this process end. A judge that answers sooner costs one write less.
const KEEP_ANSWER_AFTER: Duration = Duration::from_millis(100);

/// Which memory is written to.
pub(super) struct Memory<'a> {
    pub services: &'a Services,
    pub scope: &'a TenantScope,
    pub world: WorldId,
    pub audience: Audience,
    /// Whose `memory_seq` guards it; sorted.
    pub npcs: Vec<NpcId>,
}

/// What one turn adds to a memory.
pub(super) struct Addition {
    pub facts: Vec<NewFact>,
    pub extraction: Extraction,
    pub fresh: Vec<Fresh>,
}

/// A memory, and what a turn adds to it.
pub(super) struct Part<'a> {
    pub memory: Memory<'a>,
    pub addition: Option<Addition>,
}

/// Plans and writes until memory holds still: memories of the same NPCs, all at once or none. What each comes to, with what
/// was known of it; `None`: they may no longer be written. `answer`: what a model said, unless the ledger has it already.
pub(super) async fn write(
    parts: &[Part<'_>],
    since: DateTime<Utc>,
    writing: &Writing,
    answer: Option<&str>,
    judge: &mut Judge<'_>,
) -> Result<Option<Vec<(Vec<Known>, Settled)>>, JobError> {
    let written = plan_and_write(parts, since, writing, answer, judge).await;
    judge.keep().await;
    written
}

async fn plan_and_write(
    parts: &[Part<'_>],
    since: DateTime<Utc>,
    writing: &Writing,
    mut answer: Option<&str>,
    judge: &mut Judge<'_>,
) -> Result<Option<Vec<(Vec<Known>, Settled)>>, JobError> {
    let Some(memory) = parts.first().map(|part| &part.memory) else {
        return Ok(None);
    };
    let (services, scope, facts) = (memory.services, memory.scope, &memory.services.ledger.facts);
    let mut requests = Requests::new();
    let (mut moved, mut in_part) = (0, false);
    let room = Arc::new(judge.room()?);
    // What was read before somebody was asked is right for as long as nobody has written what it may touch.
    let mut before: Option<(u64, Vec<Arc<Prepared>>)> = None;
    while moved < MAX_PLANS {
        let mut guard = services.bodies.write_memory(scope, &memory.world, &memory.npcs).await;
        // What other nodes wrote, the ledger notices.
        let kept = before.take().and_then(|(seq, prepared)| {
            let now = match guard.as_slice() {
                [writes] => writes.apart_from(&audiences(parts), seq)?,
                _ => seq,
            };
            Some((now, prepared))
        });
        let (expected_memory_seq, prepared) = if let Some(kept) = kept {
            kept
        } else {
            let position = facts.memory_position(scope, &memory.world, &memory.npcs).await?;
            match read(parts, since, &requests, position.is_indexed).await? {
                Ok(prepared) => (position.seq, prepared),
                Err(lacks) => {
                    drop(guard);
                    memory.embed(lacks, &mut requests).await?;
                    continue;
                }
            }
        };
        let mut settled = Vec::with_capacity(parts.len());
        for (part, prepared) in parts.iter().zip(&prepared) {
            settled.push(part.memory.settled(prepared, &room, judge).await?);
        }
        let unasked: Vec<Unasked> = settled
            .iter_mut()
            .flat_map(|settled| settled.unasked.drain(..))
            .collect();
        if !unasked.is_empty() {
            let shows = settled.iter().any(Settled::changes_something);
            if !in_part && matches!(writing, Writing::Settling { .. }) && shows {
                // What is known by now shows at once, however long a judge takes for the rest.
                in_part = true;
                let known = reconciliation(
                    memory,
                    parts,
                    writing.in_part(),
                    expected_memory_seq,
                    &prepared,
                    &settled,
                    &judge.unkept,
                );
                match facts.reconcile(scope, &known).await? {
                    ReconcileOutcome::Committed => judge.unkept.clear(),
                    ReconcileOutcome::Fenced => return Ok(None),
                    ReconcileOutcome::MemoryMoved => moved += 1,
                }
                continue;
            }
            drop(guard);
            if !ask(memory, judge, unasked, &room, writing, &mut answer).await? {
                return Ok(None);
            }
            before = Some((expected_memory_seq, prepared));
            continue;
        }
        let writing = match judge.away() {
            Some(_) => writing.in_part(),
            None => writing.clone(),
        };
        let result = reconciliation(
            memory,
            parts,
            writing,
            expected_memory_seq,
            &prepared,
            &settled,
            &judge.unkept,
        );
        match facts.reconcile(scope, &result).await? {
            ReconcileOutcome::Committed => {
                judge.unkept.clear();
                services.bodies.keep(&result.facts);
                if let ([writes], false) = (guard.as_mut_slice(), result.facts.is_empty()) {
                    writes.note(expected_memory_seq, audiences(parts));
                }
                let known = prepared.into_iter().map(|prepared| {
                    // Nobody else has it by now; if so, a copy does as well.
                    let known = Arc::try_unwrap(prepared).map(Prepared::into_known);
                    known.unwrap_or_else(|shared| shared.timeline().known.clone())
                });
                return Ok(Some(known.zip(settled).collect()));
            }
            ReconcileOutcome::Fenced => return Ok(None),
            ReconcileOutcome::MemoryMoved => moved += 1,
        }
    }
    Err(StoreError::Unavailable("this memory is written to all the time".to_owned()).into())
}

/// Asks the judge; where it takes its time, the answer that the turn was extracted from is kept meanwhile. `false`: the job is not
/// to write any more.
async fn ask(
    memory: &Memory<'_>,
    judge: &mut Judge<'_>,
    unasked: Vec<Unasked>,
    room: &Room,
    writing: &Writing,
    answer: &mut Option<&str>,
) -> Result<bool, JobError> {
    let mut asked = Box::pin(judge.ask(unasked, room));
    if let Ok(asked) = tokio::time::timeout(KEEP_ANSWER_AFTER, &mut asked).await {
        return asked.map(|()| true);
    }
    let jobs = &memory.services.ledger.jobs;
    if let (Some(answer), Writing::Job(fence)) = (answer.take(), writing)
        && !jobs.keep_answer(memory.scope, fence, answer).await?
    {
        return Ok(false);
    }
    asked.await.map(|()| true)
}

fn audiences(parts: &[Part<'_>]) -> Vec<Audience> {
    parts.iter().map(|part| part.memory.audience.clone()).collect()
}

/// What each memory is planned from; or the requests whose vectors one of them takes.
async fn read(
    parts: &[Part<'_>],
    since: DateTime<Utc>,
    requests: &Requests,
    is_indexed: bool,
) -> Result<Result<Vec<Arc<Prepared>>, Vec<String>>, JobError> {
    let mut prepared = Vec::with_capacity(parts.len());
    for Part { memory, addition } in parts {
        match memory.timeline(since, addition.as_ref(), requests, is_indexed).await? {
            Read::Whole(timeline) => prepared.push(memory.prepared(timeline).await?),
            Read::Lacks(texts) => return Ok(Err(texts)),
        }
    }
    Ok(Ok(prepared))
}

/// All that is written, of every memory; `memory` is any of them.
fn reconciliation(
    memory: &Memory<'_>,
    parts: &[Part<'_>],
    writing: Writing,
    expected_memory_seq: u64,
    prepared: &[Arc<Prepared>],
    settled: &[Settled],
    verdicts: &[JudgedPair],
) -> Reconciliation {
    let additions = || parts.iter().filter_map(|part| part.addition.as_ref());
    let timelines = || prepared.iter().map(|prepared| prepared.timeline());
    let ends = settled.iter().flat_map(|settled| &settled.ends);
    Reconciliation {
        writing,
        calls: spent(),
        world: memory.world.clone(),
        npcs: memory.npcs.clone(),
        expected_memory_seq,
        extractions: additions().map(|addition| addition.extraction.clone()).collect(),
        facts: additions().flat_map(|addition| addition.facts.clone()).collect(),
        invalidations: ends
            .map(|end| NewInvalidation {
                id: memory.services.ids.next(),
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
            .flat_map(|timeline| timeline.said.iter().map(|said| said.turn))
            .collect(),
        flagging_by: timelines().flat_map(Timeline::said_since).collect(),
        flags_kept: settled
            .iter()
            .flat_map(|settled| settled.unheard.iter().copied())
            .collect(),
        replaced: settled.iter().flat_map(|settled| settled.replaced.clone()).collect(),
        verdicts: verdicts.to_vec(),
    }
}

impl Memory<'_> {
    /// Goes through what was said since once more, and writes what it comes to.
    pub(super) async fn settle(
        self,
        since: DateTime<Utc>,
        writing: &Writing,
        judge: &mut Judge<'_>,
    ) -> Result<(), JobError> {
        let part = Part {
            memory: self,
            addition: None,
        };
        write(&[part], since, writing, None, judge).await.map(drop)
    }

    async fn prepared(&self, timeline: Timeline) -> StoreResult<Arc<Prepared>> {
        let calibration = self.services.embedder.info().calibration;
        let long = timeline.is_long();
        apart(long, move || Arc::new(Prepared::new(&calibration, timeline))).await
    }

    /// What the timeline comes to, with the verdicts that the ledger has; what is left unasked, nobody has
    /// judged yet.
    async fn settled(
        &self,
        prepared: &Arc<Prepared>,
        room: &Arc<Room>,
        judge: &mut Judge<'_>,
    ) -> Result<Settled, JobError> {
        let long = prepared.timeline().is_long();
        loop {
            let (again, room) = (Arc::clone(prepared), Arc::clone(room));
            let answers: Answers = std::mem::take(&mut judge.answers);
            let (mut settled, answers) = apart(long, move || {
                let settled = again.settle(&room, |older, newer| answers.of(older, newer));
                (settled, answers)
            })
            .await?;
            judge.answers = answers;
            let asked = settled.unasked.len();
            settled.unasked = judge.look_up(std::mem::take(&mut settled.unasked)).await?;
            if settled.unasked.len() == asked {
                return Ok(settled);
            }
        }
    }
}

/// Runs `work`; where it is `long`, on a thread of its own, so that no dialogue waits for it.
async fn apart<T: Send + 'static>(long: bool, work: impl FnOnce() -> T + Send + 'static) -> StoreResult<T> {
    if !long {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| StoreError::Unavailable(format!("a memory was not gone through: {error}")))
}
