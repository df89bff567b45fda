//! Dedupe and conflict: what a memory comes to, decided by `memory::timeline` and written in one
//! transaction.
//!
//! No lock is held while a model is asked. The plan says where memory stood when it was made, and the
//! ledger refuses it if another node wrote meanwhile; then it is made again. What a plan turned out to
//! need, verdicts and the vectors of what was asked to be forgotten, is fetched between two plans.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::{
    Injected,
    extraction::{Fresh, Learned},
    judge::{Answers, Judge},
    reading::{Read, Requests},
};
use crate::{
    dialogue::{
        Services,
        events::{MemoryChange, MemoryOp},
        jobs::{JobError, Said},
        models::spent,
    },
    ids::{FactId, NpcId, TurnId, WorldId},
    memory::{
        fact::{Audience, Cause, NewFact, NewInvalidation},
        timeline::{self, Known, Prepared, Room, Settled, Timeline},
    },
    ports::{
        StoreError, StoreResult,
        ledger::{
            facts::{Extraction, ReconcileOutcome, Reconciliation, Writing},
            jobs::Job,
        },
    },
    tenancy::TenantScope,
};

/// How often somebody else may write meanwhile before the job is put off.
const MAX_PLANS: usize = 8;
/// Calls of a judge that the job of one turn may make. One is enough for what a turn teaches; what was said since a turn
/// whose job comes late needs more.
const TURN_CALLS: usize = 4;

/// Which memory is written to.
pub(super) struct Memory<'a> {
    pub services: &'a Services,
    pub scope: &'a TenantScope,
    pub world: WorldId,
    pub audience: Audience,
    /// Whose `memory_seq` guards it; sorted.
    pub npcs: Vec<NpcId>,
}

/// What one turn adds.
pub(super) struct Addition<'a> {
    turn: TurnId,
    pub facts: Vec<NewFact>,
    pub extraction: Extraction,
    pub fresh: &'a [Fresh],
    /// What the model answered, unless the ledger has it already.
    answer: Option<&'a str>,
}

/// Writes what was learned. Returns what changed; nothing if the turn was unsaid meanwhile.
pub(super) async fn reconcile(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    said: &Said,
    injected: &Injected,
    learned: Learned,
) -> Result<Vec<MemoryChange>, JobError> {
    let audience = said.audience();
    let memory = Memory {
        services,
        scope,
        world: said.world.id.clone(),
        npcs: said.learners(),
        audience: audience.clone(),
    };
    let addition = Addition {
        turn: said.turn.id,
        facts: learned
            .facts
            .iter()
            .map(|fresh| new_fact(said, &audience, injected, fresh))
            .collect(),
        fresh: &learned.facts,
        answer: job.answer.is_none().then_some(learned.answer.as_str()),
        extraction: Extraction {
            turn: said.turn.id,
            dialogue: said.turn.dialogue,
            number: said.turn.number,
            npc: said.turn.npc.clone(),
            said_at: said.turn.committed_at,
            player: said.turn.player.clone(),
            forget: learned.forget.clone(),
            ends: learned.ends.clone(),
            injected: injected.ids.clone(),
            quoted: injected.quoted.clone(),
            audience,
        },
    };
    let writing = Writing::Job(job.fence());
    if addition.facts.is_empty() && !addition.extraction.may_end_facts() {
        // A turn that says nothing new ends nothing, whatever was said around it: there is nothing to plan.
        let result = nothing_new(memory.world, writing, addition.extraction);
        return match services.ledger.facts.reconcile(scope, &result).await? {
            ReconcileOutcome::Committed | ReconcileOutcome::Fenced => Ok(Vec::new()),
            ReconcileOutcome::MemoryMoved => {
                Err(StoreError::Corrupt(format!("the end of {} depends on a memory", said.turn.id)).into())
            }
        };
    }
    let mut judge = Judge::new(services, scope, said.npc.language, TURN_CALLS);
    let since = said.turn.committed_at;
    let written = memory.write(since, Some(&addition), &writing, &mut judge).await?;
    Ok(written.map_or_else(Vec::new, |(known, settled)| changes(&known, &settled, &addition)))
}

/// That a turn taught nothing, which moves no memory and depends on none.
fn nothing_new(world: WorldId, writing: Writing, extraction: Extraction) -> Reconciliation {
    Reconciliation {
        writing,
        calls: spent(),
        world,
        npcs: Vec::new(),
        expected_memory_seq: 0,
        extraction: Some(extraction),
        facts: Vec::new(),
        invalidations: Vec::new(),
        lifts: Vec::new(),
        flags: Vec::new(),
        flagging: Vec::new(),
        flags_kept: Vec::new(),
        replaced: Vec::new(),
    }
}

impl Memory<'_> {
    /// Plans and writes until memory holds still. `None`: it may no longer be written.
    pub(super) async fn write(
        &self,
        since: DateTime<Utc>,
        addition: Option<&Addition<'_>>,
        writing: &Writing,
        judge: &mut Judge<'_>,
    ) -> Result<Option<(Vec<Known>, Settled)>, JobError> {
        let (services, facts) = (self.services, &self.services.ledger.facts);
        let mut requests = Requests::new();
        let mut answer = addition.and_then(|addition| addition.answer);
        let (mut moved, mut part) = (0, false);
        let room = Arc::new(judge.room()?);
        // What was read before somebody was asked is right for as long as memory holds still.
        let mut kept: Option<(u64, Arc<Prepared>)> = None;
        while moved < MAX_PLANS {
            let guard = services.bodies.write_memory(self.scope, &self.world, &self.npcs).await;
            let expected_memory_seq = facts.memory_seq(self.scope, &self.world, &self.npcs).await?;
            let prepared = match kept.take() {
                Some((seq, prepared)) if seq == expected_memory_seq => prepared,
                _ => match self.timeline(since, addition, &requests).await? {
                    Read::Whole(timeline) => self.prepared(timeline).await?,
                    Read::Lacks(texts) => {
                        drop(guard);
                        self.embed(texts, &mut requests).await?;
                        continue;
                    }
                },
            };
            let settled = self.settled(&prepared, &room, judge).await?;
            if !settled.unasked.is_empty() {
                if !part && matches!(writing, Writing::Settling { .. }) && settled.changes_something() {
                    // What is known by now shows at once, however long a judge takes for the rest.
                    part = true;
                    let known = self.reconciliation(
                        writing.in_part(),
                        expected_memory_seq,
                        addition,
                        prepared.timeline(),
                        &settled,
                    );
                    match facts.reconcile(self.scope, &known).await? {
                        ReconcileOutcome::Committed => {}
                        ReconcileOutcome::Fenced => return Ok(None),
                        ReconcileOutcome::MemoryMoved => moved += 1,
                    }
                    continue;
                }
                drop(guard);
                if let (Some(answer), Writing::Job(fence)) = (answer.take(), writing)
                    && !services.ledger.jobs.keep_answer(self.scope, fence, answer).await?
                {
                    return Ok(None);
                }
                judge.ask(settled.unasked, &room).await?;
                kept = Some((expected_memory_seq, prepared));
                continue;
            }
            let timeline = prepared.timeline();
            let writing = match judge.away() {
                Some(_) => writing.in_part(),
                None => writing.clone(),
            };
            let result = self.reconciliation(writing, expected_memory_seq, addition, timeline, &settled);
            match facts.reconcile(self.scope, &result).await? {
                ReconcileOutcome::Committed => {
                    // Nobody else has it by now; if so, a copy does as well.
                    let known = Arc::try_unwrap(prepared).map(Prepared::into_known);
                    let known = known.unwrap_or_else(|shared| shared.timeline().known.clone());
                    return Ok(Some((known, settled)));
                }
                ReconcileOutcome::Fenced => return Ok(None),
                ReconcileOutcome::MemoryMoved => moved += 1,
            }
        }
        Err(StoreError::Unavailable("this memory is written to all the time".to_owned()).into())
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

    fn reconciliation(
        &self,
        writing: Writing,
        expected_memory_seq: u64,
        addition: Option<&Addition<'_>>,
        timeline: &Timeline,
        settled: &Settled,
    ) -> Reconciliation {
        Reconciliation {
            writing,
            calls: spent(),
            world: self.world.clone(),
            npcs: self.npcs.clone(),
            expected_memory_seq,
            extraction: addition.map(|addition| addition.extraction.clone()),
            facts: addition.map(|addition| addition.facts.clone()).unwrap_or_default(),
            invalidations: settled
                .ends
                .iter()
                .map(|end| NewInvalidation {
                    id: self.services.ids.next(),
                    fact: end.fact,
                    reason: end.reason,
                    by: end.by,
                    cause: Cause::Turn(end.turn),
                    at: end.at,
                    restored_at: end.restored_at,
                })
                .collect(),
            lifts: settled.lifts.clone(),
            flags: settled.flags.clone(),
            flagging: timeline.said.iter().map(|said| said.turn).collect(),
            flags_kept: settled.unheard.iter().copied().collect(),
            replaced: settled.replaced.clone(),
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

fn new_fact(said: &Said, audience: &Audience, injected: &Injected, fresh: &Fresh) -> NewFact {
    NewFact {
        id: fresh.id,
        world: said.world.id.clone(),
        audience: audience.clone(),
        locks: said.locks_of(&fresh.statement, injected),
        statement: fresh.statement.clone(),
        // When it was said, whenever the job runs.
        valid_at: said.turn.committed_at,
        expires_at: None,
        cause: Cause::Turn(said.turn.id),
        source: Some((said.turn.dialogue, said.turn.number)),
        derived_from: Vec::new(),
        pii: fresh.pii.clone(),
        authored: false,
        embedding: fresh.embedding.clone(),
    }
}

/// What those who listen to the dialogue are told: what is new and stands, what it ended, what it
/// contradicts.
fn changes(known: &[Known], settled: &Settled, addition: &Addition<'_>) -> Vec<MemoryChange> {
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
        let flagged = |flag: &timeline::Flagged| flag.fact == id && flag.turn == addition.turn;
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
