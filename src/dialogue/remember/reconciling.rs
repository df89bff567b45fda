//! Dedupe and conflict: what a memory comes to, decided by `memory::timeline` and written in one
//! transaction.
//!
//! No lock is held while a judge thinks. The plan says where memory stood when it was made, and the
//! ledger refuses it if another node wrote meanwhile; then it is made again. Pairs that nobody has
//! judged yet are judged between two plans.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};

use super::{
    Injected,
    extraction::{Fresh, Learned},
    judge::Judge,
};
use crate::{
    dialogue::{
        Services,
        events::{MemoryChange, MemoryOp},
        jobs::{
            JobError, Said,
            outbox::{relay_or_log, relay_outbox_of},
        },
    },
    ids::{FactId, NpcId, TurnId, WorldId},
    memory::{
        fact::{Audience, Cause, Fact, FactView, Knower, NewFact, NewInvalidation},
        keywords,
        timeline::{self, Known, Request, SaidThen, Settled, Timeline},
    },
    ports::{
        StoreError, StoreResult,
        embedder::EmbedAs,
        ledger::{
            facts::{Extraction, ReconcileOutcome, Reconciliation, TimelineRows, Writing},
            jobs::Job,
            rewinds::Unsettled,
        },
    },
    tenancy::TenantScope,
};

/// How often a plan is made before the job is put off.
const MAX_PLANS: usize = 8;
/// Nearest facts of the audience, whatever their subject, among which those of the new fact's own are
/// looked for. Many, since a talkative player has many near facts of other subjects.
const NEIGHBOURS: usize = 40;
/// Marks settled in one go.
const MARKS: u32 = 16;

/// Which memory is written to.
struct Memory<'a> {
    services: &'a Services,
    scope: &'a TenantScope,
    world: WorldId,
    audience: Audience,
    /// Whose `memory_seq` guards it; sorted.
    npcs: Vec<NpcId>,
}

/// What one turn adds.
struct Addition<'a> {
    turn: TurnId,
    facts: Vec<NewFact>,
    extraction: Extraction,
    forget: Vec<Request>,
    fresh: &'a [Fresh],
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
            .map(|fresh| new_fact(said, &audience, fresh))
            .collect(),
        forget: memory.requests(&learned.forget).await?,
        fresh: &learned.facts,
        extraction: Extraction {
            turn: said.turn.id,
            dialogue: said.turn.dialogue,
            number: said.turn.number,
            said_at: said.turn.committed_at,
            player: said.turn.player.clone(),
            forget: learned.forget.clone(),
            injected: injected.ids.clone(),
            audience,
        },
    };
    let writing = Writing::Job(job.fence());
    if addition.facts.is_empty() && addition.forget.is_empty() {
        // A turn that says nothing new ends nothing, whatever was said around it: there is nothing to plan.
        let result = nothing_new(memory.world, writing, addition.extraction);
        services.ledger.facts.reconcile(scope, &result).await?;
        return Ok(Vec::new());
    }
    let mut judge = Judge::new(services, scope, said.npc.language);
    let since = said.turn.committed_at;
    let written = memory.write(since, Some(&addition), &writing, &mut judge).await?;
    Ok(written.map_or_else(Vec::new, |(known, settled)| changes(&known, &settled, &addition)))
}

/// That a turn taught nothing, which moves no memory and depends on none.
fn nothing_new(world: WorldId, writing: Writing, extraction: Extraction) -> Reconciliation {
    Reconciliation {
        writing,
        world,
        npcs: Vec::new(),
        expected_memory_seq: 0,
        extraction: Some(extraction),
        facts: Vec::new(),
        invalidations: Vec::new(),
        lifts: Vec::new(),
        verdicts: Vec::new(),
        flags: Vec::new(),
        flagging: Vec::new(),
    }
}

/// Settles every memory from which something was unsaid, or into which something was put back. How
/// many there were; what fails stays marked.
pub async fn settle_all(services: &Services, scope: &TenantScope) -> Result<usize, JobError> {
    let marks = services.ledger.rewinds.unsettled(scope, MARKS).await?;
    for mark in &marks {
        failpoint!("settle.marked");
        settle(services, scope, mark).await?;
        failpoint!("settle.durable");
    }
    if !marks.is_empty() {
        relay_or_log(services).await;
    }
    Ok(marks.len())
}

async fn settle(services: &Services, scope: &TenantScope, mark: &Unsettled) -> Result<(), JobError> {
    let world = services.ledger.authored.world(scope, &mark.world).await?;
    let language = world.map(|world| world.language).unwrap_or_default();
    let npcs: BTreeSet<NpcId> = mark
        .audience
        .knowers
        .iter()
        .filter_map(|knower| match knower {
            Knower::Npc(npc) => Some(npc.clone()),
            Knower::Faction(_) | Knower::World => None,
        })
        .collect();
    let memory = Memory {
        services,
        scope,
        world: mark.world.clone(),
        audience: mark.audience.clone(),
        npcs: npcs.into_iter().collect(),
    };
    let mut judge = Judge::new(services, scope, language);
    let writing = Writing::Settling(mark.clone());
    memory.write(mark.since, None, &writing, &mut judge).await?;
    Ok(())
}

impl Memory<'_> {
    /// Plans and writes until memory holds still. `None`: it may no longer be written.
    async fn write(
        &self,
        since: DateTime<Utc>,
        addition: Option<&Addition<'_>>,
        writing: &Writing,
        judge: &mut Judge<'_>,
    ) -> Result<Option<(Vec<Known>, Settled)>, JobError> {
        let (services, facts) = (self.services, &self.services.ledger.facts);
        for _ in 0..MAX_PLANS {
            let guard = services.bodies.write_memory(self.scope, &self.world, &self.npcs).await;
            let expected_memory_seq = facts.memory_seq(self.scope, &self.world, &self.npcs).await?;
            let timeline = self.timeline(since, addition).await?;
            let settled = loop {
                let calibration = &services.embedder.info().calibration;
                let mut settled = timeline::settle(calibration, &timeline, |older, newer| judge.known(older, newer));
                if settled.unasked.is_empty() {
                    break settled;
                }
                let asked = settled.unasked.len();
                settled.unasked = judge.look_up(std::mem::take(&mut settled.unasked)).await?;
                if settled.unasked.len() == asked {
                    break settled;
                }
            };
            if !settled.unasked.is_empty() {
                drop(guard);
                judge.ask(settled.unasked).await;
                continue;
            }
            let result = self.reconciliation(writing, expected_memory_seq, addition, &timeline, &settled, judge);
            match facts.reconcile(self.scope, &result).await? {
                ReconcileOutcome::Committed => return Ok(Some((timeline.known, settled))),
                ReconcileOutcome::Fenced => return Ok(None),
                ReconcileOutcome::MemoryMoved => {}
            }
        }
        Err(StoreError::Unavailable("this memory is written to all the time".to_owned()).into())
    }

    fn reconciliation(
        &self,
        writing: &Writing,
        expected_memory_seq: u64,
        addition: Option<&Addition<'_>>,
        timeline: &Timeline,
        settled: &Settled,
        judge: &Judge<'_>,
    ) -> Reconciliation {
        Reconciliation {
            writing: writing.clone(),
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
            verdicts: judge.judged.clone(),
            flags: settled.flags.clone(),
            flagging: timeline.said.iter().map(|said| said.turn).collect(),
        }
    }

    /// What was said since, and the facts before that may be near any of it.
    async fn timeline(&self, since: DateTime<Utc>, addition: Option<&Addition<'_>>) -> Result<Timeline, JobError> {
        let mut asked: BTreeSet<FactId> = BTreeSet::new();
        if let Some(addition) = addition {
            if !addition.facts.is_empty() {
                // A new fact may only repeat them; a request to forget is compared with what is near it.
                asked.extend(&addition.extraction.injected);
            }
            let vectors = addition.fresh.iter().map(|fresh| fresh.embedding.as_slice());
            let requests = addition.forget.iter().map(|request| request.vector.as_slice());
            let vectors: Vec<&[f32]> = vectors.chain(requests).collect();
            if !vectors.is_empty() {
                // Whatever was written up to here must be seen by the searches below. What is written
                // after moves `memory_seq`.
                relay_outbox_of(self.services, self.scope).await?;
            }
            asked.extend(self.near(&vectors).await?);
        }
        let mut rows = self.rows(since, &asked).await?;
        let mut said = Vec::with_capacity(rows.extractions.len() + 1);
        for extraction in &rows.extractions {
            let forget = self.requests(&extraction.forget).await?;
            said.push(said_then(extraction, forget));
        }
        // Usually the turn is the latest word. If not, what was said since is gone through once more.
        let since_then: Vec<&[f32]> = rows
            .known
            .iter()
            .filter(|known| known.fact.valid_at >= since)
            .map(|known| known.vector.as_slice())
            .chain(
                said.iter()
                    .flat_map(|said| &said.forget)
                    .map(|request| request.vector.as_slice()),
            )
            .collect();
        if !since_then.is_empty() || !said.is_empty() {
            relay_outbox_of(self.services, self.scope).await?;
            let more = self.near(&since_then).await?;
            asked.extend(more);
            asked.extend(said.iter().flat_map(|said| &said.injected));
            rows = self.rows(since, &asked).await?;
        }
        let mut known = rows.known;
        if let Some(addition) = addition {
            said.push(said_then(&addition.extraction, addition.forget.clone()));
            known.extend(addition.facts.iter().map(|new| Known {
                fact: as_fact(new),
                vector: new.embedding.clone(),
                edits: Vec::new(),
                ends: Vec::new(),
            }));
        }
        Ok(Timeline {
            since,
            known,
            said,
            elsewhere: rows.elsewhere,
        })
    }

    async fn rows(&self, since: DateTime<Utc>, asked: &BTreeSet<FactId>) -> StoreResult<TimelineRows> {
        let asked: Vec<FactId> = asked.iter().copied().collect();
        let facts = &self.services.ledger.facts;
        facts
            .timeline(self.scope, &self.world, &self.audience, since, &asked)
            .await
    }

    /// Facts of this memory that are near any of `vectors`.
    async fn near(&self, vectors: &[&[f32]]) -> StoreResult<BTreeSet<FactId>> {
        let calibration = self.services.embedder.info().calibration;
        let least = calibration.cosine_at(calibration.related);
        let mut found = BTreeSet::new();
        for vector in vectors {
            let near = self
                .services
                .index
                .similar(self.scope, &self.world, &self.audience, vector, least, NEIGHBOURS)
                .await?;
            found.extend(near.iter().map(|candidate| candidate.fact));
        }
        Ok(found)
    }

    /// Requests to forget, as they are compared with facts.
    async fn requests(&self, texts: &[String]) -> Result<Vec<Request>, JobError> {
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let services = self.services;
        let (vectors, _) = services
            .models
            .embed(self.scope, services.embedder.as_ref(), EmbedAs::Passage, texts)
            .await;
        Ok(texts
            .iter()
            .zip(vectors?)
            .map(|(text, vector)| Request {
                terms: keywords::query_terms(text),
                vector,
            })
            .collect())
    }
}

fn said_then(extraction: &Extraction, forget: Vec<Request>) -> SaidThen {
    SaidThen {
        turn: extraction.turn,
        at: extraction.said_at,
        player: extraction.player.clone(),
        forget,
        injected: extraction.injected.clone(),
    }
}

fn new_fact(said: &Said, audience: &Audience, fresh: &Fresh) -> NewFact {
    NewFact {
        id: fresh.id,
        world: said.world.id.clone(),
        audience: audience.clone(),
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

/// A fact as it will be once it is written.
fn as_fact(new: &NewFact) -> Fact {
    Fact {
        id: new.id,
        world: new.world.clone(),
        audience: new.audience.clone(),
        view: FactView::of(&new.statement),
        statement: new.statement.clone(),
        valid_at: new.valid_at,
        invalid: None,
        expires_at: new.expires_at,
        cause: new.cause,
        source: new.source,
        derived_from: new.derived_from.clone(),
        pii: new.pii.clone(),
        authored: new.authored,
        version: 1,
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
