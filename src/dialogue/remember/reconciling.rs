//! Dedupe and conflict: what is new is compared with what is known, and both are written together.
//!
//! No lock is held while a judge thinks. The plan says where memory stood when it was made, and the
//! ledger refuses it if another node wrote meanwhile; then it is made again. Pairs that nobody has
//! judged yet are judged between two plans.

use std::collections::HashMap;

use minijinja::context;
use serde::Deserialize;

use super::{
    Injected,
    extraction::{Fresh, Learned},
    forgetting,
};
use crate::{
    dialogue::{
        Services,
        events::{MemoryChange, MemoryOp},
        jobs::{JobError, Said, ask_json, outbox::relay_outbox_of},
        prompt::{Template, untrusted},
    },
    ids::FactId,
    memory::{
        fact::{Audience, Cause, Fact, FactView, InvalidReason, NewFact, NewInvalidation, Statement},
        party,
        reconcile::{Decision, Relation, Verdict, compare, decide, pair_hash},
    },
    ports::{
        StoreError, StoreResult,
        ledger::{
            facts::{Flag, JudgedPair, NewForgetRequest, ReconcileOutcome, Reconciliation},
            jobs::Job,
        },
        llm::{JsonSchema, Task},
    },
    tenancy::TenantScope,
};

/// How often a plan is made before the job is put off.
const MAX_PLANS: usize = 8;
/// Nearest facts of the audience, whatever their subject, among which those of the new fact's own are
/// looked for. Many, since a talkative player has many near facts of other subjects.
const NEIGHBOURS: usize = 40;

/// Writes what was learned. Returns what changed; nothing if the turn was unsaid meanwhile.
pub(super) async fn reconcile(
    services: &Services,
    scope: &TenantScope,
    job: &Job,
    said: &Said,
    injected: &Injected,
    learned: Learned,
) -> Result<Vec<MemoryChange>, JobError> {
    let npcs = said.learners();
    let mut judge = Judge {
        services,
        scope,
        said,
        answers: HashMap::new(),
        unasked: HashMap::new(),
        judged: Vec::new(),
    };
    for _ in 0..MAX_PLANS {
        let writing = services.bodies.write_memory(scope, &said.world.id, &npcs).await;
        let facts = &services.ledger.facts;
        let expected_memory_seq = facts.memory_seq(scope, &said.world.id, &npcs).await?;
        // Whatever was written up to here must be seen by the searches below. What is written after
        // moves `memory_seq`.
        relay_outbox_of(services, scope).await?;
        let plan = plan(services, scope, said, injected, &learned, &mut judge).await?;
        if !judge.unasked.is_empty() {
            drop(writing);
            judge.ask_models().await;
            continue;
        }
        if plan.is_empty() {
            services.ledger.jobs.finish(scope, job.id).await?;
            return Ok(Vec::new());
        }
        let result = Reconciliation {
            fence: job.fence(),
            world: said.world.id.clone(),
            npcs: npcs.clone(),
            expected_memory_seq,
            facts: plan.facts,
            invalidations: plan.invalidations,
            verdicts: judge.judged.clone(),
            flags: plan.flags,
            forget: plan.forget,
        };
        match facts.reconcile(scope, &result).await? {
            ReconcileOutcome::Committed => return Ok(plan.changes),
            ReconcileOutcome::Fenced => return Ok(Vec::new()),
            ReconcileOutcome::MemoryMoved => {}
        }
    }
    Err(StoreError::Unavailable("this memory is written to all the time".to_owned()).into())
}

/// What would be written.
#[derive(Default)]
struct Plan {
    facts: Vec<NewFact>,
    invalidations: Vec<NewInvalidation>,
    flags: Vec<Flag>,
    forget: Vec<NewForgetRequest>,
    changes: Vec<MemoryChange>,
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.invalidations.is_empty() && self.forget.is_empty()
    }
    fn invalidates(&self, fact: FactId) -> bool {
        self.invalidations.iter().any(|row| row.fact == fact)
    }
}

async fn plan(
    services: &Services,
    scope: &TenantScope,
    said: &Said,
    injected: &Injected,
    learned: &Learned,
    judge: &mut Judge<'_>,
) -> Result<Plan, JobError> {
    let audience = said.audience();
    let mut plan = Plan::default();
    for fresh in &learned.facts {
        let neighbours = neighbours(services, scope, said, &audience, fresh).await?;
        add(services, said, injected, &audience, fresh, neighbours, judge, &mut plan).await?;
    }
    // What is learned here may have been asked to be forgotten since.
    for (fresh, request) in forgetting::forgotten_since(services, scope, said, &audience, &learned.facts).await? {
        let written = plan.facts.iter().any(|fact| fact.id == fresh);
        if written && !plan.invalidates(fresh) {
            plan.changes.retain(|change| change.id != fresh);
            plan.invalidations.push(NewInvalidation {
                cause: Cause::Turn(request.turn),
                at: request.at,
                ..invalidation(services, said, fresh, InvalidReason::Forgotten, None)
            });
        }
    }
    plan.forget = learned
        .forget
        .iter()
        .map(|text| NewForgetRequest {
            audience: audience.clone(),
            text: text.clone(),
            at: said.turn.committed_at,
        })
        .collect();
    for old in forgetting::found(services, scope, said, &audience, &learned.forget).await? {
        if !plan.invalidates(old.id) {
            let row = invalidation(services, said, old.id, InvalidReason::Forgotten, None);
            plan.changes.push(change(&old, MemoryOp::Invalidated));
            plan.invalidations.push(row);
        }
    }
    Ok(plan)
}

/// Known facts that may say the same as `fresh`, or the opposite, nearest first.
async fn neighbours(
    services: &Services,
    scope: &TenantScope,
    said: &Said,
    audience: &Audience,
    fresh: &Fresh,
) -> StoreResult<Vec<(Fact, f32)>> {
    let calibration = services.embedder.info().calibration;
    let similar = services
        .index
        .similar(
            scope,
            &said.world.id,
            audience,
            &fresh.embedding,
            calibration.cosine_at(calibration.related),
            NEIGHBOURS,
        )
        .await?;
    if similar.is_empty() {
        return Ok(Vec::new());
    }
    let cosines: HashMap<FactId, f32> = similar.iter().map(|found| (found.fact, found.cosine)).collect();
    let ids: Vec<FactId> = similar.iter().map(|found| found.fact).collect();
    let known = services
        .ledger
        .facts
        .comparable(scope, audience, &fresh.statement.subject, &ids, services.clock.now())
        .await?;
    let mut known: Vec<(Fact, f32)> = known
        .into_iter()
        .filter_map(|fact| cosines.get(&fact.id).map(|cosine| (fact, *cosine)))
        .collect();
    known.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.id.cmp(&b.0.id)));
    Ok(known)
}

/// Adds one new fact and what it does to its neighbours.
#[expect(clippy::too_many_arguments, reason = "one step of a plan, with all it may look at")]
async fn add(
    services: &Services,
    said: &Said,
    injected: &Injected,
    audience: &Audience,
    fresh: &Fresh,
    neighbours: Vec<(Fact, f32)>,
    judge: &mut Judge<'_>,
    plan: &mut Plan,
) -> Result<(), JobError> {
    let calibration = services.embedder.info().calibration;
    let new = new_fact(said, audience, fresh);
    let mut rows = Vec::new();
    let mut flags = Vec::new();
    let mut changes = Vec::new();
    let mut stands = true;
    for (old, cosine) in neighbours {
        let relation = compare(&calibration, &fresh.statement, &old, cosine);
        if relation == Relation::Independent || plan.invalidates(old.id) {
            continue;
        }
        // A turn's job may run after a later turn's: then what is known is the newer statement.
        let late = old.valid_at > new.valid_at;
        let verdict = match relation {
            Relation::Judge if late => judge.verdict(&fresh.statement, &old.statement).await?,
            Relation::Judge => judge.verdict(&old.statement, &fresh.statement).await?,
            Relation::Same | Relation::Independent => None,
        };
        let echoed = !party::is_player(&fresh.statement.speaker)
            && injected.ids.contains(&old.id)
            && (relation == Relation::Same || verdict == Some(Verdict::Same));
        if echoed {
            // The NPC said what its prompt had told it, in whatever words: that is not news.
            return Ok(());
        }
        if late {
            let decision = decide(&old.statement, &as_fact(&new), relation, verdict);
            if let Decision::InvalidateOld(reason) = decision {
                // It held until the other was said, which its own turn is not.
                let ended = NewInvalidation {
                    at: old.valid_at,
                    ..invalidation(services, said, fresh.id, reason, Some(old.id))
                };
                rows.push(ended);
                stands = false;
                break;
            }
            continue;
        }
        match decide(&fresh.statement, &old, relation, verdict) {
            Decision::InvalidateOld(reason) => {
                rows.push(invalidation(services, said, old.id, reason, Some(fresh.id)));
                changes.push(change(&old, MemoryOp::Invalidated));
            }
            Decision::FoldNewIntoOld => {
                let reason = InvalidReason::Duplicate;
                rows.push(invalidation(services, said, fresh.id, reason, Some(old.id)));
                stands = false;
                break;
            }
            Decision::FlagOld => {
                flags.push(Flag {
                    fact: old.id,
                    by: fresh.id,
                });
                changes.push(change(&old, MemoryOp::Flagged));
            }
            Decision::KeepBoth => {}
        }
    }
    if stands {
        changes.insert(
            0,
            MemoryChange {
                id: fresh.id,
                content: fresh.statement.content.clone(),
                op: MemoryOp::Added,
            },
        );
    }
    plan.facts.push(new);
    plan.invalidations.extend(rows);
    plan.flags.extend(flags);
    plan.changes.extend(changes);
    Ok(())
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

fn invalidation(
    services: &Services,
    said: &Said,
    fact: FactId,
    reason: InvalidReason,
    by: Option<FactId>,
) -> NewInvalidation {
    NewInvalidation {
        id: services.ids.next(),
        fact,
        reason,
        by,
        cause: Cause::Turn(said.turn.id),
        at: said.turn.committed_at,
    }
}

fn change(fact: &Fact, op: MemoryOp) -> MemoryChange {
    MemoryChange {
        id: fact.id,
        content: fact.view.content.clone(),
        op,
    }
}

#[derive(Deserialize)]
struct Answer {
    verdict: String,
}

/// Answers about pairs of statements; each pair is asked about once.
struct Judge<'a> {
    services: &'a Services,
    scope: &'a TenantScope,
    said: &'a Said,
    /// `None`: it was asked and did not say; it is not asked again in this job.
    answers: HashMap<[u8; 32], Option<Verdict>>,
    /// Older and newer statement of pairs that a plan came upon and nobody has judged.
    unasked: HashMap<[u8; 32], (Statement, Statement)>,
    /// What the ledger does not have yet.
    judged: Vec<JudgedPair>,
}

impl Judge<'_> {
    /// The verdict of this job or of the ledger. `None`: there is none (yet).
    async fn verdict(&mut self, older: &Statement, newer: &Statement) -> StoreResult<Option<Verdict>> {
        let pair = pair_hash(&older.content, &newer.content);
        if let Some(answer) = self.answers.get(&pair) {
            return Ok(*answer);
        }
        let known = self.services.ledger.facts.verdict(self.scope, &pair).await?;
        if known.is_some() {
            self.answers.insert(pair, known);
        } else {
            self.unasked.insert(pair, (older.clone(), newer.clone()));
        }
        Ok(known)
    }

    /// Asks about every pair that came up. A judge that fails changes nothing.
    async fn ask_models(&mut self) {
        for (pair, (older, newer)) in std::mem::take(&mut self.unasked) {
            let verdict = match self.ask_model(&older, &newer).await {
                Ok((verdict, model)) => {
                    self.judged.push(JudgedPair { pair, verdict, model });
                    Some(verdict)
                }
                Err(error) => {
                    tracing::warn!(%error, turn = %self.said.turn.id, "a pair was not judged; both facts stay");
                    None
                }
            };
            self.answers.insert(pair, verdict);
        }
    }

    async fn ask_model(&self, older: &Statement, newer: &Statement) -> Result<(Verdict, String), JobError> {
        let values = context! {
            older => untrusted(&older.content),
            newer => untrusted(&newer.content),
            kind => newer.kind.as_str(),
        };
        let language = self.said.npc.language;
        let schema = JsonSchema {
            name: "verdict",
            schema: serde_json::json!({
                "type": "object",
                "properties": { "verdict": { "type": "string", "enum": ["same", "contradicts", "independent"] } },
                "required": ["verdict"],
                "additionalProperties": false,
            }),
        };
        let prompt = self.services.prompts.render(language, Template::Judge, values)?;
        let (answer, model): (Answer, _) = ask_json(self.services, self.scope, Task::Judge, prompt, schema).await?;
        let verdict = Verdict::parse(answer.verdict.trim().to_lowercase().as_str())
            .ok_or_else(|| JobError::Unusable("the judge named no verdict".to_owned()))?;
        Ok((verdict, model))
    }
}
