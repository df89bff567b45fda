//! Duplicates and conflicts. `memory::timeline` decides the new state of a memory, and one transaction writes it.
//!
//! No lock is held during a model call. A plan records the memory position at its start. If another node wrote
//! meanwhile, the ledger refuses the plan, and a new plan is made. Verdicts and vectors of requests to forget, if
//! missing, are fetched between two plans.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use tokio::sync::OwnedMutexGuard;

use super::{
    decisions::{self, AfterWrite, PlanStep, PlanView},
    judge::Judge,
    judge_calls::KnownVerdicts,
    memory_update::{AudienceMemory, MemoryUpdate},
    timeline_input::{MissingVectors, RequestVectors, TimelineInput},
    timeline_reading::TimelineRead,
};
use crate::{
    jobs::{JobError, embed_listed_facts},
    models::tallied_usage,
    recall::LatestWrites,
};
use colloquy_memory::{
    disclosure::audience::Audience,
    fact::{Cause, NewFact, NewInvalidation},
    timeline::{JudgeBudget, KnownFact, PreparedTimeline, Timeline, TimelineResolution, UnjudgedPair},
};
use colloquy_ports::{
    StoreError, StoreResult,
    ledger::facts::{Extraction, FactStore, JudgedPair, ReconcileOutcome, ReconcileTrigger, Reconciliation},
};

/// The wait for the judge before the extraction's model answer is stored. With a stored answer, a restarted process
/// need not ask again. A faster judge saves a write.
const KEEP_ANSWER_AFTER: Duration = Duration::from_millis(100);

/// A memory's known facts and resolution, as written.
pub(super) struct WrittenUpdate {
    pub known_facts: Vec<KnownFact>,
    pub resolution: TimelineResolution,
}

/// Plans and writes until no other writer interferes. Memories of the same NPCs are written together or not at all.
/// `None`: the write is no longer allowed. `answer`: the model's answer, unless the ledger has stored it.
pub(super) async fn write_updates(
    updates: &[MemoryUpdate<'_>],
    since: DateTime<Utc>,
    trigger: &ReconcileTrigger,
    answer: Option<&str>,
    judge: &mut Judge<'_>,
) -> Result<Option<Vec<WrittenUpdate>>, JobError> {
    let written_updates = plan_and_write(updates, since, trigger, answer, judge).await;
    judge.store_verdicts().await;
    written_updates
}

async fn plan_and_write(
    updates: &[MemoryUpdate<'_>],
    since: DateTime<Utc>,
    trigger: &ReconcileTrigger,
    mut answer: Option<&str>,
    judge: &mut Judge<'_>,
) -> Result<Option<Vec<WrittenUpdate>>, JobError> {
    let Some(memory) = updates.first().map(|update| &update.memory) else {
        return Ok(None);
    };
    let cache = &memory.services.memory_cache;
    let mut planner = Planner::new(memory, updates, since, trigger);
    let judge_budget = Arc::new(judge.prompt_room()?);
    let mut overtaken_plans = 0;
    loop {
        let mut guard = cache.lock_writers(memory.scope, &memory.world, &memory.npcs).await;
        let mut plan = match planner.read_plan(&guard).await? {
            Ok(plan) => plan,
            Err(missing) => {
                drop(guard);
                planner.embed_missing(missing).await?;
                continue;
            }
        };
        let unjudged = planner.resolve(&mut plan, &judge_budget, judge).await?;
        let step = decisions::next_step(planner.view(&plan, &unjudged, judge));
        if step == PlanStep::AskJudge {
            drop(guard);
            if !ask_judge(memory, judge, unjudged, &judge_budget, trigger, &mut answer).await? {
                return Ok(None);
            }
            planner.reusable_plan = Some(plan);
            continue;
        }
        planner.part_is_written |= step == PlanStep::WritePart;
        let result = planner.build_reconciliation(step, &plan, &judge.unstored);
        let outcome = planner.facts().commit_reconciliation(memory.scope, &result).await?;
        if outcome == ReconcileOutcome::Committed {
            judge.unstored.clear();
        }
        overtaken_plans += usize::from(outcome == ReconcileOutcome::MemoryMoved);
        match decisions::after_write(step, outcome, overtaken_plans) {
            AfterWrite::Finish => {
                cache.cache_written(&result.facts);
                if let ([writes], false) = (guard.as_mut_slice(), result.facts.is_empty()) {
                    writes.record_write(plan.memory_seq, audiences_of(updates));
                }
                return Ok(Some(plan.into_written()));
            }
            AfterWrite::PlanAgain => {}
            AfterWrite::Stop => return Ok(None),
            AfterWrite::GiveUp => {
                return Err(StoreError::Unavailable("this memory is written to all the time".to_owned()).into());
            }
        }
    }
}

/// The timelines of a plan, and the memory's position at its start.
struct Plan {
    memory_seq: u64,
    timelines: Vec<Arc<PreparedTimeline>>,
    /// The resolutions of the timelines, as far as the judge's verdicts are known; empty at first.
    resolutions: Vec<TimelineResolution>,
}

impl Plan {
    fn into_written(self) -> Vec<WrittenUpdate> {
        debug_assert!(
            self.timelines.len() == self.resolutions.len(),
            "each timeline of a written plan is resolved"
        );
        let known_facts = self.timelines.into_iter().map(unwrap_known_facts);
        known_facts
            .zip(self.resolutions)
            .map(|(known_facts, resolution)| WrittenUpdate {
                known_facts,
                resolution,
            })
            .collect()
    }
}

/// Makes the plans of one write.
struct Planner<'p> {
    memory: &'p AudienceMemory<'p>,
    updates: &'p [MemoryUpdate<'p>],
    since: DateTime<Utc>,
    trigger: &'p ReconcileTrigger,
    requests: RequestVectors,
    /// True if stored facts without a vector get one before they are compared.
    embeds_facts: bool,
    /// True after the part that needs no judge was written.
    part_is_written: bool,
    /// The plan from before the judge was asked. It stays valid until a writer touches an overlapping audience.
    reusable_plan: Option<Plan>,
}

impl<'p> Planner<'p> {
    fn new(
        memory: &'p AudienceMemory<'p>,
        updates: &'p [MemoryUpdate<'p>],
        since: DateTime<Utc>,
        trigger: &'p ReconcileTrigger,
    ) -> Self {
        Self {
            memory,
            updates,
            since,
            trigger,
            requests: RequestVectors::new(),
            embeds_facts: !is_job(trigger),
            part_is_written: false,
            reusable_plan: None,
        }
    }

    fn facts(&self) -> &'p dyn FactStore {
        &*self.memory.services.ledger.facts
    }

    /// Makes a plan, or returns what lacks vectors. `writes` are the latest writes to the memories of the locked NPCs.
    async fn read_plan(
        &mut self,
        writes: &[OwnedMutexGuard<LatestWrites>],
    ) -> Result<Result<Plan, MissingVectors>, JobError> {
        // The ledger detects the writes of other nodes.
        if let Some(plan) = self.reusable_plan.take() {
            let position = match writes {
                [writes] => writes.position_if_disjoint(&audiences_of(self.updates), plan.memory_seq),
                _ => Some(plan.memory_seq),
            };
            if let Some(memory_seq) = position {
                return Ok(Ok(Plan { memory_seq, ..plan }));
            }
        }
        let AudienceMemory { scope, world, npcs, .. } = self.memory;
        let position = self.facts().memory_position(scope, world, npcs).await?;
        let mut timelines = Vec::with_capacity(self.updates.len());
        for MemoryUpdate { memory, addition } in self.updates {
            let input = TimelineInput {
                audience: &memory.audience,
                since: self.since,
                addition: addition.as_ref(),
                requests: &self.requests,
                embeds_facts: self.embeds_facts,
            };
            match memory.read_timeline(input, position.is_indexed).await? {
                TimelineRead::Complete(timeline) => timelines.push(memory.prepare_timeline(timeline).await?),
                TimelineRead::Incomplete(missing) => return Ok(Err(missing)),
            }
        }
        Ok(Ok(Plan {
            memory_seq: position.seq,
            timelines,
            resolutions: Vec::new(),
        }))
    }

    /// Embeds what a plan lacks.
    async fn embed_missing(&mut self, missing: MissingVectors) -> Result<(), JobError> {
        let AudienceMemory { services, scope, .. } = self.memory;
        let record_tenant = |_: &JobError| services.memory_cache.unembedded.record_tenant(scope);
        match missing {
            // A job stores facts without vectors, and its memory is marked. The marked memory then waits for the embedder.
            MissingVectors::NewRequests(texts) => {
                let may_lack = is_job(self.trigger);
                self.memory.embed_requests(texts, &mut self.requests, may_lack).await
            }
            // Without a vector, what a request ended would be valid again.
            MissingVectors::StoredRequests(texts) => {
                let outcome = self.memory.embed_requests(texts, &mut self.requests, false).await;
                outcome.inspect_err(record_tenant)
            }
            MissingVectors::Facts(facts) => {
                let outcome = embed_listed_facts(services, scope, facts).await;
                outcome.inspect_err(record_tenant)?;
                // A text that the embedder refuses stays without a vector.
                self.embeds_facts = false;
                Ok(())
            }
        }
    }

    /// Resolves the timelines of a plan, as far as the judge's verdicts are known. Returns the pairs without a verdict.
    async fn resolve(
        &self,
        plan: &mut Plan,
        judge_budget: &Arc<JudgeBudget>,
        judge: &mut Judge<'_>,
    ) -> Result<Vec<UnjudgedPair>, JobError> {
        plan.resolutions.clear();
        let mut unjudged = Vec::new();
        for (update, timeline) in self.updates.iter().zip(&plan.timelines) {
            let mut resolution = update.memory.resolve_timeline(timeline, judge_budget, judge).await?;
            unjudged.append(&mut resolution.unjudged);
            plan.resolutions.push(resolution);
        }
        Ok(unjudged)
    }

    fn view(&self, plan: &Plan, unjudged: &[UnjudgedPair], judge: &Judge<'_>) -> PlanView {
        PlanView {
            has_unjudged: !unjudged.is_empty(),
            has_changes: plan.resolutions.iter().any(TimelineResolution::has_changes),
            is_mark: !is_job(self.trigger),
            part_is_written: self.part_is_written,
            judge_is_away: judge.away_reason().is_some(),
        }
    }

    /// Returns what `step` writes of a plan.
    fn build_reconciliation(&self, step: PlanStep, plan: &Plan, verdicts: &[JudgedPair]) -> Reconciliation {
        let additions = || self.updates.iter().filter_map(|update| update.addition.as_ref());
        let timelines = || plan.timelines.iter().map(|prepared| prepared.timeline());
        let resolutions = &plan.resolutions;
        debug_assert!(
            resolutions.len() == self.updates.len(),
            "each update of a plan has a resolution"
        );
        debug_assert!(
            resolutions.iter().all(|resolution| resolution.unjudged.is_empty()),
            "pairs without a verdict are no part of a write"
        );
        let ends = resolutions.iter().flat_map(|resolution| &resolution.ends);
        let extractions: Vec<Extraction> = additions().map(|addition| addition.extraction.clone()).collect();
        let facts: Vec<NewFact> = additions().flat_map(|addition| addition.facts.clone()).collect();
        Reconciliation {
            lacks_vectors: decisions::lacks_vectors(&facts, &extractions, &self.requests),
            trigger: match step {
                PlanStep::Write => self.trigger.clone(),
                _ => self.trigger.as_partial(),
            },
            calls: tallied_usage(),
            world: self.memory.world.clone(),
            npcs: self.memory.npcs.clone(),
            expected_memory_seq: plan.memory_seq,
            extractions,
            facts,
            episode: additions().find_map(|addition| addition.episode.clone()),
            invalidations: ends
                .map(|end| NewInvalidation {
                    id: self.memory.services.ids.next_id(),
                    fact: end.fact,
                    reason: end.reason,
                    ended_by: end.ended_by,
                    cause: Cause::Turn(end.turn),
                    ended_at: end.ended_at,
                    restored_at: end.restored_at,
                })
                .collect(),
            lifts: resolutions
                .iter()
                .flat_map(|resolution| resolution.lifts.clone())
                .collect(),
            flags: resolutions
                .iter()
                .flat_map(|resolution| resolution.flags.clone())
                .collect(),
            flagging: timelines()
                .flat_map(|timeline| timeline.turns.iter().map(|spoken_turn| spoken_turn.turn))
                .collect(),
            flagging_by: timelines().flat_map(Timeline::facts_said_since).collect(),
            flags_kept: resolutions
                .iter()
                .flat_map(|resolution| resolution.undecided_pairs.clone())
                .collect(),
            replaced: resolutions
                .iter()
                .flat_map(|resolution| resolution.replaced.clone())
                .collect(),
            verdicts: verdicts.to_vec(),
        }
    }
}

fn is_job(trigger: &ReconcileTrigger) -> bool {
    matches!(trigger, ReconcileTrigger::Job(_))
}

/// Returns the facts of a timeline. Copies the facts if the timeline is still shared.
fn unwrap_known_facts(prepared: Arc<PreparedTimeline>) -> Vec<KnownFact> {
    Arc::try_unwrap(prepared).map_or_else(
        |shared| shared.timeline().known_facts.clone(),
        PreparedTimeline::into_known,
    )
}

/// Asks the judge. If the judge is slow, stores the model answer of the extraction meanwhile. `false`: the job must not
/// write.
async fn ask_judge(
    memory: &AudienceMemory<'_>,
    judge: &mut Judge<'_>,
    pairs: Vec<UnjudgedPair>,
    judge_budget: &JudgeBudget,
    trigger: &ReconcileTrigger,
    answer: &mut Option<&str>,
) -> Result<bool, JobError> {
    let mut judging = Box::pin(judge.ask_pairs(pairs, judge_budget));
    if let Ok(outcome) = tokio::time::timeout(KEEP_ANSWER_AFTER, &mut judging).await {
        return outcome.map(|()| true);
    }
    let jobs = &memory.services.ledger.jobs;
    if let (Some(answer), ReconcileTrigger::Job(fence)) = (answer.take(), trigger)
        && !jobs.store_answer(memory.scope, fence, answer).await?
    {
        return Ok(false);
    }
    judging.await.map(|()| true)
}

fn audiences_of(updates: &[MemoryUpdate<'_>]) -> Vec<Audience> {
    updates.iter().map(|update| update.memory.audience.clone()).collect()
}

impl AudienceMemory<'_> {
    /// Processes the facts and requests since `since` again, and writes the result.
    pub(super) async fn reconcile_since(
        self,
        since: DateTime<Utc>,
        trigger: &ReconcileTrigger,
        judge: &mut Judge<'_>,
    ) -> Result<(), JobError> {
        let update = MemoryUpdate {
            memory: self,
            addition: None,
        };
        write_updates(&[update], since, trigger, None, judge).await.map(drop)
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
        judge_budget: &Arc<JudgeBudget>,
        judge: &mut Judge<'_>,
    ) -> Result<TimelineResolution, JobError> {
        let long = prepared.timeline().needs_own_thread();
        loop {
            let timeline = Arc::clone(prepared);
            let judge_budget = Arc::clone(judge_budget);
            let answers: KnownVerdicts = std::mem::take(&mut judge.answers);
            let (mut resolution, answers) = run_apart_if_long(long, move || {
                let resolution =
                    timeline.reconcile_timeline(&judge_budget, |older, newer| answers.verdict_of(older, newer));
                (resolution, answers)
            })
            .await?;
            judge.answers = answers;
            let unjudged_count = resolution.unjudged.len();
            resolution.unjudged = judge.look_up_verdicts(std::mem::take(&mut resolution.unjudged)).await?;
            if resolution.unjudged.len() == unjudged_count {
                return Ok(resolution);
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
